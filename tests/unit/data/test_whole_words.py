"""Masking of whole words: which tokens are of one word against the libraries, which are drawn against a slow oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import geom
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from distill.config.masking_units import MASKING_UNITS, TOKEN
from distill.data.collate import mask_tokens
from distill.data.whole_words import LONGEST, Marks, WordMasking, can_mask, marks, word_masking, words_of

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
SENTENCES = [
    "Unbelievably good, they said; the reviewers (all of them) disagreed strongly.",
    "It costs 3.50 euros, doesn't it? Wholesalers undercut him by 12,000!",
    "Rereading misprinted announcements: tiresome-but-necessary work, e.g. on Mondays.",
    "Naïve cafés reopened; 'quoted' words and under_scored names like max_length stay.",
]
WORDS = [name for name, unit in MASKING_UNITS.items() if unit.lengths]


def trained(model: Any, trainer: Any, **parts: Any) -> Any:
    """A tokenizer that was trained on the sentences, so little that most words have several tokens."""
    backend = Tokenizer(model)
    for name, part in parts.items():
        setattr(backend, name, part)
    backend.train_from_iterator(SENTENCES * 2, trainer)
    ends = ("</s>", 2), ("<s>", 1)
    if isinstance(parts["pre_tokenizer"], pre_tokenizers.ByteLevel):
        backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    else:
        backend.post_processor = processors.BertProcessing(*ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **dict(zip(("pad_token", "bos_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True)),
    )


def wordpiece() -> Any:
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    model: Any = models.WordPiece(unk_token="<unk>")
    return trained(
        model, trainer, normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer()
    )


def byte_level() -> Any:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=310, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    parts = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False), "decoder": decoders.ByteLevel()}
    return trained(models.BPE(), trainer, **parts)


def unigram() -> Any:
    trainer = trainers.UnigramTrainer(vocab_size=110, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    return trained(models.Unigram(), trainer, pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())


def word_ids(tokenizer: Any, text: str) -> list[int]:
    """The library's number of the word of each token; -1 for special tokens."""
    return [-1 if number is None else number for number in tokenizer(text).word_ids()]


def by_offsets(tokenizer: Any, text: str) -> list[int]:
    """The same, from transformers' collator: words are what spaces separate."""
    out = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    collator: Any = DataCollatorForLanguageModeling
    offsets, special = np.array([out["offset_mapping"]]), np.array([out["special_tokens_mask"]])
    numbers: list[int] = collator._calc_word_ids_and_prob_mask(offsets, special)[0][0].tolist()
    return numbers


