"""Choices of a question in other forms than a list of texts: objects with a text for each letter, lists of objects, and
a question with its choices in one object."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types.multiple_choice import numbered
from distill.data.task_types.question_answering import START
from distill.data.task_types.task_type import as_list, is_list, is_text
from distill.data.usual_columns import CHOICES

TEXT, LABEL = "text", "label"
"""Keys of a choice."""
_LABELS = (LABEL, "id", "key", "letter")
"""Keys of the label of a choice, in the order in which they are tried."""
_STEM = "stem"
"""Key of the text of a question in an object that has its choices too."""


def are_labelled(data_type: pa.DataType) -> bool:
    """Whether a column of this type has choices with labels of their own, in another form than lists `text` and
    `label`."""
    if is_list(data_type):
        types = _types(data_type.value_type)
        own = _label_in(types)
        return own is not None and (is_text(types[own]) or (own != LABEL and pa.types.is_integer(types[own])))
    types = _types(data_type)
    if _ordered(types):
        return all(is_text(each) or pa.types.is_null(each) for each in types.values())
    return _label_in(types) not in (None, LABEL) and len(types) == 2 and all(map(is_list, types.values()))


def labelled_choices(value: Any) -> list[dict[str, Any]]:
    """The choices of a value, each with its text and its label. Raises ValueError for a value without choices."""
    # Keys of Python may be numbers.
    given = _in_list({str(key): each for key, each in value.items()}) if isinstance(value, dict) else value
    if not isinstance(given, list) or not all(each is None or isinstance(each, dict) for each in given):
        raise ValueError("no choices")
    choices = [{TEXT: None, LABEL: None} if each is None else each for each in given]  # refused later, with its row
    labels = [_label_of(each) for each in choices]
    return [{TEXT: each[TEXT], LABEL: label} for each, label in zip(choices, labels, strict=True)]


def with_stems(rows: pa.Table) -> pa.Table:
    """The table with the text of a question in place of an object that has it as `stem`, as in the files of ARC,
    OpenBookQA and CommonsenseQA, and with the choices of the object as a column."""
    for name in rows.column_names:
        keys = list(_types(rows[name].type))
        found = [key for key in keys if key.lower() in CHOICES and key not in rows.column_names]
        if _STEM not in keys or len(found) != 1:
            continue
        stem, choices = (pc.struct_field(rows[name], [keys.index(key)]) for key in (_STEM, found[0]))
        if is_text(stem.type):
            rows = rows.set_column(rows.column_names.index(name), name, stem).append_column(found[0], choices)
    return rows


def _types(data_type: pa.DataType) -> dict[str, pa.DataType]:
    """The keys of an object and their types; empty for other types."""
    return {key.name: key.type for key in data_type} if pa.types.is_struct(data_type) else {}


def _label_in(keys: Collection[str]) -> str | None:
    """The key of the label of a choice with these keys; None without one, and for an answer in a context."""
    if TEXT not in keys or START in keys:
        return None
    return next((key for key in _LABELS if key in keys), None)


def _label_of(choice: dict[str, Any]) -> str | None:
    own = _label_in(choice)
    label = None if own is None else choice[own]
    # Numbers in `label` may say which texts are right.
    if own is None or not (label is None or isinstance(label, str) or (own != LABEL and type(label) is int)):
        raise ValueError("no label")
    return None if label is None else str(label)


def _in_list(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of an object that has a text for each of them, or lists of their texts and labels."""
    if names := _ordered(value):
        while names and not str(value[names[-1]] or "").strip():
            names.pop()  # rows with fewer choices leave out the last ones
        return [{TEXT: value[name], LABEL: name} for name in names]
    if (own := _label_in(value)) is None:
        raise ValueError("no choices")
    pairs = zip(as_list(value[TEXT]), as_list(value[own]), strict=True)
    return [{TEXT: text, own: label} for text, label in pairs]


def _ordered(keys: Collection[str]) -> list[str]:
    """Keys that are the letters or numbers of choices, in order; empty unless all of them are."""
    if all(re.fullmatch(r"\d{1,2}", key) for key in keys):
        places = {int(key): key for key in keys}
    elif all(re.fullmatch("[A-Za-z]", key) for key in keys):
        places = {ord(key.lower()) - ord("a"): key for key in keys}
    else:
        found = numbered([*keys])
        return found if len(found) == len(keys) else []
    first = min(places, default=0)
    whole = first <= 1 < len(keys) and sorted(places) == list(range(first, first + len(keys)))
    return [places[number] for number in sorted(places)] if whole else []
