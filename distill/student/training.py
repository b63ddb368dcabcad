"""Forms of a model that are faster to train and compute the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SHORT = 128
"""Mean length up to which a CPU goes back through plain attention faster than through PyTorch's fused one."""


@contextmanager
def quick_attention(model: Any, lengths: np.ndarray | Sequence[int]) -> Iterator[None]:
    """Inside, attention is of the implementation that is fastest to train on rows of these lengths.

    PyTorch's fused attention never holds the matrix of scores. On a CPU its way back is slow, and for short rows plain
    matrix products are faster: see benchmarks/attention.py.
    """
    usual = model.config._attn_implementation
    plain = model.device.type == "cpu" and usual == "sdpa" and np.mean(lengths) <= SHORT
    if plain:
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        if plain:
            model.set_attn_implementation(usual)


@contextmanager
def only_seen(model: Any, ids: np.ndarray) -> Iterator[None]:
    """Inside, the table of tokens has the rows of `ids`, and of padding, alone; afterwards it is whole again, with what
    they have become.

    Of a task's few thousand tokens no other row gets a gradient, but an optimizer reads and writes them all, three
    numbers for each weight. The other rows stay exactly as they are; with the whole table weight decay would shrink
    them. Inputs are as before. A table that is shared with another
    module (an encoder-decoder's, a language-model head's) is left whole.
    """
    table = model.get_input_embeddings()
    names = [name for name, p in model.named_parameters(remove_duplicate=False) if p is table.weight]
    if type(table) is not nn.Embedding or len(names) > 1:
        yield
        return
    whole, padding = table.weight, table.padding_idx
    rows = np.union1d(ids, [0 if padding is None else padding])
    kept = torch.from_numpy(rows).to(whole.device)
    # A token that is not among them has no place: it must not be taken for another.
    place = torch.full((len(whole),), -1, device=whole.device)
    place[kept] = torch.arange(len(rows), device=whole.device)

    def moved(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (place[given[0]], *given[1:])

    table.weight = nn.Parameter(whole.detach()[kept].clone(), requires_grad=whole.requires_grad)
    table.padding_idx = None if padding is None else int(place[padding])
    handle = table.register_forward_pre_hook(moved)
    try:
        yield
    finally:
        handle.remove()
        with torch.no_grad():
            whole[kept] = table.weight.detach()
        table.weight, table.padding_idx = whole, padding
