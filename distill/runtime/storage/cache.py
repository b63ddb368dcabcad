"""The user's cache, outside of run folders. Later runs take from it what they would otherwise make again.

It is the folder of `cache.dir` or, when that is null, `distill` in `$XDG_CACHE_HOME` or `~/.cache`. Its parts are
`tables` (parsed files), `encoded` (token ids of tasks), `corpora` (token ids of a corpus), `models` (trained stages),
`logits` (outputs of teachers), `graphs` (ONNX graphs without weights) and `contents` (hashes of large files). Each
entry is named by a hash of all that it is made from, is written whole or not at all, and may be used by several
processes at once. Beyond `cache.max_gib`, the entries that were not used for longest are removed, but only from a
folder with the file `MARK`. A folder with other files never gets this file; the cache is then its subfolder `BELOW`.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distill.errors import UserError
from distill.runtime.storage import atomic, checksums, disk_errors, locks

MARK = ".distill-cache"
"""File that marks a folder as a cache."""
BELOW = "distill-cache"
"""Folder that is the cache in a folder with other files."""
PARTS = ("tables", "encoded", "corpora", "models", "logits", "graphs", "contents")
"""Folders of the cache whose entries are removed when it is too large."""
FILES = "files.json"
"""File of an entry with the hash of each of its files; the files are in the folder `CONTENT` beside it."""
CONTENT = "content"
LOCKS = "locks"
HASH = ".sha256"
"""Ending of the file beside the files of an entry that is no folder, with the hash of each of them."""
_OURS = re.compile(r"[0-9a-f]{16}(\.(arrow|npy|int32|int8|sha256))?")
"""Names of entries. Nothing with another name is removed."""
_LEFT = re.compile(
    r"\.[0-9a-f]{16}(\.\w+)?\.\d+\.distill-tmp|"
    rf"({'|'.join(PARTS)})-[0-9a-f]{{16}}({re.escape(locks.TAKEN)})?"
)
"""Names of what killed runs left: temporary files and folders, and locks."""
_DOCSTRINGS = re.compile(r"docstrings-[0-9a-f]{16}\.parquet")
"""Names of files that earlier versions kept beside the parts."""
_DAY = 86_400.0
_MARK_TEXT = "distill made this folder for its cache, and may replace or remove anything in it.\n"
_CLONE = 0x40049409
"""Number of the request FICLONE in Linux; other systems refuse it."""


MAX_GIB = 20.0
"""Size that the cache may have by default."""


@dataclass(frozen=True)
class _Settings:
    """Where the cache is, and how large it may become, in bytes."""

    root: Path | None = None
    most: float = MAX_GIB * 2**30


_settings = _Settings()


@contextmanager
def using(folder: str | Path | None = None, max_gib: float = MAX_GIB) -> Iterator[None]:
    """Use the cache in a folder within the block. At its end the cache is trimmed to its maximum size.

    With a maximum of 0, `take` and `keep` do nothing, `folder` is a temporary one, and nothing is removed.
    """
    global _settings
    before = _settings
    _settings = _Settings(None if folder is None else Path(folder), max_gib * 2**30)
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
    """Whether a folder has files and is not a cache: it has no mark, and was not made by a version without marks."""
    return not _is_marked(folder) and any(True for _ in _listed(folder)) and not _is_older(folder)


def _is_marked(folder: Path) -> bool:
    return os.path.isfile(folder / MARK) and not os.path.islink(folder / MARK)


def _is_older(folder: Path) -> bool:
    """Whether a folder is a cache of an earlier version: everything in it has the names and the form of that
    version."""
    parts = [part for part in _listed(folder) if not (_DOCSTRINGS.fullmatch(part.name) and part.is_file())]
    plain = all(part.name in (*PARTS, LOCKS) and part.is_dir() and not part.is_symlink() for part in parts)
    return plain and all(_is_entry(entry) for part in parts for entry in _listed(part))


def _is_entry(path: Path) -> bool:
    if path.is_symlink() or _LEFT.fullmatch(path.name):
        return not path.is_symlink()
    named = _OURS.fullmatch(path.name) is not None
    if path.is_dir():
        return named and {part.name for part in _listed(path)} == {FILES, CONTENT}
    return named and path.with_suffix(HASH).is_file()


def _mark() -> None:
    """Make the folder of the cache, with its mark before anything else. Raises OSError if it cannot be written."""
    place = root()
    place.mkdir(parents=True, exist_ok=True)
    if not _is_marked(place) and not _foreign(place):
        with suppress(FileExistsError), (place / MARK).open("x", encoding="utf-8") as file:
            file.write(_MARK_TEXT)


def folder(part: str) -> Path:
    """The folder `part` of the cache. With a maximum size of 0, or if it cannot be written, it is a temporary folder,
    removed when the process ends."""
    return writable(root() / part) if _settings.most else Path(_temporary().name)


def writable(folder: Path) -> Path:
    """The folder, created if it does not exist; a temporary folder if it cannot be written."""
    return folder if _can_write(folder) else Path(_temporary().name)


def _can_write(folder: Path) -> bool:
    try:
        if folder.parent == root():
            _mark()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """One folder for the process, which is removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="distill-cache-", ignore_cleanup_errors=True)


