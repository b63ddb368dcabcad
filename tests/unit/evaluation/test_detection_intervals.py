"""Intervals of the detection of labels: scikit-learn on each resample, rows that are drawn one by one, and DeLong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from distill.evaluation import resamples
from distill.evaluation.detection import area_interval, areas_on_resamples, described, share_interval


def rows(count: int, decimals: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.random(count) < 0.2
    return np.round(random.normal(size=count) + 1.5 * truth, decimals), truth


@pytest.mark.parametrize("decimals", [1, 12])
def test_the_area_of_each_resample_is_that_of_scikit_learn(decimals: int) -> None:
    odds, truth = rows(150, decimals)
    areas = areas_on_resamples((odds, truth), 7, 30)
    counts = resamples.of_counts(lambda drawn: drawn, 150, 7, 30)
    assert counts.sum(axis=1).tolist() == [150] * 30
    expected = [roc_auc_score(truth, odds, sample_weight=each) for each in counts]
    np.testing.assert_allclose(areas, expected, rtol=1e-12)


def test_a_resample_without_a_row_with_the_label_has_no_area() -> None:
    odds, truth = np.arange(8.0), np.arange(8) == 7
    areas = areas_on_resamples((odds, truth), 0, 200)
    assert 30 < np.isnan(areas).sum() < 110  # (1 - 1/8) ** 8 is 0.34
    assert area_interval((odds, truth)) == (100.0, 100.0)


def test_the_interval_of_an_area_is_about_that_of_delong() -> None:
    odds, truth = rows(1500, 12)
    above = (odds[truth][:, None] > odds[~truth]).astype(np.float64)
    variances = [above.mean(axis=axis).var(ddof=1) / above.shape[1 - axis] for axis in (1, 0)]
    half = norm.ppf(0.975) * np.sqrt(sum(variances))
    low, high = area_interval((odds, truth)) or (0, 0)
    assert (low, high) == pytest.approx((100 * (above.mean() - half), 100 * (above.mean() + half)), abs=0.4)


def test_shares_have_the_interval_of_rows_that_are_drawn_one_by_one() -> None:
    odds, truth = rows(400, 12)
    flags, random = odds > 2, np.random.default_rng(1)
    shares = []
    for _ in range(4000):
        chosen = random.integers(0, 400, 400)
        shares.append(100 * flags[chosen][truth[chosen]].mean())
    assert share_interval(flags, truth) == pytest.approx(np.percentile(shares, [2.5, 97.5]), abs=1.2)


def test_intervals_are_of_what_stands_beside_them() -> None:
    reported, development = rows(600, 12), rows(900, 12, seed=1)
    found = described(reported, development, [3])
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
    assert described(reported, development, [3]) == found
    alone = described((reported[0], np.zeros(600, np.bool_)), development)
    assert (alone.roc_auc_ci95, alone.recall_ci95) == (None, None)
    assert alone.false_positives_ci95 is not None
    without = described(reported, None)
    assert (without.recall_ci95, without.false_positives_ci95) == (None, None)
    assert without.roc_auc_ci95 is not None
