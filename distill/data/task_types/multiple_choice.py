"""Multiple choice: the right one of several answers to a question, as in RACE, SWAG or ARC.

The model scores each choice with the question, and a softmax over the scores of a question's choices gives their
probabilities. Questions may have different numbers of choices.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types import soft_written
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.layout import SECONDS, Layout, Making, Parts
from distill.data.task_types.soft_parts import fit_choices, of_choices
from distill.data.task_types.task_type import (
    MISSING,
    PROBABILITIES,
    Columns,
    TaskType,
    Where,
    is_list,
    is_text,
    likeliest,
    probabilities,
    total_variation,
)
from distill.data.task_types.written import names, whole
from distill.errors import DataError
from distill.models.families.record import CHOICES

LONGEST = 100_000
"""Maximum characters of a choice. A longer one is most likely several rows, joined by a missing quote."""

_NUMBERED = re.compile(r"(.*?)[ _-]?(\d|[a-h])", re.IGNORECASE)
_STARTS = ("", "ending", "choice", "option", "answer", "alternative", "op", "sol", "solution")
"""Names of columns with one choice each, without their number or letter: ending0, A, option_1."""


def is_choices(data_type: pa.DataType) -> bool:
    """Whether a column has all choices of a question: a list of texts, or a struct of `text` and `label`."""
    if pa.types.is_struct(data_type):
        return any(key.name == "text" and is_list(key.type) and is_text(key.type.value_type) for key in data_type)
    return is_list(data_type) and is_text(data_type.value_type)


def numbered(names: Sequence[str]) -> list[str]:
    """The columns that have one choice each, by their names, in order; empty if there are fewer than two."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name.strip())
        if match is not None and match[1].lower() in _STARTS and (match[1] or match[2].isalpha()):
            number = int(match[2]) if match[2].isdigit() else ord(match[2].lower()) - ord("a")
            found.setdefault(match[1].lower(), {})[number] = name
    for columns in found.values():
        first = min(columns)
        if len(columns) > 1 and first <= 1 and sorted(columns) == list(range(first, first + len(columns))):
            return [columns[number] for number in sorted(columns)]
    return []


def _texts(choices: Sequence[Any] | None) -> list[str]:
    """The texts of choices as labels are read."""
    return [unicodedata.normalize("NFC", str(text)).strip() for text in choices or ()]


def _beside(column: pa.ChunkedArray, given: Sequence[list[Any] | None]) -> list[str | None]:
    """The labels of rows with these choices: 3.0 is the text of a choice, or else the number 3."""
    pairs = zip(names(column).to_pylist(), whole(names(column)).to_pylist(), given, strict=True)
    return [name if name is not None and name in _texts(choices) else number for name, number, choices in pairs]


def first_of(labels: pa.ChunkedArray, sizes: np.ndarray) -> int:
    """The number of the first choice in a column of labels: 0, or 1 if no label is 0 and one is the number of its
    question's choices [n]."""
    given = whole(names(labels)).to_pylist()
    numbers = np.array([int(name) if re.fullmatch("[0-9]{1,3}", name or "") else -1 for name in given], np.int64)
    return int(not (numbers == 0).any() and (numbers == sizes).any())


def sizes_of(rows: pa.Table, choices: Sequence[str]) -> np.ndarray:
    """[n] number of choices of each row; 0 for null."""
    return np.array([len(row or ()) for row in choices_of(rows, choices)], np.int64)


def fits(rows: pa.Table, choices: Sequence[str], label: str) -> bool:
    """Whether most labels of a column are the number, the letter, the text or the own name of a choice."""
    if not CLASSIFICATION.accepts(rows[label].type):
        return False
    given, named = choices_of(rows, choices), _given_names(rows, choices)
    known = [
        bool(_POSITION.fullmatch(name)) or name in _texts(given[row]) or (named is not None and name in named[row])
        for row, name in enumerate(_beside(rows[label], given))
        if name is not None
    ]
    return sum(known) > len(known) / 2


def choices_of(rows: pa.Table, choices: Sequence[str]) -> list[list[Any] | None]:
    """The choices of each row; None for null."""
    if len(choices) > 1:
        columns = zip(*(rows[name].to_pylist() for name in choices), strict=True)
        # Rows with fewer choices leave the last columns empty.
        return [_without_end([None if text is None else str(text) for text in row]) for row in columns]
    values: list[Any] = rows[choices[0]].to_pylist()
    return [row["text"] if isinstance(row, dict) else row for row in values]


