"""Queries of a student against documents of its teacher: what an index that exists already is worth to a student."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distill.data.task_types import TaskType

Pair = tuple[np.ndarray, np.ndarray]
Outputs = Mapping[tuple[str, str], Pair]
"""(task, split) -> outputs [n, 2 D] and labels."""


def on_index(student: Outputs, teacher: Outputs, kinds: Mapping[str, TaskType]) -> dict[tuple[str, str], Pair]:
    """The student's vectors of queries beside the teacher's of documents, for tasks of queries and documents where both
    models have vectors of D numbers.

    LEAF (Vujanic and Rueckstiess 2025, arXiv 2509.12539) calls this the asymmetric mode: documents are embedded once,
    by the teacher, and queries by the student.

    Args:
        student, teacher: outputs for the same rows.
        kinds: task -> its kind.
    """
    result: dict[tuple[str, str], Pair] = {}
    for key, (outputs, labels) in student.items():
        kind, theirs = kinds[key[0]], teacher.get(key, (np.zeros(0), labels))[0]
        if kind.separate and kind.grouped and outputs.shape == theirs.shape:
            half = outputs.shape[1] // 2
            result[key] = np.concatenate([outputs[:, :half], theirs[:, half:]], axis=1), labels
    return result
