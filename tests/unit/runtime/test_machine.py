"""Runs of one Python process do not share what accelerate keeps of the last one."""

from __future__ import annotations

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


def test_a_cpu_has_no_tf32() -> None:
    with pytest.raises(ConfigError, match="precision: got tf32 on a CPU; must be bf16, fp16 or fp32"):
        machine.start("cpu", "tf32")