def _without_end(row: list[Any]) -> list[Any]:
    while row and (row[-1] is None or not row[-1].strip()):
        row = row[:-1]
    return row


def _given_names(rows: pa.Table, choices: Sequence[str]) -> list[list[str]] | None:
    """The file's own names of the choices of each row: as in ARC, or those of their columns; None without."""
    if len(choices) > 1:
        return [["" if _POSITION.fullmatch(name) else name for name in choices]] * rows.num_rows
    data_type = rows[choices[0]].type
    if not pa.types.is_struct(data_type) or data_type.get_field_index("label") < 0:
        return None
    return [[str(name) for name in (row or {}).get("label") or ()] for row in rows[choices[0]].to_pylist()]


def _prepare(rows: pa.Table, columns: Columns, where: Where) -> pa.Table:
    """The texts, `SECONDS` (each choice, after the second text if there is one) and the position of the right choice,
    from 0; null for a row without a label."""
    label = columns.label[0]
    given = choices_of(rows, columns.choices)
    for row, texts in enumerate(given):
        check(texts, where(row), ", ".join(columns.choices))
    named = _given_names(rows, columns.choices)
    sizes = np.array([len(texts or ()) for texts in given], np.int64)
    positions = _positions(_beside(rows[label], given), given, named, columns.first, label, where)
    wrong = np.flatnonzero((positions != MISSING) & ((positions < 0) | (positions >= sizes)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}: got {rows[label][row].as_py()!r} in {label} and {sizes[row]} choices; must be the number, "
            "the letter or the text of one of them; correct the row"
        )
    starts = rows[columns.text[1]].to_pylist() if len(columns.text) > 1 else [None] * len(given)
    seconds = [
        [text if start is None else f"{start} {text}" for text in texts or ()]
        for texts, start in zip(given, starts, strict=True)
    ]
    table = {name: rows[name] for name in columns.text} | {SECONDS: pa.array(seconds, pa.list_(pa.string()))}
    return pa.table(table | {label: pa.array(positions, mask=positions == MISSING)})


def check(texts: list[Any] | None, where: str, name: str) -> None:
    """Raise DataError unless these are two texts or more. `where`: file and row; `name`: column."""
    if texts is None or len(texts) < 2:
        raise DataError(f"{where}: got {len(texts or ())} choices in {name}; must be two or more; correct the row")
    for number, text in enumerate(texts, 1):
        if text is None or not text.strip():
            raise DataError(f"{where}: got no text as choice {number} in {name}; must be text; correct the row")
        if len(text) > LONGEST:
            raise DataError(
                f"{where}: got a choice of {len(text):,} characters in {name}; must be at most {LONGEST:,}; check for "
                "a missing quote"
            )


def _positions(
    names: Sequence[str | None],
    given: Sequence[list[Any] | None],
    named: list[list[str]] | None,
    first: int,
    label: str,
    where: Where,
) -> np.ndarray:
    """[n] position of the right choice, from 0: of a name, a number, a letter or the text of a choice; `MISSING`."""
    if named is not None:
        _check_named(names, named, label, where)
    in_words = any(name is not None and not _POSITION.fullmatch(name) for name in names)
    in_words = in_words or _are_texts(names, given, first, label, where)
    positions = np.full(len(names), MISSING, np.int64)
    for row, name in enumerate(names):
        texts = _texts(given[row])
        if name is None or (name == "-1" and name not in texts):
            continue
        position = _position(name, first)
        if named is not None and name in named[row]:
            positions[row] = named[row].index(name)
        elif name in texts and in_words:
            positions[row] = texts.index(name)
        elif _POSITION.fullmatch(name):
            positions[row] = max(position, -1)
        else:
            raise DataError(
                f"{where(row)}: got {name[:80]!r} in {label}; must be the number, the letter or the text of one of the "
                "choices; correct the row"
            )
    return positions


def _check_named(names: Sequence[str | None], named: Sequence[Sequence[str]], label: str, where: Where) -> None:
    """Raise DataError for a number that no choice of its row is called by, where the choices of other rows are called
    by their labels: it may count the choices."""
    rows = [
        (row, name)
        for row, name in enumerate(names)
        if name not in (None, "-1") and named[row] and all(map(str.isdigit, (*named[row], str(name))))
    ]
    outside = [(row, name) for row, name in rows if name not in named[row]]
    if outside and len(outside) < len(rows):
        row, name = outside[0]
        raise DataError(
            f"{where(row)}: got {name!r} in {label}, where the choices are called {' and '.join(named[row])}; must be "
            "one of these, as in other rows; correct the row, or call the choices by letters"
        )


