"""Extractive question answering: the answer to a question is a span of its context, if it has one (SQuAD 1 and 2).

A file has the texts of the accepted answers and, as in SQuAD, the character of the context at which each begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data.task_types import soft_written
from distill.data.task_types.answers import COLUMNS, END, FIRST, NONE, PROBABILITY, grades, no_answer
from distill.data.task_types.layout import Layout, Making, Parts
from distill.data.task_types.soft_parts import fit_context, of_spans
from distill.data.task_types.task_type import (
    Columns,
    TaskType,
    Texts,
    Where,
    as_list,
    check_texts,
    equal_rows,
    is_list,
    is_text,
    targets_in,
)
from distill.errors import DataError
from distill.models.families.record import ANSWERS
from distill.runtime.quoting import short

IMPOSSIBLE = "is_impossible"
"""Column, or key of a question, by which SQuAD 2 states that its context has no answer."""

START = "answer_start"
"""Column, or key of an answer, with the first character of the answer in the context."""

UNANSWERABLE = (NONE, NONE)
"""Targets of a question without an answer in its context."""

ALWAYS = 1.0
"""Threshold with which every question gets an answer."""

SAMPLE = 100
"""Rows by which a column of answers is recognized."""

YES = ("true", "1", "1.0", "yes")
"""What says that a question is impossible, in lower case."""
_VERDICTS = ("yes", "no", "true", "false", "maybe", "unknown", "y", "n")
"""Answers of a classification of questions with their passages, as in BoolQ, where the passage may have them too."""
_AT_ONCE = 1024
"""Rows whose texts are in memory at once."""


def is_answers(data_type: pa.DataType) -> bool:
    """Whether a column may contain answers: texts, lists of them, or SQuAD's objects."""
    if is_list(data_type):
        return is_answers(data_type.value_type)
    return is_text(data_type) or pa.types.is_null(data_type) or _has_text(data_type)


def _has_start(data_type: pa.DataType) -> bool:
    if is_list(data_type):
        return _has_start(data_type.value_type)
    return pa.types.is_struct(data_type) and data_type.get_field_index(START) >= 0


def _has_text(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) and data_type.get_field_index("text") >= 0


def spans_of(answers: Any, start: Any, context: str, where: str) -> list[tuple[int, int]] | None:
    """First character and end of each answer in the context, without spaces around it; None for a row without a label.

    Args:
        answers: of a file: a text, `{"text": ..., "answer_start": ...}`, both perhaps lists, or a list of these.
        start: the first character, or a list with that of each answer; None if they are with the answers, or are to
            be found.
        where: file and row, for messages.

    Raises:
        DataError: for an answer that is not in the context, or not where it should begin.
    """
    pairs = pairs_of(answers, start, where)
    if pairs is None:
        return None
    found = [_span(text, first, context, where) for text, first in pairs]
    return list(dict.fromkeys(span for span in found if span is not None))


def pairs_of(answers: Any, start: Any, where: str) -> list[tuple[Any, Any]] | None:
    """(text, first character or None) of each answer; None for a row without a label."""
    if answers is None:
        if start is None:
            return None
        raise DataError(f"{where}: got {START} {start} without an answer; must have both or none; correct the row")
    if isinstance(answers, str):
        return [(answers, start)]
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get(START)
        if texts is None and starts is None:
            return None
        return _together(as_list(texts), as_list(starts) or as_list(start), where)
    each_with = _together(answers, as_list(start), where)
    return [pair for answer, first in each_with for pair in pairs_of(answer, first, where) or [(None, None)]]


def _together(answers: list[Any], starts: list[Any], where: str) -> list[tuple[Any, Any]]:
    """Each answer with its first character, or with None if no first characters are given."""
    nowhere = not answers and all(number_of(start, where) in (None, NONE) for start in starts)
    starts = [] if nowhere else starts or [None] * len(answers)
    if len(answers) != len(starts):
        raise DataError(
            f"{where}: got {len(answers)} answers and {len(starts)} {START}; must be one for each answer; correct the "
            "row"
        )
    return list(zip(answers, starts, strict=True))


