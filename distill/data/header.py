"""The first lines of a table: whether its names are the first row, and whether its first row has names."""

from __future__ import annotations

import re
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types.task_type import is_text
from distill.data.task_types.written import names as label_names
from distill.errors import ConfigError, DataError
from distill.runtime.quoting import setting

_MORE = frozenset(
    "id index idx response string object str utf8 varchar text char int int32 int64 i32 i64 bigint integer float "
    "double float32 float64 f32 f64 bool boolean date timestamp".split()
) | {"open-ended response", "respondent id"}
"""Values, in small letters, of a second line below the names of some tools, besides usual names of columns."""
_COUNTED = re.compile(r"\(?\d+ rows?( affected| selected)?\.?\)?")
"""A last line in which a program says how many rows it wrote."""


class NoHeader(ConfigError):
    """A file may lack its line of names."""


def check_first_row(rows: pa.Table, usual: Collection[str], file: str) -> None:
    """Check that the first row has values, and no names below a line of something else, and that the last one is a row.

    Args:
        usual: usual names of columns, in small letters.

    Raises:
        DataError: for a first row whose values are all usual names of columns or of types, and for a last row with the
            number of rows.
    """
    end = rows.slice(max(0, rows.num_rows - 1)).to_pylist()
    last = [value for row in end for value in row.values() if value not in (None, "")]
    if len(last) == 1 < rows.num_columns and isinstance(last[0], str) and _COUNTED.fullmatch(last[0].strip()):
        raise DataError(
            f"{file}, row {rows.num_rows}: got {last[0]!r} alone, which seems to be the number of rows; must be a row; "
            "remove the last line"
        )
    first = [value for row in rows.slice(0, 1).to_pylist() for value in row.values() if value not in (None, "")]
    known = {*usual, *_MORE}
    if len(first) > 1 and all(isinstance(value, str) and value.strip().lower() in known for value in first):
        raise DataError(
            f"{file}, row 1: got {' and '.join(map(str, first[:5]))}, which seem to be names of columns; must be a "
            "row; remove this line, or the lines before it if these are the names"
        )


def check_name(name: str, table: pa.Table, key: str, chosen: str, file: str) -> None:
    """Raise NoHeader for a column with the name of one of its labels, because the header may be the first row.

    Args:
        key, chosen: the setting and its value by which the user states that there is a header.
    """
    if is_text(table[name].type) and pc.index(label_names(table[name]), name).as_py() >= 0:
        raise NoHeader(
            f"{file}: got {name!r} as the name of a column and as a label in it; must begin with a line of names; if "
            "the first line is a row, put a line of names before it; if it has the names, set "
            f"{setting(key, chosen)}"
        )
