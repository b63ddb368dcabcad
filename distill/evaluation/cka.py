"""How similar the hidden states of two layers are, also of layers of different widths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = 4
"""Tokens below which the estimator is not defined."""


def linear_cka(a: NDArray[np.floating], b: NDArray[np.floating]) -> float | None:
    """Linear CKA of the states of the same n tokens in two layers, [n, H] and [n, H']: 1 where one is the other after a
    rotation and a scaling, near 0 where they have nothing in common.

    CKA: Kornblith et al. 2019, arXiv 1905.00414, equation 4, with the unbiased estimator of HSIC (Song et al. 2012,
    "Feature selection via dependence maximization"; Nguyen et al. 2021, arXiv 2010.15327). The plain estimator is near
    1 for any two layers that are much wider than n.

    Returns:
        None for fewer than `LEAST` tokens, and for a layer in which all tokens have the same state.
    """
    if len(a) < LEAST:
        return None
    x, y = _centred(a), _centred(b)
    size = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / size) if size > 0 else None


def _centred(states: NDArray[np.floating]) -> NDArray[np.float64]:
    """The dot products [n, n] of states [n, H], U-centred (Szekely and Rizzo 2014, arXiv 1310.2926). The sum of the
    products of two such matrices is n (n - 3) times the unbiased HSIC."""
    own = states.astype(np.float64)
    spread = own - own.mean(0)
    # Rounding, which is all that is left of equal states, is no difference.
    if np.abs(spread).max() <= 1e-6 * np.abs(own).max():
        spread = np.zeros_like(own)
    products, n = spread @ spread.T, len(own)
    np.fill_diagonal(products, 0)
    sums = products.sum(0)
    centred = products - (sums[:, None] + sums) / (n - 2) + sums.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0)
    result: NDArray[np.float64] = centred
    return result