def _span(text: Any, start: Any, context: str, where: str) -> tuple[int, int] | None:
    """The place of an answer; None for an empty one, by which some files state that there is no answer."""
    first = number_of(start, where)
    if not isinstance(text, str) or not text.strip():
        if text is None or (first is not None and first >= 0):
            raise DataError(
                f"{where}: got {'null' if text is None else 'an empty text'} as an answer"
                f"{'' if first is None else f', with {START} {first}'}; must be text of the context, or an empty list "
                "for no answer; correct the row"
            )
        return None
    first = find(text, context) if first is None else first
    if first == -1 and start is None:
        raise DataError(
            f"{where}: got the answer {short(text)!r}, which is not in the context; must be a part of it, letter by "
            "letter; correct the row"
        )
    if first < 0 or context[first : first + len(text)] != text:
        there = f"where the context has {short(context[first : first + len(text)])!r}" if first >= 0 else "below 0"
        raise DataError(
            f"{where}: got the answer {short(text)!r} with {START} {first}, {there}; must be the character of the "
            "context, from 0, at which the answer begins, and not the UTF-16 unit or the byte; correct it, or leave "
            f"{START} out"
        )
    first += len(text) - len(text.lstrip())
    return first, first + len(text.strip())


def find(text: str, context: str) -> int:
    """The first place of a text in its context as whole words; else its first place; -1 without one."""
    first = place = context.find(text)
    while place >= 0 and _inside(place, context) | _inside(place + len(text), context):
        place = context.find(text, place + 1)
    return first if place < 0 else place


def _inside(place: int, context: str) -> bool:
    """Whether a place is within a word or a number. Scripts that have no capital letters may have no blanks."""
    return 0 < place < len(context) and all(
        letter.isdigit() or letter.lower() != letter.upper() for letter in context[place - 1 : place + 1]
    )


def number_of(start: Any, where: str) -> int | None:
    """A place as a number; None without one. Raises DataError for anything but a whole number."""
    if start is None or (isinstance(start, str) and not start.strip()):
        return None
    with suppress(TypeError, ValueError, OverflowError):  # pandas writes 13.0 where a row has none
        if (number := float(start)).is_integer():
            return int(number)
    raise DataError(f"{where}: got {START} {start!r}; must be a whole number from 0; correct the row")


def _prepare(rows: pa.Table, columns: Columns, where: Where) -> pa.Table:
    """Questions, contexts, and first characters and ends of the answers of each row, flat: `UNANSWERABLE` without an
    answer, and an empty list without a label. Rows of the same question and context, as of several annotators, have the
    answers of all of them, their own first."""
    question, context = columns.text
    label = columns.label[0]
    check_texts(rows, columns.text, where(0))
    starts = START if START in rows.column_names and START != label else None
    impossible = IMPOSSIBLE if IMPOSSIBLE in rows.column_names and IMPOSSIBLE not in (*columns.text, label) else None
    wanted = list(dict.fromkeys((question, context, label, *filter(None, (starts, impossible)))))
    targets: list[list[int]] = []
    same = dict[int, list[int]]()
    for batch in rows.select(wanted).to_batches(max_chunksize=_AT_ONCE):
        for each in batch.to_pylist():
            place = where(len(targets))
            for name in columns.text:
                if each[name] is None or not each[name].strip():
                    raise DataError(f"{place}: got no text in {name}; must be text; remove the row")
            if impossible and str(each[impossible]).strip().lower() in YES:
                targets.append([*UNANSWERABLE])  # some files have plausible answers beside
                continue
            start = each[starts] if starts else None
            spans = spans_of(each[label], None if start == "" else start, each[context], place)
            if spans:
                same.setdefault(hash((each[question], each[context])), []).append(len(targets))
            targets.append([] if spans is None else [place for span in spans or [UNANSWERABLE] for place in span])
    for numbers in same.values():
        _share([targets[number] for number in numbers])
    return pa.table({question: rows[question], context: rows[context], label: pa.array(targets, pa.list_(pa.int64()))})


def _share(targets: Sequence[list[int]]) -> None:
    """Add to the places of each row those of all others."""
    pairs = [list(zip(each[::2], each[1::2], strict=True)) for each in targets]
    every = dict.fromkeys(chain(*pairs))
    for each, own in zip(targets, pairs, strict=True):
        each[:] = [place for pair in dict.fromkeys(chain(own, every)) for place in pair]


def with_places(rows: pa.Table, answers: str) -> bool:
    """Whether a table says where the answers in a column begin."""
    return START in rows.column_names or _has_start(rows[answers].type)


def is_extractive(rows: pa.Table, context: str, answers: str) -> bool:
    """Whether answers have their places, or most of the first ones are words of their contexts, and not verdicts such
    as yes."""
    if with_places(rows, answers):
        return True
    part = rows.select(list(dict.fromkeys((context, answers)))).slice(0, SAMPLE).to_pylist()
    given = [row for row in part if row[answers] not in (None, "") and isinstance(row[context], str)]
    if all(isinstance(row[answers], str) and row[answers].strip().lower() in _VERDICTS for row in given):
        return False
    return sum(_is_in(row[answers], row[context]) for row in given) > len(given) / 2


