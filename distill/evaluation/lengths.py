"""Scores of short, middling and long rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distill.evaluation import metrics
from distill.evaluation.results import OfLength


def terciles(lengths: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """(shortest, longest, numbers of the rows) of three groups of `lengths` [n]; fewer where many rows have one
    length."""
    edges = np.quantile(lengths, [1 / 3, 2 / 3], method="inverted_cdf")
    group = np.searchsorted(edges, lengths)
    rows: Sequence[np.ndarray] = [np.flatnonzero(group == number) for number in range(3)]
    return [(int(lengths[part].min()), int(lengths[part].max()), part) for part in rows if len(part)]


def by_length(names: Sequence[str], predicted: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> list[OfLength]:
    """The scores in percent of each third of the rows by length, as in results.json.

    Args:
        names: of the metrics.
        predicted, labels: of rows, as metrics take them, or of the words of texts.
        lengths: [n] tokens of each row or text.
    """
    groups = []
    for low, high, rows in terciles(lengths):
        part = rows if labels.dtype.names is None else np.flatnonzero(np.isin(labels["group"], rows))
        scores = metrics.score(names, predicted[part], labels[part]) if len(part) else {}
        groups.append(OfLength(first=low, last=high, rows=len(rows), scores=scores))
    return groups
