"""Long texts as windows: nothing is lost, nothing is too long, every window is a text of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from distill.data.encode import Encoded, encode_task
from distill.data.windows import split, windows
from tests import tiny

WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split()]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def text(words: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def encoded(tokenizer: Any, *columns: list[str]) -> Encoded:
    names = [f"text{number}" for number in range(len(columns))]
    rows = Dataset.from_dict(dict(zip(names, columns, strict=True)) | {"label": list(range(len(columns[0])))})
    return encode_task(rows, names, tokenizer, 1000)


def pieces(found: Encoded) -> list[list[int]]:
    return [found.ids[start:end].tolist() for start, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@pytest.mark.parametrize("size", [16, 21, 64])
def test_every_token_is_in_a_window_of_its_text(tokenizer: Any, size: int) -> None:
    whole = encoded(tokenizer, [text(n, n) for n in (3, 14, 15, 40, 200)])
    parts, owner = split(whole, windows(tokenizer, size))
    assert owner.tolist() == sorted(owner.tolist())
    assert parts.labels is not None
    assert parts.labels.tolist() == owner.tolist()
    assert int(parts.lengths.max()) <= size
    for row, ids in enumerate(pieces(whole)):
        own = [part for part, of in zip(pieces(parts), owner, strict=True) if of == row]
        if len(ids) <= size:
            assert own == [ids]
            continue
        assert all(len(part) == size for part in own)
        assert all((part[0], part[-1]) == (ids[0], ids[-1]) for part in own)
        assert 2 not in [token for part in own for token in part[1:-1]], "no separator inside"
        # Laid where they overlap, the windows are the text again.
        joined = own[0][1:-1]
        for part in own[1:]:
            overlap = max(n for n in range(1, size) if joined[-n:] == part[1 : 1 + n])
            assert overlap >= (size - 2) // 4
            joined += part[1 + overlap : -1]
        assert joined == ids[1:-1]


def test_a_separator_that_is_typed_in_a_single_text_divides_nothing(tokenizer: Any) -> None:
    whole = encoded(tokenizer, [f"{text(20, 1)} {tokenizer.sep_token} {text(40, 2)}"])
    assert pieces(whole)[0].count(2) == 2
    parts, _ = split(whole, windows(tokenizer, 32))
    assert [part[1:9] for part in pieces(parts)][1] != pieces(whole)[0][1:9], "the text goes on in each window"
    assert sum(2 in part[1:-1] for part in pieces(parts)) < len(pieces(parts))


def test_the_first_text_of_a_pair_is_in_every_window(tokenizer: Any) -> None:
    whole = encoded(tokenizer, [text(6, 1), text(60, 2)], [text(100, 3), text(3, 4)])
    parts, owner = split(whole, windows(tokenizer, 32, pairs=True))
    ids = pieces(whole)
    middle = ids[0].index(2)
    first = [part for part, of in zip(pieces(parts), owner, strict=True) if of == 0]
    assert len(first) > 2
    assert all(part[: middle + 1] == ids[0][: middle + 1] for part in first)
    assert parts.segments is not None
    assert parts.segments[:32].tolist() == [0] * (middle + 1) + [1] * (31 - middle)
    # Of the other pair the first text is the longer one: the windows are of it.
    end = ids[1].index(2)
    second = [part for part, of in zip(pieces(parts), owner, strict=True) if of == 1]
    assert len(second) > 2
    assert all(part[-len(ids[1][end:]) :] == ids[1][end:] for part in second)
    assert {token for part in second for token in part} == set(ids[1])
    assert second[-1][1 : -len(ids[1][end:])] == ids[1][:end][-(32 - 1 - len(ids[1][end:])) :]


def test_of_two_long_texts_the_shorter_is_cut_to_half_a_window(tokenizer: Any) -> None:
    whole = encoded(tokenizer, [text(40, 1)], [text(60, 2)])
    parts, _ = split(whole, windows(tokenizer, 33, pairs=True))
    (ids,) = pieces(whole)
    middle = ids.index(2)
    assert all(part[:16] == ids[:16] and part[16] == 2 and len(part) == 33 for part in pieces(parts))
    assert {token for part in pieces(parts) for token in part[17:]} == set(ids[middle + 1 :])


def test_a_token_in_front_that_also_separates_is_no_separator() -> None:
    """Gemma's template: the same token before a text and between two."""

    class Gemma:
        def __call__(self, *texts: str, return_special_tokens_mask: bool = False) -> dict[str, list[int]]:
            return {"input_ids": [2, 7] * len(texts), "special_tokens_mask": [1, 0] * len(texts)}

    how = windows(Gemma(), 16, pairs=True)
    assert (how.before, how.after, how.between.tolist()) == (1, 0, [2])
    ids = np.array([2, *range(10, 14), 2, *range(20, 60)], np.int32)
    parts, _ = split(Encoded(ids, np.array([0, len(ids)]), None, None), how)
    assert all(part[:6] == ids[:6].tolist() for part in pieces(parts))


def test_a_pair_that_no_token_separates_is_one_text(tokenizer: Any) -> None:
    class Decoder:
        """Puts nothing around or between texts, as GPT's does."""

        def __call__(self, *texts: str, return_special_tokens_mask: bool = False) -> dict[str, list[int]]:
            return {"input_ids": [7] * len(texts), "special_tokens_mask": [0] * len(texts)}

    how = windows(Decoder(), 16, pairs=True)
    assert (how.before, how.after, how.between.tolist()) == (0, 0, [])
    rows = Encoded(np.arange(40, dtype=np.int32), np.array([0, 40]), None, None)
    parts, owner = split(rows, how)
    assert owner.tolist() == [0, 0, 0]
    assert pieces(parts) == [list(range(16)), list(range(12, 28)), list(range(24, 40))]
