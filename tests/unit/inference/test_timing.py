"""Texts of the tasks: which are timed, and what a tokenizer makes of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from distill.data.asked import Asked
from distill.data.questions import encode_questions
from distill.inference import timing
from distill.inference.runners import Batch, Runner
from distill.inference.timing import SINGLE_TEXTS, TASK_LENGTHS, Readers, by_length, drawn, timed
from distill.models.families.record import ANSWERS, CHOICES, TEXTS

WORDS = ["a", "b", "c", *("x" * n for n in range(1, 13))]


def of_words(first: int) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, whose ids begin at `first`, after [CLS]."""
    model = WordLevel({"[PAD]": 0, "[CLS]": 1, **{word: first + n for n, word in enumerate(WORDS)}}, unk_token="[PAD]")
    made = Tokenizer(model)
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing("[CLS] $A", "[CLS] $A $B:1", [("[CLS]", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]")


def asked(*texts: str) -> Asked:
    return Asked(TEXTS, texts)


def test_no_row_is_drawn_twice_while_there_are_others() -> None:
    tasks = [[asked(f"a{n}") for n in range(5)] * 2, [asked("b0", "x"), asked("b1", "x")]]
    found = drawn(tasks, 7)
    assert Counter(found) == Counter({row: 1 for task in tasks for row in task})
    assert [row.parts[0][0] for row in found] == list("ababaaa")
    assert drawn(tasks, 9) == [*found, *found[:2]]


def test_rows_that_are_drawn_are_as_long_as_those_of_their_task() -> None:
    """Two halves of a task have the same quantiles of lengths, of which a few are ten times as long as most."""
    lengths = np.random.default_rng(0).lognormal(3, 1, 4000).astype(int) + 1
    tasks = [[asked(f"{n} {'x' * size}") for n, size in enumerate(half)] for half in (lengths[:2000], lengths[2000:])]
    means = [np.mean([len(row.parts[0]) for row in drawn([task], 32)]) for task in tasks]
    assert means == pytest.approx([np.mean([len(row.parts[0]) for row in task]) for task in tasks], rel=0.1)
    assert means[0] == pytest.approx(means[1], rel=0.1)
    both = drawn(tasks, 32)
    assert [row in tasks[0] for row in both] == [True, False] * 16
    found = [len(row.parts[0]) for row in drawn([[asked("x" * n) for n in range(1, 321)]], 16)]
    assert sorted(found) == [11 + 20 * n for n in range(16)] != found


def test_all_sequences_of_a_row_are_timed_together() -> None:
    """A question with its choices, and the windows of a long context."""
    tokenizer, unequal = of_words(2), Asked(CHOICES, ("a", ["b", "b c", "c c c"]))
    batch = timed_batch(unequal, tokenizer)
    assert batch["attention_mask"].sum(axis=1).tolist() == [3, 4, 5]  # with [CLS]
    windows = timed_batch(Asked(ANSWERS, ("a", "b " * 20)), tokenizer)
    expected = encode_questions(["a"], ["b " * 20], tokenizer, 16)
    assert len(expected.offsets) - 1 == len(windows["input_ids"]) > 1
    parts = by_length([unequal, *(Asked(CHOICES, ("a", ["b"])) for _ in range(9)), asked("a", "b")], tokenizer, 16)
    assert [len(part) for part in parts] == [8, 2, 1]
    assert parts[1][-1] == unequal


def timed_batch(row: Asked, tokenizer: Any) -> Batch:
    return timing.tokenized([row], tokenizer, 16)


def test_every_model_and_tokenizer_is_timed_on_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model takes as many seconds as its batch has tokens, and a tokenizer takes a tenth of them."""
    clock, seen = [0.0], list[np.ndarray]()
    monkeypatch.setattr(timing.latency.time, "perf_counter", lambda: clock[0])
    make = timing.tokenized

    def tokenized(*given: Any) -> Batch:
        batch = make(*given)
        clock[0] += 0.1 * batch["attention_mask"].sum()
        return batch

    def model(batch: Batch) -> np.ndarray:
        seen.append(batch["input_ids"])
        clock[0] += batch["attention_mask"].sum()
        return np.zeros((len(batch["input_ids"]), 2))

    monkeypatch.setattr(timing, "tokenized", tokenized)
    one, other = of_words(2), of_words(20)
    of = {"teacher": [one], "student": [other]}
    readers = Readers(of, [one, other], of)
    runners = [Runner(name, "torch", "fp32", model) for name in readers.of]
    texts = [[asked(f"{'x' * n} " * n) for n in range(1, 13)], [asked("a", "b"), asked("a", "b c")]]
    found = timed(
        runners, readers, [[2, 4]], texts, 16, repeats=2, requests=14, least_ms=0, meter="none", log=lambda text: None
    )
    assert (found.distinct, found.energy_missing) == (14, "none")

    lengths = [1 + len(" ".join(row.parts).split()) for row in drawn(texts, 14)]
    for name in readers.of:
        assert found.times[name]["2x4"] == pytest.approx([8000, 8000])
        assert found.times[name][SINGLE_TEXTS] == pytest.approx([1000 * length for length in lengths])
        assert found.tokenizer[name][SINGLE_TEXTS] == pytest.approx([100 * length for length in lengths])
        assert found.from_text(name, SINGLE_TEXTS) == pytest.approx([1100 * length for length in lengths])
        whole = 1000 * sum(1 + len(" ".join(row.parts).split()) for row in drawn(texts, timing.TASK_ROWS))
        assert found.times[name][TASK_LENGTHS] == pytest.approx([whole, whole])
        assert found.from_text(name, TASK_LENGTHS) == pytest.approx([1.1 * whole] * 2)
    assert max(int(ids.max()) for ids in seen) == 20 + len(WORDS) - 1  # the student reads its own token ids
