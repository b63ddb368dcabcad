"""Answers as spans of a context: the best span by the logits of start and end, and SQuAD's exact match and F1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from distill.models.families.record import ABSENT

FIRST, END, BEST, NULL, PROBABILITY = range(5)
"""Columns of the outputs for a question: first character and end of the best span in the context, its score, the score
of no answer, and the span's probability in its window. A score is the sum of the logits of start and end."""

COLUMNS = 5
"""Number of these columns."""

NONE = -1
"""First character and end of no answer."""

LONGEST = 30
"""Maximum tokens of a span, as in transformers' run_qa.py."""

CANDIDATES = 20
"""Spans whose probabilities are soft labels, as `n_best_size` in transformers' run_qa.py."""

Reference = tuple[str, tuple[tuple[int, int], ...]]
"""A context, and first character and end of each accepted answer in it; empty where the context has no answer."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def best_spans(logits: np.ndarray, characters: np.ndarray) -> np.ndarray:
    """Outputs float32 [B, COLUMNS] for windows, of which each begins with the token that stands for no answer.

    The best of all spans of at most `LONGEST` tokens of the context, as in transformers' run_qa.py. Deviation: all
    spans are compared, not only spans of the 20 best starts and ends.

    Args:
        logits: [B, L, 2] of start and end.
        characters: [B, L, 2] first character and end of each token of the context; `NONE` for other tokens.
    """
    windows, width = np.arange(len(logits)), logits.shape[1]
    inside = characters[:, :, 0] != NONE
    start, end = (np.where(inside, logits[:, :, side], ABSENT).astype(np.float64) for side in (0, 1))
    best, first, last = np.full(len(logits), -np.inf), np.zeros_like(windows), np.zeros_like(windows)
    for further in range(min(LONGEST, width)):
        scores = start[:, : width - further] + end[:, further:]
        at = scores.argmax(axis=1)
        better = ~(scores[windows, at] <= best)  # NaN too, so that it is found later
        best = np.where(better, scores[windows, at], best)
        first, last = np.where(better, at, first), np.where(better, at + further, last)
    start[:, 0], end[:, 0] = logits[:, 0, 0], logits[:, 0, 1]
    result = np.empty((len(logits), COLUMNS), np.float32)
    result[:, FIRST] = np.maximum(characters[windows, first, 0], 0)
    result[:, END] = np.maximum(characters[windows, last, 1], 0)
    result[:, BEST], result[:, NULL] = best, start[:, 0] + end[:, 0]
    result[:, PROBABILITY] = np.exp(best - _log_sum(start) - _log_sum(end))
    return result


def _log_sum(values: np.ndarray) -> np.ndarray:
    """log of the sum of exp over the last axis."""
    largest = values.max(axis=1, keepdims=True)
    return largest[:, 0] + np.log(np.exp(values - largest).sum(axis=1))


def candidates(logits: np.ndarray, places: Sequence[np.ndarray], owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(candidates for the answers to n questions [S, 3]: first character, end and probability, the most probable first
    and no answer last, with `NONE` for its characters; number of candidates of each question [n]).

    Probabilities are the softmax of the scores of the `CANDIDATES` best spans of all windows and of the least score of
    no answer, as in transformers' run_qa.py. They are NaN if an output of a window is.

    Args:
        logits: [windows, 2 W] of start, then of end; `ABSENT` where there is no answer.
        places: first character and end of each token of each window [tokens, 2]; `NONE` for other tokens.
        owners: [windows] question of each window, in ascending order from 0.
    """
    found, sizes = list[np.ndarray](), list[int]()
    both = logits.reshape(len(logits), 2, -1).astype(np.float64)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    for first, end in zip(starts, [*starts[1:], len(owners)], strict=True):
        scores = dict[tuple[int, int], float]()
        for window in range(first, end):
            for score, span in _best_of(both[window], places[window]):
                scores[span] = max(score, scores.get(span, -np.inf))
        best = sorted(scores.items(), key=lambda item: -item[1])[:CANDIDATES]
        spans = [*(span for span, _ in best), (NONE, NONE)]
        values = np.array([*(score for _, score in best), both[first:end, :, 0].sum(axis=1).min()])
        shares = np.exp(values - values.max()) if np.isfinite(both[first:end]).all() else np.full(len(values), np.nan)
        found.append(np.column_stack([np.array(spans, np.float64), shares / shares.sum()]))
        sizes.append(len(spans))
    return np.concatenate([np.zeros((0, 3)), *found]), np.array(sizes, np.int64)


