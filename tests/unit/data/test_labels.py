"""The order and names of labels: those of the settings, of the teacher's head, or of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

from distill import config
from distill.data.labels import Labels, check_head, head_order, labels_of
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head, stored_head
from distill.models.families.record import TEXTS, TOKENS


def labels(values: list[Any], head: Head | None = None, kind: str = "classification", **settings: Any) -> Labels:
    columns = {"train": pa.chunked_array([pa.array(values)])}
    return labels_of(config.Task(**settings), TASK_TYPES[kind], columns, head, "tasks")


def head(*names: str, outputs: int | None = None, problem: str | None = None) -> Head:
    return Head(outputs or len(names), names, problem)


def test_without_a_head_labels_are_sorted() -> None:
    assert labels(["b", "a", "", "b"]).names == ("a", "b")
    assert labels(["10", "9", "-1"]).names == ("-1", "9", "10")
    assert labels(["10", "9", "x"]).names == ("10", "9", "x")
    assert labels([True, False]).names == ("false", "true")
    assert labels([2.0, 1.0, None]).names == ("1", "2")
    assert labels([["b", "a"], ["c"], [], None], kind="multi_label").names == ("a", "b", "c")
    assert labels(["b|a", "c"], kind="multi_label").names == ("a", "b", "c")
    assert labels([1.5, 2.5], kind="regression").names == ()


def test_labels_are_those_of_the_training_rows() -> None:
    columns = {split: pa.chunked_array([pa.array(values)]) for split, values in (("train", ["a"]), ("test", ["b"]))}
    assert labels_of(config.Task(), TASK_TYPES["classification"], columns, None, "tasks").names == ("a",)
    del columns["train"]
    assert labels_of(config.Task(), TASK_TYPES["classification"], columns, None, "tasks").names == ("b",)


def test_columns_of_0_and_1_keep_their_order() -> None:
    columns = {"train": pa.chunked_array([pa.array([["b"], ["a"]])])}
    got = labels_of(config.Task(), TASK_TYPES["multi_label"], columns, None, "tasks", ("b", "never", "a"))
    assert got.names == got.spelled == ("b", "never", "a")


BY_HEAD: list[tuple[list[Any], Head, tuple[str, ...], tuple[str, ...]]] = [
    # values, head -> names, spelling in the files
    (["a", "b", "c"], head("c", "a", "b"), ("c", "a", "b"), ("c", "a", "b")),
    (
        ["billing", "Not_Billing"],
        head("BILLING", "not billing"),
        ("BILLING", "not billing"),
        ("billing", "Not_Billing"),
    ),
    (["a"], head("b", "a"), ("b", "a"), ("b", "a")),
    (["0", "1"], head("no", "yes"), ("no", "yes"), ("0", "1")),
    ([1.0, 0.0], head("no", "yes"), ("no", "yes"), ("0", "1")),
    (["1", "2", "3"], head("3", "2", "1"), ("3", "2", "1"), ("3", "2", "1")),
    (["0", "1", "2"], head(outputs=3), ("0", "1", "2"), ("0", "1", "2")),
    (["0", "2"], head(outputs=3), ("0", "1", "2"), ("0", "1", "2")),
    (["LABEL_1", "LABEL_0"], head(outputs=2), ("0", "1"), ("LABEL_0", "LABEL_1")),
]


@pytest.mark.parametrize(("values", "of", "names", "spelled"), BY_HEAD)
def test_a_head_orders_labels(values: list[Any], of: Head, names: tuple[str, ...], spelled: tuple[str, ...]) -> None:
    got = labels(values, of)
    assert (got.names, got.spelled) == (names, spelled)
    targets = TASK_TYPES["classification"].encode(pa.chunked_array([pa.array(values)]), got.spelled, str, "tasks.label")
    assert targets.min() >= 0


def test_numbers_in_place_of_names_are_noted() -> None:
    (note,) = labels(["0", "1"], head("no", "yes")).notes
    assert note == "the labels in the files are the teacher's outputs: 0 is no, 1 is yes"
    assert labels(["no", "yes"], head("no", "yes")).notes == ()
    assert labels(["1", "0"], head("0", "1")).notes == ()


@pytest.mark.parametrize(
    ("values", "of", "message"),
    [
        (["a", "x"], head("a", "b"), "tasks.label: got a, x; must be labels of the teacher, which are a, b; "),
        (["1", "2"], head("a", "b"), "tasks.label: got 1, 2; must be labels of the teacher, which are a, b; "),
        (["1", "2"], head("a", "b", "c"), "tasks.label: got 1, 2; must be labels of the teacher, which are a, b, c; "),
        (["A", "a"], head("a", "b"), "tasks.label: got A, a; must be labels of the teacher, which are a, b; "),
        (
            ["b", "A|b"],
            head("a", "b"),
            "tasks.label: got 'A|b', where the teacher's labels are a, b, without a problem",
        ),
        (["b", "a, b"], head("a", "b", problem="single_label_classification"), "tasks.label: got a, b, b; must be "),
        (["a", "b"], head(outputs=2), "tasks.labels: got nothing, and the teacher's 2 outputs have no names; must be "),
        (
            [f"l{i}" for i in range(30)],
            head("a", "b"),
            f"tasks.label: got {', '.join(sorted(f'l{i}' for i in range(30))[:20])} and 10 more; must be ",
        ),
    ],
)
def test_labels_that_are_not_the_heads_are_refused(values: list[Any], of: Head, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        labels(values, of)
    (line,) = refused.value.messages
    assert line.startswith(message)


def test_listed_labels_are_the_outputs() -> None:
    assert labels(["b", "a"], labels=["b", "a"]).spelled == ("b", "a")
    assert labels(["0", "1"], labels=["no", "yes"]) == Labels(("no", "yes"), ("0", "1"))
    assert labels(["1", "2", "3"], labels=["1", "2", "3", "4", "5"]).spelled == ("1", "2", "3", "4", "5")
    assert labels(["Yes", "no"], labels=["no", "yes"]) == Labels(("no", "yes"), ("no", "Yes"))
    # The one that is not listed is refused later, with its row; the others are not.
    assert labels(["Yes", "no", "perhaps"], labels=["no", "yes"]) == Labels(("no", "yes"), ("no", "Yes"))


def task(*names: str, kind: str = "classification") -> Task:
    return Task("t", TASK_TYPES[kind], ("text",), names, ())


MULTI, SINGLE = "multi_label_classification", "single_label_classification"
ORDERS: list[tuple[Head, Task, tuple[int, ...] | None]] = [
    (head("a", "b", "c"), task("a", "b", "c"), (0, 1, 2)),
    (head("c", "a", "b"), task("a", "b", "c"), (1, 2, 0)),
    (head("C", "A_A", "b"), task("a a", "b", "c"), (1, 2, 0)),
    (head("a", "b"), task("a", "b", "c"), None),
    (head("a", "b", "x"), task("a", "b", "c"), None),
    (head("a", "a", "b"), task("a", "b", "c"), None),
    (head(outputs=3), task("a", "b", "c"), (0, 1, 2)),
    (head("x", "y"), task("0", "1"), (0, 1)),
    (head("a", "b", problem=MULTI), task("b", "a", kind="multi_label"), (1, 0)),
    (head("a", "b"), task("b", "a", kind="multi_label"), (1, 0)),
    (head("a", "b", problem=SINGLE), task("a", "b", kind="multi_label"), None),
    (head("a", "b", problem=MULTI), task("a", "b"), None),
    (head(outputs=1), task(kind="regression"), (0,)),
    (head("score", problem="regression"), task(kind="regression"), (0,)),
    (head("a", "b"), task(kind="regression"), None),
]


@pytest.mark.parametrize(("of", "on", "expected"), ORDERS)
def test_outputs_of_a_head_in_the_order_of_the_task(of: Head, on: Task, expected: tuple[int, ...] | None) -> None:
    assert head_order(of, on) == expected
    if expected is not None:
        check_head(of, [on], "teacher.name")
        return
    with pytest.raises(ConfigError, match=r"^teacher.name: got a classifier of \d outputs.*; must have a head for the"):
        check_head(of, [on], "teacher.name")


def test_no_head_fits_every_task() -> None:
    check_head(None, [task("a", "b")], "teacher.name")


def folder(path: Path, content: Any, weights: dict[str, Any] | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    save_file(
        {name: np.zeros(shape, np.float32) for name, shape in (weights or {}).items()}, path / "model.safetensors"
    )
    return path


CLASSIFIER = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
WEIGHTS = {"classifier.weight": (2, 4), "classifier.bias": (2,)}
NAMES = {"id2label": {"1": "b", "0": "a"}}
STORED: dict[str, tuple[Any, dict[str, Any], Head | None]] = {
    "names": (CLASSIFIER | NAMES, WEIGHTS, Head(2, ("a", "b"), None)),
    "a problem": (CLASSIFIER | {"problem_type": MULTI}, WEIGHTS, Head(2, (), MULTI)),
    "default names": (CLASSIFIER | {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, WEIGHTS, Head(2, (), None)),
    "a regression": (CLASSIFIER, {"classifier.weight": (1, 4)}, Head(1, (), None)),
    "the last of two layers": (
        CLASSIFIER, {"classifier.dense.weight": (4, 4), "classifier.out_proj.weight": (3, 4)}, Head(3, (), None),
    ),
    "no head": ({"model_type": "bert", "architectures": ["BertModel"]}, {"encoder.weight": (4, 4)}, None),
    "a head of words": (
        CLASSIFIER | {"architectures": ["BertForTokenClassification"]}, WEIGHTS, Head(2, (), None, TOKENS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_the_head_of_a_folder(name: str, tmp_path: Path) -> None:
    content, weights, expected = STORED[name]
    assert stored_head(folder(tmp_path / "model", content, weights)) == expected


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no weights": (CLASSIFIER, {}, "got no classifier.weight in the weights; must have it, because config.json states"),
    "one name of several": (
        CLASSIFIER | {"id2label": {"0": "a"}}, WEIGHTS, "names of 1 outputs in id2label, and a head of 2",
    ),
    "names in a list": (CLASSIFIER | {"id2label": ["a", "b"]}, WEIGHTS, "id2label that is no list of names by number"),
    "names without numbers": (CLASSIFIER | {"id2label": {"x": "a"}}, WEIGHTS, "id2label that is no list of names by"),
    "several numbers": (CLASSIFIER | {"problem_type": "regression"}, WEIGHTS, "got 2 outputs of a regression"),
    "one class": (
        CLASSIFIER | {"problem_type": "single_label_classification"}, {"classifier.weight": (1, 4)},
        "got one output with problem_type single_label_classification; must be regression if it is a number, or",
    ),
    "two classes": (
        CLASSIFIER | {"architectures": ["BertForSequenceClassification", "BertForTokenClassification"]}, WEIGHTS,
        "got architectures BertForSequenceClassification, BertForTokenClassification; must be one class",
    ),
    "an encoder with a head": (
        CLASSIFIER | {"architectures": ["BertModel"]}, WEIGHTS, "got architectures BertModel, and weights of a head",
    ),
    "a class without a purpose": (
        CLASSIFIER | {"architectures": ["MyBert"]}, WEIGHTS, "got architectures MyBert, and weights of a head",
    ),
    "broken JSON": ("{", WEIGHTS, r"config.json: Expecting property name"),
    "a list": ([], WEIGHTS, "a list in place of settings"),
    "relative positions": (
        CLASSIFIER | {"position_embedding_type": "relative_key"}, WEIGHTS,
        "got position_embedding_type relative_key; must be absolute",
    ),
    "pruned heads": (CLASSIFIER | {"pruned_heads": {"0": [1]}}, WEIGHTS, "got pruned_heads .*; must be none"),
    "a decoder": (CLASSIFIER | {"is_decoder": True}, WEIGHTS, "got is_decoder True; must be "),
    "weights elsewhere": (CLASSIFIER | {"transformers_weights": "a.safetensors"}, WEIGHTS, "got transformers_weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_head_that_cannot_be_used_is_refused(name: str, tmp_path: Path) -> None:
    content, weights, message = REFUSED[name]
    with pytest.raises(DataError, match=message) as caught:
        stored_head(folder(tmp_path / "model", content, weights))
    assert "\n" not in caught.value.messages[0]


OWN = (
    "BertForMultiLabelSequenceClassification",
    "TrfForMultiLabelSequenceClassification",
    "OurTokenClassificationModel",
)


@pytest.mark.parametrize("name", OWN)
def test_the_head_of_a_class_of_ones_own_is_read_by_its_purpose(name: str, tmp_path: Path) -> None:
    expected = TOKENS if "Token" in name else TEXTS
    assert stored_head(folder(tmp_path / "model", CLASSIFIER | {"architectures": [name]}, WEIGHTS)) == Head(
        2, (), None, expected
    )


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no"):
        with pytest.raises(DataError, match=r"got no config\.json"):
            stored_head(path)
    folder(tmp_path / "cut", CLASSIFIER, WEIGHTS)
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"\1" * 20)
    with pytest.raises(DataError, match="got a damaged file"):
        stored_head(tmp_path / "cut")
