"""The shape that costs least among those fast, or small, enough: every one that was measured is looked at."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.errors import ConfigError


@dataclass(frozen=True, order=True)
class Shape:
    """Sizes of a model that a stock config expresses; heads follow from `hidden`."""

    layers: int
    hidden: int
    ffn: int


@dataclass(frozen=True)
class Table:
    """Milliseconds, measured: of a model of these widths with no layer, and of each of its layers.

    Both by (hidden, ffn). What is fixed hardly depends on `ffn`; it is measured with it all the same.
    """

    fixed: Mapping[tuple[int, int], float]
    layer: Mapping[tuple[int, int], float]

    def milliseconds(self, shape: Shape) -> float:
        widths = (shape.hidden, shape.ffn)
        return self.fixed[widths] + shape.layers * self.layer[widths]


def grid(full: Shape, head: int, parts: int, *, layers: bool, hidden: bool, ffn: bool) -> list[Shape]:
    """Every shape that is tried: `full`, cut in the dimensions that may be cut.

    Any number of layers; of hidden channels whole heads of `head`, at most `parts` different numbers; of FFN channels
    `parts` even steps, in multiples of 8, which matrix units like.
    """
    heads = full.hidden // head
    counts = sorted({max(1, round(heads * part / parts)) for part in range(1, parts + 1)}) if hidden else [heads]
    inner = sorted({max(8, full.ffn * part // parts // 8 * 8) for part in range(1, parts)} | {full.ffn})
    depths = range(1, full.layers + 1) if layers else [full.layers]
    return [
        Shape(*sizes) for sizes in itertools.product(depths, [n * head for n in counts], inner if ffn else [full.ffn])
    ]


LEAST = 0.05
"""Share of what a model knows below which its loss says no more how much is left."""


def falling(
    full: int, before: float, scale: float, sizes: Iterable[int], loss_of: Callable[[int], float]
) -> dict[int, float]:
    """Size -> loss, from `full`, whose loss is `before`, down to the first that leaves too little to be measured:
    `Losses` asks for none below it.
    """
    found = {full: before}
    for size in sorted({*sizes} - {full}, reverse=True):
        found[size] = loss_of(size)
        if scale - found[size] < LEAST * (scale - before):
            break
    return found


@dataclass(frozen=True)
class Losses:
    """What pruning costs of one task: the loss as it is, and with one dimension cut alone, by its size.

    No size is needed below the first that leaves too little to be measured. `scale` is the loss of a model that
    knows only how often each label comes.
    """

    full: float
    layers: Mapping[int, float]
    hidden: Mapping[int, float]
    ffn: Mapping[int, float]
    scale: float

    def left(self, shape: Shape) -> float:
        """Estimated share of what the model knows that is left, before it recovers: above 0, at most 1.

        What it knows is how far its loss is below `scale`. Each dimension takes its share of what the others leave:
        sums of rises say nothing once one of them has taken all. A model that knows next to nothing has nothing to
        lose.
        """
        return math.prod(self._alone(losses, size) for losses, size in self._sizes(shape))

    def guessed(self, shape: Shape) -> int:
        """In how many dimensions the size leaves too little to be measured: what is said of it is a guess."""
        return sum(self._alone(losses, size) <= LEAST for losses, size in self._sizes(shape))

    def _sizes(self, shape: Shape) -> list[tuple[Mapping[int, float], int]]:
        return [(self.layers, shape.layers), (self.hidden, shape.hidden), (self.ffn, shape.ffn)]

    def _alone(self, losses: Mapping[int, float], size: int) -> float:
        """What is left by one dimension. From the first size on that leaves too little to be measured, it goes on
        falling with the size, ever faster: by powers of `LEAST`, so that no dimension is cut to nothing for the rest.
        """
        (full, *cuts), known = sorted(losses, reverse=True), self.scale - self.full
        left = 1.0
        for cut in cuts if size < full and known > LEAST * self.scale else ():
            left = min((self.scale - losses[cut]) / known, 1.0)
            if left < LEAST:
                return float(LEAST ** (((full - size) / (full - cut)) ** 2))
            if cut == size:
                break
        return left


def choose(
    shapes: Sequence[Shape],
    fits: Callable[[Shape], bool],
    cost: Callable[[Shape], Any],
    milliseconds: Callable[[Shape], float],
) -> Shape | None:
    """The cheapest shape that fits; of equally cheap ones the fastest. None where none fits."""
    return min(filter(fits, shapes), key=lambda shape: (cost(shape), milliseconds(shape)), default=None)


def forgotten(losses: Iterable[Losses]) -> Callable[[Shape], float]:
    """Estimated share of what the models know that goes with a shape: 1 less the geometric mean, over tasks, of what
    is left.
    """
    every = list(losses)
    return lambda shape: 1 - math.prod(one.left(shape) for one in every) ** (1 / len(every))


def guessed(losses: Iterable[Losses]) -> Callable[[Shape], int]:
    """In how many dimensions of how many tasks what a shape leaves is a guess. Such shapes come last: models that lost
    all but a layer or two hardly recover, whatever a product of small numbers says.
    """
    every = list(losses)
    return lambda shape: sum(one.guessed(shape) for one in every)


def fits_target(target: Any, table: Table, full: Shape, size_mib: Callable[[Shape], float]) -> Callable[[Shape], bool]:
    """Whether a shape meets every target that is set."""

    def fits(shape: Shape) -> bool:
        time = table.milliseconds(shape)
        fast = target.speedup is None or table.milliseconds(full) / time >= target.speedup
        soon = target.latency_ms is None or time <= target.latency_ms
        return fast and soon and (target.size_mib is None or size_mib(shape) <= target.size_mib)

    return fits


def out_of_reach(
    target: Any,
    shapes: Sequence[Shape],
    table: Table,
    full: Shape,
    size_mib: Callable[[Shape], float],
    cost: Callable[[Shape], float] | None = None,
) -> ConfigError:
    """The refusal of a target that no shape meets: it names the one that comes nearest, and what that costs: the share
    of what the model knows, where that was measured, and of its weights.
    """
    fastest = min(shapes, key=table.milliseconds)
    time = table.milliseconds(fastest)
    most = table.milliseconds(full) / time
    reach: dict[str, tuple[bool, str, Shape]] = {}
    if target.speedup is not None:
        reach["speedup"] = (most >= target.speedup, f"<= {most:.2f}", fastest)
    if target.latency_ms is not None:
        reach["latency_ms"] = (time <= target.latency_ms, f">= {time:.2f}", fastest)
    if target.size_mib is not None:
        smallest = min(shapes, key=size_mib)
        least = size_mib(smallest)
        reach["size_mib"] = (least <= target.size_mib, f">= {least:.1f}", smallest)

    def price(shape: Shape) -> str:
        knows = "" if cost is None else f"an estimated {100 * cost(shape):.0f}% of what the model knows, and "
        return f"{knows}{100 * (1 - size_mib(shape) / size_mib(full)):.0f}% of its weights"

    advice = "set a nearer target, or let the recipe cut more dimensions"
    lines = [
        f"target.{key}: got {getattr(target, key)}; must be {rule}, which {shape.layers} layers, {shape.hidden} hidden "
        f"and {shape.ffn} FFN channels reach, at the cost of {price(shape)}, before it recovers; {advice}"
        for key, (met, rule, shape) in reach.items()
        if not met
    ]
    together = f"target: got {', '.join(reach)}; must be met by one shape, and each is met by another; {advice}"
    return ConfigError(lines or together)
