"""Words and their tags in tables that have neither lists nor spans: a word in each row, as simpletransformers and a
well-known file of Kaggle have them, or the words and the tags of a text in a cell each, with spaces between them.
Without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.files import Table
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.spans import OUTSIDE, scheme_of
from distill.data.task_types.task_type import distinct, is_number, is_text
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION
from distill.data.usual_columns import LABELS, TAGS, WORDS, usual_name
from distill.errors import ConfigError, DataError
from distill.runtime.quoting import setting

SENTENCES = (
    "sentence_id", "sentence #", "sentence", "sentence_idx", "sent_id", "sentence_no", "sentence_number", "text_id",
    "doc_id", "document_id", "document",
)  # fmt: skip
"""Usual names of a column that says to which text a word belongs."""
DOCUMENTS = ("doc_id", "document_id", "document", "text_id")
"""Those of the document, in which sentences may be numbered anew."""
_TAG = r"(O|[BIESLU]-\S+)"
_MOST = 1000
"""Different labels up to which they may be tags."""
_LONGEST_ID = 40
"""Characters of a name for a text, which is no text itself."""


def with_lists_of_words(
    settings: config.Task, table: Table, notes: list[str], name: str, *, untagged: bool = False
) -> Table:
    """The table with lists of words and of tags for each text, if it has words or tags in another form.

    Args:
        untagged: whether words without tags, which have a row each, become lists too.

    Raises:
        DataError: for words with tags of which nothing says to which text they belong.
    """
    rows = table.rows
    if settings.kind not in (None, TOKEN_CLASSIFICATION.name):
        return table
    for label in _labels(settings, rows):
        if _match(rows[label], _TAG) and _begins(rows[label]):
            return _grouped(settings, table, label, notes, name)
        if _match(rows[label], rf"{_TAG}( {_TAG})*") and _begins(rows[label]):
            return _split(settings, table, label, notes, name)
    if (labels := _labels(settings, rows)) and _is_untagged(settings, rows):
        in_scheme = [label for label in labels if _in_scheme(rows[label])]
        usual = sorted(labels, key=lambda label: [*TAGS, label.lower()].index(label.lower()))
        if in_scheme or untagged or settings.kind is not None:
            return _grouped(settings, table, (in_scheme or usual)[0], notes, name)
    return _grouped(settings, table, None, notes, name) if untagged and _is_untagged(settings, rows) else table


def check_words(settings: config.Task, table: Table, key: str) -> None:
    """Raise ConfigError for a table with a label beside each word of texts, which may be tags or classes."""
    rows = table.rows
    if settings.kind is not None or not (labels := _labels(settings, rows)) or not _is_untagged(settings, rows):
        return
    word = _word(settings, rows)
    if word != usual_name(rows, WORDS):
        return  # of other names, they may be texts in a script without blanks
    raise ConfigError(
        f"{key}.kind: got {word} with a word in each row, and several rows for a value of "
        f"{' and '.join(_numbers(rows))}; {labels[0]} may have tags of words, or classes of texts of one word; set "
        f"{setting(f'{key}.kind', TOKEN_CLASSIFICATION.name)}, or {setting(f'{key}.kind', CLASSIFICATION.name)}"
    )


def _in_scheme(column: pa.ChunkedArray) -> bool:
    """Whether the values of a column are tags of a known scheme, of which some are outside of spans."""
    values = {value.strip() for value in distinct(column)[:_MOST]}
    tags = values - {OUTSIDE}
    scheme = scheme_of(sorted(tags))
    return OUTSIDE in values and bool(tags) and all(scheme.pattern.fullmatch(tag) for tag in tags)


def _is_untagged(settings: config.Task, rows: pa.Table) -> bool:
    """Whether each row has one word, and says to which text it belongs."""
    word, numbers = _word(settings, rows), _numbers(rows)
    if word is None or not numbers or word in numbers or not is_text(rows[word].type):
        return False
    if pc.any(pc.match_substring_regex(pc.utf8_trim_whitespace(rows[word]), r"\s")).as_py():
        return False
    for ids in map(rows.column, numbers):
        short = is_text(ids.type) and (pc.max(pc.utf8_length(ids)).as_py() or 0) < _LONGEST_ID
        if not is_number(ids.type) and not short:
            return False
    return len({*_ids(rows, numbers)}) < rows.num_rows


def _numbers(rows: pa.Table) -> list[str]:
    """The columns that say to which text a word belongs: that of sentences, after that of documents if both are there,
    because sentences may be numbered in each document anew."""
    document = usual_name(rows, DOCUMENTS)
    inner = usual_name(rows, [name for name in SENTENCES if name not in DOCUMENTS[:-1]])
    return list(dict.fromkeys(name for name in (document, inner) if name is not None))


def _ids(rows: pa.Table, numbers: Sequence[str]) -> list[str]:
    """The text of each row. A row without an id belongs to the text before it."""
    columns = [pc.utf8_trim_whitespace(rows[name].cast(pa.string())).to_pylist() for name in numbers]
    filled: list[list[str | None]] = [
        list(accumulate(column, lambda before, each: each or before)) for column in columns
    ]
    return ["\0".join(each or "" for each in row) for row in zip(*filled, strict=True)]


def _word(settings: config.Task, rows: pa.Table) -> str | None:
    """The column of words."""
    return settings.text if settings.text in rows.column_names else usual_name(rows, WORDS)


def _labels(settings: config.Task, rows: pa.Table) -> list[str]:
    """The columns that may have tags."""
    usual = {*LABELS, *TAGS}
    given = [settings.label] if isinstance(settings.label, str) else None
    names = given or [name for name in rows.column_names if name.lower() in usual]
    return [name for name in names if name in rows.column_names and is_text(rows[name].type)]


def _match(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether all values of a column are tags."""
    return bool(pc.all(pc.match_substring_regex(column, f"^\\s*{pattern}\\s*$")).as_py())


