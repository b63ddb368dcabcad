"""Commands and settings in messages, quoted so that each works when it is pasted into a shell (bash)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Value = str | int | float | bool | None | Sequence["Value"] | Mapping[str, "Value"]

_BARE = re.compile(r"(?:[A-Za-z_/]|\.(?!\d))[\w/.@:+-]*", re.ASCII)
"""Strings that Hydra reads as they are written, unless they are words of its grammar."""
_WORDS = frozenset({"true", "false", "null", "nan", "inf", "none"})
_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
"""The keys of a mapping that Hydra's grammar allows; keys cannot be quoted."""
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
"""It is there if the package runs from a checkout."""


def setting(key: str, value: Value) -> str:
    """`KEY=VALUE`, quoted for a shell so that Hydra gets this value, of this type.

    setting("tasks.separator", ";")  # 'tasks.separator=";"'
    """
    return _typed(f"{key}={hydra(value)}")


def option(name: str, value: str) -> str:
    """`--NAME VALUE` of one of the other commands, quoted for a shell."""
    return f"{name}={_typed(value)}" if value.startswith("-") else f"{name} {_typed(value)}"


def short(text: str, most: int = 60) -> str:
    """The text, or its beginning and `...`, in at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def path(value: object) -> str:
    """A path, quoted for a shell so that a command does not take it for an option."""
    text = str(value)
    return _typed(f"./{text}" if text.startswith("-") else text)


def command(words: Iterable[str]) -> str:
    """The command of these words, quoted for a shell."""
    return " ".join(map(_typed, words))


def install(extra: str | None = None) -> str:
    """The command that installs this package with an extra. It is run in a checkout, because the name of this package
    on the package index belongs to another one. A checkout that is installed stays so, and is not copied."""
    editable = ["-e"] if _PROJECT.is_file() else []
    words = ["pip", "install", "-c", "constraints.txt", *editable, "." if extra is None else f".[{extra}]"]
    return f"{command(words)} in a checkout of distill"


def hydra(value: Value) -> str:
    """A value in Hydra's grammar of overrides (version 1.3), not yet quoted for a shell.

    Raises:
        ValueError: for a key of a mapping that this grammar cannot express.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value.lower() not in _WORDS else quoted(_literal(value))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(name)}:{hydra(each)}" for name, each in value.items()) + "}"
    return "[" + ",".join(map(hydra, value)) + "]"


def quoted(text: str) -> str:
    """A string in the double quotes of Hydra's grammar, where backslashes count only before a quote and at the end.

    `${NAME}` in it stays an interpolation.
    """
    text = re.sub(r'(\\*)"', lambda found: found[1] * 2 + r"\"", text)
    return '"' + re.sub(r"(\\+)\Z", lambda found: found[1] * 2, text) + '"'


def _literal(text: str) -> str:
    """The text with an escape before each `${`, which would otherwise begin an interpolation."""
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)


def _key(name: str) -> str:
    if not _KEY.fullmatch(name) or name.lower() in _WORDS:
        raise ValueError(f"{name!r} cannot be the key of a mapping on the command line")
    return name


def _typed(word: str) -> str:
    """One word of a command in bash. What a message would show with an escape is an escape for bash too."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
