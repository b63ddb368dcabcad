"""Measures the times of models of other sizes on this machine, in one form or in several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np

from distill.compression.pruning.search import Shape, Table, spaced
from distill.config.schemes import Form
from distill.inference import latency
from distill.inference.runners import Batch, Runner

FEW, MORE = 1, 3
"""Numbers of layers of the two models whose difference gives the time of a layer."""

HIDDEN_SIZES, FFN_SIZES = 4, 3
"""Number of sizes that are timed; those between them are interpolated."""

BUSY, TRIES = 0.2, 3
"""Relative spread of repeated timings above which the machine is considered busy, and the number of attempts then."""

FEW_ROUNDS = 2
"""Rounds of timing that tell which forms are far slower than others."""

LEAST_MS = 1e-6
"""Least time of a layer, so that its logarithm is finite."""

REFERENCE = "reference"
"""Name of the runner of the model over which speedups are meant, and of the model that is timed in every group."""

Build = Callable[[Shape, Sequence[Form]], Mapping[Form, Runner]]
"""(shape, forms) -> a model of this shape with random weights, in each of the forms."""


class Times(Protocol):
    """Times models."""

    @property
    def busy(self) -> bool:
        """Whether the machine was busy in some of the timings, whose results are then rough."""

    def __call__(self, runners: Sequence[Runner], *, few: bool = False) -> dict[str, float]:
        """Milliseconds of each runner by name, all timed in the same rounds; with `few`, in FEW_ROUNDS of them."""


def spread(times: latency.Times) -> float:
    """Relative spread of repeated timings: interquartile range over median, as the median over runners."""
    ranges = [np.subtract(*np.percentile(values, [75, 25])) / np.median(values) for values in times.values()]
    return float(np.median(ranges))


def steady(time: Callable[[], latency.Times]) -> latency.Times:
    """The timings with the least spread, of at most TRIES attempts; the first attempt if the machine is not busy."""
    attempts: list[latency.Times] = []
    while not attempts or (spread(attempts[-1]) > BUSY and len(attempts) < TRIES):
        attempts.append(time())
    return min(attempts, key=spread)


@dataclass(frozen=True)
class OwnBatches(Runner):
    """A runner that is timed on batches of its own, such as the same texts in the tokens of another tokenizer."""

    batches: Sequence[Batch]


@dataclass
class Timer:
    """Times runners in the way that `evaluate` times models: all `batches` together, or each of them apart."""

    batches: Sequence[Batch]
    log: Callable[[str], None]
    repeats: int = 5
    """Rounds of timing."""
    parts: int = 1
    """The number by which the time of all batches together is divided."""
    apart: bool = False
    """Whether the result is the median over batches, as of single texts, in place of their sum."""
    least_ms: float = latency.LEAST_MS
    busy: bool = False

    def __call__(self, runners: Sequence[Runner], *, few: bool = False) -> dict[str, float]:
        groups = {
            runner.name: self._groups(runner.batches if isinstance(runner, OwnBatches) else self.batches)
            for runner in runners
        }
        count = len(self._groups(self.batches))
        inputs: Mapping[latency.Key, Mapping[str, Sequence[Batch]]] = {
            str(number): {name: own[number] for name, own in groups.items()} for number in range(count)
        }
        least_ms = self.least_ms / count

        def measured(repeats: int, warmup: int) -> latency.Times:
            return latency.measure(runners, inputs, repeats=repeats, warmup=warmup, least_ms=least_ms)

        found = measured(min(FEW_ROUNDS, self.repeats), 1) if few else steady(lambda: measured(self.repeats, 2))
        if (varies := spread(found)) > BUSY:
            self.busy = True
            if not few:
                self.log(f"times vary by {100 * varies:.0f}% because the machine is busy; predicted speeds are rough")
        by_group = {runner.name: [float(np.median(found[runner.name, key])) for key in inputs] for runner in runners}
        return {name: float(np.median(values)) / self.parts for name, values in by_group.items()}

    def _groups(self, batches: Sequence[Batch]) -> list[Sequence[Batch]]:
        """The batches that are timed together."""
        return [[batch] for batch in batches] if self.apart else [batches]


def together(
    build: Build,
    times: Times,
    forms: Sequence[Form],
    shapes: Sequence[Shape],
    reference: Runner | None = None,
    *,
    few: bool = False,
) -> tuple[dict[tuple[Shape, Form], float], float]:
    """Milliseconds of models of these shapes in these forms, and of the reference (0 without one), timed in the same
    rounds."""
    models = {(shape, form): runner for shape in shapes for form, runner in build(shape, forms).items()}
    names = {key: f"{number} {key[1].name}" for number, key in enumerate(models)}
    runners = [replace(runner, name=names[key]) for key, runner in models.items()]
    others = [] if reference is None else [replace(reference, name=REFERENCE)]
    found = times([*others, *runners], few=few)
    return {key: found[name] for key, name in names.items()}, found.get(REFERENCE, 0.0)


def screen(
    build: Build, times: Times, forms: Sequence[Form], hidden: Collection[int], ffn: Collection[int]
) -> dict[Form, Table]:
    """Rough times of models of all widths `hidden` x `ffn` in many forms.

    In each form, models of the least and of the largest width are timed in few rounds, with FFN channels in proportion
    and with FEW and MORE layers. Between these widths, the time of a layer for each of its weights is interpolated as
    a power of the hidden channels.
    """
    widths, fixed, rate = spaced(hidden, 2), dict[Form, list[float]](), dict[Form, list[float]]()
    for width in reversed(widths):  # the graphs of the widest can be resized
        inner = min(ffn, key=lambda size: abs(size - max(ffn) * width / max(hidden)))
        shapes = [Shape(layers, width, inner) for layers in (FEW, MORE)]
        found, _ = together(build, times, forms, shapes, few=True)
        for form in forms:
            outside, layer = _parts(*(found[shape, form] for shape in shapes))
            fixed.setdefault(form, []).insert(0, outside)
            rate.setdefault(form, []).insert(0, max(layer, LEAST_MS) / shapes[0].weights)

    def table(form: Form) -> Table:
        outside = {w: float(np.interp(w, widths, fixed[form])) for w in hidden}
        of_weight = {w: float(np.exp(np.interp(np.log(w), np.log(widths), np.log(rate[form])))) for w in hidden}
        sizes = [*product(sorted(hidden), sorted(ffn))]
        layer = {(width, inner): of_weight[width] * Shape(1, width, inner).weights for width, inner in sizes}
        return Table({(width, inner): outside[width] for width, inner in sizes}, layer)

    return {form: table(form) for form in forms}


def _parts(few: float, more: float) -> tuple[float, float]:
    """Time of everything outside the layers, and of a layer, by the times of models with FEW and with MORE layers."""
    layer = max(more - few, 0.0) / (MORE - FEW)
    return max(few - FEW * layer, 0.0), layer


def measure(
    build: Build,
    times: Times,
    forms: Sequence[Form],
    hidden: Collection[int],
    ffn: Collection[int],
    knots: tuple[int, int] = (HIDDEN_SIZES, FFN_SIZES),
) -> dict[Form, Table]:
    """Times of models of all widths `hidden` x `ffn` in each form.

    At most `knots` sizes of each are timed. Between them, the time of a layer is interpolated: linearly
    over FFN channels, by a monotone cubic over hidden channels, with which it grows faster.

    Models of one hidden size form a group and are timed alternately, in the same rounds, together with a reference, the
    widest model. Times of a group are corrected by the reference's time in the group relative to its median over all
    groups, so that changes in the machine's speed between groups cancel.
    """
    some_hidden, some_ffn = spaced(hidden, knots[0]), spaced(ffn, knots[1])
    middle = some_ffn[len(some_ffn) // 2]
    reference = build(Shape(MORE, some_hidden[-1], some_ffn[-1]), forms[:1])[forms[0]]
    groups, reference_of = {}, {}
    for width in some_hidden:
        shapes = [Shape(FEW, width, middle), *(Shape(MORE, width, inner) for inner in some_ffn)]
        groups[width], reference_of[width] = together(build, times, forms, shapes, reference)
    median = float(np.median(list(reference_of.values())))
    sizes = list(product(sorted(hidden), sorted(ffn)))

    def table(form: Form) -> Table:
        fixed, layer = [], []
        for width, group in groups.items():
            slower = reference_of[width] / median
            few = group[Shape(FEW, width, middle), form] / slower
            more = {inner: group[Shape(MORE, width, inner), form] / slower for inner in some_ffn}
            fixed.append(_parts(few, more[middle])[0])
            layer.append([max(more[inner] - fixed[-1], 0.0) / MORE for inner in some_ffn])
        outside, inside = _between(some_hidden, fixed), _between(some_hidden, layer)
        return Table(
            {(width, inner): float(outside(width)) for width, inner in sizes},
            {(width, inner): float(np.interp(inner, some_ffn, inside(width))) for width, inner in sizes},
        )

    return {form: table(form) for form in forms}


def _between(sizes: Sequence[int], values: Sequence[float] | Sequence[list[float]]) -> Callable[[int], np.ndarray]:
    """Size -> value, interpolated."""
    from scipy.interpolate import PchipInterpolator

    if len(sizes) == 1:
        return lambda size: np.asarray(values[0])
    return PchipInterpolator(sizes, np.asarray(values), axis=0)
