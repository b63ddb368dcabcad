"""Which columns of a file are text and label, and which kind a task is, unless settings state it. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.kinds import KINDS, Kind
from distill.data.kinds.classification import label_names
from distill.data.kinds.kind import is_list, is_text
from distill.data.kinds.multi_label import JOINED, split
from distill.data.kinds.regression import numeric
from distill.data.kinds.token_classification import TOKEN_CLASSIFICATION, is_spans, is_words
from distill.errors import ConfigError, DataError
from distill.family.head import Head

LABELS = (
    "label", "labels", "target", "class", "category", "intent", "sentiment", "topic", "emotion", "score", "similarity",
    "rating", "stars", "relevance", "relevant", "y",
)  # fmt: skip
"""Usual names of label columns."""

TAGS = ("ner_tags", "tags", "spans", "entities", "pos_tags")
"""Usual names of columns with a list of tags or of spans for each text."""

PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("text", "text_pair"),
    ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"), ("question", "passage"),
    ("query", "document"), ("query", "passage"), ("query", "title"),
)  # fmt: skip
"""Usual names of the two columns of a text pair."""

QUERIES = (["query", "document"], ["query", "passage"])
"""Names of text pairs that a reranker scores."""

WORD_LISTS = ("tokens", "words")
"""Usual names of columns with a list of words for each text."""

TEXTS = (
    "text", "sentence", "content", "body", "message", "review", "comment", "document", "utterance", "description",
    "question", "query", "title",
)  # fmt: skip
"""Usual names of text columns."""

SAMPLE = 10_000
"""Rows by which columns and kind are chosen."""

MOST_NUMBERS = 20
"""A column of more different whole numbers is a regression, of fewer a classification."""

MOST_MISTAKES = 0.1
"""A column of numbers has at most this share of other values."""

MOST_REPEATED = 0.5
"""A column without a usual name may be the label if its different values are at most this share of its rows."""


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]
    """The text column, or the two columns of a text pair."""
    label: tuple[str, ...]
    """The label column, or several columns of 0 and 1."""
    kind: Kind


def columns_of(settings: config.Task, table: pa.Table, head: Head | None, key: str, file: str) -> Columns:
    """The columns that the settings name, and for those they do not name, the most likely of the table.

    Args:
        head: the classifier of the teacher, from which the kind follows; None without.
        key: setting of the task, e.g. `tasks`, for messages.
        file: name of the table's file.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is a likely text or label.
        DataError: for a text column that contains no text.
    """
    sample = table.slice(0, SAMPLE)
    label = label_columns(settings, sample, key, file)
    text = _text(settings, sample, label, key, file)
    if repeated := next((name for n, name in enumerate((*text, *label)) if name in (*text, *label)[:n]), None):
        raise ConfigError(
            f"{key}.label: got {', '.join(label)}, with text from {' and '.join(text)}; must be different columns of "
            f"{file}; name {repeated} once"
        )
    kind = _kind(settings, sample, text, label, head)
    if kind.per_token and len(text) > 1:
        raise ConfigError(
            f"{key}.text: got {' and '.join(text)}; must be one column for {kind.name}; set {key}.text=COLUMN"
        )
    return Columns(text, label, kind)


def text_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The text columns as from `columns_of`, of a file that may have no labels."""
    usual = _usual(table, LABELS, {settings.text, settings.text_pair})
    return _text(settings, table.slice(0, SAMPLE), () if usual is None else (usual,), key, file)


