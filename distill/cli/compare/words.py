"""The predictions of two models of words: agreement and scores by words and by spans. Rows are texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.cli.compare import predictions
from distill.data.task_types import Kind, Words, labelled
from distill.data.task_types.spans import counts, types_of
from distill.evaluation import resamples
from distill.evaluation.lengths import terciles


def compared(
    kind: Kind,
    a: np.ndarray,
    b: np.ndarray,
    targets: np.ndarray | None,
    names: Sequence[str],
    lengths: np.ndarray,
    sizes: np.ndarray,
) -> dict[str, Any]:
    """The same keys as `predictions.compared`. There is no McNemar test, because the words of a text are not
    independent; intervals resample texts.

    Args:
        a, b: codes of the tags of all words.
        targets: [n] the tags of the words of each text; None if the file has none.
        names: of the tags.
        lengths: [n] tokens of each text.
        sizes: [n] words of each text.
    """
    text = np.repeat(np.arange(len(sizes)), sizes)
    chosen = np.zeros(len(sizes), np.bool_) if targets is None else labelled(targets)

    def scored(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predictions of both models and targets, of the words of labelled texts."""
        assert targets is not None
        words = np.isin(text, rows)
        return a[words], b[words], kind.truth(targets[rows], [[""] * len(rows)], names)

    groups = []
    for low, high, rows in terciles(lengths):
        words, part = np.isin(text, rows), rows[chosen[rows]]
        group = {"from": low, "to": high, "rows": len(rows), "agreement": agreement(a[words], b[words], text[words])}
        if chosen.any():
            of_a, of_b, truth = scored(part) if len(part) else (None, None, None)
            group["labelled_rows"] = len(part)
            group["scores"] = {
                name: None if truth is None or predicted is None else predictions.score(kind, predicted, truth)
                for name, predicted in (("a", of_a), ("b", of_b))
            }
        groups.append(group)
    result = {"agreement": agreement(a, b, text), "scores": None, "mcnemar": None, "lengths": groups}
    if not chosen.any():
        return result | {"classes": _found(*counts(a, b, text, len(types_of(names)))[1:], names)}
    a, b, truth = scored(np.flatnonzero(chosen))
    return result | {"scores": predictions.scores(kind, a, b, truth), "classes": classes(a, b, truth, names)}


def agreement(a: np.ndarray, b: np.ndarray, text: np.ndarray) -> dict[str, Any]:
    """How many of the `words` have the same tag, in percent, and F1 of the `spans` of one model against the other's.

    The interval is that of a bootstrap over texts. `text` [words]: number of each word's text, in order. None where
    there are no words or no spans.
    """
    shared, ours, theirs = (float(part.sum()) for part in counts(a, b, text))
    f1 = 200 * shared / (ours + theirs) if ours + theirs else None
    if not len(a):
        return {"percent": None, "ci95": None, "words": 0, "spans": f1}
    same, number = a == b, np.unique(text, return_inverse=True)[1]
    right, size = np.bincount(number, weights=same), np.bincount(number)
    of_resamples = resamples.sums(np.stack([right, size], axis=1).astype(np.float64))
    ends = resamples.interval(100 * of_resamples[:, 0] / of_resamples[:, 1])
    return {"percent": 100 * float(same.mean()), "ci95": ends and list(ends), "words": len(a), "spans": f1}


def classes(a: np.ndarray, b: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """For each type of span: the spans of the file and of each model, and recall and F1 of both."""
    size = len(types_of(names))
    of_a, of_b = (counts(predicted, truth["label"], truth["group"], size) for predicted in (a, b))
    quality = zip(_quality(*of_a), _quality(*of_b), strict=True)
    rows = zip(_found(of_a[1], of_b[1], names), of_a[2], quality, strict=True)
    return [row | {"rows": int(total), "a": x, "b": y} for row, total, (x, y) in rows]


def _found(of_a: np.ndarray, of_b: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    both = zip(types_of(names), of_a, of_b, strict=True)
    return [{"label": label, "rows": None, "predicted": {"a": int(n), "b": int(m)}} for label, n, m in both]


def _quality(shared: np.ndarray, found: np.ndarray, true: np.ndarray) -> list[dict[str, float | None]]:
    """Recall and F1 in percent of each type; None where it does not occur."""
    return [
        {"recall": 100 * float(hit / t) if t else None, "f1": 200 * float(hit / (n + t)) if n + t else None}
        for hit, n, t in zip(shared, found, true, strict=True)
    ]


def largest_by_text(distance: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[n] the largest distance [words] of the words of each text; 0 for a text without words."""
    result = np.zeros(len(sizes))
    np.maximum.at(result, np.repeat(np.arange(len(sizes)), sizes), distance)
    return result


def of_texts(outputs: np.ndarray, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Outputs [words, C] of the words of these texts, in their order."""
    starts = np.cumsum(sizes) - sizes
    places = [np.arange(starts[n], starts[n] + sizes[n]) for n in numbers]
    return outputs[np.concatenate([np.zeros(0, np.int64), *places])]


def label_of(kind: Kind, tags: np.ndarray, names: Sequence[str], words: Words) -> str:
    """The spans of the tags of a text, as `Kind.brief` writes them."""
    certain = np.eye(len(names))[tags]
    return kind.brief(kind.answer(certain, names, 0.5, [words])[0])
