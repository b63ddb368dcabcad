"""The table and the picture of methods that are compared at one shape and one budget (benchmarks/methods.py)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.methods import FROM_TEACHER, LABELS
from benchmarks.tables.markers import SEVERAL, measured_part
from benchmarks.tables.runs import RECIPES, Runs, float32_student, seeds
from distill.evaluation.record import Interval
from distill.evaluation.results import Model, Results
from distill.report import markdown, model_rows, overview, verdict
from distill.report.page import Picture
from distill.report.seeds import over_seeds, shown
from distill.report.table import Table

PICTURE = "recipes.png"
CONTROL = "layer-drop"
"""The method that is the baseline of all others."""


@dataclass(frozen=True)
class Method:
    """Runs of a method that differ in their seed."""

    name: str
    runs: list[Results]

    @property
    def students(self) -> list[Model]:
        return [next(model for model in run.models if float32_student(model)) for run in self.runs]

    @property
    def gains(self) -> tuple[list[float], list[Interval | None]]:
        """Points of the macro score above the control, and their 95% intervals over rows, of each run that has it."""
        found = [
            verdict.between(run, student, control)
            for run, student in zip(self.runs, self.students, strict=True)
            for control in run.models
            if (control.role, control.backend, control.scheme) == ("baseline", "torch", "fp32")
        ]
        tests = [test for test in found if test is not None]
        return [test.difference for test in tests], [test.ci95 for test in tests]

    @property
    def gain(self) -> float:
        values, _ = self.gains
        return fmean(values) if values else 0.0

    def above(self, control: Method) -> str:
        """Points of the macro score above a control that other runs made, of the seeds that both have."""
        scores = [
            {tuple(run.seeds): student.macro or 0.0 for run, student in zip(each.runs, each.students, strict=True)}
            for each in (self, control)
        ]
        return shown([scores[0][seed] - scores[1][seed] for seed in scores[0] if seed in scores[1]], [], "+.1f")

    @property
    def better(self) -> bool:
        """Whether the interval of the gain is above 0."""
        ends = over_seeds(*self.gains) if self.gains[0] else None
        return ends is not None and ends[0] > 0


def methods(runs: Runs) -> list[Method]:
    """Those of which runs are committed, the largest gain first."""
    found: dict[str, list[Results]] = {}
    for name, results in runs.items():
        if name.startswith(RECIPES):
            found.setdefault(name.split("/")[1], []).append(results)
    return sorted((Method(*each) for each in found.items()), key=lambda method: -method.gain)


def page(runs: Runs) -> str:
    """The picture and the table."""
    found = methods(runs)
    if not found:
        return "No run is committed yet."
    tasks = model_rows.task_names(found[0].runs[0])
    of_labels = next((method for method in found if method.name == LABELS), None)
    rows = [
        (
            method.name.replace("-", "_"),
            "-" if method.name == CONTROL else shown(*method.gains, "+.1f"),
            method.above(of_labels) if of_labels and method.name.replace("-", "_") in FROM_TEACHER else "-",
            overview.cell(method.students, "retained"),
            overview.cell(method.students, "above_chance"),
            *(shown([fmean((student.scores or {})[task].values()) for student in method.students]) for task in tasks),
            seeds(method.runs),
        )
        for method in found
    ]
    columns = ("Method", "Gain over layer_drop", "Above labels", "Retained %", "Above chance %", *tasks, "Seeds")
    no_better = [row[0] for row, method in zip(rows, found, strict=True) if not method.better]
    notes = [
        "Of the student in torch float32, on the reported rows. Gain: points of the macro score above the student of "
        "layer_drop with the same seed, which has evenly spaced layers of the teacher as it was before its "
        "fine-tuning. Methods with a value in the column Above labels start from those layers of the fine-tuned "
        "teacher whose removal raises the loss least; labels has the same start, and learns from the labels alone. The "
        "value is the difference of the two macro scores, without a test. For each task the mean of its metrics. "
        "With two classes, decoupled_kl is soft_targets. "
        f"Several seeds: mean{SEVERAL}. Not shown to be better than layer_drop, because the interval of the gain is "
        f"not above 0: {', '.join(name for name in no_better if name != 'layer_drop') or 'none'}. The intervals are "
        "not corrected for the number of methods: of 40 methods without a gain, one has an interval above 0 on "
        "average. The order is that of the gains, and no test of one method against another.",
    ]
    drawn = markdown.text([Picture(PICTURE, text="Gain of each method over layer_drop")])
    return f"{drawn}\n{measured_part(Table('Methods', columns, rows, 1, notes))}"


def picture(found: Sequence[Method]) -> bytes:
    """PNG of the gain of each method, with its interval and the gain of each seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown_methods = [method for method in found if method.gains[0]][::-1]
    drawn = Figure(figsize=(8, 1.2 + 0.34 * len(shown_methods)), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    axes.axvline(0, color="0.5", linewidth=1)
    for height, method in enumerate(shown_methods):
        values, intervals = method.gains
        colour = "tab:blue" if method.better else "0.45"
        if (ends := over_seeds(values, intervals)) is not None:
            axes.plot(ends, [height, height], color=colour, linewidth=2)
        axes.plot(values, [height] * len(values), "o", color=colour, markersize=3, alpha=0.5)
        axes.plot([method.gain], [height], "o", color=colour, markersize=7)
    axes.set_yticks(range(len(shown_methods)), [method.name.replace("-", "_") for method in shown_methods])
    axes.set_title(f"Students of three layers, one budget: {', '.join(model_rows.task_names(found[0].runs[0]))}")
    axes.set_xlabel("points of the macro score above layer_drop\nmean, 95% interval over rows and seeds, each seed")
    axes.spines[["top", "right"]].set_visible(False)
    file = io.BytesIO()
    drawn.savefig(file, format="png", dpi=120, facecolor="white", metadata={"Software": None})
    return file.getvalue()
