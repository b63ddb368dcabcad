"""Labels the units of a plan, beside other processes that do the same in the same folder."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from distill.cli.label.plan import INSIDE, Plan, Unit
from distill.errors import UserError, reason
from distill.runtime.storage import atomic, disk_errors
from distill.runtime.storage.leases import Leases

POISON = "poison.json"
"""File that lists the units that failed."""
_LEASES = "leases"
_ENDED = "the process that labelled it ended without a word, for example because memory was full"
_LONGEST_WAIT = 5.0
"""Seconds after which leases of other processes are looked at again."""

Label = Callable[[Unit], pa.Table]
"""The rows of a unit, with their soft labels."""


@dataclass(frozen=True)
class Work:
    """A folder of labels, and how its units are tried."""

    folder: Path
    plan: Plan
    seconds: float
    """For which a lease lasts."""
    tries: int
    """How often a unit is tried before it is listed in `POISON`."""

    @property
    def tried(self) -> Path:
        """Folder with a file for each unit that failed."""
        return self.folder / INSIDE / "tries"

    def file(self, unit: Unit) -> Path:
        return self.folder / f"{unit.name}.parquet"

    def errors(self, unit: Unit) -> list[str]:
        """How the tries of a unit failed."""
        with suppress(FileNotFoundError):
            found: list[str] = json.loads((self.tried / f"{unit.name}.json").read_text(encoding="utf-8"))
            return found
        return []

    def open(self) -> list[Unit]:
        """The units that are neither labelled nor poison."""
        there = {path.name for path in self.folder.iterdir()}
        left = [unit for unit in self.plan.units if self.file(unit).name not in there]
        return [unit for unit in left if len(self.errors(unit)) < self.tries]


def run(work: Work, label: Label, told: Callable[[Unit], object], failed: Callable[[str], object]) -> None:
    """Label units until each is labelled or poison, whichever process does it.

    Args:
        told: called after each unit that this process labelled.
        failed: gets a line for each unit that failed.

    Raises:
        OSError, UserError: for a folder that cannot be written.
    """
    leases = Leases(work.folder / INSIDE / _LEASES, work.seconds)
    while units := work.open():
        # A list, because every unit is tried before one is tried again.
        if not any([_one(work, unit, leases, label, told, failed) for unit in units]):
            time.sleep(min(work.seconds / 4, _LONGEST_WAIT))


def _one(
    work: Work,
    unit: Unit,
    leases: Leases,
    label: Label,
    told: Callable[[Unit], object],
    failed: Callable[[str], object],
) -> bool:
    """Label a unit, unless another process has it or it is labelled by now. Returns whether it was tried."""
    if work.file(unit).exists() or (taken := leases.take(unit.name)) is None:
        return False
    with leases.renewed(unit.name):
        # It may have been labelled between the look and the lease.
        if work.file(unit).exists() or (taken == "expired" and _failed(work, unit, _ENDED) >= work.tries):
            return False
        try:
            _write(work.file(unit), label(unit))
        except Exception as error:
            if disk_errors.problem(error) is not None:
                raise
            if work.file(unit).exists():  # by a process that took the lease, because this one stood still
                return False
            number = _failed(work, unit, str(error) if isinstance(error, UserError) else reason(error))
            failed(f"{unit.place}: try {number} of {work.tries} failed: {work.errors(unit)[-1]}")
            return True
    told(unit)
    return True


def _failed(work: Work, unit: Unit, error: str) -> int:
    """Note a failed try. Returns the number of tries that failed."""
    errors = [*work.errors(unit), error]
    atomic.write_json(work.tried / f"{unit.name}.json", errors)
    return len(errors)


def _write(file: Path, rows: pa.Table) -> None:
    import pyarrow.parquet as pq

    with atomic.writing_file(file) as temporary:
        pq.write_table(rows, temporary, compression="zstd")


def finish(work: Work) -> list[dict[str, Any]]:
    """List the units that failed in `POISON`, and remove what killed processes left. Returns the list."""
    poison = [
        {"file": unit.source, "first_row": unit.start + 1, "rows": unit.rows, "errors": work.errors(unit)}
        for unit in work.plan.units
        if not work.file(unit).exists()
    ]
    for path in work.folder.glob(".*.parquet.*"):
        if atomic.TEMPORARY.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    for path in (work.folder / INSIDE / _LEASES).iterdir():
        path.unlink(missing_ok=True)
    if poison:
        atomic.write_json(work.folder / POISON, poison)
    else:
        (work.folder / POISON).unlink(missing_ok=True)
    return poison
