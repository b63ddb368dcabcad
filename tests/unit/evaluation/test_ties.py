"""Rankings with equal scores: scikit-learn, the mean over random orders, and the same value for any order of rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from distill.data.task_types.retrieval import JUDGED, RETRIEVAL
from distill.data.task_types.task_type import GROUPED
from distill.evaluation.metrics import METRICS

NAMES = ("ndcg_at_10", "mrr_at_10")


def ranking(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of few different values, and labels of which few are above 0."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(8), random.integers(3, 30, 8))
    labels = np.zeros(len(group), GROUPED)
    labels["group"], labels["label"] = group, random.integers(0, 4, len(group)) * (random.random(len(group)) < 0.3)
    return random.integers(0, 4, len(group)).astype(np.float64), labels


def counted(labels: np.ndarray) -> list[np.ndarray]:
    """The rows of each group that counts."""
    groups = [np.flatnonzero(labels["group"] == number) for number in range(8)]
    return [rows for rows in groups if labels["label"][rows].any()]


@pytest.mark.parametrize("seed", range(4))
def test_ndcg_of_equal_scores_is_that_of_scikit_learn(seed: int) -> None:
    scores, labels = ranking(seed)
    expected = [ndcg_score([labels["label"][rows]], [scores[rows]], k=10) for rows in counted(labels)]
    assert METRICS["ndcg_at_10"](scores, labels) == pytest.approx(np.mean(expected))


@pytest.mark.slow
def test_equal_scores_are_the_mean_over_random_orders() -> None:
    scores, labels = ranking(1)
    random, every = np.random.default_rng(0), []
    for _ in range(3000):
        apart = scores + 1e-3 * random.random(len(scores))
        every.append([METRICS[name](apart, labels) for name in NAMES])
    for name, mean in zip(NAMES, np.mean(every, axis=0), strict=True):
        assert METRICS[name](scores, labels) == pytest.approx(mean, abs=4e-3), name
    assert np.std(every, axis=0).min() > 0.02  # the orders matter


@pytest.mark.parametrize("name", NAMES)
def test_no_order_of_rows_changes_a_ranking(name: str) -> None:
    scores, labels = ranking(2)
    whole = METRICS[name](scores, labels)
    for order in (np.arange(len(scores))[::-1], np.random.default_rng(0).permutation(len(scores))):
        assert METRICS[name](scores[order], labels[order]) == pytest.approx(whole)


def search(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of few different directions, and judgements of them, in this order of the rows."""
    random, rows = np.random.default_rng(4), len(order)
    truth = np.zeros(rows, JUDGED)
    truth["group"], truth["document"] = np.arange(rows) // 4, random.permutation(rows) // 2
    truth["label"] = random.integers(0, 3, rows)
    directions = np.eye(3)[random.integers(0, 3, (2, rows))]
    vectors = np.concatenate([directions[0][truth["group"]], directions[1][truth["document"]]], axis=1)
    truth, vectors = truth[order], vectors[order]
    first = np.unique(truth["document"], return_index=True)[1]
    names = {int(truth["document"][row]): n for n, row in enumerate(np.sort(first))}
    truth["document"] = [names[int(number)] for number in truth["document"]]
    return vectors, truth


def test_search_with_equal_cosines_is_the_mean_over_random_orders() -> None:
    rows, random, every = 40, np.random.default_rng(0), []
    vectors, truth = search(np.arange(rows))
    whole = RETRIEVAL.grade(vectors, truth)
    for _ in range(2000):
        bent = vectors.copy()
        noise = 1e-4 * random.random((rows, 3))
        bent[:, 3:] += noise[truth["document"]]
        every.append(RETRIEVAL.grade(bent, truth))
    np.testing.assert_allclose(whole, np.mean(every, axis=0), atol=0.03)
    assert np.nanmax(np.std(every, axis=0)) > 0.1


def test_no_order_of_rows_changes_a_search() -> None:
    rows = 40
    names = ("ndcg_at_10", "mrr_at_10", "recall_at_10")
    vectors, truth = search(np.arange(rows))
    other, moved = search(np.random.default_rng(1).permutation(rows))
    for name in names:
        values = [METRICS[name](RETRIEVAL.grade(*each), each[1]) for each in ((vectors, truth), (other, moved))]
        assert values[0] == pytest.approx(values[1]), name
