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
    assert run.stderr == 2 * bad
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
