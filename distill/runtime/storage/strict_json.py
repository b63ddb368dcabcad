"""Reads JSON files of strangers within limits of size and depth, and refuses values that are not JSON's."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 8 << 20
"""Bytes of a file. The values of a file take up to thirty times its size in memory."""
DEEPEST = 50
"""Maximum nesting of lists and objects."""
_LARGEST_NUMBER = 10**18


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: its text says what the file is or has in place of JSON, and stands after `got` in a message.
    """
    text = _text(path, largest)
    try:
        value = json.loads(text, parse_constant=_constant)
    except RecursionError:
        raise ValueError(_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"broken JSON ({error.msg}, line {error.lineno})") from error
    _check(value)
    return value


_DEEP = "lists in lists, too deep to read"


def _text(path: Path, largest: int) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe")
        if status.st_size > largest:
            raise ValueError(
                f"{status.st_size >> 20:,} MiB, more than the {largest >> 20} MiB of the largest such file"
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"a file that cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ValueError("bytes that are not UTF-8") from error


def _constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal}, which is not JSON")


def _check(value: Any) -> None:
    """Raise ValueError for values that JSON can express and our files never have. Without recursion, which has a
    limit."""
    rest = [(value, 0)]
    while rest:
        item, depth = rest.pop()
        if depth > DEEPEST:
            raise ValueError(_DEEP)
        if isinstance(item, dict):
            rest += [(each, depth + 1) for pair in item.items() for each in pair]
        elif isinstance(item, list):
            rest += [(each, depth + 1) for each in item]
        elif isinstance(item, str):
            _check_text(item)
        elif isinstance(item, int | float) and not abs(item) <= _LARGEST_NUMBER:
            raise ValueError(f"a number beyond {_LARGEST_NUMBER:.0e}")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a lone surrogate (\\u{ord(text[error.start]):04x}), which is not Unicode text") from None
