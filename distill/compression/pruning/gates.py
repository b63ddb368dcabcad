"""Trained gates on layers, heads, FFN channels and hidden channels, which decide what is pruned.

`L0` and `Movement` have the same methods:
    masks(progress)    what the model is masked with
    penalty(progress)  a term of the loss, with weight 1
    scores()           `Importance`, on the CPU, by which the model is pruned afterwards
`progress` rises from 0 to 1 while gates close: see `ramp`. Layers that share their weights share gates on heads and FFN
channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from distill.compression.pruning.goal import Excess, Goal
from distill.compression.pruning.importance import Importance
from distill.compression.pruning.masks import Masks, gated, places
from distill.compression.pruning.prune import Cut
from distill.compression.pruning.search import Shape
from distill.models import families
from distill.models.student.shape import setting

TEMPERATURE, LOWEST, HIGHEST = 2 / 3, -0.1, 1.1
"""beta, gamma and zeta of Louizos et al. 2018, arXiv 1712.01312, section 4.1."""


class Gates(nn.Module):
    """The common part of L0 and movement gates."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layout = _layout(model)

    def masks(self, progress: float) -> Masks:
        """The masks of the model at this progress."""
        raise NotImplementedError

    def penalty(self, progress: float) -> Tensor:
        """The term [] that the gates add to the loss at this progress."""
        raise NotImplementedError

    def scores(self) -> Importance:
        """The importance by which the model is pruned afterwards, on the CPU."""
        raise NotImplementedError

    def on(self, model: Any, done: float) -> AbstractContextManager[None]:
        """A context in which the model is masked by the gates; `done` is the finished share of the training."""
        return gated(model, self.masks(ramp(done)), self.layout.places)

    def cost(self, done: float) -> Tensor:
        """The penalty [] when the share `done` of the training is finished."""
        return self.penalty(ramp(done))


class L0(Gates):
    """Random gates that a Lagrangian closes until a goal is met: CoFi, Xia et al. 2022, arXiv 2204.00408, section 3.1.

    Hard concrete gates of Louizos et al. 2018, arXiv 1712.01312, equations 10 to 13, on layers, heads, FFN channels and
    hidden channels; Lagrangian of Wang et al. 2020, arXiv 1910.04732. The training loss decides how much each dimension
    contributes.

    Deviations from CoFi:
    - The constraint is on the expected cost of the goal, e.g. the time by a table of measurements, and not on the share
      of weights. The number of layers, the width and the FFN size in it are expected values.
    - Further constraints make the result a stock model: each layer's share of open heads is that of hidden channels,
      and its share of open FFN channels is the mean over layers (per-layer constraints as in targeted structured
      pruning, Xia et al. 2023, arXiv 2310.06694, section 2.1).
    - A gate z interpolates between a layer's output and its input x, z layer(x) + (1 - z) x, in place of z_MHA and
      z_FFN on what its halves add to x: with the norm after the addition, as in BERT, a layer without its two halves
      is still two norms, and z = 0 of the interpolation is its removal.
    - All gates start almost open, log-alphas are not clamped (scores at a bound would tie), and in eval mode a gate has
      the value of equation 13.

    Args:
        start: initial log-alpha of every gate; 3 closes 1 % of them.
    """

    before: Tensor

    def __init__(self, model: Any, goal: Goal, *, start: float = 3.0) -> None:
        super().__init__(model)
        self.excess = Excess(goal).to(model.device)
        self.log_alpha = self.layout.gates(self.layout.cut(goal.least), start, model.device)
        with torch.no_grad():
            self.register_buffer("before", self.excess(self.sizes()), persistent=False)
            count = len(self.constraints(0.0))
        self.lambdas = nn.Parameter(self.before.new_zeros(2, count))

    def sample(self) -> dict[str, Tensor]:
        """Gates in [0, 1] of each kind [rows, gates]: random in training (equations 10, 11), fixed in eval (13)."""
        gates = {}
        for kind, log_alpha in self.log_alpha.items():
            inner = log_alpha
            if self.training:
                inner = (log_alpha + torch.logit(torch.rand_like(log_alpha), eps=1e-6)) / TEMPERATURE
            gates[kind] = (torch.sigmoid(inner) * (HIGHEST - LOWEST) + LOWEST).clamp(0, 1)
        return gates

    def shares(self) -> dict[str, Tensor]:
        """Expected share of open gates of each kind [rows] (equation 12), for the kinds that have gates."""
        shift = TEMPERATURE * math.log(-LOWEST / HIGHEST)
        return {kind: torch.sigmoid(value - shift).mean(1) for kind, value in self.log_alpha.items()}

    def sizes(self) -> Tensor:
        """Expected number of layers, of hidden channels, and of FFN channels as a mean over layers [3]."""
        full, shares = self.layout.full, {kind: share.mean() for kind, share in self.shares().items()}
        one = next(iter(self.log_alpha.values())).new_ones(())
        first = self.layout.first
        layers = first + (full.layers - first) * shares.get("layers", one)
        return torch.stack([layers, full.hidden * shares.get("hidden", one), full.ffn * shares.get("ffn", one)])

    def expected(self) -> dict[str, float]:
        """`sizes` by name."""
        return dict(zip(("layers", "hidden", "ffn"), self.sizes().tolist(), strict=True))

    def constraints(self, progress: float) -> Tensor:
        """Constraints [n], each of which should be 0: the excess of the expected cost over the goal, which comes nearer
        with `progress`, and the differences between layers."""
        shares = self.shares()
        parts = [self.excess(self.sizes()) - self.before - progress * (1 - self.before)]
        if "heads" in shares:
            parts.append(shares["heads"] - shares["hidden"])
        if "ffn" in shares:
            parts.append(shares["ffn"] - shares["ffn"].mean())
        return torch.cat(parts)

    def masks(self, progress: float) -> Masks:
        """Random masks, new in each call. They do not depend on `progress`: the penalty closes gates."""
        return self.layout.masks(self.sample())

    def penalty(self, progress: float) -> Tensor:
        """The Lagrangian []: the sum of lambda_1 c + lambda_2 c^2 over the constraints c.

        The lambdas maximize it while all other parameters minimize it: their gradient is reversed, so that one
        optimizer can train both.
        """
        differences = self.constraints(progress)
        first, second = 2 * self.lambdas.detach() - self.lambdas
        return (first * differences + second * differences.square()).sum()

    def scores(self) -> Importance:
        """The log-alphas as importance."""
        return self.layout.importance(self.log_alpha)


