"""The user's cache, outside of run folders. Later runs take from it what they would otherwise make again.

It is the folder of `cache.dir` or, when that is null, `distill` in `$XDG_CACHE_HOME` or `~/.cache`. Its parts are
`tables` (parsed files), `encoded` (token ids of tasks), `corpora` (token ids of a corpus), `models` (trained stages),
`logits` (outputs of teachers), `graphs` (ONNX graphs without weights), `times` (of models of many sizes on this
machine), `contents` (hashes of large files) and `seconds` (what steps took). The module `store` makes and finds what is
in them. Beyond `cache.max_gib`, the entries that were not used for longest are removed, but only from a folder with the
file `MARK`. A folder with other files never gets this file; the cache is then its subfolder `BELOW`. The folder
`openings`, of when runs read which reported rows, is no part: nothing is removed from it.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distill.runtime.storage import atomic, locks

MARK = ".distill-cache"
"""File that marks a folder as a cache."""
BELOW = "distill-cache"
"""Folder that is the cache in a folder with other files."""
PARTS = ("tables", "encoded", "corpora", "models", "logits", "graphs", "times", "contents", "seconds")
"""Folders of the cache whose entries are removed when it is too large."""
FILES = "files.json"
"""File of an entry with the hash of each of its files; the files are in the folder `CONTENT` beside it."""
CONTENT = "content"
LOCKS = "locks"
_OURS = re.compile("[0-9a-f]{16}")
"""Names of entries. Nothing with another name is removed."""
_LEFT = re.compile(
    r"\.[0-9a-f]{16}(\.removed)?\.\d+\.distill-tmp|"
    rf"({'|'.join(PARTS)})-[0-9a-f]{{16}}({re.escape(locks.TAKEN)})?"
)
"""Names of what killed runs left: temporary files and folders, and locks."""
_DAY = 86_400.0
_MARK_TEXT = "distill made this folder for its cache, and may replace or remove anything in it.\n"
MAX_GIB = 20.0
"""Size that the cache may have by default."""


@dataclass(frozen=True)
class _Settings:
    """Where the cache is, and how large it may become, in bytes."""

    root: Path | None = None
    most: float = MAX_GIB * 2**30
    trims: bool = False
    """Whether it is trimmed: by runs alone, because nothing else knows how much they keep."""


_settings = _Settings()


@contextmanager
def using(folder: str | Path | None = None, max_gib: float = MAX_GIB) -> Iterator[None]:
    """Use the cache in a folder within the block. At its end the cache is trimmed to its maximum size.

    With a maximum of 0, nothing is taken from it, kept or removed.
    """
    global _settings
    before = _settings
    _settings = _Settings(None if folder is None else Path(os.path.expanduser(folder)), max_gib * 2**30, trims=True)
    try:
        yield
        trim()
    finally:
        _settings = before


def root() -> Path:
    """The folder of the cache, which need not exist."""
    return _chosen() / BELOW if _foreign(_chosen()) else _chosen()


def note() -> str | None:
    """A line if the cache is not in the folder that was chosen for it, else None."""
    if not _settings.most or not _foreign(_chosen()):
        return None
    return f"cache: {_chosen()} has other files, so it is in {_chosen() / BELOW}"


def _chosen() -> Path:
    if _settings.root is not None:
        return _settings.root
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distill"
    except RuntimeError:  # a user without a home folder
        return Path(os.devnull) / "distill"  # where nothing is found, and nothing can be written


def _foreign(folder: Path) -> bool:
    """Whether a folder has files and no mark of a cache."""
    return not _is_marked(folder) and bool(_listed(folder))


def _is_marked(folder: Path) -> bool:
    return os.path.isfile(folder / MARK) and not os.path.islink(folder / MARK)


def _mark() -> None:
    """Make the folder of the cache, with its mark before anything else. Raises OSError if it cannot be written."""
    place = root()
    place.mkdir(parents=True, exist_ok=True)
    if not _is_marked(place) and not _foreign(place):
        with suppress(FileExistsError), (place / MARK).open("x", encoding="utf-8") as file:
            file.write(_MARK_TEXT)


def most() -> float:
    """Bytes that the cache may have; 0 if none is used."""
    return _settings.most


def folder(part: str) -> Path:
    """The folder `part` of the cache. With a maximum size of 0, or if it cannot be written, it is a temporary folder,
    removed when the process ends."""
    place = root() / part
    return place if most() and can_write(place) else temporary()


def can_write(folder: Path) -> bool:
    """Whether files can be written in a folder, which is created if it does not exist."""
    try:
        if folder.parent == root():
            _mark()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def temporary() -> Path:
    """One folder for the process, which is removed when it ends."""
    return Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="distill-cache-", ignore_cleanup_errors=True)


def used(path: Path) -> None:
    """Note that an entry is used now: what was not used for longest is removed first."""
    with suppress(OSError):
        os.utime(path)


def trim() -> None:
    """In a run, remove what killed runs left, and the entries that were not used for longest until the cache has its
    maximum size."""
    if not _settings.trims or not _settings.most or not _is_marked(root()):
        return
    now, entries = time.time(), []
    folders = [part for name in (*PARTS, LOCKS) if not (part := root() / name).is_symlink()]
    for path in [path for part in folders for path in _listed(part)]:
        with suppress(OSError):  # another process may remove it too
            at = path.lstat().st_mtime
            if _LEFT.fullmatch(path.name) and now - at > _DAY and not locks.is_held(_lock_of(path)):
                remove(path)
            elif _OURS.fullmatch(path.name) and not path.is_symlink():
                entries.append((at, bytes_in(path), path))
    size = sum(bytes_ for _, bytes_, _ in entries)
    for at, bytes_, path in sorted(entries):
        if size <= _settings.most:
            return
        if _unused_since(path, at):
            remove(path)
            size -= bytes_


def _lock_of(path: Path) -> Path:
    """The lock that is held while an entry is made under a temporary name; of a lock, the lock itself."""
    key = path.name.removeprefix(".")[:16]
    return path if path.parent.name == LOCKS else root() / LOCKS / f"{path.parent.name}-{key}"


def _unused_since(path: Path, at: float) -> bool:
    """Whether no process noted since a time that it uses an entry. True if the entry is gone."""
    try:
        return path.lstat().st_mtime == at
    except OSError:
        return True


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def remove(path: Path) -> None:
    """Remove an entry, or what a killed run left, from a folder that is marked as a cache; nothing from another."""
    if path.is_symlink() or not _is_marked(root()):
        return
    if path.is_dir():
        # Renamed first, because another process must not see a part of an entry.
        with suppress(OSError):
            atomic.discard(path)
    else:
        with suppress(OSError):  # Windows keeps files that another process reads
            path.unlink(missing_ok=True)


def bytes_in(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
