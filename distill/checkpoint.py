"""Files and folders that are whole or absent, and the run folder: who may write there, and what may be removed.

A file or folder is written under a temporary name, flushed to disk and renamed; a stage's `manifest.json` is written
last. A run first claims its folder: it leaves `CLAIM` there, a file that marks the folder as a run's. Nothing is ever
removed outside a claimed folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from distill.errors import ConfigError, UserError

if TYPE_CHECKING:
    import numpy as np

MANIFEST = "manifest.json"
CLAIM = ".distill-run"
"""File that marks a folder as a run's."""
LOCK = ".lock"
"""File in a run folder that is locked while a run uses it."""

_CLAIM_TEXT = "distill made this folder for a run, which may replace or remove anything in it.\n"
_TEMPORARY = re.compile(r"\..+\.\d+\.distill-tmp")
"""Temporary names: `.NAME.PROCESS.distill-tmp`."""
_WINDOWS = os.name == "nt"


def is_path(name: str) -> bool:
    """Whether the name of a model can only mean a place on this machine; a name on the hub is `NAME` or `OWNER/NAME`.

    True for what starts with `.`, `~` or a separator, has a drive, a backslash, a final or a second slash, and for
    everything that exists.
    """
    written = name.startswith((".", "~", "/")) or name.endswith("/") or name.count("/") > 1
    return written or "\\" in name or bool(PureWindowsPath(name).drive) or os.path.exists(name)


def claimed(folder: Path) -> bool:
    """Whether a run has marked the folder as its own."""
    return (folder / CLAIM).is_file()


def claim(folder: Path) -> None:
    """Make the run folder and mark it as a run's, unless a run has done so before. Call it before `locked`.

    The claim precedes the lock because the lock file lies in the folder: a folder that is refused gets no file at all.
    Processes that start at once cannot both claim wrongly. The mark is a run's first file in its folder and is created
    whole or found by one system call, so whichever process comes second finds it, and `locked` admits one of them.

    Raises:
        ConfigError: for a folder with any file, hidden ones included, that has no mark, and for a place where no folder
            can be made or written.
    """
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
    """Keep a claimed folder for one run at a time; the processes of one run share the lock of the first.

    Raises:
        ConfigError: while another run uses the folder, and where its lock file cannot be written.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        yield
        return
    from filelock import FileLock, Timeout

    assert claimed(folder), folder
    lock = FileLock(folder / LOCK)
    with _writable(folder):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ConfigError(
                f"output: got {folder}; must be used by one run at a time; wait for the other one, or set output=FOLDER"
            ) from error
    try:
        yield
    finally:
        lock.release()


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
    """Remove the files and folders under temporary names that killed runs left below a claimed folder.

    Call it under the lock: the temporary names of a run that works are no different. Symbolic links are neither
    removed nor followed.
    """
    assert claimed(folder), folder
    for place, folders, files in os.walk(folder):
        left = [Path(place) / name for name in (*folders, *files) if _TEMPORARY.fullmatch(name)]
        folders[:] = [name for name in folders if not _TEMPORARY.fullmatch(name)]
        for path in left:
            if not path.is_symlink():
                remove(path, folder)


def remove(path: Path, run: Path) -> None:
    """Remove a file, a folder or a symbolic link below a claimed run folder; nothing where it does not exist.

    Symbolic links are never followed: of one that leads to a place in the run folder, the link alone is removed.

    Raises:
        ValueError: where no run has claimed `run`.
        UserError: for a path that lies, or leads by symbolic links, outside of the run folder, and for `run` itself.
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
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.distill-tmp")


def _fsync(path: Path) -> None:
    if _WINDOWS and path.is_dir():
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDWR if _WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`. The file written there is flushed and takes the place of `path`.

    On an error nothing is left of it, and the file at `path` stays as it was. Folders above it are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    with writing_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 with the line ends it has, whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all. ValueError for NaN and infinity, which are not JSON."""
    write_text(path, json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as `.npz`, whole or not at all."""
    import numpy as np

    with writing_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_json(path: Path) -> Any:
    """The content of a JSON file. ValueError where it is not JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `folder`; on success it is flushed and takes the place of `folder`.

    Only below a claimed run folder may `folder` hold files before.

    Raises:
        UserError: for a folder with files that is not below a claimed one, and when safetensors cannot write into the
            temporary folder, as on a full disk.
        OSError: when anything else cannot write into it.
    """
    run = next((parent for parent in folder.resolve().parents if claimed(parent)), None)
    if run is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: got a place with files in it; must be a new or empty folder; choose another")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            _fsync(path)
        if run is not None:
            remove(folder, run)
        elif folder.exists():
            folder.rmdir()
        temporary.rename(folder)
        _fsync(folder.parent)
    except SafetensorError as error:
        raise UserError(
            f"{folder}: got {error}; must be writable, with room enough; mend it, then run the same command"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finished(folder: Path) -> bool:
    """Whether a stage finished: its manifest is written last."""
    return (folder / MANIFEST).is_file()


def run_folder(recipe: str, overrides: list[str], output: str | None) -> Path:
    """Folder of a run. The same recipe and settings, in any order, give the same folder, so that a run can resume."""
    if output is not None:
        return Path(output)
    settings = sorted(
        o for o in overrides if not o.startswith(("recipe=", "hydra.", "output=", "push=", "push_private="))
    )
    name = ",".join(settings) or "default"
    if len(name) > 80 or not re.fullmatch(r"[\w=.,\[\]+~-]+", name):
        name = hashlib.sha256(name.encode()).hexdigest()[:12]
    return Path("outputs") / recipe.replace("/", "-") / name


def fingerprint(settings: Any) -> str:
    """Hash of a value that JSON can represent: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
