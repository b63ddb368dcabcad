"""Smaller vectors and their scores: against sentence-transformers, scipy, and the formulas of the metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.embedding import cosines
from distill.evaluation.vector_forms import forms, rounded, scores, signs

WIDTH = 384
VECTORS = np.random.default_rng(0).normal(size=(50, 2 * WIDTH)).astype(np.float32)


def test_forms_and_their_bytes() -> None:
    sizes = {form.name: form.bytes for form in forms(WIDTH)}
    components = {f"first {count} components": 4 * count for count in (256, 128, 64)}
    assert sizes == {"float32": 4 * WIDTH, **components, "int8": WIDTH, "binary": WIDTH // 8}
    assert [form.name for form in forms(64)] == ["float32", "int8", "binary"]
    assert {form.name: form.bytes for form in forms(65)}["binary"] == 9


def test_int8_has_whole_numbers_and_nearly_the_same_directions() -> None:
    whole, found = VECTORS[:, :WIDTH], rounded(VECTORS[:, :WIDTH])
    assert np.array_equal(found, found.astype(np.int8))
    assert np.array_equal(np.abs(found).max(1), np.full(50, 127))
    lengths = np.linalg.norm(whole, axis=1) * np.linalg.norm(found, axis=1)
    assert ((whole * found).sum(1) / lengths).min() > 0.9999
    assert np.array_equal(rounded(3 * whole), found)
    assert not rounded(np.zeros((2, 4), np.float32)).any()


def tied(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Number of components of each pair whose signs are the same."""
    same: np.ndarray = ((first > 0) == (second > 0)).sum(1)
    return same


@pytest.mark.parametrize("width", [1, 5, 64, 65, 300, WIDTH, 768])
def test_cosines_of_signs_order_as_hamming_distances_with_the_same_ties(width: int) -> None:
    random = np.random.default_rng(width)
    first, second = (random.normal(size=(400, width)).astype(np.float32) for _ in range(2))
    found, same = cosines(np.concatenate([signs(first), signs(second)], axis=1)), tied(first, second)
    order = np.argsort(same, kind="stable")
    assert np.array_equal(np.diff(found[order]) > 0, np.diff(same[order]) > 0)
    length = signs(first).shape[1]
    assert width <= length < max(4 * width, 2)
    assert np.array_equal(found, 1 - 2 * (width - same) / length)


def scored(kind: str, outputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Form of vectors -> Spearman correlation of their cosines with the labels."""
    task = Task("pairs", TASK_TYPES[kind], ("a", "b"), (), ("spearman",))
    found = scores({("pairs", "test"): outputs}, lambda key, each: (task.graded(each, labels), labels),
                   {"pairs": ("spearman",)})["pairs"]  # fmt: skip
    return {name: form.scores["spearman"] for name, form in found.items()}


def test_scores_are_those_of_numpy_and_scipy() -> None:
    labels = np.random.default_rng(1).random(50)
    found = scored("embedding", VECTORS, labels)

    def expected(first: np.ndarray, second: np.ndarray) -> float:
        first, second = first.astype(np.float64), second.astype(np.float64)
        of_pairs = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        return 100 * float(spearmanr(of_pairs, labels)[0])

    first, second = VECTORS[:, :WIDTH], VECTORS[:, WIDTH:]
    assert found["float32"] == pytest.approx(expected(first, second), abs=0.01)
    assert found["first 64 components"] == pytest.approx(expected(first[:, :64], second[:, :64]), abs=0.01)
    both = (np.round(127 * x / np.abs(x).max(1, keepdims=True)) for x in (first, second))
    assert found["int8"] == pytest.approx(expected(*both), abs=0.5)


@pytest.mark.parametrize("width", [64, 300, WIDTH, 768])
def test_binary_scores_have_the_ties_of_hamming_distances(width: int) -> None:
    random = np.random.default_rng(3)
    outputs, labels = random.normal(size=(400, 2 * width)).astype(np.float32), random.random(400)
    expected = spearmanr(tied(outputs[:, :width], outputs[:, width:]), labels)[0]
    assert scored("embedding", outputs, labels)["binary"] == pytest.approx(100 * expected, abs=1e-6)


def test_retrieval_scores_fall_as_vectors_lose_bits() -> None:
    of, random = TASK_TYPES["retrieval"], np.random.default_rng(2)
    documents = random.normal(size=(60, WIDTH)).astype(np.float32)
    outputs = np.concatenate([documents + 2.5 * random.normal(size=documents.shape), documents], 1).astype(np.float32)
    task = Task("search", of, ("query", "document"), (), of.metrics)
    texts = [[f"q{n}" for n in range(60)], [f"d{n}" for n in range(60)]]
    truth = of.truth(np.ones(60, np.float32), texts, ())
    found = scores({("search", "test"): outputs}, lambda key, each: (task.graded(each, truth), truth),
                   {"search": ("ndcg_at_10",)})["search"]  # fmt: skip
    by_form = {name: form.scores["ndcg_at_10"] for name, form in found.items()}
    assert by_form["float32"] == pytest.approx(by_form["int8"], abs=1)
    assert by_form["float32"] > by_form["binary"] > 20
    assert by_form["first 256 components"] > by_form["first 64 components"]
