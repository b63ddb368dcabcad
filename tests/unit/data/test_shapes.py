"""JSON as libraries and annotation tools write it: rows in, typed columns out, or refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset

from distill.data.files import Table, read
from distill.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")

FRAME = pd.DataFrame({"text": ["oak", "elm", 'ash "x"\nß'], "label": ["a", "b", "a"], "size": [1.5, 2.0, 0.25]})
ROWS = FRAME.to_dict("records")


def load(path: Path) -> Table:
    return read(str(path), "tasks.train")


def content(tmp_path: Path, value: Any, name: str = "f.json") -> list[dict[str, Any]]:
    (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return list(load(tmp_path / name).rows.to_pylist())


@pytest.mark.parametrize("indent", [0, 2])
@pytest.mark.parametrize("orient", ["records", "split", "index", "columns", "table"])
def test_pandas(orient: Any, indent: int, tmp_path: Path) -> None:
    FRAME.to_json(tmp_path / "f.json", orient=orient, indent=indent)
    table = load(tmp_path / "f.json")
    assert table.rows.select(FRAME.columns.tolist()).to_pylist() == ROWS
    assert bool(table.notes) == (orient in ("index", "columns"))


@pytest.mark.parametrize("orient", ["index", "columns"])
def test_pandas_with_names_of_rows(orient: Any, tmp_path: Path) -> None:
    FRAME.set_index(pd.Index(["k1", "k2", "k3"])).to_json(tmp_path / "f.json", orient=orient)
    table = load(tmp_path / "f.json")
    assert table.rows.select(FRAME.columns.tolist()).to_pylist() == ROWS
    assert f"each object in it is a {'row' if orient == 'index' else 'column'}" in table.notes[0]


def test_datasets(tmp_path: Path) -> None:
    data = Dataset.from_pandas(FRAME)
    data.to_json(tmp_path / "f.json")
    data.to_json(tmp_path / "g.jsonl")
    (tmp_path / "h.json").write_text(json.dumps(data.to_dict()))
    assert load(tmp_path / "f.json").rows.to_pylist() == load(tmp_path / "g.jsonl").rows.to_pylist() == ROWS
    table = load(tmp_path / "h.json")
    assert table.rows.to_pylist() == ROWS
    assert "each of its lists is a column" in table.notes[0]


def test_rows_in_one_object(tmp_path: Path) -> None:
    assert content(tmp_path, {"version": 1, "data": ROWS}) == ROWS
    assert content(tmp_path, {"examples": ROWS}, "g.json") == ROWS
    assert content(tmp_path, {"text": "oak", "tags": ["a", "b"]}, "h.json") == [{"text": "oak", "tags": ["a", "b"]}]


@pytest.mark.parametrize("sizes", [(3, 1), (2, 2)])
def test_splits_in_one_object_are_a_column(sizes: tuple[int, int], tmp_path: Path) -> None:
    splits = dict(zip(("train", "Dev"), (ROWS[: sizes[0]], ROWS[: sizes[1]]), strict=True))
    expected = [{**row, "split": name} for name, rows in splits.items() for row in rows]
    assert content(tmp_path, splits) == expected
    assert "each of its lists is a split" in load(tmp_path / "f.json").notes[0]
    assert content(tmp_path, {"train": ["oak", "elm"], "test": ["a", "b"]}, "g.json") == [
        {"train": "oak", "test": "a"},
        {"train": "elm", "test": "b"},
    ]


@pytest.mark.parametrize(("before", "size"), [(1, 1234), (2, 1234), (3, 1234), (3, 12.5), (2, 1e-30), (3, 1e-30)])
def test_a_number_of_which_a_part_is_read_is_whole(before: int, size: float, tmp_path: Path) -> None:
    """Text is read in parts of 2^16 characters."""
    row = {"text": "x" * (2**16 - before - len('{"text": "", "size": ')), "size": size}
    assert content(tmp_path, row) == [row]


SPAN = {"start": 0, "end": 3, "label": "TREE"}


def test_the_rows_after_a_long_one_are_read_as_fast_as_others(tmp_path: Path) -> None:
    long, short = "x" * 2_200_000, json.dumps({"text": "a"})
    (tmp_path / "f.json").write_text(f'[{{"text": "{long}"}}, {", ".join([short] * 150_000)}]')
    began = time.monotonic()
    rows = load(tmp_path / "f.json").rows["text"]
    assert time.monotonic() - began < 20
    assert len(rows) == 150_001
    assert rows.unique().to_pylist() == [long, "a"]


def test_an_object_of_many_keys_of_which_the_last_is_there_twice_is_refused_at_once(tmp_path: Path) -> None:
    pairs = [f'"{number}": 0' for number in range(200_000)]
    (tmp_path / "f.jsonl").write_text(f"{{{', '.join([*pairs, pairs[-1]])}}}")
    began = time.monotonic()
    with pytest.raises(DataError, match="the key '199999' twice"):
        load(tmp_path / "f.jsonl")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "row",
    [
        {"text": "oak", "label": [[0, 3, "TREE"]]},
        {"text": "oak", "label": [SPAN]},
    ],
)
def test_spans_have_one_shape(row: dict[str, Any], tmp_path: Path) -> None:
    rows = [row, {"text": "none", "label": []}]
    lines = "".join(json.dumps(each) + "\n" for each in rows)
    expected = [{"text": "oak", "label": [SPAN]}, {"text": "none", "label": []}]
    assert content(tmp_path, lines, "f.jsonl") == content(tmp_path, rows) == expected


def test_spacy(tmp_path: Path) -> None:
    rows = [["oak", {"entities": [[0, 3, "TREE"]]}], ["none", {"entities": []}]]
    assert content(tmp_path, rows) == [{"text": "oak", "entities": [SPAN]}, {"text": "none", "entities": []}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": 1, "data": {"text": "oak"}, "annotations": [{"result": []}]}], "Label Studio .*; export the project"),
        ({"p": {"a": 1}, "q": {"a": 2}}, "could be columns or rows"),
        ({"columns": ["a", "b"], "data": [["x", 1], ["y"]]}, "row 2: got 1 values; must be 2"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"a": 1} x', "row 1: got broken JSON|after the end"),
        ('{"a" 1}', "must be a colon|broken JSON"),
        ({"a": json.loads("[" * 40 + "]" * 40)}, "too deep"),
        ([{"a": {f"k{n}": 1}} for n in range(1100)], "more than 1,000 different keys in objects"),
        ('{"a": [' + "1," * (1 << 23) + "1]}", "broken JSON|one object of more than"),
    ],
)
def test_refused(value: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        content(tmp_path, value)
