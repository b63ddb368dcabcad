"""The rows whose lengths `distill.advise` times: those of a file, as a run would read them."""

from __future__ import annotations

from collections.abc import Callable

from distill.data.tasks import TaskData
from distill.errors import refuse
from distill.models.families.record import TEXTS
from distill.pipeline.context import Context
from distill.pipeline.validation import data
from distill.pipeline.validation.models import Models


def tasks_of(ctx: Context, given: Models, log: Callable[[str], None]) -> dict[str, TaskData]:
    """The task of the file; empty without one. What a run says of its columns and of long texts is logged.

    Raises:
        ConfigError: for a kind of task that the models do not fit.
        DataError: for a file that cannot be used.
    """
    if ctx.config.tasks.train is None:
        return {}
    found = ctx.tasks
    kinds = {each.task.kind.name: each.task.kind for each in found.values() if each.task.kind.architecture != TEXTS}
    refuse(line for kind in kinds.values() for line in data.unfit_for_kind(kind, given, ctx.config, ctx.plan))
    for line in [*ctx.notes, *data.long_texts(found, ctx.given.tokenizer, ctx.config.tasks.max_length)]:
        log(line)
    return found
