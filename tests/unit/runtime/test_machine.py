"""Runs of one Python process do not share what accelerate keeps of the last one."""

from __future__ import annotations

from distill.runtime import machine


def test_each_run_of_a_process_has_its_own_arithmetic() -> None:
    for precision, mixed in (("fp32", "no"), ("bf16", "bf16"), ("fp32", "no")):
        started = machine.start("cpu", precision)
        assert (started.precision, started.accelerator.mixed_precision) == (precision, mixed)
