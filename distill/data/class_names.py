"""Names in place of the numbers of classes, where a table states the names: the features of `datasets`, which are also
in the metadata of its parquet files, and Arrow's dictionaries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types.task_type import is_list, is_number
from distill.errors import DataError

LISTS = ("Sequence", "List", "LargeList")
"""Types of features that are lists, in all versions of `datasets`."""

Features = Mapping[str, Any]
"""Column -> feature, as `datasets` writes it."""


class WrongNumber(Exception):
    """A label number without a class name. It has the row, counted from 0 in the array, and the number."""

    def __init__(self, row: int, number: object, names: int) -> None:
        super().__init__(row, number, names)
        self.row, self.number, self.names = row, number, names


def features_of(schema: pa.Schema, name: str) -> Features:
    """The features in a schema's metadata; empty without.

    Raises:
        DataError: for metadata that cannot be read.
    """
    stored = (schema.metadata or {}).get(b"huggingface")
    if stored is None:
        return {}
    try:
        features = json.loads(stored)["info"].get("features") or {}
        if isinstance(features, Mapping):
            return features
        problem = "features that are no object"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"[:80]
    raise DataError(
        f"{name}: got metadata of `datasets` that cannot be read ({problem}); must be JSON with the features; write "
        "the file again with Dataset.to_parquet"
    )


def classes_of(features: Features) -> dict[str, tuple[str, ...]]:
    """Column of classes, or of lists of them -> their names in the order of their numbers."""
    found = {column: _names(_innermost(feature)) for column, feature in features.items()}
    return {column: names for column, names in found.items() if names is not None}


def _innermost(feature: Any) -> Any:
    """The feature of the values in a list, or in lists of lists; any other feature itself."""
    while (items := _of_items(feature)) is not None:
        feature = items
    return feature


def _names(feature: Any) -> tuple[str, ...] | None:
    if not isinstance(feature, Mapping) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def named(table: pa.Table, features: Features, name: str, before: int = 0) -> pa.Table:
    """The table [rows] with names in place of numbers, and values in place of dictionaries and views. -1 is a row
    without a class.

    `before`: rows of the file before the table.

    Raises:
        DataError: for a label number without a class name.
    """
    for place, column in enumerate(table.column_names):
        row = before
        chunks = []
        for chunk in table[column].chunks:
            try:
                chunks.append(_named(chunk, features.get(column)))
            except WrongNumber as error:
                raise DataError(
                    f"{name}, row {row + error.row + 1}: got class {error.number} in column {column!r}; must be 0 to "
                    f"{error.names - 1}, the classes that the file's metadata names, or -1 without one; correct the row"
                ) from error
            row += len(chunk)
        data_type = chunks[0].type if chunks else named_type(table.schema.field(column).type, features.get(column))
        table = table.set_column(place, column, pa.chunked_array(chunks, data_type))
    return table


def named_type(data_type: pa.DataType, feature: Any) -> pa.DataType:
    """The type of a column after `named`."""
    if pa.types.is_dictionary(data_type):
        return named_type(data_type.value_type, feature)
    if pa.types.is_string_view(data_type):  # of polars
        return pa.string()
    if is_list(data_type):
        item = named_type(data_type.value_type, _of_items(feature))
        build = pa.large_list if pa.types.is_large_list(data_type) else pa.list_
        return data_type if item == data_type.value_type else build(item)
    if pa.types.is_struct(data_type):
        fields = [(field.name, named_type(field.type, _of_field(feature, field.name))) for field in data_type]
        return data_type if fields == [(field.name, field.type) for field in data_type] else pa.struct(fields)
    # A library that has no integers with nulls writes floats.
    return pa.string() if is_number(data_type) and _names(feature) is not None else data_type


def _named(array: pa.Array, feature: Any) -> pa.Array:
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        return _named(array.cast(data_type.value_type), feature)
    if named_type(data_type, feature) == data_type:
        return array
    if pa.types.is_string_view(data_type):
        return array.cast(pa.string())
    if is_list(data_type):
        return _of_list(array, _of_items(feature))
    return _of_struct(array, feature) if pa.types.is_struct(data_type) else _of_classes(array, _names(feature) or ())


def _is_list_feature(feature: Any) -> bool:
    return isinstance(feature, Mapping) and feature.get("_type") in LISTS


def _of_classes(array: pa.Array, names: tuple[str, ...]) -> pa.Array:
    numbers = np.nan_to_num(np.asarray(pc.fill_null(pc.cast(array, pa.float64(), safe=False), -1)), nan=-1.0)
    if len(wrong := np.flatnonzero((numbers < -1) | (numbers >= len(names)) | (numbers != np.floor(numbers)))):
        raise WrongNumber(int(wrong[0]), array[int(wrong[0])].as_py(), len(names))
    indices = pa.array(np.maximum(numbers, 0).astype(np.int64), mask=numbers < 0)
    return pa.array(names, pa.string()).take(indices)


def _of_list(array: pa.Array, feature: Any) -> pa.Array:
    ends = np.r_[0, np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(array), 0)))]
    try:
        values = _named(array.flatten(), feature)
    except WrongNumber as error:
        row = int(np.searchsorted(ends, error.row, "right")) - 1
        raise WrongNumber(row, error.number, error.names) from error
    large = pa.types.is_large_list(array.type)
    offsets = pa.array(ends, pa.int64() if large else pa.int32())
    build = pa.LargeListArray if large else pa.ListArray
    return build.from_arrays(offsets, values, mask=array.is_null() if array.null_count else None)


def _of_struct(array: pa.Array, feature: Any) -> pa.Array:
    names = [field.name for field in array.type]
    parts = [_named(part, _of_field(feature, name)) for part, name in zip(array.flatten(), names, strict=True)]
    return pa.StructArray.from_arrays(parts, names, mask=array.is_null() if array.null_count else None)


def _of_items(feature: Any) -> Any:
    """The feature of the items of a list; None for any other feature."""
    if isinstance(feature, list):
        return feature[0] if feature else None
    return feature.get("feature") if _is_list_feature(feature) else None


def _of_field(feature: Any, name: str) -> Any:
    """The feature of a struct's field. A sequence of objects is stored as an object of lists."""
    if _is_list_feature(feature):
        inner = feature.get("feature")
        part = inner.get(name) if isinstance(inner, Mapping) else None
        return None if part is None else {"_type": "Sequence", "feature": part}
    return feature.get(name) if isinstance(feature, Mapping) else None
