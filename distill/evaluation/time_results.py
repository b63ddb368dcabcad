"""The times of `results.json`: of fixed shapes, of the texts of the tasks, and speedups."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from distill.evaluation.record import Amount, Count, Interval, Record, Share, Text


class Latency(Record, frozen=True):
    """Milliseconds with one input. If its texts have different lengths, batch and length are None and it has a name."""

    batch: Count | None
    length: Count | None
    median: Amount
    p90: Amount | None
    repeats: Count
    name: Text = ""
    rounds: list[Amount] = []
    """The times of all rounds, in each of which all models are timed one after the other."""

    @property
    def input(self) -> str:
        """The name of the input; that of a fixed shape is batch x length, e.g. `8x128`."""
        return self.name or f"{self.batch}x{self.length}"


class Ratio(Record, frozen=True):
    median: Amount
    ci95: Interval


KEPT = 99.5
"""Least percent of its float32 score that a variant of the teacher keeps, on development rows, for users to take it."""


class Over(Record, frozen=True):
    """Speedup over another variant of the teacher."""

    scheme: Text
    backend: Text
    median: Amount
    ci95: Interval


class Speedup(Record, frozen=True):
    """Over the teacher's fastest float32 variant, with the run's load."""

    best_teacher: Amount | None
    ci95: Interval | None
    same_backend: Amount | None
    by_input: dict[str, Ratio] = {}
    """Name of the timed inputs -> speedup with them."""
    over_kept: Over | UnsetType | None = UNSET
    """Over the teacher's fastest variant that keeps `KEPT` percent of its score, with the run's load."""


class Requests(Record, frozen=True):
    """Milliseconds of single texts of the tasks, one at a time."""

    count: Count
    p50: Amount
    p95: Amount
    p99: Amount
    distinct: Count | UnsetType = UNSET
    """Number of different texts among them."""


class FromText(Record, frozen=True):
    """Times from texts to outputs: the tokenizer's and the model's together."""

    median: Amount
    """Milliseconds."""
    p95: Amount
    p99: Amount
    tokenizer: Share
    """Share of the tokenizer in the sum of all times."""
    speedup: Ratio
    """Over the teacher's float32 variant that is fastest from texts, with its own tokenizer."""
