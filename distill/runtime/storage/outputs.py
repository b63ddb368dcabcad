"""Checks every output that a user names, or that a command writes by default.

A new file may be written anywhere. A file that exists is replaced only if a command wrote it and nobody has changed it
(`write_all`), or if the user says so (`--overwrite`). Devices, pipes, links and folders are never replaced, and neither
is an input of the same command, however its path is spelt. The null device drops what is written to it.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from distill.errors import ConfigError
from distill.runtime import quoting
from distill.runtime.storage import checksums
from distill.runtime.storage.atomic import claimed, write_bytes, write_json
from distill.runtime.storage.disk_errors import is_null, special
from distill.runtime.storage.strict_json import read_json

MARK = ".distill-written"
"""File in a folder with the hashes of what commands such as `distill.report` wrote there."""
_ABOUT = "/about"
"""Key in `MARK`, which no file can have, for what the files are about."""

_STDOUT = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
"""Names of standard output."""


def checked(
    given: str | Path,
    option: str,
    *,
    inputs: Sequence[str | Path] = (),
    overwrite: bool = False,
    stdout: bool = True,
) -> Path | None:
    """The path of a file that a command may write, or None for standard output (`-` or `/dev/stdout`). It may also be
    the null device.

    Call it before anything else is done, so that a wrong path is refused at once.

    Args:
        option: the option that names the path, e.g. `--output`.
        inputs: what the command reads: files, folders, globs or URLs, as the user wrote them.
        overwrite: whether an existing file may be replaced.
        stdout: whether the command can write to standard output.

    Raises:
        ConfigError: for a path that the command must not write, with the same option as it may be typed instead.
    """
    text = os.fspath(given)
    if stdout and text in _STDOUT:
        return None
    path = at_home(text)
    if is_null(path):
        return path
    what = "an empty name" if not text else special(path)
    if what is None and text.endswith(("/", os.sep)):
        what = "a folder"
    if what is not None:
        raise ConfigError(f"{option}: got {text}, {what}; {_mend(path, option, what, overwrite, stdout)}")
    if (parent := _in_the_way(path)) is not None:
        other = _other(Path(path.name), option)
        raise ConfigError(f"{option}: got {path}; must be in a folder, but {parent} is none; {other}")
    if is_input(path, inputs):
        other = _other(_apart(path, inputs), option)
        raise ConfigError(f"{option}: got {path}, which the command reads; must be another file; {other}")
    if os.path.lexists(path) and not overwrite:
        raise ConfigError(
            f"{option}: got {path}, which exists; must be a new file; add --overwrite to replace it, or "
            f"{_other(path, option)}"
        )
    return path


def at_home(text: str) -> Path:
    """The path of an output: bash leaves the ~ in `--output=~/x`, which would make a folder of this name."""
    return Path(os.path.expanduser(text) if text.startswith("~/") else text)


def write_all(
    folder: Path,
    files: Mapping[str, bytes],
    option: str,
    *,
    about: str = "",
    of_run: bool = False,
    overwrite: bool = False,
) -> None:
    """Write all files into a folder, or no file if one of them would replace a file of somebody else.

    The file `MARK` then has the hashes of what was written, so that the same command may replace its own files as long
    as nobody has changed them.

    Args:
        files: name -> content.
        option: the option or argument that names the folder.
        about: what the files are about: those about something else are not replaced.
        of_run: whether they are files of a run, which are replaced in its folder, whatever they contain.

    Raises:
        ConfigError: without `overwrite`, if a file exists that no command wrote, or that was changed.
        OSError: if the folder cannot be written.
    """
    check_all(folder, files, option, about=about, of_run=of_run, overwrite=overwrite)
    if of_run and claimed(folder):
        for name, content in files.items():
            write_bytes(folder / name, content)
        return
    # Noted before it is written, so that a process that is killed in between leaves no file that is not its own.
    known = _written(folder) | {_ABOUT: [about]}
    before = {name: hashes for name, hashes in known.items() if name in files}
    both = {name: [*before.get(name, []), hashlib.sha256(content).hexdigest()] for name, content in files.items()}
    write_json(folder / MARK, known | both)
    for name, content in files.items():
        write_bytes(folder / name, content)
    write_json(folder / MARK, known | {name: hashes[-1:] for name, hashes in both.items()})


def check_all(
    folder: Path,
    names: Iterable[str],
    option: str,
    *,
    about: str = "",
    of_run: bool = False,
    overwrite: bool = False,
) -> None:
    """Raise the ConfigError of `write_all` for a folder in which one of the files must not be written."""
    if (parent := _in_the_way(folder / MARK)) is not None:
        raise ConfigError(f"{option}: got {folder}; must be a folder, but {parent} is none; choose another")
    known, ours = _written(folder), of_run and claimed(folder)
    if not (ours or overwrite) and known.get(_ABOUT, [about]) != [about]:
        raise ConfigError(
            f"{option}: got {folder}, which has the results of another command; must be another folder, or add "
            f"--overwrite to replace them; {_other(folder, option)}"
        )
    for name in (*names, MARK):
        file = folder / name
        if (what := special(file)) is not None:
            raise ConfigError(f"{file}: got {what}; must be a file, or nothing, to be written; move it away")
        if name == MARK or ours or overwrite or not file.exists() or checksums.sha256(file) in known.get(name, ()):
            continue
        change = "changed since it was written" if name in known else "not written by this command"
        raise ConfigError(
            f"{file}: got a file that was {change}; must be the command's own to be replaced; move it away, or add "
            "--overwrite to replace it"
        )


def free_folder(folder: Path, names: Sequence[str], about: str) -> Path:
    """The first of `folder`, `folder-2`, `folder-3` and so on in which these files replace no others."""
    number, found = 1, folder
    while not _may_be_written(found, names, about):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _may_be_written(folder: Path, names: Sequence[str], about: str) -> bool:
    if os.path.lexists(folder) and not folder.is_dir():
        return False
    try:
        check_all(folder, names, "", about=about)
    except ConfigError:
        # Where the parent is not a folder, no number helps; it is refused when the files are written.
        return _in_the_way(folder) is not None
    return True


def _in_the_way(path: Path) -> Path | None:
    """The nearest existing parent if it is not a folder, else None. A link to a folder counts as a folder."""
    parent = next((parent for parent in path.absolute().parents if os.path.lexists(parent)), None)
    return None if parent is None or parent.is_dir() else parent


def is_input(path: Path, inputs: Iterable[str | Path]) -> bool:
    """Whether a file is one of the inputs, or in a folder that is one, however its path is spelt; or, of a file that
    does not exist, whether the same command would read it the next time, because a glob matches it."""
    every = [each for given in inputs for each in spellings(os.fspath(given))]
    if not os.path.lexists(path):
        return any(_matches(path, spelling) for spelling in every)
    here = {_identity(each) for each in (path, *path.resolve().parents)}
    return bool(here & {_identity(file) for spelling in every for file in _files(spelling)} - {None})


def _apart(path: Path, inputs: Sequence[str | Path]) -> Path:
    """The path, or one in a folder of its own where a glob of the inputs matches other names in this one too."""
    return path.parent / "predictions" / path.name if is_input(_free(path), inputs) else path


def spellings(given: str) -> Iterator[str]:
    """Paths and globs on this machine that an input may mean, e.g. as a `file://` URL."""
    for part in given.split("::"):
        scheme, separator, rest = part.partition("://")
        yield from {rest, unquote(rest)} if separator and scheme in ("file", "local") else {part}


def _files(spelling: str) -> Iterator[Path]:
    yield Path(spelling)
    if not os.path.isfile(spelling):  # a name with brackets is a name
        yield from map(Path, glob.iglob(spelling, recursive=True))


def _matches(path: Path, spelling: str) -> bool:
    """Whether a glob matches a path; `**` is taken for no folder or for one."""
    if not glob.has_magic(spelling) or os.path.isfile(spelling):
        return False
    pattern, absolute = os.path.abspath(spelling), Path(os.path.abspath(path))
    return absolute.match(pattern) or ("**/" in pattern and absolute.match(pattern.replace("**/", "")))


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of the file that a path leads to, which hard links and other spellings share; None without a
    file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _written(folder: Path) -> dict[str, list[str]]:
    """Name -> hashes of what commands wrote to a folder; empty without a readable `MARK`."""
    file = folder / MARK
    try:
        stored = read_json(file) if special(file) is None else {}
        return {str(name): [str(each) for each in hashes] for name, hashes in stored.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _mend(path: Path, option: str, what: str, overwrite: bool, stdout: bool) -> str:
    """The end of the message on a path that is not a file."""
    if what == "a folder":
        return f"must be a file; {_other(path / 'output.jsonl', option)}"
    if what == "a symbolic link" and not os.readlink(path).startswith(("/dev/", "/proc/")):
        target = path.resolve()
        instead = target if overwrite else _free(target)
        return f"must be a file, as nothing is written through links; set {quoting.option(option, str(instead))}"
    if stdout:
        redirected = f" > {quoting.path(path)}" if what in ("a device", "a pipe") else ""
        return f"must be a new file, or - for standard output; set {quoting.option(option, '-')}{redirected}"
    return f"must be a new file; {_other(Path(path.name or 'output'), option)}"


def _other(path: Path, option: str) -> str:
    return f"set {quoting.option(option, str(_free(path)))}"


def _free(path: Path) -> Path:
    """The path if nothing is there, else the first of `NAME-2`, `NAME-3` and so on where nothing is."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
