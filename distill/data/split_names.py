"""Splits by the names that people give to them: in columns, in folders, and at the beginning of file names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

SPLITS = {
    **dict.fromkeys(("train", "training", "trn", "trainval"), "train"),
    **dict.fromkeys(
        ("validation", "valid", "val", "dev", "devel", "development", "eval", "evaluation", "validate"), "validation"
    ),
    **dict.fromkeys(("test", "testing", "tst", "heldout", "holdout", "held_out", "hold_out"), "test"),
}
"""Name of a split, in any case -> split."""
_ORDER: tuple[str, ...] = ("train", "development", "validation", "test")


def split_of(name: str) -> str | None:
    """The split of this name, in any case, or of one that a longer name begins with; None for other names."""
    given = name.strip().lower()
    return SPLITS.get(given) or SPLITS.get(re.split(r"[\s_.-]", given, maxsplit=1)[0])


def of_file(file: str) -> str | None:
    """The split that a file's folder is named as or, without such a folder, that the file's name begins or ends with,
    or that is its ending, as in `cooking.train`; None without."""
    folder, name = os.path.split(file.lower())
    if (own := SPLITS.get(os.path.basename(folder))) is not None:
        return own
    words, ending = re.findall("[a-z]+", name.split(".")[0]), name.removesuffix(".gz").rpartition(".")[2]
    return next((SPLITS[word] for word in (*words[:1], *words[-1:], ending) if word in SPLITS), None)


def by_split(files: Iterable[str]) -> dict[str, list[str]]:
    """Split -> files that are named as it, in the order of `SPLITS`; empty unless some are for training, and others are
    not."""
    found: dict[str, list[str]] = {}
    for file in files:
        if (split := of_file(file)) is not None:
            found.setdefault(split, []).append(file)
    ordered = {split: found[split] for split in dict.fromkeys(SPLITS.values()) if split in found}
    return ordered if "train" in ordered and len(ordered) > 1 else {}


def of_data_set(names: Iterable[str]) -> dict[str, str]:
    """Split that a task has -> the split of a data set that it is made from: the one of its name, or else the first of
    another usual name, such as `dev`."""
    given = list(names)
    own = {split: split for split in _ORDER if split in given}
    for name in given:
        if (split := SPLITS.get(name.lower())) is not None and name not in own:
            own.setdefault(split, name)
    return {split: own[split] for split in _ORDER if split in own}
