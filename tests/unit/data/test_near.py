"""Near copies, against the Jaccard similarity and the containment of sets that are compared one by one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distill.data import near
from distill.data.near import NearCopies, normalized

WORDS = [f"{a}{b}{c}" for a in ("pa", "so", "bu", "cu") for b in ("r", "ck", "ff", "rn") for c in ("er", "et", "ing")]


def sentence(random: np.random.Generator, words: int) -> str:
    return " ".join(random.choice(WORDS, words)).capitalize() + "."


def changed(text: str, random: np.random.Generator) -> str:
    """A text with some words replaced, dropped, or added at its ends."""
    words = text.split()
    for place in np.flatnonzero(random.random(len(words)) < 0.12):
        words[place] = random.choice(WORDS)
    if random.random() < 0.3:
        words = words[int(random.integers(4)) :]
    if random.random() < 0.3:
        words += list(random.choice(WORDS, 2 * len(words)))
    return " ".join(words)


def slowly(text: str, others: list[str]) -> bool:
    one = shingles(text)
    for other in map(shingles, others):
        shared, least = len(one & other), min(len(one), len(other))
        contained = least >= near.LEAST and shared >= near.CONTAINED * least
        if shared and (contained or shared >= near.RESEMBLANCE * len(one | other)):
            return True
    return False


def shingles(text: str) -> set[str]:
    text = re.sub("[\u0e00-\u0e30\u4e00-\u9fff]", r"\g<0>\g<0>", normalized(text))
    return {text[n : n + near.SHINGLE] for n in range(max(1, len(text) - near.SHINGLE + 1))} if text else set()


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_near_copies_are_those_of_sets(seed: int) -> None:
    random = np.random.default_rng(seed)
    texts = [sentence(random, int(random.choice([1, 2, 6, 15, 40, 200]))) for _ in range(120)]
    texts += ["", "...", "a", "Ab", "\u5317\u4eac\u6b22\u8fce\u4f60"]
    queries = [changed(text, random) for text in texts for _ in range(4)] + [sentence(random, 20) for _ in range(100)]
    expected = np.array([slowly(query, texts) for query in queries])
    np.testing.assert_array_equal(NearCopies(texts).find(queries), expected)
    assert 0.1 < expected.mean() < 0.9


@pytest.mark.parametrize(
    ("text", "copies", "others"),
    [
        ("He said, no.", ["He said , no .", "HE SAID NO", "he_said: no!"], ["He said yes.", "She said, no."]),
        ("How do I top up my card?", ["how do I top up my cards", "How do i top-up my card"], ["How do I top up?"]),
        ("\uff21\uff22\uff23 \uff11", ["abc 1"], ["abc 2"]),
        ("ok", ["OK!"], ["okay", "o", ""]),
        ("...", [], ["...", "", "ok"]),
        ("\u2764\ufe0f", [], ["\u2764\ufe0f", "\u2600\ufe0f", ""]),
        # The vowel is a mark on the letter: another vowel makes another word.
        ("\u0915\u093f", ["\u0915\u093f!"], ["\u0915\u0940", "\u0915"]),
        # One letter of 24 is another one, or of 6.
        ("".join(map(chr, range(0x4E10, 0x4E28))), ["".join(map(chr, [*range(0x4E10, 0x4E27), 0x4F00]))], ["\u4e10"]),
        ("".join(map(chr, range(0x4E10, 0x4E16))), [], ["".join(map(chr, [*range(0x4E10, 0x4E15), 0x4F00]))]),
        (
            "The harbour was closed for two days after the storm in March.",
            ["It said: the harbour was closed for two days after the storm in March. Ships waited, and nobody left."],
            ["The harbour was closed."],
        ),
    ],
)
def test_examples(text: str, copies: list[str], others: list[str]) -> None:
    index = NearCopies([text, "Something else altogether, about boats."])
    assert index.find(copies).all()
    assert not index.find(others).any()


def test_blocks_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    texts = [sentence(random, 12) for _ in range(40)]
    queries = [changed(text, random) for text in texts]
    expected = NearCopies(texts).find(queries)
    for name in ("_AT_ONCE", "_PAIRS", "_COMMON"):
        monkeypatch.setattr(near, name, 200)
    np.testing.assert_array_equal(NearCopies(texts).find(queries), expected)


@pytest.mark.parametrize("text", ["e\u200d\u0301t\u00e9", "\u0130stanbul", "\ufb01ne \u2460", "\u1e9e\u0345"])
def test_normalized_texts_stay_as_they_are(text: str) -> None:
    assert normalized(normalized(text)) == normalized(text)
    assert NearCopies([normalized(text)]).find([text]).all()


def test_no_texts() -> None:
    assert NearCopies([]).find(["a", "b"]).tolist() == [False, False]
    assert NearCopies(["a"]).find([]).shape == (0,)
