"""Columns of 0 and 1 that say which labels of a teacher a row has. Without torch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from distill.data.task_types import TASK_TYPES, TaskType
from distill.data.task_types.task_type import distinct
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import whole
from distill.models.families.head import Head


def flags_of(head: Head | None, table: pa.Table) -> list[str]:
    """The labels of a head of several labels, if each of them is a column of 0 and 1; else nothing."""
    several = head is not None and head.problem == TASK_TYPES["multi_label"].problem and head.outputs > 1
    names = [*head.labels] if several and head is not None else []
    if not names or not {*names} <= {*table.column_names}:
        return []
    accepts = TASK_TYPES["classification"].accepts
    columns = [table[name] for name in names]
    given = [{each.lower() for each in distinct(whole(label_names(c)))} if accepts(c.type) else {""} for c in columns]
    return names if all(values and values <= {"0", "1", "true", "false"} for values in given) else []


def flag_of(table: pa.Table, label: Sequence[str], task_type: TaskType, head: Head | None) -> str:
    """The only label of a head with one output that is a probability, if the label column tells by 0 and 1 which rows
    have it; else nothing."""
    problem = TASK_TYPES["multi_label"].problem
    if head is None or (head.outputs, head.problem, task_type.name, len(label)) != (1, problem, "multi_label", 1):
        return ""
    column = table[label[0]]
    if not TASK_TYPES["classification"].accepts(column.type):
        return ""
    found = {value.lower() for value in distinct(whole(label_names(column)))}
    return (head.labels or ("LABEL_0",))[0] if found and found <= {"0", "1", "true", "false"} else ""
