"""Hashes of files that users may change. What was made from a file is found again by its hash.

A file is hashed whenever it is asked for. The hash of a large one is remembered in the part `contents` of the user's
cache by device, inode, size, and the times of the last change of its content (mtime) and of anything about it (ctime).
Programs set mtime as they like (`tar`, `cp -p`, `touch -d`), but ctime is set by the kernel alone. It is not trusted
where it might be something else: on Windows, where it is the time of creation, and on file systems that have no ctime
of their own, such as FAT, images of disks and containers, and servers that are mounted as folders.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from distill.runtime.storage import atomic, cache, checksums

PART = "contents"
LARGE = 2**24
"""Bytes from which on a hash is remembered. Smaller files are hashed within some hundredths of a second."""
SETTLED = 60.0
"""Seconds since the last change after which a hash is remembered. Before, another change might have the same time, or
might come from a program that has the file mapped into memory, which the kernel notes once in a while."""
_KEEP_TIMES = frozenset("ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs tmpfs nfs nfs4 ceph lustre".split())
"""Types of file systems in Linux whose ctime programs cannot set."""
_MOUNTS = Path("/proc/self/mountinfo")
_HASH = re.compile("[0-9a-f]{64}")
_VERSIONS = ("generation", "VersionId", "version_id", "blob_id", "sha", "md5Hash", "content_md5")
"""What file systems of fsspec state about a file that differs for each content. Sizes, times, and the ETags that web
servers make of both do not."""
_OF_CONTENT = re.compile('"?[0-9a-fA-F]{32,}(-[0-9]+)?"?')
"""ETags that are a hash, as in object stores."""


def sha256(file: Path) -> str:
    """Hash of the content that a file has now. Raises OSError if it cannot be read."""
    with file.open("rb") as content:
        before = os.fstat(content.fileno())
        entry = _entry(file, before)
        if entry is not None and (known := _remembered(entry)) is not None:
            return known
        found = hashlib.file_digest(content, "sha256").hexdigest()
        if entry is not None and _state(os.fstat(content.fileno())) == _state(before):
            with suppress(OSError):  # without it, the file is hashed again
                atomic.write_text(entry, found)
    return found


def of_folder(folder: Path) -> list[list[str]]:
    """Path below the folder and hash of each file in it, but of hidden ones."""
    every = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith("."))
    return [[file.relative_to(folder).as_posix(), sha256(file)] for file in every]


@functools.cache
def of_code(folder: Path) -> str:
    """Hash of the sources of a package, because other sources may make something else of the same file."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _entry(file: Path, status: os.stat_result) -> Path | None:
    """The path where the hash of a file in this state is remembered; None if it is not remembered."""
    settled = max(status.st_mtime, status.st_ctime) < time.time() - SETTLED
    if status.st_size < LARGE or not settled or not _keeps_times(file):
        return None
    return cache.folder(PART) / checksums.fingerprint(_state(status))


def _state(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _remembered(entry: Path) -> str | None:
    try:
        known = entry.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    if not _HASH.fullmatch(known):
        return None
    cache.used(entry)
    return known


def _keeps_times(file: Path) -> bool:
    """Whether the ctime of a file is the kernel's. False where that is unknown."""
    real = str(file.resolve())
    inside = [point for point in _types() if real == point or real.startswith(point.rstrip("/") + "/")]
    return bool(inside) and _types()[max(inside, key=len)] in _KEEP_TIMES


@functools.cache
def _types() -> dict[str, str]:
    """Mount point -> type of the file system; empty outside Linux."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    # The last one that was mounted at a point hides the others.
    return {_unescaped(line.split()[4]): line.partition(" - ")[2].split()[0] for line in lines if " - " in line}


def _unescaped(point: str) -> str:
    """A mount point as it is: `\\040` stands for a space."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)


def version(info: Mapping[str, Any]) -> str | None:
    """A value that a file system of fsspec states about a file and that changes with its content; None without one."""
    stated = {name: info[name] for name in _VERSIONS if info.get(name) not in (None, "", "null")}
    tags = {name: tag for name in ("ETag", "etag") if _OF_CONTENT.fullmatch(tag := str(info.get(name, "")))}
    return None if not stated | tags else repr(sorted((stated | tags).items()))


def copied(source: IO[bytes], folder: Path) -> tuple[BinaryIO, str]:
    """(copy of all that a file contains, in a temporary file on the disk of `folder`; its hash)."""
    copy, digest = tempfile.TemporaryFile(dir=folder), hashlib.sha256()
    while part := source.read(2**20):
        digest.update(part)
        copy.write(part)
    copy.flush()
    return copy, digest.hexdigest()


def again(copy: BinaryIO) -> BinaryIO:
    """A temporary file, to be read from its beginning. It stays open when what is returned is closed."""
    copy.seek(0)
    return os.fdopen(os.dup(copy.fileno()), "rb")
