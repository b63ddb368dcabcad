"""The tables below the main one: gain, scores by task, retained % four ways, coverage, latency, stages, machine."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from distill.config.baselines import BASELINE, SELF_TRAINED
from distill.evaluation.results import Model, Results, known
from distill.report import averages, footnotes, headline, kind_tables, model_rows, statistics_tables
from distill.report.loads_table import loads_table
from distill.report.table import Row, Table, number, roles, times, with_interval, without_skill
from distill.report.timed import latency, median, shapes
from distill.report.variants import fastest_teacher


def _models(results: Results, title: str, columns: Row, cells: Callable[[Model], Row], notes: list[str]) -> Table:
    """A table with a row for each model: its name, backend and scheme, then cells(model)."""
    rows = [(m.name, m.backend, m.scheme, *cells(m)) for m in results.models]
    return Table(title, ("Model", "Backend", "Scheme", *columns), rows, 3, notes, roles(results))


def scores_table(results: Results) -> Table:
    """Every metric of every task."""
    tasks = model_rows.task_names(results)
    metrics = {
        task: list(dict.fromkeys(k for m in results.models for k in (m.scores or {}).get(task, ()))) for task in tasks
    }

    def cells(model: Model) -> Row:
        scores = model.scores or {}
        return tuple(" / ".join(number(scores.get(task, {}).get(key)) for key in metrics[task]) for task in tasks)

    columns = tuple(f"{task} ({' / '.join(metrics[task])})" for task in tasks)
    return _models(results, "Scores by task, in percent", columns, cells, [])


def retained_table(results: Results) -> Table:
    """Retained % four ways, which differ by more than the gain of most methods; and above chance, where it is known."""
    above = any(m.retained and m.retained.above_chance is not UNSET for m in results.models)

    def cells(model: Model) -> Row:
        kept = model.retained
        if not kept:
            return ("-",) * (5 if above else 4)
        return (
            number(kept.headline),
            number(kept.macro),
            number(kept.mean_of_ratios),
            f"{kept.worst.percent:.1f} ({kept.worst.task})" if kept.worst else "-",
            *([with_interval(number(kept.above_chance), known(kept.above_chance_ci95), 1)] if above else []),
        )

    columns = (
        "Headline",
        "Macro",
        "Mean of ratios",
        "Worst task",
        *(["Above chance [95%]"] if above else []),
    )
    left_out = dict.fromkeys(task for m in results.models if m.retained for task in m.retained.left_out or ())
    without = model_rows.exclusion(results)
    notes = [
        f"Headline: ratio of the macro scores{without}. Macro: the same over all tasks. Mean of ratios: average of the "
        f"tasks' ratios{without}. Worst task: the smallest ratio of a task."
    ]
    if above:
        notes.append(
            f"Above chance: what a model scores above {without_skill(results)}, as a percentage of what the teacher "
            f"does, both as macro scores{without}."
        )
    if left_out:
        notes.append(f"Not in any ratio, because the teacher's score is not above zero: {', '.join(left_out)}.")
    return _models(results, f"Retained %, {'five' if above else 'four'} ways", columns, cells, notes)


CONTROL = {BASELINE: ("the baseline", "Without a teacher"), SELF_TRAINED: ("self-training", "Self-trained")}
"""Role of a control -> words of the tables that students are compared with it in."""


def gain_tables(results: Results) -> list[Table]:
    """The student against each of its controls, in the same variant."""
    targets = model_rows.targets(results)
    several = len(targets) > 1
    return [
        _gains(results, targets, role) if several else _gain(results, targets[0], role)
        for role in headline.shown_controls(results)
    ]


def _gain(results: Results, target: str | None, role: str) -> Table:
    compared = model_rows.pair(results, target, role)
    assert compared is not None
    student, control = compared
    ours, theirs = (model_rows.task_scores(model.scores or {}) for model in compared)
    lines = [(task, ours.get(task), theirs.get(task)) for task in model_rows.task_names(results)]
    lines.append((averages.average_name(results), known(student.macro), known(control.macro)))
    lines.append(("retained %", model_rows.retained(student), model_rows.retained(control)))
    rows = [(name, number(a), number(b), "-" if a is None or b is None else f"{a - b:+.1f}") for name, a, b in lines]
    over, name = CONTROL[role]
    columns = ("Task", "Distilled", name, "Gain in points")
    return Table(f"Gain over {over} ({model_rows.variant(student)})", columns, rows)


def waterfall_table(results: Results) -> Table | None:
    """What each change from the teacher to the fastest variant of each student gave."""
    every = results.waterfall or []
    several = len({row.target for row in every}) > 1
    rows: list[Row] = []
    for before, row in zip([None, *every], every, strict=False):
        same = before is not None and before.target == row.target
        gain = row.speedup / before.speedup if same and before and before.speedup and row.speedup else None
        name = (model_rows.target_name(row.target or None),) if several else ()
        rows.append((*name, row.step, times(gain), times(row.speedup), number(row.retained)))
    columns = (*(("Target",) if several else ()), "Step", "Faster by", "Speedup", "Retained %")
    over = model_rows.reference(results)
    notes = [
        f"Each row adds its step to those above it. Speedup: over {over}, so that the teacher in torch float32 may be "
        "below 1. Runtime: the same float32 weights on the backend of the last row."
    ]
    return Table("What each step gave", columns, rows, 2 if several else 1, notes)


def _gains(results: Results, targets: list[str | None], role: str) -> Table:
    """Retained % of each of several students and of its control."""
    pairs = {target: pair for target in targets if (pair := model_rows.pair(results, target, role)) is not None}
    values = {target: tuple(model_rows.retained(model) or 0.0 for model in pair) for target, pair in pairs.items()}
    rows = [
        (model_rows.target_name(target), model_rows.variant(pairs[target][0]), number(a), number(b), f"{a - b:+.1f}")
        for target, (a, b) in values.items()
    ]
    over, name = CONTROL[role]
    columns = ("Target", "Variant", "Distilled", name, "Gain in points")
    return Table(f"Retained %, and the gain over {over}", columns, rows, 2)


def coverage_table(results: Results) -> Table:
    """Rows used of each split, and its official number of rows, of which the development split has a part."""
    rows = [
        (
            row.task,
            row.split,
            "; ".join(
                word
                for word, holds in {
                    "stand-in": row.stand_in,
                    "missing": not row.rows,
                    "capped": row.limited,
                    "partial": 0 < rows < (row.official_rows or 0) and not row.limited,
                }.items()
                if holds
            )
            or "complete",
            number(row.rows, 0),
            number(row.official_rows, 0),
        )
        for row, rows in zip(results.coverage, footnotes.used(results), strict=True)
    ]
    return Table("Coverage", ("Task", "Split", "Status", "Rows", "Official rows"), rows, 3)


def recall_table(results: Results) -> Table | None:
    """Rows and recall of each label of own tasks, for the teacher and the student of the headline."""
    counts = {(row.task, row.split): row.labels for row in results.coverage if row.labels is not UNSET}
    tasks = list(dict.fromkeys(task for task, _ in counts))
    student = model_rows.first_student(results)
    teacher = model_rows.reference_teacher(results)
    if not tasks or student is None or teacher is None or not teacher.recall:
        return None
    rows = []
    for task in tasks:
        train = counts.get((task, "train"), {})
        total = sum(train.values()) or 1
        for label in train:
            both = (number(model.recall.get(task, {}).get(label)) for model in (teacher, student))
            rows.append((task, label, number(train[label], 0), number(100 * train[label] / total), *both))
    name = model_rows.named(student)
    columns = ("Task", "Label", "Training rows", "Share %", "Recall %, teacher", f"Recall %, {name}")
    note = "Recall: share of the label's reported rows for which the model outputs it; - for a label without such rows."
    notes = [note]
    if of_spans := dict.fromkeys(row.task for row in results.coverage if row.spans):
        notes.append(f"For {', '.join(of_spans)}, a label is a type of span, and its rows are the spans of this type.")
    return Table("Labels", columns, rows, 2, notes)


def latency_table(results: Results) -> Table:
    """Median and 90th percentile in ms at every shape."""
    names = shapes(results)

    def cells(model: Model) -> Row:
        rows = [latency(model, name) for name in names]
        return tuple(f"{number(row.median)} ({number(row.p90)})" if row else "-" for row in rows)

    notes = model_rows.on_the_cpu(results)
    return _models(results, "Latency in ms: median (90th percentile)", tuple(names), cells, notes)


def by_shape_table(results: Results) -> Table:
    """Speedup at every shape, as the ratio of medians."""
    names = shapes(results)
    fastest = fastest_teacher(results)

    def cell(model: Model, shape: str) -> str:
        own = median(model, shape)
        return times(fastest[shape] / own) if shape in fastest and own else "-"

    return _models(
        results,
        "Speedup over the fastest float32 teacher, by shape",
        tuple(names),
        lambda model: tuple(cell(model, name) for name in names),
        [
            "Ratios of the medians in the table above. The reference at each shape is the teacher's fastest float32 "
            "variant at that shape.",
            *model_rows.on_the_cpu(results),
        ],
    )


def other_table(results: Results) -> Table | None:
    """Multiply-accumulates, throughput and calibration; None if no model has any of them."""
    digits = {"gmacs": 2, "throughput_per_second": 0, "calibration_error": 2}
    if all(getattr(m, key) in (None, UNSET) for m in results.models for key in digits):
        return None

    def cells(model: Model) -> Row:
        return tuple(number(getattr(model, key), places) for key, places in digits.items())

    columns = ("GMACs", "Examples/s", "Calibration error")
    note = (
        "GMACs: billions of multiply-accumulates for one text of 128 tokens. Examples/s: in batches, at the tasks' own "
        "lengths. Calibration error: expected calibration error, 0 to 1, averaged over tasks with classes or labels."
    )
    return _models(results, "Other measures", columns, cells, [note])


def stages_table(results: Results) -> Table:
    """Duration, tokens per second and peak memory of every stage."""
    several = any(stage.target for stage in results.stages)
    rows = [
        (
            stage.name,
            *([stage.target or ""] if several else []),
            f"skipped: {stage.skipped}" if stage.skipped else "by an earlier run" if stage.reused else "",
            number(stage.seconds),
            number(stage.tokens_per_second, 0),
            number(stage.peak_memory_mib, 0),
        )
        for stage in results.stages
    ]
    text = ("Stage", *(["Target"] if several else []), "Note")
    return Table("Stages", (*text, "Seconds", "Tokens/s", "Peak memory MiB"), rows, len(text))


def tries_table(results: Results) -> Table:
    """The trainings of each model of which several were tried, or which collapsed, by their development scores."""
    shown = [
        (stage, tried) for stage in results.stages for tried in stage.tried if len(tried.tries) > 1 or tried.collapsed
    ]
    rows = [
        (
            stage.name if stage.target is None else f"{stage.name} {stage.target}",
            tried.task if not tried.member else f"{tried.task}, member {tried.member}",
            f"{each.lr:.2g}",
            str(each.seed),
            each.failed or ", ".join(["collapsed"] * each.collapsed + ["kept"] * each.kept),
            number(each.score),
            number(tried.chance),
        )
        for stage, tried in shown
        for each in tried.tries
    ]
    columns = ("Stage", "Task", "Learning rate", "Seed", "Note", "Development score", "Without skill")
    note = (
        "The model with the best score on the development rows is kept, the first of equal ones. A model collapsed if "
        "this score is not above that of a predictor without any skill and, where it predicts classes or "
        "labels, nearly all of its predictions are the same."
    )
    return Table("Trainings that were tried", columns, rows, 5, [note])


def environment_table(results: Results) -> Table:
    rows = [(str(key), "-" if value is None else str(value)) for key, value in results.environment.items()]
    return Table("Environment", ("Property", "Value"), rows, 2)


def fingerprints_table(results: Results) -> Table:
    """Fingerprints of the data and the models that the run was given, and versions of its code."""
    rows = [(key, value or "-") for key, value in (results.fingerprints or {}).items()]
    return Table("Fingerprints", ("Input or package", "Fingerprint or version"), rows, 2)


def tables(results: Results) -> list[Table]:
    """All tables except the main one, in the order of the report."""
    every = [
        *gain_tables(results),
        waterfall_table(results),
        scores_table(results),
        retained_table(results),
        recall_table(results),
        *kind_tables.tables(results),
        *statistics_tables.tables(results),
        coverage_table(results),
        loads_table(results),
        latency_table(results),
        by_shape_table(results),
        other_table(results),
        stages_table(results),
        tries_table(results),
        environment_table(results),
        fingerprints_table(results),
    ]
    return [table for table in every if table is not None and table.rows]
