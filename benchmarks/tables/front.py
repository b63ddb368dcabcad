"""The table of README.md: one run over its seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tables.markers import measured_part
from benchmarks.tables.runs import RESULTS, Runs, page_of, processor, served, trained
from distill.errors import DataError
from distill.evaluation.results import Model, Results
from distill.report import headline, markdown, overview, page
from distill.report.table import Table, number, times

README = Path("README.md")


def front_part(name: str, runs: Runs) -> str:
    """The table of README.md: the teacher, the same in the variant of the first student, and the students of the
    slowest and of the fastest target. Over the seeds of the run `name`, with its command."""
    beside = [run for other, run in runs.items() if Path(other).parent == Path(name).parent]
    seeds = next(group for group in overview.grouped(beside, trained) if any(run is runs[name] for run in group))
    asked = headline.targets(runs[name]) or [None]
    ends = list(dict.fromkeys((asked[0], asked[-1])))
    students = {target: [_student(run, target) for run in seeds] for target in ends}
    variant = headline.variant(students[ends[0]][0])
    teachers = [m for run in seeds for m in headline.of_role(run, "teacher") if headline.variant(m) == variant]
    # The reference of both ratios: what it retains, and its speedup, are 1 by definition.
    rows = [("Teacher, float32", number(100), number(100), times(1)), _front_row(f"Teacher, {variant} only", teachers)]
    rows += [
        _front_row(f"Student{'' if target is None else f' for {target}'}, {headline.variant(models[0])}", models)
        for target, models in students.items()
    ]
    columns = ("Model", "Retained %", "Retained above chance %", "Measured speedup")
    table = measured_part(Table("Front", columns, rows, 1, _front_notes(runs[name], seeds, ends)))
    command = re.sub(r"\btasks\.path=\S+", "tasks.path=GLUE", runs[name].command)
    links = (
        f"All variants, tasks and intervals: [{RESULTS / page_of(name)}]({RESULTS / page_of(name)}/README.md). "
        f"Numbers: [results.json]({RESULTS / name}/results.json). "
        f"Command of seed {', '.join(map(str, runs[name].seeds))}, where GLUE is the folder of its files:"
    )
    warning = markdown.text(page.banner(bool(runs[name].smoke))).lstrip("\n")
    return f"{warning}{table}\n\n{links}\n\n{markdown.text(page.command(command))}".rstrip("\n")


def _student(results: Results, target: str | None) -> Model:
    """The student of a target in the variant that the search timed; in its fastest variant if none was searched."""
    student = served(results, target)[0] or headline.chosen(results, target)
    if student is None:
        raise DataError(f"{RESULTS}: got a run without one; must have a student to be in {README}; name another run")
    return student


def _front_row(name: str, models: Sequence[Model]) -> tuple[str, ...]:
    """A row of README's table: mean ± standard deviation over seeds."""
    above = overview.values([model.retained.above_chance for model in models if model.retained])
    return (
        name,
        overview.mean(overview.values([*map(headline.retained, models)]), number, 1),
        overview.mean(above, number, 1),
        overview.mean(overview.values([*map(headline.speedup, models)]), times, 2),
    )


def _front_notes(shown: Results, seeds: Sequence[Results], targets: Sequence[str | None]) -> list[str]:
    """What README's table covers, the machine, and the students without a teacher."""
    numbers = [str(seed) for run in seeds for seed in run.seeds]
    spread = f"Mean ± standard deviation over seeds {', '.join(numbers)}" if len(numbers) > 1 else f"Seed {numbers[0]}"
    controls = [
        f"{overview.mean(overview.values([*map(headline.retained, found)]), number, 1)}%"
        f"{'' if target is None else f' for {target}'} ({headline.counted(len(found), 'seed')})"
        for target in targets
        if (found := [m for run in seeds if (m := served(run, target)[1]) is not None])
    ]
    return [
        f"{headline.average_name(shown)}: {', '.join(headline.task_names(shown))}. Teacher: {shown.teacher_name}, "
        f"fine-tuned. Measured speedup: over {headline.reference(shown)}. {spread}; {processor(shown)}, "
        f"{headline.counted(shown.threads, 'thread')}.",
        *([f"Without a teacher the same students retain {' and '.join(controls)}."] if controls else []),
        *(["Made under older rules."] if any(run.older_rules for run in seeds) else []),
    ]
