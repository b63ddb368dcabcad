"""Words that a masked language model predicts in place of words of a text, from the words around them.

Jiao et al. 2020, arXiv 1909.10351, algorithm 1 (TinyBERT). Deviation: the words of a text that are to be replaced are
masked together, in one pass, as in the model's own training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distill.data.collate import pad
from distill.data.edits import places
from distill.data.encode import Encoded
from distill.data.task_types.words import MARKS
from distill.data.tokens import cutting
from distill.inference.predict import SCORED, batches
from distill.models import families

if TYPE_CHECKING:
    from torch import Tensor, nn

CANDIDATES = 15
"""Words for each masked word: K in TinyBERT's appendix."""

_SAME = 4
"""Most spellings of a word in upper and lower case, which are no replacement of it."""

_AT_ONCE = 128
"""Masked words whose logits of the whole vocabulary are in memory at once."""

_WHOLE = re.compile(rf"\w[\w{MARKS}]*")
"""A word: letters and digits, with their marks."""

Place = tuple[int, int, int]
"""Number of a text, number of a word in it, and position of its token in a sequence."""


class MaskedLm:
    """Predicts words for words that are a single token of the model, among tokens that are whole words."""

    def __init__(self, model: nn.Module, tokenizer: Any, longest: int) -> None:
        """`model`: a frozen masked language model. `longest`: tokens of a sequence, into which longer texts are cut."""
        self._model, self._tokenizer = model, tokenizer
        self._longest = min(longest, families.max_length(model.config))
        self._words, self._spaced, self._unspaced = _whole_words(tokenizer, int(model.config.vocab_size))  # type: ignore
        self.asked = 0
        """Words that were to be replaced."""
        self.found = 0
        """Words of these that had predictions."""

    def __call__(self, texts: Sequence[tuple[str, Sequence[int]]]) -> list[dict[int, list[str]]]:
        """The words predicted in place of others, the most probable first: a `distill.data.edits.Predicted`."""
        found: list[dict[int, list[str]]] = [{} for _ in texts]
        sequences, masked = [], []
        for ids, inside in self._sequences(texts):
            if inside:
                sequences.append(ids)
                masked.append(inside)
        offsets = np.cumsum([0, *map(len, sequences)])
        own = np.concatenate([np.zeros(0, np.int32), *sequences])
        ids = own.copy()
        ids[[start + at for start, inside in zip(offsets, masked, strict=False) for *_, at in inside]] = (
            self._tokenizer.mask_token_id
        )
        encoded = Encoded(ids, offsets, None, None)
        for part in batches(encoded.lengths, SCORED):
            columns = [(row, at) for row, n in enumerate(part) for *_, at in masked[n]]
            tokens = [int(own[offsets[n] + at]) for n in part for *_, at in masked[n]]
            best = self._best(pad(encoded, part, self._tokenizer.pad_token_id), columns, tokens)
            for (text, number, _), words in zip((place for n in part for place in masked[n]), best, strict=True):
                if words:
                    found[text][number] = words
        self.asked += sum(len({*numbers}) for _, numbers in texts)
        self.found += sum(map(len, found))
        return found

    def _sequences(self, texts: Sequence[tuple[str, Sequence[int]]]) -> Iterator[tuple[np.ndarray, list[Place]]]:
        """The token ids of each sequence of the texts, and the places in it that are masked."""
        wanted: dict[int, dict[tuple[int, int], int]] = {}
        for owner, (text, numbers) in enumerate(texts):
            if numbers:
                every = places(text)
                wanted[owner] = {every[number]: number for number in numbers}
        if not wanted:
            return
        with cutting(self._tokenizer):
            encoded = self._tokenizer(
                [texts[owner][0] for owner in wanted],
                truncation=True,
                max_length=self._longest,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
        rows = [*wanted]
        owners = [rows[number] for number in encoded["overflow_to_sample_mapping"]]
        for ids, offsets, owner in zip(encoded["input_ids"], encoded["offset_mapping"], owners, strict=True):
            text = texts[owner][0]
            inside: list[Place] = []
            for at, (start, end) in enumerate(offsets):
                space = end - start - len(text[start:end].lstrip())  # some tokenizers count the space before a word
                number = wanted[owner].get((start + space, end))
                if number is not None and (self._spaced[ids[at]] or self._unspaced[ids[at]]):
                    inside.append((owner, number, at))
            yield np.array(ids, np.int32), inside

    @torch.inference_mode()
    def _best(
        self, batch: dict[str, np.ndarray], columns: list[tuple[int, int]], tokens: list[int]
    ) -> Iterator[list[str]]:
        """The words predicted at each masked place [row, column] of a batch, in place of these tokens."""
        device = next(self._model.parameters()).device
        hidden = families.encode(self._model, {k: torch.from_numpy(v).to(device) for k, v in batch.items()})
        chosen: Tensor = hidden[tuple(torch.tensor(columns, device=device).T)]
        for part, own in zip(chosen.split(_AT_ONCE), torch.tensor(tokens).split(_AT_ONCE), strict=True):
            logits = families.mlm_logits(self._model, part).float().cpu()
            # A word after a space is replaced by words after a space, any other by words that are not.
            spaced = torch.from_numpy(self._spaced)
            allowed = torch.where(spaced[own][:, None], spaced, torch.from_numpy(self._unspaced))
            logits.masked_fill_(~allowed, -torch.inf)
            values, ids = logits.topk(min(CANDIDATES + _SAME, logits.shape[1]))
            for token, row, finite in zip(own.tolist(), ids.tolist(), values.isfinite().tolist(), strict=True):
                same = self._words[token].casefold()
                words = [self._words[n] for n, kept in zip(row, finite, strict=True) if kept]
                yield [word for word in words if word.casefold() != same][:CANDIDATES]


def _whole_words(tokenizer: Any, size: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The text of each token, and [size] which tokens are all of a word after a space, and of one after none.

    Tokenizers of bytes have tokens of their own for words after a space. Their other tokens are parts of words too, and
    count as a word only if the same text after a space is one token.
    """
    words = [text.strip() for text in tokenizer.batch_decode([[number] for number in range(len(tokenizer))])]
    kinds = np.zeros((2, size), np.bool_)
    numbers = [number for number, word in enumerate(words) if _WHOLE.fullmatch(word)]
    after, alone = (
        tokenizer([space + words[n] for n in numbers], add_special_tokens=False)["input_ids"] if numbers else []
        for space in (" ", "")
    )
    for number, spaced, unspaced in zip(numbers, after, alone, strict=True):
        kinds[:, number] = spaced == [number], unspaced == [number] and len(spaced) == 1
    return words, *kinds
