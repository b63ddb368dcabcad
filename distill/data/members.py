"""Rows as each of several embedders reads them: with the prompts of its own folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distill import config
from distill.data.task import chosen
from distill.data.tasks import Loaded, TaskData
from distill.data.vectors import prompts_of
from distill.models.families.head import Head


def with_own_prompts(loaded: Loaded, heads: Sequence[Head | None], settings: config.Tasks) -> Loaded:
    """The tasks with the prompts of each teacher, except tasks whose prompts the settings state.

    Args:
        heads: of each teacher. With the prompts of the first one, students read too.
    """
    stated, tasks, notes = chosen(settings), dict[str, TaskData](), list[str]()
    for name, data in loaded.tasks.items():
        each = tuple(prompts_of(data.task.kind, head) for head in heads)
        if len({*each}) > 1 and stated[name].prompts is None:
            notes += [f"{name}: {_said(number, prompts)}" for number, prompts in enumerate(each) if number]
            data = replace(data, task=replace(data.task, member_prompts=each))
        tasks[name] = data
    return replace(loaded, tasks=tasks, notes=[*loaded.notes, *notes])


def _said(number: int, prompts: tuple[str, ...]) -> str:
    shown = " and ".join(map(repr, prompts)) if prompts else "none"
    return f"the prompts with which member {number + 1} of the teacher reads: {shown}; students read as member 1 does"


def read_by(data: TaskData, number: int) -> TaskData:
    """A task as one of several teachers reads it. `number`: its index. Students, and single teachers, have 0."""
    each = data.task.member_prompts
    if not each or each[number] == data.task.prompts:
        return data
    return replace(data, task=replace(data.task, prompts=each[number]))
