"""Prompts, and labels from 0 to 1, which only rows of embedders need. Without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from distill.data.task_types import TaskType, targets_in
from distill.models.families.head import Head


def prompts_of(task_type: TaskType, head: Head | None) -> tuple[str, ...]:
    """The prompts of the teacher, an embedder, before queries and before documents, or before every text of other
    tasks; empty without prompts."""
    if head is None or not task_type.separate:
        return ()
    pair = head.prompts if task_type.grouped else (head.prompt, head.prompt)
    return pair if any(pair) else ()


def said(name: str, columns: Sequence[str], prompts: Sequence[str], stated: bool) -> list[str]:
    """A line about the prompts of a task, unless the settings state them."""
    if stated or not prompts:
        return []
    parts = " and ".join(f"{prompt!r} before {column}" for column, prompt in zip(columns, prompts, strict=True))
    return [f"{name}: the prompts of the teacher: {parts}; set tasks.prompts for others"]


def scaled(rows: pa.Table, ends: tuple[float, float]) -> pa.Table:
    """The rows with their labels scaled from these ends to 0 and 1."""
    low, high = ends
    labels = ((targets_in(rows["label"]) - low) / max(high - low, 1e-9)).astype(np.float32)
    return rows.set_column(rows.column_names.index("label"), "label", pa.array(labels))
