"""Encodes questions with their contexts as overlapping windows, and finds the tokens of the answers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded, Spans, flattened, separator_of
from distill.data.task_types import MISSING
from distill.data.task_types.answers import NONE
from distill.data.tokens import cutting, types_of
from distill.data.windows import OVERLAP

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_AT_ONCE = 256
"""Questions per call of the tokenizer."""


def encode_questions(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    targets: NDArray[Any] | None = None,
) -> Encoded:
    """Windows of at most `max_length` tokens, each of the question and a part of the context, in order.

    A question is cut to half of the window. Labels are [windows, 2], the tokens at which the answer starts and ends: 0,
    the first token, if the window does not contain the whole answer, and `MISSING` without a label.

    Args:
        targets: [n] arrays, of question answering: the first answer trains. None for rows without labels.
    """
    parts, labels = list[tuple[Any, ...]](), list[NDArray[np.int64]]()
    room = max_length - tokenizer.num_special_tokens_to_add(pair=True)
    most, stride = max(1, room // 2), max(0, min(max_length // OVERLAP, room - room // 2 - 1))
    lead = separator_of(tokenizer)
    with cutting(tokenizer):
        for start in range(0, len(questions), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            out = tokenizer(
                _cut(questions[rows], tokenizer, most),
                [lead + context for context in contexts[rows]],
                truncation="only_second",
                max_length=max_length,
                stride=stride,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
                return_token_type_ids=True,
                return_attention_mask=False,
            )
            owners = start + np.array(out["overflow_to_sample_mapping"], np.int64)
            characters = [_characters(out, window, len(lead)) for window in range(len(owners))]
            ids, lengths = flattened(out["input_ids"])
            types = flattened(types_of(tokenizer, out["input_ids"], out["token_type_ids"]))[0].astype(np.int8)
            parts.append((ids, types, lengths, owners, np.concatenate(characters)))
            if targets is not None:
                labels += [_label(targets[owner], part) for owner, part in zip(owners, characters, strict=True)]
    ids, types, lengths, owners, all_characters = map(np.concatenate, zip(*parts, strict=True))
    encoded = Encoded(ids, np.cumsum(np.r_[0, lengths]), types, None, spans=Spans(owners, all_characters))
    return encoded if targets is None else replace(encoded, labels=np.array(labels, np.int64).reshape(-1, 2))


def _cut(questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, most: int) -> list[str]:
    """The questions, or their beginnings that have at most `most` tokens."""
    out = tokenizer(list(questions), add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    cut = []
    for question, places in zip(questions, out, strict=True):
        if len(places) > most:
            first, end = places[most - 1]
            # A character may have several tokens. A part may have more tokens than in the whole.
            (question,) = _cut([question[: end if end < len(question) else first]], tokenizer, most)
        cut.append(question)
    return cut


def _characters(out: Any, window: int, lead: int) -> NDArray[np.int32]:
    """[tokens, 2] first character and end, in the context, of each token of a window; `NONE` for other tokens."""
    places = np.array(out["offset_mapping"][window], np.int32).reshape(-1, 2)
    second = np.array([number == 1 for number in out.sequence_ids(window)], np.bool_)
    inside = second & (places[:, 0] < places[:, 1]) & (places[:, 1] > lead)
    return np.where(inside[:, None], np.maximum(places - lead, 0), NONE).astype(np.int32)


def _label(target: NDArray[np.int64], characters: NDArray[np.int32]) -> NDArray[np.int64]:
    """[2] tokens at which the first answer starts and ends in a window."""
    if not len(target):
        return np.full(2, MISSING)
    return tokens_of(target[:2], characters)


def tokens_of(span: NDArray[Any], characters: NDArray[np.int32]) -> NDArray[np.int64]:
    """[2] tokens of a window at which a span starts and ends: the first token twice if it does not contain the whole
    span, or for no answer.

    span: [2] first character and end in the context. characters: [tokens, 2] those of each token.
    """
    inside = np.flatnonzero(characters[:, 0] != NONE)
    first, end = span
    if first == NONE or not len(inside) or first < characters[inside[0], 0] or end > characters[inside[-1], 1]:
        return np.zeros(2, np.int64)
    start = np.searchsorted(characters[inside, 1], first, side="right")
    last = np.searchsorted(characters[inside, 0], end, side="left") - 1
    return inside[[start, last]] if start <= last else np.zeros(2, np.int64)
