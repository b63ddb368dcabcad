"""Pruning by reconstruction: minimizes the change of each layer's output, by what is pruned and by refitting the rest.

The optimal brain surgeon (Hassibi and Stork 1992) for whole structures, layer by layer, as in Frantar and Alistarh
2022, arXiv 2208.11580, and Kurtic et al. 2023 (ZipLM, arXiv 2302.04089), section 3.1. Deviations: biases are refitted
along with weights, layers get the inputs of the unpruned model, and several FFN channels are removed at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from distill.compression.pruning.importance import Batch, Importance, Loss, magnitude, output_projections
from distill.compression.pruning.prune import Kept
from distill.models import families

GROUP = 64
"""Each iteration removes 1/GROUP of the remaining blocks; removing single channels would take minutes per layer."""

DAMPING = 1e-4
"""Added to the diagonal of a Gram matrix, as a share of the diagonal's mean."""


def reconstruction(model: Any, batches: Iterable[Batch], loss: Loss | None = None) -> Importance:
    """Squared error of a layer's output when heads or FFN channels are removed greedily and the others are refitted.

    The score is the accumulated error when a head or channel is removed; see `removal`. Needs no labels. Hidden
    channels, to which all layers add, are scored by `magnitude`.
    """
    grams = gram_matrices(model, batches)
    heads, ffn = [], []
    for number, (attention, last) in enumerate(output_projections(model)):
        heads.append(removal(_with_bias(attention), grams[number][0], families.heads(model), attention.in_features))
        ffn.append(removal(_with_bias(last), grams[number][1], last.in_features, last.in_features))
    return replace(magnitude(model), heads=torch.stack(heads), ffn=torch.stack(ffn), grams=grams)


@torch.no_grad()
def gram_matrices(model: Any, batches: Iterable[Batch]) -> list[tuple[Tensor, Tensor]]:
    """Gram matrices, for each layer, of the inputs x of its attention output and of its last FFN projection.

    Each is the mean of x x^T over tokens, [I, I] in float64; x ends with a 1 if the projection has a bias. The matrices
    of a shared layer are summed over its calls.
    """
    modules = list(dict.fromkeys(module for pair in output_projections(model) for module in pair))
    grams: dict[nn.Module, Tensor] = {}
    tokens, real = 0, torch.zeros(0, dtype=torch.bool)

    def accumulate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0][real].double().cpu()
        if module.bias is not None:
            x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        grams[module] = grams.get(module, 0) + x.T @ x

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_pre_hook(accumulate))
        for batch in batches:
            real = batch["attention_mask"].bool()
            tokens += int(real.sum())
            families.logits(model, batch)
    for gram in grams.values():
        gram /= tokens
    return [(grams[attention], grams[ffn]) for attention, ffn in output_projections(model)]


def removal(weight: Tensor, gram: Tensor, count: int, columns: int) -> Tensor:
    """Scores [count] of `count` equal blocks of the first `columns` columns of `weight` [O, I].

    Greedy: each iteration removes the blocks with the least error after the best change of the remaining columns, which
    is tr(W_b (G^-1)_bb^-1 W_b^T): equation 3 of Frantar and Alistarh with a block in place of a weight. The score of a
    block is the sum of the errors up to its removal. Further columns, a bias, are never removed.
    """
    weight, inverse = weight.double().cpu().clone(), torch.linalg.inv(_damped(gram))
    blocks = torch.arange(columns).reshape(count, -1)
    scores, remaining, total = torch.zeros(count, dtype=torch.float64), torch.arange(count), 0.0
    while len(remaining):
        index = blocks[remaining]
        inner = torch.linalg.inv(inverse[index[:, :, None], index[:, None, :]])
        block_weights = weight[:, index]  # [O, remaining, block]
        products = torch.einsum("olb,olc->lbc", block_weights, block_weights)
        errors = (products * inner).sum((1, 2)).clamp(min=0)
        least = errors.argsort()[: max(1, len(remaining) // GROUP)]
        for position in least:
            total += float(errors[position])
            scores[remaining[position]] = total
        removed = blocks[remaining[least]].flatten()
        core = torch.linalg.inv(inverse[removed][:, removed])
        weight -= weight[:, removed] @ core @ inverse[removed]
        inverse -= inverse[:, removed] @ core @ inverse[removed]
        weight[:, removed] = 0
        mask = torch.ones(len(remaining), dtype=torch.bool)
        mask[least] = False
        remaining = remaining[mask]
    return scores.float()


@torch.no_grad()
def refitted(model: Any, kept: Kept, grams: list[tuple[Tensor, Tensor]]) -> Any:
    """A copy of the model in which the output weights [O, I] of the kept heads and FFN channels are refitted.

    They approximate the layer's output before pruning by least squares over the tokens of the Gram matrices [I, I] in
    `grams`: W' = W G_:K (G_KK)^-1.
    """
    result, size = copy.deepcopy(model), families.width(model) // families.heads(model)
    done: set[nn.Module] = set()
    pairs = output_projections(result)
    for position, number in enumerate(kept.layers):
        columns = (kept.heads[position][:, None] * size + torch.arange(size)).flatten(), kept.ffn[position]
        for module, gram, inputs in zip(pairs[number], grams[number], columns, strict=True):
            if module in done or len(inputs) == module.in_features:
                continue
            done.add(module)
            weight = _with_bias(module).double().cpu()
            index = torch.cat([inputs, torch.arange(module.in_features, weight.shape[1])])
            gram = _damped(gram)
            new = torch.linalg.solve(gram[index][:, index], gram[index] @ weight.T).T
            module.weight[:, inputs] = new[:, : len(inputs)].to(module.weight)
            if module.bias is not None:
                module.bias.copy_(new[:, -1])
    return result


def _with_bias(module: nn.Linear) -> Tensor:
    weight = module.weight.detach()
    return weight if module.bias is None else torch.cat([weight, module.bias.detach()[:, None]], 1)


def _damped(gram: Tensor) -> Tensor:
    return gram + DAMPING * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
