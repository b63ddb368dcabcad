"""Record batches of a file with one JSON object a line, with one array of objects, or one object, typed by Arrow.

Numbers with and without a fraction in one column become floats, and a key that a row lacks is null. Any other mixture
of types is read as text, and refused with its row where the column is used.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from distill.data import scanner
from distill.data.about import About, with_about
from distill.data.lines import Malformed, check_names, chunks, no_rows
from distill.data.several_types import alike, as_text, field_of, has_several, said
from distill.data.task_types.task_type import is_list, is_number, is_text
from distill.errors import DataError

COLUMNS = 1000
"""A file with more keys contains values as keys, e.g. ids, and would need a column for each."""
DEEPEST = 30
"""Lists and objects that are in one another; an Arrow file may have 64 of them."""

_INVALID = (pa.ArrowException, OverflowError, UnicodeError, TypeError)
"""Errors of pyarrow for a Python value without an Arrow type."""


class Wider(Exception):
    """A row needs other types than the batches before it: read the file once more with `schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__("wider")
        self.schema = schema


def batches(
    text: io.TextIOWrapper,
    name: str,
    form: scanner.Form,
    schema: pa.Schema | None,
    keys: Sequence[str] | None = None,
    before: int = 0,
) -> Iterator[pa.RecordBatch]:
    """All rows of a file of this form in batches of one schema.

    Args:
        keys: the only keys that are columns; all when None.
        before: rows of the file before those of `text`, for messages.

    Raises:
        DataError: for a malformed file.
        Wider: unless `schema`, or the first batch, has the types of all rows.
    """
    row, notes = before, list[str]()
    for chunk in chunks(_numbered(text, name, form, notes, before), itemgetter(1)):
        objects = [value if keys is None else {k: value[k] for k in keys if k in value} for value, _ in chunk]
        batch = _batch(objects, schema or pa.schema([]), name, row + 1)
        if schema is not None and not alike(batch.schema, schema):
            raise Wider(batch.schema)
        schema = with_about(batch.schema, About((*notes, *said(batch.schema))))
        row += len(objects)
        yield batch.replace_schema_metadata(schema.metadata)
    if row == before:
        raise no_rows(name)


def _numbered(
    text: io.TextIOWrapper, name: str, form: scanner.Form, notes: list[str], row: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """(object, characters) of every row, of which the first is row `row`, from 0. DataError names the row."""
    try:
        for pair in scanner.rows(text, form, notes):
            yield pair
            row += 1
    except Malformed as error:
        raise DataError(f"{name}, row {row + 1}: {error}") from error
    except RecursionError as error:
        raise DataError(
            f"{name}, row {row + 1}: got lists in lists, too deep to read; must be a JSON object; correct the row"
        ) from error


def _batch(objects: list[dict[str, Any]], schema: pa.Schema, name: str, row: int) -> pa.RecordBatch:
    """The batch of these objects, of which the first is row `row`, with the types of `schema` or wider ones."""
    names = list(dict.fromkeys(chain(schema.names, *objects)))
    if len(names) > COLUMNS or not names:
        raise DataError(
            f"{name}, row {row}: got {len(names):,} different keys from here on; must be 1 to {COLUMNS:,}, the names "
            'of the columns; write rows as {"text": ..., "label": ...}'
        )
    check_names(names, name)
    _check_nested(objects, name, row)
    known = {field.name: field for field in schema}
    columns = [_column([o.get(c) for o in objects], known.get(c, pa.field(c, pa.null())), name, row) for c in names]
    return pa.record_batch([array for array, _ in columns], schema=pa.schema([field for _, field in columns]))


def _check_nested(objects: Sequence[dict[str, Any]], name: str, row: int) -> None:
    """Raise DataError for objects with values as keys, and for lists in lists, in the values of the columns."""
    seen = set[tuple[str, ...]]()
    for number, each in enumerate(objects, row):
        nested = {column: value for column, value in each.items() if isinstance(value, dict | list)}
        if nested and _depth(nested, (), seen) > DEEPEST:
            raise DataError(
                f"{name}, row {number}: got lists in lists, too deep to read; must be at most {DEEPEST} deep; correct "
                "the row"
            )
        if len(seen) > COLUMNS:
            raise DataError(
                f"{name}, row {number}: got more than {COLUMNS:,} different keys in objects of a column up to here; "
                "must be the same keys in each row; write what differs as values, e.g. as a list of objects"
            )


def _depth(value: Any, path: tuple[str, ...], seen: set[tuple[str, ...]]) -> int:
    """How deep the objects and lists of a value are. Their keys are added to `seen`."""
    if isinstance(value, dict):
        places = [(*path, key) for key in value]
        seen.update(places)
        inner = list(zip(value.values(), places, strict=True))
    else:
        inner = [(each, path) for each in value]
    return 1 + max((_depth(each, place, seen) for each, place in inner if isinstance(each, dict | list)), default=0)


def _merged(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The narrowest type that contains both. Raises ArrowException without such a type."""
    schemas = [pa.schema([("x", data_type)]) for data_type in (a, b)]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type


def _column(values: list[Any], known: pa.Field, name: str, row: int) -> tuple[pa.Array, pa.Field]:
    """The array of a column, and its field: of text for values of several types, which nobody may use."""
    if not has_several(known):
        try:
            array = _array(values, known.type, known.name, name, row)
            return array, pa.field(known.name, array.type)
        except DataError as error:
            known = field_of(known.name, str(error))
    return _array([*map(as_text, values)], pa.string(), known.name, name, row), known


def _array(values: list[Any], known: pa.DataType, column: str, name: str, row: int) -> pa.Array:
    try:
        array = pa.array(values)
        data_type = _merged(known, array.type)
        return array if array.type == data_type else pa.array(values, data_type)
    except _INVALID:
        pass  # pyarrow does not name the row
    for number, value in enumerate(values, row):
        known = _widened(known, value, f"{name}, row {number}", column)
    raise DataError(
        f"{name}, rows {row} to {row + len(values) - 1}: got numbers of column {column!r} that are exact neither as "
        "integers nor as floats; must have one type; write them as text"
    )


def _widened(known: pa.DataType, value: Any, place: str, column: str) -> pa.DataType:
    """The type of the column with this value. Raises DataError if the value is the first of another type."""
    try:
        data_type = pa.array([value]).type
    except _INVALID as error:
        problem = str(error).splitlines()[0]
        raise DataError(
            f"{place}: got a value of column {column!r} that cannot be stored ({problem}); must be text, a number "
            "from -2^63 to 2^63 - 1, or a list of one type; correct the row, or write the column as text"
        ) from error
    try:
        wider = _merged(known, data_type)
        pa.array([value], wider)
    except _INVALID as error:
        raise DataError(
            f"{place}: got {json.dumps(value, ensure_ascii=False)[:40]} in column {column!r}; must be "
            f"{_called(known)}, as in the rows before it; write all of the column as one type"
        ) from error
    return wider


def _called(data_type: pa.DataType) -> str:
    names = {
        is_text: "text",
        pa.types.is_boolean: "true or false",
        is_number: "a number",
        is_list: "a list of the same type",
        pa.types.is_struct: "an object of the same types",
    }
    return next((name for test, name in names.items() if test(data_type)), str(data_type))
