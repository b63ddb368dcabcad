"""Scores on resampled rows against the metrics on copies of the rows; intervals against scipy; own metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import balanced_accuracy_score

from distill.data.task_types.retrieval import JUDGED
from distill.data.task_types.spans import TAGGED
from distill.data.task_types.task_type import GROUPED
from distill.evaluation import resamples
from distill.evaluation.chance import chance
from distill.evaluation.metrics import METRICS, Metric, first_over_second, score
from distill.evaluation.resamples import drawn, interval, p_value, seed_of, with_width

Sample = tuple[np.ndarray, np.ndarray]
ROWS = 60


def classes(seed: int, count: int = 3) -> Sample:
    random = np.random.default_rng(seed)
    labels = random.integers(0, count, ROWS)
    return np.where(random.random(ROWS) < 0.6, labels, random.integers(0, count, ROWS)), labels


def flags(seed: int) -> Sample:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, (ROWS, 4))
    labels[:, 3] = 0  # a label that does not occur
    return np.where(random.random(labels.shape) < 0.7, labels, 0), labels


def numbers(seed: int) -> Sample:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 6, ROWS).astype(np.float32)  # with ties
    return (labels + random.normal(size=ROWS)).astype(np.float32), labels


def ranking(seed: int) -> Sample:
    random = np.random.default_rng(seed)
    labels = np.zeros(ROWS, GROUPED)
    labels["label"], labels["group"] = random.integers(0, 3, ROWS), random.permutation(np.arange(ROWS) % 7)
    labels["label"][labels["group"] == 2] = 0  # a query without a relevant document
    return labels["label"] + random.normal(size=ROWS), labels


def retrieval(seed: int) -> Sample:
    random = np.random.default_rng(seed)
    labels = np.zeros(ROWS, JUDGED)
    labels["group"] = np.arange(ROWS) % 9
    values = random.random((9, 3))
    values[4] = np.nan
    return values[labels["group"]], labels


def tags(seed: int) -> Sample:
    random = np.random.default_rng(seed)
    labels = np.zeros(ROWS, TAGGED)
    labels["label"], labels["group"] = random.integers(-1, 8, ROWS), np.sort(random.integers(0, 12, ROWS))
    return np.where(random.random(ROWS) < 0.7, labels["label"], -1), labels


def answers(seed: int) -> Sample:
    values = np.random.default_rng(seed).random((ROWS, 2))
    values[:, 0] = values[:, 0] > 0.5
    labels = np.empty(ROWS, object)
    return values, labels


SAMPLES: list[tuple[str, Callable[[int], Sample]]] = [
    ("accuracy", classes),
    ("accuracy", flags),
    ("accuracy", tags),
    ("answer_f1", answers),
    ("exact_match", answers),
    ("f1", lambda seed: classes(seed, 2)),
    ("f1_macro", classes),
    ("f1_macro", flags),
    ("f1_micro", flags),
    ("map", ranking),
    ("matthews", lambda seed: classes(seed, 2)),
    ("matthews", classes),
    ("mrr_at_10", ranking),
    ("mrr_at_10", retrieval),
    ("ndcg_at_10", ranking),
    ("ndcg_at_10", retrieval),
    ("pearson", numbers),
    ("recall_at_10", retrieval),
    ("span_f1", tags),
    ("spearman", numbers),
]

# scipy draws rows, not groups
BY_ROWS = [s for s in SAMPLES if s[0] in ("accuracy", "f1", "matthews", "pearson") and s[1] is not tags]


def test_every_metric_is_tested() -> None:
    assert {name for name, _ in SAMPLES} == METRICS.keys()


def copies(counts: np.ndarray, predicted: np.ndarray, labels: np.ndarray) -> Sample:
    """The rows of a resample, drawn row for row: a group that was drawn twice is two groups."""
    if labels.dtype.names is None:
        rows = np.repeat(np.arange(len(labels)), counts)
        return predicted[rows], labels[rows]
    units = [np.flatnonzero(labels["group"] == group) for group in np.unique(labels["group"])]
    parts = [rows for rows, count in zip(units, counts, strict=True) for _ in range(count)]
    drawn = labels[np.concatenate(parts)]
    drawn["group"] = np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])
    return predicted[np.concatenate(parts)], drawn


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_scores_are_those_of_the_metric_on_copies_of_the_rows(name: str, sample: Callable[[int], Sample]) -> None:
    predicted, labels = sample(1)
    other, _ = sample(2)
    values = drawn([name], {"a": predicted, "b": other}, labels, seed=5, resamples=40)
    units = ROWS if labels.dtype.names is None else len(np.unique(labels["group"]))
    ((first, counts),) = resamples._counts(units, 40, np.random.default_rng(5))
    assert first == 0
    assert (counts.sum(axis=1) == units).all()
    for number, count in enumerate(counts.astype(int)):
        for model, each in (("a", predicted), ("b", other)):
            expected = 100 * METRICS[name](*copies(count, each, labels))
            assert values[model][name][number] == pytest.approx(expected, abs=1e-9)


def test_a_metric_of_ones_own_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balanced accuracy: the mean over classes of their recall, which is 1 / classes for every constant predictor."""

    def columns(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
        of_class = labels[:, None] == np.arange(3)
        return np.concatenate([of_class & (predicted == labels)[:, None], of_class], axis=1, dtype=np.float64)

    def value(sums: np.ndarray) -> np.ndarray:
        return (sums[:, :3] / sums[:, 3:]).mean(axis=1)

    monkeypatch.setitem(METRICS, "mine", Metric(columns, value))
    predicted, labels = classes(1)
    names = ["accuracy", "mine"]
    assert score(names, predicted, labels)["mine"] == pytest.approx(100 * balanced_accuracy_score(labels, predicted))
    assert chance(names, labels)["mine"] == pytest.approx(100 / 3)
    values = drawn(names, {"a": predicted}, labels, seed=5, resamples=40)["a"]["mine"]
    ((_, counts),) = resamples._counts(ROWS, 40, np.random.default_rng(5))
    rows = [np.repeat(np.arange(ROWS), count) for count in counts.astype(int)]
    assert values == pytest.approx([100 * balanced_accuracy_score(labels[each], predicted[each]) for each in rows])


def test_a_ranking_of_ones_own_needs_its_own_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric(METRICS["ndcg_at_10"].columns, first_over_second)
    monkeypatch.setitem(METRICS, "mine", metric)
    _, labels = ranking(1)
    with pytest.raises(ValueError, match="its own `chance`"):
        chance(["mine"], labels)
    monkeypatch.setitem(METRICS, "mine", replace(metric, chance=lambda labels: 0.25))
    assert chance(["mine"], labels) == {"mine": 25.0}


def test_a_resample_of_one_value_has_no_correlation() -> None:
    """Of two rows, half of the resamples have one row twice."""
    predicted, labels = np.array([1.0, 2.5]), np.array([3.0, 7.0])
    for name in ("pearson", "spearman"):
        values = drawn([name], {"a": predicted}, labels, resamples=1000)["a"][name]
        assert set(np.round(values, 9)) == {0.0, 100.0}
        assert 0.4 < (values == 0).mean() < 0.6


def test_resamples_in_parts_are_the_same_in_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted, labels = classes(3)
    whole = drawn(["accuracy"], {"a": predicted}, labels)["a"]["accuracy"]
    monkeypatch.setattr(resamples, "_AT_ONCE", 7 * ROWS)
    parts = drawn(["accuracy"], {"a": predicted}, labels)["a"]["accuracy"]
    assert len(parts) == len(whole) == resamples.RESAMPLES
    assert parts.mean() == pytest.approx(whole.mean(), abs=0.5)
    assert parts.std() == pytest.approx(whole.std(), rel=0.05)


def test_draws_depend_on_the_split_alone() -> None:
    predicted, labels = classes(3)
    alone = drawn(["accuracy"], {"a": predicted}, labels, seed_of("rte", "validation"))
    beside = drawn(["accuracy", "f1"], {"b": labels, "a": predicted}, labels, seed_of("rte", "validation"))
    np.testing.assert_array_equal(alone["a"]["accuracy"], beside["a"]["accuracy"])
    assert (beside["b"]["accuracy"] == 100).all()
    assert seed_of("rte", "validation") != seed_of("mnli", "validation") != seed_of("mnli", "validation", 1)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "sample"), BY_ROWS)
