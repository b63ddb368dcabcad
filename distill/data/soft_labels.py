"""The column of a task's soft labels, as outputs that stand in for a teacher's. Without torch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.files import Table
from distill.data.labels import Labels
from distill.data.task_types import TaskType
from distill.data.task_types.task_type import is_list, is_text
from distill.errors import ConfigError
from distill.runtime import quoting


def soft_outputs(
    settings: config.Task, task_type: TaskType, labels: Labels, table: Table, key: str
) -> np.ndarray | None:
    """[n, outputs] of the training rows in `table`, NaN for rows without; None if the settings name no soft labels.

    Args:
        key: setting of the task, e.g. `tasks`, for messages.

    Raises:
        ConfigError: for a missing column, and for lists whose order is unknown.
        DataError: for the first row whose value is no soft label.
    """
    name = settings.soft_label
    if name is None:
        return None
    assert task_type.soft is not None
    if name not in table.rows.column_names:
        raise ConfigError(
            f"{key}.soft_label: got {name}; must be a column of {table.files[0]}, of "
            f"{', '.join(table.rows.column_names)}; correct it"
        )
    column = table.rows[name]
    if task_type.named and settings.labels is None and _has_lists(column):
        raise ConfigError(
            f"{key}.labels: got nothing; must be the labels in the order of the probabilities in {name}; set, in "
            f"that order, {quoting.setting(f'{key}.labels', list(labels.names))}"
        )
    numbers = {label: number for names in (labels.spelled, labels.names) for number, label in enumerate(names)}
    return task_type.soft(column, numbers, table.where, name)


def _has_lists(column: pa.ChunkedArray) -> bool:
    if not is_text(column.type):
        return is_list(column.type) and not pa.types.is_map(column.type)
    return bool(pc.any(pc.starts_with(pc.utf8_trim_whitespace(column), "[")).as_py())
