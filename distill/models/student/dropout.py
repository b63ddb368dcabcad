"""Dropout, and attention step by step, as a CPU computes them fastest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ATTENTION = "distill_by_steps"
"""Name of `attention_by_steps` among the attention implementations of transformers."""


def dropped(values: Tensor, p: float) -> Tensor:
    """`values` [...] with each set to 0 with probability `p`, and the others divided by 1 - p.

    Hinton et al. 2012, arXiv 1207.0580. On a CPU torch draws a random number of 32 bits for each value, in one thread.
    Deviation: 16 random bits, so that `p` is rounded to a multiple of 1 / 65536. They depend on torch's seed alone.
    """
    count = values.numel()
    draws = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(-(-count // 4)).view(np.int16)[:count]
    kept = draws >= round(p * 2**16) - 2**15
    scale = torch.tensor(1 / (1 - p))
    if values.dtype == torch.bfloat16:  # numpy lacks this type, and reads its bits as int16
        bits = np.int16(scale.to(torch.bfloat16).view(torch.int16))
        factors = torch.from_numpy(kept * bits).view(torch.bfloat16)
    else:
        factors = torch.from_numpy(kept).to(values.dtype).mul_(scale)
    return values * factors.view(values.shape)


def forward(module: nn.Dropout, values: Tensor) -> Tensor:
    """The forward pass of `nn.Dropout` on values [...], computed by `dropped`."""
    return dropped(values, module.p) if module.training and 0 < module.p < 1 else nn.Dropout.forward(module, values)


def attention_by_steps(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[Tensor, Tensor]:
    """Attention [B, L, heads, d] and its weights [B, heads, L, L], in the form in which transformers calls it.

    Args:
        query: [B, heads, L, d].
        key: [B, groups, L, d], where as many heads of `query` as there are in a group share one of `key` and `value`.
        value: as `key`.
        attention_mask: added to the scores; broadcasts to [B, heads, L, L].
        scaling: factor of the scores; 1 / sqrt(d) by default.
        dropout: probability with which a weight is dropped in training.
    """
    if (group := query.shape[1] // key.shape[1]) > 1:
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = (scores if attention_mask is None else scores + attention_mask).softmax(-1).to(query.dtype)
    if 0 < dropout < 1 and module.training:
        weights = dropped(weights, dropout)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def register() -> None:
    """Make `attention_by_steps` known to transformers, for `set_attn_implementation`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(ATTENTION, attention_by_steps)
    AttentionMaskInterface.register(ATTENTION, eager_mask)
