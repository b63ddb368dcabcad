"""Rows that an annotation tool marks as rejected, ignored or skipped: their labels are not what the annotator meant."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types.task_type import distinct, is_list, is_number, is_text
from distill.data.task_types.written import names

REJECTED = frozenset(
    "reject rejected ignore ignored skip skipped discard discarded cancel cancelled canceled decline declined".split()
)
ACCEPTED = frozenset(
    "accept accepted approve approved submitted validated confirmed completed complete done labeled labelled annotated "
    "reviewed fixed_and_accepted".split()
)
OPEN = frozenset("pending draft open new default todo in_progress unreviewed edited".split())
"""Words for a tool's decision about a row, in any case."""

_NAMES = re.compile(
    r"(.*[.:])?_?(answer|verdict|((annotations?|assignments?|records?|responses?|reviews?|labels?|labell?ing|"
    r"validations?|qa)([.:_ -]?\d+)?[.:_ -]?)(status|state|decision))|_?(status|state|decision)",
    re.IGNORECASE,
)
"""Names of columns with such a statement, such as Prodigy's `answer`, Argilla's `status` and Toloka's
`ASSIGNMENT:status`."""

_SIGNS = re.compile(r"accept[.:]verdict", re.IGNORECASE)
"""Name of a column in which Toloka has + and -."""

_MAYBE = re.compile(r".*[^a-z](status|state|decision)", re.IGNORECASE)
"""Names of columns with such a statement about the row, or about its subject, such as an order."""

TRUE, FALSE = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
"""How files write whether something is so, in lower case, such as PostgreSQL's t and f."""

_FLAGS = re.compile(
    r"_?((is|was)[_ -]?)?(reject|rejected|ignore|ignored|skip|skipped|discard|discarded|cancelled|canceled)",
    re.IGNORECASE,
)
"""Names of columns that are true for such rows, such as Label Studio's `was_cancelled`."""

_OF_SUBJECT = re.compile("cancelled|canceled|rejected|skipped", re.IGNORECASE)
"""Those of these names that may be about the subject of a row, such as an order, where the column says yes and no."""

_FEW = 20
"""Different words up to which a column has statements, of which some are not known."""

_FINISHED = "annotation_id"
"""Name of a column that has a number where somebody has annotated a row, as Label Studio writes it."""

_APPROVED = re.compile(r"_?((is|was)[_ -]?)?(approved|confirmed|reviewed)", re.IGNORECASE)
"""Names of columns that are false for rows that nobody has checked yet, such as doccano's `is_approved`."""


def is_about_a_row(name: str) -> bool:
    """Whether a column with this name may state that somebody has finished, rejected or approved a row."""
    return name.lower() == _FINISHED or any(each.fullmatch(name) for each in (_NAMES, _MAYBE, _FLAGS, _APPROVED))


def rejected(column: pa.ChunkedArray, name: str) -> np.ndarray | None:
    """[n] whether a column states that a row is rejected, ignored or skipped; None for a column about anything else."""
    if _FLAGS.fullmatch(name):
        flags = None if _says_yes(column, name) else _truth(column)
        return None if flags is None else np.asarray(pc.fill_null(flags, False))
    return _stated(column, name) if _NAMES.fullmatch(name) else None


