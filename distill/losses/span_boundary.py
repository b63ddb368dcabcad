"""Hidden states of masked tokens that are made from the borders of their spans alone (SpanBERT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PLACES, WIDTH = 20, 200
"""Number of places in a span that differ, and the width of their vectors, as in the authors' code
(facebookresearch/SpanBERT). Later places are taken for the last."""


class SpanBoundary(nn.Module):
    """The function f of Joshi et al. 2020, arXiv 1907.10529, section 3.2:

    h0 = [x_{s-1}; x_{e+1}; p_{i-s+1}], h1 = LayerNorm(GeLU(W1 h0)), y_i = LayerNorm(GeLU(W2 h1))

    for each token i of a span from s to e, where x are the last hidden states and p the vectors of places. A span is
    what is masked without a gap. It is trained with a student and is not part of the saved one.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.places = nn.Embedding(PLACES, WIDTH)
        sizes = 2 * width + WIDTH, width
        self.layers = nn.Sequential(
            *(part for size in sizes for part in (nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width)))
        )

    def forward(self, hidden: Tensor, masked: Tensor, length: int) -> Tensor:
        """y [M, H] of the masked tokens.

        Args:
            hidden: [B L, H] last hidden states of a batch, flat.
            masked: [M] flat positions of the masked tokens, ascending.
            length: L, the length of a row.
        """
        before, after, place = borders(masked, length)
        both = hidden[before], hidden[after]
        made: Tensor = self.layers(torch.cat([*both, self.places(place).to(hidden.dtype)], dim=-1))
        return made


def borders(masked: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the span of each masked token [M], the flat positions of the tokens before and after it, and the place of the
    token in it, counted from 0 and at most the last of `PLACES`.

    A span that begins or ends a row, where there is no special token, has its own first or last token there.
    """
    row = masked - masked % length
    first = torch.ones_like(masked, dtype=torch.bool)
    first[1:] = (masked[1:] != masked[:-1] + 1) | (row[1:] != row[:-1])
    last = first.roll(-1)  # the first token is the first of a span, so that the last one is the last of one
    starts = torch.where(first, masked, 0).cummax(0).values
    ends = (
        torch.where(last, masked, masked.new_full((), torch.iinfo(masked.dtype).max)).flip(0).cummin(0).values.flip(0)
    )
    return (
        torch.maximum(starts - 1, row),
        torch.minimum(ends + 1, row + length - 1),
        (masked - starts).clamp(max=PLACES - 1),
    )
