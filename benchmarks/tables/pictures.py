"""The pictures of README and of the pages of docs, drawn from committed results or from what the code does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.tables.drawing import Drawing
from benchmarks.tables.front import ENDING, of_seeds, students_of, teachers_of
from benchmarks.tables.report_pictures import latency, screen
from benchmarks.tables.runs import Runs, processor, served
from distill.evaluation.results import Model, Results
from distill.report import averages, model_rows, overview

PICTURES = Path("docs/pictures")
LEFT, RIGHT, TOP, BOTTOM = 70, 712, 84, 372
"""Pixels of the edges of the plot in `curve`."""
SLOWEST = 0.8
"""Speedup at its left edge."""
MINILM, TEACHER = "all-MiniLM-L6-v2", (6, 384, 1536)
"""A teacher, and its layers, width and FFN width, by its config."""
TIMED = "kinds/intents/seed0"
"""The run whose times `latency` shows."""
Point = tuple[float, float]
"""Speedup and retained % of a model, or the means of several."""


def pictures(shown: str | None, runs: Runs) -> dict[Path, str]:
    """File -> text of every picture. `shown`: the run of README's table."""
    plain: dict[str, Callable[[], Drawing]] = {"flow": flow, "splits": splits, "recipes": recipes}
    drawn = {name: draw() for name, draw in plain.items()}
    if shown is not None:
        drawn["curve"] = curve(shown, runs)
    if shown is not None and runs[shown].teacher_name.startswith(MINILM):
        drawn["pruned"] = pruned(runs[shown])
    drawn |= {
        name: draw(runs[of])
        for name, (draw, of) in {"report": (screen, ENDING), "latency": (latency, TIMED)}.items()
        if of in runs
    }
    return {PICTURES / f"{name}.svg": drawing.svg() for name, drawing in drawn.items()}


def curve(name: str, runs: Runs) -> Drawing:
    """Retained % against speedup of README's run: means over seeds, and each seed."""
    seeds, students = of_seeds(name, runs), students_of(name, runs)
    variant = model_rows.variant(next(iter(students.values()))[0])
    groups = {
        "teacher": {variant: teachers_of(seeds, variant)},
        "student": students,
        "baseline": {t: [m for run in seeds if (m := served(run, t)[1]) is not None] for t in students},
    }
    points = {role: {key: _points(models) for key, models in found.items()} for role, found in groups.items()}
    means = {role: {key: _mean(each) for key, each in found.items() if each} for role, found in points.items()}
    every = [(1.0, 100.0), *(point for found in points.values() for each in found.values() for point in each)]
    lowest, highest = 5 * math.floor(min(kept for _, kept in every) / 5), max(kept for _, kept in every) + 2
    doublings = math.ceil(math.log2(max(speed for speed, _ in every)))

    def at(point: Point) -> Point:
        """Where a point is in the picture."""
        across = math.log(point[0] / SLOWEST) / math.log(2**doublings / SLOWEST)
        return LEFT + (RIGHT - LEFT) * across, BOTTOM - (BOTTOM - TOP) * (point[1] - lowest) / (highest - lowest)

    drawing = Drawing(760, 456, "Score kept against speed, of a model, of its int8 form and of students of it")
    drawing.text(24, 34, "Score kept against speed", bold=True)
    names = ", ".join(model_rows.task_names(seeds[0]))
    drawing.text(
        24,
        54,
        f"{averages.average_name(seeds[0])}: {names}. Means over seeds; each small dot is a seed.",
        "soft",
    )
    for percent in range(lowest, math.floor(highest) + 1, 5):
        y = at((1.0, percent))[1]
        drawing.line([(LEFT, y), (RIGHT, y)], "rule")
        drawing.text(LEFT - 10, y + 5, f"{percent}%", "soft", anchor="end")
    for speed in (2**number for number in range(doublings + 1)):
        drawing.text(at((speed, 100))[0], BOTTOM + 22, f"{speed}x", "soft", anchor="middle")
    drawing.text(
        (LEFT + RIGHT) / 2, BOTTOM + 42, "speed, over the model's fastest float32 form", "soft", anchor="middle"
    )
    drawing.text(24, 442, f"Model: {seeds[0].teacher_name.split(' (')[0]}, fine-tuned. {processor(seeds[0])}.", "soft")
    drawing.line([at((1.0, 100.0)), *map(at, [*means["teacher"].values(), *means["student"].values()])], "first")
    drawing.line([*map(at, means["baseline"].values())], "second")
    for role, colour in (("student", "first"), ("baseline", "second")):
        for point in (point for each in points[role].values() for point in each):
            drawing.dot(*at(point), 2.5, colour)
    for target, mean in means["student"].items():
        x, y = at(mean)
        drawing.dot(x, y, 7, "first")
        drawing.text(x + 10, y - 30, f"student for {target}: {mean[1]:.1f}%", "first", anchor="middle")
    for number, mean in enumerate(means["baseline"].values()):
        (x, y), what = at(mean), "without a teacher: " if number == 0 else ""
        drawing.dot(x, y, 7, "second", hollow=True)
        side, anchor = (16, "start") if number else (-16, "end")
        drawing.text(x + side, y + 5, f"{what}{mean[1]:.1f}%", "second", anchor=anchor)
    x, y = at((1.0, 100.0))
    drawing.dot(x, y, 7, "ink")
    drawing.text(x, y - 14, "your model", anchor="middle")
    for x, y in map(at, means["teacher"].values()):
        drawing.dot(x, y, 7, "first")
        drawing.text(x, y + 28, f"your model, {variant}", anchor="middle")
    return drawing


