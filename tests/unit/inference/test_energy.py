"""Energy by a monitor that is written out here: no machine of the tests has counters that can be relied on."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from distill.inference import energy


class Monitor:
    """Counts the joules that the work adds, as a `ZeusMonitor` does by package of the processor and by GPU."""

    def __init__(self, **parts: Any) -> None:
        self.parts, self.open = parts, False

    def begin_window(self, key: str, sync_execution: bool) -> None:
        self.open = True

    def end_window(self, key: str, sync_execution: bool) -> Any:
        self.open = False
        return SimpleNamespace(**self.parts)


def test_energy_is_that_of_processor_memory_and_gpu_during_the_work() -> None:
    monitor, seen = Monitor(cpu_energy={0: 3.0, 1: 0.5}, dram_energy={0: 0.25}, gpu_energy={0: 10.0}), list[bool]()
    assert energy.of_monitor(monitor)(lambda: seen.append(monitor.open)) == 13.75
    assert seen == [True]
    assert not monitor.open
    assert energy.of_monitor(Monitor(cpu_energy={0: 3.0}, dram_energy=None, gpu_energy={}))(lambda: None) == 3.0


def test_the_reason_is_given_where_energy_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "find_spec", lambda name: None)
    assert "-e '.[energy]' in a checkout" in str(energy.meter(cuda=False))


@pytest.mark.parametrize(
    ("monitor", "reason"),
    [
        (lambda **_: SimpleNamespace(cpu_indices=[]), "RAPL"),
        (lambda **_: (_ for _ in ()).throw(RuntimeError("no\npermission")), "zeus does not start: no permission"),
    ],
)
def test_a_machine_without_counters_has_no_meter(monkeypatch: pytest.MonkeyPatch, monitor: Any, reason: str) -> None:
    monkeypatch.setattr(energy, "find_spec", lambda name: importlib.util.spec_from_loader(name, None))
    monkeypatch.setitem(__import__("sys").modules, "zeus", SimpleNamespace())
    monkeypatch.setitem(__import__("sys").modules, "zeus.monitor", SimpleNamespace(ZeusMonitor=monitor))
    assert reason in str(energy.meter(cuda=False))
