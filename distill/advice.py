"""Commands and settings as a message prints them: each works when it is pasted into a shell (bash)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | None | Sequence["Value"] | Mapping[str, "Value"]

_BARE = re.compile(r"[A-Za-z_/.][\w/.@:+-]*", re.ASCII)
"""Strings that Hydra reads as they are written, unless they are words of its grammar."""
_WORDS = frozenset({"true", "false", "null", "nan", "inf", "none"})


def setting(key: str, value: Value) -> str:
    """`KEY=VALUE` as it is typed in a shell, so that Hydra gets this value, of this type.

        setting("tasks.separator", ";")  # 'tasks.separator=";"'
    """
    return shlex.quote(f"{key}={hydra(value)}")


def option(name: str, value: str) -> str:
    """`--NAME VALUE` of one of the other commands, as it is typed in a shell."""
    quoted = shlex.quote(value)
    return f"{name}={quoted}" if value.startswith("-") else f"{name} {quoted}"


def path(value: object) -> str:
    """A path or another word as it is typed in a shell."""
    return shlex.quote(str(value))


def hydra(value: Value) -> str:
    """A value in Hydra's grammar of overrides (version 1.3), not yet quoted for a shell."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{hydra(str(name))}:{hydra(each)}" for name, each in value.items()) + "}"
    return "[" + ",".join(map(hydra, value)) + "]"


def _quoted(text: str) -> str:
    """A string in double quotes. Backslashes count only before a quote and at the end; `${` would be an interpolation."""
    text = text.replace("${", r"\${")
    text = re.sub(r'(\\*)"', lambda found: found[1] * 2 + r"\"", text)
    return '"' + re.sub(r"(\\+)$", lambda found: found[1] * 2, text) + '"'
