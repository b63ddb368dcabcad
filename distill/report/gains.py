"""What students score beyond their controls, over several runs: differences paired by row and by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from distill.config.plan import CONTROLS
from distill.evaluation.results import Model, Results
from distill.report import model_rows, overview, verdict
from distill.report.seeds import shown
from distill.report.table import Row, Table

Compared = tuple[Results, Model, Model]
"""A run, its student, and a control of it in the same variant."""


def over_runs(compared: Iterable[Compared | None]) -> str:
    """Points of the macro score by which students are above their controls, with its interval over rows and seeds and
    the gain of each run: `-` for one that has not tested it, or has no control (None)."""
    tests = [None if each is None else verdict.between(*each) for each in compared]
    gains = [None if test is None else test.difference for test in tests]
    return shown(gains, [test.ci95 for test in tests if test is not None], "+.1f")


def table(runs: Sequence[Results]) -> Table | None:
    """A row for each target and control of runs that differ only in their seed; None if no gain was tested."""
    rows: list[Row] = []
    short, _ = overview.names(overview.entries(runs))
    for title, group in overview.grouped(runs):
        targets = dict.fromkeys(target for run in group for target in model_rows.targets(run))
        for target, role in ((target, role) for target in targets for role in CONTROLS):
            pairs = _in_one_variant([(run, target, role) for run in group])
            if pairs:
                _, student, control = pairs[0]
                names = (short.get(title, group[0].recipe), model_rows.named(student), control.name)
                rows.append((*names, over_runs(pairs), ", ".join(str(seed) for run, *_ in pairs for seed in run.seeds)))
    notes = [
        "Gain: macro score of the student minus that of its control, in points, on the same rows, in the variant that "
        "most runs have both in. One run: with the 95% interval over rows. Several seeds: mean, the 95% interval over "
        "rows and seeds together, and the gain of each run.",
    ]
    return (
        Table("Gains over controls", ("Run", "Student", "Control", "Gain", "Seeds"), rows, 3, notes) if rows else None
    )


def _in_one_variant(asked: Sequence[tuple[Results, str | None, str]]) -> list[Compared]:
    """Of each run that tested them, the student of a target and its control of a role, in the variant that most of
    these runs have them in."""
    pairs = [(each[0], *both) for each in asked if (both := model_rows.pair(*each)) is not None]
    tested = [each for each in pairs if verdict.between(*each) is not None]
    most = Counter(model_rows.variant(student) for _, student, _ in tested).most_common(1)
    return [each for each in tested if model_rows.variant(each[1]) == most[0][0]]
