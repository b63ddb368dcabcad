"""Padding and masking: against a slow oracle written out token by token, then by properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distill.data import collate
from distill.data.collate import mask_tokens, pad, token_weights
from distill.data.encode import Encoded

CLS, SEP, MASK, VOCABULARY = 1, 2, 3, 200
RANDOM_IDS = np.arange(4, VOCABULARY)


def encoded(lengths: list[int], segments: bool = True) -> Encoded:
    rng = np.random.default_rng(0)
    rows = [np.r_[CLS, rng.integers(4, VOCABULARY, n - 2), SEP] for n in lengths]
    types = [np.r_[np.zeros(n // 2), np.ones(n - n // 2)] for n in lengths]
    return Encoded(
        np.concatenate(rows).astype(np.int32),
        np.cumsum([0, *lengths]),
        np.concatenate(types).astype(np.int8) if segments else None,
        None,
    )


def mask(ids: np.ndarray, samples: Any = None, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    given = {"seed": 0, "epoch": 0, "probability": 0.15, "weights": None} | settings
    maskable = ids > MASK
    samples = np.arange(len(ids)) if samples is None else np.asarray(samples)
    return mask_tokens(ids, maskable, samples, mask_id=MASK, random_ids=RANDOM_IDS, **given)


def test_pad_equals_rows_written_out() -> None:
    data = encoded([5, 12, 9, 3])
    rows = [2, 0, 1]
    batch = pad(data, rows, 7)
    assert {name: (a.shape, a.dtype.name) for name, a in batch.items()} == {
        name: ((3, 16), "int64") for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    assert data.segments is not None
    for line, row in enumerate(rows):
        start, end = data.offsets[row], data.offsets[row + 1]
        empty = 16 - (end - start)
        assert batch["input_ids"][line].tolist() == [*data.ids[start:end], *[7] * empty]
        assert batch["token_type_ids"][line].tolist() == [*data.segments[start:end], *[0] * empty]
        assert batch["attention_mask"][line].tolist() == [1] * (end - start) + [0] * empty


def test_pad_keeps_a_multiple_of_eight_and_has_one_type_where_there_is_one_text() -> None:
    batch = pad(encoded([8, 4], segments=False), [0, 1], 0)
    assert batch["input_ids"].shape == (2, 8)
    assert not pad(encoded([8], segments=False), [0], 0)["token_type_ids"].any()


def mix(value: int) -> int:
    """SplitMix64 in Python's integers."""
    word = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & word
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & word
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & word
    return value ^ (value >> 31)


def test_masking_equals_the_slow_oracle() -> None:
    ids = pad(encoded([40, 23, 12]), [0, 1, 2], 0)["input_ids"]
    weights = np.random.default_rng(1).random(VOCABULARY)
    masked, chosen = mask(ids, [5, 0, 9], seed=-3, epoch=2, weights=weights)
    expected, picked = ids.copy(), np.zeros(ids.shape, bool)
    for row, sample in enumerate([5, 0, 9]):
        state = mix(mix(mix(-3 & (2**64 - 1)) ^ 2) ^ sample)

        def uniform(position: int, stream: int, state: int = state) -> float:
            return float(((mix(state ^ mix(position * 4 + stream)) >> 12) + 0.5) / 2**52)

        places = [p for p in range(ids.shape[1]) if ids[row, p] > MASK]
        keys = {p: -np.log(uniform(p, 0)) / weights[ids[row, p]] for p in places}
        count = max(1, int(0.15 * len(places) + 0.5))
        for p in sorted(places, key=keys.__getitem__)[:count]:
            picked[row, p] = True
            if uniform(p, 1) < 0.8:
                expected[row, p] = MASK
            elif uniform(p, 1) < 0.9:
                expected[row, p] = RANDOM_IDS[int(uniform(p, 2) * len(RANDOM_IDS))]
    np.testing.assert_array_equal(chosen, picked)
    np.testing.assert_array_equal(masked, expected)


def test_a_sample_is_masked_alike_in_any_batch_and_under_any_padding() -> None:
    data = encoded([30, 64, 17, 11])
    whole = pad(data, [0, 1, 2, 3], 0)["input_ids"]
    masked, chosen = mask(whole)
    alone = pad(data, [2], 0)["input_ids"]
    masked_alone, chosen_alone = mask(alone, [2])
    width = alone.shape[1]
    np.testing.assert_array_equal(masked_alone[0], masked[2, :width])
    np.testing.assert_array_equal(chosen_alone[0], chosen[2, :width])
    turned, _ = mask(whole[::-1], [3, 2, 1, 0])
    np.testing.assert_array_equal(turned[::-1], masked)


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}, {"samples": [1, 2, 3, 4]}])
def test_masking_changes_with_seed_epoch_and_sample(change: dict[str, Any]) -> None:
    ids = pad(encoded([60] * 4), [0, 1, 2, 3], 0)["input_ids"]
    assert (mask(ids)[1] != mask(ids, **change)[1]).any(axis=1).all()


def test_specials_and_padding_are_never_chosen_and_the_input_is_left_alone() -> None:
    ids = pad(encoded([3, 50, 21]), [0, 1, 2], 0)["input_ids"]
    before = ids.copy()
    masked, chosen = mask(ids, probability=1.0)
    np.testing.assert_array_equal(chosen, ids > MASK)
    np.testing.assert_array_equal(ids, before)
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])


def test_number_of_chosen_tokens() -> None:
    lengths = [3, 12, 32, 102]
    ids = pad(encoded(lengths), range(4), 0)["input_ids"]
    assert mask(ids)[1].sum(axis=1).tolist() == [1, 2, 5, 15]
    assert mask(np.full((2, 8), SEP))[1].sum() == 0


def test_shares_of_mask_random_and_kept() -> None:
    ids = np.full((400, 200), 50)
    masked, chosen = mask(ids, probability=0.5)
    hidden = masked[chosen]
    deviation = 4 * np.sqrt(0.8 * 0.2 / len(hidden))
    assert abs((hidden == MASK).mean() - 0.8) < deviation
    assert abs((hidden == 50).mean() - 0.1) < deviation
    random = hidden[(hidden != MASK) & (hidden != 50)]
    assert set(random) == set(RANDOM_IDS) - {50}


def test_tokens_are_chosen_in_proportion_to_their_weights() -> None:
    ids = np.tile([10, 11], (20000, 1))
    weights = np.ones(VOCABULARY)
    weights[11] = 3.0
    _, chosen = mask(ids, weights=weights)  # one of the two in each row
    assert chosen.sum() == 20000
    assert abs(chosen[:, 1].mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 20000)


def test_zero_weight_is_never_chosen() -> None:
    ids = np.tile([10, 11, 10, 11], (50, 1))
    weights = np.ones(VOCABULARY)
    weights[11] = 0
    assert mask(ids, weights=weights, probability=0.9)[1].tolist() == [[True, False] * 2] * 50


def test_token_weights_equal_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collate, "_AT_ONCE", 4)
    ids = np.array([1, 4, 4, 4, 5, 2], np.int32)
    data = Encoded(ids, np.array([0, 6]), None, None)
    weights = token_weights(data, 8, [0, 1, 2, 3], 0.7)
    assert weights is not None
    np.testing.assert_allclose(weights, [0, 0, 0, 0, 3**-0.7, 1, 1, 1], rtol=1e-15)
    assert token_weights(data, 8, [0, 1, 2, 3], 0.0) is None
