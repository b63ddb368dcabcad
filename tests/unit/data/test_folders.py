"""Data sets that `datasets` saved, and Arrow files of the libraries that write them: their rows, or a refusal."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from datasets import Sequence as Items

from distill import config
from distill.data import arrow_file, folders
from distill.data.files import read
from distill.data.inside import inside
from distill.data.tasks import load_tasks
from distill.errors import DataError, UserError
from tests import tiny

TEXTS = [f"A grey heron counted {n} frogs." for n in range(60)]
FEATURES = Features({"text": Value("string"), "label": ClassLabel(names=["calm", "loud", "odd"])})


def rows(count: int = 60, first: int = 0) -> Dataset:
    numbers = range(first, first + count)
    return Dataset.from_dict(
        {"text": [f"Heron {n} was seen." for n in numbers], "label": [n % 3 for n in numbers]}, FEATURES
    )


def named(data: Dataset) -> list[dict[str, Any]]:
    names = data.features["label"].names
    return [row | {"label": names[row["label"]]} for row in data]


def test_splits_are_used_and_classes_have_their_names(tmp_path: Path) -> None:
    splits = DatasetDict({"test": rows(12, 200), "train": rows(), "validation": rows(9, 100)})
    splits.save_to_disk(str(tmp_path / "herons"), num_shards={"train": 3, "test": 1, "validation": 1})
    found = folders.tables(str(tmp_path / "herons"), "tasks.train")
    assert [*found] == ["train", "validation", "test"]
    for name, table in found.items():
        assert table.rows.to_pylist() == named(splits[name])
        assert table.classes("label") == ("calm", "loud", "odd")
    assert len(found["train"].files) == 3
    result = load_tasks(config.Tasks(train=str(tmp_path / "herons")), config.Limit(), 0)
    data = result.tasks["herons"]
    assert data.task.labels == ("calm", "loud", "odd")
    assert (len(data.train), len(data.development["validation"]), len(data.reported["test"])) == (60, 9, 12)


def test_a_data_set_without_splits_is_divided(tmp_path: Path) -> None:
    rows().save_to_disk(str(tmp_path / "herons"))
    data = load_tasks(config.Tasks(train=str(tmp_path / "herons")), config.Limit(), 0).tasks["herons"]
    assert len(data.train) + len(data.development["development"]) + len(data.reported["validation"]) == 60


def test_rows_that_were_chosen_and_sorted_keep_their_order(tmp_path: Path) -> None:
    """`datasets` writes the rows in the order that it shows."""
    chosen = rows().shuffle(seed=1).select(range(20))
    chosen.save_to_disk(str(tmp_path / "herons"))
    assert folders.tables(str(tmp_path / "herons"), "tasks.train")["train"].rows.to_pylist() == named(chosen)


def test_a_folder_of_its_own_for_each_setting(tmp_path: Path) -> None:
    for name, data in {"a": rows(), "b": rows(10, 100), "c": rows(11, 300)}.items():
        data.save_to_disk(str(tmp_path / name))
    tasks = config.Tasks(train=str(tmp_path / "a"), validation=str(tmp_path / "b"), test=str(tmp_path / "c"))
    data = load_tasks(tasks, config.Limit(), 0).tasks["a"]
    assert (len(data.development["validation"]), len(data.reported["test"])) == (10, 11)


def test_a_split_of_a_folder_with_several(tmp_path: Path) -> None:
    DatasetDict({"train": rows(), "test": rows(7, 100)}).save_to_disk(str(tmp_path / "herons"))
    table = folders.of_role(str(tmp_path / "herons"), "test", "tasks.test")
    assert table.rows.num_rows == 7
    with pytest.raises(
        DataError, match=r"got train and test; must have validation; add it, or set tasks.development to"
    ):
        folders.of_role(str(tmp_path / "herons"), "development", "tasks.development")


def test_other_splits_are_left_out_and_said(tmp_path: Path) -> None:
    DatasetDict({"train": rows(), "unsupervised": rows(7, 100)}).save_to_disk(str(tmp_path / "herons"))
    table = folders.of_training(str(tmp_path / "herons"), "tasks.train", config.Task())["train"]
    assert table.notes == (f"{table.files[0]}: the splits unsupervised of its folder are left out",)
    DatasetDict({"unsupervised": rows()}).save_to_disk(str(tmp_path / "other"))
    with pytest.raises(DataError, match="got the splits unsupervised; must have one of train, validation"):
        folders.tables(str(tmp_path / "other"), "tasks.train")


def test_empty_files_and_splits_are_left_out(tmp_path: Path) -> None:
    rows(2).save_to_disk(str(tmp_path / "few"), num_shards=2)
    last = tmp_path / "few" / "data-00001-of-00002.arrow"
    with pa.ipc.open_stream(last.read_bytes()) as stored:
        schema = stored.schema
    pa.ipc.new_stream(str(last), schema).close()
    DatasetDict({"train": rows(), "validation": rows(0), "test": rows(7)}).save_to_disk(str(tmp_path / "herons"))
    few = folders.tables(str(tmp_path / "few"), "tasks.train")["train"]
    assert few.rows.to_pylist() == named(rows(1))
    assert any("1 files without rows beside it are left out" in note for note in few.notes)
    found = folders.tables(str(tmp_path / "herons"), "tasks.train")
    assert {split: table.rows.num_rows for split, table in found.items()} == {"train": 60, "test": 7}
    assert any("the splits validation of its folder have no rows" in note for note in found["train"].notes)
    rows(0).save_to_disk(str(tmp_path / "none"))
    with pytest.raises(DataError, match="none: got no rows; must have a row at least"):
        folders.tables(str(tmp_path / "none"), "tasks.train")


def test_rows_that_the_user_names_take_the_place_of_a_split(tmp_path: Path) -> None:
    DatasetDict({"train": rows(), "test": rows(7, 100)}).save_to_disk(str(tmp_path / "herons"))
    rows(9, 200).to_json(tmp_path / "own.jsonl")
    rows(9, 200).save_to_disk(str(tmp_path / "own"))
    for own in ("own.jsonl", "own"):
        tasks = config.Tasks(train=str(tmp_path / "herons"), test=str(tmp_path / own), labels=["0", "1", "2"])
        found = folders.read([str(tasks.train)], "train", "tasks.train", tasks)
        assert [*found] == ["train"]
        assert any("the split test of its folder is not used" in note for note in found["train"].notes)
    data = load_tasks(config.Tasks(train=str(tmp_path / "herons"), test=str(tmp_path / "own")), config.Limit(), 0)
    assert len(data.tasks["herons"].reported["test"]) == 9


def test_words_and_tags(tmp_path: Path) -> None:
    features = Features(
        {"tokens": Items(Value("string")), "ner_tags": Items(ClassLabel(names=["O", "B-BIRD", "I-BIRD"]))}
    )
    words = [["the", "grey", "heron", str(n)] for n in range(40)]
    Dataset.from_dict({"tokens": words, "ner_tags": [[0, 1, 2, 0]] * 40}, features).save_to_disk(
        str(tmp_path / "birds")
    )
    data = load_tasks(config.Tasks(train=str(tmp_path / "birds")), config.Limit(), 0).tasks["birds"]
    assert data.task.kind.name == "token_classification"
    assert data.task.labels == ("O", "B-BIRD", "I-BIRD")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"_data_files": []}, "got no rows; must have a row at least"),
        ({"_data_files": [{"filename": "../other.arrow"}]}, "must be names of files in this folder"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "which does not exist"),
        ({"_data_files": 3}, "got no _data_files; must be as Dataset.save_to_disk writes it"),
        ({"_indices_files": [{"filename": "indices.arrow"}]}, "got rows in another order than in their files"),
    ],
)
def test_broken_folders_are_refused(values: dict[str, Any], expected: str, tmp_path: Path) -> None:
    rows().save_to_disk(str(tmp_path / "herons"))
    tiny.change(tmp_path / "herons" / "state.json", **values)
    with pytest.raises(UserError, match=expected):
        folders.tables(str(tmp_path / "herons"), "tasks.train")


def test_a_state_that_is_not_json(tmp_path: Path) -> None:
    rows().save_to_disk(str(tmp_path / "herons"))
    (tmp_path / "herons" / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"must be as Dataset.save_to_disk writes it"):
        folders.tables(str(tmp_path / "herons"), "tasks.train")


def test_a_pipe_in_the_place_of_a_state_is_not_waited_for(tmp_path: Path) -> None:
    DatasetDict({"train": rows()}).save_to_disk(str(tmp_path / "herons"))
    (tmp_path / "herons" / "train" / "state.json").unlink()
    os.mkfifo(tmp_path / "herons" / "train" / "state.json")
    with pytest.raises(DataError, match=r"state.json: got 'a device or a pipe'; must be as"):
        folders.tables(str(tmp_path / "herons"), "tasks.train")


TABLE = pa.table({"text": TEXTS, "label": ["calm", "loud"] * 30})


def by_ipc(path: Path, stream: bool, table: pa.Table = TABLE, **options: Any) -> Path:
    settings = pa.ipc.IpcWriteOptions(**options)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema, options=settings) as writer:
        writer.write_table(table, max_chunksize=25)
    return path


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("stream", [True, False])
def test_arrow_files(stream: bool, compression: str | None, tmp_path: Path) -> None:
    file = by_ipc(tmp_path / "rows.arrow", stream, compression=compression)
    assert read(str(file), "tasks.train").rows.to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_of_pandas(compression: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "label": pd.Categorical(["calm", "loud"] * 30)})
    frame.to_feather(tmp_path / "rows.feather", compression=compression)
    assert read(str(tmp_path / "rows.feather"), "tasks.train").rows.to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_views_of_texts_as_polars_writes_them(compression: str | None, tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string_view()), ("label", pa.list_(pa.string_view()))])
    texts = [None, "heron " * 10, *TEXTS]
    table = pa.table({"text": texts, "label": [["calm"], [], *[["loud", "odd"]] * 60]}, schema)
    file = by_ipc(tmp_path / "rows.arrow", False, table, compression=compression)
    found = read(str(file), "tasks.train").rows
    assert found.to_pydict() == table.to_pydict()
    assert found.schema.types == [pa.string(), pa.list_(pa.string())]


def test_many_views_of_one_text_are_refused_before_they_are_copied(tmp_path: Path) -> None:
    views = struct.pack("<i4sii", 1_000_000, b"aaaa", 0, 0) * 4000
    array = pa.Array.from_buffers(pa.string_view(), 4000, [None, pa.py_buffer(views), pa.py_buffer(b"a" * 1_000_000)])
    with pa.ipc.new_stream(str(tmp_path / "rows.arrow"), pa.schema([("text", pa.string_view())])) as writer:
        writer.write_batch(pa.record_batch([array], ["text"]))
    assert "MiB of rows, and more, in a smaller file" in refused(tmp_path / "rows.arrow")


def refused(file: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(str(file), "tasks.train")
    return str(caught.value)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("left", [0.2, 0.5, 0.9, 0.999])
def test_a_cut_file_is_refused(left: float, stream: bool, tmp_path: Path) -> None:
    file = by_ipc(tmp_path / "rows.arrow", stream)
    content = file.read_bytes()
    file.write_bytes(content[: int(left * len(content))])
    assert "must be a whole Arrow file; copy or write it again" in refused(file)


def test_other_content_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.arrow"
    for content in (b"", b"abc"):
        file.write_bytes(content)
        assert "must be an Arrow file; write it again" in refused(file)
    file.write_bytes(b"FEA1" + bytes(40))
    assert "got Feather of version 1; must be version 2" in refused(file)
    file.write_bytes(b"text,label\n" * 40)
    assert "must be a whole Arrow file" in refused(file)
    by_ipc(file, True, TABLE.slice(0, 0))
    assert "got no rows; must have a row at least" in refused(file)


@pytest.mark.parametrize("stream", [True, False])
def test_a_small_file_with_rows_that_would_fill_the_memory_is_refused_before_they_are_decoded(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"text": ["a" * 1_000_000] * 20, "label": ["x"] * 20})
    file = by_ipc(tmp_path / "rows.arrow", stream, table, compression="zstd")
    size = file.stat().st_size
    assert size < 100_000
    decoded = []
    monkeypatch.setattr(pa.ipc, "open_stream", decoded.append)
    with file.open("rb") as source, pytest.raises(DataError, match="MiB of rows, and more, in a smaller file"):
        list(arrow_file.batches(source, "rows.arrow", 10_000_000))
    monkeypatch.setattr(arrow_file, "HARMLESS", 6_000_000, raising=False)
    with file.open("rb") as source, pytest.raises(DataError, match="got a batch of 19 MiB; must be at most 5 MiB"):
        list(arrow_file.batches(source, "rows.arrow", None))
    monkeypatch.setattr(arrow_file, "LARGEST", 5_000_000)
    with file.open("rb") as source, pytest.raises(DataError, match="got a batch of 19 MiB; must be at most 4 MiB"):
        list(arrow_file.batches(source, "rows.arrow", None))
    assert decoded == []


def test_a_batch_that_states_a_wrong_size_is_refused(tmp_path: Path) -> None:
    table = pa.table({"text": ["a" * 1000] * 50, "label": ["x"] * 50})
    file = by_ipc(tmp_path / "rows.arrow", True, table, compression="zstd")
    content = file.read_bytes()
    place = content.index(struct.pack("<q", 25_000))
    for size in (26_000, 1 << 60):
        file.write_bytes(content[:place] + struct.pack("<q", size) + content[place + 8 :])
        assert "rows.arrow: got" in refused(file)


def test_places_outside_of_a_buffer_are_refused(tmp_path: Path) -> None:
    """Offsets of texts beyond their end, as a damaged or a malicious file may have them."""
    file = by_ipc(tmp_path / "rows.arrow", True, pa.table({"text": ["oak", "elm"] * 10, "label": ["x"] * 20}))
    content = file.read_bytes()
    place = content.index(struct.pack("<4i", 0, 3, 6, 9))
    file.write_bytes(content[:place] + struct.pack("<4i", 0, 3, 2**30, 9) + content[place + 16 :])
    assert "must be a whole Arrow file" in refused(file)


def test_many_rows_without_bytes_are_refused(tmp_path: Path) -> None:
    array = pa.nulls(2**28)
    with pa.ipc.new_stream(str(tmp_path / "rows.arrow"), pa.schema([("text", pa.null())])) as writer:
        writer.write_batch(pa.record_batch([array], ["text"]))
    assert "MiB of rows, and more, in a smaller file" in refused(tmp_path / "rows.arrow")


def test_advice_on_a_folder_names_the_files_with_rows(tmp_path: Path) -> None:
    Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "saved")
    assert "saved/*.arrow" in inside(str(tmp_path / "saved"), "tasks.train")
    (tmp_path / "other" / "en").mkdir(parents=True)
    assert inside(str(tmp_path / "other"), "tasks.train") == "tasks.train=FILE"
