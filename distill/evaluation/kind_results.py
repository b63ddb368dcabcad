"""Parts of `results.json` that only some kinds of tasks have."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from distill.evaluation.record import Count, Interval, Number, Record

Threshold = Annotated[float, Meta(ge=1e-12, le=1 - 1e-12)]
"""A probability whose log-odds are not beyond `detecting.LARGEST`."""


class Detection(Record, frozen=True):
    """How well the rows with a label are told from the rows without it, in percent: see `detection`.

    None stands for a number that is not defined, because there is no row with the label or no row without it. Intervals
    of 95% are about the reported rows as a sample of independent rows, even if some share a text: of the area by
    DeLong's variance, of shares by Wilson's formula. An area without an interval has too few rows, or none in another
    order.
    """

    positives: Count
    """Reported rows with the label."""
    negatives: Count
    """Reported rows without it."""
    roc_auc: Number | None
    average_precision: Number | None
    threshold: Threshold | None
    """The probability, before temperature scaling, from which on a row is said to have the label. It was chosen on
    development rows, and cannot be compared with scores of predictions, which are scaled."""
    chosen_on: Count
    """Development rows without the label, of which few reach the threshold."""
    recall: Number | None
    """With this threshold, on the reported rows."""
    false_positives: Number | None
    """Percent of the reported rows without the label that reach the threshold."""
    roc_auc_ci95: Interval | None = None
    recall_ci95: Interval | None = None
    """With this threshold: it does not include the uncertainty of the threshold."""
    false_positives_ci95: Interval | None = None


class VectorForm(Record, frozen=True):
    """Vectors in one form: see `vector_forms`."""

    bytes: Count
    """Of one vector."""
    scores: dict[str, Number]
    """Metric -> percent, by the cosines of vectors in this form."""


class Entities(Record, frozen=True):
    """Spans of a type: see `entities`. Each true span is exact, overlapping, mistyped, or none of these."""

    precision: Number
    recall: Number
    f1: Number
    true: Count
    predicted: Count
    exact: Count
    """True spans that are predicted with their words and their type."""
    overlapping: Count
    """Other true spans that share a word with a predicted span of their type."""
    mistyped: Count
    """True spans whose words are predicted as a span of another type."""
