"""Writing of files and folders that are whole or absent, and where it may replace something.

A file or folder is written under a temporary name, flushed to disk and renamed. A run marks its folder with the file
`CLAIM`. Nothing outside a claimed folder is removed, and nothing is written through a symbolic link in it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.errors import UserError
from distill.runtime.storage import checksums, disk_errors

if TYPE_CHECKING:
    import numpy as np

CLAIM = ".distill-run"
"""File that marks a folder as a run's."""
active: set[Path] = set()
"""Run folders that this process has locked, or whose lock its main process has."""
TEMPORARY = re.compile(r"\..+\.\d+\.distill-tmp")
"""Temporary names: `.NAME.NUMBER.distill-tmp`."""
_IN_USE = (errno.ENOTEMPTY, errno.EBUSY)
"""Errors of removing a folder with a file that a process uses: NFS keeps such a file under another name until then."""
_WINDOWS = os.name == "nt"
_CLONE = 0x40049409
"""Number of the request FICLONE in Linux; other systems refuse it."""


def claimed(folder: Path) -> bool:
    """Whether a run has marked the folder as its own. A symbolic link is no mark."""
    mark = folder / CLAIM
    return os.path.isfile(mark) and not os.path.islink(mark)


def is_main() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def remove(path: Path, run: Path) -> None:
    """Remove a file, a folder or a symbolic link below the claimed run folder `run`, if it exists.

    Symbolic links are never followed: if one leads to another path in the run folder, only the link is removed.

    Raises:
        ValueError: if no run has claimed `run`.
        UserError: for a path that is, or leads by symbolic links, outside the run folder, and for `run` itself.
    """
    if not claimed(run):
        raise ValueError(f"{run} is not the folder of a run")
    real = path.resolve()
    if run.resolve() not in real.parents:
        raise UserError(
            f"{path}: got {real}; must lie in the run folder {run} for the run to remove it; remove the symbolic link "
            "that leads there, then run the same command"
        )
    if path.is_dir() and not path.is_symlink():
        discard(path)
    else:
        path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Remove a folder. It gets a temporary name first, so that no part of it is taken for the whole.

    What a process still uses may stay under this name until a later run sweeps its folder.
    """
    gone = folder
    if not TEMPORARY.fullmatch(folder.name):
        gone = _temporary(folder.with_name(f"{folder.name}.removed"))
        folder.rename(gone)
    try:
        shutil.rmtree(gone)
    except OSError as error:
        if error.errno not in _IN_USE:
            raise
        shutil.rmtree(gone, ignore_errors=True)  # all that nobody uses


def _temporary(path: Path) -> Path:
    """A name beside the path that nobody can guess, so that nobody can put something in its place."""
    return path.with_name(f".{path.name}.{secrets.randbelow(10**15):015d}.distill-tmp")


def no_links(path: Path) -> None:
    """Check that no folder between a claimed folder and a path below it is a symbolic link.

    Raises:
        UserError: for such a link: what it leads to need not belong to the run.
    """
    link = None
    for parent in Path(os.path.abspath(path)).parents:
        if claimed(parent):
            if link is not None:
                raise UserError(
                    f"{link}: got a symbolic link to {link.resolve()}; must be a folder of the run {parent}, which "
                    "writes nothing through links; move the folder itself here, or remove the link"
                )
            if not parent.is_symlink():
                return
        if parent.is_symlink():
            link = parent


def fsync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    if _WINDOWS and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDWR if _WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing_file(path: Path, *, new: bool = False) -> Iterator[Path]:
    """Yield a temporary path. The file that the block writes there is flushed, and then replaces the file at `path`.

    On an error the temporary file is removed, and the file at `path` does not change. Missing folders are created. The
    null device is never replaced.

    Args:
        new: whether there must be no file at `path`, also none that another process wrote there meanwhile.

    Raises:
        UserError: for another device, a pipe or a folder at `path`, a symbolic link outside of claimed folders, and
            a folder of a run that is a symbolic link.
    """
    if disk_errors.is_null(path):
        with tempfile.TemporaryDirectory() as name:
            yield Path(name, path.name)
        return
    no_links(path)
    what = disk_errors.special(path)
    if what is not None and not (path.is_symlink() and run_of(path.parent / "file") is not None):
        raise UserError(f"{path}: got {what}; must be a file, or nothing, to be written; choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    # In a folder that this call makes and that nobody else may open, so that nobody puts a link in the file's place.
    hidden = _temporary(path)
    hidden.mkdir(mode=0o700)
    temporary = hidden / path.name
    try:
        with disk_errors.measured(path, hidden):
            yield temporary
            fsync(temporary)
            # Several processes would overwrite each other's hashes; what others write is written whole, with its own.
            if is_main() and path.name != checksums.SUMS and _hashed(path.parent):
                checksums.note(path, temporary, write_json)
            disk_errors.put(temporary, path, new=new)
            fsync(path.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def run_of(path: Path) -> Path | None:
    """The claimed folder that a path is in; None if no run has claimed one."""
    return next((parent for parent in path.resolve().parents if claimed(parent)), None)


def _hashed(folder: Path) -> bool:
    """Whether files in a folder get hashes: it belongs to a run of this process, and no folder around it is put in
    place as a whole. Users may change what other commands write."""
    inside = folder.resolve() / "file"
    return run_of(inside) in active and not any(TEMPORARY.fullmatch(part) for part in inside.parts)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with writing_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 atomically, with its line endings unchanged."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically. Raises ValueError for NaN and infinity, which are not JSON."""
    write_text(path, json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays of any shape as `.npz` atomically."""
    import numpy as np

    with writing_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError if it is not JSON."""
    return loads(path.read_text(encoding="utf-8"))


def loads(text: str | bytes) -> Any:
    """The value of JSON. Raises ValueError for other text, and for JSON that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder. After the block it is flushed and then replaces `folder`.

    `folder` may already contain files only if it is below a claimed run folder.

    Raises:
        UserError: for a folder with files that is not below a claimed one, and for one below a symbolic link in it.
        OSError: when it cannot be written; `disk_errors.Full` on a full disk.
    """
    no_links(folder / "file")
    run = run_of(folder)
    if run is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: got a folder with files, or a file; must be a new or empty folder; choose another")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(folder)
    temporary.mkdir()
    try:
        with disk_errors.measured(folder, temporary):
            yield temporary
            if _hashed(folder.parent):
                checksums.seal(temporary, write_json)
            for path in [*temporary.rglob("*"), temporary]:
                if path.suffix == ".safetensors":
                    # safetensors lets nobody but the user read its files, whatever the umask.
                    path.chmod(temporary.stat().st_mode & 0o666)
                fsync(path)
            if run is not None:
                remove(folder, run)
            elif folder.exists():
                folder.rmdir()
            temporary.rename(folder)
            fsync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def copy(source: str | Path, target: str | Path) -> None:
    """Copy the content of a file to a path where nothing is yet.

    The copy is no hard link, so that a later change of one file changes no other. It takes no further space where the
    file system can share blocks.
    """
    if not _cloned(Path(source), Path(target)):
        shutil.copyfile(source, target)


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
