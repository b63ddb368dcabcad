"""Kinds of tasks: targets from the columns of files, rows of losses and predictions against independent formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from distill.data.task_types import MISSING, TASK_TYPES, TaskType, labelled
from distill.data.task_types.answers import COLUMNS
from distill.errors import DataError
from distill.evaluation.metrics import METRICS, score
from distill.losses import soft_targets, supervised

NAN, INF = float("nan"), float("inf")


def where(row: int) -> str:
    return f"rows.csv, row {row + 1}"


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """A column of two chunks, as that of several files."""
    array = pa.array(values, kind)
    return pa.chunked_array([array[:1], array[1:]])


@dataclass(frozen=True)
class Row:
    """What a kind must do. A kind without a row fails."""

    labels: tuple[str, ...]
    encoded: list[tuple[pa.ChunkedArray, list[Any]]]
    """Columns and their targets."""
    refused: list[tuple[pa.ChunkedArray, str]]
    """Columns, and what the message about them begins with."""
    types: list[pa.DataType]
    """Types of columns that are not accepted."""


TEXTS = pa.string()
ROWS = {
    "classification": Row(
        ("0", "1"),
        [
            (column(["1", "0", " 1\t"]), [1, 0, 1]),
            (column([1.0, 0.0, 1.0]), [1, 0, 1]),
            (column(["1", "", "  ", None]), [1, MISSING, MISSING, MISSING]),
            (column([1, 0, None]), [1, 0, MISSING]),
            (column([1, 0], pa.int8()), [1, 0]),
            (column([1.0, 0.0, None, NAN]), [1, 0, MISSING, MISSING]),
            (column([1.0, 0.0], pa.float32()), [1, 0]),
            (column(["0", "1"], pa.large_string()), [0, 1]),
            (column([None, None]), [MISSING, MISSING]),
        ],
        [
            (column(["1", "0", "2"]), "rows.csv, row 3: got label '2'; must be one of 0, 1; "),
            (column(["yes", "0"]), "rows.csv, row 1: got label 'yes'; "),
            (column(["0", "1.0"]), "rows.csv, row 2: got label '1.0'; "),
            (column(["0", "-1"]), "rows.csv, row 2: got label '-1'; "),
            (column([1.0, 0.5]), "rows.csv, row 2: got label '0.5'; "),
            (column([1.0, INF]), "rows.csv, row 2: got label 'inf'; "),
            (column([0.0, 1e300]), "rows.csv, row 2: got label '1e+300'; "),
            (column([True, False]), "rows.csv, row 1: got label 'true'; "),
            (column(["0|1", "0"]), "rows.csv, row 1: got label '0|1'; "),
        ],
        [pa.list_(TEXTS), pa.struct({"a": TEXTS}), pa.binary(), pa.date32(), pa.timestamp("s")],
    ),
    "multi_label": Row(
        ("a", "b", "2"),
        [
            (column(["a|b", "b;a", "a, b", " a "]), [[1, 1, 0]] * 3 + [[1, 0, 0]]),
            (column(["a|", "", " | ", None]), [[1, 0, 0], [0, 0, 0], [0, 0, 0], [MISSING] * 3]),
            (column(["a|a", "2|a"]), [[1, 0, 0], [1, 0, 1]]),
            (column([["a", " b "], [], None, [None, "2"]]), [[1, 1, 0], [0, 0, 0], [MISSING] * 3, [0, 0, 1]]),
            (column([[2], [2.0, None]], pa.list_(pa.float64())), [[0, 0, 1], [0, 0, 1]]),
            (column([["a"], ["b"]], pa.large_list(TEXTS)), [[1, 0, 0], [0, 1, 0]]),
            (column([["a", "b"], ["b", "2"]], pa.list_(TEXTS, 2)), [[1, 1, 0], [0, 1, 1]]),
            (column([None, None]), [[MISSING] * 3] * 2),
        ],
        [
            (column(["a", "b", "a|c"]), "rows.csv, row 3: got label 'c'; must be of a, b, 2; "),
            (column(["A", "b"]), "rows.csv, row 1: got label 'A'; "),
            (column([["a"], ["b", "a, b"]]), "rows.csv, row 2: got label 'a, b'; "),
            (column([["a"], ["nan"]]), "rows.csv, row 2: got label 'nan'; "),
        ],
        [pa.int64(), pa.float64(), pa.bool_(), pa.struct({"a": TEXTS}), pa.list_(pa.list_(TEXTS)), pa.binary()],
    ),
    "regression": Row(
        (),
        [
            (column(["1", " 2.5 ", "+3", "-.5", "4.", "1e-3"]), [1, 2.5, 3, -0.5, 4, 0.001]),
            (column(["1", "", " ", None]), [1, NAN, NAN, NAN]),
            (column([1, -2, None]), [1, -2, NAN]),
            (column([0.25, None], pa.float32()), [0.25, NAN]),
            (column(["0.5", "7"], pa.large_string()), [0.5, 7]),
            (column([None, None]), [NAN, NAN]),
        ],
        [
            (column(["1", "high"]), "rows.csv, row 2: got label 'high'; must be a finite number; "),
            (column(["0,5", "1"]), "rows.csv, row 1: got label '0,5'; "),
            (column(["1", "1 000"]), "rows.csv, row 2: got label '1 000'; "),
            (column(["nan", "1"]), "rows.csv, row 1: got label 'nan'; "),
            (column(["1", "-inf"]), "rows.csv, row 2: got label '-inf'; "),
            (column(["1", "1e999"]), "rows.csv, row 2: got label '1e999'; "),
            (column(["1", "0x1f"]), "rows.csv, row 2: got label '0x1f'; "),
            (column(["1_000", "1"]), "rows.csv, row 1: got label '1_000'; "),
            (column(["1", "٣"]), "rows.csv, row 2: got label '٣'; "),
            (column([1.0, NAN]), "rows.csv, row 2: got label nan; "),
            (column([INF, 1.0]), "rows.csv, row 1: got label inf; "),
            (column([1.0, 1e300]), "rows.csv, row 2: got label 1e+300; "),
        ],
        [pa.bool_(), pa.list_(pa.float64()), pa.struct({"a": TEXTS}), pa.binary(), pa.date32()],
    ),
}
"""TaskType -> what it must do. Kinds that prepare their files are in test_words.py, test_multiple_choice.py and
test_question_answering.py."""
ROWS["embedding"] = ROWS["regression"]
ROWS["reranking"] = ROWS["retrieval"] = replace(ROWS["regression"], types=ROWS["regression"].types[1:])  # not bool


def test_every_kind_has_a_row() -> None:
    assert {*ROWS} == {name for name, kind in TASK_TYPES.items() if kind.prepare is None}
    assert all(name == kind.name for name, kind in TASK_TYPES.items())


def each(field: str) -> list[Any]:
    return [(TASK_TYPES[name], row, item) for name, row in ROWS.items() for item in getattr(row, field)]


@pytest.mark.parametrize(("kind", "row", "case"), each("encoded"))
def test_values_become_targets(kind: TaskType, row: Row, case: tuple[pa.ChunkedArray, list[Any]]) -> None:
    values, expected = case
    assert kind.accepts(values.type)
    targets = kind.encode(values, row.labels, where, "tasks.label")
    np.testing.assert_array_equal(targets, np.array(expected, targets.dtype))
    assert targets.dtype == (np.int64 if kind.named else np.float32)
    first = np.array([value[0] if isinstance(value, list) else value for value in expected], np.float64)
    np.testing.assert_array_equal(labelled(targets), (first != MISSING) & ~np.isnan(first))


@pytest.mark.parametrize(("kind", "row", "case"), each("refused"))
def test_a_value_that_is_no_label_is_refused_with_its_row(
    kind: TaskType, row: Row, case: tuple[pa.ChunkedArray, str]
) -> None:
    values, message = case
    assert kind.accepts(values.type)
    with pytest.raises(DataError) as refused:
        kind.encode(values, row.labels, where, "tasks.label")
    (line,) = refused.value.messages
    assert line.startswith(message)
    assert "correct the row" in line


@pytest.mark.parametrize(("kind", "row", "unfit"), each("types"))
def test_columns_of_other_types_are_not_accepted(kind: TaskType, row: Row, unfit: pa.DataType) -> None:
    assert not kind.accepts(unfit)


def test_booleans_are_labels() -> None:
    values = column([True, False, None])
    encoded = TASK_TYPES["classification"].encode(values, ("false", "true"), where, "tasks.label")
    assert encoded.tolist() == [1, 0, MISSING]
    flags = column([[True], [False, True]])
    assert TASK_TYPES["multi_label"].encode(flags, ("false", "true"), where, "tasks.label").tolist() == [[0, 1], [1, 1]]


def width(kind: TaskType) -> int:
    """Outputs of a row with three labels, with three choices, of a question, or two vectors."""
    return COLUMNS if kind.extractive else 8 if kind.separate else 3 if kind.named or kind.choices else 1


@pytest.mark.parametrize("name", TASK_TYPES)
def test_metrics_of_a_kind_exist_and_take_its_predictions(name: str) -> None:
    kind = TASK_TYPES[name]
    assert set(kind.metrics) <= set(kind.all_metrics) <= set(METRICS)
    outputs = np.random.default_rng(0).normal(size=(40, width(kind)))
    labels = ("O", "B-X", "I-X")[: outputs.shape[1] if kind.named else 0]
    predicted = kind.decode(abs(outputs) if kind.decode is TASK_TYPES["regression"].decode else outputs, labels, 0.5)
    if kind.per_token:
        targets = np.empty(1, object)
        targets[0] = outputs.argmax(1)
        truth = kind.truth(targets, [["one text"]], labels)
    elif kind.extractive:
        assert kind.grade is not None
        predicted = np.sort(np.random.default_rng(0).integers(0, 20, (40, 2)))
        truth = kind.truth(predicted, [[], ["an otter sleeps here"] * 40], labels)
        predicted = kind.grade(predicted, truth)
    elif kind.grade is not None:
        predicted[:, 4:] = predicted[:, :4]  # the vector of each query is that of its document
        texts = [[f"text {n}" for n in range(40)]] * 2
        truth = kind.truth(np.ones(40, np.float32), texts, labels)
        predicted = kind.grade(predicted, truth)
    else:
        truth = kind.truth(predicted, [[f"query {n // 10}" for n in range(40)]], labels)
    same = score(kind.all_metrics, predicted, truth)
    assert same == pytest.approx(dict.fromkeys(kind.all_metrics, 100.0))


@pytest.fixture
def outputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of a student and a teacher for 7 texts and 3 labels, in float64."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = (3 * torch.randn(7, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return student.requires_grad_(), teacher


def gradient(value: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    (result,) = torch.autograd.grad(value.sum(), of)
    return result


def test_cross_entropy_over_rows_of_multi_label_is_binary(outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    student, _ = outputs
    labels = torch.arange(21).reshape(7, 3) % 2
    rows = TASK_TYPES["multi_label"].rows(student)
    assert rows.shape == (21, 2)
    values = supervised(rows, labels.ravel())
    expected = torch.nn.functional.binary_cross_entropy_with_logits(student, labels.double(), reduction="none")
    torch.testing.assert_close(values, expected.ravel(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(values, student), gradient(expected, student), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_soft_targets_over_rows_of_multi_label_are_those_of_bernoulli_distributions(
    temperature: float, outputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    student, teacher = outputs
    kind = TASK_TYPES["multi_label"]
    values = soft_targets(kind.rows(student), kind.rows(teacher), temperature=temperature)
    p, q = torch.sigmoid(teacher / temperature), torch.sigmoid(student / temperature)
    expected = temperature**2 * (p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q)))
    torch.testing.assert_close(values, expected.ravel(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient(values, student), temperature * (q - p).detach(), rtol=1e-10, atol=1e-10)
    assert soft_targets(kind.rows(teacher), kind.rows(teacher), temperature=temperature).abs().max() < 1e-12


@pytest.mark.parametrize("name", TASK_TYPES)
def test_rows_of_numpy_are_those_of_torch(name: str, outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, given = outputs
    given = given.repeat(1, 3)[:, : 6 if TASK_TYPES[name].extractive else width(TASK_TYPES[name])]
    tolerance = 1e-5 if TASK_TYPES[name].separate else 0  # those of torch are float32
    np.testing.assert_allclose(
        TASK_TYPES[name].rows(given.numpy()), TASK_TYPES[name].rows(given).numpy(), rtol=0, atol=tolerance
    )


def test_a_reranker_learns_relevance_from_labels_and_scores_from_a_teacher(
    outputs: tuple[torch.Tensor, torch.Tensor],
) -> None:
    student, teacher = outputs[0][:, :1], outputs[1][:, :1]
    kind, targets = TASK_TYPES["reranking"], np.array([0, 1, 3, 0.5, NAN, 0, -1], np.float32)
    relevant = kind.loss_targets(targets)
    assert relevant.tolist() == [0, 1, 1, 1, MISSING, 0, 0]
    given = torch.from_numpy(labelled(targets))
    values = supervised(kind.on_labels(student)[given], torch.from_numpy(relevant)[given])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        student[given, 0], torch.from_numpy(relevant)[given].double(), reduction="none"
    )
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-12)
    soft = soft_targets(kind.rows(student), kind.rows(teacher), temperature=2.0)
    torch.testing.assert_close(soft, (student - teacher)[:, 0] ** 2)


@pytest.mark.parametrize("name", ROWS)
def test_targets_have_one_entry_for_each_row(name: str) -> None:
    """A loss takes rows and flat targets in the same order."""
    kind, row = TASK_TYPES[name], ROWS[name]
    values, _ = row.encoded[0]
    targets = kind.encode(values, row.labels, where, "tasks.label")
    rows = kind.on_labels(torch.zeros((len(targets), 8 if kind.separate else len(row.labels) or 1)))
    assert len(rows) == kind.loss_targets(targets).size == targets.size


@pytest.mark.parametrize("name", TASK_TYPES)
def test_equal_outputs_do_not_differ(name: str) -> None:
    kind = TASK_TYPES[name]
    outputs = np.random.default_rng(0).normal(size=(5, width(kind)))
    other = outputs + np.array([[0], [1], [0], [0], [-2]]) * np.eye(1, outputs.shape[1])
    np.testing.assert_allclose(kind.difference(outputs, outputs), 0, atol=1e-12)
    assert (kind.difference(outputs, other) > 1e-6).tolist() == [False, True, False, False, True]


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_a_label_is_output_above_the_threshold(threshold: float) -> None:
    outputs = np.linspace(-6, 6, 121).reshape(-1, 1).repeat(2, 1)
    expected = 1 / (1 + np.exp(-outputs)) > threshold
    np.testing.assert_array_equal(TASK_TYPES["multi_label"].decode(outputs, ("a", "b"), threshold), expected)


def test_predictions_of_the_other_kinds_have_no_threshold() -> None:
    outputs = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_array_equal(TASK_TYPES["classification"].decode(outputs, tuple("abcd"), 0.9), outputs.argmax(1))
    np.testing.assert_array_equal(TASK_TYPES["regression"].decode(outputs[:, :1], (), 0.9), outputs[:, 0])
