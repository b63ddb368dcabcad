"""Rows that share a text are drawn together."""

from __future__ import annotations

import numpy as np
import pytest

from distill.evaluation.clusters import clusters
from distill.evaluation.metrics import METRICS
from distill.evaluation.resamples import RESAMPLES, drawn, interval


def test_rows_are_connected_over_both_texts_and_over_other_rows() -> None:
    """As questions of QQP are: a row may have the first text of one row and the second of another."""
    firsts, seconds = [f"a{i}" for i in range(60)], [f"b{i}" for i in range(60)]
    seconds[7] = "A3 ."  # a copy of the first text of row 3
    seconds[9] = seconds[7] + "."
    firsts[20] = firsts[40] = "again"
    for number in (30, 31, 32):
        firsts[number] = ""  # no text
    found = clusters([firsts, seconds])
    assert found is not None
    together = {tuple(np.flatnonzero(found == part)) for part in found}
    assert {part for part in together if len(part) > 1} == {(3, 7, 9), (20, 40)}
    assert found.max() + 1 == len(together) == 57


@pytest.mark.parametrize("shared", [0, 1, 6, 30])
def test_a_prompt_of_all_rows_connects_none(shared: int) -> None:
    """Nor does a text of more than a tenth of them, or a chain through more rows."""
    texts = [f"a{i}" for i in range(50)]
    prompts = [f"prompt {i % shared}" if shared else f"b{i}" for i in range(50)]
    found = clusters([texts, prompts])
    assert found is None if shared != 30 else found is not None
    assert clusters([[f"c{(i + 1) // 2}" for i in range(50)], [f"d{i // 2}" for i in range(50)]]) is None


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "matthews", "spearman"])
def test_copies_of_rows_do_not_narrow_an_interval(name: str) -> None:
    """Each row four times is the same as once, resample by resample, if the copies are drawn together."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, 80)
    if name == "spearman":
        labels = labels.astype(np.float32)
    predictions = {"model": np.where(random.random(80) < 0.7, labels, random.integers(0, 3, 80)).astype(labels.dtype)}
    once = drawn([name], predictions, labels, 1, 500)["model"][name]
    order = random.permutation(np.tile(np.arange(80), 4))
    four = {model: values[order] for model, values in predictions.items()}
    together = drawn([name], four, labels[order], 1, 500, order)["model"][name]
    np.testing.assert_allclose(together, once, atol=1e-9)
    alone = drawn([name], four, labels[order], 1, 500)["model"][name]
    (low, high), (low_alone, high_alone) = interval(once) or (0, 0), interval(alone) or (0, 0)
    assert high_alone - low_alone < 0.65 * (high - low)


def test_the_interval_is_as_wide_as_the_variance_of_parts() -> None:
    """The standard error of a mean of parts of different sizes, by the formula for a ratio of two sums."""
    random = np.random.default_rng(0)
    sizes = random.integers(1, 9, 200)
    parts = np.repeat(np.arange(200), sizes)
    right = (random.random(len(parts)) < random.random(200)[parts]).astype(np.int64)
    values = drawn(["accuracy"], {"model": right}, np.ones(len(parts), np.int64), 0, RESAMPLES, parts)
    own, mean = np.bincount(parts, right), right.mean()
    error = 100 * np.sqrt(((own - mean * sizes) ** 2).sum()) / sizes.sum()
    assert np.std(values["model"]["accuracy"]) == pytest.approx(error, rel=0.03)
    assert METRICS["accuracy"](right, np.ones(len(parts), np.int64)) == pytest.approx(mean)
