"""Folders and files as Spark, pandas and others write them, parts that are set aside, and words without spaces."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill import config
from distill.data import corpus, documents, files
from distill.data.edits import edited, places, replaced
from distill.data.task_tables import read_unlabelled
from distill.data.tasks import TaskData, load_tasks, targets_of
from distill.data.transfer import VOCABULARY
from distill.data.unfinished import INSIDE, PLAN
from distill.errors import ConfigError


def load(file: Path | str, **settings: Any) -> tuple[TaskData, list[str]]:
    loaded = load_tasks(config.Tasks(train=str(file), **settings), config.Limit(), 0)
    (data,) = loaded.tasks.values()
    return data, loaded.notes


@pytest.mark.parametrize("several", [["label"], ["part", "label"]])
def test_columns_that_folders_are_named_by_are_those_that_pandas_wrote(several: list[str], tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"text": [f"row {n}" for n in range(8)], "label": ["a b", "c/d", None, "ä"] * 2, "part": ["x"] * 4 + ["y"] * 4}
    )
    rows.to_parquet(tmp_path / "t", partition_cols=several)
    found = files.read(str(tmp_path / "t" / "**" / "*.parquet"), "tasks.train")
    ours = found.rows.to_pandas()[[*rows]].sort_values("text", ignore_index=True)
    pd.testing.assert_frame_equal(ours, rows, check_dtype=False)
    assert found.notes[0].endswith(f"{' and '.join(several)} is from the names of the folders")


def test_a_column_of_the_files_and_folders_that_do_not_differ_are_as_they_were(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / "run=1" / f"label={name}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"text": ["x"], "label": [f"own {name}"]}), folder / "0.parquet")
    found = files.read(str(tmp_path / "**" / "*.parquet"), "tasks.train")
    assert found.rows.to_pydict() == {"text": ["x", "x"], "label": ["own a", "own b"]}
    assert found.notes == ()


def test_a_folder_is_named_by_the_files_in_it_and_marks_of_spark_are_left_out(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"text": [f"{number}"]}), tmp_path / f"part-0000{number}.snappy.parquet")
    for name in ("_SUCCESS", "_committed_17", "notes.csv"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"got the folder .*; must be files; set .*/\*\.parquet"):
        files.read(str(tmp_path), "tasks.train")
    (tmp_path / "notes.csv").unlink()
    assert files.read(str(tmp_path / "*"), "tasks.train").rows.to_pydict() == {"text": ["0", "1"]}


def test_labels_that_are_not_finished_are_said(tmp_path: Path) -> None:
    (tmp_path / INSIDE).mkdir()
    (tmp_path / INSIDE / PLAN).write_text(json.dumps({"sources": [{"units": [[1, 0, 0]] * 3}]}))
    for number, rows in enumerate(("one", "two", "three")):
        said = files.read(str(tmp_path / "*.parquet"), "tasks.train").notes if number else ()
        assert len(said) == (number > 0)
        assert all(f"only {number} of 3 files of labels are in {tmp_path}" in line for line in said)
        pq.write_table(pa.table({"text": [rows]}), tmp_path / f"{number}.parquet")
    assert files.read(str(tmp_path / "*.parquet"), "tasks.train").notes == ()
    (tmp_path / "0.parquet").rename(tmp_path / "elsewhere")
    (tmp_path / "0.parquet").symlink_to(tmp_path / "gone")
    assert "only 2 of 3 files" in files.read(str(tmp_path / "*.parquet"), "tasks.train").notes[0]


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", '{"sources": 3}', None])
def test_a_file_of_labels_that_is_none_does_not_hold_up_the_rows_beside_it(content: str | None, tmp_path: Path) -> None:
    (tmp_path / INSIDE).mkdir()
    if content is None:
        os.mkfifo(tmp_path / INSIDE / PLAN)
    else:
        (tmp_path / INSIDE / PLAN).write_text(content)
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    assert files.read(str(tmp_path / "rows.csv"), "tasks.train").notes == ()


@pytest.mark.parametrize("share", [0.012, 0.1])
def test_each_label_is_in_each_part_of_one_file(share: float, tmp_path: Path) -> None:
    """For any file: without it, a fifth to a twentieth of such files would be scored on rows of one label."""
    for salt in range(4):
        count = 1000
        rare = int(share * count)
        rows = [{"text": f"text {salt} {n}", "label": "unsafe" if n < rare else "safe"} for n in range(count)]
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data, _ = load(tmp_path / "t.jsonl")
        for rows in (data.train, *data.reported.values()):
            assert {*targets_of(rows)} == {0, 1}
        (validation,) = data.reported.values()
        assert 0.15 < len(validation) / count < 0.25


def test_a_label_of_one_text_is_learned_and_a_text_of_most_rows_is_not_what_is_scored(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": f"z{n % 3}"} for n in range(200)]
    rows += [{"text": f"alone {n}", "label": f"alone{n}"} for n in range(12)]
    rows += [{"text": "ok", "label": "z0"}] * 600
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data, _ = load(tmp_path / "t.jsonl")
    (validation,) = data.reported.values()
    assert "ok" not in validation["text"][:]
    learned = Counter(data.task.labels[number] for number in targets_of(data.train))
    assert {*learned} == {*data.task.labels}
    assert 20 < len(validation) < 70


def test_each_of_several_labels_is_in_each_part(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": ["a", *["rare"] * (n % 100 == 0), *["b"] * (n % 2)]} for n in range(700)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data, _ = load(tmp_path / "t.jsonl", kind="multi_label")
    (validation,) = data.reported.values()
    number = data.task.labels.index("rare")
    assert targets_of(data.train)[:, number].any()
    assert targets_of(validation)[:, number].any()


CHINESE = "快递三天了还没有到,请问什么时候能到?"


def test_one_letter_is_a_word_where_there_are_no_spaces() -> None:
    random = np.random.default_rng(0)
    assert [CHINESE[start:end] for start, end in places(CHINESE)][:4] == ["快", "递", "三", "天"]
    assert VOCABULARY.findall("ok 快递, 42") == ["ok", "快", "递", "42"]
    for _ in range(50):
        found = edited(CHINESE, lambda _, word: "X", random)
        kept = sum((Counter(CHINESE) & Counter(found)).values())
        assert kept >= 0.5 * len(CHINESE)
        assert " " not in found
    assert edited("the ship", lambda _, word: word.upper(), np.random.default_rng(3)).replace(" ", "").lower() in (
        "theship", "the", "ship", "shipthe",
    )  # fmt: skip


def test_a_replaced_word_keeps_the_punctuation_around_it() -> None:
    assert replaced('"snow",', (), {}, ["rain"], np.random.default_rng(0)) == '"rain",'


def test_marks_are_parts_of_words() -> None:
    hindi, other = "\u0939\u093f\u0928\u094d\u0926\u0940", "\u092d\u093e\u0937\u093e"
    assert VOCABULARY.findall(f"{hindi}, {other} 42") == [hindi, other, "42"]
    assert replaced(f"({hindi}),", (), {hindi: [other]}, ["none"], np.random.default_rng(0)) == f"({other}),"
    assert replaced("cafe\u0301.", (), {}, ["rain"], np.random.default_rng(0)) == "rain."
    assert places(f"\u201c{hindi}\u201d") == [(1, 1 + len(hindi))]


def test_only_the_word_train_marks_training_files(tmp_path: Path) -> None:
    names = ["file.txt", "constraints.txt", "training-manual.txt"]
    for name in names:
        (tmp_path / name).write_text("a text\n")
    settings = config.Corpus(kind="text", path=str(tmp_path))
    assert sorted(path.name for path in corpus.files(settings)) == sorted(names)
    for name in ("wiki_train.txt", "train-00000-of-00001.txt", "TRAIN.txt"):
        (tmp_path / name).write_text("a text\n")
        assert [path.name for path in corpus.files(settings)] == [name]
        (tmp_path / name).unlink()


def test_documents_as_other_programs_write_them(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("\ufefffirst\r\n second \r\n".encode())
    assert [*documents.of_text([tmp_path / "t.txt"])] == ["first", "second"]
    texts = ["one", "two", "one"]
    for name, kind in (("categories", pa.dictionary(pa.int8(), pa.string())), ("views", pa.string_view())):
        pq.write_table(pa.table({"text": pa.array(texts).cast(kind)}), tmp_path / f"{name}.parquet")
        assert [*documents.of_parquet([tmp_path / f"{name}.parquet"])] == texts


def test_unlabelled_rows_of_a_saved_data_set_and_of_a_word_a_row(tmp_path: Path) -> None:
    from datasets import Dataset

    texts = [f"a text {n}" for n in range(5)]
    Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "saved")
    settings = config.load_config([f"transfer.files={tmp_path / 'saved'}"])
    table = read_unlabelled(settings, per_token=False)
    assert table is not None
    assert table.rows["text"].to_pylist() == texts
    words = pd.DataFrame({"sentence_id": [0, 0, 1], "words": ["a", "boat", "snow"], "labels": ["O", "B-X", "O"]})
    words.to_csv(tmp_path / "w.csv", index=False)
    for given in (words, words.drop(columns="labels")):
        given.to_csv(tmp_path / "w.csv", index=False)
        table = read_unlabelled(config.load_config([f"transfer.files={tmp_path / 'w.csv'}"]), per_token=True)
        assert table is not None
        assert table.rows["words"].to_pylist() == [["a", "boat"], ["snow"]]
