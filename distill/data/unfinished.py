"""Folders of labels that `distill.label` has not finished. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from distill.runtime.storage.strict_json import read_json

INSIDE, PLAN = ".distill-label", "plan.json"
"""Folder in that of the labels with what is known about them, and the file in it with the units to be labelled."""
LARGEST = 1 << 31
"""Bytes of that file: of the plan of a billion rows of text in small units it has a quarter."""


def unfinished(files: Sequence[str]) -> Iterator[str]:
    """A line about each folder of these files in which labels are missing."""
    folders = dict.fromkeys(Path(file).parent for file in files if "://" not in file)
    for folder in folders:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            units = sum(len(source["units"]) for source in read_json(folder / INSIDE / PLAN, LARGEST)["sources"])
            there = sum(file.is_file() for file in folder.glob("*.parquet"))
            if there < units:
                yield (
                    f"only {there:,} of {units:,} files of labels are in {folder}: distill.label has not finished it; "
                    "the same command finishes it"
                )
