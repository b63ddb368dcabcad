"""What runs share: content that is made once, and kept in the user's cache.

An entry is a folder named by a hash of all that its content is made from. The content is in its folder `cache.CONTENT`,
and the hash of each file in `cache.FILES`. An entry is written whole or not at all, and several processes may use it at
once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from distill.errors import UserError
from distill.runtime.storage import atomic, cache, checksums, disk_errors, locks


def _nothing() -> None:
    """Do nothing."""


def get_or_make(
    part: str,
    key: str | None,
    make: Callable[[Path], object],
    target: Path | None = None,
    waits: Callable[[str], None] | None = None,
    taken: Callable[[], None] = _nothing,
) -> Path:
    """A folder with some content: `target`, or else the entry of the cache. It is made if there is no whole entry.

    While one process makes an entry, others wait for it. Without a key, and where the cache cannot be used or written
    or is full, the content is made in `target` or in a temporary folder, which is removed when the process ends.

    Args:
        part: folder of the cache, one of `cache.PARTS`.
        key: hash of all that the content depends on; None for content that is not shared.
        make: fills the empty folder that it is given. With a target, it is given the target, which it makes or, if an
            earlier try left a part there, completes.
        target: folder in a run, which is replaced by a copy of the entry. The copies take no further space where the
            file system can share their blocks.
        waits: called once, with the end of a message (`locks.left`), if another process makes the entry. By default a
            line is printed on standard error.
        taken: called after the files of an entry were copied to the target.

    Raises:
        OSError: if the disk of the target, or of temporary folders, is full. Errors of `make` are raised too. Without a
            target, it is called again for a temporary folder if the disk of the cache was full.
    """

    def says(end: str) -> None:
        sys.stderr.write(f"cache: another process makes what is needed here too ({part}); waiting for it{end}\n")

    if target is None:
        return _in_place(part, key, make, waits or says)
    with making(part, key, waits or says):
        if take(part, key, target):
            taken()
        else:
            make(target)
            keep(part, key, target)
    return target


def _in_place(part: str, key: str | None, make: Callable[[Path], object], waits: Callable[[str], None]) -> Path:
    """The folder `cache.CONTENT` of an entry, of the cache or of this process alone."""
    if (kept := found(part, key)) is not None:
        return kept
    own = cache.temporary() / part / (key or secrets.token_hex(8))
    if _is_whole(own):
        return own / cache.CONTENT
    with making(part, key, waits):
        if key is not None and cache.most() and _kept(entry := cache.root() / part / key, make):
            return entry / cache.CONTENT
    shutil.rmtree(own, ignore_errors=True)
    _write(own, make)
    return own / cache.CONTENT


def found(part: str, key: str | None) -> Path | None:
    """The folder with the content of an entry of the cache; None if it is not there, or is damaged."""
    if key is None or not cache.most() or not _is_whole(entry := cache.root() / part / key):
        return None
    return entry / cache.CONTENT


def _is_whole(entry: Path) -> bool:
    """Whether an entry is there with all its files, as they were written. Notes that it is used."""
    if not os.path.isfile(entry / cache.FILES):
        return False
    cache.used(entry)  # first, so that no other process removes it as unused while it is read
    try:
        return checksums.unchanged(entry / cache.CONTENT, entry / cache.FILES)
    except OSError:
        return False


def _kept(entry: Path, make: Callable[[Path], object]) -> bool:
    """Make an entry of the cache, unless it is there now. Returns whether it is: a disk may be full."""
    _remove_if_damaged(entry)
    if os.path.lexists(entry) or not cache.can_write(entry.parent):
        return _is_whole(entry)
    try:
        _write(entry, make)
    except (OSError, UserError) as error:
        if _is_whole(entry):  # where there are no locks, another process may have been faster
            return True
        if not isinstance(error, OSError) or error.errno not in disk_errors.FULL:
            raise
        return False
    return True


def _remove_if_damaged(entry: Path) -> None:
    """Remove an entry with a missing or changed file. One that cannot be read stays: a network may be down."""
    with suppress(OSError):
        try:
            damaged = not checksums.unchanged(entry / cache.CONTENT, entry / cache.FILES)
        except FileNotFoundError:
            damaged = os.path.lexists(entry)
        if damaged:
            cache.remove(entry)


def _write(entry: Path, make: Callable[[Path], object]) -> None:
    """Write an entry with what `make` puts into the folder that it is given."""
    with atomic.writing(entry) as temporary:
        content = temporary / cache.CONTENT
        content.mkdir()
        make(content)
        checksums.store(content, temporary / cache.FILES, atomic.write_json)


def take(part: str, key: str | None, target: Path) -> bool:
    """Put the files of an entry into the folder `target`, which is replaced. Returns whether the entry existed.

    An entry with a missing or changed file is removed, and counts as missing.

    Raises:
        OSError: if the disk of `target` is full.
    """
    if key is None or not cache.most() or not os.path.isfile((entry := cache.root() / part / key) / cache.FILES):
        return False
    cache.used(entry)  # first, so that no other process removes it as unused while it is copied
    try:
        with atomic.writing(target) as temporary:
            _copy(entry / cache.CONTENT, temporary)
            if not checksums.unchanged(temporary, entry / cache.FILES):
                raise _Damaged
    except (FileNotFoundError, _Damaged):
        cache.remove(entry)
        return False
    except OSError as error:
        if error.errno in disk_errors.FULL:
            raise
        return False
    return True


class _Damaged(Exception):
    """Files of an entry differ from the stored ones."""


def keep(part: str, key: str | None, source: Path) -> bool:
    """Store the files of a folder as an entry, unless the entry exists. Returns whether it exists now.

    Nothing is stored where the cache cannot be written, on a disk that would have less than as much free space left, or
    if the files alone are larger than the cache may become.
    """
    if key is None or not cache.most():
        return False
    entry = cache.root() / part / key
    if os.path.isfile(entry / cache.FILES):
        return True
    if (size := cache.bytes_in(source)) > cache.most() or not cache.can_write(cache.root() / part):
        return False
    if shutil.disk_usage(cache.root() / part).free < 2 * size:  # the run needs it
        return False
    _remove_if_damaged(entry)
    try:
        _write(entry, lambda content: _copy(source, content))
    except (OSError, UserError):  # no space, or another run was faster
        return os.path.isfile(entry / cache.FILES)
    cache.trim()
    return True


@contextmanager
def making(part: str, key: str | None, waits: Callable[[str], None]) -> Iterator[None]:
    """Let no other process make the same entry within the block: it waits, and can then take the entry.

    Args:
        key: name of the entry. Without a key, and where the lock is a symbolic link or another user's, the process does
            not wait.
        waits: called once, with the end of a message (`locks.left`), if another process makes the entry.
    """
    lock = cache.root() / cache.LOCKS / f"{part}-{key}"
    with ExitStack() as stack:
        if key is not None and cache.most() and cache.can_write(lock.parent):
            with suppress(OSError):
                stack.enter_context(locks.held(lock, lambda file: waits(locks.left(file))))
        yield


def _copy(source: Path, target: Path) -> None:
    """Copy a folder. Temporary and hidden files, and links, are left out."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            _copy(path, target / path.name)
        else:
            atomic.copy(path, target / path.name)
