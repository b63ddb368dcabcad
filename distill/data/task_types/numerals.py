"""Numbers as files write them: decimal commas, separators of thousands, and codes that only look like numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.task_type import Given, Stated, distinct, is_text
from distill.data.task_types.written import PLAIN, counts_of, names, without_numbers
from distill.runtime.quoting import setting

_COMMA = r"^[+-]?\d+,\d+$"
_POINT = r"^[+-]?\d*\.\d+$"
_GROUPED = r"^[+-]?\d{1,3}(\.\d{3})+,\d+$|^[+-]?\d{1,3}(,\d{3})+\.\d+$|^[+-]?\d{1,3}([.,]\d{3}){2,}$"
"""Numbers with separators of thousands."""


def decimal_commas(column: pa.ChunkedArray) -> bool:
    """Whether the numbers of a column of text [rows] have decimal commas: at least one has a comma, and no number has a
    point."""
    if not is_text(column.type):
        return False
    return _any_match(column, _COMMA) and not _any_match(column, _POINT)


def _any_match(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether some texts [rows] have this form."""
    return bool(pc.any(pc.match_substring_regex(names(column), pattern)).as_py())


def with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """[rows] numbers with decimal points in place of decimal commas."""
    text = pc.utf8_trim_whitespace(column)
    return pc.if_else(
        pc.fill_null(pc.match_substring_regex(text, _COMMA), False), pc.replace_substring(text, ",", "."), text
    )


def verdicts_as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """[rows] 1 for true and 0 for false, which are booleans or texts; any other column as it is."""
    if pa.types.is_boolean(column.type):
        return pc.cast(column, pa.int64())
    if not is_text(column.type):
        return column
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    known = pc.is_in(lower, pa.array(["true", "false", ""]))
    if not pc.all(pc.or_(known, pc.is_null(lower))).as_py():
        return column
    number = pc.if_else(
        pc.equal(lower, "true"), 1, pc.if_else(pc.equal(lower, "false"), 0, pa.scalar(None, pa.int64()))
    )
    return pa.chunked_array([number.combine_chunks()])


def is_code(column: pa.ChunkedArray, stated: Stated) -> bool:
    """Whether texts [rows] that look like numbers are codes: some begin with a 0, as `005.74` and `007`, or two texts
    are the same number, as `1.1` and `1.10`.

    Raises:
        ConfigError: if few of many fractions are such pairs: one number may be written in two ways.
    """
    if not is_text(column.type):
        return False
    values = [value for value in distinct(names(column)) if re.match(PLAIN, value)]
    if any(re.match(r"[+-]?0\d", value) for value in values):
        return True
    written: dict[float, str] = {}
    twins = [(other, value) for value in values if (other := written.setdefault(float(value), value)) != value]
    signs = {pair: "+-" if float(pair[0]) == 0 else "+" for pair in twins}
    twins = [pair for pair in twins if pair[0].lstrip(signs[pair]) != pair[1].lstrip(signs[pair])]
    if twins and 10 * len(twins) < len(written) and any(number % 1 for number in written):
        one, other = twins[0]
        raise stated.ambiguous(
            f"{one} and {other}",
            "they may be one number, or two codes",
            f"set {setting(f'{stated.key}.kind', 'regression')}, or {setting(f'{stated.key}.kind', 'classification')}",
        )
    return bool(twins)


def read_numbers(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """The columns of numbers, with points in place of decimal commas, and notes about them."""
    notes: list[str] = []
    missing = {split: without_numbers(column) for split, column in columns.items()}
    if count := sum(missing[split].null_count - column.null_count for split, column in columns.items()):
        notes.append(f"{count:,} rows whose {stated.column} is no number, such as NA, have no label")
    columns = missing
    texts = {split: column for split, column in columns.items() if is_text(column.type)}
    for text in texts.values():
        _check_thousands(text, stated)
    if any(map(decimal_commas, texts.values())) and not any(_any_match(text, _POINT) for text in texts.values()):
        notes.append(f"the numbers in {stated.column} have decimal commas: {_example(texts.values())}")
        columns = columns | {split: with_points(text) for split, text in texts.items()}
    if not stated.ranged:
        _check_negative(columns, stated)
    return columns, notes


def _example(texts: Iterable[pa.ChunkedArray]) -> str:
    value = next(v for text in texts for v in distinct(names(text)) if re.fullmatch(_COMMA, v))
    return f"{value} is {value.replace(',', '.')}"


def _check_thousands(text: pa.ChunkedArray, stated: Stated) -> None:
    """Raise ConfigError for numbers with separators of thousands, and for commas that may be these."""
    values: Sequence[str] = distinct(names(text))
    either = _either(values, ",")
    # A point is usual before a fraction, so that only numbers that seem to lack it make three digits after it doubtful.
    if points := _either(values, "."):
        plain = [value for value in values if re.fullmatch(r"[+-]?\d+", value)]
        either = either or (points if any(abs(int(value)) >= 100 for value in plain) else [])
    grouped = next((value for value in values if re.match(_GROUPED, value)), None) or next(iter(either), None)
    if grouped is not None:
        digits = re.sub(r"[.,]", "", grouped)
        last = max(grouped.rfind("."), grouped.rfind(","))
        fraction = f"{re.sub('[.,]', '', grouped[:last])}.{grouped[last + 1 :]}"
        raise stated.ambiguous(
            f"the number {grouped!r}",
            f"it may be {fraction} or {digits}",
            "write every number with a decimal point, such as 150.0, and without separators of thousands",
        )


def _either(values: Sequence[str], mark: str) -> list[str]:
    """The numbers with this mark, if it stands before three digits in all of them, as between thousands."""
    marked = [value for value in values if re.fullmatch(rf"[+-]?\d+{re.escape(mark)}\d+", value)]
    fits = all(re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}{re.escape(mark)}\d{{3}}", value) for value in marked)
    return marked if fits else []


def _check_negative(columns: Given, stated: Stated) -> None:
    """Raise ConfigError for -1, -9, -99 or the like as the only number below 0, which may stand for no label."""
    counted = counts_of(columns)
    try:
        numbers = {float(value): count for value, count in counted.items()}
    except ValueError:
        return  # refused with its row
    below = [number for number in numbers if number < 0]
    low, high = (below or [0.0])[0], max(numbers, default=0.0)
    alone = len(below) == 1 and numbers[low] > 1 and len(numbers) > 3
    if alone and re.fullmatch(r"-(1|9+)\.0", str(low)) and high > 1 and (low == -1 or -low > high):
        raise stated.ambiguous(
            f"{low:g} in {numbers[low]:,} rows, and no other number below 0",
            "it may be a number, or stand for rows without a label; leave it empty in rows without a label, or state "
            "that it is a number",
            f"set {setting(f'{stated.key}.range', [low, high])}",
        )
