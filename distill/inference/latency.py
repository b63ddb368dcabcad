"""Interleaved timing: every round times every runner on the same inputs.

A temporary slowdown of the machine affects all runners of a round, so a speedup is the median of the rounds' ratios.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from distill.inference.runners import Batch, Runner

LEAST_MS, SMOKE_MS = 50.0, 2.0
"""Target duration of one timing, and the same in smoke runs."""

FEWEST = 4
"""Minimum rounds of a timing, unless fewer are asked for."""

Shape = tuple[int, int]
"""(batch size, length)."""
Key = Shape | str
"""A timed input: a shape, or the name of several batches."""
Times = dict[tuple[str, Key], list[float]]
"""(runner name, timed input) -> milliseconds of each round."""


def synthetic(
    shape: Shape, vocab_size: int, last: int | None = None, seed: int = 0, without: Collection[int] = ()
) -> Batch:
    """A batch of random tokens outside `without`, without padding; each row ends with `last` unless that is None."""
    tokens = np.setdiff1d(np.arange(min(5, vocab_size - 1), vocab_size), list(without))
    ids = tokens[np.random.default_rng(seed).integers(0, len(tokens), shape)]
    if last is not None:
        ids[:, -1] = last
    return {
        "input_ids": ids,
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }


def measure(
    runners: Sequence[Runner],
    batches: Sequence[Batch] | Mapping[Key, Mapping[str, Sequence[Batch]]],
    *,
    repeats: int,
    warmup: int = 2,
    least_ms: float = LEAST_MS,
    seconds: float = math.inf,
) -> Times:
    """Time every runner on every batch: `repeats` rounds, after `warmup` rounds that are not counted.

    If the rounds would take longer than `seconds`, there are fewer, but no fewer than `FEWEST`.

    A sequence of batches is keyed by shape; only the first batch of a shape is timed. A mapping has the form name ->
    runner's name -> batches, and the batches of a runner under one name are timed together. A round goes through the
    batches, and times all runners on one batch, in random order, before the next. An untimed call on one row comes
    before each timing, because threads of the previous runner spin for a while and would slow this one down. A timing
    is the mean of as many calls as take about `least_ms`. Each runner sets its own number of threads.

    Raises:
        ValueError: for two runners of one name.
    """
    from distill.runtime import progress  # not to serve a model

    names = [runner.name for runner in runners]
    if len(set(names)) != len(names):
        raise ValueError(f"runners: got {names}; must have different names")
    named = dict(batches) if isinstance(batches, Mapping) else _by_shape(batches, names)
    times: Times = {(name, key): [] for key in named for name in names}
    calls = dict.fromkeys(times, 1)
    order, began = np.random.default_rng(0), 0.0
    with progress.counted("timing", (warmup + repeats) * len(named) * len(runners)) as done:
        for turn in range(-warmup, repeats):
            if turn >= min(FEWEST, repeats) and time.perf_counter() - began > seconds * turn / (turn + 1):
                break
            began = time.perf_counter() if turn == 0 else began
            for key, of_runner in named.items():
                for index in order.permutation(len(runners)):
                    runner = runners[index]
                    which, parts = (runner.name, key), of_runner[runner.name]
                    runner.run({name: value[:1] for name, value in parts[0].items()})
                    start = time.perf_counter()
                    for _ in range(calls[which]):
                        for part in parts:
                            runner.run(part)
                    elapsed = 1000 * (time.perf_counter() - start) / calls[which]
                    if turn < 0:
                        calls[which] = max(1, round(least_ms / max(elapsed, 1e-3)))
                    else:
                        times[which].append(elapsed)
                    done(1)
    return times


def requests(
    runners: Sequence[Runner], batches: Mapping[str, Sequence[Batch]], *, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each call of every runner on each of its batches, one call at a time, in their order.

    The batches are divided into rounds, in each of which every runner gets its share, in random order. An untimed call
    comes before, as in `measure`, but on the batch before the share: no call repeats the call before it.

    Args:
        batches: runner's name -> its batches, as many for each runner.
    """
    from distill.runtime import progress

    times: dict[str, list[float]] = {runner.name: [] for runner in runners}
    order = np.random.default_rng(0)
    with progress.counted("timing single texts", rounds * len(runners)) as done:
        for turn in range(rounds):
            for index in order.permutation(len(runners)):
                runner = runners[index]
                own = batches[runner.name]
                start, end = turn * len(own) // rounds, (turn + 1) * len(own) // rounds
                if start < end:
                    runner.run(own[start - 1])
                for batch in own[start:end]:
                    began = time.perf_counter()
                    runner.run(batch)
                    times[runner.name].append(1000 * (time.perf_counter() - began))
                done(1)
    return times