def _points(models: Sequence[Model]) -> list[Point]:
    speeds, kept = (overview.measured(models, key)[0] for key in ("speedup", "retained"))
    return [*zip(speeds, kept, strict=False)]


def _mean(points: Sequence[Point]) -> Point:
    speeds, kept = zip(*points, strict=True)
    return fmean(speeds), fmean(kept)


def pruned(results: Results) -> Drawing:
    """The shapes of a model and of its students, to scale."""
    drawing = Drawing(760, 354, "Layers and widths of a model and of the students that were pruned from it, to scale")
    drawing.text(24, 34, "What pruning removes", bold=True)
    drawing.text(
        24, 54, "Each layer has two bars: the width of its hidden states, and below it that of its FFN.", "soft"
    )
    shapes = [
        ("your model", *TEACHER),
        *((f"student for {p.target}", p.layers, p.hidden, p.ffn) for p in results.pruned or []),
    ]
    scale, left = 0.11, 24.0
    for name, layers, hidden, ffn in shapes:
        for layer in range(TEACHER[0]):
            y = 230 - 26 * layer
            drawing.box(left, y, TEACHER[2] * scale, 19, "back", dashed=True)
            if layer < layers:
                drawing.box(left, y, hidden * scale, 9, "first")
                drawing.box(left, y + 10, ffn * scale, 9, "tint")
        drawing.text(left, 272, f"{name}\n{layers} layers of {hidden},\nFFN of {ffn}")
        left += TEACHER[2] * scale + 14
    teacher = results.teacher_name.split(" (")[0]
    drawing.text(24, 338, f"Model: {teacher}. One seed, shapes searched on this machine: {processor(results)}.", "soft")
    return drawing