def _are_texts(
    names: Sequence[str | None], given: Sequence[list[Any] | None], first: int, label: str, where: Where
) -> bool:
    """Whether numbers or letters are the texts of choices, which may be numbers or letters too, and not their places.

    Raises:
        DataError: if they may be both, with other choices.
    """
    rows = [(row, name) for row, name in enumerate(names) if name is not None and name != "-1"]
    texts = {row: _texts(given[row]) for row, _ in rows}
    if not any(name in texts[row] for row, name in rows):
        return False
    as_text = all(name in texts[row] for row, name in rows)
    as_place = all(0 <= _position(name, first) < len(texts[row]) for row, name in rows)
    other = next((row for row, name in rows if as_text and texts[row].index(name) != _position(name, first)), None)
    if as_place and other is not None:
        raise DataError(
            f"{where(other)}: got {names[other]!r} in {label}, which may be the text of a choice, or its number or "
            "letter; must be one of the two; write it in another way, such as the letter of the choice"
        )
    return as_text or not as_place


_POSITION = re.compile(r"\d{1,3}|[A-Za-z]")
"""A label that is the number or the letter of a choice."""


def _position(name: str, first: int) -> int:
    """The position, from 0, that a number or a letter names; -1 for other names."""
    if not _POSITION.fullmatch(name):
        return -1
    return int(name) - first if name[0].isdigit() else ord(name.lower()) - ord("a")


def _divide(row: Any) -> tuple[str, list[str]]:
    """(first text, second text with each choice) of a question with its choices, with or without a second text."""
    first, *start, choices = row
    return first, [" ".join([*start, choice]) for choice in choices]


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, rows: Sequence[Parts]
) -> list[dict[str, Any]]:
    """The most probable choice, its number from 0, and the probability of every choice."""
    scores = probabilities(outputs).tolist()
    best = outputs.argmax(axis=1).tolist() if outputs.size else []
    return [
        {"choice": seconds[number], "number": number, "score": row[number], "scores": row[: len(seconds)]}
        for number, row, (*_, seconds) in zip(best, scores, rows, strict=True)
    ]


def _read(*columns: Sequence[Any]) -> list[Parts]:
    """(first text, second text if there is one, its choices without the second text)."""
    cut = [0] * len(columns[0]) if len(columns) < 3 else [len(start) + 1 for start in columns[1]]
    choices = [tuple(choice[size:] for choice in row) for row, size in zip(columns[-1], cut, strict=True)]
    return list(zip(*columns[:-1], choices, strict=True))


def _columns(names: Sequence[str], rows: Sequence[Parts]) -> dict[str, list[Any]]:
    texts = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return texts | {SECONDS: [_divide(row)[1] for row in rows]}


MULTIPLE_CHOICE = TaskType(
    name="multiple_choice",
    summary="chooses one of several answers to a question",
    problem="regression",  # of one output: transformers refuses any other
    metrics=("accuracy",),
    all_metrics=("accuracy",),
    accepts=CLASSIFICATION.accepts,
    form="numbers, letters or texts of choices",
    encode=lambda column, labels, where, key: np.asarray(pc.fill_null(column, MISSING).to_numpy()).astype(np.int64),
    decode=likeliest,
    answer=_answer,
    difference=total_variation,
    measure=PROBABILITIES,
    brief=lambda answer: f"{answer['choice']} {answer['score']:.2f}",
    same=CLASSIFICATION.same,
    shown=lambda target, labels, parts: str(parts[-1][target]),
    settings=("choices", "soft_label"),
    soft=of_choices,
    soft_fits=fit_choices,
    soft_column=soft_written.choices,
    layout=Layout(
        CHOICES,
        hidden=(SECONDS,),
        content=(SECONDS,),
        divide=_divide,
        sequences=lambda parts: [(parts[0], second) for second in parts[-1]],
        several="choices",
        making=Making(("tasks", "pairs", "edits"), read=_read, columns=_columns),
        sample=("a", ["a", "b"]),
    ),
    pipeline="multiple-choice",
    prepare=_prepare,
)
