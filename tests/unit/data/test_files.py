"""A user's own files: rows as they stand there, one message for every malformed file, memory that does not grow."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.data import delimited, files, jsonl, lines, quotes
from distill.data.files import Table, expand, read
from distill.data.separators import Dialect
from distill.data.several_types import check_types
from distill.errors import ConfigError, DataError, UserError
from distill.runtime.storage import cache

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).resolve().parents[3]
Content = bytes | Callable[[], bytes]

ROWS = [{"text": "my card", "label": 1}, {"text": "hello", "label": 0}]


def parquet(table: pa.Table | None = None, **settings: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS) if table is None else table, sink, **settings)
    return sink.getvalue().to_pybytes()


def encrypted() -> bytes:
    return b"PARE" + parquet()[4:-4] + b"PARE"


def not_utf8() -> bytes:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    return parquet(pa.table({"text": pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff"))}))


MALFORMED: dict[str, tuple[str, Content, str]] = {
    "empty": ("f.csv", b"", "got an empty file"),
    "only a BOM": ("f.csv", b"\xef\xbb\xbf", "got only blank lines"),
    "only blank lines": ("f.csv", b"\n\r\n\n", "got only blank lines"),
    "header only": ("f.csv", b"text,label", "got no rows"),
    "header and blank lines": ("f.csv", b"text,label\n\n\n", "got no rows"),
    "a column without a name": ("f.csv", b"a,,b\n1,2,3\n", r"header: got no name for column 2 of 3"),
    "a nameless column of labels": ("f.csv", b",text\n0,x\n1,y\n0,z\n", "row 3: got .0. in column 1, which"),
    "a nameless column of words": ("f.csv", b",text\nx,y\n", r"row 1: got 'x' in column 1, which has no name and"),
    "an empty row beside an index": ("f.csv", b",text\n0,x\n,\n2,y\n", "row 2: got a row without values"),
    "an index of two names": ("f.csv", b",index\n0,x\n", r"header: got no name for column 1 .*index=False"),
    "empty rows of another width": ("f.csv", b"a,b\n1,2\n,,\n3,4\n", "row 2: got 3 values; must be 2"),
    "an error after empty rows": ("f.csv", b"a,b\n1,2\n,\n,\n3,\x00\n", "row 4: got a NUL byte"),
    "rows of separators": ("f.csv", b"a,b\n,\n,\n", "got no rows"),
    "too many columns": ("f.csv", b'"a"' + b"," * 10_000 + b"\n1\n", "header: got 10,001 columns; must"),
    "two columns of one name": ("f.csv", b"text, text\n1,2\n", "header: got two columns 'text'"),
    "too few values": ("f.csv", b"a,b\n1,2\n3\n", "row 2: got 1 values; must be 2"),
    "too many values": ("f.csv", b"a,b\n1,2\n3,4\n\n5,6,7\n", "row 3: got 3 values; must be 2"),
    "too many after many lines": ("f.csv", b'a,b\n"x\ny\nz",2\n' + b"1,2\n" * 9000 + b"1\n", "row 9002: got 1 values"),
    "two separators": ("f.csv", b"a;b,c\n1;2,3\n", "columns 'a;b' and 'c', or columns 'a' and 'b,c'; .*; set"),
    "open quote, last column": ("f.csv", b'a,b\n1,2\n3,"x\n4,5\n', "row 2: got a quote that is not closed"),
    "open quote, first column": ("f.csv", b'a,b\n"x,2\n3,4\n', "row 1: got a quote that is not closed"),
    "open quote in the header": ("f.csv", b'a,"b\n1,2\n', "header: got a quote that is not closed"),
    "open quote before another": ("f.csv", b'a,b\n1,2\n3,"x\n4,"y"\n', "row 2: got text after a closing quote"),
    "quote in a quoted value": ("f.csv", b'a,b\n"say "x" now",2\n', "row 1: got text after a closing quote"),
    "NUL byte": ("f.csv", b"a,b\n1,2\n3,\x00\n", "row 2: got a NUL byte"),
    "NUL byte in the header": ("f.csv", b"a,\x00b\n1,2\n", "header: got a NUL byte"),
    "Latin-1": ("f.csv", "a,b\n1,2\n3,\xe9t\xe9\n".encode("latin-1"), "row 2: got byte 0xe9; must be UTF-8"),
    "Latin-1 in the header": ("f.csv", b"\xe9,b\n1,2\n", "header: got byte 0xe9"),
    "a cut character": ("f.csv", "a\n1\né".encode()[:-1], "row 2: got byte 0xc3"),
    "UTF-16": ("f.csv", "a,b\n1,2\n".encode("utf-16"), "got UTF-16 text; must be UTF-8"),
    "UTF-16, big endian": ("f.csv", b"\xfe\xff" + "a,b\n".encode("utf-16-be"), "got UTF-16 text"),
    "UTF-16 without a BOM": ("f.csv", "a,b\n1,2\n".encode("utf-16-le"), "header: got a NUL byte"),
    "UTF-32": ("f.csv", "a,b\n1,2\n".encode("utf-32"), "got UTF-32 text"),
    "workbook named .csv": ("f.csv", b"PK\x03\x04\x14\x00", "got a zip file or an Excel workbook.*export"),
    "old workbook named .csv": ("f.csv", b"\xd0\xcf\x11\xe0\xa1\xb1", "got an old Excel workbook"),
    "gzip named .csv": ("f.csv", gzip.compress(b"a,b\n1,2\n"), "got a gzip file; .*add .gz"),
    "parquet named .csv": ("f.csv", parquet, "got a parquet file.*name it .parquet"),
    "pointer of Git LFS": ("f.csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "pointer named .parquet": ("f.parquet", b"version https://git-lfs.github.com/v1\n", "got a pointer of Git LFS"),
    "pointer named .gz": ("f.csv.gz", b"version https://git-lfs.github.com/spec/v1\n", "got a pointer of Git LFS"),
    "web page named .arrow": ("f.arrow", b"<!DOCTYPE html>\n", "got a web page; must be a file of rows"),
    "web page": ("f.csv", b"\n\n<!DOCTYPE html>\n<html>\n", "got a web page; must be .*; download the file itself"),
    "web page named .jsonl": ("f.jsonl", b"<html><body>\n", "got a web page"),
    "PDF named .jsonl": ("f.jsonl", b"%PDF-1.7\n", "got a PDF"),
    "not gzip": ("f.csv.gz", b"a,b\n1,2\n", "must be a whole gzip file"),
    "cut gzip": ("f.csv.gz", gzip.compress(os.urandom(4000).hex().encode())[:-900], "must be a whole gzip file"),
    "wrong bytes in gzip": ("f.csv.gz", gzip.compress(b"a\n1\n" * 99)[:12] + b"\xff" * 30, "a whole gzip file"),
    "gzip of nothing": ("f.csv.gz", gzip.compress(b""), "got an empty file"),
    "long line": ("f.csv", b"a,b\n1,2\n3," + b"x" * lines.LONGEST, "row 2: got a line of 8,388,608 characters"),
    "long value": ("f.csv", b'a,b\n"' + b"x,y\n" * (lines.LONGEST // 4 + 9), "row 1: got a value of more than"),
    "JSON, empty": ("f.jsonl", b"", "got an empty file"),
    "JSON, blank": ("f.jsonl", b"\n \n", "got no rows"),
    "JSON, a cut line": ("f.jsonl", b'{"a": 1}\n{"a": \n', "row 2: got broken JSON"),
    "JSON, single quotes": ("f.jsonl", b"{'a': 1}\n", "row 1: got broken JSON"),
    "JSON, two objects in a line": ("f.jsonl", b'{"a": 1} {"a": 2}\n', r"row 1: got broken JSON \(Extra data"),
    "JSON, indented": ("f.jsonl", b'{\n  "a": 1\n}\n', "row 1: got broken JSON"),
    "JSON, a line is a list": ("f.jsonl", b'{"a": 1}\n["x", 1]\n', r'row 2: got \["x", 1\]; must be a JSON object'),
    "JSON, array in .jsonl": ("f.jsonl", b'[\n{"a": 1},\n{"a": 2}]', "got an array of objects; .*name it .json"),
    "JSON, a line is a text": ("f.ndjson", b'"x"\n', 'row 1: got "x"; must be a JSON object'),
    "JSON, a line is null": ("f.jsonl", b"null\n", "row 1: got null; must be a JSON object"),
    "JSON, array of texts": ("f.json", b'[{"a": 1}, "x"]', 'row 2: got "x"; must be a JSON object'),
    "JSON, array is not closed": ("f.json", b'[{"a": 1},\n {"a": 2}\n', "row 3: got 'the end of the file' after"),
    "JSON, array without a comma": ("f.json", b'[{"a": 1} {"a": 2}]', "row 2: got .* must be a comma"),
    "JSON, comma at the end": ("f.json", b'[{"a": 1}, ]', "row 2: got broken JSON"),
    "JSON, text after the array": ("f.json", b'[{"a": 1}]\n[]', "row 2: got '\\[\\]' after the end"),
    "JSON, empty array": ("f.json", b"[]", "got no rows"),
    "JSON, broken in the array": ("f.json", b'[{"a": 1}, {"a": tru}]', "row 2: got broken JSON"),
    "JSON, NUL in the array": ("f.json", b'[{"a": "x"}, {"a": "\x00"}]', "row 2: got broken JSON"),
    "JSON, Latin-1": ("f.jsonl", b'{"a": "x"}\n{"a": "\xe9"}\n', "row 2: got byte 0xe9"),
    "JSON, Latin-1 in the array": ("f.json", b'[{"a": "x"}, {"a": "\xe9"}]', "row 2: got byte 0xe9"),
    "JSON, infinity": ("f.json", b'[{"a": -Infinity}]', "row 1: got -Infinity"),
    "JSON, 5000 digits": ("f.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n", "row 1: got broken JSON .*digits"),
    "JSON, half a character": ("f.jsonl", b'{"a": "x"}\n{"a": "\\ud800"}\n', "row 2: got a value of column 'a'"),
    "JSON, deep": ("f.jsonl", b'{"a": ' + b"[" * 200_000 + b"\n", "row 1: got lists in lists"),
    "JSON, no keys": ("f.jsonl", b"{}\n{}\n", "row 1: got 0 different keys"),
    "JSON, an empty key": ("f.jsonl", b'{"": 1}\n', "got no name for column 1"),
    "JSON, values as keys": (
        "f.jsonl", b"".join(b'{"id%d": 1}\n' % i for i in range(1001)), "row 1: got 1,001 different keys",
    ),
    "parquet, empty": ("f.parquet", b"", "got an empty file"),
    "parquet, cut": ("f.parquet", lambda: parquet()[:-20], "must be a whole parquet file"),
    "parquet, first bytes only": ("f.parquet", b"PAR1", "must be a whole parquet file"),
    "parquet, damaged": ("f.parquet", lambda: parquet()[:4] + b"\xff" * 40 + parquet()[44:], "must be a whole parquet"),
    "parquet, encrypted": ("f.parquet", encrypted, "got an encrypted file.*decrypt"),
    "parquet, a CSV": ("f.parquet", b"a,b\n1,2\n", "must be a parquet file"),
    "parquet, no rows": ("f.parquet", lambda: parquet(pa.table({"a": pa.array([], pa.string())})), "got no rows"),
    "parquet, no columns": ("f.parquet", lambda: parquet(pa.table({})), "got no columns"),
    "parquet, two columns of one name": (
        "f.parquet", lambda: parquet(pa.table([["x"], ["y"]], names=["a", "a"])), "got two columns 'a'",
    ),
    "parquet, not UTF-8": ("f.parquet", not_utf8, "row 2: got .*must be UTF-8"),
}  # fmt: skip
"""Case -> (name of the file, its content, what the message contains after the file's name)."""


def write(path: Path, content: Content) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content())
    return path


