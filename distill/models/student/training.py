"""Temporary changes to a model that make training faster and do not change what it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from distill.models import families
from distill.models.student import dropout

ALIGNED = 8
"""The matrix units of GPUs run at full speed on bf16 matrices whose sizes are multiples of this. BERT's vocabulary of
30522 is not."""
SHORT = 128
"""Mean number of tokens up to which, on a CPU, the backward pass of attention in steps is faster than SDPA's."""

_AT_ONCE = 2**22
"""Tokens that are counted at once."""


@contextmanager
def quick_on_cpu(model: Any, lengths: np.ndarray | Sequence[int]) -> Iterator[None]:
    """Within the context, a `model` on a CPU uses the dropout and the attention implementation that train fastest.

    Attention is computed step by step where rows are short, because the backward pass of SDPA is slow there, and where
    something is dropped. See benchmarks/attention.py.

    lengths: [rows] tokens of each row.
    """
    configured, on_cpu = model.config._attn_implementation, model.device.type == "cpu"
    dropouts = [module for module in model.modules() if type(module) is nn.Dropout] if on_cpu else []
    short = np.mean(lengths) <= SHORT or any(module.p > 0 for module in dropouts)
    by_steps = on_cpu and configured == "sdpa" and short
    if by_steps:
        dropout.register()
        model.set_attn_implementation("eager" if families.family_of(model).layer is None else dropout.ATTENTION)
    for module in dropouts:
        module.forward = partial(dropout.forward, module)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in dropouts:
            del module.forward
        if by_steps:
            model.set_attn_implementation(configured)


@contextmanager
def aligned_vocabulary(models: Sequence[Any]) -> Iterator[None]:
    """Within the context, models compute their vocabulary logits in a matrix product of a size that suits a GPU."""
    every = dict.fromkeys(model.get_output_embeddings() for model in models if families.has_mlm_head(model))
    linear = [decoder for decoder in every if type(decoder) is nn.Linear and len(decoder.weight) % ALIGNED]
    for decoder in linear:
        decoder.forward = partial(aligned, decoder)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for decoder in linear:
            del decoder.forward


def aligned(linear: nn.Linear, inputs: Tensor) -> Tensor:
    """Outputs [..., O] of a linear module, of a matrix product with O rounded up to a multiple of `ALIGNED`."""
    outputs, bias = len(linear.weight), linear.bias
    more = -outputs % ALIGNED
    padded = None if bias is None else F.pad(bias, (0, more))
    return F.linear(inputs, F.pad(linear.weight, (0, 0, 0, more)), padded)[..., :outputs]


@contextmanager
def only_used_embeddings(model: Any, ids: np.ndarray, extra: Sequence[int] = ()) -> Iterator[None]:
    """Within the context, the token embedding has only the rows of the tokens `ids` [n] and `extra`, and of padding.

    A task uses a few thousand tokens. The rows of all others get no gradient, but an optimizer still reads and writes
    three numbers for each of their weights. On exit the trained rows are written back; the others keep their values
    exactly (with the whole embedding, weight decay would shrink them). Input ids stay the same. An embedding that is
    shared with another module (a decoder, a language-model head) is not reduced.
    """
    embedding = model.get_input_embeddings()
    names = [name for name, p in model.named_parameters(remove_duplicate=False) if p is embedding.weight]
    if type(embedding) is not nn.Embedding or len(names) > 1:
        yield
        return
    full, padding = embedding.weight, embedding.padding_idx
    is_used = np.zeros(len(full), np.bool_)
    is_used[[0 if padding is None else padding, *extra]] = True
    for start in range(0, len(ids), _AT_ONCE):  # because an index is copied to int64
        is_used[ids[start : start + _AT_ONCE]] = True
    rows = np.flatnonzero(is_used)
    used = torch.from_numpy(rows).to(full.device)
    # -1 for tokens without a row: looking one up is then an error and never another token's row.
    new_ids = torch.full((len(full),), -1, device=full.device)
    new_ids[used] = torch.arange(len(rows), device=full.device)

    def renumber(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (new_ids[inputs[0]], *inputs[1:])

    embedding.weight = nn.Parameter(full.detach()[used].clone(), requires_grad=full.requires_grad)
    embedding.padding_idx = None if padding is None else int(new_ids[padding])
    handle = embedding.register_forward_pre_hook(renumber)
    try:
        yield
    finally:
        handle.remove()
        with torch.no_grad():
            full[used] = embedding.weight.detach()
        embedding.weight, embedding.padding_idx = full, padding
