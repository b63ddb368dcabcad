"""How well the confidence of a model matches its accuracy."""

from __future__ import annotations

import numpy as np


def expected_calibration_error(logits: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Mean distance between confidence and accuracy over bins of equal width, weighted by rows (Guo et al. 2017).

    logits `[N, C]` with C > 1, labels `[N]`; the result is a fraction, 0 to 1.
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"logits: got shape {logits.shape}; must be [N, C], C > 1 (not a regression)")
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    confidence = exponentials.max(axis=1) / exponentials.sum(axis=1)
    correct = logits.argmax(axis=1) == labels
    # Bin k is (k / bins, (k + 1) / bins], as in the paper.
    bin_of_row = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(bin_of_row, weights=confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))
