"""Sweeps: one folder per job, finished jobs are skipped, and a failed job does not stop the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from distill.sweep import objectives

SETTINGS = ["recipe=distilbert", "limit=smoke", "limit.steps=1", "pipeline=[adapt,pretrain]"]
PRECISIONS = ["precision=fp32,bf16"]  # jobs share a process, and must not share what accelerate keeps of the last one


def command(cwd: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "distill", "-m", *settings]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=250)


def sweep(cwd: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    return command(cwd, *SETTINGS, *settings)


def depths(cwd: Path) -> dict[str, int]:
    """Run folder -> layers of the student in it."""
    configs = (cwd / "outputs").rglob("pretrain/config.json")
    return {str(p.parent.parent.relative_to(cwd)): json.loads(p.read_text())["num_hidden_layers"] for p in configs}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    cwd = tmp_path_factory.mktemp("sweep")
    return cwd, sweep(cwd, "student.layers=[0,2,5],[5,0],[0,5]", *PRECISIONS)


@pytest.mark.slow
def test_a_failed_job_does_not_stop_the_others(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    cwd, run = swept
    assert run.returncode == 2
    bad = "student.layers: got [5, 0]; must be distinct ascending layer numbers from 0; e.g. [0,2,5]\n"
    own = "student.layers=[5,0] precision"
    assert run.stderr == f"job 2 ({own}=fp32): {bad}job 3 ({own}=bf16): {bad}"
    assert sorted(depths(cwd).values()) == [2, 2, 3, 3]
    assert run.stdout.count("training in fp32") == run.stdout.count("training in bf16") == 2


@pytest.mark.slow
def test_finished_jobs_are_skipped(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    cwd, _ = swept
    runs = [cwd / name for name in depths(cwd)]
    files = {p: p.read_bytes() for run in runs for p in run.rglob("*") if p.is_file()}
    again = sweep(cwd, "student.layers=[0,2,5],[0,5]", *PRECISIONS)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("adapt: finished earlier, skipped") == 4
    assert again.stdout.count("pretrain: finished earlier, skipped") == 4
    assert {p: p.read_bytes() for run in runs for p in run.rglob("*") if p.is_file()} == files
    assert [cwd / name for name in depths(cwd)] == runs


CRASHING = """
import sys
from distill import __main__, stages

train = stages.RUN["train"]


def crash(ctx, step):
    if ctx.config.seed == 1:
        raise RuntimeError("out of ideas")
    return train(ctx, step)


stages.RUN["train"] = crash
__main__.main()
"""


@pytest.mark.slow
def test_a_job_that_crashes_does_not_stop_the_others(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CRASHING, "-m", *SETTINGS, "seed=0,1,2", "stages.pretrain.clip=0,1"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert run.returncode == 1
    *above, first, second, third, last = run.stderr.splitlines()
    assert "Traceback (most recent call last):" in above
    assert first.startswith("job 0 (seed=0 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert second.startswith("job 2 (seed=1 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert third == "job 3 (seed=1 stages.pretrain.clip=1): RuntimeError: out of ideas; the traceback is above"
    assert last.startswith("job 4 (seed=2 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert len(depths(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_job_that_fails_in_another_process_is_named(launcher: str, tmp_path: Path) -> None:
    run = sweep(tmp_path, f"hydra/launcher={launcher}", "student.layers=[0,2,5],[5,0]")
    assert run.returncode == 2
    bad = "student.layers: got [5, 0]; must be distinct ascending layer numbers from 0; e.g. [0,2,5]\n"
    assert run.stderr.endswith(f"job 1 (student.layers=[5,0]): {bad}")
    assert [*depths(tmp_path).values()] == [3]
    assert not list((tmp_path / "outputs" / ".sweep").glob("failed-*"))


@pytest.mark.slow
def test_optuna_maximizes_what_is_retained_and_the_speedup(tmp_path: Path) -> None:
    """Some trials have a wrong setting."""
    trials = [
        "hydra/sweeper=optuna",
        "hydra.sweeper.sampler.seed=1",
        "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.n_trials=3",
    ]
    directions = "hydra.sweeper.direction=[maximize,maximize]"
    own = ["recipe=task", "teacher=embedded", "tasks=docstrings", "limit=smoke", "limit.steps=1"]
    own += ["pipeline=[finetune_teacher,finetune,evaluate]", "stages.evaluate.baseline=null"]
    own += ["stages.evaluate.quantized=null", "stages.evaluate.repeats=1"]
    run = command(tmp_path, *trials, directions, *own, "temperature=choice(3,-1)")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("job ")
    assert "temperature: got -1.0; must be > 0" in run.stderr.splitlines()[-1]
    (file,) = (tmp_path / "outputs").rglob("results.json")
    results = json.loads(file.read_text())
    assert [model for model in results["models"] if "failed" in model] == []
    best = yaml.safe_load((tmp_path / "outputs" / ".sweep" / "optimization_results.yaml").read_text())
    assert best["solutions"] == [{"params": {"temperature": 3}, "values": objectives(results, ["maximize"] * 2)}]
