"""Atomic writing of files and folders; the claim and the lock of a run folder, and removal inside of it.

A file or folder is written under a temporary name, flushed to disk and renamed. A stage's `manifest.json` is written
last. A run first claims its folder: it creates the file `CLAIM` there. Nothing outside a claimed folder is removed, and
nothing is written through a symbolic link in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from distill.errors import ConfigError, UserError
from distill.runtime import quoting
from distill.runtime.storage import checksums, disk_errors, locks

if TYPE_CHECKING:
    import numpy as np

MANIFEST = "manifest.json"
CLAIM = ".distill-run"
"""File that marks a folder as a run's."""
DISAGREEMENTS = "disagreements.json"
"""Beside results.json, which contains no texts of users: rows on which student and teacher disagree."""
LADDER = "ladder.json"
"""File in a run folder with what a run with a budget measured and decided."""
STATE = ".state"
"""Ending of the folder with the states from which a training resumes."""
BEST = "best"
"""Folder among these states with the weights of the best moment so far, which every later state needs."""
LOCK = ".lock"
"""File in a run folder that is locked while a run uses it."""

_CLAIM_TEXT = "distill made this folder for a run, which may replace or remove anything in it.\n"
_locked: set[Path] = set()
"""Run folders that this process has locked, or whose lock its main process has."""
_TEMPORARY = re.compile(r"\..+\.\d+\.distill-tmp")
"""Temporary names: `.NAME.NUMBER.distill-tmp`."""
_WINDOWS = os.name == "nt"


def is_path(name: str) -> bool:
    """Whether a model's name can only be a local path, not a name on the hub (`NAME` or `OWNER/NAME`).

    True for a name that starts with `.`, `~` or a slash, contains a drive, a backslash or two slashes, or ends with a
    slash, and for every path that exists.
    """
    slashes = name.startswith((".", "~", "/")) or name.endswith("/") or name.count("/") > 1
    return slashes or "\\" in name or bool(PureWindowsPath(name).drive) or os.path.exists(name)


def claimed(folder: Path) -> bool:
    """Whether a run has marked the folder as its own. A symbolic link is no mark."""
    mark = folder / CLAIM
    return os.path.isfile(mark) and not os.path.islink(mark)