def _by_shape(batches: Sequence[Batch], names: Sequence[str]) -> dict[Key, Mapping[str, Sequence[Batch]]]:
    shaped: dict[Key, Mapping[str, Sequence[Batch]]] = {}
    for batch in batches:
        rows, length = batch["input_ids"].shape
        shaped.setdefault((rows, length), {name: [batch] for name in names})
    return shaped


def summary(times: Sequence[float]) -> dict[str, Any]:
    """Median and 90th percentile, in the unit of `times`, and the number of `times`."""
    return {
        "median": float(np.median(times)),
        "p90": float(np.percentile(times, 90)),
        "repeats": len(times),
    }


def percentiles(times: Sequence[float]) -> dict[str, Any]:
    """Number of `times`, at least one; their median, and their 95th and 99th percentiles, in their unit."""
    middle, high, highest = np.percentile(times, [50, 95, 99])
    return {"count": len(times), "p50": float(middle), "p95": float(high), "p99": float(highest)}


def speedup(reference_times: Sequence[float], times: Sequence[float]) -> dict[str, Any]:
    """Median of the ratios of the reference's times to these: `{"median": ..., "ci95": [low, high]}`.

    Both lists have one time for each round, in the same order. The interval is from Student's t, of the logarithms of
    the ratios, with the standard error of a median of normal values (sqrt(pi / 2) times that of their mean). A
    bootstrap of a few rounds includes the truth too rarely: of four in 86% of the cases. That of a single round has no
    width.

    Raises:
        ValueError: for lists of different lengths.
    """
    reference, own = _paired(reference_times, times)
    ratios = reference / own
    middle, n, half = float(np.median(ratios)), len(ratios), 0.0
    if n > 1:
        from scipy.special import stdtrit  # not to serve a model

        half = float(stdtrit(n - 1, 0.975) * np.log(ratios).std(ddof=1) * math.sqrt(math.pi / 2 / n))
    return {"median": middle, "ci95": [middle * math.exp(-half), middle * math.exp(half)]}


def ratio_of_medians(
    reference_times: Sequence[float], times: Sequence[float], distinct: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Ratio of the reference's median time to the median of these, in the form of `speedup`.

    Both lists have one time for each text, in the same order. The interval is from 1000 bootstrap resamples of the
    texts, each with all of its times.

    Args:
        distinct: number of different texts, which are repeated in their order; None for all.

    Raises:
        ValueError: for lists of different lengths.
    """
    reference, own = _paired(reference_times, times)
    texts = min(distinct or len(own), len(own))
    drawn = np.random.default_rng(seed).integers(0, texts, (1000, texts))
    # Of the last repetition, which may have fewer texts, none counts here.
    whole = np.arange(len(own) // texts)[:, None] * texts
    places = (drawn[:, None, :] + whole).reshape(1000, -1)
    ratios = np.median(reference[places], axis=1) / np.median(own[places], axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return {"median": float(np.median(reference) / np.median(own)), "ci95": [float(low), float(high)]}


def _paired(reference_times: Sequence[float], times: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(reference_times) != len(times):
        raise ValueError(f"times: got {len(reference_times)} and {len(times)} rounds; must be equal")
    return np.asarray(reference_times, np.float64), np.asarray(times, np.float64)
