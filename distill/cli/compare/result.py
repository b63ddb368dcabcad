"""The result of a comparison in sentences, which claim no more than its numbers support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.data.task_types import TASK_TYPES
from distill.evaluation import few_rows
from distill.report.model_rows import counted

LEVEL = 0.05
"""A difference with a smaller p is called detected."""
FEWEST = 6
"""With fewer rows on which only one model is correct, McNemar's exact test cannot give p below 0.05."""


def sentences(comparison: dict[str, Any]) -> list[str]:
    """Scores, agreement and latency of two models, one sentence each."""
    return [*_scores(comparison), _agreement(comparison), *_latency(comparison)]


def _scores(comparison: dict[str, Any]) -> Iterator[str]:
    if comparison["scores"] is None:
        yield "The file has no labels, so that the comparison does not show which model is better."
        return
    metric = next(iter(comparison["scores"]))
    values, rows = comparison["scores"][metric], comparison["labelled_rows"]
    numbers = f"{values['a']:.1f} (A) and {values['b']:.1f} (B) on {counted(rows, 'labelled row')}"
    test = comparison["mcnemar"]
    interval, apart = _interval(values["ci95"])
    few = test is None and values["differing"] < few_rows.FEWEST
    detected = apart and not few if test is None else test["p"] < LEVEL
    stated = "" if test is None else f"McNemar's exact test, {probability(test['p'])}; "
    if detected:
        comparative = "higher" if values["difference"] > 0 else "lower"
        yield f"The {metric} of B is {comparative} than that of A: {numbers} ({stated}{interval})."
        return
    yield f"No difference in {metric} was detected: {numbers} ({stated}{interval})."
    if test is not None and (only := test["only_a"] + test["only_b"]) < FEWEST:
        yield (
            f"Exactly one of the models is correct on {counted(only, 'row')}; with fewer than {FEWEST} such rows, "
            "McNemar's exact test cannot detect a difference."
        )
    if apart and few:
        yield (
            f"The two differ in {metric} on {counted(values['differing'], 'row')}, or groups of rows that are drawn "
            f"together. With fewer than {few_rows.FEWEST}, a bootstrap detects differences too often."
        )


def _interval(ends: list[float] | None) -> tuple[str, bool]:
    """An interval of the difference in words, and whether it is without 0."""
    if ends is None:
        return "no interval, because the difference is the same in every resample", False
    return f"95% interval of B - A, by a paired bootstrap: {ends[0]:+.1f} to {ends[1]:+.1f}", ends[0] > 0 or ends[1] < 0


def _agreement(comparison: dict[str, Any]) -> str:
    values, rows = comparison["agreement"], counted(comparison["rows"], "row")
    if "words" in values:
        low, high = values["ci95"]
        found = values["spans"]
        spans = (
            "Neither finds a span" if found is None else f"F1 of the spans of one against the other's is {found:.1f}%"
        )
        return (
            f"The tags are the same on {values['percent']:.1f}% of {counted(values['words'], 'word')} of {rows} (95% "
            f"interval {low:.1f} to {high:.1f}, by a bootstrap over rows). {spans}."
        )
    if "percent" in values:
        low, high = values["ci95"]
        ends = f"95% interval {low:.1f} to {high:.1f}"
        return f"The predictions are the same on {values['percent']:.1f}% of {rows} ({ends})."
    compared = "cosines of the two texts of" if TASK_TYPES[comparison["kind"]].separate else "predictions for"
    return (
        f"The {compared} {rows} have a Pearson correlation of {values['pearson']:.3f}, a Spearman correlation of "
        f"{values['spearman']:.3f} and a mean absolute difference of {values['mean_absolute_difference']:.3g}."
    )


def _latency(comparison: dict[str, Any]) -> Iterator[str]:
    for row in comparison["latency"]:
        (low, high), median = row["speedup"]["ci95"], row["speedup"]["median"]
        ends = f"95% interval {low:.2f} to {high:.2f}"
        if low <= 1 <= high:
            yield f"At batch size {row['batch']} no difference in speed was detected ({median:.2f}x, {ends})."
        else:
            yield f"At batch size {row['batch']} B runs at {median:.2f}x the speed of A ({ends})."


def probability(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
