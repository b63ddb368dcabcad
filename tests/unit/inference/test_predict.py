"""Batches within a token budget, and logits in the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from distill.data.encode import Encoded
from distill.data.task_types import ABSENT
from distill.inference.predict import batches, predict, stacked
from distill.inference.runners import Batch


def _encoded(lengths: list[int]) -> Encoded:
    """Row r consists of the token r + 1."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.repeat(np.arange(1, len(lengths) + 1), lengths).astype(np.int32)
    return Encoded(ids=ids, offsets=offsets, segments=None, labels=None)


@pytest.mark.parametrize("tokens", [1, 16, 100, 10**6])
def test_batches_contain_every_row_once_within_the_budget(tokens: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 97)
    parts = batches(lengths, tokens)
    assert sorted(np.concatenate(parts)) == list(range(97))
    assert all(len(part) == 1 or len(part) * lengths[part].max() <= tokens for part in parts)
    longest = [lengths[part].max() for part in parts]
    assert longest == sorted(longest, reverse=True)


def test_a_large_budget_is_one_batch() -> None:
    assert len(batches(np.array([3, 9, 4]), 27)) == 1


@pytest.mark.parametrize("tokens", [8, 64, 4096])
def test_logits_are_in_the_order_of_the_rows_and_do_not_depend_on_padding(tokens: int) -> None:
    lengths = [4, 30, 1, 17, 8, 8, 25, 2]
    seen: list[tuple[int, ...]] = []

    def run(batch: Batch) -> np.ndarray:
        seen.append(batch["input_ids"].shape)
        assert set(batch) == {"input_ids", "attention_mask", "token_type_ids"}
        real = batch["input_ids"] * batch["attention_mask"]
        return np.stack([real.max(axis=1), batch["attention_mask"].sum(axis=1)], 1).astype(np.float32)

    logits = predict(run, _encoded(lengths), pad_id=99, tokens=tokens)
    assert logits.dtype == np.float32
    assert logits[:, 0].tolist() == list(range(1, 9))
    assert logits[:, 1].tolist() == lengths
    assert (len(seen) == 1) == (tokens == 4096)


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        predict(lambda batch: np.zeros((0, 2)), _encoded([]), pad_id=0)


def test_parts_with_fewer_choices_are_stacked() -> None:
    found = stacked([np.array([[1.0, 2.0, 3.0]]), np.array([[4.0], [5.0]])])
    assert found.tolist() == [[1, 2, 3], [4, ABSENT, ABSENT], [5, ABSENT, ABSENT]]
