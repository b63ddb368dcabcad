"""Runs of one Python process do not share what accelerate keeps of the last one."""

from __future__ import annotations

from distill import config, machine


def test_each_run_of_a_process_has_its_own_arithmetic() -> None:
    for precision, mixed in (("fp32", "no"), ("bf16", "bf16"), ("fp32", "no")):
        settings = config.load_config(["recipe=task", f"precision={precision}", "device=cpu"])
        started = machine.start(settings, None)
        assert (started.precision, started.accelerator.mixed_precision) == (precision, mixed)
