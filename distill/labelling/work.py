"""Labels the units of a plan, beside other processes that do the same in the same folder."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from distill.data.unfinished import INSIDE
from distill.errors import UserError, discreet, reason
from distill.labelling import plan as plans
from distill.labelling.plan import Changed, Plan, Unit
from distill.runtime.storage import atomic, disk_errors
from distill.runtime.storage.leases import Leases

POISON = "poison.json"
"""File that lists the units that failed."""
_ENDING = ".parquet"
_ENDED = "the process that labelled it ended without a word, for example because memory was full"
_GONE = "its file was removed after it was labelled"
_LONGEST_WAIT = 5.0
"""Seconds after which leases of other processes are looked at again."""
_BROKEN = "AcceleratorError"
"""Name of torch's error after which a process cannot use its GPU any more. That of full memory is another one."""
_IN_A_ROW = 5
"""Units that fail one after the other before a process finds out whether the fault is its own."""

Label = Callable[[Unit], pa.Table]
"""The rows of a unit, with their soft labels."""
_Outcome = Literal["labelled", "failed", "left"]
"""What a process did to a unit. What is left is labelled, given up, or another process's."""


@dataclass(frozen=True)
class Work:
    """A folder of labels, and how its units are tried."""

    folder: Path
    plan: Plan
    stamp: str
    """Of the plan by which the folder was begun, which names the same rows, maybe by other paths."""
    seconds: float
    """For which a lease of this process lasts."""

    @property
    def leases(self) -> Path:
        return self.folder / INSIDE / self.stamp / "leases"

    @property
    def tried(self) -> Path:
        """Folder with a file for each failed try, `UNIT.PROCESS.txt`."""
        return self.folder / INSIDE / self.stamp / "tries"

    def file(self, unit: Unit) -> Path:
        return self.folder / f"{unit.name}{_ENDING}"

    def check(self) -> None:
        """Raise Changed unless the folder is the one that was begun."""
        if plans.stamp(self.folder) != self.stamp:
            raise Changed(
                f"label.out: got {self.folder}, which was removed or begun anew meanwhile; must stay as it was begun; "
                "run the same command to begin again, or choose another folder"
            )

    def note(self, unit: Unit, by: str, error: str) -> None:
        """Note a failed try of a process."""
        atomic.write_text(self.noted(unit, by), discreet(error))

    def noted(self, unit: Unit, by: str) -> Path:
        return self.tried / f"{unit.name}.{by}.txt"

    def errors(self, unit: Unit) -> list[str]:
        """How the tries of a unit failed."""
        found = []
        for path in sorted(self.tried.glob(f"{unit.name}.*.txt")):
            with suppress(OSError):  # taken back a moment ago
                found.append(path.read_text(encoding="utf-8", errors="replace"))
        return found

    def labelled(self) -> set[str]:
        """Names of the units whose labels are there. A folder, or a link that leads nowhere, has none."""
        with os.scandir(self.folder) as found:
            return {each.name.removesuffix(_ENDING) for each in found if each.name.endswith(_ENDING) and each.is_file()}

    def open(self) -> list[Unit]:
        """The units that are neither labelled nor given up."""
        there, failed = self.labelled(), Counter[str]()
        with suppress(OSError):  # without a failed try there is no such folder
            failed.update(path.name.partition(".")[0] for path in self.tried.iterdir())
        left = [unit for unit in self.plan.units if unit.name not in there]
        return [unit for unit in left if failed[unit.name] < self.plan.tries]


def run(work: Work, label: Label, told: Callable[[Unit], object], said: Callable[[str], object]) -> None:
    """Label units until each is labelled or given up, whichever process does it, or was tried by this process: what
    failed once is left to other processes, because the fault may be this machine's.

    Args:
        told: called after each unit that this process labelled.
        said: gets a line for each unit that failed.

    Raises:
        OSError: for a folder that cannot be written.
        UserError: for a file or a folder that changed, and where all units fail in this process.
    """
    work.check()
    leases = Leases(work.leases, work.seconds)
    mine, row = set[Unit](), list[Unit]()
    with leases.all_returned():
        while units := [unit for unit in work.open() if unit not in mine]:
            waiting = True
            for unit in units:
                outcome = _one(work, unit, leases, label, said)
                waiting &= outcome == "left"
                if outcome == "labelled":
                    row.clear()
                    told(unit)
                if outcome == "failed":
                    mine.add(unit)
                    row.append(unit)
                if len(row) == _IN_A_ROW:
                    if _is_sick(work, label):
                        raise _sick(work, row, leases.owner)
                    row.clear()
            if waiting:
                time.sleep(min(work.seconds / 4, _LONGEST_WAIT))
            work.check()


