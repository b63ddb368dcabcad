"""The record of openings: every time that a run reads the rows that it reports, it first adds lines to two files.

One file is beside the results of the run. The other is in the user's cache, one for each set of rows; it shows how many
runs with other settings read the same rows before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec import ValidationError, convert
from msgspec.structs import asdict

from distill import __version__
from distill.config import Evaluate, Export
from distill.data.tasks import TaskData
from distill.errors import UserError
from distill.evaluation.openings import Opening
from distill.pipeline.context import Context
from distill.pipeline.context.fingerprints import of_reported
from distill.pipeline.context.keys import needed
from distill.pipeline.validation.place import READ
from distill.pipeline.validation.rules import binding, defaults
from distill.runtime.storage import append_only, cache, run_folder
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.versions import commit

PART = "openings"
"""Folder of the cache, which is never trimmed: a record that forgets is none."""


@dataclass(frozen=True)
class Reader:
    """Who reads reported rows, and what for."""

    settings: str
    """Hash, as in `Opening.settings`."""
    purpose: str
    command: str


def reader(ctx: Context) -> Reader:
    """The run, as its steps read reported rows.

    Not all of its settings count: a default, which may be of a new setting; what is measured and exported; and what a
    file is called, since the content of each that a step reads counts.
    """
    config, usual = ctx.config, defaults(ctx.config)
    given = {name: ctx.fingerprint(name) for each in ctx.plan.steps for name in needed(each, config)}
    left_out = tuple(f"stages.{name}." for name, stage in config.stages.items() if isinstance(stage, Evaluate | Export))
    chosen = {
        key: value
        for key, value in binding(config).items()
        if not ((key in usual and usual[key] == value) or key.startswith(left_out) or key.rpartition(".")[2] in READ)
    }
    settings = fingerprint([chosen, given])
    return Reader(settings, ctx.config.report.purpose, ctx.command)


def record(folder: Path, by: Reader, tasks: Iterable[TaskData]) -> None:
    """Record, before any score is computed, that the reported rows of these tasks are read.

    Raises:
        UserError, OSError: if the record of the run cannot be written. That of the user is left out where the cache
            cannot be written or is not used.
    """
    source, now = commit(), datetime.now(UTC).isoformat(timespec="seconds")
    openings = []
    for data in tasks:
        for split, rows in data.reported.items():
            found = of_reported(data, rows)
            openings.append(
                Opening(
                    time=now,
                    task=data.task.name,
                    split=split,
                    rows=len(rows),
                    fingerprint=found,
                    settings=by.settings,
                    purpose=by.purpose,
                    command=by.command,
                    version=__version__,
                    commit=None if source is None else source.removesuffix("-dirty"),
                    dirty=None if source is None else source.endswith("-dirty"),
                    others=_others(found, by.settings),
                )
            )
    if not openings:
        return
    append_only.append(folder / run_folder.OPENINGS, [asdict(opening) for opening in openings])
    if not cache.most() or not cache.can_write(cache.root() / PART):
        return
    for opening in openings:
        with suppress(OSError, UserError):
            append_only.append(_of_user(opening.fingerprint), [asdict(opening)])


def recorded(folder: Path) -> list[Opening]:
    """The openings of a run, in order."""
    found = []
    for line in append_only.read(folder / run_folder.OPENINGS):
        with suppress(ValidationError):  # of another version
            found.append(convert(line, Opening))
    return found


def _of_user(rows: str) -> Path:
    return cache.root() / PART / f"{rows}.jsonl"


def _others(rows: str, settings: str) -> int | None:
    """Number of other settings with which this user's runs read some rows. `rows`: their fingerprint."""
    if not cache.most():
        return None
    try:
        before = append_only.read(_of_user(rows))
    except OSError:
        return None
    return len({line.get("settings") for line in before} - {settings, None})