def claim(folder: Path) -> None:
    """Create the run folder and mark it as a run's, unless it is marked already. Call it before `locked`.

    The claim precedes the lock because the lock file lies in the folder, and a refused folder must get no file at all.
    Two processes may start at once: the mark is the first file of a run and is created by one system call, so the
    second process sees it, and `locked` admits only one of them.

    Raises:
        ConfigError: for a folder without the mark that has any file, hidden ones included, or that lies in the folder
            of another run, and for a folder that cannot be created or written.
    """
    if not claimed(folder) and (outer := _run_of(folder)) is not None:
        beside = quoting.setting("output", f"{os.path.relpath(outer)}-{folder.name}")
        raise ConfigError(
            f"output: got {folder}, in the folder of another run, {outer}; must lie outside, because a run may remove "
            f"anything in its folder; set {beside}"
        )
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        filled = any(folder.iterdir())
        if claimed(folder):
            return
        if filled:
            raise ConfigError(
                f"output: got {folder}; must be a new or empty folder, or one that a run began; set output=NEW_FOLDER"
            )
        with suppress(FileExistsError), (folder / CLAIM).open("x", encoding="utf-8") as file:
            file.write(_CLAIM_TEXT)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a claimed folder for one run at a time. The processes of one run share the lock of the first.

    Raises:
        ConfigError: while another run uses the folder, and where its lock file cannot be written.
    """
    if not _main():
        with _noted(folder):
            yield
        return
    assert claimed(folder), folder

    def taken(file: Path) -> None:
        raise ConfigError(
            f"output: got {folder}; must be used by one run at a time; wait for the other one, or set "
            f"output=FOLDER{locks.left(file)}"
        )

    with ExitStack() as stack:
        with _writable(folder):
            stack.enter_context(locks.held(folder / LOCK, taken))
        stack.enter_context(_noted(folder))
        yield


def _main() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def _noted(folder: Path) -> Iterator[None]:
    real = folder.resolve()
    _locked.add(real)
    try:
        yield
    finally:
        _locked.discard(real)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"output: got {folder}; must be a folder that can be made and written "
            f"({error.strerror or type(error).__name__}); set output=NEW_FOLDER"
        ) from error


def sweep(folder: Path) -> None:
    """Remove temporary files and folders of killed runs below a claimed folder.

    Call it under the lock, because the temporary files of an active run have the same form of name. Symbolic links with
    such a name are removed too; no link is followed.
    """
    assert claimed(folder), folder
    for parent, folders, files in os.walk(folder):
        leftovers = [Path(parent) / name for name in (*folders, *files) if _TEMPORARY.fullmatch(name)]
        folders[:] = [name for name in folders if not _TEMPORARY.fullmatch(name)]
        for path in leftovers:
            if path.is_symlink():
                path.unlink()
            else:
                remove(path, folder)


def mend(folder: Path) -> list[str]:
    """Remove changed files below a claimed folder, so that they are made again. Returns a line for each.

    A step that has lost a part is not finished any more, and keeps what is whole. Call it under the lock.
    """
    assert claimed(folder), folder
    lines = []
    for damage in checksums.damages(folder, CLAIM):
        gone = _lost(damage)
        file, lost = (path.relative_to(folder).as_posix() for path in (damage.file, gone))
        if damage.file.name == checksums.SUMS:
            lines.append(f"{file}: not as it was written; removed, and the files beside it are not checked")
        else:
            lines.append(f"{file}: not as it was written; {lost} is removed, and made again if it is needed")
            # First, because a step must not be taken for finished if the process is killed in between.
            for parent in gone.relative_to(folder).parents[:-1]:
                remove(folder / parent / MANIFEST, folder)
        remove(gone, folder)
    return lines


def _lost(damage: checksums.Damage) -> Path:
    """The path that must be made again: of the best moment of a training, the folder with all its states."""
    states = damage.lost.parent
    return states if damage.lost.name == BEST and states.name.endswith(STATE) else damage.lost


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
    """Remove a folder. It gets a temporary name first, so that no part of it is taken for the whole."""
    gone = folder
    if not _TEMPORARY.fullmatch(folder.name):
        gone = _temporary(folder.with_name(f"{folder.name}.removed"))
        folder.rename(gone)
    shutil.rmtree(gone)


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


def _fsync(path: Path) -> None:
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
    if what is not None and not (path.is_symlink() and _run_of(path.parent / "file") is not None):
        raise UserError(f"{path}: got {what}; must be a file, or nothing, to be written; choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    # In a folder that this call makes and that nobody else may open, so that nobody puts a link in the file's place.
    hidden = _temporary(path)
    hidden.mkdir(mode=0o700)
    temporary = hidden / path.name
    try:
        with disk_errors.measured(path, hidden):
            yield temporary
            _fsync(temporary)
            # Several processes would overwrite each other's hashes; what others write is written whole, with its own.
            if _main() and path.name != checksums.SUMS and _hashed(path.parent):
                checksums.note(path, temporary, write_json)
            disk_errors.put(temporary, path, new=new)
            _fsync(path.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _run_of(path: Path) -> Path | None:
    """The claimed folder that a path is in; None if no run has claimed one."""
    return next((parent for parent in path.resolve().parents if claimed(parent)), None)


def _hashed(folder: Path) -> bool:
    """Whether files in a folder get hashes: it belongs to a run of this process, and no folder around it is put in
    place as a whole. Users may change what other commands write."""
    inside = folder.resolve() / "file"
    return _run_of(inside) in _locked and not any(_TEMPORARY.fullmatch(part) for part in inside.parts)


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
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder. After the block it is flushed and then replaces `folder`.

    `folder` may already contain files only if it is below a claimed run folder.

    Raises:
        UserError: for a folder with files that is not below a claimed one, and for one below a symbolic link in it.
        OSError: when it cannot be written; `disk.Full` on a full disk.
    """
    no_links(folder / "file")
    run = _run_of(folder)
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
                _fsync(path)
            if run is not None:
                remove(folder, run)
            elif folder.exists():
                folder.rmdir()
            temporary.rename(folder)
            _fsync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finished(folder: Path) -> bool:
    """Whether the stage that writes `folder` has finished: its manifest is written last."""
    return (folder / MANIFEST).is_file()


def run_folder(recipe: str, overrides: list[str], output: str | None) -> Path:
    """Folder of a run. It depends only on recipe and settings, not on their order, so that the same command resumes."""
    if output is not None:
        return Path(output)
    settings = sorted(
        o
        for o in overrides
        if not o.startswith(("recipe=", "hydra.", "output=", "push=", "push_private=", "push_dry_run="))
    )
    name = ",".join(settings) or "default"
    if len(name) > 80 or not re.fullmatch(r"[\w=.,\[\]+~-]+", name):
        name = hashlib.sha256(name.encode()).hexdigest()[:12]
    return Path("outputs") / recipe.replace("/", "-") / name


def fingerprint(value: Any) -> str:
    """Hash, as 16 hexadecimal digits, of a value that JSON can represent."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
