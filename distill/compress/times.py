"""How long models of other sizes would take on this machine: measured, not counted in operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from distill.compress.search import Shape, Table
from distill.evaluate import latency
from distill.evaluate.engines import Engine, torch_run

FEW, MORE = 1, 3
"""Layers of the two models whose difference is the time of a layer."""

VOCABULARY = 1000
"""Rows of the table of tokens: looking one up costs the same in any table."""


BUSY, TRIES = 0.2, 3
"""Spread of the rounds of a timing, as a share of it, at which something else is running; and how often to try."""


def spread(times: latency.Times) -> float:
    """Quartile range over median of each engine's rounds, the median over engines."""
    ranges = [np.subtract(*np.percentile(values, [75, 25])) / np.median(values) for values in times.values()]
    return float(np.median(ranges))


def _steady(time: Callable[[], latency.Times], say: Callable[[str], None]) -> latency.Times:
    """The steadiest of some tries; one is enough where nothing else is running."""
    tried: list[latency.Times] = []
    while not tried or (spread(tried[-1]) > BUSY and len(tried) < TRIES):
        tried.append(time())
    best = min(tried, key=spread)
    if spread(best) > BUSY:
        say(f"times vary by {100 * spread(best):.0f}%: something else is running, and what is predicted is rough")
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
    say: Callable[[str], None] = lambda text: None,
) -> Table:
    """Time classifiers of all (hidden, ffn) `widths`, with random weights, as `evaluate` times them.

    Models of one hidden size are timed in turn, in the same rounds, next to the widest one of all: its time in a group
    against its time over all groups takes out what the machine did meanwhile.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    def engine(name: str, shape: Shape) -> Engine:
        config = config_of(shape)
        config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
        with torch.random.fork_rng(devices=[]):
            model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False).eval().to(device)
        return Engine(name, "torch", scheme, torch_run(model, scheme=scheme, device=device, threads=threads))

    groups: dict[int, list[int]] = {}
    for hidden, ffn in sorted(set(widths)):
        groups.setdefault(hidden, []).append(ffn)
    widest = max(groups)
    reference = engine("reference", Shape(MORE, widest, max(groups[widest])))
    inputs = latency.synthetic(batch, VOCABULARY)
    found: dict[tuple[int, int, int], float] = {}
    drift: dict[int, float] = {}
    for hidden, several in groups.items():
        say(f"timing models {hidden} wide, FFN {several[0]} to {several[-1]}, at {batch[0]}x{batch[1]}")
        shapes = {f"{layers} {ffn}": (layers, hidden, ffn) for ffn in several for layers in (FEW, MORE)}
        engines = [reference, *(engine(name, Shape(*sizes)) for name, sizes in shapes.items())]
        times = _steady(lambda: latency.measure(engines, [inputs], repeats=repeats, least_ms=least_ms), say)  # noqa: B023
        medians = {name: float(np.median(values)) for (name, _), values in times.items()}
        drift[hidden] = medians.pop("reference")
        found |= {shapes[name]: value for name, value in medians.items()}
    usual = float(np.median(list(drift.values())))
    layer, fixed = {}, {}
    for hidden, several in groups.items():
        for ffn in several:
            few, more = (found[layers, hidden, ffn] * usual / drift[hidden] for layers in (FEW, MORE))
            layer[hidden, ffn] = max(more - few, 0.0) / (MORE - FEW)
            fixed[hidden, ffn] = max(few - FEW * layer[hidden, ffn], 0.0)
    return Table(fixed, layer)
