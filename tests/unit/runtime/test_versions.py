"""Facts about the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil
import pytest

from distill.runtime import versions

X86 = "processor\t: 0\nmodel name\t: AMD EPYC 9B14\nflags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16 sse4_2\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50\nFeatures\t: fp asimd asimddp i8mm bf16\n"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (X86 + X86, ["sse4_2", "avx2", "avx512f", "avx512_vnni", "avx512_bf16"]),
        (ARM, ["asimddp", "i8mm", "bf16"]),
        ("", []),
    ],
)
def test_flags_are_those_that_matter(tmp_path: Path, text: str, flags: list[str]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert versions.cpu_flags(tmp_path / "cpuinfo") == flags
    assert versions.cpu_flags(tmp_path / "absent") == []


def test_the_model_is_that_of_the_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(X86)
    assert versions._cpu(tmp_path / "cpuinfo") == "AMD EPYC 9B14"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["avx2"], True),
        (["avx2", "avx512f"], True),
        (["avx2", "avx512f", "avx512_vnni"], False),
        (["avx2", "avx_vnni"], False),
        (["avx2", "avx512f", "amx_int8"], False),
        (["asimddp"], False),
        ([], False),
    ],
)
def test_8_bit_products_overflow_on_x86_without_vnni(flags: list[str], expected: bool) -> None:
    assert versions.saturates(flags) is expected


def test_facts_of_this_machine() -> None:
    facts = versions.hardware(2)
    assert set(facts["cpu_flags"].split()) <= set(versions.FLAGS)
    assert facts["memory_gib"] > 0.1
    assert facts["governor"]
    assert facts["threads"] == 2
    assert {*versions.PACKAGES} <= facts.keys()


@pytest.mark.skipif(platform.system() != "Linux", reason="known on Linux alone")
def test_memory_is_no_more_than_a_containers_limit(tmp_path: Path) -> None:
    swap = psutil.swap_memory().total
    every = versions.memory(tmp_path)
    assert every == psutil.virtual_memory().total + swap
    (tmp_path / "memory.max").write_text("max\n")
    assert versions.memory(tmp_path) == every
    (tmp_path / "memory.max").write_text("1000000\n")
    assert versions.memory(tmp_path) == 1_000_000 + swap
    (tmp_path / "memory.swap.max").write_text("0\n")
    assert versions.memory(tmp_path) == 1_000_000
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("500000\n")
    assert versions.memory(tmp_path) == 500_000


@pytest.mark.skipif(platform.system() != "Linux", reason="known on Linux alone")
@pytest.mark.parametrize(
    ("listed", "folder", "name"),
    [("0::/job_7/step_0\n", "job_7", "memory.max"), ("5:memory:/job_7\n", "memory/job_7", "memory.limit_in_bytes")],
)
def test_memory_is_no_more_than_that_of_a_job(listed: str, folder: str, name: str, tmp_path: Path) -> None:
    """As SLURM limits it. The training was begun, and the job killed, where a message could have said so."""
    (tmp_path / "own").write_text(listed)
    (tmp_path / "groups" / folder).mkdir(parents=True)
    (tmp_path / "groups" / folder / name).write_text("1000000\n")
    found = versions.memory(tmp_path / "groups", tmp_path / "own")
    assert found == 1_000_000 + psutil.swap_memory().total


def test_changes_of_a_checkout_change_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for commit, source in ((None, "1"), ("ab", "1"), ("ab", "2"), ("ab-dirty", "1"), ("ab-dirty", "2")):
        monkeypatch.setattr(versions, "commit", lambda commit=commit: commit)
        monkeypatch.setattr(versions, "source_hash", lambda source=source: source)
        found.append(versions._version_and_commit())
    assert found[1] == found[2]
    assert len({*found}) == 4
