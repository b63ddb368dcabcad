"""Times batches of a fixed shape, rows of the tasks at their own lengths, and single requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from distill.data.collate import pad
from distill.data.encode import Encoded
from distill.inference import latency
from distill.inference.energy import Meter, Missing
from distill.inference.runners import Batch, Runner, joined

OWN = "own"
"""`target.shape` for texts as long as the tasks' own."""
TASK_ROWS, TASK_BATCH = 32, 8
TASK_LENGTHS = f"{TASK_ROWS} rows of the tasks at their own lengths, at most {TASK_BATCH} at a time"

MOST_SECONDS = 60.0
"""Maximum seconds for the rounds of one input. If they would take longer, there are fewer rounds."""
REQUESTS, SMOKE_REQUESTS = 200, 4
"""Least number of single requests, and the same in smoke runs."""

Times = dict[str, dict[str, list[float]]]
"""Variant -> name of the inputs -> milliseconds of each round."""


@dataclass(frozen=True)
class Timed:
    """The measured times, in a form that JSON can store."""

    times: Times
    requests: dict[str, list[float]]
    """Variant -> milliseconds of each request of a single row."""
    energy: dict[str, float]
    """Variant -> joules of one such request, mean over requests; empty if energy cannot be measured."""
    energy_missing: str | None
    """Why it cannot be measured."""


@dataclass(frozen=True)
class Readers:
    """The tokenizers of each variant, one for each of its models."""

    of: Mapping[str, Sequence[Any]]
    every: Sequence[Any]
    """The tokenizers of all models of the run: synthetic tokens are in the vocabulary of each."""

    def synthetic(self, name: str, shape: Sequence[int]) -> Batch:
        """Random tokens that are in every vocabulary, except special tokens."""
        vocabulary = min(map(len, self.every))

        def batch(tokenizer: Any) -> Batch:
            special = tokenizer.all_special_ids
            return latency.synthetic((shape[0], shape[1]), vocabulary, last_special(tokenizer), without=special)

        return joined([batch(tokenizer) for tokenizer in self.of[name]])


def last_special(tokenizer: Any) -> int | None:
    """The special token at the end of a text, if any: BART and T5 classify at its position."""
    last: int = tokenizer("a")["input_ids"][-1]
    return last if last in tokenizer.all_special_ids else None


def timed(
    runners: Sequence[Runner],
    readers: Readers,
    shapes: Sequence[Sequence[int]],
    rows: Callable[[Any], Sequence[tuple[int, Encoded]]],
    *,
    repeats: int,
    requests: int,
    least_ms: float,
    meter: Meter | Missing,
    log: Callable[[str], None],
) -> Timed:
    """Time all runners on every shape, on rows of the tasks in batches, and on single rows, one request at a time.

    Args:
        rows: tokenizer -> number of text columns and encoded rows of each task.
        repeats: number of rounds; fewer, but at least `latency.FEWEST`, where they take longer than `MOST_SECONDS`.
        requests: least number of single requests, spread over the rounds.
    """
    names = [runner.name for runner in runners]
    inputs: dict[str, dict[str, list[Batch]]] = {
        f"{count}x{length}": {name: [readers.synthetic(name, [count, length])] for name in names}
        for count, length in shapes
    }
    own = {id(tokenizer): rows(tokenizer) for tokenizer in readers.every}

    def of_rows(batches: Callable[[Any], list[Batch]]) -> dict[str, list[Batch]]:
        by_tokenizer = {id(tokenizer): batches(tokenizer) for tokenizer in readers.every}
        of_models = {name: [by_tokenizer[id(tokenizer)] for tokenizer in readers.of[name]] for name in names}
        return {name: [joined(parts) for parts in zip(*own, strict=True)] for name, own in of_models.items()}

    inputs[TASK_LENGTHS] = of_rows(lambda tokenizer: task_batches(own[id(tokenizer)], tokenizer))
    times: Times = {name: {} for name in names}
    for key, batches in inputs.items():
        log(f"timing {len(runners)} variants, {key}")
        measured = latency.measure(runners, {key: batches}, repeats=repeats, least_ms=least_ms, seconds=MOST_SECONDS)
        for (name, _), values in measured.items():
            times[name][key] = values
    log(f"timing {len(runners)} variants, {requests} single requests")
    single = of_rows(lambda tokenizer: task_requests(own[id(tokenizer)], tokenizer, requests))
    answered = latency.requests(runners, single, rounds=repeats)
    if isinstance(meter, str):
        return Timed(times, answered, {}, meter)
    log(f"energy of {len(runners)} variants, {requests} single requests")
    return Timed(times, answered, {r.name: _joules(meter, r, single[r.name]) for r in runners}, None)


def _joules(meter: Meter, runner: Runner, batches: Sequence[Batch]) -> float:
    """Mean joules of a runner's call on one of the batches, after one that is not counted."""

    def work() -> None:
        for batch in batches:
            runner.run(batch)

    runner.run(batches[0])
    return meter(work) / len(batches)


def task_batches(tasks: Sequence[tuple[int, Encoded]], tokenizer: Any) -> list[Batch]:
    """Batches of rows of similar length, either single texts or pairs, drawn as `_drawn` does."""
    drawn: dict[int, list[tuple[Encoded, int]]] = {}
    for columns, rows, row in _drawn(tasks, TASK_ROWS):
        drawn.setdefault(columns, []).append((rows, row))
    batches = []
    for alike in drawn.values():
        alike.sort(key=lambda pair: int(pair[0].lengths[pair[1]]))
        batches += [_batch(alike[i : i + TASK_BATCH], tokenizer) for i in range(0, len(alike), TASK_BATCH)]
    return batches


def task_requests(tasks: Sequence[tuple[int, Encoded]], tokenizer: Any, count: int) -> list[Batch]:
    """Batches of a single row, drawn as `_drawn` does, in the order in which they are drawn."""
    return [_batch([(rows, row)], tokenizer) for _, rows, row in _drawn(tasks, count)]


def _drawn(tasks: Sequence[tuple[int, Encoded]], count: int) -> Iterator[tuple[int, Encoded, int]]:
    """(number of text columns, encoded rows of a task, a row of them), drawn evenly from the reported splits of all
    tasks; the same rows for every tokenizer. `tasks`: number of text columns and encoded rows of each task."""
    random = np.random.default_rng(0)
    for columns, rows in islice(cycle(tasks), count):
        yield columns, rows, int(random.integers(len(rows)))


def _batch(drawn: Sequence[tuple[Encoded, int]], tokenizer: Any) -> Batch:
    ids = [rows.ids[rows.offsets[i] : rows.offsets[i + 1]] for rows, i in drawn]
    rows_drawn = Encoded(np.concatenate(ids), np.cumsum([0, *map(len, ids)]), None, None)
    return pad(rows_drawn, range(len(drawn)), tokenizer.pad_token_id, tokenizer.padding_side == "left")


def shapes(configured: Sequence[Sequence[int]], target: Sequence[int] | None) -> list[list[int]]:
    """The shapes to time: the configured ones, preceded by the target's shape if it is not among them."""
    extra = [target] if target is not None and list(target) not in [list(shape) for shape in configured] else []
    return [list(shape) for shape in dict.fromkeys(map(tuple, [*extra, *configured]))]


def name_of(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
