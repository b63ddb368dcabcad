"""What rows of embedders need besides those of other tasks: prompts, and labels from 0 to 1. Without torch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from distill.data.kinds import Kind, targets_in
from distill.family.head import Head


def prompts_of(kind: Kind, head: Head | None) -> tuple[str, ...]:
    """What the teacher, an embedder, puts before queries and before documents; empty if it puts nothing."""
    if head is None or not (kind.separate and kind.grouped and any(head.prompts)):
        return ()
    return head.prompts


def scaled(rows: pa.Table, ends: tuple[float, float]) -> pa.Table:
    """The rows with their labels scaled from these ends to 0 and 1."""
    low, high = ends
    labels = ((targets_in(rows["label"]) - low) / max(high - low, 1e-9)).astype(np.float32)
    return rows.set_column(rows.column_names.index("label"), "label", pa.array(labels))
