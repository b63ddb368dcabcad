"""The base of the records of `results.json`, and the types of their fields."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]
"""A field whose default is an empty text is left out of the file where it has none."""
Number = int | float
Count = Annotated[int, Meta(ge=0)]
Amount = Count | Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Interval = tuple[Number, Number]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object with these keys and no other keys. The fields with a default are optional."""
