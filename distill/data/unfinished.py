"""Folders of labels that `distill.label` has not finished. Without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

INSIDE, PLAN = ".distill-label", "plan.json"
"""Folder in that of the labels with what is known about them, and the file in it with the units to be labelled."""


def unfinished(files: Sequence[str]) -> Iterator[str]:
    """A line about each folder of these files in which labels are missing."""
    folders = dict.fromkeys(Path(file).parent for file in files if "://" not in file)
    for folder in folders:
        with suppress(OSError, ValueError, KeyError, TypeError):
            units = sum(len(source["units"]) for source in json.loads((folder / INSIDE / PLAN).read_text())["sources"])
            there = sum(1 for _ in folder.glob("*.parquet"))
            if there < units:
                yield (
                    f"only {there:,} of {units:,} files of labels are in {folder}: distill.label has not finished it; "
                    "the same command finishes it"
                )