def used(path: Path) -> None:
    """Note that an entry is used now: what was not used for longest is removed first."""
    with suppress(OSError):
        os.utime(path)


def seal(*files: Path) -> None:
    """Store the hashes of the files of an entry, which differ in their endings alone."""
    atomic.write_text(files[0].with_suffix(HASH), _hashes_of(files))


def whole(*files: Path) -> bool:
    """Whether the files of an entry are there, as they were when `seal` was called. Notes that they are used then."""
    stored = files[0].with_suffix(HASH)
    try:
        if stored.read_text(encoding="utf-8") != _hashes_of(files):
            return False
    except (OSError, ValueError):
        return False
    for path in (*files, stored):
        used(path)
    return True


def _hashes_of(files: Sequence[Path]) -> str:
    return "".join(f"{checksums.sha256(file)}\n" for file in files)


def take(part: str, key: str | None, target: Path) -> bool:
    """Put the files of an entry into the folder `target`, which is replaced.

    Returns whether the entry existed. It never does without a key, or with a maximum size of 0.

    Files are copies, which take no further space where the file system can share their blocks. An entry with a missing
    or changed file is removed, and counts as missing.

    Raises:
        OSError: if the disk of `target` is full.
    """
    if key is None or not _settings.most or not os.path.isfile((entry := root() / part / key) / FILES):
        return False
    try:
        hashes: dict[str, str] = atomic.read_json(entry / FILES)
        with atomic.writing(target) as temporary:
            _copy(entry / CONTENT, temporary)
            if _hashes(temporary) != hashes:
                raise _Damaged
    except (FileNotFoundError, ValueError, _Damaged):
        if _is_marked(root()):
            _remove(entry)  # a run that removes old entries may have done so meanwhile
        return False
    except OSError as error:
        if error.errno in disk_errors.FULL:
            raise
        return False
    used(entry)
    return True


class _Damaged(Exception):
    """Files of an entry differ from the stored ones."""


def keep(part: str, key: str | None, source: Path) -> bool:
    """Store the files of a folder as an entry, unless the entry exists. Returns whether it exists now.

    Nothing is stored where the cache cannot be written, on a disk that would have less than as much free space left, or
    if the files alone are larger than the cache may become.
    """
    if key is None or not _settings.most:
        return False
    entry = root() / part / key
    if os.path.isfile(entry / FILES):
        return True
    if (size := _size(source)) > _settings.most or not _can_write(root() / part):
        return False
    if shutil.disk_usage(root() / part).free < 2 * size:  # the run needs it
        return False
    try:
        with atomic.writing(entry) as temporary:
            _copy(source, temporary / CONTENT)
            atomic.write_json(temporary / FILES, _hashes(temporary / CONTENT))
    except (OSError, UserError):  # no space, or another run was faster
        return os.path.isfile(entry / FILES)
    trim()
    return True


@contextmanager
def making(part: str, key: str | None, waits: Callable[[str], None]) -> Iterator[None]:
    """Let no other process make the same entry within the block: it waits, and can then take the entry.

    Args:
        key: name of the entry. Without a key, and where the lock is a symbolic link, the process does not wait.
        waits: called once, with the end of a message (`locks.left`), if another process makes the entry.
    """
    lock = root() / LOCKS / f"{part}-{key}"
    if key is None or not _settings.most or not _can_write(lock.parent) or lock.is_symlink():
        yield
        return
    with locks.held(lock, lambda file: waits(locks.left(file))):
        yield


def trim() -> None:
    """Remove what killed runs left, and the entries that were not used for longest until the cache has its maximum
    size."""
    if not _settings.most or not _is_marked(root()):
        return
    now, entries = time.time(), []
    folders = [part for name in (*PARTS, LOCKS) if not (part := root() / name).is_symlink()]
    for path in [path for part in folders for path in _listed(part)]:
        with suppress(OSError):  # another process may remove it too
            at = path.lstat().st_mtime
            if _LEFT.fullmatch(path.name) and now - at > _DAY:
                _remove(path)
            elif _OURS.fullmatch(path.name) and not path.is_symlink():
                entries.append((at, _size(path), path))
    size = sum(bytes_ for _, bytes_, _ in entries)
    for _, bytes_, path in sorted(entries):
        if size <= _settings.most:
            return
        _remove(path)
        size -= bytes_


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    if path.is_symlink():
        return
    if path.is_dir():
        # Renamed first, because another process must not see a part of an entry.
        with suppress(OSError):
            atomic.discard(path)
    else:
        with suppress(OSError):  # Windows keeps files that another process reads
            path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder. Temporary and hidden files, and links, are left out.

    No file is a hard link to another: an edit in one run folder would change all other runs.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            _copy(path, target / path.name)
        elif not _cloned(path, target / path.name):
            shutil.copyfile(path, target / path.name)


def _cloned(source: Path, target: Path) -> bool:
    """Copy a file without taking space, where the file system can: both files share blocks until one of them
    changes."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        with source.open("rb") as read, target.open("xb") as write:
            fcntl.ioctl(write.fileno(), _CLONE, read.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True


def _hashes(folder: Path) -> dict[str, str]:
    """Path, relative to the folder -> hash of the file's content."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            hashes[path.relative_to(folder).as_posix()] = checksums.sha256(path)
    return hashes
