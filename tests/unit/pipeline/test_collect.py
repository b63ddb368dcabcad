"""What results.json says of a search: the speedup that was measured is the one of the table."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from distill.config import Target
from distill.evaluation.model_times import of_input, of_single_texts
from distill.evaluation.results import Model
from distill.inference import latency
from distill.inference.timing import TASK_LENGTHS
from distill.pipeline.collect import _measured

TEACHER = {"8x128": [40.0, 90.0, 41.0], "own lengths": [64.0, 128.0, 66.0], "one": [3.0, 9.0, 4.0]}
STUDENT = {"8x128": [4.0, 8.0, 8.5], "own lengths": [8.0, 12.0, 6.0], "one": [1.0, 1.5, 0.5]}


def model(
    role: Literal["teacher", "student"], form: str, times: dict[str, list[float]], target: str | None = None
) -> Model:
    backend, scheme = form.split()
    rounds = [of_input("8x128", times["8x128"]), of_input(TASK_LENGTHS, times["own lengths"])]
    return Model(
        name=role,
        role=role,
        step=role,
        target=target,
        backend=backend,
        scheme=scheme,
        latency_ms=rounds,
        requests=of_single_texts(times["one"], 3),
    )


@pytest.mark.parametrize(
    ("target", "key", "texts"),
    [
        (Target(shape=(8, 128)), "8x128", 1),
        (Target(shape="own", load="batch"), "own lengths", 32),
        (Target(shape="own", load="single"), "one", 1),
    ],
)
def test_the_speedup_of_a_search_is_that_of_the_table(target: Target, key: str, texts: int) -> None:
    """Both are medians of the ratios of the rounds; of single texts, ratios of medians."""
    slow = {name: [2 * value for value in values] for name, values in TEACHER.items()}
    models = [
        model("teacher", "torch fp32", slow),
        model("teacher", "onnxruntime fp32", TEACHER),
        model("teacher", "onnxruntime int8", STUDENT),
        model("student", "onnxruntime int8", STUDENT, "6x"),
        model("student", "onnxruntime int8", TEACHER, "2x"),
    ]
    form: dict[str, Any] = {
        "backend": "onnxruntime",
        "scheme": "int8",
        "over": [["torch", "fp32"], ["onnxruntime", "fp32"]],
    }
    found = _measured(target, "6x", form, models)
    expected = latency.speedup(TEACHER[key], STUDENT[key])["median"] if key != "one" else 4.0
    assert found["measured_speedup"] == pytest.approx(expected)
    assert found["measured_ms"] == pytest.approx(sorted(STUDENT[key])[1] / texts)
    assert found["over"] == "float32"
    assert _measured(target, "6x", form | {"over": [["onnxruntime", "int8"]]}, models)["measured_speedup"] == 1.0
    assert _measured(target, "9x", form, models)["measured_speedup"] is None
