"""Which kind a task is, by its columns and its labels, unless settings state it. Without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.task_types import TASK_TYPES, TaskType
from distill.data.task_types.multi_label import split
from distill.data.task_types.numerals import decimal_commas, is_code, verdicts_as_numbers, with_points
from distill.data.task_types.regression import numeric
from distill.data.task_types.sets import is_joined
from distill.data.task_types.task_type import Stated, distinct, is_list, is_text
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION, is_spans, is_words
from distill.data.task_types.written import names, without_numbers
from distill.data.text_pairs import queried
from distill.models.families.head import Head
from distill.models.families.record import TEXTS, VECTORS
from distill.runtime.quoting import setting

QUERIES = (["query", "document"], ["query", "passage"])
"""Names of text pairs that a reranker scores."""

MOST_NUMBERS = 20
"""A column of more different whole numbers is a regression, of fewer a classification."""

MOST_GRADES = 10
"""Different grades of relevance, at most, of which some have fractions."""

MOST_MISTAKES = 0.1
"""A column of numbers has at most this share of other values."""

MOST_REPEATED = 0.5
"""Whole numbers of one length may be codes if the different ones are at most this share of the rows."""

_SAMPLE = 10_000
"""Rows whose words are counted."""

_WITH_UNIT = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*([^\d\s.,].*)")
"""A number and what is behind it, as in `85%`, `7.5/10` and `4.5 out of 5 stars`."""

_BITS = frozenset(("0", "1", "true", "false"))
"""Texts in lists with one for each label."""

_CODES = re.compile(r"(?<![a-z])(code|icd\d*|zip|plz|postcode|version)(?![a-z])", re.IGNORECASE)
"""In names of columns whose values are codes, also if they look like numbers."""


def kind_of(
    settings: config.Task, table: pa.Table, text: Sequence[str], label: Sequence[str], head: Head | None, stated: Stated
) -> TaskType:
    """The kind of a task with these columns."""
    if settings.kind is not None:
        return TASK_TYPES[settings.kind]
    if any(is_words(table[name].type) for name in text) or is_spans(table[label[0]].type):
        return TOKEN_CLASSIFICATION
    column = table[label[0]]
    if len(label) > 1 or (is_list(column.type) and not _is_single(column, head)):
        _check_words(table.select([*text, *label]).slice(0, _SAMPLE), head, stated)
        return TASK_TYPES["multi_label"]
    ranks = [name.lower() for name in text] in QUERIES or queried(text, label)
    scored = ranks and _numeric(verdicts_as_numbers(column))
    if head is not None and head.architecture == VECTORS:
        if scored or (len(text) == 2 and _numeric(column)):
            return TASK_TYPES["retrieval" if scored and not _similarities(column) else "embedding"]
        head = None  # the encoder of an embedder, which gets a head for the task
    if head is not None and head.problem == TASK_TYPES["multi_label"].problem:
        return TASK_TYPES["multi_label"]
    if scored and (head is None or head.outputs == 1):
        _check_probabilities(column, stated)
        return TASK_TYPES["reranking"]
    if head is not None:
        return TASK_TYPES["regression" if head.outputs == 1 else "classification"]
    if _is_number(column, stated):
        return TASK_TYPES["regression"]
    _check_units(column, stated)
    return TASK_TYPES["multi_label" if is_joined(column, stated) else "classification"]


def _check_words(table: pa.Table, head: Head | None, stated: Stated) -> None:
    """Raise ConfigError if most texts of a text and a label column have as many words between blanks as labels: these
    are most likely tags of the words, and if most lists have a label twice."""
    several = head is not None and head.problem == TASK_TYPES["multi_label"].problem
    if several or table.num_columns != 2:
        return
    (text, _), (texts, column) = table.column_names, table.columns
    if not is_text(texts.type) or not is_list(column.type) or pa.types.is_nested(column.type.value_type):
        return
    sizes = pc.list_value_length(column)
    if pc.count_distinct(sizes).as_py() < 2:
        _check_repeated(column, stated)
        return
    words = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts)))
    if (pc.mean(pc.equal(words, sizes)).as_py() or 0.0) > MOST_REPEATED:
        raise stated.ambiguous(
            "as many labels as the text has words",
            f"they may be tags of the words, or labels of the whole text in {text}",
            f"write {text} as a list of words if they are tags; if not, set "
            f"{setting(f'{stated.key}.kind', 'multi_label')}",
        )
    _check_repeated(column, stated)


def _check_repeated(column: pa.ChunkedArray, stated: Stated) -> None:
    """Raise ConfigError if most lists have a label twice, as no set has. Lists of a 0 or 1 for each label may."""
    rows = [row for row in column.to_pylist() if row]
    labels = [split(row) or [] for row in rows]  # without the empty values that fill up lists of one length
    several = len({*map(len, rows)}) > 1
    by_place = not several and (not is_text(column.type.value_type) or {*chain.from_iterable(labels)} <= _BITS)
    if not by_place and sum(len({*each}) < len(each) for each in labels) > MOST_REPEATED * len(rows):
        raise stated.ambiguous(
            "lists of which most have a label twice",
            "they may be tags of words, or the labels of several people, as no set has a label twice",
            "write one label for each text, or each of its labels once; if lists are sets, set "
            f"{setting(f'{stated.key}.kind', 'multi_label')}",
        )


def _is_single(column: pa.ChunkedArray, head: Head | None) -> bool:
    """Whether the labels in lists of one are the classes of a teacher that outputs one of several classes."""
    classes = head is not None and head.architecture == TEXTS and head.outputs > 1
    if not classes or head is None or head.problem == TASK_TYPES["multi_label"].problem:
        return False
    return bool(pc.all(pc.equal(pc.list_value_length(column), 1)).as_py())


def stated_of(
    settings: config.Task,
    head: Head | None,
    label: Sequence[str],
    key: str,
    file: str,
    classes: Callable[[str], tuple[str, ...]] = lambda column: (),
) -> Stated:
    """The facts about the labels of a task besides their columns. `classes`: column -> its classes, as from
    `Table.classes`."""
    listed = tuple(map(str, settings.labels or ()))
    outputs = () if head is None else head.labels
    return Stated(key, file, ", ".join(label), listed, outputs, settings.range is not None, classes(label[0]))


def _numeric(column: pa.ChunkedArray) -> bool:
    """Whether a label column contains numbers. A few mistakes are allowed, which are refused later with their row."""
    if not TASK_TYPES["regression"].accepts(column.type):
        return False
    values, bad = _numbers(column)
    return bool(bad.sum() <= MOST_MISTAKES * (~np.isnan(values) & ~bad).sum())


def _similarities(column: pa.ChunkedArray) -> bool:
    """Whether a label column has many numbers with fractions, as similarities are, and not grades of relevance."""
    if not _numeric(column):
        return False
    values, bad = _numbers(column)
    values = np.unique(values[~np.isnan(values) & ~bad])
    return bool(len(values) > MOST_GRADES and (values != np.floor(values)).any())


def _check_probabilities(column: pa.ChunkedArray, stated: Stated) -> None:
    """Raise ConfigError for many numbers from 0 to 1, of which the smallest would count as relevant too."""
    if not _similarities(column):
        return
    values, bad = _numbers(column)
    values = np.unique(values[~np.isnan(values) & ~bad])
    if values[0] >= 0 and values[-1] <= 1:
        raise stated.ambiguous(
            f"{len(values):,} different numbers from {values[0]:g} to {values[-1]:g}",
            "they may be probabilities, which a regression learns, or grades, of which any above 0 is relevant for a "
            "reranking",
            f"set {setting(f'{stated.key}.kind', 'regression')}, or {setting(f'{stated.key}.kind', 'reranking')}",
        )


def _numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """As from `numeric`, of numbers that may have decimal commas, or texts such as NA in place of missing ones."""
    column = without_numbers(column)
    return numeric(with_points(column) if decimal_commas(column) else column)


def _check_sets(column: pa.ChunkedArray, stated: Stated) -> bool:
    """Whether texts of whole numbers with commas are sets for certain, because one has three numbers or more.

    Raises:
        ConfigError: if two numbers may be a decimal number or two labels, which other rows have alone.
    """
    if not is_text(column.type) or not decimal_commas(column):
        return False
    values = [value for value in distinct(names(column)) if re.fullmatch(r"\d+(,\d+)*", value)]
    if any(value.count(",") > 1 and not re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", value) for value in values):
        return True
    joined = [value.split(",") for value in values if "," in value]
    # No set has a label twice, and sets have one order.
    ordered = len({frozenset(pair) for pair in joined}) == len(joined) and all(one != other for one, other in joined)
    if joined and ordered and {*chain.from_iterable(joined)} <= {*values} and len({end for _, end in joined}) > 1:
        raise stated.ambiguous(
            repr(",".join(joined[0])),
            f"it may be one number, or the labels {' and '.join(joined[0])}, which other rows have too",
            f"set {setting(f'{stated.key}.kind', 'regression')}, or {setting(f'{stated.key}.kind', 'multi_label')}",
        )
    return False


def _is_number(column: pa.ChunkedArray, stated: Stated) -> bool:
    """Whether a label column is a regression: numbers with fractions, or many different ones, and no codes.

    Raises ConfigError for whole numbers that repeat, and have the same number of digits, three or more, or no gaps:
    they may be codes, or numbers of classes.
    """
    if not _numeric(column) or stated.listed or stated.classes or _CODES.search(stated.column):
        return False
    if stated.ranged:
        return True
    if _check_sets(column, stated):
        return False
    if is_code(column, stated):
        return False
    values, bad = _numbers(column)
    values = values[~np.isnan(values) & ~bad]
    if (values != np.floor(values)).any():
        return True
    found = np.unique(values)
    if len(found) <= MOST_NUMBERS:
        return False
    digits = {len(str(int(abs(value)))) for value in found}
    as_codes = len(digits) == 1 and min(digits) > 2
    as_classes = found[0] in (0, 1) and found[-1] - found[0] == len(found) - 1
    if (as_codes or as_classes) and len(found) <= MOST_REPEATED * len(values):
        raise stated.ambiguous(
            f"{len(found):,} different whole numbers from {int(found[0])} to {int(found[-1])}",
            "they may be numbers, or codes or numbers of classes",
            f"set {setting(f'{stated.key}.kind', 'regression')}, or {setting(f'{stated.key}.kind', 'classification')}",
        )
    return True


def _check_units(column: pa.ChunkedArray, stated: Stated) -> None:
    """Raise ConfigError for numbers with the same text behind each, which would be a regression without it."""
    if not is_text(column.type):
        return
    values = distinct(names(without_numbers(column)))
    found = [_WITH_UNIT.fullmatch(value) for value in values]
    numbers = [match[1] for match in found if match is not None]
    units = {None if match is None else match[2] for match in found}
    if len(units) != 1 or not numbers or not _is_number(pa.chunked_array([numbers]), stated):
        return
    raise stated.ambiguous(
        repr(values[0]),
        f"it may be the number {numbers[0]}, or the name of a class",
        f"write the numbers without {units.pop()!r}, or set {setting(f'{stated.key}.kind', 'classification')}",
    )
