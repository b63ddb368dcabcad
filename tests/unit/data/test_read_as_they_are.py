"""Columns and rows that look like a form of another tool, and are none: they are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distill import config
from distill.data import decisions, likely_labels, stated_beside
from distill.data.files import read
from distill.data.labelled import Labelled
from distill.data.listed import of_choices
from distill.data.several_types import has_several
from distill.data.splits import targets_of
from distill.data.tasks import read_task
from distill.errors import UserError
from tests.parcels import cycles, others, texts

pytestmark = pytest.mark.usefixtures("own_cache")

COUNT = 60
TEXTS, OTHERS, cycle = texts(COUNT), others(COUNT), cycles(COUNT)


def written(path: Path, **columns: list[Any]) -> str:
    """The path of a file of JSON lines with these columns."""
    rows = zip(*columns.values(), strict=True)
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    return str(path)


def load(train: str, **settings: Any) -> Labelled:
    task = config.Task(train=train, **settings)
    rows = read_task("parcels", task, config.Tasks(train=train), None, stand_in=False)
    assert rows is not None
    return rows


def test_the_headers_of_a_message_are_no_spans(tmp_path: Path) -> None:
    headers = cycle(
        {"from": ["ada"], "to": ["bo", "cy"], "labels": []}, {"from": ["bo"], "to": ["cy"], "labels": ["x"]}
    )
    places = cycle({"from": [1], "to": [2, 3], "labels": ["x"]})
    train = written(tmp_path / "train.jsonl", text=TEXTS, topic=cycle("a", "b"), headers=headers, places=places)
    assert load(train).task.labels == ("a", "b")


def test_choices_of_python_may_have_numbers_as_keys() -> None:
    cells = pa.chunked_array([["{0: 'yes', 1: 'no'}", '{"0": "no", "1": "yes"}']])
    found = of_choices(cells)
    assert found is not None
    assert found.to_pylist() == [
        {"text": ["yes", "no"], "label": ["0", "1"]},
        {"text": ["no", "yes"], "label": ["0", "1"]},
    ]
    assert of_choices(pa.chunked_array([["{0: 'yes', 'other': 'no'}", "{True: 'yes', None: 'no'}"]])) is None


@pytest.mark.parametrize("form", ["{{{}}}", "<{}>"])
def test_a_split_with_one_label_in_each_row_has_lists_as_the_other_one(form: str, tmp_path: Path) -> None:
    both = "late,wet" if form.startswith("{") else "late><wet"
    train = written(tmp_path / "train.jsonl", text=TEXTS, labels=cycle(form.format(both), form.format("lost")))
    others = written(tmp_path / "dev.jsonl", text=OTHERS, labels=cycle(form.format("late"), form.format("lost")))
    rows = load(train, validation=others)
    assert (rows.task.kind.name, rows.task.labels) == ("multi_label", ("late", "lost", "wet"))
    assert targets_of(rows.reported["validation"]).sum(axis=0).tolist() == [30, 30, 0]


def test_no_objects_are_made_of_lists_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(column: object) -> list[list[str]]:
        raise AssertionError("the texts of all rows are objects")

    monkeypatch.setattr(decisions, "_lists", refused)
    answers = pa.chunked_array([[["in the hall", " "], ["at the door"], None]])
    assert decisions.rejected(answers, "answer") is None
    assert decisions.checked(answers, "answer") is None
    assert decisions.disputed(answers, "answer") == 0


def test_a_soft_label_of_many_brackets_is_no_list() -> None:
    assert likely_labels._first_list(pa.chunked_array([["[" * 100_000, "[0.5, 0.5]"]])) is None


def test_a_split_with_the_same_names_in_each_row_has_the_names_of_the_others(tmp_path: Path) -> None:
    names = cycle(["billing", "fraud"], ["urgent"], ["billing", "urgent"])
    train = written(tmp_path / "a.jsonl", text=TEXTS, labels=cycle([0, 2], [1], [0, 1]), labels_text=names)
    others = written(tmp_path / "b.jsonl", text=OTHERS, labels=cycle([0, 1]), labels_text=cycle(["billing", "urgent"]))
    assert {*load(train, validation=others).task.labels} == {"billing", "urgent", "fraud"}


def test_names_in_another_order_than_their_numbers_name_none(tmp_path: Path) -> None:
    names = cycle(["fraud", "billing"], ["urgent"], ["billing"], ["fraud"], ["urgent"], ["billing"])
    numbers = cycle([0, 2], [1], [0], [2], [1], [0])
    train = written(tmp_path / "a.jsonl", text=TEXTS, labels=numbers, labels_text=names)
    assert {*load(train, text="text").task.labels} == {"0", "1", "2"}


def test_columns_of_more_pairs_than_classes_have_no_names() -> None:
    several = pa.table({"number": [str(n) for n in range(2000)], "name": [f"class c{n}" for n in range(2000)]})
    assert stated_beside._names_in(several, "f.csv") is None
    assert len(stated_beside._names_in(several.slice(0, 1000), "f.csv") or ()) == 1000


def test_single_texts_of_several_types_are_refused(tmp_path: Path) -> None:
    train = written(tmp_path / "a.jsonl", note=[7 if n == 5 else text for n, text in enumerate(TEXTS)])
    pairs = written(tmp_path / "b.jsonl", sentence1=TEXTS, sentence2=OTHERS, score=cycle(0.5, 1.0))
    with pytest.raises(UserError, match="note"):
        load(train, validation=pairs, kind="embedding")


def test_a_column_of_several_types_is_not_the_text_if_there_is_another(tmp_path: Path) -> None:
    longer = [n if n % 2 else text * 3 for n, text in enumerate(TEXTS)]
    train = written(tmp_path / "a.jsonl", mixed=longer, report=TEXTS, topic=cycle("a", "b"))
    assert load(train).task.columns == ("report",)
    with pytest.raises(UserError, match="mixed"):
        load(train, text="mixed")


def test_a_column_of_several_types_in_one_file_is_so_in_all(tmp_path: Path) -> None:
    files = [
        written(tmp_path / "a.jsonl", text=TEXTS, topic=cycle("a", "b"), other=cycle(1, 2)),
        written(tmp_path / "b.jsonl", text=OTHERS, topic=cycle("a", "b"), other=cycle(1, "x")),
    ]
    table = read(files, "tasks.train")
    assert table.rows["other"].slice(COUNT - 1, 2).to_pylist() == ["2", "1"]
    assert has_several(table.rows.schema.field("other"))
