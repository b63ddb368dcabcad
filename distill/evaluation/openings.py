"""Openings: the times at which a run read the rows that it reports, to score models on them."""

from __future__ import annotations

from distill.evaluation.record import Count, Record, Text


class Opening(Record, frozen=True):
    """One split of one task, written down before any model is scored on it."""

    time: Text
    """In UTC, as in ISO 8601."""
    task: Text
    split: Text
    rows: Count
    fingerprint: Text
    """Hash of the texts of the rows, in any order, and of the names of their labels."""
    settings: Text
    """Hash of the run's settings, and of the data and models that it was given."""
    purpose: str
    """`report.purpose`."""
    command: str
    version: Text
    """Of distill."""
    commit: Text | None
    """Of distill's source; None for an installed package."""
    dirty: bool | None
    """Whether files of that commit were changed; None without a commit."""
    others: Count | None
    """Number of other settings with which runs that share its cache had read the same rows; None without a cache, which
    has the record of them."""
