"""The picture is reproducible byte for byte and shows each point once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.text import Text

from distill.report import figure
from tests.decoded import decoded

Results = dict[str, Any]


@pytest.mark.slow
def test_deterministic(results: Results) -> None:
    shown = figure.points(decoded(results))
    drawn, image = figure.svg(shown), figure.png(shown)
    assert drawn == figure.svg(shown)
    assert image == figure.png(shown)
    assert (drawn, image) == figure.both(shown)
    others = (True, "another model", figure.Second("your model in bf16 torch", 1.65))
    assert figure.both(shown, *others) == (figure.svg(shown, *others), figure.png(shown, *others))
    assert image.startswith(b"\x89PNG")
    moved = [*shown[:-1], figure.Point("moved", "student", 2.0, 90.0)]
    assert drawn != figure.svg(moved)


def test_points_are_the_models_with_both_numbers(results: Results) -> None:
    results["models"][5]["retained"] = None
    results["models"][6]["speedup"] = None
    results["models"][7]["failed"] = "no such kernel"
    shown = figure.points(decoded(results))
    assert [(p.role, p.label, p.front) for p in shown] == [
        ("teacher", "teacher, bf16 torch", True),
        ("student", "fp32 torch", True),
        ("student", "int8 onnxruntime", True),
        ("baseline", "", True),
        ("baseline", "", True),
    ]
    assert shown[2].speedup == 5.2
    assert shown[2].retained_interval == pytest.approx((92.0, 94.0))


def test_students_that_no_other_beats_are_in_front_and_joined() -> None:
    """With their own baselines; of the teacher the fastest variant."""
    rows = [
        ("bf16 torch", "teacher", 1.5, 99.9),
        ("int8 onnxruntime", "teacher", 2.0, 99.0),
        ("fp32 torch", "student", 2.0, 97.0),
        ("bf16 torch", "student", 4.0, 96.9),
        ("int8 openvino", "student", 3.9, 96.9),
        ("int8 onnxruntime", "student", 5.0, 95.0),
        ("int8 openvino", "baseline", 3.9, 90.0),
        ("int8 onnxruntime", "baseline", 5.0, 91.0),
    ]
    shown = figure.in_front([figure.Point(*row) for row in rows])
    assert [point.front for point in shown] == [False, True, True, True, False, True, False, True]
    assert [point.speedup for point in shown if point.line] == [2.0, 4.0, 5.0]
    texts = [text.get_text() for text in figure.draw(shown).axes[0].texts]
    assert texts == ["teacher", "teacher, int8 onnxruntime", "fp32 torch", "bf16 torch", "int8 onnxruntime"]


@pytest.mark.parametrize("gpu", [None, "Example GPU 5"])
def test_labels_do_not_overlap(results: Results, gpu: str | None) -> None:
    results["environment"]["gpu"] = gpu
    drawn = figure.draw(figure.points(decoded(results)))
    axes = drawn.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5  # the teacher, its fastest variant, and the students in front
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])
        assert axes.get_window_extent().containsx(box.x1)


def test_labels_of_variants_that_are_nearly_as_fast_do_not_overlap() -> None:
    """Labels are then farther away, with a line to the marker."""
    points = [
        ("fp32_medium torch", "student", 1.67, 80.0, (1.55, 1.73), (76.5, 83.5)),
        ("bf16 torch", "student", 3.26, 80.1, (3.07, 3.52), (76.5, 83.6)),
        ("int8 bitsandbytes", "student", 1.35, 79.8, (1.22, 1.55), (76.4, 83.3)),
        ("fp32 onnxruntime", "student", 2.04, 80.0, (1.86, 2.2), (76.5, 83.5)),
        ("int8 onnxruntime", "student", 3.64, 79.3, (3.47, 3.73), (76.0, 82.9)),
        ("fp32_medium torch", "baseline", 1.66, 63.7, (1.46, 1.74), (59.7, 68.5)),
    ]
    texts = figure.draw([figure.Point(*point) for point in points]).axes[0].texts
    whole = [text.get_window_extent() for text in texts]  # with their lines; this call also places them
    boxes = [Text.get_window_extent(text) for text in texts]
    assert len(whole) == len(boxes) == 7
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def test_a_value_outside_its_interval_is_drawn() -> None:
    assert figure.svg([figure.Point("x", "student", 2.0, 90.0, (2.01, 2.2), (90.1, 91.0))])


def test_a_dollar_sign_in_a_name_does_not_begin_a_formula() -> None:
    assert "a$_b$ &lt;i&gt;" in figure.svg([figure.Point("a$_b$ <i>", "student", 2.0, 90.0)])


def test_axis_names_the_shape(results: Results) -> None:
    def axis(shown: list[figure.Point]) -> str:
        return figure.draw(shown).axes[0].get_xlabel()

    shown = figure.points(decoded(results))
    over = "speedup over the teacher's fastest float32 variant"
    assert axis(shown) == f"{over} at 8x128 (higher is faster)"
    assert axis([]) == f"{over} (higher is faster)"
    mixed = [*shown, replace(shown[0], shape="1x64")]
    assert axis(mixed) == f"{over} at the inputs of its run (higher is faster)"


def test_a_point_on_the_cpu_of_a_run_with_a_gpu_is_marked(results: Results) -> None:
    results["environment"]["gpu"] = "Example GPU 5"
    labels = [point.label for point in figure.points(decoded(results)) if point.role == "student"]
    assert labels[-2:] == ["int8 bitsandbytes", "int8 onnxruntime (CPU)"]


def test_forms_of_the_teacher_are_not_called_students(results: Results) -> None:
    """A run without a student reports them in its place."""
    results["models"] = [m | {"step": "finetune_teacher"} for m in results["models"] if m["role"] != "baseline"]
    shown = figure.points(decoded(results))
    drawn = figure.svg(shown)
    assert "teacher in other forms" in drawn
    assert "student" not in drawn
    assert any(point.line for point in shown)