def test_the_interval_is_that_of_scipy(name: str, sample: Callable[[int], Sample]) -> None:
    """A difference of two models, by scipy's paired percentile bootstrap; BCa is close to it."""
    predicted, labels = sample(1)
    other, _ = sample(2)
    values = drawn([name], {"a": predicted, "b": other}, labels)
    ours = interval(values["a"][name] - values["b"][name])

    def difference(rows: np.ndarray) -> float:
        chosen = rows.astype(int)
        a, b = (METRICS[name](each[chosen], labels[chosen]) for each in (predicted, other))
        return 100 * (a - b)

    for method, tolerance in (("percentile", 2.0), ("BCa", 4.0)):
        found = bootstrap(
            (np.arange(ROWS),), difference, n_resamples=4000, vectorized=False, method=method,
            rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
        assert ours == pytest.approx((found.low, found.high), abs=tolerance)


def test_p_agrees_with_the_interval() -> None:
    random = np.random.default_rng(0)
    for shift in np.linspace(0, 4, 60):
        values = random.normal(shift, 1, 2000)
        low, high = interval(values) or (0.0, 0.0)
        # The two differ by a resample at the very edge.
        if abs(low) > 0.02:
            assert (p_value(values) < 0.05) == (low > 0 or high < 0), shift
    assert p_value(np.zeros(100)) == 1.0
    assert p_value(np.ones(999)) == pytest.approx(2 / 1000)
    assert p_value(-np.ones(999)) == pytest.approx(2 / 1000)


def test_an_interval_leaves_out_what_is_not_finite() -> None:
    assert interval(np.array([np.nan, np.inf])) is None
    assert interval(np.array([np.nan, 3.0, 3.0])) == (3.0, 3.0)


def test_an_interval_without_width_is_none() -> None:
    """Of a model that is right on all rows, every resample has the same score: not a known one."""
    labels = np.arange(30) % 3
    values = drawn(["accuracy", "f1_macro"], {"a": labels}, labels, resamples=200)["a"]
    assert [with_width(interval(each)) for each in values.values()] == [None, None]
    assert [with_width(ends) for ends in (None, (99.0, 99.0 + 1e-12), (99.0, 100.0))] == [None, None, (99.0, 100.0)]