def load(path: Path, separator: str | None = None) -> Table:
    return read(str(path), "tasks.train", separator)


@pytest.mark.quick(22)
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_file_is_refused_with_one_message(case: str, tmp_path: Path) -> None:
    name, content, expected = MALFORMED[case]
    path = write(tmp_path / name, content)
    begin = time.process_time()
    with pytest.raises(DataError) as caught:
        load(path)
    (message,) = caught.value.messages
    assert time.process_time() - begin < 5, "the time grows faster than the file"
    assert re.match(rf"{re.escape(str(path))}(, rows? [\d to]+|, header)?: got .+; .*must .+; .+", message)
    assert re.search(expected, message), message
    assert "\n" not in message
    assert len(message) - len(str(path)) < 400
    assert not list((tmp_path / "cache" / "tables").iterdir())  # neither an entry nor a temporary file


SEVERAL_TYPES: dict[str, tuple[bytes, str]] = {
    "text and number": (b'{"a": "x"}\n{"a": 1}\n', "row 2: got 1 in column 'a'; must be text"),
    "number and text": (b'{"a": 1}\n{"b": 2}\n{"a": "x"}\n', 'row 3: got "x" .* must be a number'),
    "text after many numbers": (b'{"a": 1}\n' * 9000 + b'{"a": "x"}\n', 'row 9001: got "x" in'),
    "number after many texts": (b'{"a": "x"}\n' * 9000 + b'{"a": 1}\n', "row 9001: got 1 in"),
    "number and boolean": (b'{"a": 1}\n{"a": true}\n', "row 2: got true in column 'a'"),
    "text and list": (b'{"a": "x"}\n{"a": ["x"]}\n', r"row 2: got \[\"x\"\] in column 'a'"),
    "lists of two types": (b'{"a": ["x"]}\n{"a": [1]}\n', r"row 2: got \[1\] .* must be a list of"),
    "mixed list": (b'{"a": []}\n{"a": ["x", 1]}\n', "row 2: got a value of column 'a' that cannot"),
    "objects of two types": (b'{"a": {"b": 1}}\n{"a": {"b": "x"}}\n', "row 2: got .* must be an object of the same"),
    "a large integer": (b'{"a": 1}\n{"a": 99999999999999999999}\n', "row 2: got a value of column"),
    "integers beyond a float": (b'{"a": 9007199254740993}\n{"a": 0.5}\n', "rows? .*column 'a'"),
}
"""Case -> (JSON lines, what the message contains for whoever uses the column)."""


