"""Hashes of the files that a run wrote, by which a later run finds the files that have changed since.

A folder of a run has them in its file `SUMS`, and an entry of the cache in a file of the same form. A model folder is
written whole, with the hashes of all files in it (`seal`). Elsewhere files are written one by one, and each is noted
before it is put in place (`note`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from distill.errors import UserError

SUMS = ".sha256"
NOT_CHECKED = ("README.md", "disagreements.json", ".clock.json")
"""Files without hashes: users may edit a model card in place, reports check the rows on which models disagree, and a
thread writes the seconds of a budget, while others note hashes."""


@dataclass(frozen=True)
class Damage:
    file: Path
    lost: Path
    """The path that must be made again: the file, or the folder that was written whole with it."""


def sha256(file: Path) -> str:
    """Hash of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def fingerprint(value: Any) -> str:
    """Hash, as 16 hexadecimal digits, of a value that JSON can represent."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def seal(folder: Path, write: Callable[[Path, Any], None]) -> None:
    """Store the hash of every file of a folder of a run, which is not changed afterwards.

    Args:
        write: writes JSON to a path.
    """
    store(folder, folder / SUMS, write, besides=NOT_CHECKED)


def store(folder: Path, at: Path, write: Callable[[Path, Any], None], besides: Collection[str] = ()) -> None:
    """Store the hash of every file of a folder, which is not changed afterwards, in the file `at`.

    Args:
        write: writes JSON to a path.
        besides: names of files that are left out.
    """
    hashes = {name: found for name, found in _hashes(folder).items() if PurePosixPath(name).name not in besides}
    _write(at, True, hashes, write)


def unchanged(folder: Path, at: Path) -> bool:
    """Whether a folder has the files whose hashes were stored in the file `at`, unchanged, and no others.

    Raises OSError if one of these files cannot be read.
    """
    stored = _parsed(at)
    return stored is not None and stored["files"] == _hashes(folder)


def _hashes(folder: Path) -> dict[str, list[str]]:
    """Path, relative to the folder -> the hash of each file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {path.relative_to(folder).as_posix(): [sha256(path)] for path in paths}


def note(file: Path, new: Path, write: Callable[[Path, Any], None]) -> None:
    """Store the hash of the file `new`, which is about to take the place of `file`.

    Until then `file` may have the content that it has now, because the process may be killed in between.

    Args:
        write: writes JSON to a path.
    """
    if file.name in NOT_CHECKED:
        return
    stored = _read(file.parent) or {"whole": False, "files": {}}
    known = stored["files"].get(file.name, [])
    now = [sha256(file)] if file.is_file() else []
    stored["files"][file.name] = [*(one for one in now if one in known or not known), sha256(new)]
    _write(file.parent / SUMS, stored["whole"], stored["files"], write)


def changed(file: Path) -> bool:
    """Whether a file that was written by itself has changed since; False without a hash of it."""
    known = (_read(file.parent) or {"files": {}})["files"].get(file.name)
    return known is not None and not _is(file, known, file)


def damages(folder: Path, claim: str) -> Iterator[Damage]:
    """Yield the files below a folder that have changed since they were written, the deepest first. Links are not
    followed.

    A missing file is not damaged: a run, or a user who needs the space, has removed it.

    Args:
        claim: file that marks the folder of a run; the folders of other runs are left out.
    """
    every = []
    for parent, folders, files in os.walk(folder):
        if parent != str(folder) and claim in files:
            folders.clear()
        elif SUMS in files:
            every.append(Path(parent))
    for inside in sorted(every, key=lambda path: -len(path.parts)):
        if (inside / SUMS).is_file():  # it may be gone with another folder
            yield from _of(inside)


def _of(folder: Path) -> Iterator[Damage]:
    if (stored := _read(folder)) is None:
        yield Damage(folder / SUMS, folder / SUMS)
        return
    for name, known in stored["files"].items():
        file = folder / name
        lost = folder if stored["whole"] else file
        if _is(file, known, lost):
            continue
        yield Damage(file, lost)
        if stored["whole"]:
            return


def _is(file: Path, known: Collection[str], lost: Path) -> bool:
    """Whether a file is as it was written; True for a missing file. `lost` is the path that must be made again without
    it."""
    with _read_only_if_there(file, lost):
        return not _without_end(file) and sha256(file) in known
    return True


def _without_end(path: Path) -> bool:
    """Whether a path leads to a pipe or a device, which may be read without end."""
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def _read_only_if_there(file: Path, lost: Path) -> Iterator[None]:
    """Skip the block if the file is gone.

    Raises UserError if it cannot be read: it may be whole, if a network is down or a right is missing.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        pass
    except OSError as error:
        raise UserError(
            f"{file}: got {error.strerror or error}; must be readable; correct it, or remove {lost} to have it made "
            "again, then run the same command"
        ) from error


def _write(at: Path, whole: bool, files: Mapping[str, Sequence[str]], write: Callable[[Path, Any], None]) -> None:
    write(at, {"whole": whole, "files": files, "of_files": _of_files(files)})


def _of_files(files: Mapping[str, Sequence[str]]) -> str:
    """Hash of the hashes themselves."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _read(folder: Path) -> dict[str, Any] | None:
    """The content of `SUMS`; None if the file is missing or damaged."""
    with _read_only_if_there(folder / SUMS, folder / SUMS):
        return None if _without_end(folder / SUMS) else _parsed(folder / SUMS)
    return None


def _parsed(at: Path) -> dict[str, Any] | None:
    """The hashes of files that are stored in a file; None if it is damaged."""
    try:
        stored: dict[str, Any] = json.loads(at.read_text(encoding="utf-8"))
        inside = not any(PurePosixPath(name).is_absolute() or ".." in name.split("/") for name in stored["files"])
        right = isinstance(stored["whole"], bool) and stored["of_files"] == _of_files(stored["files"])
        return stored if right and inside else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