def _best_of(logits: np.ndarray, places: np.ndarray) -> list[tuple[float, tuple[int, int]]]:
    """Score, first character and end of the best spans of a window, of logits [2, W]."""
    inside = np.flatnonzero(places[:, 0] != NONE)
    start, end = logits[:, inside]
    sizes = np.minimum(LONGEST, len(inside) - np.arange(len(inside)))
    first = np.repeat(np.arange(len(inside)), sizes)
    last = first + np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    scores = start[first] + end[last]
    best = np.argpartition(-scores, CANDIDATES)[:CANDIDATES] if len(scores) > CANDIDATES else np.arange(len(scores))
    characters = places[inside]
    return [(float(scores[n]), (int(characters[first[n], 0]), int(characters[last[n], 1]))) for n in best]


def gathered(windows: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Outputs [n, COLUMNS] of questions from the outputs of their windows [W, COLUMNS].

    They have the best span of all windows, and the least score of no answer. `owners` [W] is the question of each
    window, in ascending order.
    """
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    result: np.ndarray = windows[np.lexsort((-windows[:, BEST], owners))[starts]]
    result[:, NULL] = np.minimum.reduceat(windows[:, NULL], starts)
    return result


def narrowed(outputs: np.ndarray, width: int) -> np.ndarray:
    """Logits of start, then of end, of windows [B, 2 W], as [B, 2 `width`], where no window has more tokens."""
    both: np.ndarray = outputs.reshape(len(outputs), 2, -1)[:, :, :width]
    return both.reshape(len(outputs), -1)


def no_answer(outputs: np.ndarray) -> np.ndarray:
    """[n] probability of no answer, against the best span: the sigmoid of the difference of their scores."""
    difference = np.clip(outputs[:, BEST].astype(np.float64) - outputs[:, NULL], -500, 500)
    return 1 / (1 + np.exp(difference))


def normalized(text: str) -> str:
    """Text in lower case, without punctuation and English articles, with one space between words.

    `normalize_answer` of SQuAD's evaluation script (Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1).
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def overlap(answer: str, accepted: str) -> float:
    """Harmonic mean of precision and recall of the words of a normalized answer, 0 to 1.

    If one of the two has no word, 1 if both have none, as in the script for SQuAD 2.0 (Rajpurkar et al. 2018, arXiv
    1806.03822).
    """
    ours, true = answer.split(), accepted.split()
    if not ours or not true:
        return float(ours == true)
    shared = (Counter(ours) & Counter(true)).total()
    return 2 * shared / (len(ours) + len(true))


def grades(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """[n, 2] exact match and F1 of each question, 0 to 1: the best over its accepted answers.

    Args:
        predicted: [n, 2] first character and end of each answer; `NONE` for no answer.
        truth: [n] of `Reference`.
    """
    rows = [_grade(span, reference) for span, reference in zip(predicted.tolist(), truth, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 2)


def _grade(span: Sequence[int], reference: Reference) -> tuple[float, float]:
    context, spans = reference
    # Answers without a word, such as "the", do not count, as in the script for SQuAD 2.0.
    accepted = [text for first, end in spans if (text := normalized(context[first:end]))] or [""]
    answer = "" if span[0] == NONE else normalized(context[span[0] : span[1]])
    return float(answer in accepted), max(overlap(answer, text) for text in accepted)
