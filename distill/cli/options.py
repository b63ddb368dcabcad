"""The options of commands: their parser, and messages about settings, in which options stand for the settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator
from typing import NoReturn

from distill.errors import ConfigError
from distill.runtime import quoting

_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,\[\]]+)', re.DOTALL)
"""A value in Hydra's grammar, with or without double quotes. In a list, each of its values."""
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Raises ConfigError in place of an exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


def count(text: str) -> int:
    """A whole number from 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}; must be a whole number from 1; correct it")
    return int(text)


def as_options(message: str, keys: Collection[str], names: Collection[str], *, repeated: bool = False) -> str:
    """The message with an option in place of each setting: `--text-pair COLUMN` for `tasks.text_pair=COLUMN`.

    A setting that is quoted for a shell becomes an option that is quoted for a shell.

    Args:
        keys: what the settings belong to, such as `tasks`.
        names: of the settings that are options.
        repeated: whether an option with several values is repeated; if not, commas are between them.
    """
    key = rf"(?:{'|'.join(map(re.escape, keys))})\.({'|'.join(sorted(map(re.escape, names), key=len, reverse=True))})"
    quoted = re.compile(rf"'{key}=((?:[^']|'\"'\"')*)'")
    escaped = re.compile(rf"\$'{key}=((?:[^'\\]|\\.)*)'")
    plain = re.compile(rf"\b{key}\b(=?)")
    message = escaped.sub(lambda found: _option(found[1], _unescaped(found[2]), repeated), message)
    message = quoted.sub(lambda found: _option(found[1], found[2].replace("'\"'\"'", "'"), repeated), message)
    return plain.sub(lambda found: f"{_name(found[1])}{' ' if found[2] else ''}", message)


def _name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _option(setting: str, value: str, repeated: bool) -> str:
    values = list(_values(value))
    if repeated:
        return " ".join(quoting.option(_name(setting), each) for each in values)
    return quoting.option(_name(setting), ",".join(values))


def _values(value: str) -> Iterator[str]:
    """The texts of a value in Hydra's grammar, as `advice.hydra` writes it."""
    if value[:1] not in ('"', "["):
        yield value
        return
    for found in _VALUE.finditer(value):
        yield found[2] if found[1] is None else _literal(found[1])


def _literal(text: str) -> str:
    """The text that is between double quotes of Hydra's grammar."""
    text = re.sub(r'(\\+)(?="|$)', lambda found: found[1][: len(found[1]) // 2], text)
    return re.sub(r"(\\+)(\$\{)", lambda found: found[1][: len(found[1]) // 2] + found[2], text)


def _unescaped(text: str) -> str:
    """The text that is between the quotes `$'` and `'` of bash."""

    def byte(found: re.Match[str]) -> bytes:
        escape = found[1]
        return bytes([int(escape[1:], 16)]) if len(escape) == 3 else escape.encode("utf-8", "surrogateescape")

    parts, end = [], 0
    for found in _ESCAPE.finditer(text):
        parts += [text[end : found.start()].encode("utf-8", "surrogateescape"), byte(found)]
        end = found.end()
    return b"".join([*parts, text[end:].encode("utf-8", "surrogateescape")]).decode("utf-8", "surrogateescape")
