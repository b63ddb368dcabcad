"""Records that are stored as JSON files, each read back as the type that was written."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from distill.errors import ConfigError
from distill.runtime.storage import atomic


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of the types of stored records. Fields that have their default value are not written."""


T = TypeVar("T", bound=Stored)


def write(path: Path, value: Stored) -> None:
    """Write a record atomically, with plain numbers in place of numpy's.

    Raises:
        TypeError, ValueError: for a value that is not of the type of its field, and for NaN and infinity.
    """
    content = plain(value)
    try:
        msgspec.convert(content, type(value))
    except msgspec.ValidationError as error:
        raise TypeError(f"{path}: got a {type(value).__name__} with a wrong field: {error}") from error
    atomic.write_json(path, content)


def plain(value: Any) -> Any:
    """A record, or a list of records, as JSON values, with plain numbers in place of numpy's.

    Raises:
        ValueError: for NaN and infinity, which are not JSON.
    """
    content = msgspec.to_builtins(value, enc_hook=operator.methodcaller("item"))
    return json.loads(json.dumps(content, allow_nan=False))


def read(path: Path, kind: type[T]) -> T:
    """The record of this type in a file.

    Raises:
        ConfigError: if a field is missing, unknown or of another type.
        FileNotFoundError: without the file.
    """
    try:
        return msgspec.convert(atomic.loads(path.read_bytes()), kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{path}: got {error}; must be {kind.__name__} as this version of distill writes it; set output=NEW_FOLDER"
        ) from error
