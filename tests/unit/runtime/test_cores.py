"""The cores of a process are those of its container, if that may use fewer than the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distill.runtime.cores import cores

OLD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 64),
        ({OLD[0]: "-1\n", OLD[1]: "100000\n"}, 64),
        ({OLD[0]: "400000\n", OLD[1]: "100000\n"}, 4),
    ],
)
def test_a_container_of_few_cores_on_a_machine_of_many(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `docker run --cpus=2` limits it: the process still sees all cores, and had a thread on each of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == expected


NESTED = "0::/system.slice/slurmstepd.scope/job_7/step_0\n"
OF_OLD = "5:memory:/slurm/job_7\n4:cpu,cpuacct:/slurm/job_7\n"


@pytest.mark.parametrize(
    ("listed", "files", "expected"),
    [
        (NESTED, {"system.slice/slurmstepd.scope/job_7/cpu.max": "400000 100000\n"}, 4),
        (NESTED, {"system.slice/slurmstepd.scope/job_7/step_0/cpu.max": "max 100000\n"}, 64),
        (NESTED, {"system.slice/slurmstepd.scope/job_8/cpu.max": "400000 100000\n"}, 64),
        (
            OF_OLD,
            {"cpu/slurm/job_7/cpu.cfs_quota_us": "200000\n", "cpu/slurm/job_7/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        ("0::/../outside\n", {}, 64),
    ],
)
def test_a_job_or_a_service_of_few_cores(
    listed: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SLURM, or `CPUQuota=` of systemd, limits it: in a group below the top one, which has no limit."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    (tmp_path / "own").write_text(listed)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert cores(tmp_path / "groups", tmp_path / "own") == expected
