"""Exact and partial matches of the spans of each type.

Exact spans are those of `span_f1` (Tjong Kim Sang and De Meulder 2003). Of the others, a span found with the right type
at other words, and one found at the right words with another type, are kept apart, as in MUC and SemEval 2013 task 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from distill.data.task_types.spans import matched, types_of
from distill.evaluation.kind_results import Entities


def entities(predicted: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, Entities]:
    """Type -> its spans, for types that are in the truth or in the prediction.

    Args:
        predicted: codes of tags `[words]`.
        truth: `[words]` of `spans.TAGGED`.
        labels: the tags.
    """
    types = types_of(labels)
    both, ours, theirs = matched(predicted, truth["label"], truth["group"])
    overlapping, mistyped = _partial(ours, theirs, len(truth))
    counts = [
        np.bincount(part[:, 2], minlength=len(types)).tolist()
        for part in (theirs, ours, both, theirs[overlapping], theirs[mistyped])
    ]
    return {kind: of_counts(*each) for kind, *each in zip(types, *counts, strict=True) if each[0] or each[1]}


def _partial(ours: np.ndarray, theirs: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    """[S] each: whether a true span is overlapping, and whether it is mistyped. Spans are as from `spans.spans`."""
    owner = np.full(words, -1)
    for number, (first, last, _) in enumerate(ours.tolist()):
        owner[first : last + 1] = number
    overlapping, mistyped = (np.zeros(len(theirs), np.bool_) for _ in range(2))
    for number, (first, last, kind) in enumerate(theirs.tolist()):
        met = ours[np.unique(owner[first : last + 1][owner[first : last + 1] >= 0])]
        same_words = (met[:, :2] == (first, last)).all(axis=1)
        same_type = met[:, 2] == kind
        overlapping[number] = (same_type & ~same_words).any()
        mistyped[number] = (same_words & ~same_type).any()
    return overlapping, mistyped


def of_counts(true: int, predicted: int, exact: int, overlapping: int, mistyped: int) -> Entities:
    """The record of these counts. Precision, recall and F1 are 0 where they are not defined."""
    return Entities(
        precision=100 * exact / predicted if predicted else 0.0,
        recall=100 * exact / true if true else 0.0,
        f1=200 * exact / (true + predicted) if true + predicted else 0.0,
        true=true,
        predicted=predicted,
        exact=exact,
        overlapping=overlapping,
        mistyped=mistyped,
    )


def together(every: Iterable[Entities]) -> Entities:
    """The spans of several types as those of one, for micro averages."""
    rows = [(row.true, row.predicted, row.exact, row.overlapping, row.mistyped) for row in every]
    return of_counts(*map(sum, zip(*rows, strict=True)))