class Movement(Gates):
    """Opens the gates with the highest trained scores: movement pruning, Sanh et al. 2020, arXiv 2005.07683, section 4.

    The selection has a straight-through gradient: with SGD, each step changes a score S by -lr dL/dm, where m is its
    mask, also while m is 0, so that a closed gate can open again. dL/dm is the sum of W dL/dW' over the output weights
    W of a head or FFN channel, where W' = m W; so S grows when these weights move away from zero. As in Lagunas et al.
    2021, arXiv 2109.04838, gates are on whole heads and channels. Deviations: hidden channels have gates too; and all
    layers keep the same number, given by `shape`, by the cubic schedule of Zhu and Gupta 2017, arXiv 1710.01878,
    equation 1, in place of a threshold and a penalty. Layers have no gates.
    """

    def __init__(self, model: Any, shape: Shape) -> None:
        super().__init__(model)
        width = shape.hidden / self.layout.full.hidden
        shares = {"heads": width, "hidden": width, "ffn": shape.ffn / self.layout.full.ffn}
        self.keep = {kind: shares[kind] for kind in self.layout.cut(shape) if kind in shares}
        self.score = self.layout.gates(self.keep, 0.0, model.device)

    def masks(self, progress: float) -> Masks:
        """1 for the heads and channels that are kept at this progress, 0 for the others."""
        gates = {}
        for kind, score in self.score.items():
            share = 1 - (1 - self.keep[kind]) * (1 - (1 - progress) ** 3)
            count = max(1, round(share * score.shape[1]))
            # The first of equal scores, as in `select_kept.most_important`, so that pruning keeps what training kept.
            best = score.detach().sort(dim=1, descending=True, stable=True).indices[:, :count]
            gates[kind] = torch.zeros_like(score).scatter(1, best, 1.0) + (score - score.detach())
        return self.layout.masks(gates)

    def penalty(self, progress: float) -> Tensor:
        """0 []: the schedule alone decides how many gates are open."""
        return next(self.parameters()).new_zeros(())

    def scores(self) -> Importance:
        """The trained scores as importance."""
        return self.layout.importance(self.score)


