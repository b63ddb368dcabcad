"""Labels as files write them: rows without a label, and numbers with a fraction. Doubtful cases are refused."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.task_type import Given, Stated, distinct, is_list, is_number, is_text, one_array
from distill.runtime.quoting import setting

WITHOUT = ("-", "no gold label", "no_gold_label", "no label", "unlabeled", "unlabelled", "not labeled")
"""Texts that stand for a missing label, unless the settings list them as labels, or the teacher outputs them."""

ERRORS = ("#n/a", "#name?", "#ref!", "#value!", "#div/0!", "#null!", "#num!", "#error!", "#spill!", "#calc!")
"""Values of formulas that failed in a spreadsheet. They stand for a missing label."""

NOT_A_NUMBER = ("nan", "none", "null", "n/a", "na", "<na>", ".")
"""Texts that stand for a missing label where all other labels are numbers. Databases write `\\N` for any."""

PLAIN = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
"""A number."""

MINORITY = 0.5
"""-1 beside 0, 1, 2 ... or 1, 2, 3 ... stands for no label if it is rarer than this share of the rarest of these."""

AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\u200c\u200d\u2060\ufeff"
"""White space, and characters of no width, which are no part of a label at its edges."""

WHOLE = r"^([+-]?\d+)\.0+$"
"""A whole number that is written with a fraction."""


def names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The labels of a column [rows] as text, in the form NFC, without spaces and characters of no width around it; null
    for a row without a label (NaN too).

    As numbers, 1 and 1.0 are the same label: pandas writes whole numbers with a fraction where a row has no label. As
    texts they are not, because `401` and `401.0` are different codes.
    """
    floats = pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    text = pc.utf8_trim(composed(pc.cast(column, pa.string())), characters=AROUND)
    text = pc.replace_substring_regex(text, r"^\x{2212}([0-9])", r"-\1")  # a minus of its own sign
    text = whole(text) if floats else text
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def composed(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts [rows] in the form NFC. pyarrow 25's own function for it decomposes them."""
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return text
    given = pc.unique(text).drop_null()
    forms = pa.array([unicodedata.normalize("NFC", value) for value in given.to_pylist()], pa.string())
    return pc.take(forms, pc.index_in(text, value_set=given))


def spelled_alike(name: str) -> str:
    """A label without its case and with one space between words: labels that are equal after this are the same."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFC", name).strip(AROUND)).casefold()


def whole(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts [rows] with whole numbers without a fraction: 1 in place of 1.0."""
    return pc.replace_substring_regex(text, WHOLE, r"\1")


def counts_of(columns: Given) -> Counter[str]:
    """Label -> number of rows that have it, among the training rows or, without these, among all rows."""
    chosen = [columns["train"]] if "train" in columns else [*columns.values()]
    counted: Counter[str] = Counter()
    for column in chosen:
        for pair in pc.value_counts(names(column)).to_pylist():
            if pair["values"] is not None:
                counted[pair["values"]] += pair["counts"]
    return counted


def read_names(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """The columns with one label for each row, and notes about them."""
    notes: list[str] = []
    columns = {split: alone(column, stated) if is_list(column.type) else column for split, column in columns.items()}
    columns = _with_whole_numbers(columns, stated, notes)
    return without_labels(columns, stated, notes), notes


def alone(column: pa.ChunkedArray, stated: Stated) -> pa.ChunkedArray:
    """[rows] the labels of lists of one label; null for an empty list."""
    sizes = pc.list_value_length(column)
    several = int(pc.sum(pc.greater(sizes, 1)).as_py() or 0)
    if several:
        raise stated.ambiguous(
            f"lists of several labels in {several:,} rows",
            "must be one label for classification",
            f"set {setting(f'{stated.key}.kind', 'multi_label')}",
        )
    lists = one_array(column)
    flat, filled = lists.flatten(), np.asarray(pc.fill_null(pc.equal(lists.value_lengths(), 1), False))
    places = pa.array(np.where(filled, np.cumsum(filled) - 1, 0), mask=~filled)
    return pa.chunked_array([flat.take(places)])


def _with_whole_numbers(columns: Given, stated: Stated, notes: list[str]) -> Given:
    """The columns with 1 in place of 1.0, where every label is written with this fraction: pandas does so where a row
    has no label. A text column with 401 and 401.0 has two labels."""
    texts = {split: names(column) for split, column in columns.items() if is_text(column.type)}
    pure, mixed = set[str](), set[str]()
    for split, text in texts.items():
        values = {*distinct(text)}
        fractions = {value for value in values if re.fullmatch(WHOLE, value)}
        pure |= {split} if fractions and fractions == values else set()
        twins = sorted(value for value in fractions if re.sub(WHOLE, r"\1", value) in values)
        if fractions and fractions != values:
            mixed.add(split)
        if twins:
            number = re.sub(WHOLE, r"\1", twins[0])
            notes.append(f"{number} and {twins[0]} are different labels, because {stated.column} is text")
    as_known = any(re.fullmatch(WHOLE, name) for name in stated.known)
    if pure and not mixed and not as_known:
        notes.append(f"the labels in {stated.column} are whole numbers that are written with a fraction: 1.0 is 1")
        return {split: whole(texts[split]) if split in pure else column for split, column in columns.items()}
    if any(pa.types.is_floating(column.type) for column in columns.values()):
        notes.append(f"the labels in {stated.column} are numbers with a fraction: 1.0 is 1")
    return columns


def without_labels(columns: Given, stated: Stated, notes: list[str]) -> Given:
    """The columns with null in place of -1, a hyphen, nan or the like, where these stand for a missing label."""
    counted = counts_of(columns)
    known = {name.strip().casefold() for name in (*stated.known, *stated.classes)}
    nothing = [name for name in WITHOUT if name not in known]
    if any(len(value) == 1 and not value.isalnum() and value != "-" for value in counted):
        nothing = [name for name in nothing if name != "-"]  # + and - are labels
    nothing += [name for name in (r"\n", *ERRORS) if name not in known]
    given = [value for value in counted if value.casefold() not in (*NOT_A_NUMBER, *nothing)]
    if given and all(re.fullmatch(PLAIN, value) for value in given):
        nothing += [name for name in NOT_A_NUMBER if name not in known]
    codes = [value for value in counted if re.fullmatch("-(1|9+|100)", value)]
    code = codes[0] if len(codes) == 1 else "-1"
    if _is_missing(counted, code, stated):
        nothing.append(code)
    found, total = set[str](), 0
    for split, column in columns.items():
        if not is_text(column.type) and not is_number(column.type):
            continue
        text = names(column)
        flags = pc.fill_null(pc.is_in(pc.utf8_lower(text), pa.array(nothing, pa.string())), False)
        if not pc.any(flags).as_py():
            continue
        found |= {*distinct(pc.filter(text, flags))}
        total += int(pc.sum(flags).as_py())
        columns = columns | {split: pc.if_else(flags, pa.scalar(None, pa.string()), text.cast(pa.string()))}
    if found:
        shown = " or ".join(sorted(found))
        notes.append(f"{total:,} rows whose {stated.column} is {shown} have no label")
    return columns


def without_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of numbers [rows] with null in place of NaN, NA, `\\N`, #N/A and the like."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.fill_null(pc.is_nan(column), False), pa.scalar(None, column.type), column)
    if not is_text(column.type):
        return column
    nothing = pa.array([*NOT_A_NUMBER, *ERRORS, *WITHOUT, r"\n"], pa.string())
    lower = pc.utf8_lower(pc.utf8_trim(column.cast(pa.string()), characters=AROUND))
    return pc.if_else(pc.fill_null(pc.is_in(lower, nothing), False), pa.scalar(None, column.type), column)


def _is_missing(counted: Mapping[str, int], code: str, stated: Stated) -> bool:
    """Whether a number below 0 stands for no label: beside 0, 1, 2 ... or 1, 2, 3 ..., if it is rare."""
    others = {value: count for value, count in counted.items() if value != code and value.lower() not in WITHOUT}
    counting = [{*map(str, range(first, first + len(others)))} for first in (0, 1)]
    if code in stated.known or {*others} not in counting or len(others) < 2:
        return False
    rare = len(others) > 2 and counted[code] < MINORITY * min(others.values())
    if code not in counted or (rare if not stated.known else len(stated.known) == len(others)):
        return True
    numbers = sorted(map(int, others))
    got = f"{code} in {counted[code]:,} rows, beside {', '.join(map(str, numbers))}"
    if stated.outputs and not stated.listed:
        names_of = ", ".join(stated.outputs[:20])
        raise stated.ambiguous(
            got,
            f"{code} may be a label, or stand for rows without one, and the teacher's labels are {names_of}",
            "write these in place of the numbers, and nothing in rows without a label",
        )
    raise stated.ambiguous(
        got,
        f"{code} may be a label, or stand for rows without one; list the labels with it or without it",
        f"set {setting(f'{stated.key}.labels', [code, *map(str, numbers)])}, or "
        f"{setting(f'{stated.key}.labels', [str(number) for number in numbers])}",
    )
