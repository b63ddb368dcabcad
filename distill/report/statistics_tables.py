"""Tables on what the rows of a report can show: chance, tests, calibration and scores by length."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from msgspec import UNSET, UnsetType

from distill.evaluation.results import Model, Results
from distill.report import model_rows
from distill.report.model_rows import named
from distill.report.table import Row, Table, number, with_interval
from distill.report.verdict import identity, word


def chance_table(results: Results) -> Table | None:
    """For each task: the scores of the best constant predictor and of the teacher, and the detectable difference."""
    floor, least = results.chance, results.detectable or {}
    if not floor:
        return None
    teacher, near = model_rows.reference_teacher(results), results.near_chance or []
    rows = []
    for task, scores in floor.items():
        own = {} if teacher is None else (teacher.scores or {}).get(task, {})
        ends = {} if teacher is None else teacher.score_ci95.get(task, {})
        both = [with_interval(number(own.get(key)), ends.get(key), 1) for key in scores]
        cells = (" / ".join(scores), " / ".join(map(number, scores.values())), " / ".join(both))
        rows.append((task, *cells, number(least.get(task))))
    notes = [
        "Chance: the score of a predictor that ignores the text, on the same rows: the best one class, label or answer "
        "for all rows, or the mean over random orders of a query's documents. Detectable: the smallest true difference "
        "of two models, in points, that a test at the 5% level finds with a power of 80%."
    ]
    if results.guessed:
        guess = "it guesses classes, each as often as in the labels or all equally often, which has a higher score"
        notes.append(f"For {', '.join(results.guessed)}, {guess} than one class for all rows.")
    if near:
        notes.append(f"The teacher's 95% interval does not lie above chance: {', '.join(near)}.")
    constant = [f"{named(m)} ({', '.join(m.near_constant)})" for m in results.models if m.near_constant]
    if constant:
        notes.append(f"At least 99% of the outputs are one and the same: {'; '.join(constant)}.")
    columns = ("Task", "Metrics", "Chance", "Teacher [95%]", "Detectable")
    return Table("Chance, and what the rows can show", columns, rows, 2, notes)


def tests_table(results: Results) -> Table | None:
    """Every test of macro scores, and the tests on each task of the student of the headline."""
    student = model_rows.first_student(results)
    chosen = None if student is None else identity(student)
    shown = [test for test in results.tests or () if test.scope is None or identity(test.a) == chosen]
    if not shown:
        return None
    rows: list[Row] = [
        (
            model_rows.macro_score(results) if test.scope is None else test.scope,
            named(test.a),
            named(test.b),
            word(test),
            with_interval(f"{test.difference:+.1f}", test.ci95, 1),
            _p(test.p),
            _p(test.p_corrected),
        )
        for test in shown
    ]
    older = all(m.retained.at_least is UNSET for m in results.models if m.retained)
    family = "this report" if older else "models of this report in the same scheme on the same backend,"
    notes = [
        "Difference: score of A minus score of B in points, on the same rows. McNemar's exact test where the score is "
        "the accuracy of one task, none of whose rows share a text, else a paired bootstrap with 10,000 resamples. In "
        "newer runs, where only one of the two is right on fewer than 10 rows of such a task, the test with the larger "
        "p. Two models differ if p is "
        f"below 0.05, corrected by Holm's method for all tests of {family} on the same score and against the same kind "
        "of model (teacher, baseline, self-trained student or student), and not for the number of tasks: of 20 tasks "
        "without a difference, one is called different on average. They are not distinguishable if the interval, "
        "which is not corrected, includes 0; otherwise it is undecided. "
        "The tests include the variance of the rows, and not that of training.",
        *(
            f"Some rows of {split} share a text. The bootstrap draws such rows together, {parts:,} parts in all."
            for split, parts in results.drawn_together.items()
        ),
    ]
    columns = ("Score", "A", "B", "Result", "Difference [95%]", "p", "p, corrected")
    return Table("Tests", columns, rows, 4, notes)


def calibration_table(results: Results) -> Table | None:
    """Expected calibration error of teacher and student on each task, before and after temperature scaling."""
    both = (model_rows.reference_teacher(results), model_rows.first_student(results))
    rows = [
        (
            task,
            named(model),
            number(each.ece, 3),
            number(each.temperature, 2),
            number(each.ece_scaled, 3),
        )
        for model in both
        if model is not None
        for task, each in model.calibration.items()
    ]
    note = (
        "Expected calibration error, 0 to 1, in 15 bins (Guo et al. 2017). The temperature was chosen on development "
        "rows by the least negative log-likelihood; - where the run has no such rows, or the model makes no error on "
        "them, or may have learned them before the run."
    )
    columns = ("Task", "Model", "Error", "Temperature", "Error, scaled")
    return Table("Calibration", columns, sorted(rows), 2, [note]) if rows else None


def lengths_table(results: Results) -> Table | None:
    """Scores of teacher and student on short, middling and long texts."""
    teacher, student = model_rows.reference_teacher(results), model_rows.first_student(results)
    rows = [] if teacher is None or student is None else list(_by_length(teacher, student))
    if student is None or not rows:
        return None
    columns = ("Task", "Tokens", "Rows", "Teacher", "Student", "Difference")
    note = "Means of the task's metrics, on thirds of its rows by length in tokens of the teacher."
    return Table("Scores by length", columns, rows, 2, [note, f"Student: {named(student)}."])


def _by_length(teacher: Model, student: Model) -> Iterator[Row]:
    ours = student.by_length
    for task, thirds in teacher.by_length.items():
        for before, after in zip(thirds, ours.get(task, []), strict=False):
            scores = [fmean(third.scores.values()) if third.scores else None for third in (before, after)]
            difference = "-" if None in scores else f"{scores[1] - scores[0]:+.1f}"  # type: ignore[operator]
            tokens = f"{before.first} to {before.last}"
            yield task, tokens, number(before.rows, 0), number(scores[0]), number(scores[1]), difference


def tables(results: Results) -> list[Table | None]:
    """All tables of this module, in the order of the report."""
    return [chance_table(results), tests_table(results), calibration_table(results), lengths_table(results)]


def _p(value: float | UnsetType) -> str:
    return "-" if value is UNSET else "< 0.001" if value < 0.001 else f"{value:.3f}"
