"""Which texts are nearly copies of others, by the shingles that they share. Without torch.

A shingle is `SHINGLE` consecutive letters and digits of a text, as Broder 1997 ("On the resemblance and containment of
documents") compares documents. His resemblance is the Jaccard similarity of two sets of shingles, his containment the
part of one set that is in the other. Both are computed exactly, for the pairs that share a rare shingle.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy import sparse

SHINGLE = 6
"""Characters of a shingle. A text of fewer has one, so that only equal texts are near to it."""

RESEMBLANCE = 0.8
"""Least Jaccard similarity of near copies: in a text of 100 letters, one word of five letters may be another."""

CONTAINED = 0.9
"""Least part of the shingles of the shorter text that are in the longer one, if it is contained in it."""

LEAST = 30
"""Least shingles of a text that may be contained in another. Shorter texts are contained in many by chance."""

_AT_ONCE = 1024
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def normalized(text: str) -> str:
    """A text without case, punctuation and spaces, by which copies are recognized. Other forms of the same letter, such
    as full-width ones, are that letter."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


class NearCopies:
    """Texts, of which near copies are found in an inverted index. Equal normalized texts are near copies, and texts
    without letters or digits have none."""

    def __init__(self, texts: Sequence[str]) -> None:
        hashes, ends = _shingles([normalized(text) for text in texts])
        self._known, columns = np.unique(hashes, return_inverse=True)
        self._texts = _flags(columns, ends, len(self._known))
        self._sizes = np.diff(ends)
        self._often = np.bincount(columns, minlength=len(self._known))
        # Of two texts, one has so large a part of the other's shingles that one of its rarest is among them.
        self._rarest = _rarest(self._texts, self._often, RESEMBLANCE).T.tocsc()
        self._columns = self._texts.T.tocsc()

    def find(self, texts: Sequence[str]) -> np.ndarray:
        """[n] whether each text is nearly a copy."""
        if not len(self._known):
            return np.zeros(len(texts), np.bool_)
        parts = (self._find(texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE))
        return np.concatenate([np.zeros(0, np.bool_), *parts])

    def _find(self, texts: Sequence[str]) -> np.ndarray:
        hashes, ends = _shingles([normalized(text) for text in texts])
        columns = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        known = self._known[columns] == hashes
        counted = np.concatenate([np.zeros(1, np.int64), np.cumsum(known)])
        given, sizes = _flags(columns[known], counted[ends], len(self._known)), np.diff(ends)
        rarest = _rarest(given, self._often, CONTAINED, sizes)
        rows, others = (given @ self._rarest + rarest @ self._columns).nonzero()
        least, most = np.sort(np.stack([sizes[rows], self._sizes[others]]), axis=0)
        possible = (least >= RESEMBLANCE * most) | (least >= LEAST)
        rows, others, least = rows[possible], others[possible], least[possible]
        found = np.zeros(len(texts), np.bool_)
        for start in range(0, len(rows), 64 * _AT_ONCE):
            part = slice(start, start + 64 * _AT_ONCE)
            shared = np.asarray(given[rows[part]].multiply(self._texts[others[part]]).sum(axis=1)).ravel()
            either = sizes[rows[part]] + self._sizes[others[part]] - shared
            contained = (least[part] >= LEAST) & (shared >= CONTAINED * least[part])
            found[rows[part][(shared >= RESEMBLANCE * either) | contained]] = True
        return found


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of the shingles of each normalized text, flat, each once (uint64), and [n + 1] where each text begins."""
    padded = [text.ljust(SHINGLE, "\0") if text else "" for text in texts]
    characters = np.frombuffer("".join(padded).encode("utf-32-le"), "<u4").astype(np.uint64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(text) for text in padded], dtype=np.int64)])
    count = max(0, len(characters) - SHINGLE + 1)
    hashes = np.zeros(count, np.uint64)
    for place in range(SHINGLE):  # modulo 2 ** 64
        hashes = hashes * _FACTOR + characters[place : place + count] + np.uint64(1)
        hashes ^= hashes >> np.uint64(29)
    owners = np.repeat(np.arange(len(texts)), np.diff(starts))[:count]
    inside = np.arange(count) + SHINGLE <= starts[owners + 1]  # others begin in one text and end in the next
    hashes, owners = hashes[inside], owners[inside]
    order = np.lexsort((hashes, owners))
    hashes, owners = hashes[order], owners[order]
    first = np.ones(len(hashes), np.bool_)
    first[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    return hashes[first], np.searchsorted(owners[first], np.arange(len(texts) + 1))


def _flags(columns: np.ndarray, ends: np.ndarray, width: int) -> sparse.csr_matrix:
    """[texts, shingles] 1 where a text has a shingle."""
    return sparse.csr_matrix((np.ones(len(columns), np.int32), columns, ends), (len(ends) - 1, width))


def _rarest(
    texts: sparse.csr_matrix, often: np.ndarray, part: float, sizes: np.ndarray | None = None
) -> sparse.csr_matrix:
    """The same texts with their rarest shingles alone, as many as leave less than `part` of each text's shingles.

    sizes: [texts] number of shingles of each, those without a column included.
    """
    owners = np.repeat(np.arange(texts.shape[0]), np.diff(texts.indptr))
    order = np.lexsort((often[texts.indices], owners))
    rank = np.arange(len(order)) - texts.indptr[owners]
    there = np.diff(texts.indptr)
    sizes = there if sizes is None else sizes
    # At least `part` of all shingles are shared, and those without a column are not.
    kept = there - np.ceil(part * sizes).astype(np.int64) + 1
    chosen = rank < kept[owners]
    columns = texts.indices[order][chosen]
    counts = np.bincount(owners[chosen], minlength=texts.shape[0])
    return _flags(columns, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), texts.shape[1])
