"""What a stage gets besides its inputs and its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from distill.config import Limit
from distill.runtime.machine import Machine


@dataclass(frozen=True)
class Runtime:
    """Where a stage runs, and the settings that hold for every stage."""

    machine: Machine
    folder: Path
    """The run folder."""
    seed: int
    limit: Limit
    longest: int
    """Number of tokens from which on the texts of tasks are cut."""

    def single_process(self) -> Runtime:
        """This for a process that works by itself while the others do other work, and never waits for them."""
        return replace(self, machine=self.machine.single_process())