@pytest.mark.parametrize("case", SEVERAL_TYPES)
def test_values_of_several_types_are_text_that_nobody_uses(case: str, tmp_path: Path) -> None:
    content, expected = SEVERAL_TYPES[case]
    table = load(path := write(tmp_path / "f.jsonl", content))
    values = [json.loads(line).get("a") for line in content.splitlines()]
    expected_text = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    assert table.rows["a"].to_pylist() == expected_text
    assert f"{path}: values of several types in a are read as text" in table.notes
    check_types(table.rows, ("b",))
    with pytest.raises(DataError) as caught:
        check_types(table.rows.slice(1).take([0]).select(["a"]), ("a",))
    (message,) = caught.value.messages
    assert re.match(rf"{re.escape(str(path))}, rows? [\d to]+: got .+; .*must .+; .+", message)
    assert re.search(expected, message), message


def test_several_types_in_one_of_several_files(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", b'{"a": "x", "b": 1}\n{"a": "y", "b": 2}\n')
    two = write(tmp_path / "two.jsonl", b'{"a": "x", "b": 3}\n{"a": 5, "b": 4}\n')
    rows = read([str(one), str(two)], "tasks.train").rows
    assert rows.to_pylist() == [{"a": a, "b": b} for a, b in zip(("x", "y", "x", "5"), range(1, 5), strict=True)]
    check_types(rows, ("b",))
    with pytest.raises(DataError, match=r"two\.jsonl, row 2: got 5 in column 'a'; must be text"):
        check_types(rows, ("a",))


SETTINGS: dict[str, tuple[str, str | None, str]] = {
    "missing": ("no.csv", None, "which does not exist"),
    "home": ("~/no.csv", None, "~ is not expanded"),
    "folder": ("folder", None, r"the folder .*; set tasks.train=FILE$"),
    "glob": ("no*.csv", None, "matches no file"),
    "glob of a folder": ("fold*", None, "matches no file"),
    "workbook": ("f.xlsx", None, "export its sheet as CSV"),
    "zip": ("f.zip", None, "; decompress it"),
    "no extension": ("plain", None, "must end with .csv"),
    "compressed parquet": ("f.parquet.gz", None, "decompress it"),
    "unknown protocol": ("nosuch://a/b.csv", None, "Protocol not known"),
    "missing URL": ("memory://no/b.csv", None, "there is no file"),
    "glob of a URL": ("memory://no/*.csv", None, "there is no file"),
    "long separator": ("f.txt", "::", r"got '::'; must be comma, .*; set tasks\.separator=semicolon$"),
    "no separator": ("f.txt", "", "tasks.separator: got ''"),
    "quote": ("f.txt", '"', "tasks.separator: got"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_wrong_setting_is_refused_with_one_message(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, separator, expected = SETTINGS[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("f.xlsx", "f.zip", "plain", "f.parquet.gz", "f.txt"):
        write(tmp_path / name, b"a,b\n1,2\n")
    with pytest.raises(ConfigError) as caught:
        read(path, "tasks.train", separator)
    (message,) = caught.value.messages
    assert re.match(r"tasks\.\w+: got .+; must .+; .+", message)
    assert re.search(expected, message), message


@pytest.mark.parametrize("paths", ["", [], [""], [1]])
def test_no_file_is_refused(paths: Any) -> None:
    with pytest.raises(ConfigError, match=r"tasks\.test: got .*; must be a file"):
        expand(paths, "tasks.test")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec.core

    def missing(url: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(ConfigError, match=r"tasks\.train: got s3://a/b.csv; .*Install s3fs.*; pip install"):
        expand("s3://a/b.csv", "tasks.train")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the user may open every file")
def test_file_without_rights_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", b"a\n1\n")
    path.chmod(0)
    with pytest.raises(DataError, match=r"f\.csv: got .*Permission denied.*must be a file that can be read"):
        load(path)


CSV = {
    "plain": (b"text,label\nx,1\ny,2\n", [("x", "1"), ("y", "2")]),
    "BOM": (b"\xef\xbb\xbftext,label\nx,1\n", [("x", "1")]),
    "BOM and quotes": (b'\xef\xbb\xbf"text","label"\nx,1\n', [("x", "1")]),
    "no newline at the end": (b"text,label\nx,1", [("x", "1")]),
    "carriage returns": (b"text,label\r\nx,1\r\n\r\ny,2\r\n", [("x", "1"), ("y", "2")]),
    "old Mac": (b"text,label\rx,1\ry,2\r", [("x", "1"), ("y", "2")]),
    "newline in quotes": (b'text,label\n"a\nb\r\n\nc",1\ny,2\n', [("a\nb\r\n\nc", "1"), ("y", "2")]),
    "separator in quotes": (b'text,label\n"a, b",1\n', [("a, b", "1")]),
    "quote in quotes": (b'text,label\n"a ""b"" c",""""\n', [('a "b" c', '"')]),
    "quote in the middle": (b'text,label\n5" disk,1\n', [('5" disk', "1")]),
    "empty and NA are text": (b'text,label\n,\nNA,null\nnan,""\n', [("", ""), ("NA", "null"), ("nan", "")]),
    "spaces are kept in values": (b" text , label\n x , 1\n", [(" x ", " 1")]),
    "numbers are text": (b"text,label\n007,1.50\n1e5,True\n", [("007", "1.50"), ("1e5", "True")]),
    "unicode": ("text,label\nκόσμε 🏦\u2028x,é\n".encode(), [("κόσμε 🏦\u2028x", "é")]),
}


@pytest.mark.parametrize("case", CSV)
@pytest.mark.parametrize("name", ["f.csv", "F.CSV", "f.csv.gz"])
def test_csv_is_text_as_it_stands(case: str, name: str, tmp_path: Path) -> None:
    content, expected = CSV[case]
    table = load(write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content))
    assert table.rows.schema == pa.schema([("text", pa.string()), ("label", pa.string())])
    assert [tuple(row.values()) for row in table.rows.to_pylist()] == expected


@pytest.mark.parametrize("order", ["as it was", "shuffled", "from 5 on"])
def test_the_index_that_pandas_writes_is_a_column(order: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": [f"word {number}" for number in range(50)], "label": ["a", "b"] * 25})
    frame = {"as it was": frame, "shuffled": frame.sample(frac=1.0, random_state=0), "from 5 on": frame[5:]}[order]
    frame.to_csv(tmp_path / "f.csv")
    table = load(tmp_path / "f.csv")
    expected = frame.reset_index().astype({"index": str}).to_dict("records")
    assert table.rows.to_pylist() == expected
    assert table.notes == (f"{tmp_path / 'f.csv'}: column 1 has no name and numbers the rows; it is named index",)


def test_empty_columns_at_the_end_of_a_spreadsheet_are_left_out(tmp_path: Path) -> None:
    table = load(write(tmp_path / "f.csv", b"text;label;;\r\nx;1;;\r\ny;2;;\r\n"))
    assert table.rows.to_pylist() == [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]
    assert "2 columns without a name and values: left out" in table.notes[-1]
    with pytest.raises(DataError, match=r"f\.csv, row 2: got 'z' in a column without a name, after 2 of 3 columns"):
        load(write(tmp_path / "f.csv", b"text,label,\nx,1, \ny,2,z\n"))


def test_empty_rows_at_the_end_of_a_spreadsheet_are_left_out(tmp_path: Path) -> None:
    table = load(write(tmp_path / "f.csv", b"text;label\r\nx;1\r\n;\r\ny;2\r\n;\r\n;\r\n"))
    assert [tuple(row.values()) for row in table.rows.to_pylist()] == [("x", "1"), ("", ""), ("y", "2")]


@pytest.mark.parametrize(
    ("name", "separator"),
    [("f.tsv", None), ("f.tab", None), ("f.txt", "\t"), ("f.txt", r"\t"), ("f.csv", "\t"), ("f.tsv.gz", None)],
)
def test_tabs(name: str, separator: str | None, tmp_path: Path) -> None:
    content = b"text\tlabel\na, b\t1\n"
    table = load(write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content), separator)
    assert table.rows.to_pylist() == [{"text": "a, b", "label": "1"}]


def test_separator_is_kept_apart_in_the_cache(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", b"a;b,c\n1;2,3\n")
    assert load(path, "comma").rows.column_names == ["a;b", "c"]
    assert load(path, ";").rows.column_names == ["a", "b,c"]


NESTED: list[dict[str, Any]] = [
    {"text": "x", "tags": ["B-A", "O"], "ids": [1, 2], "scores": [1, 0.5], "answers": {"text": ["a"], "start": [3]}},
    {"text": None, "tags": [], "ids": None, "scores": [0.25], "answers": {"text": [], "start": []}},
]


@pytest.mark.parametrize("name", ["f.jsonl", "f.ndjson", "f.json", "f.jsonl.gz"])
def test_json_lines_are_typed(name: str, tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(row).encode() for row in NESTED)
    table = load(write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content))
    assert table.rows.to_pylist() == NESTED
    types = {"text": pa.string(), "tags": pa.list_(pa.string()), "scores": pa.list_(pa.float64())}
    assert {name: table.rows.schema.field(name).type for name in types} == types
    assert table.where(1).endswith(f"{name}, row 2")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("count", [1, 20_000])
def test_json_array(indent: int | None, count: int, tmp_path: Path) -> None:
    rows = [{"text": f"κ {i} ]}},{{[" * 3, "label": i} for i in range(count)]
    content = b"\xef\xbb\xbf \n" + json.dumps(rows, indent=indent, ensure_ascii=False).encode() + b"\n"
    assert load(write(tmp_path / "f.json", content)).rows.to_pylist() == rows


def test_long_object_of_a_json_array(tmp_path: Path) -> None:
    rows = [{"text": "ab" * 200_000}, {"text": "x"}]
    assert load(write(tmp_path / "f.json", json.dumps(rows).encode())).rows.to_pylist() == rows


def test_json_keys_may_be_missing_and_numbers_become_floats(tmp_path: Path) -> None:
    content = b'{"a": 1}\n{"b": "x", "a": 0.5}\n{}\n'
    table = load(write(tmp_path / "f.jsonl", content)).rows
    assert table.to_pylist() == [{"a": 1.0, "b": None}, {"a": 0.5, "b": "x"}, {"a": None, "b": None}]
    assert table.schema.types == [pa.float64(), pa.string()]


def test_nan_in_json_is_no_value(tmp_path: Path) -> None:
    """Python writes it, and pandas has it in place of a missing text too."""
    rows = [{"a": 1.5, "b": "x", "c": [0.5]}, {"a": np.nan, "b": np.nan, "c": [np.nan]}]
    columns = {name: [row[name] for row in rows] for name in "abc"}
    contents = {"f.jsonl": "\n".join(map(json.dumps, rows)), "f.json": json.dumps(rows), "g.json": json.dumps(columns)}
    for name, content in contents.items():
        table = load(write(tmp_path / name, content.encode())).rows
        assert table.to_pylist() == [rows[0], {"a": None, "b": None, "c": [None]}]
    # In an object it stays, as in parquet: a probability that is left out would be 0.
    objects = load(write(tmp_path / "h.jsonl", b'{"a": {"x": 0.5}}\n{"a": {"x": NaN}}\n')).rows["a"]
    assert np.isnan(objects.to_pylist()[1]["x"])


def test_types_of_json_are_those_of_all_rows(tmp_path: Path) -> None:
    """The first batch has integers, nulls and empty lists only, and lacks a key."""
    first, last = {"a": 1, "b": None, "c": []}, {"a": 0.5, "b": "x", "c": ["y"], "d": True}
    content = b"".join(json.dumps(row).encode() + b"\n" for row in [first] * lines.ROWS + [last])
    table = load(write(tmp_path / "f.jsonl", content)).rows
    assert table.schema.types == [pa.float64(), pa.string(), pa.list_(pa.string()), pa.bool_()]
    assert table.slice(lines.ROWS).to_pylist() == [last]
    assert table.slice(0, 1).to_pylist() == [{"a": 1.0, "b": None, "c": [], "d": None}]


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    columns = {
        "text": pa.array(["x", None, "é"], pa.large_string()),
        "label": pa.array(["a", "b", "a"]).dictionary_encode(),
        "number": pa.array([1, 2, 3], pa.int8()),
        "score": pa.array([1.5, float("nan"), 2], pa.float32()),
        "tags": pa.array([["O"], [], None], pa.list_(pa.string())),
        "flag": pa.array([True, False, None]),
    }
    given = pa.table(columns)
    table = load(write(tmp_path / "f.parquet", lambda: parquet(given, row_group_size=2))).rows
    assert table.column("label").combine_chunks().equals(pa.array(["a", "b", "a"]))
    others = [name for name in columns if name not in ("label", "score")]
    assert table.select(others).equals(given.select(others))
    assert str(table["score"].to_pylist()) == "[1.5, nan, 2.0]"


def test_an_empty_row_group_does_not_make_a_file_be_read_row_by_row(tmp_path: Path) -> None:
    given = pa.table({"text": [f"ticket {n}" for n in range(100)]})
    with pq.ParquetWriter(tmp_path / "f.parquet", given.schema) as writer:
        for part in (given, given.slice(0, 0), given):
            writer.write_table(part)
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert [metadata.row_group(n).num_rows for n in range(3)] == [100, 0, 100]
    found = load(tmp_path / "f.parquet").rows["text"]
    assert found.to_pylist() == 2 * given["text"].to_pylist()
    assert found.num_chunks < 5  # one for each part that is read


def test_several_files_are_joined_and_rows_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "part-2.csv", b"b,a\n3,4\n")
    write(tmp_path / "part-1.csv", b"a,b\n1,2\n5,6\n")
    write(tmp_path / "more.tsv", b"a\tb\n7\t8\n")
    table = read(["more.tsv", "part-*.csv", "part-1.csv"], "tasks.train")
    assert (table.files, table.starts) == (("more.tsv", "part-1.csv", "part-2.csv"), (0, 1, 3))
    assert table.rows["a"].to_pylist() == ["7", "1", "5", "4"]
    places = [table.where(row) for row in range(4)]
    assert places == ["more.tsv, row 1", "part-1.csv, row 1", "part-1.csv, row 2", "part-2.csv, row 1"]


def test_name_with_the_characters_of_a_glob_is_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "f[1].csv", b"a\n1\n")
    assert expand(str(path), "tasks.train") == [str(path)]
    (tmp_path / "deep" / "er").mkdir(parents=True)
    deep = write(tmp_path / "deep" / "er" / "g.csv", b"a\n1\n")
    assert expand(str(tmp_path / "deep" / "**" / "*.csv"), "tasks.train") == [str(deep)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (b'{"a": 1}', b'{"b": 1}', r"two\.jsonl: got columns \['b'\]; must be \['a'\], as in .*one\.jsonl"),
        (b'{"a": 1}', b'{"a": "x"}', r"two\.jsonl: got string in column 'a'; must be int64"),
        (b'{"a": 9007199254740993}', b'{"a": 0.5}', r"one\.jsonl: got values of other types than in the other files"),
    ],
)
def test_files_that_do_not_fit_are_refused(first: bytes, second: bytes, expected: str, tmp_path: Path) -> None:
    files = [write(tmp_path / "one.jsonl", first), write(tmp_path / "two.jsonl", second)]
    with pytest.raises(DataError, match=expected) as caught:
        read([str(file) for file in files], "tasks.train")
    assert len(caught.value.messages) == 1


def test_types_of_several_files_are_widened(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "one.jsonl", b'{"a": 1, "b": []}'),
        write(tmp_path / "two.jsonl", b'{"b": ["x"], "a": 0.5}'),
    ]
    table = read([str(file) for file in files], "tasks.train").rows
    assert table.to_pylist() == [{"a": 1.0, "b": []}, {"a": 0.5, "b": ["x"]}]


def test_urls(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    for name, content in {
        "b.csv": b"a\n2\n",
        "a.csv": b"a\n1\n",
        "c.jsonl": b'{"a": "3"}\n',
        "d.parquet": parquet(),
    }.items():
        system.pipe_file(f"/files/{name}", content)
    table = read(["memory://files/*.csv", "memory://files/c.jsonl"], "tasks.train")
    assert table.rows["a"].to_pylist() == ["1", "2", "3"]
    assert [Path(file).name for file in table.files] == ["a.csv", "b.csv", "c.jsonl"]
    assert read("memory://files/d.parquet", "tasks.train").rows.to_pylist() == ROWS
    system.pipe_file("/files/c.jsonl", b'{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"memory://files/c\.jsonl, row 2: got broken JSON"):
        read("memory://files/c.jsonl", "tasks.train")


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "f.parquet"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_other_rows_of_the_same_size_and_time_are_read(scheme: str, name: str, tmp_path: Path) -> None:
    """As from two versions of a data set in archives with fixed times."""
    for word in ("good", "evil"):
        table = pa.table({"text": [word]})
        content = {"f.csv": f"text\n{word}\n".encode(), "f.jsonl": f'{{"text": "{word}"}}'.encode()}.get(name)
        path = write(tmp_path / name, content or parquet(table, compression="none", use_dictionary=False))
        os.utime(path, ns=(10**18, 10**18))
        rows = read(f"{scheme}{path}", "tasks.train").rows.to_pylist()
        assert (rows, path.stat().st_mtime_ns) == ([{"text": word}], 10**18)


@pytest.mark.parametrize(("tag", "reads"), [(None, 2), ('"65920080-7"', 2), ('"%032x"', 1)])
def test_a_url_is_read_again_unless_its_file_system_states_what_changes_with_its_content(
    tag: str | None, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    system, opened = fsspec.filesystem("memory"), list[int]()
    real, number = type(system)._open, 0

    def counted(self: Any, *args: Any, **settings: Any) -> Any:
        opened.append(number)
        return real(self, *args, **settings)

    def info(self: Any, path: str, **settings: Any) -> dict[str, Any]:
        stated = {"name": path, "size": 7, "type": "file", "mtime": 1.0}
        return stated if tag is None else stated | {"ETag": tag % number if "%" in tag else tag}

    monkeypatch.setattr(type(system), "_open", counted)
    monkeypatch.setattr(type(system), "info", info)
    for number, word in enumerate(("good", "good", "evil")):
        with real(system, "/files/same.csv", "wb") as file:
            file.write(f"a\n{word}\n".encode())
        number = int(word == "evil")
        rows = read("memory://files/same.csv", "tasks.train").rows.to_pylist()
        assert rows == [{"a": word}]
    assert opened == [0] * reads + [1]


@pytest.mark.parametrize("part", ["code", "library"])
def test_rows_that_another_version_read_are_read_again(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "f.csv", b"a\ngood\n")
    load(path)
    if part == "code":
        monkeypatch.setattr("distill.runtime.storage.file_hashes.of_code", lambda folder: "another")
    else:
        monkeypatch.setattr(pa, "__version__", "0")
    monkeypatch.setattr(files.formats, "batches", lambda *args, **more: iter([pa.record_batch({"a": ["read again"]})]))
    assert load(path).rows.to_pylist() == [{"a": "read again"}]
    monkeypatch.undo()
    assert load(path).rows.to_pylist() == [{"a": "good"}]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = write(tmp_path / "f.csv", b"a\ngood\n"), files.formats.batches

    def changing(*args: Any, **settings: Any) -> Any:
        yield from real(*args, **settings)
        path.write_bytes(b"a\nevil\n")

    with monkeypatch.context() as patch:
        patch.setattr(files.formats, "batches", changing)
        with pytest.raises(DataError, match=r"f\.csv: got other rows while it was read; must not change then; wait"):
            load(path)
    assert load(path).rows.to_pylist() == [{"a": "evil"}]
    path.write_bytes(b"a\ngood\n")
    assert load(path).rows.to_pylist() == [{"a": "good"}]


def test_url_that_breaks_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.pipe_file("/files/e.csv", b"a\n1\n")

    def fails(*args: object, **settings: object) -> Any:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(type(system), "_open", fails)
    with pytest.raises(DataError, match=r"e\.csv: got .*no credentials.*; must be a file that can be read"):
        read("memory://files/e.csv", "tasks.train")


def entries(path: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_ino for entry in (path.parent / "cache" / "tables").iterdir()}


def test_file_is_parsed_once_until_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", b"a\n1\n")
    load(path)
    before = entries(path)
    assert len(before) == 1
    assert load(path).rows.to_pylist() == [{"a": "1"}]
    assert entries(path) == before
    write(path, b"a\n2\n")
    os.utime(path, ns=(1, 1))
    assert load(path).rows.to_pylist() == [{"a": "2"}]
    assert before.items() < entries(path).items()


def test_damaged_entry_is_written_again(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", b"a\nword\n")
    load(path)
    (entry,) = (tmp_path / "cache").rglob("*.arrow")
    content = entry.read_bytes()
    entry.unlink()
    entry.write_bytes(content[:-9])
    assert load(path).rows.to_pylist() == [{"a": "word"}]
    assert entry.read_bytes() == content


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["f.parquet", "f.csv.gz"])
def test_a_small_file_that_would_fill_the_disk_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count = tmp_path / name, 400_000
    if name.endswith(".parquet"):
        text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["x" * 100]))
        pq.write_table(pa.table({"text": text}), path)
    else:
        path.write_bytes(gzip.compress(b"text\n" + (b"x" * 100 + b"\n") * count))
    assert load(path).rows.num_rows == count
    (tmp_path / "cache").rename(tmp_path / "before")
    monkeypatch.setattr(files, "HARMLESS", 2**20)
    with pytest.raises(DataError, match="must have at most 200 times its own size; write it without compression"):
        load(path)
    assert not list((tmp_path / "cache" / "tables").iterdir())


def test_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with cache.using():
        load(write(tmp_path / "f.csv", b"a\n1\n"))
    assert len(list((tmp_path / "xdg" / "distill" / "tables").rglob("*.arrow"))) == 1


def test_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(tmp_path: Path) -> None:
    blocked = write(tmp_path / "blocked", b"")
    with cache.using(blocked / "cache"):
        table = load(write(tmp_path / "f.csv", b"a\n1\n"))
    assert table.rows.to_pylist() == [{"a": "1"}]


def test_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa, "OSFile", full)
    with pytest.raises(UserError, match=r": got No space left on device; must be writable.*cache.dir"):
        load(write(tmp_path / "f.csv", b"a\n1\n"))
    assert not list((tmp_path / "cache" / "tables").iterdir())


def test_batches_have_one_schema(tmp_path: Path) -> None:
    """A file whose types are known is not read twice."""
    content = b'{"a": 1}\n' * (2 * lines.ROWS)
    path = write(tmp_path / "f.jsonl", content)
    with path.open(encoding="utf-8") as file:
        assert len(list(jsonl.batches(file, "f", "lines", None))) == 2


def test_few_long_rows_are_looked_at_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHARACTERS", 20_000)
    source = io.BytesIO(b"text,label\n" + (b"x" * 10_000 + b",a\n") * 200)
    with lines.decoded(source) as text:
        batches = delimited.batches(text, "f.csv", ",", None)
        assert 0 < next(batches).num_rows < 5
        assert source.tell() < 200_000
        batches.close()


def test_few_characters_are_kept_of_rows_of_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotes, "CHARACTERS", 10_000, raising=False)
    content = "text,label\n" + ('"' + "a, b\n" * 200 + '",x\n') * 60
    with lines.decoded(io.BytesIO(content.encode())) as text:
        found = quotes._evidence(text, Dialect(","))
    assert 5 < len(found.spans) < 15


