"""Sweeps: one folder per job, finished jobs are skipped, and a failed job does not stop the others."""

from __future__ import annotations

import glob
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from distill.pipeline.sweep import objectives
from tests.decoded import decoded
from tests.forked import PYTHON

SETTINGS = ["recipe=distilbert", "limit=smoke", "limit.steps=1", "pipeline=[adapt,pretrain]"]


def command(cwd: Path, *settings: str, python: str = PYTHON) -> subprocess.CompletedProcess[str]:
    words = [python, "-m", "distill", "-m", *settings]
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
    return cwd, sweep(cwd, "student.layers=[0,2,5],[5,0],[0,5]")


@pytest.mark.slow
def test_a_failed_job_does_not_stop_the_others(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    cwd, run = swept
    assert run.returncode == 2
    bad = "student.layers: got [5, 0]; must be distinct ascending layer numbers from 0; e.g. [0,2,5]\n"
    assert run.stderr == f"job 1 ('student.layers=[5,0]'): {bad}"
    assert sorted(depths(cwd).values()) == [2, 3]


@pytest.mark.slow
def test_finished_jobs_are_skipped(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    cwd, _ = swept
    runs = [cwd / name for name in depths(cwd)]
    files = {p: p.read_bytes() for run in runs for p in run.rglob("*") if p.is_file()}
    again = sweep(cwd, "student.layers=[0,2,5],[0,5]")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("adapt: finished earlier, skipped") == 2
    assert again.stdout.count("pretrain: finished earlier, skipped") == 2
    assert {p: p.read_bytes() for run in runs for p in run.rglob("*") if p.is_file()} == files
    assert [cwd / name for name in depths(cwd)] == runs


CRASHING = """
import os, signal
from distill import __main__
from distill.pipeline import stages

train = stages.STAGES["train"]


def crash(inputs, settings, runtime):
    if runtime.seed == 1:
        raise RuntimeError("out of ideas")
    if runtime.seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if runtime.seed == 4:
        os._exit(5)
    return train.run(inputs, settings, runtime)


stages.STAGES["train"] = stages.Stage(train.inputs, crash)  # also in the process of a job, which imports this file
if __name__ == "__main__":
    __main__.main()
"""


@pytest.mark.slow
def test_a_job_that_crashes_or_is_killed_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    short = [*SETTINGS[:-1], "pipeline=[adapt]"]
    words = [PYTHON, str(tmp_path / "crashing.py"), "-m", *short, "seed=1,3,4,0"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert run.returncode == 1
    above, lines = run.stderr.split("job 0 ", 1)
    assert "Traceback (most recent call last):" in above
    named = dict(line.removeprefix("job ").split(": ", 1) for line in f"0 {lines}".splitlines())
    assert list(named) == [f"{number} (seed={seed})" for number, seed in enumerate([1, 3, 4])]
    reasons = [*named.values()]
    assert reasons[0] == "RuntimeError: out of ideas; the traceback is above"
    assert reasons[1].startswith("process: got SIGKILL, by which an operating system ends a process when memory runs")
    assert reasons[2].startswith("process: got exit code 5; must finish the run first; ")
    assert len(list(tmp_path.rglob("adapt/manifest.json"))) == 1
    assert not list((tmp_path / "outputs" / ".sweep").glob("failed-*"))


LONG = ["stages.pretrain.epochs=5000", "limit.steps=100000", "stages.pretrain.checkpoint_seconds=0.1"]


def started(cwd: Path) -> subprocess.Popen[str]:
    """A sweep of two jobs, of which the first one trains."""
    words = [sys.executable, "-m", "distill", "-m", *SETTINGS, *LONG, "seed=0,1"]
    process = subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    # Not by rglob, which fails if a folder is removed meanwhile.
    while not glob.glob(f"{cwd}/**/pretrain.state/*/state.json", recursive=True):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
    return process


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["the sweep", "all processes"])
def test_a_stopped_sweep_stops_its_job(to: str, tmp_path: Path) -> None:
    """A scheduler may send the signal to all of its processes."""
    process = started(tmp_path)
    jobs = children(process)
    for each in (process, *(jobs if to == "all processes" else [])):
        each.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 143, errors
    assert "stopped at step" in errors[0]
    assert errors[-1].startswith("stopped; to go on, run: python -m distill -m recipe=distilbert")
    assert psutil.wait_procs(jobs, timeout=10)[1] == []


@pytest.mark.slow
def test_the_job_of_a_killed_sweep_ends_with_it(tmp_path: Path) -> None:
    process = started(tmp_path)
    jobs = children(process)
    process.kill()
    process.communicate(timeout=60)
    assert psutil.wait_procs(jobs, timeout=10)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_job_that_fails_in_another_process_is_named(launcher: str, tmp_path: Path) -> None:
    # With one job at a time, as by default on one core, joblib would start no process.
    side_by_side = ["hydra.launcher.n_jobs=2"] if launcher == "joblib" else []
    short = [*SETTINGS[:-1], "pipeline=[adapt]", f"hydra/launcher={launcher}", *side_by_side]
    run = command(tmp_path, *short, "temperature=2,-1", python=sys.executable)
    assert run.returncode == 2
    assert run.stderr.endswith("job 1 (temperature=-1): temperature: got -1.0; must be > 0; 2 is usual\n")
    assert len(list(tmp_path.rglob("adapt/manifest.json"))) == 1
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
    own += ["tasks.names=[order]", "stages.evaluate.shapes=[[1,16]]"]
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
    values = objectives(decoded(results), ["maximize"] * 2)
    assert best["solutions"] == [{"params": {"temperature": 3}, "values": values}]
