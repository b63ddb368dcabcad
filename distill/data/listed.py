"""Lists that are written as text in the cells of a column: in the forms of JSON, Python, NumPy and Label Studio.

`DataFrame.to_csv` writes a column of lists as `"['a', 'b']"`, and of arrays as `"['a' 'b']"`. Label Studio writes
several choices as `{"choices": ["a", "b"]}` and one as a plain word. Databases write arrays of PostgreSQL, such as
`{billing,"lost card"}`, and tags as in the dumps of Stack Overflow, such as `<billing><card>`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distill.data.choice_forms import LABEL, are_labelled, labelled_choices
from distill.data.task_types.offsets import ENDS, STARTS, of_triple
from distill.data.task_types.task_type import is_list, is_number, is_text
from distill.data.task_types.written import PLAIN

SAMPLE = 1000
"""Rows by which a column is recognized before all of its cells are read."""

_LIST = r"^\s*(\[|array\(\s*\[|\(\s*['\"]|\{\s*('([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\")\s*[,}]|(\(\s*\)|set\(\))\s*$)"
"""The beginnings of a list, an array, a tuple and a set."""
_WRAPPED = r"^\s*\{\s*['\"](choices|labels)['\"]\s*:"
"""Beginning of Label Studio's form."""
_TYPE = re.compile(r"\s*dtype=[\w.<>|']+\s*")
"""What may follow the last comma of an array."""
_ITEM = re.compile(r"""\s*(?:('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|([^\s,'"\[\](){}]+))\s*(?:,|(?=\s|['"])|$)""")
_NUMBER = re.compile(PLAIN)
_WORDS = {"None": None, "null": None, "nan": None, "True": True, "False": False, "true": True, "false": False}
_LONGEST = 1_000_000

_ARRAY_ITEM = r'("([^"\\]|\\.)*"|[^\s"\'{},:\\][^\s"{},:\\]*)'
"""An item of an array, in quotes if it has spaces, braces or the like. Without them, one with a colon may be of an
object."""
_ARRAY = rf"(?s)^\s*\{{({_ARRAY_ITEM}(,{_ARRAY_ITEM})*)?\}}\s*$"
_TRUTHS = r"^\s*\{([tf](,[tf])*)?\}\s*$"
_ARRAY_ITEMS = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"{},\\]+)', re.DOTALL)
_TAGS = r"^\s*(<[^<>]+>)+\s*$"


def listed(column: pa.ChunkedArray, known: bool = False) -> pa.ChunkedArray | None:
    """The lists of a column of text [rows] whose cells are all lists, or objects of Label Studio beside plain words.

    An empty cell is null. None for any other column. `known`: whether the same column of another table has lists.
    """
    if not is_text(column.type):
        return None
    read = _reader(column, known)
    if read is None and _begins(column.slice(0, SAMPLE)) and _begins(column):
        read = parsed
    if read is None:
        return None
    values = []
    for cell in column.to_pylist():
        try:
            values.append(None if cell is None or not cell.strip() else read(cell))
        except ValueError:
            return None
    return _typed(values)


