"""Values at ranks that documents with equal scores share: their mean over all orders of these documents.

So they do not depend on the order of the rows. Ranks are counted from 0, and the first `TOP` count. McSherry and Najork
2008, Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores, section 2.
"""

from __future__ import annotations

import numpy as np

TOP = 10
"""Documents of a query that metrics consider."""

_DISCOUNTS = 1 / np.log2(np.arange(TOP) + 2)
_SUMMED = np.concatenate([[0.0], np.cumsum(_DISCOUNTS)])


def discount(before: np.ndarray, tied: np.ndarray) -> np.ndarray:
    """[n] mean discount, 1 / log2(rank + 2), of each document.

    before: [n] documents with larger scores; tied: [n] documents with the same score, itself included.
    """
    ends: np.ndarray = _SUMMED[np.minimum(before + tied, TOP)] - _SUMMED[np.minimum(before, TOP)]
    return ends / tied


def found(before: np.ndarray, tied: np.ndarray) -> np.ndarray:
    """[n] share of the orders in which each document has one of the first ranks. Arguments as for `discount`."""
    ends: np.ndarray = np.minimum(before + tied, TOP) - np.minimum(before, TOP)
    return ends / tied


def reciprocal(before: np.ndarray, tied: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """[n] mean of 1 / (rank + 1) of the first relevant document of each query; 0 where that is not among the first.

    Args:
        before: [n] documents with larger scores than the best relevant one.
        tied: [n] documents with the same score as that one, itself included.
        relevant: [n] how many of these are relevant, at least one.
    """
    value, none_before = np.zeros(len(before)), np.ones(len(before))
    for place in range(TOP):
        chance = np.minimum(relevant / np.maximum(tied - place, 1), 1)
        value += np.where(before + place < TOP, none_before * chance / (before + place + 1), 0)
        none_before *= 1 - chance
    return value
