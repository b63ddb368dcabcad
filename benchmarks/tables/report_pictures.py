"""Pictures of a report: what is on its first screen, and how long one text takes, alone and in batches."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable

from benchmarks.tables.drawing import Drawing
from benchmarks.tables.runs import processor
from distill.evaluation.results import Model, Results
from distill.report import figure, model_rows
from distill.report.decision import decided
from distill.report.variants import Run

PARTS = (
    "What to ship, and why.\nThe numbers are from\nthe reported rows.",
    "What you ask for: the least\nretained %, the most ms\nand MiB. Move a slider, and\nall below it changes.",
    "Retained % against speedup.\nA point is a model in one\nform. Click it for its stages,\nscores and files.\n"
    "Blue: the student; grey: your\nmodel; rings: controls.",
    "Every form as a row. Sort by\na column; the choice is\nmarked.",
    "Further down: each task,\nwhat each step gave, cost\nof serving, and rows on\nwhich the models disagree.",
)
"""What the numbers in `screen` stand for."""
COLOUR_OF = {"teacher": "soft", "student": "first"}
"""Role of a model -> colour of its point; controls have another."""
ROWS = 3
"""Rows of the table in `screen`."""


def screen(results: Results) -> Drawing:
    """The first screen of report.html, with the numbers of a run; drawn by hand after distill/report/web/page.html."""
    drawing = Drawing(760, 630, "The first screen of report.html, with its parts numbered")
    drawing.text(24, 34, "What is on the first screen of report.html", bold=True)
    drawing.box(24, 54, 476, 520, "back")
    sentence = textwrap.wrap(decided(Run("", results)).sentences[0], 59)
    drawing.text(48, 84, "\n".join(sentence))
    drawing.box(48, 172, 436, 56)
    for number, name in enumerate(("retained, at least", "ms, at most", "MiB, at most")):
        left = 62 + 148 * number
        drawing.text(left, 194, name, "soft")
        drawing.line([(left, 211), (left + 112, 211)], "rule")
        drawing.dot(left + (52, 112, 112)[number], 211, 5, "first")
    _points(drawing, results)
    columns = (48, 318, 408, 484)
    drawing.text(columns[0], 466, "model", "soft")
    for x, name in zip(columns[1:], ("retained %", "speedup", "MiB"), strict=True):
        drawing.text(x, 466, name, "soft", anchor="end")
    for number, model in enumerate(_shown(results)):
        y = 492 + 26 * number
        drawing.line([(48, y - 18), (484, y - 18)], "rule")
        drawing.text(columns[0], y, f"{model.name}, {model_rows.variant(model)}")
        cells = (f"{model_rows.retained(model):.1f}", f"{model_rows.speedup(model):.2f}x", f"{model.size_mib:.1f}")
        for x, cell in zip(columns[1:], cells, strict=True):
            drawing.text(x, y, cell, anchor="end")
    for number, (y, text) in enumerate(zip((84, 192, 274, 472, 562), PARTS, strict=True), 1):
        for x in (24, 520):
            drawing.dot(x, y - 5, 11, "first")
            drawing.text(x, y, str(number), "back", anchor="middle", bold=True)
        drawing.text(540, y, text)
    drawing.text(24, 606, f"Numbers: the run kinds/reranker, seed 0. {processor(results)}.", "soft")
    return drawing


def _shown(results: Results) -> list[Model]:
    """The fastest student, and the teacher in its two fastest forms."""
    students, teachers = (
        sorted(
            (m for m in model_rows.of_role(results, role) if model_rows.retained(m) and model_rows.speedup(m)),
            key=lambda m: -(model_rows.speedup(m) or 0),
        )
        for role in ("student", "teacher")
    )
    return [*students[:2], *teachers][:ROWS]


def _points(drawing: Drawing, results: Results) -> None:
    """Retained % against speedup of every model of a run, below the sliders of `screen`."""
    left, right, top, bottom = 96, 480, 250, 410
    points = [(p.speedup, p.retained, p.role) for p in figure.points(results)]
    slowest, fastest = min(p[0] for p in points) * 0.9, max(p[0] for p in points) * 1.1
    lowest, highest = min(p[1] for p in points) - 1, max(p[1] for p in points) + 1
    for percent in range(5 * math.ceil(lowest / 5), math.floor(highest) + 1, 5):
        y = bottom - (bottom - top) * (percent - lowest) / (highest - lowest)
        drawing.line([(left, y), (right, y)], "rule")
        drawing.text(left - 8, y + 5, f"{percent}%", "soft", anchor="end")
    across = _axis(slowest, fastest, left, right)
    for speed, kept, role in points:
        y = bottom - (bottom - top) * (kept - lowest) / (highest - lowest)
        drawing.dot(across(speed), y, 5, COLOUR_OF.get(role, "second"), hollow=role not in COLOUR_OF)
    for speed in (1, 2, 4):
        drawing.text(across(speed), bottom + 20, f"{speed}x", "soft", anchor="middle")
    drawing.text(right, bottom + 20, "speedup", "soft", anchor="end")


def latency(results: Results) -> Drawing:
    """Milliseconds for one text, of each form of the teacher and of the student: in batches, and alone."""
    rows = [
        (f"{model.name}, {model_rows.variant(model)}", 1000 / model.throughput_per_second, model.requests)
        for role in ("teacher", "student")
        for model in model_rows.of_role(results, role)
        if model.requests and model.throughput_per_second
    ]
    drawing = Drawing(760, 154 + 34 * len(rows), "Milliseconds for one text, in batches and alone, by form of a model")
    drawing.text(24, 34, "Milliseconds for one text", bold=True)
    drawing.text(24, 54, "In batches of up to eight, and alone: the median, with a line from there to p99.", "soft")
    left, right, top, bottom = 230, 724, 80, 80 + 34 * len(rows)
    every = [ms for _, batched, alone in rows for ms in (batched, alone.p50, alone.p99)]
    across = _axis(min(every) * 0.8, max(every) * 1.2, left, right)
    for ms in (base * 10.0**power for power in range(-2, 4) for base in (1, 2, 5)):
        if left <= across(ms) <= right:
            drawing.line([(across(ms), top - 6), (across(ms), bottom - 10)], "rule")
            drawing.text(across(ms), bottom + 8, f"{ms:g} ms", "soft", anchor="middle")
    for number, (name, batched, alone) in enumerate(rows):
        y = top + 12 + 34 * number
        drawing.text(24, y + 5, name)
        drawing.line([(across(alone.p50), y), (across(alone.p99), y)], "second")
        drawing.dot(across(alone.p50), y, 6, "second", hollow=True)
        drawing.dot(across(batched), y, 6, "first")
    drawing.dot(30, bottom + 37, 6, "first")
    drawing.text(44, bottom + 42, "in batches")
    drawing.dot(140, bottom + 37, 6, "second", hollow=True)
    drawing.text(154, bottom + 42, "alone")
    named = results.teacher_name.split(" ")[0]
    drawing.text(230, bottom + 42, f"Short texts of 77 intents; teacher: {named}. {processor(results)}.", "soft")
    return drawing


def _axis(low: float, high: float, left: float, right: float) -> Callable[[float], float]:
    """From a value to its place on a logarithmic axis."""
    return lambda value: left + (right - left) * math.log(value / low) / math.log(high / low)
