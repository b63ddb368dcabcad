"""The average over tasks that a report is about: which tasks are in it, and what it is called."""

from __future__ import annotations

from distill.data.task import names_in
from distill.evaluation.results import Coverage, Results
from distill.report.model_rows import LEARNED, task_names

GLUE = names_in("glue")


def evaluated(results: Results) -> dict[str, bool]:
    """Scored task -> whether the splits that its scores are of are complete.

    A task without training rows has no model and no scores, even if it has validation rows: it is not in the average.
    """
    return {
        task: not any(row.limited or row.rows < (row.official_rows or 0) for row in reported(results, task))
        for task in task_names(results)
    }


def reported(results: Results, task: str) -> list[Coverage]:
    """The rows of a task that its scores are of: of its test split or, without one, of its validation splits. Choices
    are made on the validation rows of a task that also has test rows."""
    rows = [row for row in results.coverage if row.task == task and row.split not in LEARNED]
    return [row for row in rows if row.split == "test" and row.rows] or rows


def published(results: Results) -> set[str]:
    """Tasks with an official number of rows. Own tasks have none, whatever they are called."""
    return {row.task for row in results.coverage if row.official_rows}


def glue_tasks(results: Results) -> set[str]:
    """Tasks of GLUE in the coverage, without own tasks of the same names."""
    return published(results) & set(GLUE)


def average_name(results: Results) -> str:
    """Name of the average: `GLUE` only for all nine tasks with complete validation splits."""
    tasks = evaluated(results)
    complete = all(tasks.values())
    if any(row.stand_in for row in results.coverage):
        return f"Stand-in average ({len(tasks)} tasks)"
    if tasks and set(tasks) <= glue_tasks(results):
        if len(tasks) == len(GLUE):
            return "GLUE (9 tasks)" if complete else f"Partial GLUE ({sum(tasks.values())} of 9 tasks complete)"
        return f"Partial GLUE ({len(tasks)} of 9 tasks)"
    if len(tasks) == 1:
        return f"{'Score' if complete else 'Partial score'} of {next(iter(tasks))}"
    return f"{'Average' if complete else 'Partial average'} ({len(tasks)} tasks)"