def _begins(column: pa.ChunkedArray) -> bool:
    """Whether some tags begin spans, and others are outside of them: what no set of classes has."""
    values = " ".join(distinct(column)[:_MOST])
    return bool(re.search(r"(^|\s)O(\s|$)", values) and re.search(r"(^|\s)[BSU]-\S", values))


def _grouped(settings: config.Task, table: Table, label: str | None, notes: list[str], name: str) -> Table:
    """A row for each text, of rows with a word each. Rows of a text are neighbours."""
    rows = table.rows
    word = _word(settings, rows)
    numbers = _numbers(rows)
    number = " and ".join(numbers)
    if word is None or not numbers or not all(is_text(rows[n].type) or is_number(rows[n].type) for n in numbers):
        raise DataError(
            f"{', '.join(table.files)}: got tags of words in {label}, a word in each row; must say to which text each "
            "word belongs; add a column sentence_id beside a column word, or write one word and its tag a line, with "
            "an empty line after each text, as FILE.conll"
        )
    ids = _ids(rows, numbers)
    firsts = [n for n, each in enumerate(ids) if n == 0 or each != ids[n - 1]]
    if len({ids[n] for n in firsts}) != len(firsts):
        raise DataError(
            f"{', '.join(table.files)}: got words of a text in {number} that are apart from its others; must be in "
            f"rows one after the other; sort the file by {number}, and keep the order of the words"
        )
    ends = np.array([*firsts[1:], len(ids)], np.int64)
    offsets = pa.array(np.r_[np.array(firsts, np.int64), ends[-1:]].astype(np.int32))
    lists = {
        column: pa.ListArray.from_arrays(offsets, pc.fill_null(rows[column].cast(pa.string()), "").combine_chunks())
        for column in filter(None, (word, label))
    }
    others = [each for each in rows.column_names if each not in lists]
    made = rows.select(others).take(firsts)
    for column, values in lists.items():
        made = made.append_column(column, values)
    tags = "" if label is None else f", tags from {label}"
    notes.append(
        f"{name}: {len(firsts):,} texts of {len(ids):,} words, which have a row each: words from {word}{tags}, and "
        f"texts by {number}"
    )
    kept = np.asarray(firsts, np.int64)
    return replace(table, rows=made, kept=kept if table.kept is None else table.kept[kept])


def _split(settings: config.Task, table: Table, label: str, notes: list[str], name: str) -> Table:
    """Lists in place of words and tags with spaces between them."""
    rows = table.rows
    sizes = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(rows[label])))
    for text in rows.column_names:
        if text == label or not is_text(rows[text].type) or settings.text not in (None, text):
            continue
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(rows[text]))
        if pc.all(pc.equal(pc.list_value_length(words), sizes)).as_py():
            tags = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(rows[label]))
            made = rows.set_column(rows.column_names.index(text), text, words)
            notes.append(f"{name}: the words in {text} and the tags in {label} have spaces between them")
            return replace(table, rows=made.set_column(made.column_names.index(label), label, tags))
    return table
