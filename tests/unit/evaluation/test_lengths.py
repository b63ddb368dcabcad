"""Rows by length."""

from __future__ import annotations

import numpy as np

from distill.data.encode import Encoded, Spans
from distill.data.task_types.spans import TAGGED
from distill.evaluation.lengths import by_length, terciles
from distill.evaluation.results import OfLength


def test_terciles_divide_the_rows() -> None:
    lengths = np.array([9, 1, 2, 8, 7, 3, 4, 5, 6])
    groups = [(low, high, sorted(lengths[rows])) for low, high, rows in terciles(lengths)]
    assert groups == [(1, 3, [1, 2, 3]), (4, 6, [4, 5, 6]), (7, 9, [7, 8, 9])]
    assert [(low, high, len(rows)) for low, high, rows in terciles(np.full(5, 7))] == [(7, 7, 5)]
    assert [len(rows) for *_, rows in terciles(np.array([4]))] == [1]


def test_each_third_has_its_own_scores() -> None:
    labels, predicted = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 1, 0, 0, 1, 0])
    groups = by_length(["accuracy"], predicted, labels, np.array([3, 3, 7, 7, 20, 21]))
    assert groups == [
        OfLength(first=3, last=3, rows=2, scores={"accuracy": 100.0}),
        OfLength(first=7, last=7, rows=2, scores={"accuracy": 50.0}),
        OfLength(first=20, last=21, rows=2, scores={"accuracy": 0.0}),
    ]


def test_words_belong_to_their_texts() -> None:
    labels = np.zeros(6, TAGGED)
    labels["group"], labels["label"] = [0, 0, 0, 1, 2, 2], [1, 1, 1, 1, 1, 1]
    predicted = np.array([1, 1, 1, 0, 1, 0])
    groups = by_length(["accuracy"], predicted, labels, np.array([9, 4, 5]))
    assert [(group.rows, group.scores["accuracy"]) for group in groups] == [(1, 0.0), (1, 50.0), (1, 100.0)]


def test_a_question_is_as_long_as_its_windows() -> None:
    ids, offsets = np.zeros(12, np.int32), np.array([0, 3, 5, 12])
    spans = Spans(np.array([0, 0, 1]), np.full((12, 2), -1, np.int32))
    assert Encoded(ids, offsets, None, None, spans=spans).whole_lengths.tolist() == [5, 7]
    assert Encoded(ids, offsets, None, None).whole_lengths.tolist() == [3, 2, 7]
    assert Encoded(ids, offsets, None, None, groups=np.array([0, 2, 3])).whole_lengths.tolist() == [5, 7]
