"""The logits that an evaluation stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def logits(out: Path, task: str, variant: str, split: str = "validation") -> np.ndarray:
    """Logits [rows, C] of a variant on a split, e.g. of "teacher torch fp32", from the run folder `out`."""
    with np.load(out / "evaluate" / task / f"{variant.replace(' ', '_')}.npz") as stored:
        return stored[split]