@pytest.mark.parametrize(
    ("make", "oracle"),
    [(wordpiece, word_ids), (unigram, word_ids), (byte_level, by_offsets)],
    ids=lambda made: made.__name__,
)
def test_tokens_of_a_word_are_those_of_the_library(make: Callable[[], Any], oracle: Callable[[Any, str], Any]) -> None:
    tokenizer = make()
    found = marks(tokenizer, len(tokenizer))
    assert found is not None
    several = 0
    for text in SENTENCES:
        if oracle is by_offsets and not text.isascii():
            continue  # the collator takes each byte of a character for a word
        ids = np.array([tokenizer(text)["input_ids"]])
        numbers = np.array(oracle(tokenizer, text))
        words = words_of(ids, (numbers >= 0)[None], found)
        own = np.repeat(np.arange(len(words.starts)), words.sizes)
        of_library = numbers[numbers >= 0]
        inside = np.arange(len(of_library)) - np.searchsorted(of_library, of_library)
        # The library has no limit.
        expected = np.unique(1000 * of_library + inside // LONGEST, return_inverse=True)[1]
        np.testing.assert_array_equal(own, expected)
        several += int((words.sizes > 1).sum())
    assert several > 20


def test_a_line_break_ends_a_word_of_byte_level_tokens() -> None:
    tokenizer = byte_level()
    found = marks(tokenizer, len(tokenizer))
    assert found is not None
    ids = np.array([tokenizer("it\nit it", add_special_tokens=False)["input_ids"]])
    words = words_of(ids, np.ones(ids.shape, bool), found)
    texts = [
        tokenizer.decode(ids[0, start : start + size]) for start, size in zip(words.starts, words.sizes, strict=True)
    ]
    assert texts == ["it", "\n", "it", " it"]


def test_a_vocabulary_without_marks_has_no_words() -> None:
    backend = Tokenizer(models.BPE({"<mask>": 0, "a": 1, "b": 2}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>")
    assert marks(tokenizer, 3) is None
    assert can_mask("token", tokenizer)
    assert word_masking("token", tokenizer, 3) is None
    assert not any(can_mask(unit, tokenizer) for unit in WORDS)


VOCABULARY = 60
CONTINUING = np.arange(VOCABULARY) >= 40  # tokens 0 to 4 are special, 5 to 39 begin words
MARKS = Marks(~CONTINUING, np.zeros(VOCABULARY, bool))
RANDOM_IDS = np.arange(5, VOCABULARY)


def sequences(rows: int, length: int, seed: int = 0) -> np.ndarray:
    """[rows, length] tokens in words of one or more; <s> and </s> at the ends, and some unknown tokens within."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCABULARY, (rows, length))
    ids[rng.random(ids.shape) < 0.03] = 3
    ids[:, 0], ids[:, -1] = 1, 2
    return ids


def mask(ids: np.ndarray, unit: str, samples: Any = None, found: Marks = MARKS, **more: Any) -> Any:
    words = WordMasking(MASKING_UNITS[unit], found)
    samples = np.arange(len(ids)) if samples is None else np.asarray(samples)
    given = {"seed": 0, "epoch": 0, "probability": 0.15, "weights": None} | more
    return mask_tokens(ids, ids > 4, samples, mask_id=4, random_ids=RANDOM_IDS, words=words, **given)


def written_out(row: list[int]) -> list[list[int]]:
    """Positions of each word, token by token."""
    words = list[list[int]]()
    for place, token in enumerate(row):
        if token <= 4:
            continue
        joins = CONTINUING[token] and words and words[-1][-1] == place - 1 and len(words[-1]) < LONGEST
        words[-1].append(place) if joins else words.append([place])
    return words


@pytest.mark.parametrize("unit", WORDS)
def test_drawn_runs_equal_the_slow_oracle(unit: str) -> None:
    ids, rng = sequences(40, 70), np.random.default_rng(1)
    keys, uniform, budgets = rng.random(ids.shape), rng.random(ids.shape), rng.integers(1, 20, len(ids))
    drawn, decided = WordMasking(MASKING_UNITS[unit], MARKS).drawn(ids, ids > 4, budgets, keys, uniform)
    expected = dict[int, int]()
    for row, budget in enumerate(budgets):
        words, left = written_out(ids[row].tolist()), int(budget)
        taken = dict[int, int]()
        for first in sorted(range(len(words)), key=lambda word: keys[row, words[word][0]]):
            start = words[first][0]
            length = 1 + sum(uniform[row, start] >= total for total in np.cumsum(MASKING_UNITS[unit].lengths)[:-1])
            for word in range(first, min(first + length, len(words))):
                apart = word > first and words[word][0] != words[word - 1][-1] + 1
                if apart or words[word][0] in taken or len(words[word]) > left:
                    break
                left -= len(words[word])
                taken |= dict.fromkeys(words[word], start)
        if not taken:
            first = min(range(len(words)), key=lambda word: keys[row, words[word][0]])
            taken = dict.fromkeys(words[first][: int(budget)], words[first][0])
        for place, start in taken.items():
            flat = row * ids.shape[1]
            expected[flat + place] = flat + (start if MASKING_UNITS[unit].together else place)
    assert drawn.tolist() == sorted(expected)
    assert decided.tolist() == [expected[place] for place in sorted(expected)]


@pytest.mark.parametrize("unit", WORDS)
def test_whole_words_are_chosen_within_the_budget(unit: str) -> None:
    ids = sequences(300, 128)
    masked, chosen = mask(ids, unit)
    maskable = ids > 4
    budget = np.floor(0.15 * maskable.sum(axis=1) + 0.5)
    assert (chosen.sum(axis=1) <= budget).all()
    assert chosen.sum() > 0.99 * budget.sum()
    assert not chosen[~maskable].any()
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])
    for row, flags in zip(ids.tolist(), chosen, strict=True):
        assert all(len(set(flags[word].tolist())) == 1 for word in written_out(row))


@pytest.mark.parametrize("unit", WORDS)
def test_every_row_with_a_word_has_a_masked_token(unit: str) -> None:
    ids = np.full((3, 16), 50)  # one word, longer than the budget
    ids[:, 0], ids[:, 11:] = 1, 0
    ids[2] = 0
    assert mask(ids, unit)[1].sum(axis=1).tolist() == [2, 2, 0]


def test_all_words_are_alike_likely() -> None:
    ids = np.tile([1, *([10] * 20), 2], (4000, 1))
    share = mask(ids, "word")[1].mean(axis=0)[1:-1]
    assert np.abs(share - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 4000)


@pytest.mark.parametrize("unit", WORDS)
def test_lengths_of_runs(unit: str) -> None:
    rows, length = 20000, 32
    ids, keys = np.full((rows, length), 10), np.tile(np.arange(length) / length, (rows, 1))
    uniform = np.ones((rows, length)) - 1e-9
    uniform[:, 0] = np.random.default_rng(0).random(rows)
    words = WordMasking(replace(MASKING_UNITS[unit], together=True), MARKS)
    _, decided = words.drawn(ids, ids > 4, np.full(rows, 12), keys, uniform)
    lengths = np.bincount(decided, minlength=rows * length).reshape(rows, length)[:, 0]
    expected = {
        "word": np.ones(1),
        "ngram": np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3),
        "span": geom.pmf(np.arange(1, 11), 0.2) / geom.cdf(10, 0.2),
    }[unit]
    found = np.bincount(lengths, minlength=len(expected) + 1)[1:] / rows
    assert np.abs(found - expected).max() < 0.015
    if unit == "span":
        assert abs(lengths.mean() - 3.8) < 0.1  # the mean that the paper reports


def test_a_span_is_replaced_as_a_whole_and_a_word_is_not() -> None:
    def kinds(unit: str) -> list[set[int]]:
        ids = np.tile([1, *([10, 50, 50, 50] * 30), 2], (300, 1))
        masked, chosen = mask(ids, unit)
        kind = np.where(masked == 4, 0, np.where(masked == ids, 1, 2))  # a random token may be the token itself
        edges = np.flatnonzero(np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int).ravel()))
        flat = np.pad(kind, ((0, 0), (1, 1)))[:, :].ravel()
        return [set(flat[start + 1 : end + 1].tolist()) for start, end in edges.reshape(-1, 2)]

    words, spans = kinds("word"), kinds("span")
    assert np.mean([len(kind) > 1 for kind in words]) > 0.3
    # Runs that happen to touch look like one, and random tokens may be those that were there.
    assert np.mean([len(kind - {1}) > 1 for kind in spans]) < 0.1


def test_shares_of_mask_random_and_kept() -> None:
    for unit in WORDS:
        ids = sequences(1500, 128, seed=3)
        masked, chosen = mask(ids, unit)
        hidden, before = masked[chosen], ids[chosen]
        assert abs((hidden == 4).mean() - 0.8) < 0.03
        assert abs((hidden == before).mean() - 0.1) < 0.03
        assert not set(hidden) & {0, 1, 2, 3}


@pytest.mark.parametrize("unit", WORDS)
def test_a_sample_is_masked_alike_in_any_batch_and_under_any_padding(unit: str) -> None:
    ids = sequences(6, 64)
    masked, chosen = mask(ids, unit)
    alone = np.pad(ids[2:3], ((0, 0), (0, 16)))
    masked_alone, chosen_alone = mask(alone, unit, [2])
    np.testing.assert_array_equal(masked_alone[0, :64], masked[2])
    np.testing.assert_array_equal(chosen_alone[0, :64], chosen[2])
    turned, _ = mask(ids[::-1], unit, [5, 4, 3, 2, 1, 0])
    np.testing.assert_array_equal(turned[::-1], masked)
    assert (mask(ids, unit, epoch=1)[1] != chosen).any(axis=1).all()


def test_units_are_those_of_the_settings() -> None:
    assert MASKING_UNITS[TOKEN.name] is TOKEN
    assert all(abs(sum(unit.lengths) - 1) < 1e-12 for unit in MASKING_UNITS.values() if unit.lengths)
