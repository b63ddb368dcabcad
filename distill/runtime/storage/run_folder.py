"""The folder of a run: its name, its claim, its lock, and the removal of what was left or damaged in it.

A run first claims its folder: it creates the file `atomic.CLAIM` there. A stage's `manifest.json` is written last.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PureWindowsPath

from distill.errors import ConfigError
from distill.runtime import quoting
from distill.runtime.storage import atomic, checksums, locks

MANIFEST = "manifest.json"
DISAGREEMENTS = "disagreements.json"
"""Beside results.json, which contains no texts of users: rows on which student and teacher disagree."""
LADDER = "ladder.json"
"""File in a run folder with what a run with a budget measured and decided."""
CLOCK = ".clock.json"
"""File in the folder of a run with a budget that goes on, or was killed, with the seconds that it has spent."""
STATE = ".state"
"""Ending of the folder with the states from which a training resumes."""
BEST = "best"
"""Folder among these states with the weights of the best moment so far, which every later state needs."""
LOCK = ".lock"
"""File in a run folder that is locked while a run uses it."""
OPENINGS = "openings.jsonl"
"""File with a line for each time that the run read rows that it reports, to which lines are added only."""

_NOT_IN_THE_NAME = (
    *("recipe=", "hydra.", "output=", "log=", "push=", "push_private=", "push_dry_run="),
    *("report.purpose=", "report.hourly_rate="),
)
"""Settings on which the name of a run folder does not depend."""
_CLAIM_TEXT = "distill made this folder for a run, which may replace or remove anything in it.\n"


def is_path(name: str) -> bool:
    """Whether a model's name can only be a local path, not a name on the hub (`NAME` or `OWNER/NAME`).

    True for a name that starts with `.`, `~` or a slash, contains a drive, a backslash or two slashes, or ends with a
    slash, and for every path that exists.
    """
    slashes = name.startswith((".", "~", "/")) or name.endswith("/") or name.count("/") > 1
    return slashes or "\\" in name or bool(PureWindowsPath(name).drive) or os.path.exists(name)


def claim(folder: Path) -> None:
    """Create the run folder and mark it as a run's, unless it is marked already. Call it before `locked`.

    The claim precedes the lock because the lock file lies in the folder, and a refused folder must get no file at all.
    Two processes may start at once: the mark is the first file of a run and is created by one system call, so the
    second process sees it, and `locked` admits only one of them.

    Raises:
        ConfigError: for a folder without the mark that has any file, hidden ones included, or that lies in the folder
            of another run, and for a folder that cannot be created or written.
    """
    if not atomic.claimed(folder) and (outer := atomic.run_of(folder)) is not None:
        beside = quoting.setting("output", f"{os.path.relpath(outer)}-{folder.name}")
        raise ConfigError(
            f"output: got {folder}, in the folder of another run, {outer}; must lie outside, because a run may remove "
            f"anything in its folder; set {beside}"
        )
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        filled = any(folder.iterdir())
        if atomic.claimed(folder):
            return
        if filled:
            raise ConfigError(
                f"output: got {folder}; must be a new or empty folder, or one that a run began; set output=NEW_FOLDER"
            )
        with suppress(FileExistsError), (folder / atomic.CLAIM).open("x", encoding="utf-8") as file:
            file.write(_CLAIM_TEXT)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a claimed folder for one run at a time. The processes of one run share the lock of the first.

    Raises:
        ConfigError: while another run uses the folder, and where its lock file cannot be written.
    """
    if not atomic.is_main():
        with _noted(folder):
            yield
        return
    assert atomic.claimed(folder), folder

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


@contextmanager
def _noted(folder: Path) -> Iterator[None]:
    real = folder.resolve()
    atomic.active.add(real)
    try:
        yield
    finally:
        atomic.active.discard(real)


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
    assert atomic.claimed(folder), folder
    for parent, folders, files in os.walk(folder):
        leftovers = [Path(parent) / name for name in (*folders, *files) if atomic.TEMPORARY.fullmatch(name)]
        folders[:] = [name for name in folders if not atomic.TEMPORARY.fullmatch(name)]
        for path in leftovers:
            if path.is_symlink():
                path.unlink()
            else:
                atomic.remove(path, folder)


def mend(folder: Path) -> list[str]:
    """Remove changed files below a claimed folder, so that they are made again. Returns a line for each.

    A step that has lost a part is not finished any more, and keeps what is whole. Call it under the lock.
    """
    assert atomic.claimed(folder), folder
    lines = []
    for damage in checksums.damages(folder, atomic.CLAIM):
        gone = _lost(damage)
        file, lost = (path.relative_to(folder).as_posix() for path in (damage.file, gone))
        if damage.file.name == checksums.SUMS:
            lines.append(f"{file}: not as it was written; removed, and the files beside it are not checked")
        else:
            lines.append(f"{file}: not as it was written; {lost} is removed, and made again if it is needed")
            # First, because a step must not be taken for finished if the process is killed in between.
            for parent in gone.relative_to(folder).parents[:-1]:
                atomic.remove(folder / parent / MANIFEST, folder)
        atomic.remove(gone, folder)
    return lines


def _lost(damage: checksums.Damage) -> Path:
    """The path that must be made again: of the best moment of a training, the folder with all its states."""
    states = damage.lost.parent
    return states if damage.lost.name == BEST and states.name.endswith(STATE) else damage.lost


def finished(folder: Path) -> bool:
    """Whether the stage that writes `folder` has finished: its manifest is written last."""
    return (folder / MANIFEST).is_file()


def run_folder(recipe: str, overrides: list[str], output: str | None) -> Path:
    """Folder of a run. It depends only on recipe and settings, not on their order, so that the same command resumes."""
    if output is not None:
        return Path(os.path.expanduser(output))  # of an unknown user, the name itself
    settings = sorted(o for o in overrides if not o.startswith(_NOT_IN_THE_NAME))
    name = ",".join(settings) or "default"
    if len(name) > 80 or not re.fullmatch(r"[\w=.,\[\]+~-]+", name):
        name = hashlib.sha256(name.encode()).hexdigest()[:12]
    return Path("outputs") / recipe.replace("/", "-") / name