def unwrapped(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The lists of a column [rows] of objects that have nothing but `choices` or `labels`; None for any other
    column."""
    if not pa.types.is_struct(column.type) or [key.name for key in column.type] not in (["choices"], ["labels"]):
        return None
    values = pc.struct_field(column, [0])
    return values if is_list(values.type) and is_text(values.type.value_type) else None


def with_flags(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The lists of the labels that a text has, of a column [rows] of objects with a 0 or 1 for each label, as spaCy's
    `cats`; None for any other column, and where an object lacks a label."""
    keys = [*column.type] if pa.types.is_struct(column.type) else []
    if len(keys) < 2 or not all(is_number(key.type) or pa.types.is_boolean(key.type) for key in keys):
        return None
    cells = column.to_pylist()
    if any(value not in (0, 1) for cell in cells for value in (cell or {}).values()):
        return None
    labels = [None if cell is None else [label for label, value in cell.items() if value] for cell in cells]
    return pa.chunked_array([pa.array(labels, pa.list_(pa.string()))])


START = "answer_start"
_KEYS = {second: rf"""\s*['"](text|{second})['"]\s*:""" for second in (LABEL, START)}
"""What belongs to each text -> a key: of the choices of ARC their labels; of the answers of SQuAD their first
characters."""
_FIRST = {second: re.compile(rf"\{{{key}") for second, key in _KEYS.items()}
_SECOND = {second: re.compile(f",{key}") for second, key in _KEYS.items()}


def _two_lists(cell: str, second: str) -> dict[str, str] | None:
    """The texts of two lists by their keys, as pandas writes an object of them; None for any other text."""
    text = cell.strip()
    # Without a pattern for what is between the keys, which would be tried at each of its characters.
    first = _FIRST[second].match(text) if text.endswith("}") else None
    after = None if first is None else _SECOND[second].search(text, first.end())
    if first is None or after is None:
        return None
    return {first[1]: text[first.end() : after.start()], after[1]: text[after.end() : -1]}


def of_choices(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Choices [rows] as lists of their texts and of their labels, of a column of objects that `choice_forms` knows, or
    of the text of these; None for any other column."""
    if is_text(column.type):
        cells = _cells(column, LABEL) if _begin_objects(column) else None
    elif are_labelled(column.type):
        cells = _objects_of(column)
    else:
        return None
    return None if cells is None else _in_lists(cells, LABEL, pa.string())


def _objects_of(column: pa.ChunkedArray) -> list[list[dict[str, Any]] | None] | None:
    """The choices of each object of a column; None where an object has none."""
    try:
        return [None if cell is None else labelled_choices(cell) for cell in column.to_pylist()]
    except ValueError:
        return None


def of_answers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Answers [rows] as lists of their texts and of their first characters, of a column of the text of SQuAD's objects;
    None for any other column."""
    if not is_text(column.type) or not _begin_objects(column):
        return None
    cells = _cells(column, START)
    return None if cells is None else _in_lists(cells, START, pa.int64())


def _begin_objects(column: pa.ChunkedArray) -> bool:
    """Whether all cells that are not empty begin as an object, or a list of objects, does."""
    return _all_match(column, r"^\s*\[?\s*\{")


def _cells(column: pa.ChunkedArray, second: str) -> list[list[dict[str, Any]] | None] | None:
    """The objects in the text of each cell; None where a cell is something else."""
    try:
        return [None if cell is None or not cell.strip() else _objects(cell, second) for cell in column.to_pylist()]
    except ValueError:
        return None


def _in_lists(cells: list[list[dict[str, Any]] | None], second: str, kind: pa.DataType) -> pa.ChunkedArray | None:
    """An object with two lists for each cell; None for values of other types."""
    rows = [None if row is None else {key: [each[key] for each in row] for key in ("text", second)} for row in cells]
    fields = [("text", pa.list_(pa.string())), (second, pa.list_(kind))]
    try:
        return pa.chunked_array([pa.array(rows, pa.struct(fields))])
    except pa.ArrowException:
        return None


def _objects(cell: str, second: str) -> list[dict[str, Any]]:
    """The objects with a text and `second` in the text of a cell. Raises ValueError for any other text."""
    if len(cell) > _LONGEST:
        raise ValueError("too long")
    if (pair := _two_lists(cell, second)) is not None:
        lists = {key: parsed(value) for key, value in pair.items()}
        if {*lists} != {"text", second} or len(lists["text"]) != len(lists[second]):
            raise ValueError("other objects")
        return [{"text": text, second: other} for text, other in zip(lists["text"], lists[second], strict=True)]
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(cell)
        except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError("other objects") from error
    if second == LABEL:
        return labelled_choices(found)
    if not isinstance(found, list) or not all(isinstance(e, dict) and {"text", second} <= e.keys() for e in found):
        raise ValueError("other objects")
    return found


def _begins(column: pa.ChunkedArray) -> bool:
    """Whether the cells begin as lists do, or some as Label Studio's objects."""
    some = pc.any(pc.match_substring_regex(column, _WRAPPED)).as_py()
    return bool(some) or _all_match(column, _LIST)


def parsed(cell: str) -> list[Any]:
    """The list that a cell contains; a word is a list of one. Raises ValueError for a cell that is neither."""
    text = cell.strip()
    if len(text) > _LONGEST:
        raise ValueError("too long")
    if not text.startswith(("[", "{", "(", "array(", "set()")):
        return [text]
    if text.startswith("array(") and text.endswith(")"):
        text = text[len("array(") : -1]
        before, _, last = text.rpartition(",")
        text = (before if _TYPE.fullmatch(last) else text).strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _of_python(text)
    return _flat(value)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict) and len(value) == 1 and {*value} <= {"choices", "labels"}:
        (value,) = value.values()
        value = [value] if isinstance(value, str) else value
    if not isinstance(value, list):
        raise ValueError("no list")
    if any(isinstance(item, list) for item in value):
        value = list(map(of_triple, value))
        if None in value:
            raise ValueError("lists in a list")
    if any(isinstance(item, dict) and not _has_place(item) for item in value):
        raise ValueError("objects that are no spans")  # such as messages, which are a text
    return value


def _has_place(item: dict[str, Any]) -> bool:
    return bool({*STARTS} & item.keys()) and bool({*ENDS} & item.keys())


def _of_python(text: str) -> Any:
    """A list in the form of Python or NumPy, which leaves out the commas, so that `ast` would join its texts."""
    inner = text.removeprefix("set").strip()[1:-1]
    if not text.endswith(("]", ")", "}")):
        raise ValueError("no list")
    if "{" in inner or "(" in inner or "[" in inner:
        try:
            return json.loads(json.dumps(ast.literal_eval(text)))  # tuples become lists
        except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError("no list") from error
    if not re.search(r"['\"]", inner):
        return _bare(inner)
    items, at = [], 0
    while at < len(inner.rstrip()):
        match = _ITEM.match(inner, at)
        if match is None or match[2] == "...":
            raise ValueError("no list")
        items.append(ast.literal_eval(match[1]) if match[1] else _value(match[2]))
        at = match.end()
    return items


def _bare(inner: str) -> list[Any]:
    """The items of a list without quotes: `billing, urgent`, or NumPy's numbers."""
    items = [part.strip() for part in inner.split(",")] if "," in inner else inner.split()
    if "," not in inner and not all(_NUMBER.fullmatch(item) for item in items):
        items = [inner.strip()]
    if items and not items[-1]:
        items.pop()
    if "..." in items or any("..." in item for item in items if " " in item):
        raise ValueError("shortened")
    return [_value(item) for item in items]


def _value(item: str) -> Any:
    if item in _WORDS:
        return _WORDS[item]
    if not _NUMBER.fullmatch(item) or re.match(r"[+-]?0\d", item):  # 007 is a code
        return item
    return int(item) if re.fullmatch(r"[+-]?\d+", item) else float(item)


def _typed(values: list[list[Any] | None]) -> pa.ChunkedArray | None:
    """Lists of one type; None for lists of several that are not all plain values."""
    items = [item for value in values for item in value or () if item is not None]
    if not items:
        return pa.chunked_array([pa.array(values, pa.list_(pa.string()))])
    kinds = {*map(type, items)}
    if len(kinds) > 1 and kinds != {int, float}:
        if dict in kinds:
            return None
        values = [None if v is None else [None if item is None else _text(item) for item in v] for v in values]
    try:
        return pa.chunked_array([pa.array(values)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _text(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else str(item)


def _reader(column: pa.ChunkedArray, known: bool) -> Callable[[str], list[Any]] | None:
    """What reads a cell of a column of text, all of whose cells are lists as databases write them, of which some have
    several items; None for any other column. `known`: whether it has lists in another table: none needs several."""
    for form, between, read in _FORMS:
        if _all_match(column.slice(0, SAMPLE), form) and _all_match(column, form):
            return read if known or pc.any(pc.match_substring(column, between)).as_py() else None
    return None


def _all_match(column: pa.ChunkedArray, form: str) -> bool:
    """Whether all cells that are not empty have a form, and there are some."""
    given = pc.filter(column, pc.fill_null(pc.match_substring_regex(column, r"\S"), False))
    return len(given) > 0 and bool(pc.all(pc.match_substring_regex(given, form)).as_py())


def _array(cell: str) -> list[Any]:
    pairs = _ARRAY_ITEMS.findall(cell.strip()[1:-1])
    return [_array_item(bare) if bare else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) for quoted, bare in pairs]


def _array_item(bare: str) -> Any:
    """A number, null, or the text itself. 007 is a code."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", bare):
        return int(bare)
    return None if bare == "NULL" else bare


def _truths(cell: str) -> list[bool]:
    return [item == "t" for item in cell.strip()[1:-1].split(",") if item]


def _angled(cell: str) -> list[str]:
    return re.findall("<([^<>]+)>", cell)


_FORMS: tuple[tuple[str, str, Callable[[str], list[Any]]], ...] = (
    (_TRUTHS, ",", _truths),
    (_ARRAY, ",", _array),
    (_TAGS, "><", _angled),
)
"""(form of a cell, what stands between two of its items, function that reads it)."""