def checked(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """[n] whether a column states that somebody has finished a row: that it is accepted, or by an annotation's number;
    None for a column about anything else."""
    if name.lower() == _FINISHED:  # of a CSV, an empty cell is a text
        return pc.is_valid(names(column) if is_text(column.type) or is_number(column.type) else column)
    rejecting, accepting, others = _sets(name)
    if not _NAMES.fullmatch(name) or (_has_lists(column) and not _has(column, rejecting | accepting | others, pc.all)):
        return None
    values = _words(column, name)
    if values is None or not {*distinct(values)} <= rejecting | accepting | others:
        return None
    return pc.fill_null(pc.is_in(values, pa.array(sorted(accepting), values.type)), False)


def doubtful(column: pa.ChunkedArray, name: str) -> np.ndarray | None:
    """[n], as from `rejected`, for a column that may be about something else than the row, by its name or because
    it has other words too."""
    if _says_yes(column, name) and (flags := _truth(column)) is not None:
        return np.asarray(pc.fill_null(flags, False)) if pc.any(flags).as_py() else None
    if _NAMES.fullmatch(name):
        return None if name.lower().endswith("answer") else _stated(column, name, mixed=True)
    return _stated(column, name) if _MAYBE.fullmatch(name) else None


def disputed(column: pa.ChunkedArray, name: str) -> int:
    """Number of rows that some of several annotators reject, by the lists of a column [n]; 0 for a column about
    anything else."""
    if not _NAMES.fullmatch(name) or not _has_lists(column):
        return 0
    rejecting, accepting, others = _sets(name)
    # Lists of answers may be long texts, of which no objects are made.
    if not _has(column, rejecting, pc.any) or not _has(column, rejecting | accepting | others, pc.all):
        return 0
    rows = _lists(column)
    return sum(bool({*words} & rejecting) and not {*words} <= rejecting for words in rows)


def _sets(name: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The words that reject, that accept and that do neither, in a column of this name."""
    if _SIGNS.fullmatch(name):
        return REJECTED | {"-"}, ACCEPTED | {"+"}, OPEN
    if "assignment" in name.lower():  # of Toloka; the `status` of a customer may be so called too
        return REJECTED | {"expired"}, ACCEPTED, OPEN | {"active"}
    return REJECTED, ACCEPTED, OPEN


def _stated(column: pa.ChunkedArray, name: str, mixed: bool = False) -> np.ndarray | None:
    """[n] whether a column rejects a row; None if no word does, or some are not known; with `mixed`, if all are."""
    rejecting, accepting, others = _sets(name)
    if _has_lists(column) and not _has(column, rejecting, pc.any):
        return None
    if (values := _words(column, name)) is None:
        return None
    given = {*distinct(values)}
    known = given <= rejecting | accepting | others
    if not given & rejecting or known == mixed or (mixed and len(given) > _FEW):
        return None
    return np.asarray(pc.is_in(values, pa.array(sorted(rejecting), values.type)))


def _says_yes(column: pa.ChunkedArray, name: str) -> bool:
    """Whether a column has nothing but yes and no, or their first letters, and a name that may be about the subject."""
    if not _OF_SUBJECT.fullmatch(name) or not is_text(column.type):
        return False
    values = _words(column, name)
    return values is not None and {*distinct(values)} <= {"yes", "no", "y", "n"}


def statements(column: pa.ChunkedArray, name: str, flags: np.ndarray) -> str:
    """The different values of a column in rows whose flag [n] is set, for messages."""
    values = _words(column.filter(pa.array(flags)), name)
    return " or ".join(sorted([] if values is None else distinct(values))) or "true"


def unread(column: pa.ChunkedArray, name: str) -> str | None:
    """What a column, which should say of each row whether it is rejected, is in some rows and does not say so, for
    messages; None for any other column."""
    return unclear(column) if _FLAGS.fullmatch(name) and _truth(column) is None else None


def unapproved(column: pa.ChunkedArray, name: str) -> int:
    """Number of rows that a column [n] states to be not approved yet; 0 for a column about anything else."""
    if not _APPROVED.fullmatch(name) or (flags := _truth(column)) is None:
        return 0
    return int(pc.sum(pc.invert(flags)).as_py() or 0)


def _has_lists(column: pa.ChunkedArray) -> bool:
    return is_list(column.type) and is_text(column.type.value_type)


def _has(column: pa.ChunkedArray, words: frozenset[str], some: Callable[[pa.Array], pa.Scalar]) -> bool:
    """Whether some, or all, of the texts in lists that are not empty are of these words, in any case."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(pc.drop_null(pc.unique(pc.list_flatten(column)))))
    return bool(some(pc.is_in(texts.filter(pc.not_equal(texts, "")), pa.array(sorted(words), texts.type))).as_py())


def _lists(column: pa.ChunkedArray) -> list[list[str]]:
    """The texts of lists [rows], in lower case."""
    return [[(word or "").strip().lower() for word in words or ()] for words in column.to_pylist()]


def _words(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """The texts of a column, or of its lists, in lower case; null for an empty text or list.

    Of a list of several, as from several annotators, a text that is not known, else one that does not reject the row.
    """
    if _has_lists(column):
        rejecting, accepting, others = _sets(name)
        known = rejecting | accepting | others
        one = [min(row, key=lambda word: (word in known) + (word in rejecting), default=None) for row in _lists(column)]
        column = pa.chunked_array([pa.array(one, pa.string())])
    if not is_text(column.type):
        return None
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def unclear(column: pa.ChunkedArray) -> str | None:
    """What a column is in some rows beside true and false, for messages; None for one that is nothing else, or is empty
    in all rows."""
    if not _may_be_truths(column.type):
        return None
    values = names(column)
    other = next((value for value in distinct(values) if value.lower() not in (*TRUE, *FALSE)), None)
    if other is not None:
        return repr(other[:40])
    return "empty" if 0 < values.null_count < len(values) else None


def _may_be_truths(data_type: pa.DataType) -> bool:
    return is_text(data_type) or is_number(data_type) or pa.types.is_boolean(data_type)


def _truth(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values in `TRUE` and `FALSE` as booleans; None for others."""
    if not _may_be_truths(column.type):
        return None
    values = pc.utf8_lower(names(column))
    yes, no = (pc.is_in(values, pa.array(same)) for same in (TRUE, FALSE))
    if not pc.all(pc.or_(pc.or_(yes, no), pc.is_null(values))).as_py() or pc.all(pc.is_null(values)).as_py():
        return None
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), yes)
