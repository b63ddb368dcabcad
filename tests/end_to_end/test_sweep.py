"""Sweeps: one folder per job, finished jobs are skipped, and a failed job does not stop the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ["recipe=distilbert", "limit=smoke", "limit.steps=1", "pipeline=[adapt,pretrain]"]
PRECISIONS = ["precision=fp32,bf16"]  # jobs share a process, and must not share what accelerate keeps of the last one


def sweep(cwd: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "distill", "-m", *SETTINGS, *settings]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250)


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
    command = [sys.executable, "-c", CRASHING, "-m", *SETTINGS, "seed=0,1,2", "stages.pretrain.clip=0,1"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert run.returncode == 1
    *above, first, second, third, last = run.stderr.splitlines()
    assert "Traceback (most recent call last):" in above
    assert first.startswith("job 0 (seed=0 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert second.startswith("job 2 (seed=1 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert third == "job 3 (seed=1 stages.pretrain.clip=1): RuntimeError: out of ideas; the traceback is above"
    assert last.startswith("job 4 (seed=2 stages.pretrain.clip=0): stages.pretrain.clip: got 0")
    assert len(depths(tmp_path)) == 2
