"""Coverage of 95% intervals over a few seeds, by simulation: how often each way includes the truth.

    python -m benchmarks.coverage --output benchmarks/results/coverage.json

A teacher, which all seeds share, and, for each seed, a student and a baseline answer the same rows. A row is harder or
easier for all of them alike (a Gaussian copula), so that the noise of the rows is shared by all runs, as in a report.
Models of different seeds differ in their true accuracy. The truth is the mean over all seeds and all rows: of retained
%, and of the gain in points.
Trains nothing, and takes about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.metadata import version
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import ndtri
from scipy.stats import t

from benchmarks.tables.speed import coverage_table
from distill.report import terminal
from distill.report.seeds import over_seeds
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware

ROWS, RESAMPLES, SIMULATIONS = 1000, 1000, 2000
SEEDS = (2, 3, 5)
TEACHER, STUDENT, BASELINE = 0.85, 0.82, 0.79
"""Mean accuracies."""
SPREAD = 0.015
"""Standard deviation of the true accuracy over seeds; that of the rows' part of a difference is about as large."""
COLLAPSE, LOST = 0.1, 0.25
"""How often a training fails, and the accuracy that it then loses."""
SHARED = 0.9
"""Correlation, over rows, of what decides whether two models are right."""
AT_ONCE = 100


def _normal(random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return random.normal(0, SPREAD, size)


def _skewed(random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return SPREAD * (1 - random.exponential(1, size))


def _collapsing(random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    """Its mean is 0 too."""
    return _normal(random, size) + LOST * (COLLAPSE - (random.random(size) < COLLAPSE))


TRAININGS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": _normal,
    "skewed": _skewed,
    "collapsing": _collapsing,
}
"""How the accuracy of trainings varies over seeds -> draws of it, with mean 0."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the coverages to FILE as JSON")
    arguments = parser.parse_args()
    versions = {name: version(name) for name in ("numpy", "scipy")}
    measured = {"environment": hardware(1) | versions, **simulated(SIMULATIONS, RESAMPLES)}
    shown, console = coverage_table(measured), Console()
    console.print(terminal.table(shown, width=console.width))
    if arguments.output is not None:
        write_json(arguments.output, measured)


def simulated(simulations: int, resamples: int, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """Coverage and median width of each way, for each measure, kind of training and number of seeds."""
    random = np.random.default_rng(0)
    # Which rows each resample draws is the same in all simulations, so that a product of matrices scores all of them at
    # once. Which models are right on a row is drawn anew in each.
    counts = random.multinomial(ROWS, np.full(ROWS, 1 / ROWS), resamples).astype(np.float32)
    found = []
    for training, draw in TRAININGS.items():
        for n in seeds:
            parts = [_simulation(random, counts, draw, n) for _ in range(-(-simulations // AT_ONCE))]
            for measure in parts[0]:
                ends = {way: np.concatenate([part[measure][way] for part in parts]) for way in parts[0][measure]}
                truth = 100 * (STUDENT / TEACHER if measure == "retained %" else STUDENT - BASELINE)
                found.append({"measure": measure, "training": training, "seeds": n, "ways": _outcome(ends, truth)})
    facts = {"simulations": simulations, "resamples": resamples, "scored_rows": ROWS, "spread": SPREAD}
    facts["shared"] = SHARED
    means = {"teacher": TEACHER, "student": STUDENT, "baseline": BASELINE, "collapse": COLLAPSE, "lost": LOST}
    return {**facts, **means, "rows": found}


def _outcome(ends: dict[str, np.ndarray], truth: float) -> dict[str, dict[str, float]]:
    """Way -> share of its intervals [simulations, 2] that include the truth, and their median width."""
    return {
        way: {
            "coverage": float(((both[:, 0] <= truth) & (truth <= both[:, 1])).mean()),
            "width": float(np.median(both[:, 1] - both[:, 0])),
        }
        for way, both in ends.items()
    }


def _simulation(
    random: np.random.Generator, counts: np.ndarray, draw: Callable[..., np.ndarray], n: int
) -> dict[str, dict[str, np.ndarray]]:
    """Measure -> way -> intervals [simulations, 2], of `AT_ONCE` simulations. counts: [resamples, rows]."""
    means = np.repeat([TEACHER, STUDENT, BASELINE], [1, n, n])
    accuracy = means + np.concatenate([np.zeros((AT_ONCE, 1)), draw(random, (AT_ONCE, 2 * n))], axis=1)
    hard = sqrt(SHARED) * random.standard_normal((ROWS, AT_ONCE, 1), np.float32)
    own = sqrt(1 - SHARED) * random.standard_normal((ROWS, AT_ONCE, 1 + 2 * n), np.float32)
    right = (hard + own < ndtri(accuracy)).astype(np.float32)
    drawn = (counts @ right.reshape(ROWS, -1) / ROWS).reshape(len(counts), *right.shape[1:])
    all_rows, on_draws = _measures(right.mean(axis=0), n), _measures(drawn, n)
    runs = random.integers(0, n, (*drawn.shape[:2], n))
    return {
        measure: _intervals(values, on_draws[measure], np.take_along_axis(on_draws[measure], runs, axis=2))
        for measure, values in all_rows.items()
    }


def _measures(scores: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Measure -> [..., n], from the accuracies [..., 1 + 2 n] of the teacher, students and baselines."""
    teacher, students, baselines = scores[..., :1], scores[..., 1 : 1 + n], scores[..., 1 + n :]
    return {"retained %": 100 * students / teacher, "gain": 100 * (students - baselines)}


def _intervals(values: np.ndarray, drawn: np.ndarray, of_drawn_seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Way -> [simulations, 2].

    Args:
        values: [simulations, n] of each run, on all rows.
        drawn: [resamples, simulations, n] on resampled rows, which are the same for all runs.
        of_drawn_seeds: the same of n runs that were drawn again.
    """
    n, rows = values.shape[1], np.moveaxis(np.percentile(drawn, [2.5, 97.5], axis=0), 0, 2)
    ours = [over_seeds(list(of_runs), ends.tolist()) for of_runs, ends in zip(values, rows, strict=True)]
    middle, deviation = values.mean(axis=1), values.std(axis=1, ddof=1)
    half = t.ppf(0.975, n - 1) * deviation / sqrt(n)
    return {
        "rows_and_seeds": np.array(ours),
        "hierarchical": np.percentile(of_drawn_seeds.mean(axis=2), [2.5, 97.5], axis=0).T,
        "seeds_alone": np.stack([middle - half, middle + half], axis=1),
        "deviation": np.stack([middle - deviation, middle + deviation], axis=1),
    }


if __name__ == "__main__":
    main()
