"""Files of one JSON object on each line, to which lines are added and in which nothing is ever changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.errors import UserError
from distill.runtime.storage import atomic, disk_errors

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def append(file: Path, objects: Sequence[Mapping[str, Any]]) -> None:
    """Add a line for each object at the end of a file, and flush it to the disk. Missing folders are created.

    All lines are written by one call, so that those of several processes do not mix. A last line that a killed process
    did not write whole stays in the file, and ends where these lines begin.

    Raises:
        UserError: if the file, or a folder of a run above it, is a symbolic link, and for a path that is no file.
        OSError: if it cannot be written.
    """
    atomic.no_links(file)
    if (what := disk_errors.special(file)) is not None:
        raise UserError(f"{file}: got {what}; must be a file of the run, to which lines are added; move it away")
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(each, allow_nan=False)}\n" for each in objects).encode()
    try:
        with os.fdopen(os.open(file, _FLAGS, 0o666), "r+b", buffering=0) as opened:
            if size := opened.seek(0, os.SEEK_END):
                opened.seek(size - 1)
                text = text if opened.read(1) == b"\n" else b"\n" + text
            while text:
                text = text[opened.write(text) :]
            os.fsync(opened.fileno())
    except OSError as error:  # of a write, without the name of the file
        raise OSError(error.errno, error.strerror, str(file)) from error
    if not size:
        atomic.fsync(file.parent)


def read(file: Path) -> list[dict[str, Any]]:
    """The objects of all whole lines, in order; none without the file. Other lines, which killed processes left, are
    skipped."""
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [found for line in lines if isinstance(found := _parsed(line), dict)]


def _parsed(line: bytes) -> Any:
    try:
        return atomic.loads(line)
    except ValueError:
        return None
