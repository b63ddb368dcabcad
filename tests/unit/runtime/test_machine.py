"""Runs of one Python process do not share what accelerate keeps of the last one."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from distill.errors import ConfigError
from distill.runtime import machine


def test_each_run_of_a_process_has_its_own_arithmetic() -> None:
    for precision, mixed in (("fp32", "no"), ("bf16", "bf16"), ("fp16", "no"), ("fp32", "no")):
        started = machine.start("cpu", precision)
        assert (started.precision, started.accelerator.mixed_precision) == (precision, mixed)


@pytest.mark.parametrize(
    ("capability", "native", "expected"),
    [((8, 0), True, "bf16"), ((7, 5), False, "fp16"), ((7, 0), False, "fp16"), ((6, 1), False, "fp32")],
)
def test_a_gpu_trains_in_the_16_bits_that_it_multiplies(
    capability: tuple[int, int], native: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native or including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert machine.detect_precision("auto", torch.device("cuda")) == expected
    assert machine.detect_precision("fp32", torch.device("cuda")) == "fp32"


@pytest.mark.parametrize(
    ("flags", "slow", "expected"),
    [
        ({"avx512_bf16": True}, torch.float32, "bf16"),
        ({"avx512_bf16": True}, torch.bfloat16, "fp32"),
        ({"amx_bf16": True}, torch.float32, "bf16"),
        ({"avx2": True}, torch.float32, "fp32"),
    ],
)
def test_a_cpu_trains_in_bf16_where_its_products_are_faster(
    flags: dict[str, bool], slow: torch.dtype, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = torch.mm

    def timed(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2 if rows.dtype == slow else 0)
        return product(rows, weights)

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    monkeypatch.setattr(torch, "mm", timed)
    machine._cpu_is_faster_in_bf16.cache_clear()
    try:
        assert machine.detect_precision("auto", torch.device("cpu")) == expected
    finally:
        machine._cpu_is_faster_in_bf16.cache_clear()


def test_a_cpu_has_no_tf32() -> None:
    with pytest.raises(ConfigError, match="precision: got tf32 on a CPU; must be bf16, fp16 or fp32"):
        machine.start("cpu", "tf32")


def test_a_process_without_a_gpu_of_its_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with more processes than GPUs, or where a scheduler shows each process one GPU, and numbers the processes."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "5")
    with pytest.raises(ConfigError, match=r"^LOCAL_RANK: got 5; must be below 4, the number of GPUs that this process"):
        machine.start("auto", "bf16")
    machine._check_rank(3, 4)


def test_a_process_waits_for_files_that_its_file_system_shows_later(tmp_path: Path) -> None:
    """As NFS does after a process looked for a file that did not exist yet. `_train` and `run_step` read it next."""
    alone = machine.start("cpu", "fp32")
    alone.see([tmp_path / "missing"])
    several, file = replace(alone, waiting="a group"), tmp_path / "manifest.json"
    later = threading.Timer(0.5, file.touch)
    later.start()
    several.see([tmp_path, file], seconds=0)  # a folder is no file, and neither is there in time
    assert not file.exists()
    several.see([file], seconds=60)
    assert file.is_file()
    later.join()
