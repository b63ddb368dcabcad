"""Facts about a file besides its rows. A reader stores them with the rows, in the metadata of their schema."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

_KEY, _LINES = b"distill.about", b"distill.lines"


@dataclass(frozen=True)
class About:
    notes: tuple[str, ...] = ()
    """How the file was read where it could have meant something else, in lines for the user."""
    lines: Sequence[int] = ()
    """The line on which each row begins, of a file whose rows are not lines; empty for others."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column -> names of its classes in the order of their numbers, where the file has numbers and names."""


def with_about(schema: pa.Schema, about: About) -> pa.Schema:
    """The schema with this, and with no other metadata."""
    content = {"notes": about.notes, "classes": dict(about.classes)}
    lines = {_LINES: array("q", about.lines).tobytes()} if about.lines else {}
    return schema.with_metadata({_KEY: json.dumps(content).encode(), **lines})


def about(schema: pa.Schema) -> About:
    """The facts that are stored in a schema."""
    metadata = schema.metadata or {}
    if _KEY not in metadata:
        return About()
    content = json.loads(metadata[_KEY])
    lines = array("q")
    lines.frombytes(metadata.get(_LINES, b""))
    classes = {name: tuple(names) for name, names in content["classes"].items()}
    return About(tuple(content["notes"]), lines, classes)
