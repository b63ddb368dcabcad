"""Texts in which a generator replaced tokens, for replaced-token detection.

Clark et al. 2020, ELECTRA, arXiv 2003.10555, section 2: the generator fills the masked positions with tokens that it
draws from its probabilities, and the discriminator tells which tokens of the text are not the original ones. A drawn
token that equals the original one counts as original. Deviations: the generator is given and is not trained along, so
that the loss has no part for it; tokens are masked as for BERT (80% of the chosen ones by the mask token, 10% by a
random token, 10% kept), where the authors' code masks 85% and keeps 15%.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from distill.models import families
from distill.runtime.precision import working


@torch.no_grad()
def replaced(generator: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A masked batch of a corpus, as `Objective` describes it, with a drawn token at each masked position, and with
    `replaced` [R]: 1 for each of its `real` tokens that is not the original one, else 0.

    Each token is drawn by its number `drawn` [M] in the batch, in [0, 1]. It therefore does not depend on the other
    texts of the batch.

    Args:
        generator: a language model with the tokenizer of the batch.
        batch: has `input_ids` [B, L], and `masked`, `labels` and `drawn` [M].
    """
    hidden = families.encode(generator, dict(batch)).flatten(0, 1)[batch["masked"]]
    tokens = drawn(families.mlm_logits(generator, hidden), batch["drawn"])
    ids, differs = batch["input_ids"].flatten().clone(), torch.zeros_like(batch["input_ids"]).flatten()
    ids[batch["masked"]] = tokens
    differs[batch["masked"]] = (tokens != batch["labels"]).to(differs.dtype)
    return dict(batch) | {"input_ids": ids.view_as(batch["input_ids"]), "replaced": differs[batch["real"]]}


def drawn(logits: Tensor, uniform: Tensor) -> Tensor:
    """The token ids [M] that numbers u [M] in [0, 1] draw from the probabilities of logits [M, V].

    It is the first token up to which the probabilities sum to more than u (inverse transform sampling). A token of
    probability 0 is not drawn.
    """
    total = working(logits).softmax(dim=-1).cumsum(dim=-1)
    # Rounding may leave the sum a little below 1, and u at 1.
    below = (uniform.to(total.dtype) * total[:, -1]).clamp(max=total[:, -1].nextafter(torch.zeros_like(total[:, -1])))
    return torch.searchsorted(total, below[:, None].contiguous(), right=True).squeeze(1)
