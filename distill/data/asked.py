"""Rows as a user asks a served model: their parts, and their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data.encode import Encoded, encode_choices, encode_texts
from distill.data.encode_words import encode_words
from distill.data.questions import encode_questions
from distill.data.task_types.layout import Parts
from distill.data.task_types.multiple_choice import choices_of
from distill.models.families.record import ANSWERS, CHOICES, TOKENS


@dataclass(frozen=True)
class Asked:
    """A row as a user asks it."""

    architecture: str
    """Of the model, as in `Layout`."""
    parts: Parts


def asked(part: pa.Table, text: Sequence[str], choices: Sequence[str] = ()) -> list[Any]:
    """What `Model.predict` takes for the rows of a table: texts, pairs of texts, lists of words, or texts with
    choices."""
    lists = [part[name].to_pylist() for name in text] + ([choices_of(part, choices)] if choices else [])
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def encode(architecture: str, rows: Sequence[Parts], tokenizer: Any, max_length: int) -> Encoded:
    """The tokens of rows, each cut to `max_length`; of questions with contexts, and of texts in words, the windows."""
    return _ENCODED.get(architecture, _texts)(rows, tokenizer, max_length)


def _texts(rows: Sequence[Parts], tokenizer: Any, max_length: int) -> Encoded:
    return encode_texts([list(column) for column in zip(*rows, strict=True)], tokenizer, max_length)


def _words(rows: Sequence[Parts], tokenizer: Any, max_length: int) -> Encoded:
    places = [np.array(part, np.int64).reshape(-1, 2) for _, part in rows]
    return encode_words([text for text, _ in rows], places, tokenizer, max_length)


def _questions(rows: Sequence[Parts], tokenizer: Any, max_length: int) -> Encoded:
    questions, contexts = zip(*rows, strict=True)
    return encode_questions(questions, contexts, tokenizer, max_length)


_ENCODED: dict[str, Callable[[Sequence[Parts], Any, int], Encoded]] = {
    TOKENS: _words,
    CHOICES: encode_choices,
    ANSWERS: _questions,
}
"""Architecture -> (parts of rows, tokenizer, maximum length) -> their tokens, where they are not those of texts."""
