"""Keeps measured times of shapes: in the run folder, and for later runs on the same machine in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.compression.pruning.search import Table, Tables
from distill.config.schemes import Form
from distill.runtime.storage import checksums, store, structs

PART = "times"
"""Folder of the user's cache."""
TIMES = "times.json"
"""File of measured times, in a folder that is named by a hash of what they depend on."""


class FormTimes(structs.Stored, frozen=True, kw_only=True):
    """The times of one form."""

    form: Form
    sizes: list[tuple[int, int]]
    """Hidden and FFN channels."""
    fixed: list[float]
    """Milliseconds outside of the layers, for each of `sizes`."""
    layer: list[float]
    """Milliseconds of a layer."""


class StoredTimes(structs.Stored, frozen=True, kw_only=True):
    """Measured times: `Tables`."""

    forms: list[FormTimes]
    reference: float


@dataclass(frozen=True)
class Kept:
    """The times that were measured under some conditions."""

    folder: Path
    """Where the run stores its times."""
    shared: Callable[[], Any] | None
    """Returns what times depend on besides a key, and what is the same in a run. With None, later runs do not use
    them."""
    log: Callable[[str], None]

    def tables(self, key: Any, measure: Callable[[], Tables], busy: Callable[[], bool]) -> Tables:
        """The times for a key: of this run, of an earlier run on this machine, or else measured now.

        Args:
            key: what they are times of.
            measure: measures the times.
            busy: whether the machine was busy, so that later runs must not use the times.
        """
        file = self.folder / checksums.fingerprint(key) / TIMES
        if not file.is_file():
            shared = None if self.shared is None else checksums.fingerprint([key, self.shared()])
            with store.making(PART, shared, self._waits):
                if not store.take(PART, shared, file.parent):
                    structs.write(file, _stored(measure()))
                    if not busy():
                        store.keep(PART, shared, file.parent)
        return _tables(structs.read(file, StoredTimes))

    def _waits(self, end: str) -> None:
        self.log(f"another process measures the same times; waiting for it{end}")


def _stored(tables: Tables) -> StoredTimes:
    forms = [
        FormTimes(form=form, sizes=[*table.fixed], fixed=[*table.fixed.values()], layer=[*table.layer.values()])
        for form, table in tables.of.items()
    ]
    return StoredTimes(forms=forms, reference=tables.reference)


def _tables(stored: StoredTimes) -> Tables:
    def table(one: FormTimes) -> Table:
        return Table(*(dict(zip(one.sizes, part, strict=True)) for part in (one.fixed, one.layer)))

    return Tables({one.form: table(one) for one in stored.forms}, stored.reference)
