"""Writing so that nothing half-written is ever taken for a whole one.

A folder is filled under a temporary name, flushed to disk and renamed; a stage's `manifest.json` is written last.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill.errors import UserError

MANIFEST = "manifest.json"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    _fsync(temporary)
    temporary.replace(path)
    _fsync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all. NaN and infinity are refused: they are no JSON."""
    write_text(path, json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `folder`; on success it is flushed and takes the place of `folder`.

    UserError when safetensors cannot write into it, as on a full disk; OSError when anything else cannot.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            _fsync(path)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _fsync(folder.parent)
    except SafetensorError as error:
        raise UserError(
            f"{folder}: got {error}; must be writable, with room enough; mend it, then run the same command"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finished(folder: Path) -> bool:
    """A stage without a manifest was not finished."""
    return (folder / MANIFEST).is_file()
