"""The first token of each word: in rows, in batches, and in the outputs of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distill.data.collate import pad, task_batch, word_positions
from distill.data.encode import encode_texts
from distill.data.encode_words import _tokens_of, encode_words
from distill.data.task_types.words import words_of
from tests import tiny

TEXTS = [
    "the boat, crossed",
    "a quiet harbour before dawn in the village of the old baker",
    "",
    "goats!",
    "\u200b x",  # a normalizer drops the first character
]
PLACES = [np.array(words_of(text), np.int64).reshape(-1, 2) for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def test_the_first_token_of_each_word(tokenizer: Any) -> None:
    encoded = encode_words(TEXTS, PLACES, tokenizer, 40)
    plain = encode_texts([TEXTS], tokenizer, 40)
    np.testing.assert_array_equal(encoded.ids, plain.ids)
    np.testing.assert_array_equal(encoded.offsets, plain.offsets)
    assert encoded.words is not None
    for row, (text, places) in enumerate(zip(TEXTS, PLACES, strict=True)):
        ids = encoded.ids[encoded.offsets[row] : encoded.offsets[row + 1]]
        numbers = encoded.words.positions[encoded.words.offsets[row] : encoded.words.offsets[row + 1]]
        assert len(numbers) == len(places)
        for (start, end), position in zip(places, numbers, strict=True):
            pieces = tokenizer(text[start:end], add_special_tokens=False)["input_ids"]
            if position >= 0:
                assert ids[position] == pieces[0]
        assert (numbers < 0).any() == (row == 4)


def test_tokens_that_begin_with_a_space_or_cross_words() -> None:
    words = np.array([(0, 2), (3, 5), (5, 6), (7, 9), (10, 11)])
    #                 [CLS]   word    space and word   two words at once   (10, 11) is dropped
    tokens = np.array([(0, 0), (0, 1), (1, 2), (2, 6), (6, 8), (8, 9), (0, 0)])
    assert _tokens_of(tokens, words).tolist() == [[1, 3], [3, 4], [3, 4], [4, 6], [-1, -1]]
    assert _tokens_of(np.zeros((2, 2), np.int64), words).tolist() == [[-1, -1]] * 5
    assert _tokens_of(tokens, np.zeros((0, 2), np.int64)).tolist() == []


@pytest.mark.parametrize("left", [False, True])
def test_positions_in_a_batch(tokenizer: Any, left: bool) -> None:
    encoded = encode_words(TEXTS, PLACES, tokenizer, 40)
    assert encoded.words is not None
    rows = [3, 1, 0]
    batch, numbers = task_batch(encoded, rows, 1, left)
    at = batch["input_ids"].ravel()[batch["words"]]
    owner = np.repeat(np.arange(len(TEXTS)), np.diff(encoded.words.offsets))
    expected = [encoded.ids[encoded.offsets[owner[n]] + encoded.words.positions[n]] for n in numbers]
    np.testing.assert_array_equal(at, expected)
    assert [*dict.fromkeys(owner[numbers])] == rows
    assert (encoded.words.positions[numbers] >= 0).all()
    assert len(numbers) == sum((encoded.words.positions[owner == row] >= 0).sum() for row in rows)


def test_words_without_a_flag_are_left_out(tokenizer: Any) -> None:
    encoded = encode_words(TEXTS, PLACES, tokenizer, 40)
    assert encoded.words is not None
    flags = np.arange(len(encoded.words.positions)) % 2 == 0
    words = encoded.words.only(flags)
    assert (words.positions[~flags] == -1).all()
    np.testing.assert_array_equal(words.positions[flags], encoded.words.positions[flags])
    width = pad(encoded, [0], 1)["input_ids"].shape[1]
    assert len(word_positions(encoded, [0], width)[0]) == 4
