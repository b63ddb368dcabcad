"""Trained gates on heads, FFN channels and hidden channels, which decide what is pruned.

`L0` and `Movement` have the same methods:
    masks(progress)    the arguments of `importance.masked`
    penalty(progress)  a term of the loss, with weight 1
    scores()           `Importance`, on the CPU, by which the model is pruned afterwards
`progress` rises from 0 to 1 while gates close: see `ramp`. Layers that share their weights share gates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from distill import family
from distill.compress.importance import Importance, masked
from distill.errors import ConfigError

KINDS = ("heads", "ffn", "hidden")

TEMPERATURE, LOWEST, HIGHEST = 2 / 3, -0.1, 1.1
"""beta, gamma and zeta of Louizos et al. 2018, arXiv 1712.01312, section 4.1."""

Masks = tuple[list[Tensor], list[Tensor], Tensor]
"""Masks [1, heads] and [1, FFN channels] of each layer, and of the hidden channels [1, H]."""


class L0(nn.Module):
    """Random gates that a Lagrangian closes to target shares: CoFi, Xia et al. 2022, arXiv 2204.00408, section 3.1.

    Hard concrete gates of Louizos et al. 2018, arXiv 1712.01312, equations 10 to 13; Lagrangian of Wang et al. 2020,
    arXiv 1910.04732. Deviations from CoFi: whole attention and FFN blocks have no gates, all gates start almost open,
    log-alphas are not clamped (scores at a bound would tie), and in eval mode a gate has the value of equation 13.

    Args:
        keep: kind (heads, ffn, hidden) -> share of its gates to keep open, in (0, 1]; other kinds have no gates. Heads
            and hidden need the same share, because a stock model's heads together are as wide as its hidden states.
        uniform: constrain every layer to these shares, as in targeted structured pruning, Xia et al. 2023, arXiv
            2310.06694, section 2.1. Otherwise, as in CoFi, only the encoder's total number of weights is constrained,
            to the share that `keep` gives, and layers and kinds can trade.
        start: initial log-alpha of every gate; 3 closes 1 % of them.

    Raises:
        ConfigError: `keep` names another kind, or a share is out of range.
    """

    target: Tensor

    def __init__(self, model: Any, keep: Mapping[str, float], *, uniform: bool = False, start: float = 3.0) -> None:
        super().__init__()
        self.layout, self.uniform = _layout(model), uniform
        self.log_alpha = self.layout.gates(keep, start, model.device)
        kept = {kind: torch.full((rows,), float(keep.get(kind, 1))) for kind, (rows, _) in self.layout.shapes.items()}
        self.register_buffer("target", self.sparsity(kept).to(model.device), persistent=False)
        self.lambdas = nn.Parameter(self.target.new_zeros(2, len(self.target)))

    def sample(self) -> dict[str, Tensor]:
        """Gates in [0, 1] of each kind [rows, gates]: random in training (equations 10, 11), fixed in eval (13)."""
        gates = {}
        for kind, log_alpha in self.log_alpha.items():
            inner = log_alpha
            if self.training:
                inner = (log_alpha + torch.logit(torch.rand_like(log_alpha), eps=1e-6)) / TEMPERATURE
            gates[kind] = (torch.sigmoid(inner) * (HIGHEST - LOWEST) + LOWEST).clamp(0, 1)
        return gates

    def expected(self) -> dict[str, Tensor]:
        """Expected share of open gates of each kind [rows] (equation 12). Rows are layers; shared layers have one."""
        shift = TEMPERATURE * math.log(-LOWEST / HIGHEST)
        shares = {kind: self.target.new_ones(rows) for kind, (rows, _) in self.layout.shapes.items()}
        return shares | {kind: torch.sigmoid(value - shift).mean(1) for kind, value in self.log_alpha.items()}

    def sparsity(self, kept: Mapping[str, Tensor]) -> Tensor:
        """Constrained sparsities [targets] when the shares `kept` of each kind [rows] are kept."""
        if self.uniform:
            return 1 - torch.cat([kept[kind] for kind in self.log_alpha])
        attention, ffn = self.layout.weights
        layers = (attention * kept["heads"] + ffn * kept["ffn"]) / (attention + ffn)
        return 1 - (kept["hidden"] * layers).mean(0, keepdim=True)

    def masks(self, progress: float) -> Masks:
        """Random masks, new in each call. They do not depend on `progress`: the penalty closes gates."""
        return self.layout.masks(self.sample())

    def penalty(self, progress: float) -> Tensor:
        """Lagrangian lambda_1 (s - t) + lambda_2 (s - t)^2 of sparsities s and targets t, proportional to `progress`.

        The lambdas maximize it while all other parameters minimize it: their gradient is reversed, so that one
        optimizer can train both.
        """
        excess = self.sparsity(self.expected()) - progress * self.target
        first, second = 2 * self.lambdas.detach() - self.lambdas
        return (first * excess + second * excess.square()).sum()

    def on(self, model: Any, done: float) -> AbstractContextManager[None]:
        """A context in which the model is masked by the gates; `done` is the finished share of the training."""
        return masked(model, *self.masks(ramp(done, 1)))

    def cost(self, done: float) -> Tensor:
        """The penalty when the share `done` of the training is finished."""
        return self.penalty(ramp(done, 1))

    def scores(self) -> Importance:
        """The log-alphas as importance."""
        return self.layout.importance(self.log_alpha)


class Movement(nn.Module):
    """Opens the gates with the highest trained scores: movement pruning, Sanh et al. 2020, arXiv 2005.07683, section 4.

    The selection has a straight-through gradient: with SGD, each step changes a score S by -lr dL/dm, where m is its
    mask, also while m is 0, so that a closed gate can open again. dL/dm is the sum of W dL/dW' over the output weights
    W of a head or FFN channel, where W' = m W; so S grows when these weights move away from zero.
    As in Lagunas et al. 2021, arXiv 2109.04838, gates are on whole heads and channels. Deviations: hidden channels have
    gates too; and all layers keep the same number, as a stock model must, by the cubic schedule of Zhu and Gupta 2017,
    arXiv 1710.01878, equation 1, in place of a threshold and a penalty. `keep`, and its error, are those of `L0`.
    """

    def __init__(self, model: Any, keep: Mapping[str, float]) -> None:
        super().__init__()
        self.layout, self.keep = _layout(model), dict(keep)
        self.score = self.layout.gates(keep, 0.0, model.device)

    def masks(self, progress: float) -> Masks:
        """1 for the heads and channels that are kept at this progress, 0 for the others."""
        gates = {}
        for kind, score in self.score.items():
            share = 1 - (1 - self.keep[kind]) * (1 - (1 - progress) ** 3)
            count = max(1, round(share * score.shape[1]))
            # The first of equal scores, as in `choose.most_important`, so that pruning keeps what training kept.
            best = score.detach().sort(dim=1, descending=True, stable=True).indices[:, :count]
            gates[kind] = torch.zeros_like(score).scatter(1, best, 1.0) + (score - score.detach())
        return self.layout.masks(gates)

    def penalty(self, progress: float) -> Tensor:
        """0: the schedule alone decides how many gates are open."""
        return next(self.parameters()).new_zeros(())

    def on(self, model: Any, done: float) -> AbstractContextManager[None]:
        """A context in which the model is masked by the gates; `done` is the finished share of the training."""
        return masked(model, *self.masks(ramp(done, 1)))

    def cost(self, done: float) -> Tensor:
        """The penalty when the share `done` of the training is finished."""
        return self.penalty(ramp(done, 1))

    def scores(self) -> Importance:
        """The trained scores as importance."""
        return self.layout.importance(self.score)


def ramp(step: float, total: float, begin: float = 0.1, end: float = 0.7) -> float:
    """Progress at a step: 0 until the share `begin` of all steps, 1 from the share `end` on, linear in between."""
    return min(max((step / total - begin) / (end - begin), 0.0), 1.0)


def parameter_groups(gates: nn.Module, lr: float) -> list[dict[str, Any]]:
    """Optimizer groups of the gates: with their own learning rate and without weight decay."""
    return [{"params": list(gates.parameters()), "lr": lr, "weight_decay": 0.0}]


@torch.no_grad()
def fold(model: Any, heads: list[Tensor], ffn: list[Tensor]) -> None:
    """Multiply the masks of heads and FFN channels into the weights, in place; the model then needs no hooks.

    Masks of hidden channels cannot be folded into weights: a model trained with them is exact only once it is pruned.
    """
    record, size = family.family_of(model), family.width(model) // family.heads(model)
    assert record.layer is not None
    # The dictionary contains a shared layer only once.
    for layer, (head, inner) in dict(zip(family.layers(model), zip(heads, ffn, strict=True), strict=True)).items():
        layer.get_parameter(f"{record.layer.attention_output}.weight").mul_(head.repeat_interleave(size, 1))
        layer.get_parameter(f"{record.layer.ffn_out}.weight").mul_(inner)


@dataclass(frozen=True)
class _Layout:
    """Numbers of gates and weights in a model."""

    depth: int
    shapes: Mapping[str, tuple[int, int]]
    """Kind -> (rows of gates, gates per row)."""
    weights: tuple[int, int]
    """Number of weights in the attention and in the FFN of a layer."""

    def gates(self, keep: Mapping[str, float], value: float, device: torch.device) -> nn.ParameterDict:
        """Parameters [rows, gates] for the kinds in `keep`, all initialized to `value`."""
        if not keep or any(kind not in KINDS or not 0 < share <= 1 for kind, share in keep.items()):
            raise ConfigError(f"gates.keep: got {dict(keep)}; must be shares in (0, 1] of heads, ffn, hidden; set them")
        values = {kind: torch.full(self.shapes[kind], float(value), device=device) for kind in keep}
        return nn.ParameterDict({kind: nn.Parameter(tensor) for kind, tensor in values.items()})

    def spread(self, gates: Any, missing: float) -> tuple[Tensor, Tensor, Tensor]:
        """Gates [rows, gates] expanded to [layers, heads], [layers, FFN channels] and [1, H]; `missing` where none."""
        like = next(iter(gates.values()))
        heads, ffn, hidden = (gates[k] if k in gates else like.new_full(self.shapes[k], missing) for k in KINDS)
        return heads.expand(self.depth, -1), ffn.expand(self.depth, -1), hidden

    def masks(self, gates: dict[str, Tensor]) -> Masks:
        heads, ffn, hidden = self.spread(gates, 1.0)
        return list(heads.split(1)), list(ffn.split(1)), hidden

    def importance(self, scores: nn.ParameterDict) -> Importance:
        heads, ffn, hidden = (part.detach().cpu().contiguous().clone() for part in self.spread(scores, 0.0))
        return Importance(heads, ffn, hidden[0])


def _layout(model: Any) -> _Layout:
    record, depth, width = family.family_of(model), family.depth(model), family.width(model)
    assert record.layer is not None
    first = family.layers(model)[0]
    inner, out = (first.get_parameter(f"{path}.weight") for path in (record.layer.ffn_in, record.layer.ffn_out))
    rows = 1 if record.shared_layers else depth
    heads = (1 if record.shared_heads else rows, family.heads(model))
    shapes = {"heads": heads, "ffn": (rows, out.shape[1]), "hidden": (1, width)}
    return _Layout(depth, shapes, (4 * width * width, inner.numel() + out.numel()))
