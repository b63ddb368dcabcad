"""Tables over several committed runs: own files, kinds of tasks, the curve, the chain, settings of the recovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.tables.markers import SEVERAL, measured_part
from benchmarks.tables.runs import (
    CHAIN,
    FROM_TEACHER,
    OWN,
    Runs,
    above,
    asked,
    float32_student,
    processor,
    seeds,
    served,
    shape,
    speed,
    trained,
    worst,
)
from distill.config.baselines import BASELINE, SELF_TRAINED
from distill.evaluation.detection import FALSE_POSITIVES
from distill.evaluation.results import Model, Results, known
from distill.report import gains, model_rows, overview, timed, verdict
from distill.report.seeds import shown as over_seeds
from distill.report.table import Table

SEEN = dict.fromkeys(
    ("all-MiniLM-L6-v2", "all-mpnet-base-v2"),
    "was trained before on SNLI, MultiNLI, Quora duplicates, SQuAD and captions of Flickr30k, among others, from which "
    "MNLI, QQP, QNLI and a part of STS-B come.",
)
"""Beginning of a teacher's name -> what its model card says that concerns GLUE."""


def own_part(runs: Runs) -> str:
    """The students of runs on own files under the current rules, as in the headline, and the gain over the same ones
    without a teacher."""
    rows = []
    own = {name: results for name, results in runs.items() if name.startswith(OWN)}
    older = [name for name, results in own.items() if results.older_rules]
    for name, results in own.items():
        for target in model_rows.targets(results) if name not in older else []:
            student = model_rows.chosen(results, target)
            if student is None:
                continue
            rows.append(
                (
                    f"[{name}](../results/{name}/README.md)",
                    ", ".join(metric for scores in (student.scores or {}).values() for metric in scores),
                    f"{student.name}, {student.backend} {student.scheme}",
                    overview.cell([student], "retained"),
                    overview.cell([student], "above_chance"),
                    overview.cell([student], "speedup") + timed.at([timed.reported_input(results)]),
                    _gain(results, target),
                )
            )
    columns = (
        *("Run", "Score", "Student", "Retained % [95%]", "Above chance % [95%]", "Speedup [95%]"),
        "Gain by distillation",
    )
    notes = [
        f"The fastest variant of each target's student, one seed. Speedup: over {model_rows.REFERENCE}. Gain by "
        "distillation: retained percentage points over the same student trained without a teacher, if the run has it."
    ]
    if older:
        notes.append(f"Under older rules, and only in [docs/results](../results/README.md): {', '.join(older)}.")
    return measured_part(Table("Own files", columns, rows, 3, notes)) if rows else "No run is committed yet."


def _gain(results: Results, target: str | None) -> str:
    """Retained percentage points of a student over its baseline, the form of both if the student's fastest one is
    another, and whether the report's test finds a difference."""
    both = model_rows.pair(results, target)
    if both is None:
        return "-"
    student, baseline = ((model_rows.retained(model) or 0.0) for model in both)
    test = verdict.between(results, *both)
    unclear = f", {verdict.word(test)}" if test is not None and not test.distinguishable else ""
    form = "" if both[0] is model_rows.chosen(results, target) else f" as {model_rows.variant(both[0])}"
    return f"{student - baseline:+.1f}{form}{unclear}"


def controlled_part(runs: Runs, beginning: str, what: str) -> str:
    """A row for each run below `docs/results/BEGINNING` and target, over seeds: the teacher's and the student's fastest
    variants, and the controls in the variant that is compared with them. `what` heads the column of names."""
    kinds: dict[str, list[Results]] = {}
    for name, results in runs.items():
        if name.startswith(beginning):
            kinds.setdefault(name.split("/")[1], []).append(results)
    rows: list[tuple[str, ...]] = []
    for kind, made in kinds.items():
        for _, group in overview.grouped(made, trained):
            whole = [model for run in group if (model := model_rows.reference_teacher(run)) is not None]
            rows += [_kind_row(kind, target, group, whole) for target in model_rows.targets(group[0]) if whole]
    columns = (
        *(what, "Target", "Score", "Teacher", "Teacher, fastest form", "Student, fastest form"),
        *("Without a teacher", "Self-trained", "Seeds"),
    )
    notes = [
        "Teacher: its score in float32. Then retained % at measured speedup over the teacher's fastest float32 "
        "variant, and retained % of the two controls, in the student's form or, where they have none in it, in the "
        f"first form that both have. Of runs of one machine, the mean{SEVERAL}."
    ]
    tables = [measured_part(Table("Kinds", columns, rows, 3, notes))] if rows else ["No run is committed yet."]
    return "\n\n".join([*tables, *_detection(kinds, what)])


