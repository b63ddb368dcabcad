"""Rows that are tokenized are drawn together for the same texts as rows of text are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import processors
from transformers import DataCollatorWithPadding

from distill.data.task_types import TASK_TYPES
from distill.evaluation.clusters import clusters
from distill.evaluation.comparison import parts_of
from tests import tiny

WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split() if word.isalpha()]


def texts_of(count: int) -> tuple[list[str], list[str]]:
    """Pairs of texts of three words, of which some are in two rows, in the same column or in the other one."""
    random = np.random.default_rng(0)
    firsts, seconds = (
        [" ".join(random.choice(WORDS, 3, replace=False)) for _ in range(count)] for _ in ("first", "second")
    )
    for number in range(0, count - 6, 6):
        firsts[number + 1] = firsts[number]
        seconds[number + 3] = firsts[number + 2]
    return firsts, seconds


def as_roberta(words: Any) -> None:
    """Two separators between the texts of a pair, and no types of tokens."""
    words.backend_tokenizer.post_processor = processors.RobertaProcessing(
        ("[SEP]", words.sep_token_id), ("[CLS]", words.cls_token_id)
    )
    words.model_input_names = ["input_ids", "attention_mask"]


def assert_same_parts(found: np.ndarray | None, expected: np.ndarray | None) -> None:
    """Two rows are in one part in both, or in neither; some rows are."""
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(found[:, None] == found, expected[:, None] == expected)


@pytest.mark.parametrize("form", ["bert", "roberta"])
@pytest.mark.parametrize("padded", [False, True])
def test_pairs_have_the_parts_of_their_texts(form: str, padded: bool) -> None:
    words = tiny.tokenizer()
    if form == "roberta":
        as_roberta(words)
    firsts, seconds = texts_of(60)
    rows = [dict(words(*pair)) | {"labels": 0} for pair in zip(firsts, seconds, strict=True)]
    rows[5]["labels"] = -100
    collate = DataCollatorWithPadding(words, return_tensors="np")
    batches = [dict(collate(rows[start : start + 7])) for start in range(0, 60, 7)]
    if not padded:
        batches = [{name: np.array([value]) for name, value in row.items()} for row in rows]
    kept = [number for number in range(60) if number != 5]
    expected = clusters([[texts[number] for number in kept] for texts in (firsts, seconds)])
    found = parts_of(TASK_TYPES["classification"], batches)
    assert_same_parts(found, expected)


def test_choices_of_one_question_are_one_row() -> None:
    words = tiny.tokenizer()
    firsts, seconds = texts_of(60)
    choices = [[(first, second), (first, f"{second} {second}")] for first, second in zip(firsts, seconds, strict=True)]
    rows = [words([a for a, _ in row], [b for _, b in row], padding="max_length", max_length=16) for row in choices]
    batches = [{name: np.array([value]) for name, value in row.items()} | {"labels": np.array([0])} for row in rows]
    expected = clusters([firsts, seconds])
    found = parts_of(TASK_TYPES["multiple_choice"], batches)
    assert_same_parts(found, expected)


def test_rows_of_words_and_rows_that_share_no_text_are_drawn_alone() -> None:
    words = tiny.tokenizer()
    apart = [{"input_ids": np.array([words(word)["input_ids"]]), "labels": np.array([0])} for word in sorted({*WORDS})]
    assert parts_of(TASK_TYPES["classification"], apart) is None
    empty = [{"input_ids": np.array([words("")["input_ids"]]), "labels": np.array([0])}] * 30
    assert parts_of(TASK_TYPES["classification"], empty) is None
    of_words = [row | {"labels": np.zeros_like(row["input_ids"])} for row in apart * 2]
    assert parts_of(TASK_TYPES["token_classification"], of_words) is None