def gates_for(kind: str, model: Any, goal: Goal) -> L0 | Movement | None:
    """New gates of a kind (l0, movement) on what the goal removes of a model; None if it removes nothing that has gates
    of this kind."""
    cut = {*_layout(model).cut(goal.least)}
    if kind == "l0":
        return L0(model, goal) if cut else None
    return Movement(model, goal.least) if cut - {"layers"} else None


def ramp(done: float, begin: float = 0.1, end: float = 0.7) -> float:
    """Progress when a share of all steps is done: 0 until `begin`, 1 from `end` on, linear in between."""
    return min(max((done - begin) / (end - begin), 0.0), 1.0)


def parameter_groups(gates: nn.Module, lr: float) -> list[dict[str, Any]]:
    """Optimizer groups of the gates: with their own learning rate and without weight decay."""
    return [{"params": list(gates.parameters()), "lr": lr, "weight_decay": 0.0}]


@dataclass(frozen=True)
class _Layout:
    """The places where a model can have gates."""

    full: Shape
    first: int
    """Number of layers at the start that every model of its family has."""
    shapes: Mapping[str, tuple[int, int]]
    """Kind -> (rows of gates, gates per row)."""
    places: Sequence[Cut]
    """Where hidden channels are masked."""

    def cut(self, least: Shape) -> list[str]:
        """The kinds of which a model of this shape has fewer."""
        kinds = ["layers"] if least.layers < self.full.layers else []
        kinds += ["heads", "hidden"] if least.hidden < self.full.hidden else []
        return kinds + (["ffn"] if least.ffn < self.full.ffn else [])

    def gates(self, kinds: Iterable[str], value: float, device: torch.device) -> nn.ParameterDict:
        """Parameters [rows, gates] of these kinds, all initialized to `value`."""
        values = {kind: torch.full(self.shapes[kind], float(value), device=device) for kind in kinds}
        return nn.ParameterDict({kind: nn.Parameter(tensor) for kind, tensor in values.items()})

    def masks(self, gates: dict[str, Tensor]) -> Masks:
        """The masks of gates [rows, gates], with 1 where there are no gates."""
        heads, ffn, hidden, layers = self._spread(gates, 1.0, 1.0)
        return Masks(
            list(heads.split(1)),
            list(ffn.split(1)),
            hidden if "hidden" in gates else None,
            layers if "layers" in gates else None,
        )

    def importance(self, scores: nn.ParameterDict) -> Importance:
        spread = self._spread(dict(scores.items()), 0.0, math.inf)
        heads, ffn, hidden, layers = (part.detach().cpu().contiguous().clone() for part in spread)
        return Importance(heads, ffn, hidden, layers=layers if "layers" in scores else None)

    def _spread(self, gates: dict[str, Tensor], missing: float, first: float) -> tuple[Tensor, ...]:
        """Gates [rows, gates] expanded to [layers, heads], [layers, FFN channels], [H] and [layers]; `missing` where
        there are none, and `first` for layers that are never removed."""
        like, depth = next(iter(gates.values())), self.full.layers
        heads, ffn, hidden, layers = (
            gates[kind] if kind in gates else like.new_full(self.shapes[kind], missing)
            for kind in ("heads", "ffn", "hidden", "layers")
        )
        layers = torch.cat([like.new_full((self.first,), first), layers[0]])
        return heads.expand(depth, -1), ffn.expand(depth, -1), hidden[0], layers


def _layout(model: Any) -> _Layout:
    record, depth, width = families.family_of(model), families.depth(model), families.width(model)
    inner, first = setting(model.config, "intermediate_size"), int(record.first_layer)
    rows = 1 if record.shared_layers else depth
    shapes = {
        "layers": (1, depth - first),
        "heads": (1 if record.shared_heads else rows, families.heads(model)),
        "ffn": (rows, inner),
        "hidden": (1, width),
    }
    return _Layout(Shape(depth, width, inner), first, shapes, places(model))