def flow() -> Drawing:
    """The stages of `recipe=prune`, in their order."""
    drawing = Drawing(760, 352, "What a run does with a model and a file, from the teacher to the exported folder")
    drawing.text(24, 34, "What a run does", bold=True)
    drawing.text(
        24, 54, "The words in grey are the stages of recipe=prune. Dashed: for comparison, not exported.", "soft"
    )
    drawing.label(24, 84, 150, 66, "your model\nand your file", "tint")
    drawing.label(210, 84, 150, 66, "teacher\nfinetune_teacher")
    drawing.label(396, 84, 150, 66, "smaller model\nprune")
    drawing.label(582, 84, 154, 66, "student\nrecover", "tint")
    drawing.label(582, 190, 154, 66, "without a teacher\nrecover_baseline", "warm", dashed=True)
    drawing.label(396, 190, 150, 66, "int8 forms\nquantize")
    drawing.label(210, 190, 150, 66, "scores and times\nevaluate")
    drawing.label(24, 190, 150, 66, "folder to serve\nexport", "tint")
    for x in (174, 360, 546):
        drawing.line([(x, 117), (x + 34, 117)], arrow=True)
    drawing.line([(520, 150), (520, 170), (560, 170), (560, 223), (580, 223)], arrow=True)
    drawing.line([(736, 117), (748, 117), (748, 276), (471, 276), (471, 258)], arrow=True)
    drawing.line([(285, 150), (285, 172), (440, 172), (440, 188)], arrow=True)
    drawing.line([(660, 256), (660, 276)])
    drawing.line([(394, 223), (362, 223)], arrow=True)
    drawing.line([(208, 223), (176, 223)], arrow=True)
    drawing.text(
        24,
        304,
        "The teacher gets a head only if your model has none. The student learns from the teacher's\n"
        "outputs on your rows and on similar ones. Every model is scored and timed in float32 and int8.",
        "soft",
    )
    return drawing


def splits() -> Drawing:
    """How the rows of one file are used: see docs/data/splits.md."""
    drawing = Drawing(760, 268, "How a run uses the labelled rows of a single file")
    drawing.text(24, 34, "What the rows of one file are for", bold=True)
    drawing.text(24, 54, "Where neither tasks.test nor tasks.validation nor tasks.development is set.", "soft")
    whole = 712
    kept, chosen = round(whole * 0.72), round(whole * 0.08)
    drawing.label(24, 84, kept, 62, "training rows\n72%", "tint")
    drawing.label(24 + kept, 84, chosen, 62, "8%", "warm")
    drawing.label(24 + kept + chosen, 84, whole - kept - chosen, 62, "reported rows\n20%")
    drawing.text(24, 176, "the teacher's head, the student and the\ncontrol are trained on them", "soft")
    drawing.line([(24 + kept + chosen / 2, 150), (24 + kept + chosen / 2, 162)])
    drawing.text(24 + kept + chosen, 176, "development rows: choices\nare made on them", "second", anchor="end")
    drawing.text(736, 176, "read once,\nfor the scores", "soft", anchor="end")
    drawing.text(
        24,
        230,
        "Copies of a text are always in the same part. If the model that you bring was trained on this\n"
        "file, it knows all of the rows. Then set tasks.test to a file that it does not know.",
        "soft",
    )
    return drawing


def recipes() -> Drawing:
    """The questions of docs/which-recipe.md."""
    questions = (
        ("Is your model fast enough in int8?", "recipe=quantize"),
        ("Must a share of its score be kept?", "recipe=auto"),
        ("Must a speed or a size be reached?", "recipe=prune"),
        ("Do you want to see the whole curve?", "recipe=frontier"),
        ("Do words decide, whatever their order?", "recipe=static"),
        ("Do teacher and student both exist?", "recipe=task"),
        ("A general model, from a corpus?", "recipe=distilbert"),
    )
    drawing = Drawing(760, 62 + 58 * len(questions), "Questions that lead to a recipe; the first yes is the answer")
    drawing.text(24, 34, "Which recipe? The first yes is the answer", bold=True)
    for number, (question, recipe) in enumerate(questions):
        y = 56 + 58 * number
        drawing.label(24, y, 380, 40, question)
        drawing.line([(404, y + 20), (516, y + 20)], "first", arrow=True)
        drawing.text(460, y + 13, "yes", "first", anchor="middle")
        drawing.label(520, y, 216, 40, recipe, "tint")
        if number + 1 < len(questions):
            drawing.line([(214, y + 40), (214, y + 56)], arrow=True)
            drawing.text(226, y + 53, "no", "soft")
    return drawing
