"""Intervals of the detection of labels: DeLong by all pairs, scipy, and how often they have the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from distill.evaluation.detection import FEWEST, Rows, area_interval, described, share_interval


def rows(count: int, decimals: int, seed: int = 0, apart: float = 1.5) -> Rows:
    random = np.random.default_rng(seed)
    truth = random.random(count) < 0.2
    return np.round(random.normal(size=count) + apart * truth, decimals), truth


@pytest.mark.parametrize("decimals", [1, 12])
def test_the_interval_of_an_area_is_that_of_delong_by_all_pairs(decimals: int) -> None:
    odds, truth = rows(500, decimals)
    above = np.sign(odds[truth][:, None] - odds[~truth]) / 2 + 0.5
    deviation = np.sqrt(sum(above.mean(axis=axis).var(ddof=1) / above.shape[1 - axis] for axis in (1, 0)))
    area = roc_auc_score(truth, odds)
    ends = logit(area) + norm.ppf([0.025, 0.975]) * deviation / (area * (1 - area))
    assert area_interval((odds, truth)) == pytest.approx(100 * expit(ends), rel=1e-6)


@pytest.mark.parametrize("apart", [0.5, 2.5])
def test_intervals_of_areas_have_the_true_area_in_95_percent_of_samples(apart: float) -> None:
    true = 100 * norm.cdf(apart / np.sqrt(2))
    found = [ends for seed in range(600) if (ends := area_interval(rows(150, 12, seed, apart)))]
    assert 0.92 < np.mean([low < true < high for low, high in found]) < 0.98


def test_too_few_rows_and_areas_at_the_edge_have_no_interval() -> None:
    count, odds = 4 * FEWEST, np.random.default_rng(0).normal(size=4 * FEWEST)
    for few in (np.arange(count) < FEWEST - 1, np.arange(count) >= FEWEST - 1):
        assert area_interval((odds, few)) is None
    assert area_interval((odds, np.arange(count) < FEWEST)) is not None
    assert area_interval((np.arange(60.0), np.arange(60) >= 30)) is None
    assert area_interval((np.arange(60.0), np.arange(60) < 30)) is None


@pytest.mark.parametrize(("count", "of"), [(0, 1), (1, 1), (0, 100), (3, 100), (57, 100), (100, 100), (9_990, 10_000)])
def test_shares_have_the_interval_of_wilson(count: int, of: int) -> None:
    expected = binomtest(count, of).proportion_ci(method="wilson")
    assert share_interval(np.arange(of) < count) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-4)


def test_intervals_are_of_what_stands_beside_them() -> None:
    reported, development = rows(600, 12), rows(900, 12, seed=1)
    found = described(reported, development)
    assert found.roc_auc is not None
    assert found.recall is not None
    assert found.false_positives is not None
    for value, ends in (
        (found.roc_auc, found.roc_auc_ci95),
        (found.recall, found.recall_ci95),
        (found.false_positives, found.false_positives_ci95),
    ):
        assert ends is not None
        assert ends[0] < value < ends[1]
    alone = described((reported[0], np.zeros(600, np.bool_)), development)
    assert (alone.roc_auc_ci95, alone.recall_ci95) == (None, None)
    assert alone.false_positives_ci95 is not None
    without = described(reported, None)
    assert (without.recall_ci95, without.false_positives_ci95) == (None, None)
    assert without.roc_auc_ci95 is not None
