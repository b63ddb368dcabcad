"""The rows whose lengths `distill.advise` times: those of a file as a run would read them or, where a run could not use
their labels, its texts alone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from datasets import Dataset

from distill.config import Tasks
from distill.data import folders
from distill.data.columns import texts_of
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.task_type import check_texts
from distill.data.tasks import TaskData, wanted
from distill.errors import ConfigError, DataError, refuse
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS, VECTORS
from distill.pipeline.context import Context
from distill.pipeline.validation import data
from distill.pipeline.validation.models import Models


def tasks_of(ctx: Context, given: Models, shown: Callable[[str], str]) -> dict[str, TaskData]:
    """The task of the file; empty without one. What a run says of its columns and of long texts is logged.

    Args:
        shown: a line as it is logged.

    Raises:
        ConfigError: for a kind of task that the models do not fit.
        DataError: for a file that cannot be used.
    """
    if ctx.config.tasks.train is None:
        return {}
    try:
        found, notes = ctx.tasks, ctx.notes
    except (ConfigError, DataError) as error:
        found, notes = _without_labels(ctx, error)
    kinds = {each.task.kind.name: each.task.kind for each in found.values() if each.task.kind.architecture != TEXTS}
    refuse(line for kind in kinds.values() for line in data.unfit_for_kind(kind, given, ctx.config, ctx.plan))
    for line in [*notes, *data.long_texts(found, ctx.given.tokenizer, ctx.config.tasks.max_length)]:
        ctx.machine.log(shown(line))
    return found


def _without_labels(ctx: Context, error: ConfigError | DataError) -> tuple[dict[str, TaskData], list[str]]:
    """The task of a file with its texts alone, and what is to be said of it. Raises the error for which a run refuses
    the file, if it is not about labels, or the models read more of a row than texts."""
    head, tasks = stored_head(ctx.given.teacher), ctx.config.tasks
    if tasks.label is not None or (head is not None and head.architecture not in (TEXTS, VECTORS)):
        raise error
    try:
        found = _texts(tasks, separate=head is not None and head.architecture == VECTORS)
    except (ConfigError, DataError):
        raise error from None
    name, columns = found.task.name, " and ".join(found.task.columns)
    said = f"{name}: the texts in {columns} alone are timed. A run would refuse the file: {error.messages[0]}"
    return {name: found}, [said]


def _texts(tasks: Tasks, *, separate: bool) -> TaskData:
    """The texts of a file. `separate`: whether both texts of a pair are read separately, so that those of the first
    column are enough.

    Raises:
        ConfigError: where no column is likely to be the text.
        DataError: for a file that is malformed, or has no text.
    """
    ((name, settings),) = wanted(tasks).items()
    table = next(iter(folders.read([str(settings.train)], "train", "tasks.train", settings).values()))
    columns, _, _ = texts_of(settings, table.rows, (), (), TEXTS, "tasks", table.files[0])
    columns = columns[: 1 if separate else None]
    check_texts(table.rows, columns, table.files[0])
    rows = pa.table({column: table.rows[column].cast(pa.string()) for column in columns}).drop_null()
    if not rows.num_rows:
        raise DataError(f"{table.files[0]}: got no text; must have rows with texts; add them")
    return TaskData(
        Task(name, TASK_TYPES["classification"], columns, (), ()), Dataset(rows, fingerprint="train"), {}, {}
    )
