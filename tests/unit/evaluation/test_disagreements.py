"""Rows on which two models disagree, of each kind that is listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from datasets import Dataset, Features, Sequence, Value
from msgspec.structs import asdict

from distill.data.task import Task
from distill.data.task_types import SECONDS, TASK_TYPES
from distill.data.task_types.answers import COLUMNS
from distill.evaluation.disagreements import CHARACTERS, disagreements, readable
from distill.evaluation.results import Disagreement, Identity


def task(kind: str, labels: tuple[str, ...] = (), columns: tuple[str, ...] = ("text",)) -> Task:
    return Task("own", TASK_TYPES[kind], columns, labels, TASK_TYPES[kind].metrics)


STUDENT = Identity(name="student", scheme="int8", backend="onnxruntime")


def listed(of: Task, data: Dataset, teacher: np.ndarray, student: np.ndarray, *most: int) -> list[Disagreement]:
    return disagreements(of, "validation", data, STUDENT, teacher, student, *most)


def rows(labels: list[Any], **columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns | {"label": labels})


def test_classes_are_listed_by_their_difference() -> None:
    teacher = np.array([[3, 0], [3, 0], [0, 3], [2, 0]], np.float32)
    student = np.array([[2, 0], [0, 1], [4, 0], [0, 4]], np.float32)
    data = rows([0, 0, 1, -100], text=["a", "b", "c " * CHARACTERS, "d"], other=["w", "x", "y", "z"])
    found = listed(task("classification", ("no", "yes"), ("text", "other")), data, teacher, student)
    assert [row.row for row in found] == [2, 3, 1]
    values = {"row": 1, "text": "b | x", "teacher": "no 0.95", "student": "yes 0.73", "label": "no"}
    assert found[2] == Disagreement(task="own", split="validation", **asdict(STUDENT), **values)
    assert found[1].label is None
    assert len(found[0].text) == CHARACTERS + len(" | y")
    assert len(listed(task("classification", ("no", "yes")), data, teacher, student, 2)) == 2
    assert listed(task("classification", ("no", "yes")), data, teacher, teacher) == []


def test_several_labels() -> None:
    teacher, student = np.array([[2, 2], [2, -2]], np.float32), np.array([[2, -2], [2, -1]], np.float32)
    lists = Features({"text": Value("string"), "label": Sequence(Value("int64"), length=2)})
    data = rows([[1, 1], [1, 0]], text=["a", "b"]).cast(lists)
    (found,) = listed(task("multi_label", ("x", "y")), data, teacher, student)
    assert (found.row, found.teacher, found.student) == (0, "x 0.88, y 0.88", "x 0.88")
    assert found.label == "x, y"
    assert listed(task("multi_label", ("x", "y")), data, teacher, teacher) == []


def test_numbers_have_the_largest_differences() -> None:
    teacher, student = np.array([[1.0], [2.0], [3.0]], np.float32), np.array([[1.5], [2.0], [1.0]], np.float32)
    data = rows([1.0, 2.0, float("nan")], text=["a", "b", "c"])
    found = listed(task("regression"), data, teacher, student)
    assert [(row.row, row.teacher, row.student, row.label) for row in found] == [
        (2, "3", "1", None),
        (0, "1", "1.5", 1.0),
    ]


def test_choices() -> None:
    data = rows([1], text=["a question"], **{SECONDS: [["left", "right"]]})
    teacher, student = np.array([[0, 3]], np.float32), np.array([[3, 0]], np.float32)
    (found,) = listed(task("multiple_choice"), data, teacher, student)
    assert found.text == "a question | left | right"
    assert (found.teacher, found.student, found.label) == ("right 0.95", "left 0.95", "right")

    # A second text stands before each choice already.
    data = rows([1], context=["it rains"], ending=["he"], **{SECONDS: [["he runs", "he sings"]]})
    (found,) = listed(task("multiple_choice", (), ("context", "ending")), data, teacher, student)
    assert (found.teacher, found.student, found.label) == ("he sings 0.95", "he runs 0.95", "he sings")


def test_answers() -> None:
    data = rows([[2, 5], [-1, -1]], question=["who?", "why?"], context=["a red fox", "a red fox"])
    teacher, student = np.zeros((2, COLUMNS), np.float32), np.zeros((2, COLUMNS), np.float32)
    teacher[:, :2], student[:, :2] = [[2, 5], [6, 9]], [[6, 9], [6, 9]]
    teacher[:, 2], student[:, 2] = 5, 5
    (found,) = listed(task("question_answering", (), ("question", "context")), data, teacher, student)
    assert (found.row, found.text, found.label) == (0, "who? | a red fox", "red")
    assert found.teacher.startswith("red")
    assert found.student.startswith("fox")


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_words_and_vectors_are_not_listed(kind: str) -> None:
    assert readable(TASK_TYPES[kind]) == (kind not in ("token_classification", "embedding", "retrieval"))
