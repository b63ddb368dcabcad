"""Whether the files of an exported folder are those that were exported. Without torch."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from distill.deploy.export.record import FILE, Entry, Record, Tokens, changed
from distill.deploy.export.sample import WEIGHTS, content_of
from distill.deploy.serve import tokens
from distill.errors import DataError, printable
from distill.models.families.head import without_defaults
from distill.runtime.storage.strict_json import read_json


def check(folder: Path, stored: Record, entry: Entry) -> None:
    """Raise DataError for an export whose labels, or whose weights, are others than those of its artifact."""
    file = folder / "config.json"
    if stored.weights is None or not file.is_file():
        return
    names = _names_in(file)
    if stored.kind.named and stored.labels and names and names != stored.labels:
        raise DataError(
            f"{file}: got the labels {', '.join(names[:20])}, and {', '.join(stored.labels[:20])} in {FILE}; must be "
            "the same in both; correct one of them"
        )
    if entry.path != "." and changed(folder, stored):
        raise DataError(
            f"{folder}: got weights in {WEIGHTS} that were changed after the export, from others than which its "
            f"artifact {entry.name} was made; must be the same; export the model again, or use --backend torch, which "
            "reads these weights"
        )


def as_trained(folder: Path, stored: Record, entry: Entry) -> Entry:
    """The artifact without a temperature and thresholds that were chosen for other weights than the folder now has."""
    chosen_for = entry.temperature is not None or entry.thresholds
    if entry.path != "." or not chosen_for or not changed(folder, stored):
        return entry
    warnings.warn(
        printable(
            f"{folder}: its weights were changed after the export, so that the temperature and the thresholds in {FILE}"
            ", which were chosen for the exported weights, are left out"
        ),
        stacklevel=4,
    )
    return replace(entry, temperature=None, thresholds=None)


def check_tokenizer(folder: Path, stored: Tokens) -> None:
    """Warn if the tokenizer of an export is another one. Saved again, the same tokenizer may have another file."""
    if stored.own is not None and (folder / tokens.FILE).is_file() and tokens.own(folder) != stored.own:
        warnings.warn(
            printable(
                f"{folder / tokens.FILE}: got another content than that of the exported tokenizer; if the model reads "
                "other tokens than in its training, its outputs are wrong; copy the exported folder again"
            ),
            stacklevel=6,
        )


def check_content(folder: Path, entry: Entry) -> None:
    """Raise DataError for an artifact whose file is another than the one that was exported."""
    if entry.content is not None and content_of(folder, entry.path) not in (None, entry.content):
        raise DataError(
            f"{folder / entry.path}: got another content than that of the exported artifact {entry.name}; must be the "
            "same; copy the exported folder again"
        )


def _names_in(file: Path) -> tuple[str, ...]:
    """The names of the outputs in config.json; empty without all of them, and for transformers' defaults."""
    try:
        names = {int(number): str(name) for number, name in read_json(file)["id2label"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    whole = sorted(names) == [*range(len(names))]
    return without_defaults(tuple(names[number] for number in range(len(names)))) if whole else ()
