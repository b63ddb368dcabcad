"""Rows that share a text, which a bootstrap draws together.

Whether a model is right about a question often decides whether it is right about another one with the same passage. So
such rows are not independent, and an interval that takes them for independent is too narrow (Field and Welsh 2007,
Bootstrapping clustered data, Journal of the Royal Statistical Society B 69).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from distill.data.splits import copied

MOST = 0.1
"""Share of the rows. A text that more of them have, such as a prompt or a hypothesis about all, does not connect them;
and if more were connected, there would be too few parts to draw from."""


def clusters(texts: Sequence[Sequence[str]]) -> np.ndarray | None:
    """[n] number, from 0, of the part of the rows that each row is in. Rows that have copies of a text, in any column,
    are in the same part, and so are all that such rows connect. None if every row is alone, or if a part has more than
    `MOST` of the rows: each row is then drawn alone.

    Args:
        texts: columns of n texts each, at least one.
    """
    count = len(texts[0])
    rows = np.tile(np.arange(count), len(texts))
    forms = np.array([copied(text) for column in texts for text in column], object)
    known, number = np.unique(forms, return_inverse=True)
    connects = (forms != "") & (np.bincount(number)[number] <= MOST * count)
    edges = rows[connects], count + number[connects]
    graph = coo_array((np.ones(len(edges[0]), np.int8), edges), shape=[count + len(known)] * 2)
    _, part = connected_components(graph, directed=False)
    return usable(part[:count])


def usable(parts: np.ndarray) -> np.ndarray | None:
    """Parts of n rows, [n], numbered from 0; None if every row is alone, or if a part has more than `MOST` of them."""
    _, numbered, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    return numbered if 1 < sizes.max(initial=0) <= MOST * len(parts) else None
