"""Messages in which options stand for settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from distill.runtime import quoting


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
    """The texts of a value that is written as by `quoting.hydra`."""
    from distill.config import typed  # imports Hydra, for which --help must not wait

    read = typed.parsed(f"key={value}") if value[:1] in ('"', "[") else None
    values = value if read is None else read.value()
    for text in values if isinstance(values, list) else [values]:
        yield re.sub(r"(\\+)(\$\{)", lambda found: found[1][: len(found[1]) // 2] + found[2], str(text))


def _unescaped(text: str) -> str:
    """The text that is between the quotes `$'` and `'` of bash."""

    def byte(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1][1:], 16)]) if len(found[1]) == 3 else found[1]

    escaped = text.encode("utf-8", "surrogateescape")
    return re.sub(rb"\\(x[0-9a-f]{2}|.)", byte, escaped, flags=re.DOTALL).decode("utf-8", "surrogateescape")
