"""Names of classes in parquet files: those of the file's own metadata, in any form that `datasets` and pandas write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Sequence, Value

from distill.data.files import Table, read
from distill.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")

COLORS = ["red", "green", "blue"]


def load(*paths: Path) -> Table:
    return read([str(path) for path in paths], "tasks.train")


def written(path: Path, values: list[Any], feature: Any) -> Path:
    features = Features({"text": Value("string"), "color": feature})
    Dataset.from_dict({"text": [f"t{n}" for n in range(len(values))], "color": values}, features=features).to_parquet(
        path
    )
    return path


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([2, 0, -1, None], ClassLabel(names=COLORS), ["blue", "red", None, None]),
        ([[2, 0], [], None], Sequence(ClassLabel(names=COLORS)), [["blue", "red"], [], None]),
        ([[[2], [0, 1]], [[]]], Sequence(Sequence(ClassLabel(names=COLORS))), [[["blue"], ["red", "green"]], [[]]]),
        (
            [{"a": 1, "b": [0, 2]}, {"a": -1, "b": []}],
            {"a": ClassLabel(names=COLORS), "b": Sequence(ClassLabel(names=COLORS))},
            [{"a": "green", "b": ["red", "blue"]}, {"a": None, "b": []}],
        ),
        ([[{"a": 1}], []], [{"a": ClassLabel(names=COLORS)}], [[{"a": "green"}], []]),
        ([2, 0], Value("int64"), [2, 0]),
        ([1, 0], ClassLabel(num_classes=2), ["1", "0"]),
    ],
)
def test_numbers_become_names(values: list[Any], feature: Any, expected: list[Any], tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", values, feature)
    for table in (load(path), load(path)):  # the second one is from the cache
        assert table.rows["color"].to_pylist() == expected


def test_order_of_the_numbers_is_known(tmp_path: Path) -> None:
    first = written(tmp_path / "a.parquet", [2, 0], ClassLabel(names=COLORS))
    second = written(tmp_path / "b.parquet", [2, 0], ClassLabel(names=COLORS[::-1]))
    assert load(first).classes("color") == tuple(COLORS)
    both = load(first, second)
    assert both.rows["color"].to_pylist() == ["blue", "red", "red", "blue"]
    assert both.classes("color") == both.classes("text") == ()


@pytest.mark.parametrize("feature", [ClassLabel(names=COLORS), Sequence(ClassLabel(names=COLORS))])
def test_number_without_a_name_is_refused_with_its_row(feature: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", [[0], [1], [2]] if isinstance(feature, Sequence) else [0, 1, 2], feature)
    stored = pq.read_table(path)
    numbers = pa.array([[0], [1, 7], [2]] if pa.types.is_list(stored["color"].type) else [0, 7, 2])
    table = stored.set_column(1, "color", numbers.cast(stored["color"].type)).replace_schema_metadata(
        stored.schema.metadata
    )
    pq.write_table(table, path)
    with pytest.raises(DataError, match=r"row 2: got class 7 in column 'color'; must be 0 to 2"):
        load(path)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"info": []}', b'{"info": {"features": [1]}}', b"[" * 100_000])
def test_metadata_that_cannot_be_read_is_refused(content: bytes, tmp_path: Path) -> None:
    table = pa.table({"text": ["a"]}).replace_schema_metadata({b"huggingface": content})
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(DataError, match="got metadata of `datasets` that cannot be read"):
        load(tmp_path / "f.parquet")


def test_dictionaries_become_their_values(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["x", "y", "z"], "color": pd.Categorical(["red", None, "blue"], categories=COLORS)})
    frame.to_parquet(tmp_path / "f.parquet")
    assert load(tmp_path / "f.parquet").rows["color"].to_pylist() == ["red", None, "blue"]
    lists = pa.ListArray.from_arrays([0, 2, 2], pa.array(["red", "blue"]).dictionary_encode())
    pq.write_table(pa.table({"text": ["x", "y"], "color": lists}), tmp_path / "g.parquet")
    assert load(tmp_path / "g.parquet").rows["color"].to_pylist() == [["red", "blue"], []]
