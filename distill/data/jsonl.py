"""Record batches of a file with one JSON object a line, with one array of objects, or of SQuAD, typed by Arrow.

Numbers with and without a fraction in one column become floats, and a key that a row lacks is null. Any other mixture
of types is refused with its row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa

from distill.data import squad
from distill.data.lines import LONGEST, Malformed, check_names, check_text, chunks, lines, no_rows
from distill.errors import DataError

COLUMNS = 1000
"""A file with more keys contains values as keys, e.g. ids, and would need a column for each."""

_INVALID = (pa.ArrowException, OverflowError, UnicodeError, TypeError)
"""What pyarrow raises for a Python value without an Arrow type."""


class Wider(Exception):
    """A row needs other types than the batches before it: read the file once more with `schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__("wider")
        self.schema = schema


Form = Literal["lines", "array", "squad"]
"""One object a line, one array of objects, or SQuAD's own form."""


def batches(text: io.TextIOWrapper, name: str, form: Form, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """All rows of a file of this form in batches of one schema.

    Raises:
        DataError: for a malformed file.
        Wider: unless `schema`, or the first batch, has the types of all rows.
    """
    row = 0
    for chunk in chunks(_numbered(text, name, form), itemgetter(1)):
        objects = [value for value, _ in chunk]
        batch = _batch(objects, schema or pa.schema([]), name, row + 1)
        if schema is not None and batch.schema != schema:
            raise Wider(batch.schema)
        schema = batch.schema
        row += len(objects)
        yield batch
    if not row:
        raise no_rows(name)


def _numbered(text: io.TextIOWrapper, name: str, form: Form) -> Iterator[tuple[dict[str, Any], int]]:
    """(object, characters) of every row. DataError names the row."""
    row = 0
    try:
        for pair in {"lines": _objects, "array": _elements, "squad": _questions}[form](text):
            yield pair
            row += 1
    except Malformed as error:
        raise DataError(f"{name}, row {row + 1}: {error}") from error
    except RecursionError as error:
        raise DataError(
            f"{name}, row {row + 1}: got lists in lists, too deep to read; must be a JSON object; correct the row"
        ) from error


def _constant(literal: str) -> Any:
    raise Malformed(f"got {literal}; must be JSON, whose numbers are finite; write null, or remove the row")


_DECODER = json.JSONDecoder(parse_constant=_constant)


def _broken(error: ValueError) -> Malformed:
    problem = f"{error.msg}, character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
    return Malformed(f"got broken JSON ({problem}); must be a whole JSON object; correct or remove the row")


def _checked(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(
            f"got {json.dumps(value)[:40]}; must be a JSON object that names its columns; "
            'write every row as {"text": ..., "label": ...}'
        )
    return value


def _objects(text: io.TextIOWrapper) -> Iterator[tuple[dict[str, Any], int]]:
    """(object, characters) of every line that is not blank."""
    for line in lines(text):
        if line.isspace():
            continue
        try:
            yield _checked(_DECODER.decode(line)), len(line)
        except ValueError as error:
            raise _broken(error) from error


def _elements(text: io.TextIOWrapper) -> Iterator[tuple[dict[str, Any], int]]:
    """(object, characters) of every element of an array, which is never in memory as a whole."""
    rest = _more("", text)[1:]
    first = True
    while not (rest := _more(rest, text)).startswith("]"):
        if not first:
            if not rest.startswith(","):
                raise Malformed(
                    f"got {rest[:20] or 'the end of the file'!r} after the row before it; must be a comma, or ] after "
                    "the last row; write or copy the file again"
                )
            rest = _more(rest[1:], text)
        value, rest, characters = _element(rest, text)
        yield _checked(value), characters
        first = False
    if rest := _more(rest[1:], text):
        raise Malformed(f"got {rest[:20]!r} after the array; must be one array; write one object a line, or one array")


def _questions(text: io.TextIOWrapper) -> Iterator[tuple[dict[str, Any], int]]:
    """(row, characters) of every question of a file in SQuAD's own form, which is in memory as a whole."""
    content = text.read()
    check_text(content)
    try:
        articles = _DECODER.decode(content)
    except ValueError as error:
        raise _broken(error) from error
    yield from squad.questions(articles)


def _more(rest: str, text: io.TextIOWrapper) -> str:
    """`rest` without white space before it, and with more text if there is none."""
    while not (rest := rest.lstrip()) and (read := text.read(1 << 16)):
        rest = read
    return rest


def _element(rest: str, text: io.TextIOWrapper) -> tuple[Any, str, int]:
    """(the value that `rest` begins with, the text after it, characters of the value)."""
    while True:
        try:
            value, end = _DECODER.raw_decode(rest)
        except ValueError as error:
            # An element that is not in `rest` as a whole is broken in the same way as a wrong one.
            read = text.read(max(len(rest), 1 << 16)) if len(rest) < LONGEST else ""
            if not read:
                raise _broken(error) from error
            rest += read
        else:
            check_text(rest[:end])
            return value, rest[end:], end


def _batch(objects: list[dict[str, Any]], schema: pa.Schema, name: str, row: int) -> pa.RecordBatch:
    """The batch of these objects, of which the first is row `row`, with the types of `schema` or wider ones."""
    names = list(dict.fromkeys(chain(schema.names, *objects)))
    if len(names) > COLUMNS or not names:
        raise DataError(
            f"{name}, row {row}: got {len(names):,} different keys from here on; must be 1 to {COLUMNS:,}, the names "
            'of the columns; write rows as {"text": ..., "label": ...}'
        )
    check_names(names, name)
    known = {field.name: field.type for field in schema}
    arrays = [_array([o.get(c) for o in objects], known.get(c, pa.null()), c, name, row) for c in names]
    return pa.record_batch(arrays, names=names)


def _merged(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The narrowest type that contains both. ArrowException if there is none."""
    schemas = [pa.schema([("x", kind)]) for kind in (a, b)]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type


def _array(values: list[Any], known: pa.DataType, column: str, name: str, row: int) -> pa.Array:
    try:
        array = pa.array(values)
        kind = _merged(known, array.type)
        return array if array.type == kind else pa.array(values, kind)
    except _INVALID:
        pass  # pyarrow does not name the row
    for number, value in enumerate(values, row):
        known = _widened(known, value, f"{name}, row {number}", column)
    raise DataError(
        f"{name}, rows {row} to {row + len(values) - 1}: got numbers of column {column!r} that are exact neither as "
        "integers nor as floats; must have one type; write them as text"
    )


def _widened(known: pa.DataType, value: Any, place: str, column: str) -> pa.DataType:
    """The type of the column with this value. DataError if the value is the first of another type."""
    try:
        kind = pa.array([value]).type
    except _INVALID as error:
        problem = str(error).splitlines()[0]
        raise DataError(
            f"{place}: got a value of column {column!r} that cannot be stored ({problem}); must be text, a number, or "
            "a list of one type; correct the row"
        ) from error
    try:
        wider = _merged(known, kind)
        pa.array([value], wider)
    except _INVALID as error:
        raise DataError(
            f"{place}: got {json.dumps(value, ensure_ascii=False)[:40]} in column {column!r}; must be "
            f"{_called(known)}, as in the rows before it; write all of the column as one type"
        ) from error
    return wider


def _called(kind: pa.DataType) -> str:
    names = [
        (pa.types.is_string, "text"),
        (pa.types.is_boolean, "true or false"),
        (lambda k: pa.types.is_integer(k) or pa.types.is_floating(k), "a number"),
        (pa.types.is_struct, "an object of the same types"),
    ]
    if pa.types.is_list(kind):
        return "a list of the same type"
    return next((name for test, name in names if test(kind)), str(kind))
