"""Draws whole words of a batch, and runs of them, for masked-language modelling. In numpy.

Which tokens are of one word is read from the vocabulary: WordPiece marks the tokens that continue a word (`##`), and
byte-level BPE, SentencePiece and Unigram those that follow a space (`Ġ`, `▁`). A word is therefore what the authors'
code takes for one: `create_pretraining_data.py` of BERT, where punctuation marks are words, and fairseq's
`is_beginning_of_word` of RoBERTa, where they are of the word before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.config.masking_units import MASKING_UNITS, MaskingUnit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LONGEST = 10
"""Most tokens of a word. A longer one is divided, because in a language without spaces a word may be a whole text."""

_SPACES = {"Ġ": "Ċĉč", "▁": ""}
"""The mark of a space in a vocabulary -> line breaks and tabs there, besides plain ones."""

_PLAIN = " \n\r\t"


@dataclass(frozen=True)
class Marks:
    """Which tokens of a vocabulary begin and end words."""

    begins: Bools
    """[V] whether a token begins a word wherever it is."""
    ends: Bools
    """[V] whether the token after it begins a word, whichever it is."""


def marks(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> Marks | None:
    """The marks of words in a vocabulary [`vocab_size`]; None if it has none."""
    model = tokenizer.backend_tokenizer.model
    vocabulary = {token: number for token, number in tokenizer.get_vocab().items() if token and number < vocab_size}
    continuing = getattr(model, "continuing_subword_prefix", None)
    space = max(_SPACES, key=lambda mark: sum(token.startswith(mark) for token in vocabulary))
    if not continuing and not any(token.startswith(space) for token in vocabulary):
        return None
    breaks = _PLAIN + _SPACES[space]
    found = Marks(np.zeros(vocab_size, np.bool_), np.zeros(vocab_size, np.bool_))
    for token, number in vocabulary.items():
        found.begins[number] = not token.startswith(continuing) if continuing else token[0] in space + breaks
        found.ends[number] = not continuing and token[-1] in breaks
    return found


@dataclass(frozen=True)
class Words:
    """The W words of a batch [B, L], in order."""

    starts: Ints
    """[W] flat position of the first token of each."""
    sizes: Ints
    """[W] number of tokens of each."""
    follows: Bools
    """[W + 1] whether a word follows the one before it without another token between them; false at the end."""


def words_of(ids: Ints, maskable: Bools, marks: Marks) -> Words:
    """The words of a batch that consist of `maskable` tokens [B, L]."""
    inside = np.zeros_like(maskable)
    inside[:, 1:] = maskable[:, :-1] & ~marks.ends[ids[:, :-1]]
    begins = maskable & (marks.begins[ids] | ~inside)
    place = np.arange(ids.shape[1])
    start = np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    begins |= maskable & ((place - start) % LONGEST == 0)
    starts = np.flatnonzero(begins)
    sizes = np.bincount(np.cumsum(begins.ravel())[maskable.ravel()] - 1, minlength=len(starts))
    follows = np.zeros(len(starts) + 1, np.bool_)
    follows[1:-1] = (starts[1:] == starts[:-1] + sizes[:-1]) & (starts[1:] % ids.shape[1] > 0)
    return Words(starts, sizes, follows)


@dataclass(frozen=True)
class WordMasking:
    """Masking of whole words."""

    unit: MaskingUnit
    marks: Marks

    def drawn(
        self, ids: Ints, maskable: Bools, budgets: NDArray[Any], keys: Floats, uniform: Floats
    ) -> tuple[Ints, Ints]:
        """Draw runs of words of the rows of a batch.

        A run begins at the words of a row in the order of their keys. It ends before a word that is already drawn,
        that is not maskable or that exceeds what is left of the row's budget, and with the length that `uniform`
        decides. If no word of a row fits into its budget, the first one is cut to it. So no row exceeds its budget, and
        each has a token.

        Args:
            ids: [B, L] token ids.
            maskable: [B, L].
            budgets: [B] maximum number of tokens to draw; 0 only where none is maskable.
            keys: [B, L] numbers whose order among the first tokens of words is random.
            uniform: [B, L] numbers in (0, 1).

        Returns:
            [M] flat positions of the drawn tokens, ascending, and [M] that of the token at which is decided what each
            becomes: the token itself, or the first one of its run.
        """
        words = words_of(ids, maskable, self.marks)
        rows, totals = words.starts // ids.shape[1], np.cumsum(self.unit.lengths)
        order = np.lexsort((keys.ravel()[words.starts], rows))
        most = np.searchsorted(totals[:-1], uniform.ravel()[words.starts], side="right") + 1
        bounds = np.searchsorted(rows, np.arange(len(ids) + 1))
        runs: list[tuple[int, int]] = []
        lists = (words.starts.tolist(), words.sizes.tolist(), words.follows.tolist(), most.tolist())
        for row, budget in enumerate(budgets.astype(np.int64).tolist()):
            runs += _runs(order[bounds[row] : bounds[row + 1]].tolist(), budget, *lists)
        firsts, ends = np.array(sorted(runs), np.int64).reshape(-1, 2).T
        lengths = ends - firsts
        of_runs = np.repeat(firsts, lengths)
        drawn = of_runs + np.arange(len(of_runs)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return drawn, of_runs if self.unit.together else drawn


def can_mask(unit: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether tokens can be masked in this unit, for which the vocabulary must mark words unless tokens are drawn one
    by one."""
    return not MASKING_UNITS[unit].lengths or marks(tokenizer, len(tokenizer)) is not None


def word_masking(unit: str, tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> WordMasking | None:
    """Masking in a unit that `can_mask`; None where tokens are drawn one by one."""
    if not MASKING_UNITS[unit].lengths:
        return None
    found = marks(tokenizer, vocab_size)
    assert found is not None
    return WordMasking(MASKING_UNITS[unit], found)


def _runs(
    order: list[int], budget: int, starts: list[int], sizes: list[int], follows: list[bool], most: list[int]
) -> list[tuple[int, int]]:
    """Flat positions of the first token of each run in a row, and of the token after its last."""
    left, taken, runs = budget, set[int](), list[tuple[int, int]]()
    for first in order:
        word, before = first, left
        while word not in taken and sizes[word] <= left:
            left -= sizes[word]
            taken.add(word)
            word += 1
            if word == first + most[first] or not follows[word]:
                break
        if left < before:
            runs.append((starts[first], starts[first] + before - left))
        if not left:
            break
    return runs or [(starts[first], starts[first] + budget) for first in order[:1]]