MEMORY = """
import resource, sys
from pathlib import Path
from distill.data.files import read
from distill.runtime.storage import cache
folder = Path(sys.argv[1])
within = cache.using(folder / "cache")
within.__enter__()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
read(str(folder / "small.csv"), "tasks.train")
before = peak()
rows = read(str(folder / "large.csv"), "tasks.train").rows
print(rows.num_rows, rows.nbytes // 2**20, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit there")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    row = b"1," + b"x" * 500 + b"\n"
    write(tmp_path / "small.csv", b"a,b\n" + row * 20_000)
    write(tmp_path / "large.csv", b"a,b\n" + row * 200_000)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    rows, size, grown = map(int, done.stdout.split())
    assert rows == 200_000
    assert size > 90
    assert grown < 30


SLOW = pytest.mark.slow

BOMB = """
import resource, sys
from pathlib import Path
from distill.data.files import read
from distill.errors import DataError
from distill.runtime.storage import cache
folder, name = Path(sys.argv[1]), sys.argv[2]
within = cache.using(folder / "cache")
within.__enter__()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
read(str(folder / "small.parquet"), "tasks.train")
before = peak()
try:
    read(str(folder / name), "tasks.train")
except DataError as error:
    print(peak() - before, *error.messages)
"""


def bomb(path: Path) -> None:
    if path.suffix == ".parquet":
        text = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * 900_000]))
        pq.write_table(pa.table({"text": text}), path, compression="zstd", store_schema=False)
        return
    pack, start = zlib.compressobj(1, wbits=31), b'{"data": [{"paragraphs": [' if "json" in path.name else b'text\n"'
    with path.open("wb") as file:
        file.write(pack.compress(start))
        for _ in range(24):
            file.write(pack.compress(b" " * 2**24))
        file.write(pack.flush())


@pytest.mark.quick(1)
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit there")
@pytest.mark.parametrize(
    "name",
    ["bomb.parquet", "bomb.json.gz", *(pytest.param(f"bomb.{form}.gz", marks=SLOW) for form in ("jsonl", "csv"))],
)
def test_a_small_file_that_would_fill_the_memory_is_refused(name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "small.parquet")
    bomb(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 4_000_000
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(tmp_path), name], capture_output=True, text=True, cwd=ROOT, check=True
    )
    grown, message = done.stdout.split(" ", 1)
    assert message.startswith(str(tmp_path / name))
    assert int(grown) < 300, message