def _detection(kinds: Mapping[str, Sequence[Results]], what: str) -> Iterator[str]:
    """The table of how well the rarer label of two classes is found, of kinds of tasks with two classes."""
    rows: list[tuple[str, ...]] = []
    for kind, made in kinds.items():
        for _, group in overview.grouped(made, trained):
            for target in model_rows.targets(group[0]):
                students = [model_rows.chosen(run, target) for run in group]
                rows += [
                    (kind, label, *(_recall(models, task, label) for models in _of_roles(group, target)))
                    for task, label in _rarer(students[0])
                ]
    columns = (what, "Label", "Teacher", "Student, fastest form", "Without a teacher", "Self-trained")
    notes = [
        f"Recall of the rarer of two labels in percent, where the threshold lets {FALSE_POSITIVES}% of the development "
        "rows without it pass, with its 95% interval over rows; in parentheses the false positives in percent of the "
        "reported rows, and the average precision. Controls are in the student's form or, where they have none in it, "
        "in the first form that both have."
    ]
    if rows:
        yield measured_part(Table("Detection", columns, rows, 2, notes))


def _of_roles(group: Sequence[Results], target: str | None) -> Iterator[list[Model | None]]:
    """The teachers in float32, the students and both controls of runs."""
    yield [model_rows.reference_teacher(run) for run in group]
    yield [model_rows.chosen(run, target) for run in group]
    yield from _controls(group, target)


def _rarer(model: Model | None) -> Iterator[tuple[str, str]]:
    """Task and the rarer label of each task with two classes."""
    for task, labels in model.detection.items() if model is not None else ():
        if len(labels) == 2:
            yield task, min(labels, key=lambda label: labels[label].positives)


def _recall(models: Sequence[Model | None], task: str, label: str) -> str:
    found = [model.detection[task][label] for model in models if model is not None and task in model.detection]
    if not found:
        return "-"
    recall = over_seeds([each.recall for each in found], [each.recall_ci95 for each in found])
    others = ([each.false_positives for each in found], [each.average_precision for each in found])
    return f"{recall} ({', '.join(over_seeds(values) for values in others)})"


def _kind_row(kind: str, target: str | None, group: Sequence[Results], whole: Sequence[Model]) -> tuple[str, ...]:
    """A row of `controlled_part`. whole: the teachers in float32."""
    teachers = [model_rows.fastest(run, _measured(model_rows.of_role(run, "teacher"))) for run in group]
    speedup = asked(group[0], target)
    return (
        kind,
        "-" if speedup is None else f"{speedup:g}x",
        ", ".join(metric for scores in (whole[0].scores or {}).values() for metric in scores),
        over_seeds([known(model.macro) for model in whole]),
        _both(teachers),
        _both([model_rows.chosen(run, target) for run in group]),
        *map(_retained, _controls(group, target)),
        seeds(group),
    )


def _controls(group: Sequence[Results], target: str | None) -> Iterator[list[Model | None]]:
    """The baselines and the self-trained models of runs, in the form that is compared with the student's."""
    for role in (BASELINE, SELF_TRAINED):
        pairs = (model_rows.pair(run, target, role) for run in group)
        yield [both[1] if both is not None else None for both in pairs]


def _measured(models: Sequence[Model]) -> list[Model]:
    """Those with a score that are compared with the teacher's float32."""
    return [model for model in models if not model.failed and model_rows.retained(model) is not None]


def _both(models: Sequence[Model | None]) -> str:
    """Retained % at speedup, over runs."""
    return f"{_retained(models)} at {overview.cell(models, 'speedup')}"


