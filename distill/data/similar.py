"""Which texts share rare words with others, and which words have similar embeddings. Without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse

from distill.data.task_types.words import LETTER, LETTERS, UNSPACED

COMMON = 0.1
"""Words of more than this share of the texts are not compared: they make nearly all texts alike."""

_AT_ONCE = 512
"""Rows of a matrix of similarities that are in memory at once."""

_LETTERS, _PAIRS = re.compile(LETTERS), re.compile(rf"(?=({LETTER}(?:{LETTER})?))[{UNSPACED}]")
"""Words, and each two letters of scripts without spaces between words: one alone is in too many texts."""


class Index:
    """Texts among which similar ones are found. Similarity is the cosine of TF-IDF vectors of words."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._numbers: dict[str, int] = {}
        counts = _counted(texts, self._numbers, grow=True)
        documents = np.bincount(counts.indices, minlength=len(self._numbers))
        self._weights = np.log(max(1, len(texts)) / np.maximum(documents, 1))
        self._weights[documents > max(1, COMMON * len(texts))] = 0
        self._texts = _unit(counts, self._weights).T.tocsr()
        self._random = np.random.default_rng(0)

    def nearest(self, queries: Sequence[str], count: int) -> np.ndarray:
        """[queries, count] numbers of the texts that are most similar to each query, in any order; fewer columns if
        there are fewer texts."""
        left = _unit(_counted(queries, self._numbers, grow=False), self._weights)
        count = min(count, self._texts.shape[1])
        best = np.empty((len(queries), count), np.int64)
        for start in range(0, len(queries), _AT_ONCE):
            # Sparse: a text shares words with few of very many others.
            similarity = left[start : start + _AT_ONCE] @ self._texts
            similarity.eliminate_zeros()
            for row, (first, end) in enumerate(pairwise(similarity.indptr), start):
                shares, found = similarity.data[first:end], similarity.indices[first:end]
                if len(found) < count:
                    # Of texts that share no word with a query, the same ones would be chosen for every such query.
                    shares = self._random.random(self._texts.shape[1], np.float32)
                    shares[found] = 2
                    found = np.arange(len(shares))
                best[row] = found[np.argpartition(-shares, count - 1)[:count]]
        return best


def _counted(texts: Sequence[str], numbers: dict[str, int], *, grow: bool) -> sparse.csr_matrix:
    """[texts, words] whether a text has a word. `grow`: number unknown words too; they are left out otherwise."""
    indices, ends = [], [0]
    for text in texts:
        words = dict.fromkeys(_words(text.casefold()))
        found = (numbers.setdefault(w, len(numbers)) for w in words) if grow else map(numbers.get, words)
        indices += [number for number in found if number is not None]
        ends.append(len(indices))
    shape = (len(texts), len(numbers))
    return sparse.csr_matrix((np.ones(len(indices), np.float32), indices, ends), shape)


def _words(text: str) -> list[str]:
    return [*_LETTERS.findall(text), *_PAIRS.findall(text)]


def _unit(rows: sparse.csr_matrix, weights: np.ndarray) -> sparse.csr_matrix:
    """Weighted rows of length 1. Rows without a weight are zero."""
    weighted = rows @ sparse.diags(weights.astype(np.float32))
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(lengths, 1e-9)) @ weighted)


def similar_words(words: Sequence[str], embeddings: np.ndarray, count: int) -> dict[str, list[str]]:
    """Word -> the `count` other words whose embeddings [words, D] have the largest cosine with its own."""
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-9)
    found: dict[str, list[str]] = {}
    count = min(count, len(words) - 1)
    if count < 1:
        return {}
    for start in range(0, len(words), _AT_ONCE):
        similarity = unit[start : start + _AT_ONCE] @ unit.T
        own = np.arange(len(similarity))
        similarity[own, start + own] = -np.inf
        best = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        found |= {words[start + n]: [words[m] for m in row] for n, row in enumerate(best)}
    return found