def _is_in(answers: Any, context: str) -> bool:
    try:
        spans = spans_of(answers, None, context, "")
    except DataError:
        return False
    return spans is not None and not any(_inside(place, context) for span in spans for place in span)


def answerable(targets: np.ndarray) -> np.ndarray:
    """[n] whether a row has an answer."""
    return np.array([len(row) > 0 and bool(row[0] != NONE) for row in targets], np.bool_)


def _rows(outputs: Any) -> Any:
    """Logits of start, then of end, of windows [B, 2 W] -> [2 B, W], start and end in turn.

    The loss on labels is then the mean of the cross-entropies of start and end, as in Devlin et al. 2019, arXiv
    1810.04805, section 4.2. Deviation: only tokens of the context, and the first, which stands for no answer, have a
    probability.
    """
    return outputs.reshape(2 * outputs.shape[0], outputs.shape[1] // 2)


def _truth(targets: np.ndarray, texts: Texts, labels: Sequence[str]) -> np.ndarray:
    """[n] of `answers.Reference`."""
    truth = np.empty(len(targets), object)
    for row, (target, context) in enumerate(zip(targets, texts[1], strict=True)):
        spans = [(int(first), int(end)) for first, end in target.reshape(-1, 2) if first != NONE]
        truth[row] = (context, tuple(spans))
    return truth


def _decode(outputs: np.ndarray, labels: Sequence[str], threshold: float) -> np.ndarray:
    """[n, 2] first character and end of each answer; `NONE` for no answer."""
    spans = outputs[:, [FIRST, END]].astype(np.int64)
    spans[no_answer(outputs) > threshold] = NONE
    return spans


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, rows: Sequence[Parts]
) -> list[dict[str, Any]]:
    """The answer to each question, its place in the context, its probability and the probability of no answer."""
    answers = []
    spans, without = _decode(outputs, labels, threshold).tolist(), no_answer(outputs).tolist()
    for (_, context), (first, end), none, output in zip(rows, spans, without, outputs.tolist(), strict=True):
        text = "" if first == NONE else context[first:end].strip()
        first = context.find(text, max(first, 0)) if text else None
        answers.append(
            {
                "answer": text,
                "start": first,
                "end": None if first is None else first + len(text),
                "score": output[PROBABILITY],
                "no_answer": none,
            }
        )
    return answers


def _shown(target: np.ndarray, labels: Sequence[str], parts: Parts) -> str:
    spans = target.reshape(-1, 2).tolist()
    return " | ".join(parts[1][first:end] for first, end in spans if first != NONE) or "no answer"


def _brief(answer: dict[str, Any]) -> str:
    return answer["answer"] or "no answer"


def _difference(outputs: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[n] 1 minus the number of characters in both spans divided by the number in either; 0 for the same span."""
    shared = np.minimum(outputs[:, END], other[:, END]) - np.maximum(outputs[:, FIRST], other[:, FIRST])
    shared = np.maximum(shared, 0).astype(np.float64)
    either = outputs[:, END] - outputs[:, FIRST] + other[:, END] - other[:, FIRST] - shared
    same = (outputs[:, [FIRST, END]] == other[:, [FIRST, END]]).all(axis=1)
    return np.where(same, 0.0, 1 - shared / np.maximum(either, 1))


QUESTION_ANSWERING = TaskType(
    name="question_answering",
    summary="finds the answer to a question in a context",
    problem="single_label_classification",
    metrics=("exact_match", "answer_f1"),
    all_metrics=("exact_match", "answer_f1"),
    accepts=is_answers,
    form="answers: texts, lists of texts, or objects with text and answer_start",
    encode=lambda column, labels, where, key: targets_in(column),
    rows=_rows,
    decode=_decode,
    answer=_answer,
    difference=_difference,
    measure="share of the characters of both answers that one of them lacks, 0 to 1",
    brief=_brief,
    same=equal_rows,
    shown=_shown,
    settings=("threshold", "soft_label"),
    soft=of_spans,
    soft_fits=fit_context,
    soft_column=soft_written.spans,
    outputs=2,
    averaged=False,
    truth=_truth,
    layout=Layout(
        ANSWERS,
        columns=(2,),
        asked=2,
        width=COLUMNS,
        making=Making(("files", "tasks", "pairs", "edits")),
        sample=("a", "a"),
    ),
    pipeline="question-answering",
    prepare=_prepare,
    grade=grades,
    nothing=lambda targets, labels: ~answerable(targets),
    nothing_is="no answer",
)