def compressed_part(runs: Sequence[Results], notes_on_rules: Sequence[str]) -> str:
    """A row for each target: the student and its baseline over seeds, in the variant that the search timed."""
    rows: list[tuple[str, ...]] = []
    for _, group in overview.grouped(runs, trained):
        targets = dict.fromkeys((asked(run, target), target) for run in group for target in model_rows.targets(run))
        for speedup, target in targets:
            if speedup is None:
                continue
            every = [(run, *served(run, target)) for run in group]
            of_runs = [(run, student, other) for run, student, other in every if student is not None]
            students, baselines = [student for _, student, _ in of_runs], [other for *_, other in of_runs]
            rows.append(
                (
                    f"{speedup:g}x",
                    ", ".join(dict.fromkeys(map(model_rows.variant, students))),
                    overview.cell(students, "retained"),
                    overview.cell(students, "above_chance"),
                    worst(students),
                    _retained(baselines),
                    gains.over_runs([(run, ours, other) if other else None for run, ours, other in of_runs]),
                    overview.cell(students, "speedup"),
                    ", ".join(dict.fromkeys(shape(run, target) for run, *_ in of_runs)),
                    processor(group[0]),
                    seeds([run for run, *_ in of_runs]),
                )
            )
    rows.sort(key=lambda row: speed(row[0]))
    columns = (
        *("Target", "Variant", "Retained %", "Above chance %", "Worst task %", "Without a teacher"),
        *("Gain in score", "Speedup", "Shape", "Processor", "Seeds"),
    )
    notes = [
        "Variant: the one for which the shape was searched. Without a teacher: retained % of the same model, pruned in "
        "the same way and trained on the labelled rows alone, without the transfer set, in the seeds that have it. "
        "Worst task: of each seed, in percent of the teacher's score. Gain in score: points of the macro "
        f"score over that model, paired by seed. Speedup: over {model_rows.REFERENCE} at the tasks' own lengths. "
        f"Several seeds: mean{SEVERAL}. Shape: layers x hidden channels x FFN channels.",
        *_seen(runs),
        *notes_on_rules,
    ]
    return measured_part(Table("Curve", columns, rows, 2, notes)) if rows else "No result is committed yet."


def _retained(models: Sequence[Model | None]) -> str:
    """Retained % over seeds, and the mean of it above chance."""
    return f"{overview.cell(models, 'retained')}{above(models)}"


def levers_part(runs: Runs, beginning: str) -> str:
    """A row for each setting of the recovery in a group of runs, over its seeds: what the student in torch float32
    retains."""
    groups: dict[str, list[Results]] = {}
    for name, results in runs.items():
        if name.startswith(beginning):
            groups.setdefault(name.split("/")[1], []).append(results)
    rows, tasks = [], list(dict.fromkeys(task for group in groups.values() for task in model_rows.task_names(group[0])))
    for lever, group in groups.items():
        students = [next(m for m in run.models if float32_student(m)) for run in group]
        apart = [model_rows.development(student) for student in students]
        scores = [[fmean((student.scores or {})[task].values()) for student in students] for task in tasks]
        rows.append(
            (
                lever.replace("-", " "),
                over_seeds(apart),
                overview.cell(students, "retained"),
                overview.cell(students, "above_chance"),
                *map(over_seeds, scores),
                seeds(group),
            )
        )
    columns = ("Recovery", "Retained %, development", "Retained %, reported", "Above chance %", *tasks, "Seeds")
    notes = [
        "Of the student in torch float32: retained % of the teacher's macro score on the development rows, on which "
        "choices are made, and on the reported rows; for each task the mean of its metrics on the reported rows. "
        f"Several seeds: mean{SEVERAL}."
    ]
    return measured_part(Table("Recovery", columns, rows, 1, notes)) if rows else "No run is committed yet."


def chain_part(runs: Runs) -> str:
    """A row for each target that was pruned to in both ways, and way: what the student's fastest variant retains."""
    found: dict[tuple[str, str], list[tuple[Results, Model]]] = {}
    for name, results in runs.items():
        for way, title in ((FROM_TEACHER, "the teacher"), (CHAIN, "the student before it")):
            for target in model_rows.targets(results) if name.startswith(way) else ():
                if target is not None and (student := model_rows.chosen(results, target)) is not None:
                    found.setdefault((target, title), []).append((results, student))
    both = [key for key in found if {title for target, title in found if target == key[0]} > {key[1]}]
    rows = []
    for target, title in sorted(both, key=lambda key: (speed(key[0]), key[1] != "the teacher")):
        every, students = zip(*found[target, title], strict=True)
        rows.append(
            (
                target,
                title,
                *(overview.cell(students, key) for key in ("retained", "above_chance", "speedup")),
                ", ".join(dict.fromkeys(map(model_rows.variant, students))),
                ", ".join(shape(results, target) for results in every),
                seeds(every),
            )
        )
    columns = ("Target", "Cut from", "Retained %", "Above chance %", "Speedup", "Variant", "Shape", "Seeds")
    notes = [
        "The student's fastest variant: retained % of the teacher's macro score on the reported rows, and speedup over "
        f"{model_rows.REFERENCE} at the tasks' own lengths. Shape: layers x hidden channels x FFN channels. Several "
        f"seeds: mean{SEVERAL}."
    ]
    return measured_part(Table("Chain", columns, rows, 2, notes)) if rows else "No run is committed yet."


def _seen(runs: Iterable[Results]) -> list[str]:
    """Sentences on what the teachers of runs were trained on before."""
    names = dict.fromkeys(name for name in SEEN for run in runs if (run.teacher_name or "").startswith(name))
    return [f"The teacher {name} {SEEN[name]}" for name in names]
