"""Measures the times of models of other sizes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product

import numpy as np

from distill.compression.pruning.search import Shape, Table, spaced
from distill.inference import latency
from distill.inference.runners import Batch, Runner

FEW, MORE = 1, 3
"""Numbers of layers of the two models whose difference gives the time of a layer."""

HIDDEN_SIZES, FFN_SIZES = 4, 3
"""Number of sizes that are timed; those between them are interpolated."""

BUSY, TRIES = 0.2, 3
"""Relative spread of repeated timings above which the machine is considered busy, and the number of attempts then."""

Build = Callable[[str, Shape], Runner]
"""(name, shape) -> a model of this shape with random weights, in the variant that will serve."""
Times = Callable[[Sequence[Runner]], dict[str, float]]
"""Runners -> milliseconds of each by name, all timed in the same rounds."""


def spread(times: latency.Times) -> float:
    """Relative spread of repeated timings: interquartile range over median, as the median over runners."""
    ranges = [np.subtract(*np.percentile(values, [75, 25])) / np.median(values) for values in times.values()]
    return float(np.median(ranges))


def steady(time: Callable[[], latency.Times], log: Callable[[str], None]) -> dict[str, float]:
    """Name -> median of the timings with the least spread, of at most TRIES attempts; of the first attempt if the
    machine is not busy."""
    attempts: list[latency.Times] = []
    while not attempts or (spread(attempts[-1]) > BUSY and len(attempts) < TRIES):
        attempts.append(time())
    best = min(attempts, key=spread)
    if spread(best) > BUSY:
        log(f"times vary by {100 * spread(best):.0f}% because the machine is busy; predicted speeds are rough")
    return {name: float(np.median(values)) for (name, _), values in best.items()}


def timer(
    batches: Sequence[Batch],
    parts: int = 1,
    *,
    repeats: int,
    least_ms: float = latency.LEAST_MS,
    log: Callable[[str], None],
) -> Times:
    """Times of runners on all `batches`, divided by `parts`, in the way that `evaluate` times models."""

    def times(runners: Sequence[Runner]) -> dict[str, float]:
        inputs: Mapping[latency.Key, Mapping[str, Sequence[Batch]]] = {"": {r.name: batches for r in runners}}
        found = steady(lambda: latency.measure(runners, inputs, repeats=repeats, least_ms=least_ms), log)
        return {name: value / parts for name, value in found.items()}

    return times


def measure(
    build: Build,
    times: Times,
    hidden: Collection[int],
    ffn: Collection[int],
    knots: tuple[int, int] = (HIDDEN_SIZES, FFN_SIZES),
) -> Table:
    """Times of models of all widths `hidden` x `ffn`.

    At most `knots` sizes of each are timed. Between them, the time of a layer is interpolated: linearly
    over FFN channels, by a monotone cubic over hidden channels, with which it grows faster.

    Models of one hidden size form a group and are timed alternately, in the same rounds, together with a reference, the
    widest model. Times of a group are corrected by the reference's time in the group relative to its median over all
    groups, so that changes in the machine's speed between groups cancel.
    """
    some_hidden, some_ffn = spaced(hidden, knots[0]), spaced(ffn, knots[1])
    middle = some_ffn[len(some_ffn) // 2]
    reference = build("reference", Shape(MORE, some_hidden[-1], some_ffn[-1]))
    groups, reference_of = {}, {}
    for width in some_hidden:
        shapes = [Shape(FEW, width, middle), *(Shape(MORE, width, inner) for inner in some_ffn)]
        found = times([reference, *(build(str(number), shape) for number, shape in enumerate(shapes))])
        reference_of[width] = found.pop("reference")
        groups[width] = {shape: found[str(number)] for number, shape in enumerate(shapes)}
    median = float(np.median(list(reference_of.values())))
    fixed, layer = {}, {}
    for width, group in groups.items():
        corrected = {shape: value * median / reference_of[width] for shape, value in group.items()}
        few, more = corrected[Shape(FEW, width, middle)], corrected[Shape(MORE, width, middle)]
        fixed[width] = max(few - FEW * max(more - few, 0.0) / (MORE - FEW), 0.0)
        layer[width] = [max(corrected[Shape(MORE, width, inner)] - fixed[width], 0.0) / MORE for inner in some_ffn]
    sizes = list(product(sorted(hidden), sorted(ffn)))
    outside = _between(some_hidden, [fixed[width] for width in some_hidden])
    inside = _between(some_hidden, [layer[width] for width in some_hidden])
    return Table(
        {(width, inner): float(outside(width)) for width, inner in sizes},
        {(width, inner): float(np.interp(inner, some_ffn, inside(width))) for width, inner in sizes},
    )


def _between(sizes: Sequence[int], values: Sequence[float] | Sequence[list[float]]) -> Callable[[int], np.ndarray]:
    """Size -> value, interpolated."""
    from scipy.interpolate import PchipInterpolator

    if len(sizes) == 1:
        return lambda size: np.asarray(values[0])
    return PchipInterpolator(sizes, np.asarray(values), axis=0)
