"""Pruning by reconstruction: what goes is chosen, and what stays is changed, so that each layer writes what it wrote.

The optimal brain surgeon (Hassibi and Stork 1992) for whole structures, layer by layer, as in Frantar and Alistarh
2022, arXiv 2208.11580, and Kurtic et al. 2023 (ZipLM, arXiv 2302.04089), section 3.1. Deviations: a bias is refitted
along with the weights, the layers' inputs are those of the unpruned model, and FFN channels go in small groups.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from distill import family
from distill.compress.importance import Batch, Importance, Loss, magnitude
from distill.compress.prune import Kept

GROUP = 64
"""One in so many of the blocks that are left goes at a time: one by one would take minutes for each layer."""

DAMPING = 1e-4
"""Added to the diagonal of a Gram matrix, as a share of its mean."""


def reconstruction(model: Any, batches: Iterable[Batch], loss: Loss | None = None) -> Importance:
    """The squared error that a layer's output has when a part goes and the others are refitted, in the order in which
    parts go, the least one first. Needs no labels. Hidden channels, which no single layer writes, go by `magnitude`.
    """
    grams = gram_matrices(model, batches)
    heads, ffn = [], []
    for number, (attended, inner) in enumerate(_writers(model)):
        heads.append(removal(_with_bias(attended), grams[number][0], family.heads(model), attended.in_features))
        ffn.append(removal(_with_bias(inner), grams[number][1], inner.in_features, inner.in_features))
    plain = magnitude(model)
    return replace(plain, heads=torch.stack(heads), ffn=torch.stack(ffn), grams=grams)


@torch.no_grad()
def gram_matrices(model: Any, batches: Iterable[Batch]) -> list[tuple[Tensor, Tensor]]:
    """Mean of x x^T over tokens, [I, I] float64, for what the attention output and the last FFN matrix of each layer
    read; x ends with a 1 where the matrix has a bias. A layer that is shared has the sum over its turns in each.
    """
    modules = list(dict.fromkeys(module for pair in _writers(model) for module in pair))
    found: dict[nn.Module, Tensor] = {}
    tokens, real = 0, torch.zeros(0, dtype=torch.bool)

    def read(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        x = given[0][real].double().cpu()
        if module.bias is not None:
            x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        found[module] = found.get(module, 0) + x.T @ x

    handles = [module.register_forward_pre_hook(read) for module in modules]
    try:
        for batch in batches:
            real = batch["attention_mask"].bool()
            tokens += int(real.sum())
            model(**family.inputs(model, batch))
    finally:
        for handle in handles:
            handle.remove()
    for gram in found.values():
        gram /= tokens
    return [(found[one], found[other]) for one, other in _writers(model)]


def removal(weight: Tensor, gram: Tensor, count: int, columns: int) -> Tensor:
    """Score of each of `count` equal blocks of the first `columns` of `weight` [O, I]: the error summed when it goes.

    Blocks go one by one, each time the one whose error is least after the best change of the columns that are left:
    tr(W_b (G^-1)_bb^-1 W_b^T), equation 3 of Frantar and Alistarh with a block for a weight. A column beyond them, a
    bias, stays. The last block to go has the highest score.
    """
    weight, inverse = weight.double().cpu().clone(), torch.linalg.inv(_damped(gram))
    parts = torch.arange(columns).reshape(count, -1)
    scores, left, total = torch.zeros(count, dtype=torch.float64), torch.arange(count), 0.0
    while len(left):
        blocks = parts[left]
        inner = torch.linalg.inv(inverse[blocks[:, :, None], blocks[:, None, :]])
        moved = weight[:, blocks]  # [O, left, block]
        products = torch.einsum("olb,olc->lbc", moved, moved)
        errors = (products * inner).sum((1, 2)).clamp(min=0)
        some = errors.argsort()[: max(1, len(left) // GROUP)]
        for place in some:
            total += float(errors[place])
            scores[left[place]] = total
        gone = parts[left[some]].flatten()
        core = torch.linalg.inv(inverse[gone][:, gone])
        weight -= weight[:, gone] @ core @ inverse[gone]
        inverse -= inverse[:, gone] @ core @ inverse[gone]
        weight[:, gone] = 0
        stay = torch.ones(len(left), dtype=torch.bool)
        stay[some] = False
        left = left[stay]
    return scores.float()


@torch.no_grad()
def refitted(model: Any, kept: Kept, grams: list[tuple[Tensor, Tensor]]) -> Any:
    """A copy of the model whose kept heads and FFN channels write, as nearly as they can, what all of them wrote.

    Least squares over the tokens that `grams` are of: W' = W G_:K (G_KK)^-1.
    """
    made, size = copy.deepcopy(model), family.width(model) // family.heads(model)
    done: set[nn.Module] = set()
    pairs = list(_writers(made))
    for place, number in enumerate(kept.layers):
        columns = (kept.heads[place][:, None] * size + torch.arange(size)).flatten(), kept.ffn[place]
        for module, gram, some in zip(pairs[number], grams[number], columns, strict=True):
            if module in done or len(some) == module.in_features:
                continue
            done.add(module)
            weight = _with_bias(module).double().cpu()
            stay = torch.cat([some, torch.arange(module.in_features, weight.shape[1])])
            gram = _damped(gram)
            new = torch.linalg.solve(gram[stay][:, stay], gram[stay] @ weight.T).T
            module.weight[:, some] = new[:, : len(some)].to(module.weight)
            if module.bias is not None:
                module.bias.copy_(new[:, -1])
    return made


def _writers(model: Any) -> list[tuple[Any, Any]]:
    """The attention output and the last FFN matrix of each layer: what heads and FFN channels write through."""
    places = family.family_of(model).layer
    assert places is not None
    return [
        (layer.get_submodule(places.attention_output), layer.get_submodule(places.ffn_out))
        for layer in family.layers(model)
    ]


def _with_bias(module: nn.Linear) -> Tensor:
    weight = module.weight.detach()
    return weight if module.bias is None else torch.cat([weight, module.bias.detach()[:, None]], 1)


def _damped(gram: Tensor) -> Tensor:
    return gram + DAMPING * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
