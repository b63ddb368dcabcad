"""Which texts are nearly copies of others, by the shingles that they share. Without torch.

A shingle is `SHINGLE` consecutive letters and digits of a text, as Broder 1997 ("On the resemblance and containment of
documents") compares documents. His resemblance is the Jaccard similarity of two sets of shingles, his containment the
part of one set that is in the other. Both are exact: a sparse product counts the shingles that two texts share.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from distill.data.task_types.words import UNSPACED

SHINGLE = 6
"""Characters of a shingle. A text of fewer has one, so that only equal texts are near to it. Letters of scripts without
spaces between words count as two: they have as much meaning as several letters of other scripts."""

RESEMBLANCE = 0.8
"""Least Jaccard similarity of near copies: in a text of 100 letters, one word of five letters may be another."""

CONTAINED = 0.9
"""Least part of the shingles of the shorter text that are in the longer one, if it is contained in it."""

LEAST = 30
"""Least shingles of a text that may be contained in another. Shorter texts are contained in many by chance."""

_AT_ONCE, _PAIRS = 10_000_000, 4_000_000
"""Characters, and pairs of texts, that are in memory at once."""

_COMMON = 512
"""The most common shingles, which are counted in a dense product: of these alone, a sparse one would take longer than
of all others."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TWICE = re.compile(f"[{UNSPACED}]")


class _Kept(dict[int, str | None]):
    """Code of a character -> the character, or None if it is left out of normalized texts."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        kept = unicodedata.category(character)[0] in "LNM"
        # They tell how an emoji looks, and are marks.
        kept = kept and not unicodedata.name(character, "").startswith("VARIATION SELECTOR")
        self[code] = character if kept else None
        return self[code]


_KEPT = _Kept()


def normalized(text: str) -> str:
    """A text without case, punctuation and spaces, by which copies are recognized: its letters, marks on letters, and
    digits. Other forms of the same letter, such as full-width ones, are that letter."""
    letters = unicodedata.normalize("NFKC", text).casefold().translate(_KEPT)
    return unicodedata.normalize("NFKC", letters)  # marks may be beside their letters now


class NearCopies:
    """Texts, of which near copies are found. Equal normalized texts are near copies, and texts without letters or
    digits have none."""

    def __init__(self, texts: Sequence[str]) -> None:
        parts = [_shingles(part) for part in _blocks(texts, _AT_ONCE)]
        hashes = np.concatenate([np.zeros(0, np.uint64), *(part for part, _ in parts)])
        self._sizes = np.concatenate([np.zeros(0, np.int64), *(sizes for _, sizes in parts)])
        self._known, columns = np.unique(hashes, return_inverse=True)
        texts_of = _flags(columns, self._sizes, len(self._known)).T.tocsr()
        most = min(_COMMON, 12 * _PAIRS // max(1, len(self._sizes)))
        self._common = np.argsort(-np.diff(texts_of.indptr), kind="stable")[:most]
        self._dense = texts_of[self._common].toarray().astype(np.float32)
        rare = np.ones(len(self._known), np.int32)
        rare[self._common] = 0
        self._sparse = (sparse.diags(rare, dtype=np.int32) @ texts_of).tocsr()
        self._sparse.eliminate_zeros()

    def find(self, texts: Sequence[str]) -> np.ndarray:
        """[n] whether each text is nearly a copy."""
        if not len(self._known):
            return np.zeros(len(texts), np.bool_)
        rows = max(1, _PAIRS // len(self._sizes))
        return np.concatenate([np.zeros(0, np.bool_), *map(self._find, _blocks(texts, rows))])

    def _find(self, texts: Sequence[str]) -> np.ndarray:
        hashes, sizes = _shingles(texts)
        columns = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        known = self._known[columns] == hashes
        counted = np.concatenate([np.zeros(1, np.int64), np.cumsum(known)])
        shares = np.diff(counted[np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])])
        given = _flags(columns[known], shares, len(self._known))
        # Exact: sums of ones below 2 ** 24.
        shared = given[:, self._common].toarray().astype(np.float32) @ self._dense
        shared += (given @ self._sparse).toarray()
        least = np.minimum(sizes[:, None], self._sizes)
        near = (least >= LEAST) & (shared >= CONTAINED * least)
        near |= shared >= RESEMBLANCE * (sizes[:, None] + self._sizes - shared)
        return np.asarray((near & (shared > 0)).any(axis=1))


def _blocks(texts: Sequence[str], rows: int) -> Iterator[list[str]]:
    """Texts, normalized, in lists of at most `rows` texts and about `_AT_ONCE` characters."""
    block: list[str] = []
    characters = 0
    for text in texts:
        block.append(normalized(text))
        characters += len(text)
        if len(block) >= rows or characters >= _AT_ONCE:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of the shingles of each normalized text, flat, each once (uint64), and [n] the number of each text's."""
    padded = [_TWICE.sub(r"\g<0>\g<0>", text).ljust(SHINGLE, "\0") if text else "" for text in texts]
    characters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
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
    return hashes[first], np.bincount(owners[first], minlength=len(texts))


def _flags(columns: np.ndarray, sizes: np.ndarray, width: int) -> sparse.csr_matrix:
    """[texts, shingles] 1 where a text has a shingle. sizes: [texts] number of shingles of each."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return sparse.csr_matrix((np.ones(len(columns), np.int32), columns, ends), (len(sizes), width))
