"""Tasks from disk: what is loaded, what is limited, and what is refused with file and row."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from distill import config
from distill.config import Limit
from distill.data.split_names import of_data_set
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import load_tasks
from distill.errors import ConfigError, DataError


def write(folder: Path, task: str, split: str, part: int = 0, **columns: Any) -> Path:
    file = folder / task / f"{split}-{part:05d}-of-00002.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def sentences(count: int, first: int = 0) -> list[str]:
    return [f"A grey heron counted {i} frogs." for i in range(first, first + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "cola", "train", sentence=sentences(30), label=[0, 1] * 15, idx=range(30))
    write(tmp_path, "cola", "train", 1, sentence=sentences(10), label=[1] * 10, idx=range(10))
    write(
        tmp_path,
        "cola",
        "validation",
        sentence=["a grey heron counted 9 frogs .", *sentences(11, 100)],
        label=[1, 0] * 6,
    )
    pair = {"sentence1": sentences(8), "sentence2": sentences(8)}
    scores = np.linspace(0, 5, 8, dtype=np.float32)
    write(tmp_path, "stsb", "train", **pair, label=scores)
    held = {"sentence1": sentences(8, 100), "sentence2": sentences(8)}
    write(tmp_path, "stsb", "validation", **held, label=scores)
    pair = {"premise": sentences(6), "hypothesis": sentences(6), "label": [0, 1, 2] * 2}
    write(tmp_path, "mnli", "train", **pair)
    write(tmp_path, "mnli", "validation_matched", **pair | {"premise": sentences(6, 100)})
    return tmp_path


def glue(folder: Path, *names: str, limit: Limit | None = None, seed: int = 0) -> Any:
    settings = replace(group("glue"), path=str(folder), names=list(names) or None)
    loaded = load_tasks(settings, limit or Limit(), seed)
    return loaded.tasks, loaded.coverage


@functools.cache
def group(name: str) -> config.Tasks:
    return config.load_config([f"tasks={name}"]).tasks


def test_glue_is_the_nine_tasks() -> None:
    tasks = group("glue").each
    form = {name: (len(task.labels or [0]), tuple(task.metrics or ())) for name, task in tasks.items()}
    assert form == {
        "cola": (2, ("matthews",)),
        "sst2": (2, ("accuracy",)),
        "mrpc": (2, ("f1", "accuracy")),
        "stsb": (1, ("pearson", "spearman")),
        "qqp": (2, ("f1", "accuracy")),
        "mnli": (3, ("accuracy",)),
        "qnli": (2, ("accuracy",)),
        "rte": (2, ("accuracy",)),
        "wnli": (2, ("accuracy",)),
    }
    for name, task in tasks.items():
        splits = list(task.validation) if isinstance(task.validation, dict) else ["validation"]
        assert list(task.rows) == ["train", *splits]
        assert task.hub == f"nyu-mll/glue/{name}"
        assert task.in_headline == (name != "wnli")
        assert task.kind in TASK_TYPES


def test_existing_splits_are_loaded_and_missing_ones_are_in_the_coverage(folder: Path) -> None:
    loaded, coverage = glue(folder)
    assert list(loaded) == ["cola", "stsb", "mnli"]
    assert loaded["cola"].train.column_names == ["sentence", "label"]
    chosen = loaded["cola"].development["development"]["sentence"][:]
    assert 0 < len(chosen) < 12
    # No copy of a chosen text either, nor of a validation text.
    kept = [text for text in sentences(30) + sentences(10) if text not in (*chosen, sentences(10)[-1])]
    assert loaded["cola"].train["sentence"][:] == kept
    assert list(loaded["mnli"].reported) == ["validation_matched"]
    assert loaded["stsb"].train.features["label"].dtype == "float32"
    assert len(coverage) == 9 * 2 + 1 + 1  # the training rows of the others are too few for a development split
    rows = {(row["task"], row["split"]): row for row in coverage}
    assert rows["cola", "train"] == {
        "task": "cola", "split": "train", "rows": len(kept), "official_rows": 8551, "in_headline": True,
        "limited": False, "columns": ["sentence"],
    }  # fmt: skip
    assert rows["mnli", "validation_mismatched"]["rows"] == 0
    assert rows["rte", "train"]["rows"] == 0


def test_limit_takes_a_seeded_part_of_train_and_the_same_part_of_validation(folder: Path) -> None:
    def texts(seed: int) -> tuple[list[str], list[str]]:
        limit = Limit(examples=20, validation=5)
        loaded, coverage = glue(folder, "cola", limit=limit, seed=seed)
        rows = {row["split"]: (row["rows"], row["limited"]) for row in coverage}
        assert (rows["train"], rows["validation"]) == ((20, True), (5, True))
        assert rows["development"][0] <= 5
        data = loaded["cola"]
        return data.train["sentence"][:], data.reported["validation"]["sentence"][:]

    assert texts(0) == texts(0)
    assert texts(0)[0] != texts(1)[0]
    assert texts(0)[1] == texts(1)[1]
    _, coverage = glue(folder, "cola", limit=Limit(examples=40))
    assert [row["limited"] for row in coverage] == [False] * 3


BAD = {
    "a null text": ({"sentence": ["Fine.", None], "label": [0, 1]}, "row 2: got null in sentence"),
    "an empty text": ({"sentence": ["Fine.", " \t"], "label": [0, 1]}, "row 2: got no text"),
    "text of another type": ({"sentence": [1, 2], "label": [0, 1]}, "got int64 in column sentence"),
    "a missing column": ({"sentence": ["Fine."]}, "must have label, as the training rows do"),
    "a label too large": ({"sentence": ["Fine."], "label": [2]}, "row 1: got label '2'"),
    "a label of a test set": ({"sentence": ["Fine."], "label": [-1]}, "row 1: got label '-1'"),
    "half a label": ({"sentence": ["Fine."], "label": [0.5]}, "row 1: got label '0.5'"),
    "a label in words": ({"sentence": ["Fine."], "label": ["yes"]}, "row 1: got label 'yes'; must be one of 0, 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused_with_file_and_row(folder: Path, name: str) -> None:
    columns, message = BAD[name]
    file = write(folder, "cola", "validation", **columns)
    with pytest.raises(DataError) as refused:
        glue(folder, "cola")
    assert str(file) in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 5.1])
def test_a_score_out_of_range_is_refused(folder: Path, value: float) -> None:
    pair = {"sentence1": sentences(2), "sentence2": sentences(2)}
    write(folder, "stsb", "validation", **pair, label=[1.0, value])
    with pytest.raises(DataError, match=r"row 2: got (label )?(nan|inf|-0.1|5.1).*; must be a (finite )?number"):
        glue(folder, "stsb")


def test_one_text_of_a_pair_may_be_empty_but_not_both(folder: Path) -> None:
    texts = {"sentence1": ["", "Here."], "sentence2": ["There.", ""]}
    write(folder, "stsb", "validation", **texts, label=[1.0, 2.0])
    assert glue(folder, "stsb")[0]["stsb"].reported["validation"].num_rows == 2
    write(folder, "stsb", "validation", sentence1=[""], sentence2=[" "], label=[1.0])
    with pytest.raises(DataError, match=r"row 1: got no text in sentence1 or sentence2"):
        glue(folder, "stsb")


def test_a_file_cut_short_is_refused(folder: Path) -> None:
    file = next((folder / "cola").glob("validation-*"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"parquet") as refused:
        glue(folder, "cola")
    assert str(file) in str(refused.value)


def test_settings_that_name_nothing_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"rte: got .*train-"):
        glue(folder, "rte")
    pairs = {"sentence1": sentences(40), "sentence2": sentences(40)[::-1], "label": [0, 1] * 20}
    write(folder, "rte", "train", **pairs)
    with pytest.raises(DataError, match=r"rte: got \['train'\]; must hold train-\*\.parquet and validation-\*"):
        glue(folder, "rte")
    with pytest.raises(ConfigError, match=r"tasks.names: got \['colla'\]"):
        glue(folder, "cola", "colla")
    with pytest.raises(ConfigError, match=r"tasks.path: got .*nowhere; must be a folder"):
        glue(folder / "nowhere")


def test_an_unreachable_hub_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(ConfigError, match=r"tasks.each.rte.hub: got nyu-mll/glue/rte; .*set tasks.path=DIR"):
        load_tasks(replace(group("glue"), names=["rte"]), Limit(), 0)


def test_a_task_is_in_the_headline_unless_its_settings_say_otherwise(tmp_path: Path) -> None:
    """GLUE's WNLI is not; a user's own task of the same name and rows is."""
    rows = {"sentence1": sentences(40), "sentence2": sentences(40)[::-1], "label": [0, 1] * 20}
    file = write(tmp_path, "wnli", "validation", **rows)
    write(tmp_path, "wnli", "train", **rows | {"sentence1": sentences(40, 100)})
    published, in_coverage = glue(tmp_path, "wnli")
    own = load_tasks(config.Tasks(train=str(file), name="wnli"), Limit(), 0)
    assert (published["wnli"].task.in_headline, own.tasks["wnli"].task.in_headline) == (False, True)
    assert [{row["in_headline"] for row in coverage} for coverage in (in_coverage, own.coverage)] == [{False}, {True}]


@pytest.mark.parametrize("name", ["glue", "docstrings"])
def test_smoke_stands_in_for_every_task(name: str) -> None:
    loaded = load_tasks(replace(group(name), names=None), Limit(smoke=True, examples=40), 0)
    assert list(loaded.tasks) == list(group(name).each)
    assert all(row["stand_in"] and 0 < row["rows"] <= 40 for row in loaded.coverage)
    for data in loaded.tasks.values():
        assert data.train.column_names == [*data.task.columns, "label"]
        assert len(set(data.train["label"])) == (len(data.task.labels) or 6)


def test_smoke_reads_the_files_when_there_are_some(folder: Path) -> None:
    _, coverage = glue(folder, "cola", limit=Limit(smoke=True, validation=7))
    assert [row["split"] for row in coverage] == ["train", "validation", "development"]
    assert coverage[1]["rows"] == 7
    assert "stand_in" not in coverage[0]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["test", "dev", "train"], {"train": "train", "validation": "dev", "test": "test"}),
        (["train", "valid"], {"train": "train", "validation": "valid"}),
        (["training", "testing"], {"train": "training", "test": "testing"}),
        (
            ["train", "development", "validation", "test"],
            {"train": "train", "development": "development", "validation": "validation", "test": "test"},
        ),
        (["train", "development", "test"], {"train": "train", "development": "development", "test": "test"}),
        (["train", "validation", "dev", "unsupervised"], {"train": "train", "validation": "validation"}),
        (["train", "validation_matched"], {"train": "train"}),
    ],
)
def test_splits_of_a_data_set_have_their_usual_names(names: list[str], expected: dict[str, str]) -> None:
    assert [*of_data_set(names).items()] == [*expected.items()]


def test_the_validation_rows_of_a_data_set_that_calls_them_dev_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"text": [f"The boat {n} is at the quay." for n in range(40)], "label": ["in", "out"] * 20}
    later = rows | {"text": [f"{text} Later." for text in rows["text"]]}
    stored = DatasetDict({"dev": Dataset.from_dict(later), "train": Dataset.from_dict(rows)})
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: stored)
    loaded = load_tasks(config.Tasks(hub="a/boats", revision="0" * 40), Limit(), 0).tasks["boats"]
    assert {*loaded.reported} == {"validation"}
    assert loaded.reported["validation"]["text"][:] == later["text"]