def _is_sick(work: Work, label: Label) -> bool:
    """Whether this process fails for a unit too that was labelled before."""
    known = next((unit for unit in work.plan.units if work.file(unit).is_file()), None)
    if known is None:
        return True
    try:
        label(known)
    except Exception:
        return True
    return False


def _sick(work: Work, row: list[Unit], owner: str) -> UserError:
    """The error of a process that fails everywhere, whose tries do not count."""
    error = work.noted(row[-1], owner).read_text(encoding="utf-8", errors="replace")
    for unit in row:
        work.noted(unit, owner).unlink(missing_ok=True)
    return UserError(
        f"{row[-1].place}: got {len(row)} units in a row that failed in this process ({error}); must be labelled; "
        "correct what the error names, for example by a smaller label.tokens, and run the same command; these tries "
        "are not counted"
    )


def _one(work: Work, unit: Unit, leases: Leases, label: Label, said: Callable[[str], object]) -> _Outcome:
    """Label a unit, unless another process has it or it is labelled by now."""
    if work.file(unit).is_file() or (taken := leases.take(unit.name)) is None:
        return "left"
    with leases.renewed(unit.name):
        work.check()
        # It may have been labelled between the look and the lease.
        if work.file(unit).is_file():
            return "left"
        if taken == "expired":
            work.note(unit, f"{leases.owner}-ended", _ENDED)
            if len(work.errors(unit)) >= work.plan.tries:
                return "left"
        try:
            _write(work, unit, label(unit))
        except Changed:
            raise
        except Exception as error:
            if disk_errors.problem(error) is not None:
                raise
            if work.file(unit).is_file():  # by a process that took the lease, because this one stood still
                return "left"
            line = str(error) if isinstance(error, UserError) else reason(error)
            work.note(unit, leases.owner, line)
            said(f"{unit.place}: try {len(work.errors(unit))} of {work.plan.tries} failed: {line}")
            if type(error).__name__ == _BROKEN:
                raise UserError(
                    f"{unit.place}: got {line}; must be labelled; after such an error no other unit can be labelled in "
                    "this process: run the same command again"
                ) from error
            return "failed"
    return "labelled"


def _write(work: Work, unit: Unit, rows: pa.Table) -> None:
    """Raises UserError for a unit that is there."""
    import pyarrow.parquet as pq

    work.check()
    with atomic.writing_file(work.file(unit), new=True) as temporary:
        pq.write_table(rows, temporary, compression="zstd")
        work.check()


def finish(work: Work) -> list[dict[str, Any]]:
    """List the units that are not labelled in `POISON`, and remove what killed processes left of the others. Returns
    the list."""
    work.check()
    labelled = work.labelled()
    left = [unit for unit in work.plan.units if unit.name not in labelled]
    poison = [
        {"file": discreet(unit.source), "first_row": unit.start + 1, "rows": unit.rows, "errors": errors}
        for unit, errors in ((unit, work.errors(unit) or [_GONE]) for unit in left)
    ]
    for path in work.folder.glob(".*.parquet.*"):
        if atomic.TEMPORARY.fullmatch(path.name) and path.name.split(".")[1] in labelled:
            shutil.rmtree(path, ignore_errors=True)
    for path in work.leases.glob("*"):
        if path.name.partition(".")[0] in labelled:
            with suppress(OSError):
                path.unlink()
    if poison:
        atomic.write_json(work.folder / POISON, poison)
    else:
        (work.folder / POISON).unlink(missing_ok=True)
    return poison
