"""Reading of results.json files: validated against their schema and upgraded to schema 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distill.checkpoint import DISAGREEMENTS, read_json
from distill.errors import DataError
from distill.report.schema import Results, validate
from distill.report.upgrade import SCHEMAS, upgraded

_ROW = ("task", "split", "row", "text", "teacher", "student", "label")


def read(folder: Path) -> list[Results]:
    """Every distinct results.json below `folder`, in schema 3. DataError if there is none or if some are not valid."""
    return list(read_paths(folder).values())


def read_paths(folder: Path) -> dict[Path, Results]:
    """As `read`: the path of each results.json -> its results."""
    paths = [path for path in sorted(folder.rglob("results.json")) if not _hidden(path.relative_to(folder))]
    if not paths:
        raise DataError(
            f"{folder}: got a folder without any results.json; must contain finished runs; run a recipe first"
        )
    runs: dict[str, tuple[Path, Results]] = {}
    errors: list[str] = []
    for path in paths:
        try:
            results = read_one(path)
        except DataError as error:
            errors += error.messages
        else:
            key = json.dumps(results, sort_keys=True)
            # The folder of an evaluate stage has the results of its run once more: the run's own folder is meant.
            known = runs.get(key, (path, results))[0]
            runs[key] = (min(path, known, key=lambda p: len(p.parts)), results)
    if errors:
        raise DataError(errors)
    return dict(runs.values())


def read_one(path: Path) -> Results:
    """A results.json of schema 1, 2 or 3, in schema 3; DataError if it is not JSON or not valid."""
    try:
        document = read_json(path)
    except ValueError as error:
        raise DataError(f"{path}: got {error}; must be JSON; run its recipe again") from error
    given = document.get("schema") if isinstance(document, dict) else None
    version = given if given in tuple(SCHEMAS) else max(SCHEMAS)
    if wrong := validate(document, SCHEMAS[version]):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise DataError(f"{path}: {wrong[0]}{more}; must be of schema {version}; run its recipe again")
    return upgraded(document)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of `disagreements.json` beside a results.json; empty without this file. DataError if it is not valid."""
    path = folder / DISAGREEMENTS
    if not path.is_file():
        return []
    try:
        rows = read_json(path)
    except ValueError as error:
        raise DataError(f"{path}: got {error}; must be JSON; run its recipe again") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(_ROW) <= row.keys() for row in rows):
        raise DataError(
            f"{path}: got another form; must be a list of rows with {', '.join(_ROW)}; run its recipe again"
        )
    return rows


def _hidden(path: Path) -> bool:
    """Whether a file is still being written: the name of such a file or folder begins with a dot."""
    return any(part.startswith(".") for part in path.parts)
