"""Searches the measured shapes that meet a target for the one with the least estimated loss.

The quality of a model is measured by its *margin*: how far its loss is below the loss of a constant prediction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.optimize import isotonic_regression

from distill.config.schemes import Form
from distill.errors import ConfigError
from distill.runtime.storage.structs import Stored


class Shape(Stored, frozen=True, order=True):
    """Sizes of a stock model; the number of heads follows from `hidden`."""

    layers: int
    hidden: int
    ffn: int

    @property
    def weights(self) -> int:
        """Number of weights in the matrices of attention and of the feed-forward part, without gated ones."""
        return self.layers * self.hidden * (4 * self.hidden + 2 * self.ffn)

    def within(self, other: Shape) -> bool:
        """Whether no size is larger than the other's."""
        return self.layers <= other.layers and self.hidden <= other.hidden and self.ffn <= other.ffn


class Speed(Stored, frozen=True, kw_only=True):
    """Predicted speed of a shape."""

    predicted_ms: float
    predicted_speedup: float
    conditions: dict[str, Any]
    """The conditions for which the prediction holds."""

    @property
    def form(self) -> Form:
        """The form in which the shape serves."""
        return Form(*(self.conditions[name] for name in Form.__dataclass_fields__))


class Choice(Stored, frozen=True, kw_only=True):
    """The shape that was chosen for a target."""

    shape: Shape
    tried: int
    """Number of candidates."""
    speed: Speed


@dataclass(frozen=True)
class Table:
    """Measured times, in milliseconds, by (hidden, ffn)."""

    fixed: Mapping[tuple[int, int], float]
    """Time of everything outside the layers. It hardly depends on `ffn`."""
    layer: Mapping[tuple[int, int], float]
    """Time of one layer."""

    def milliseconds(self, shape: Shape) -> float:
        """Predicted time of a model of this shape."""
        widths = (shape.hidden, shape.ffn)
        return self.fixed[widths] + shape.layers * self.layer[widths]


@dataclass(frozen=True)
class Tables:
    """Measured times in the forms in which models may serve. Each shape serves in its fastest form."""

    of: Mapping[Form, Table]
    reference: float
    """Milliseconds of the model over which speedups are meant."""

    def form(self, shape: Shape) -> Form:
        """The form in which a model of this shape is fastest."""
        return min(self.of, key=lambda form: self.of[form].milliseconds(shape))

    def milliseconds(self, shape: Shape) -> float:
        """Predicted time of a model of this shape."""
        return min(table.milliseconds(shape) for table in self.of.values())

    def speedup(self, shape: Shape) -> float:
        """Predicted speedup of a model of this shape over the reference."""
        return self.reference / self.milliseconds(shape)


def leading(of: Mapping[Form, Table], shapes: Sequence[Shape], milliseconds: float, count: int) -> list[Form]:
    """The `count` forms in which a model that takes at most this time can be the largest, the best first.

    Of forms with equally large models, the one in which this model is faster comes first. Forms in which no shape is
    fast enough come last.
    """

    def rank(form: Form) -> tuple[int, float]:
        fitting = [shape for shape in shapes if of[form].milliseconds(shape) <= milliseconds]
        largest = max(fitting, key=lambda shape: shape.weights, default=None)
        if largest is None:
            return 0, min(map(of[form].milliseconds, shapes))
        return -largest.weights, of[form].milliseconds(largest)

    return sorted(of, key=rank)[:count]


