"""The rows of a comparison as their writer meant them, and messages that name the command's options."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import config
from distill.cli.compare.rows import Rows, options, read_rows, targets
from distill.data.task_types import MISSING, TASK_TYPES
from distill.errors import ConfigError, DataError, UserError
from distill.models.families.head import Head
from distill.models.families.record import VECTORS
from distill.runtime.quoting import setting

COUNT = 12
CLASSES = Head(3, ("entailment", "neutral", "contradiction"), None)


def rows_of(folder: Path, head: Head | None = None, /, **columns: Any) -> Rows:
    file = folder / "pairs.jsonl"
    texts = [f"The boat {n} is at the quay." for n in range(COUNT)]
    lines = [dict(zip(["text", *columns], row, strict=True)) for row in zip(texts, *columns.values(), strict=True)]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return read_rows(str(file), config.Task(), (), head=head)


def test_rejected_rows_are_not_compared(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, label=["neutral"] * COUNT, answer=["reject", "accept", "ignore"] * 4)
    assert len(rows) == 4
    assert rows.table.where(1).endswith("pairs.jsonl, row 5")
    (note,) = rows.notes
    assert note.endswith(
        "8 of 12 rows are left out, because their answer is ignore or reject; without this column they are used"
    )


def test_rejected_rows_beside_a_column_for_each_label_are_not_compared(tmp_path: Path) -> None:
    flags = {"late": [0, 1] * 6, "wet": [1, 0, 0] * 4, "answer": ["reject", "accept", "ignore"] * 4}
    several = Head(2, ("wet", "late"), "multi_label_classification")
    rows = rows_of(tmp_path, several, **flags)
    assert len(rows) == 4
    given = targets(rows, config.Task(), TASK_TYPES["multi_label"], several)
    assert given.values is not None
    assert given.values.tolist() == [[0, 1], [0, 0]] * 2


@pytest.mark.parametrize(
    ("splits", "kept", "split"),
    [
        (["train", "dev", "test"], [3, 6, 9, 12], "test"),
        (["train", "train", "validation"], [3, 6, 9, 12], "validation"),
        (["train", "train", "train"], range(1, 13), None),
    ],
)
def test_training_rows_of_a_file_that_names_them_are_not_compared(
    splits: list[str], kept: list[int], split: str | None, tmp_path: Path
) -> None:
    """Both models would be scored on rows that they were trained on."""
    rows = rows_of(tmp_path, label=["neutral"] * COUNT, split=splits * 4)
    assert [rows.table.where(n).rpartition(" ")[2] for n in range(len(rows))] == [*map(str, kept)]
    said = f"{tmp_path}/pairs.jsonl: the 4 {split} rows of column split are used, and not the other 8"
    assert rows.notes == ((said,) if split else ())


def test_rows_without_a_gold_label_have_no_target(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, label=[0, 1, 2, -1] * 3)
    given = targets(rows, config.Task(), TASK_TYPES["classification"], CLASSES)
    assert given.values is not None
    assert np.array_equal(given.values, [0, 1, 2, MISSING] * 3)
    numbers = "the labels in the files are A's outputs: 0 is entailment, 1 is neutral, 2 is contradiction"
    assert given.notes == ("3 rows whose label is -1 have no label", numbers)


def test_what_could_be_two_things_is_refused_without_an_option_that_does_not_exist(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, label=[0, 1, -1] * 4)
    with pytest.raises(DataError) as caught:
        targets(rows, config.Task(), TASK_TYPES["classification"], CLASSES)
    assert "-1 may be a label, or stand for rows without one" in str(caught.value)
    assert "tasks." not in str(caught.value)
    assert "--labels" not in str(caught.value)


@pytest.mark.parametrize("names", ["queue", "Тема C#", "it's", ["a b", "c;d"]])
def test_settings_in_quotes_become_options(names: str | list[str]) -> None:
    with pytest.raises(ConfigError) as caught, options():
        raise ConfigError(f"compare.label: got nothing; set {setting('compare.label', names)}")
    typed = shlex.split(str(caught.value).partition("; set ")[2])
    each = [names] if isinstance(names, str) else names
    assert typed == [word for name in each for word in ("--label", name)]


def test_numbers_that_names_beside_them_contradict_are_refused(tmp_path: Path) -> None:
    """As a run refuses them: both models would score below chance."""
    rows = rows_of(tmp_path, label=[0, 1, 2] * 4, class_name=["neutral", "contradiction", "entailment"] * 4)
    with pytest.raises(UserError, match="in which 0 is beside 'neutral' in class_name"):
        targets(rows, config.Task(), TASK_TYPES["classification"], CLASSES)


@pytest.mark.parametrize(("text", "first"), [(None, "Goats Two of them."), ("text", "Two of them.")])
def test_documents_of_beir_are_compared_with_their_titles(text: str | None, first: str, tmp_path: Path) -> None:
    """As a retriever was trained to read them, and as `distill predict` does."""
    rows = [{"_id": "7", "title": "Goats", "text": "Two of them."}, {"_id": "8", "title": "", "text": "A storm."}]
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = read_rows(str(file), config.Task(text=text), (), architecture=VECTORS)
    assert found.texts(np.arange(2)) == [(first, "A storm."), ("A storm.", first)]
    said = f"{file}: title and text are read as one text, as in a folder of BEIR; --text text reads the text alone"
    assert (said in found.table.notes) == (text is None)
