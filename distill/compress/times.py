"""Measures the times of models of other sizes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from distill import family
from distill.compress.search import Shape, Table
from distill.evaluate import latency
from distill.evaluate.runners import Runner, torch_run

FEW, MORE = 1, 3
"""Numbers of layers of the two models whose difference gives the time of a layer."""

VOCABULARY = 1000
"""Size of the vocabulary: the time of a lookup does not depend on it."""

BUSY, TRIES = 0.2, 3
"""Relative spread of repeated timings above which the machine is considered busy, and the number of attempts then."""


def spread(times: latency.Times) -> float:
    """Relative spread of repeated timings: interquartile range over median, as the median over runners."""
    ranges = [np.subtract(*np.percentile(values, [75, 25])) / np.median(values) for values in times.values()]
    return float(np.median(ranges))


def _steady(time: Callable[[], latency.Times], log: Callable[[str], None]) -> latency.Times:
    """The timings with the least spread of at most TRIES attempts; the first attempt if the machine is not busy."""
    attempts: list[latency.Times] = []
    while not attempts or (spread(attempts[-1]) > BUSY and len(attempts) < TRIES):
        attempts.append(time())
    best = min(attempts, key=spread)
    if spread(best) > BUSY:
        log(f"times vary by {100 * spread(best):.0f}% because the machine is busy; predicted speeds are rough")
    return best


def measure(
    config_of: Callable[[Shape], Any],
    widths: Iterable[tuple[int, int]],
    *,
    batch: tuple[int, int],
    scheme: str,
    device: str,
    threads: int,
    repeats: int = 5,
    least_ms: float = latency.LEAST_MS,
    log: Callable[[str], None] = lambda text: None,
) -> Table:
    """Time classifiers with random weights for all (hidden, ffn) `widths`, in the way that `evaluate` times models.

    Models of one hidden size form a group and are timed alternately, in the same rounds, together with a reference, the
    widest model. Times of a group are corrected by the reference's time in the group relative to its median over all
    groups, so that changes in the machine's speed between groups cancel.
    """
    import torch

    def runner(name: str, shape: Shape) -> Runner:
        config = config_of(shape)
        config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
        with torch.random.fork_rng(devices=[]):
            model = family.auto_class(config).from_config(config, trust_remote_code=False).eval().to(device)
        return Runner(name, "torch", scheme, torch_run(model, scheme=scheme, device=device, threads=threads))

    groups: dict[int, list[int]] = {}
    for hidden, ffn in sorted(set(widths)):
        groups.setdefault(hidden, []).append(ffn)
    widest = max(groups)
    reference = runner("reference", Shape(MORE, widest, max(groups[widest])))
    inputs = latency.synthetic(batch, VOCABULARY)
    times_of: dict[tuple[int, int, int], float] = {}
    reference_of: dict[int, float] = {}
    for hidden, sizes_of_ffn in groups.items():
        log(f"timing models {hidden} wide, FFN {sizes_of_ffn[0]} to {sizes_of_ffn[-1]}, at {batch[0]}x{batch[1]}")
        shapes = {f"{layers} {ffn}": (layers, hidden, ffn) for ffn in sizes_of_ffn for layers in (FEW, MORE)}
        runners = [reference, *(runner(name, Shape(*sizes)) for name, sizes in shapes.items())]
        times = _steady(lambda: latency.measure(runners, [inputs], repeats=repeats, least_ms=least_ms), log)  # noqa: B023
        medians = {name: float(np.median(values)) for (name, _), values in times.items()}
        reference_of[hidden] = medians.pop("reference")
        times_of |= {shapes[name]: value for name, value in medians.items()}
    median = float(np.median(list(reference_of.values())))
    layer, fixed = {}, {}
    for hidden, sizes_of_ffn in groups.items():
        for ffn in sizes_of_ffn:
            few, more = (times_of[layers, hidden, ffn] * median / reference_of[hidden] for layers in (FEW, MORE))
            layer[hidden, ffn] = max(more - few, 0.0) / (MORE - FEW)
            fixed[hidden, ffn] = max(few - FEW * layer[hidden, ffn], 0.0)
    return Table(fixed, layer)
