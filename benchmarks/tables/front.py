"""The table of README.md, which is one run over its seeds, and the end of a run, as a terminal shows it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks.tables.markers import measured_part
from benchmarks.tables.runs import RESULTS, Runs, above, page_of, processor, served, trained
from distill.errors import DataError
from distill.evaluation.results import Model, Results
from distill.report import averages, markdown, model_rows, overview, page
from distill.report.seeds import shown as over_seeds
from distill.report.table import Table, number, times
from distill.report.terminal import show
from distill.report.variants import Run

README = Path("README.md")
ENDING = "kinds/reranker/seed0"
"""The run whose end docs/report.md shows."""
ACROSS = 110
"""Characters of a line there."""
BOTH: tuple[model_rows.Key, ...] = ("retained", "above_chance")


def of_seeds(name: str, runs: Runs) -> Sequence[Results]:
    """The run `name`, and its repetitions with other seeds."""
    beside = [run for other, run in runs.items() if Path(other).parent == Path(name).parent]
    return next(group for _, group in overview.grouped(beside, trained) if any(run is runs[name] for run in group))


def students_of(name: str, runs: Runs) -> dict[str | None, list[Model]]:
    """The slowest and the fastest target of a run -> the student of each seed, in the variant that serves."""
    asked = model_rows.targets(runs[name]) or [None]
    return {target: [_student(run, target) for run in of_seeds(name, runs)] for target in (asked[0], asked[-1])}


def teachers_of(seeds: Sequence[Results], variant: str) -> list[Model]:
    """The teacher of each seed in a variant."""
    return [m for run in seeds for m in model_rows.of_role(run, "teacher") if model_rows.variant(m) == variant]


def front_part(name: str, runs: Runs) -> str:
    """The table of README.md: the teacher, the same in the variant of the first student, and the students of the
    slowest and of the fastest target. Over the seeds of the run `name`, with its command."""
    seeds, students = of_seeds(name, runs), students_of(name, runs)
    ends = list(students)
    variant = model_rows.variant(students[ends[0]][0])
    teachers = teachers_of(seeds, variant)
    # The reference of both ratios: what it retains, and its speedup, are 1 by definition.
    rows = [
        ("Teacher, float32", number(100), number(100), times(1)),
        _front_row(f"Teacher, {variant} only", teachers),
    ]
    rows += [
        _front_row(f"Student{'' if target is None else f' for {target}'}, {model_rows.variant(models[0])}", models)
        for target, models in students.items()
    ]
    columns = ("Model", "Retained %", "Retained above chance %", "Speedup")
    table = measured_part(Table("Front", columns, rows, 1, _front_notes(runs[name], seeds, ends)))
    command = re.sub(r"\btasks\.path=\S+", "tasks.path=GLUE", runs[name].command)
    links = (
        f"[Every variant]({RESULTS / page_of(name)}/README.md), [numbers]({RESULTS / name}/results.json), "
        "and its command, where GLUE is the folder of GLUE's files:"
    )
    warning = markdown.text(page.banner(bool(runs[name].smoke))).lstrip("\n")
    return f"{warning}{table}\n\n{links}\n\n{markdown.text(page.command(command))}".rstrip("\n")


def ending_part(runs: Runs) -> str:
    """The end of a run on the terminal, without the paths of its files."""
    results = runs.get(ENDING)
    if results is None:
        return "No such run is committed yet."
    console = Console(file=io.StringIO(), width=ACROSS)
    show(Run(Path(ENDING).parts[1], results), console=console)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().strip().splitlines()]
    return "\n".join(["```text", *lines, "```"])


def _student(results: Results, target: str | None) -> Model:
    """The student of a target in the variant that the search timed; in its fastest variant if none was searched."""
    student = served(results, target)[0] or model_rows.chosen(results, target)
    if student is None:
        raise DataError(f"{RESULTS}: got a run without one; must have a student to be in {README}; name another run")
    return student


def _front_row(name: str, models: Sequence[Model]) -> tuple[str, ...]:
    """A row of README's table, over seeds: as `overview.cell`, in fewer words."""
    speeds, ends = overview.measured(models, "speedup")
    several = f"{times(fmean(speeds))} ({min(speeds):.2f} to {max(speeds):.2f})" if len(speeds) > 1 else ""
    return name, *(_brief(models, key) for key in BOTH), several or over_seeds(speeds, ends, ".2f", "x")


def _front_notes(shown: Results, seeds: Sequence[Results], targets: Sequence[str | None]) -> list[str]:
    """What README's table covers, the machine, and the students without a teacher."""
    numbers = [str(seed) for run in seeds for seed in run.seeds]
    spread = (
        f"Retained %: mean and 95% interval over rows and seeds {', '.join(numbers)}. Speedup: mean (slowest to "
        f"fastest seed) over {model_rows.reference(shown)}"
        if len(numbers) > 1
        else f"Speedup: over {model_rows.reference(shown)}. Seed {numbers[0]}"
    )
    controls = [
        f"{_brief(found, 'retained', '%')}{'' if target is None else f' for {target}'} "
        f"({model_rows.counted(len(found), 'seed')}{above(found)})"
        for target in targets
        if (found := [m for run in seeds if (m := served(run, target)[1]) is not None])
    ]
    near = list(dict.fromkeys(task for run in seeds for task in run.near_chance or []))
    return [
        f"{averages.average_name(shown)}: {', '.join(model_rows.task_names(shown))}. Teacher: {shown.teacher_name}, "
        f"fine-tuned. {spread}; {processor(shown)}, "
        f"{model_rows.counted(shown.threads, 'thread')}.",
        *([f"Without a teacher the same students retain {' and '.join(controls)}."] if controls else []),
        *([f"Teacher near chance: {', '.join(near)}."] if near else []),
        *(["Made under older rules."] if any(run.older_rules for run in seeds) else []),
    ]


def _brief(models: Sequence[Model], key: model_rows.Key, unit: str = "") -> str:
    """A number over seeds, without the value of each seed where the interval over rows and seeds is known."""
    return re.sub(r"\] \(.*\)$", "]", over_seeds(*overview.measured(models, key), unit=unit))
