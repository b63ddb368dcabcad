"""Rows as lines of JSON or CSV, in which no text is a formula of a spreadsheet or a command of a terminal."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

_FORMULA = re.compile(r"'*(?:[\t\r\n]|[\s\x00-\x1f\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Beginnings of texts that a spreadsheet may take for formulas, as OWASP lists them under CSV injection. A quote before
them counts as a part, so that every text can be read back by removing one quote."""
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)*|[.,]\d+)(e[+-]?\d+)?%?", re.ASCII | re.IGNORECASE)
_QUOTED = re.compile(r'[",;\t\r\n]')
"""A semicolon or a tab separates cells for spreadsheets of some languages, so that a part could become a formula."""
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON allows in a text, and that end a line for some readers, turn the direction of a terminal's line,
control it, or are no Unicode text."""


def json_line(row: Mapping[str, Any]) -> str:
    """The row as JSON on one line, which ends with a newline."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def csv_line(values: Iterable[Any]) -> str:
    """The values as cells of a CSV (RFC 4180) on one line, which ends with a newline."""
    cells = [cell(value) for value in values]
    # The standard library of Python 3.11 leaves a lone carriage return without quotes, and it ends a row for readers.
    return (
        ",".join(f'"{each.replace(chr(34), chr(34) * 2)}"' if _QUOTED.search(each) else each for each in cells) + "\n"
    )


def cell(value: Any) -> str:
    """A value as the text of a cell: a text as from `harmless`, a number in its usual form, a list or an object as
    JSON, and an empty text for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return harmless(value).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def harmless(text: str) -> str:
    """The text, with a single quote before it if a spreadsheet would take it for a formula. Numbers are not
    formulas."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def plain(value: Any) -> Any:
    """A value of a table as a value of JSON: dates and times in ISO 8601, decimal numbers as text with all digits,
    bytes in base64, and null for a float that is not a number."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value)
