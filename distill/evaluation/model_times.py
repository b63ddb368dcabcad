"""The times of a variant, and its speedups over variants of the teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import convert

from distill.config.loads import SINGLE_TEXTS
from distill.evaluation.measured import Measured
from distill.evaluation.time_results import FromText, Latency, Over, Ratio, Requests, Speedup
from distill.inference import latency
from distill.inference.timing import TASK_LENGTHS
from distill.inference.variants import Variant, same_backend


def of_input(inputs: str, values: list[float]) -> Latency:
    summary = latency.summary(values) | {"rounds": [round(value, 4) for value in values]}
    if inputs == TASK_LENGTHS:
        return Latency(batch=None, length=None, name=inputs, **summary)
    batch, length = inputs.split("x")
    return Latency(batch=int(batch), length=int(length), **summary)


def of_single_texts(times: Sequence[float], distinct: int) -> Requests:
    return convert(latency.percentiles(times) | {"distinct": distinct}, Requests)


def from_text(variant: Variant, measured: Measured, inputs: str) -> FromText:
    timed = measured.timed
    own, tokenizer = timed.from_text(variant.name, inputs), timed.tokenizer[variant.name][inputs]
    found = latency.percentiles(own)
    return FromText(
        median=found["p50"],
        p95=found["p95"],
        p99=found["p99"],
        tokenizer=sum(tokenizer) / sum(own),
        speedup=_over(measured, measured.references, variant, inputs, lambda v: timed.from_text(v.name, inputs))[1],
    )


def _over(
    measured: Measured,
    references: Sequence[Variant],
    variant: Variant,
    inputs: str,
    times: Callable[[Variant], Sequence[float]],
) -> tuple[Variant, Ratio]:
    """The fastest of the references, and the speedup over it: of single texts, the ratio of medians."""
    fastest = min(references, key=lambda v: float(np.median(times(v))))
    both = times(fastest), times(variant)
    single = inputs == SINGLE_TEXTS
    return fastest, convert(
        latency.ratio_of_medians(*both, measured.timed.distinct) if single else latency.speedup(*both), Ratio
    )


def speedup(variant: Variant, measured: Measured) -> Speedup:
    """Speedup over the variant of the teacher that is fastest on the same inputs.

    The headline is with the run's load: over all backends, and over the variants on the same backend.
    """
    same = [v for v in measured.references if v.backend == same_backend(variant)]  # empty if it does not run there

    def over(references: Sequence[Variant], inputs: str) -> tuple[Variant, Ratio]:
        return _over(measured, references, variant, inputs, lambda v: measured.timed.times[v.name][inputs])

    # the reference is always timed
    by_input = {inputs: over(measured.references, inputs)[1] for inputs in measured.timed.times[variant.name]}
    kept, ratio = over(measured.kept, measured.input)
    return Speedup(
        best_teacher=by_input[measured.input].median,
        ci95=by_input[measured.input].ci95,
        same_backend=over(same, measured.input)[1].median if same else None,
        by_input=by_input,
        over_kept=Over(scheme=kept.scheme, backend=kept.backend, median=ratio.median, ci95=ratio.ci95),
    )
