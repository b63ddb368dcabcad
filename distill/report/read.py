"""Reading of results.json files, validated against their schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.json import encode

from distill import __version__
from distill.errors import DataError
from distill.evaluation.results import VERSION, Disagreement, Results
from distill.report.checked import misfit, validate
from distill.runtime.storage.run_folder import DISAGREEMENTS
from distill.runtime.storage.strict_json import read_json


def read_paths(folder: Path) -> dict[Path, Results]:
    """Path of each distinct results.json below `folder` -> its results. Files of other
    programs and of other versions are left out with a line on standard error. Raises DataError without another one, and
    for one that is damaged."""
    paths = [path for path in sorted(folder.rglob("results.json")) if not _hidden(path.relative_to(folder))]
    if not paths:
        raise DataError(
            f"{folder}: got a folder without any results.json; must contain finished runs; run a recipe first"
        )
    runs: dict[bytes, tuple[Path, Results]] = {}
    errors, others = list[str](), list[str]()
    for path in paths:
        try:
            results = read_one(path)
        except DataError as error:
            (others if _is_of_others(path) else errors).extend(error.messages)
        else:
            key = encode(results, order="deterministic")
            # The folder of an evaluate stage has the results of its run once more: the run's own folder is meant.
            known = runs.get(key, (path, results))[0]
            runs[key] = (min(path, known, key=lambda p: len(p.parts)), results)
    if errors or not runs:
        raise DataError(errors or others)
    for line in others:
        sys.stderr.write(f"left out: {line}\n")
    return dict(runs.values())


def _is_of_others(path: Path) -> bool:
    """Whether a file that is not valid is none of this version's: of another program, or of another schema."""
    try:
        document = _read(path)
    except DataError:
        return False
    schema = document.get("schema", 0) if isinstance(document, dict) and document else VERSION
    return type(schema) is int and schema != VERSION


def read_one(path: Path) -> Results:
    """The content of a results.json. Raises DataError if it is not JSON, or is not valid in the schema."""
    document = _read(path)
    given = document.get("schema") if isinstance(document, dict) else None
    if type(given) is int and given != VERSION:
        raise DataError(
            f"{path}: got schema {given}; must be {VERSION} for distill {__version__}; run its recipe again, or "
            "install the distill that wrote it"
        )
    if wrong := validate(document):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise DataError(f"{path}: {wrong[0]}{more}; must be of schema {VERSION}; run its recipe again")
    return convert(document, Results)


def read_rows(folder: Path) -> list[Disagreement]:
    """The rows of `disagreements.json` beside a results.json; empty without this file. Raises DataError if it is not
    valid."""
    path = folder / DISAGREEMENTS
    rows = _read(path) if path.is_file() else []
    if wrong := misfit(rows, list[Disagreement], "rows"):
        raise DataError(f"{path}: {wrong}; must be rows that a run wrote; run its recipe again")
    return convert(rows, list[Disagreement])


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as error:
        raise DataError(f"{path}: got {error}; must be JSON that a run wrote; run its recipe again") from error


def _hidden(path: Path) -> bool:
    """Whether a file is still being written: the name of such a file or folder begins with a dot."""
    return any(part.startswith(".") for part in path.parts)
