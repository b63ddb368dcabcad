"""The goal to which gates are trained: sizes, or a cost computed from expected sizes by a table of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from distill.compression.pruning.search import Choice, Shape, Table


@dataclass(frozen=True)
class Goal:
    """The goal for the model that gates leave open."""

    shapes: Sequence[Shape]
    """The shapes that the model may have. A single one is itself the goal."""
    limits: Sequence[tuple[Sequence[Table], float]] = ()
    """Tables of a cost (milliseconds in each form, MiB), of which the least counts, with the maximum cost."""
    choice: Choice | None = None
    """The choice of a single shape for a target."""

    @property
    def least(self) -> Shape:
        """The least of each size of the shapes."""
        return Shape(*(min(sizes) for sizes in zip(*((s.layers, s.hidden, s.ffn) for s in self.shapes), strict=True)))


class Excess(nn.Module):
    """Expected sizes [3] (layers, hidden channels, FFN channels) -> their cost divided by the maximum cost [n].

    With limits there is one number, for the limit that is the hardest to meet; otherwise the ratio of each size to the
    shape's.
    """

    wanted: Tensor

    def __init__(self, goal: Goal) -> None:
        super().__init__()
        self.costs = nn.ModuleList(Cost(tables, most) for tables, most in goal.limits)
        least = goal.least
        sizes = torch.tensor([least.layers, least.hidden, least.ffn], dtype=torch.float32)
        self.register_buffer("wanted", sizes, persistent=False)

    def forward(self, sizes: Tensor) -> Tensor:
        """The costs of sizes [3], divided by their limits: [1] with limits, else [3]."""
        if not self.costs:
            return sizes / self.wanted
        return torch.stack([cost(sizes) for cost in self.costs]).amax(0, keepdim=True)


class Cost(nn.Module):
    """Expected sizes [3] -> the least `milliseconds` of the tables over `most`.

    The cost by a table is linear in the number of layers, and bilinear in width and FFN size between the sizes of the
    table. Outside of the table it is the cost of the nearest sizes. All tables have the same sizes.
    """

    hidden: Tensor
    ffn: Tensor
    values: Tensor

    def __init__(self, tables: Sequence[Table], most: float) -> None:
        super().__init__()
        hidden, ffn = sorted({h for h, _ in tables[0].fixed}), sorted({f for _, f in tables[0].fixed})

        def grid(part: Mapping[tuple[int, int], float]) -> list[list[float]]:
            return [[part[h, f] / most for f in ffn] for h in hidden]

        self.register_buffer("hidden", torch.tensor(hidden, dtype=torch.float32), persistent=False)
        self.register_buffer("ffn", torch.tensor(ffn, dtype=torch.float32), persistent=False)
        values = [[grid(table.fixed) for table in tables], [grid(table.layer) for table in tables]]
        self.register_buffer("values", torch.tensor(values), persistent=False)

    def forward(self, sizes: Tensor) -> Tensor:
        """The cost [] of sizes [3], divided by `most`."""
        layers, hidden, ffn = sizes
        fixed, layer = _weights(self.hidden, hidden) @ self.values @ _weights(self.ffn, ffn)
        return (fixed + layers * layer).amin()


def _weights(knots: Tensor, size: Tensor) -> Tensor:
    """Weight of each knot [n] in the linear interpolation at a size: hat functions, of which two are not 0."""
    if len(knots) == 1:
        return torch.ones_like(knots)
    size = size.clamp(knots[0], knots[-1])
    upper = torch.searchsorted(knots, size.detach()).clamp(1, len(knots) - 1)
    share = (size - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
    places = torch.arange(len(knots), device=knots.device)
    return torch.where(places == upper, share, torch.where(places == upper - 1, 1 - share, 0.0))