def grid(full: Shape, head: int, parts: int, *, layers: bool, hidden: bool, ffn: bool) -> list[Shape]:
    """All candidate shapes: `full`, reduced in the dimensions that are true.

    Layers: any number. Hidden channels: whole heads of size `head`, at most `parts` different numbers, of which the
    least is about an eighth of the heads. FFN channels: `parts` even steps, in multiples of 8, at which matrix units
    run at full speed.
    """
    heads, least = full.hidden // head, max(1, parts // 8)
    counts = sorted({max(1, round(heads * part / parts)) for part in range(least, parts + 1)}) if hidden else [heads]
    inner = sorted({max(8, full.ffn * part // parts // 8 * 8) for part in range(1, parts)} | {full.ffn})
    depths = range(1, full.layers + 1) if layers else [full.layers]
    return [
        Shape(*sizes) for sizes in itertools.product(depths, [n * head for n in counts], inner if ffn else [full.ffn])
    ]


SIZES = 5
"""Number of sizes of a dimension whose loss is measured; between them it is interpolated."""


def spaced(sizes: Iterable[int], count: int = SIZES) -> list[int]:
    """At most `count` of the sizes, evenly spaced from the least to the largest."""
    ordered = sorted(set(sizes))
    return [ordered[i] for i in sorted({round(part * (len(ordered) - 1) / max(count - 1, 1)) for part in range(count)})]


LEAST = 0.05
"""Below this share of the margin, loss no longer separates sizes; they are extrapolated."""


def falling(
    full: int, before: float, scale: float, sizes: Iterable[int], loss_of: Callable[[int], float]
) -> dict[int, float]:
    """Size -> loss, from `full`, whose loss is `before`, down to the first size with less than `LEAST` of the margin.

    `scale` is the loss of a constant prediction. `Losses` extrapolates to smaller sizes. A smaller size has at least
    the loss of a larger one: the measurements are noisy, and are replaced by the nearest such sequence (isotonic
    regression), so that the search does not mistake noise for a size that costs nothing.
    """
    losses = {full: before}
    for size in sorted({*sizes} - {full}, reverse=True):
        losses[size] = loss_of(size)
        if scale - losses[size] < LEAST * (scale - before):
            break
    smaller = [size for size in losses if size != full]
    if smaller:
        rising = isotonic_regression([losses[size] for size in smaller]).x
        losses |= {size: max(float(loss), before) for size, loss in zip(smaller, rising, strict=True)}
    return losses


@dataclass(frozen=True)
class Losses:
    """Measured losses of one task's model, with a single dimension pruned.

    Sizes below the first with less than `LEAST` of the margin are not needed.
    """

    full: float
    """Loss of the unpruned model."""
    layers: Mapping[int, float]
    """Number of layers -> loss."""
    hidden: Mapping[int, float]
    """Number of hidden channels -> loss."""
    ffn: Mapping[int, float]
    """Number of FFN channels -> loss."""
    scale: float
    """Loss of the best constant prediction."""

    def margin_kept(self, shape: Shape) -> float:
        """Estimated share of the margin that a model of this shape keeps, before it recovers; in (0, 1].

        The margin is `scale` minus the loss. The estimate is the product of the shares measured for each dimension: a
        sum of losses would have no meaning once one dimension has lost the whole margin. 1 for a model whose margin is
        at most `LEAST` of `scale`, which has nothing to lose.
        """
        return math.prod(self._share(losses, size) for losses, size in self._sizes(shape))

    def extrapolated(self, shape: Shape) -> int:
        """Number of dimensions in which the estimate for this shape is extrapolated."""
        return sum(self._share(losses, size) <= LEAST for losses, size in self._sizes(shape))

    def _sizes(self, shape: Shape) -> list[tuple[Mapping[int, float], int]]:
        return [(self.layers, shape.layers), (self.hidden, shape.hidden), (self.ffn, shape.ffn)]

    def _share(self, losses: Mapping[int, float], size: int) -> float:
        """Share of the margin that is kept with one dimension pruned to `size`.

        Between measured sizes it is interpolated. From the first size with a share below `LEAST` on, it is extrapolated
        as LEAST^(x^2), where x is the number of removed layers or channels relative to that size. It falls ever faster,
        so that the search does not prune one dimension to nothing in favour of the others.
        """
        (full, *sizes), margin = sorted(losses, reverse=True), self.scale - self.full
        larger, kept = full, 1.0
        for pruned in sizes if size < full and margin > LEAST * self.scale else ():
            share = min((self.scale - losses[pruned]) / margin, 1.0)
            if share < LEAST:
                return min(float(LEAST ** (((full - size) / (full - pruned)) ** 2)), kept)
            if pruned <= size:
                return share + (kept - share) * (size - pruned) / (larger - pruned)
            larger, kept = pruned, share
        return kept


def finalists(shapes: Iterable[Shape], price: Callable[[Shape], Any], most: int) -> list[Shape]:
    """The `most` shapes of the least price, of which no two have as many layers.

    The price, an estimate from losses by dimension, is worst at weighing depth against width.
    """
    best: dict[int, Shape] = {}
    for shape in sorted(shapes, key=price):
        best.setdefault(shape.layers, shape)
    return list(best.values())[:most]


def margin_lost(losses: Iterable[Losses]) -> Callable[[Shape], float]:
    """Shape -> estimated share of the margin that is lost: 1 minus the geometric mean over tasks of the share kept."""
    by_task = list(losses)
    return lambda shape: 1 - math.prod(task.margin_kept(shape) for task in by_task) ** (1 / len(by_task))


SHALLOW = 2
"""Shapes with fewer layers are chosen last. The estimate prefers one wide layer at speedups from 12x on, which recovers
far less than two narrow ones (docs/explain/not-helped.md)."""


def estimated(losses: Iterable[Losses]) -> Callable[[Shape], Any]:
    """Shape -> its price by measured losses: the estimated share of the margin that is lost.

    Shapes with fewer layers than `SHALLOW` are dearer than all others. Among the rest, shapes that are extrapolated in
    more dimensions, summed over tasks, are dearer: models with only a layer or two hardly recover, whatever their
    estimate.
    """
    by_task = list(losses)
    lost = margin_lost(by_task)
    return lambda shape: (shape.layers < SHALLOW, sum(task.extrapolated(shape) for task in by_task), lost(shape))


def distance(expected: Iterable[Mapping[str, float]]) -> Callable[[Shape], float]:
    """Shape -> how far it is from the expected sizes of gated models, by name: the sum of squared log ratios."""
    sizes = [(name, size) for each in expected for name, size in each.items()]
    return lambda shape: sum(math.log(getattr(shape, name) / size) ** 2 for name, size in sizes)


def evenness(full: Shape) -> Callable[[Shape], list[float]]:
    """Shape -> the factors by which sizes are reduced, the largest first. Even scaling has the least factors."""

    def reductions(shape: Shape) -> list[float]:
        factors = full.layers / shape.layers, full.hidden / shape.hidden, full.ffn / shape.ffn
        return sorted(factors, reverse=True)

    return reductions


def fits_target(
    target: Any, table: Tables, size_mib: Callable[[Shape], float], slower: float = 1.0
) -> Callable[[Shape], bool]:
    """Shape -> whether it meets every target that is set, if models take `slower` times as long as in the table."""

    def fits(shape: Shape) -> bool:
        speedup = target.speedup is None or table.speedup(shape) / slower >= target.speedup
        latency = target.latency_ms is None or table.milliseconds(shape) * slower <= target.latency_ms
        return speedup and latency and (target.size_mib is None or size_mib(shape) <= target.size_mib)

    return fits


def out_of_reach(
    target: Any,
    shapes: Sequence[Shape],
    table: Tables,
    full: Shape,
    size_mib: Callable[[Shape], float],
    cost: Callable[[Shape], float] | None = None,
) -> ConfigError:
    """The error for a target that no shape meets.

    It names the nearest shape and its cost: the share of weights and, if losses were measured (`cost`), of the margin.
    """
    fastest = min(shapes, key=table.milliseconds)
    time = table.milliseconds(fastest)
    speedup = table.speedup(fastest)
    reach: dict[str, tuple[bool, str, Shape]] = {}
    if target.speedup is not None:
        reach["speedup"] = (speedup >= target.speedup, f"<= {speedup:.2f}", fastest)
    if target.latency_ms is not None:
        reach["latency_ms"] = (time <= target.latency_ms, f">= {time:.2f}", fastest)
    if target.size_mib is not None:
        smallest = min(shapes, key=size_mib)
        least = size_mib(smallest)
        reach["size_mib"] = (least <= target.size_mib, f">= {least:.1f}", smallest)

    def price(shape: Shape) -> str:
        margin = (
            ""
            if cost is None
            else f"an estimated {100 * cost(shape):.0f}% of the loss margin over a constant prediction, and "
        )
        return f"{margin}{100 * (1 - size_mib(shape) / size_mib(full)):.0f}% of the weights"

    advice = "set a nearer target, or let the recipe cut more dimensions"
    lines = [
        f"target.{key}: got {getattr(target, key)}; must be {rule}, which {shape.layers} layers, {shape.hidden} hidden "
        f"and {shape.ffn} FFN channels reach, at the cost of {price(shape)}, before recovery; {advice}"
        for key, (met, rule, shape) in reach.items()
        if not met
    ]
    together = f"target: got {', '.join(reach)}; must be met by a single shape, but each is met by another; {advice}"
    return ConfigError(lines or together)