def label_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The label column, or several columns of 0 and 1. ConfigError if it is not set and no column is likely."""
    if settings.label is not None:
        names = settings.label if isinstance(settings.label, list) else [settings.label]
        return tuple(_present(str(name), table, f"{key}.label", file) for name in names)
    text = {settings.text, settings.text_pair}
    lists = [name for name in table.column_names if is_list(table[name].type)]
    usual = _usual(table, LABELS, text) or _usual(table.select(lists), TAGS, text)
    if usual is not None:
        return (usual,)
    others = [name for name in table.column_names if name not in text]
    likely = [name for name in others if _few_values(table[name])]
    if len(likely) == 1:
        return (likely[0],)
    raise ConfigError(
        f"{key}.label: got nothing, and no column of {file} is named as a label; must be one of "
        f"{', '.join(table.column_names)}; set {key}.label=COLUMN, or '{key}.label=[A,B]' for columns of 0 and 1"
    )


def _few_values(column: pa.ChunkedArray) -> bool:
    """Whether a column has lists, or so few different values that they repeat."""
    if is_list(column.type):
        return KINDS["multi_label"].accepts(column.type)
    if pa.types.is_null(column.type) or not KINDS["classification"].accepts(column.type):
        return False
    return 2 <= pc.count_distinct(column).as_py() <= MOST_REPEATED * len(column)


def _text(settings: config.Task, table: pa.Table, label: Sequence[str], key: str, file: str) -> tuple[str, ...]:
    if settings.text is not None or settings.text_pair is not None:
        if settings.text is None:
            raise ConfigError(f"{key}.text: got nothing; must be set where {key}.text_pair is; set {key}.text=COLUMN")
        names = [settings.text, *([] if settings.text_pair is None else [settings.text_pair])]
        chosen = [_present(name, table, f"{key}.text{'_pair' * n}", file) for n, name in enumerate(names)]
        return tuple(chosen)
    texts = [name for name in table.column_names if name not in label and is_text(table[name].type)]
    if len(label) == 1 and (words := _word_list(table, label[0])) is not None:
        return (words,)
    lower = {name.lower(): name for name in texts}
    for pair in PAIRS:
        if all(name in lower for name in pair):
            return lower[pair[0]], lower[pair[1]]
    usual = _usual(table.select(texts), TEXTS, set())
    if usual is not None:
        return (usual,)
    if not texts:
        raise ConfigError(
            f"{key}.text: got nothing, and no column of {file} but the label is text; must be one of "
            f"{', '.join(table.column_names)}; set {key}.text=COLUMN"
        )
    return (max(texts, key=lambda name: pc.sum(pc.utf8_length(table[name])).as_py() or 0),)


def _word_list(table: pa.Table, label: str) -> str | None:
    """The column with the words to which a column of lists has a tag each; None if there is none."""
    if not is_list(table[label].type) or is_spans(table[label].type):
        return None
    lists = [name for name in table.column_names if name != label and is_words(table[name].type)]
    sizes = pc.list_value_length(table[label])
    # Most rows decide, because a row with another number of words is refused later.
    alike = [name for name in lists if _share(pc.equal(pc.list_value_length(table[name]), sizes)) > 0.5]
    return _usual(table.select(alike), WORD_LISTS, set()) or (alike[0] if len(alike) == 1 else None)


def _share(flags: pa.ChunkedArray) -> float:
    return pc.mean(flags).as_py() or 0.0


def _kind(settings: config.Task, table: pa.Table, text: Sequence[str], label: Sequence[str], head: Head | None) -> Kind:
    if settings.kind is not None:
        return KINDS[settings.kind]
    if any(is_words(table[name].type) for name in text) or is_spans(table[label[0]].type):
        return TOKEN_CLASSIFICATION
    column = table[label[0]]
    if len(label) > 1 or is_list(column.type):
        return KINDS["multi_label"]
    if (head is None or head.outputs == 1) and [name.lower() for name in text] in QUERIES and _numeric(column):
        return KINDS["reranking"]
    if head is not None:
        several = "multi_label" if head.problem == KINDS["multi_label"].problem else "classification"
        return KINDS["regression" if head.outputs == 1 else several]
    if _is_number(column):
        return KINDS["regression"]
    return KINDS["multi_label" if _is_joined(column) else "classification"]


def _is_joined(column: pa.ChunkedArray) -> bool:
    """Whether texts of a label column combine labels, as in `billing|urgent`.

    Then some label is also alone in a text, or there are fewer labels than combinations of them.
    """
    if not is_text(column.type):
        return False
    values = {value for value in pc.unique(label_names(column)).to_pylist() if value is not None}
    joined = {value for value in values if JOINED.search(value)}
    parts = {part for value in joined for part in split(value) or ()}
    return bool(joined) and (bool(parts & (values - joined)) or len(parts | (values - joined)) < len(values))


def _numeric(column: pa.ChunkedArray) -> bool:
    """Whether a label column contains numbers, but for a few mistakes, which are refused with their row."""
    if not KINDS["regression"].accepts(column.type):
        return False
    values, bad = numeric(column)
    return bool(bad.sum() <= MOST_MISTAKES * (~np.isnan(values) & ~bad).sum())


def _is_number(column: pa.ChunkedArray) -> bool:
    """Whether a label column is a regression: numbers with fractions, or many different ones."""
    if not _numeric(column):
        return False
    values, bad = numeric(column)
    values = values[~np.isnan(values) & ~bad]
    return bool((values != np.floor(values)).any()) or len(np.unique(values)) > MOST_NUMBERS


def _present(name: str, table: pa.Table, key: str, file: str) -> str:
    if name not in table.column_names:
        raise ConfigError(
            f"{key}: got {name}; must be a column of {file}, which has {', '.join(table.column_names)}; correct it"
        )
    return name


def _usual(table: pa.Table, names: Sequence[str], without: set[str | None]) -> str | None:
    """The column with the first of these names, in any case; None if there is none."""
    lower = {name.lower(): name for name in table.column_names if name not in without}
    return next((lower[name] for name in names if name in lower), None)


def check_texts(table: pa.Table, columns: Sequence[str], where: object) -> None:
    """DataError unless the columns are text."""
    for column in columns:
        if not is_text(table[column].type):
            raise DataError(f"{where}: got {table[column].type} in column {column}; must be text; convert it")
