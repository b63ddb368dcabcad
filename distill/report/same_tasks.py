"""Retained % of runs that differ only in their seed, over the same tasks.

A run leaves out the tasks on which its own teacher scores nothing. If only some seeds do so, their shares are of other
tasks, and a mean of them is of none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from distill.evaluation.results import Model, Results, known
from distill.report import model_rows


def left_out(runs: Sequence[Results]) -> list[str]:
    """The tasks of the headline that some of the runs leave out of retained % and others do not, and those that all
    leave out beside them; empty if all leave out the same."""
    each = [_of_run(run) for run in runs]
    return sorted(set[str]().union(*each)) if any(tasks != each[0] for tasks in each) else []


def _of_run(run: Results) -> set[str]:
    found = {task for model in run.models if model.retained for task in known(model.retained.left_out) or ()}
    return found - {*model_rows.outside(run)}


def without(model: Model, run: Results, tasks: Collection[str]) -> Model:
    """A model whose retained % leaves out these tasks. The interval of that is not known, and neither is the share on
    development rows, of which results have no scores of single tasks."""
    teacher = model_rows.reference_teacher(run)
    if not tasks or teacher is None or not model.retained or model.retained.headline is None:
        return model
    ours, theirs = (model_rows.task_scores(each.scores or {}) for each in (model, teacher))
    apart = {*tasks, *model_rows.outside(run)}
    over = [task for task in theirs if task in ours and task not in apart]
    whole = sum(theirs[task] for task in over)
    share = 100 * sum(ours[task] for task in over) / whole if whole > 0 else None
    return replace(model, retained=replace(model.retained, headline=share, ci95=None, at_least=None, development=None))


def note(name: str, runs: Sequence[Results]) -> list[str]:
    """What the retained % of runs leaves out, as a sentence in a list; empty if all leave out the same."""
    if not (tasks := left_out(runs)):
        return []
    return [
        f"{name}: retained % is without {' and '.join(tasks)} in every seed, because the teacher's score is not above "
        "zero there in some of them. It has no interval."
    ]
