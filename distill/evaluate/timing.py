"""The inputs of timings: batches of a fixed shape, and rows of the tasks at their own lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distill.data.collate import pad
from distill.data.encode import Encoded
from distill.evaluate import latency
from distill.evaluate.runners import Batch, Runner, joined

TASK_ROWS, TASK_BATCH = 32, 8
TASK_LENGTHS = f"{TASK_ROWS} rows of the tasks at their own lengths, at most {TASK_BATCH} at a time"

Times = dict[str, dict[str, list[float]]]
"""Variant -> name of the inputs -> milliseconds of each round."""


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
            return latency.synthetic((shape[0], shape[1]), vocabulary, _last(tokenizer), without=special)

        return _together([batch(tokenizer) for tokenizer in self.of[name]])


def _last(tokenizer: Any) -> int | None:
    """The special token at the end of a text, if any: BART and T5 classify at its position."""
    last: int = tokenizer("a")["input_ids"][-1]
    return last if last in tokenizer.all_special_ids else None


def _together(batches: Sequence[Batch]) -> Batch:
    return batches[0] if len(batches) == 1 else joined(batches)


def timed(
    runners: Sequence[Runner],
    readers: Readers,
    shapes: Sequence[Sequence[int]],
    rows: Callable[[Any], list[Batch]],
    *,
    repeats: int,
    least_ms: float,
    log: Callable[[str], None],
) -> Times:
    """Time all runners on every shape, and on `rows` (tokenizer -> batches of the tasks' rows)."""
    names = [runner.name for runner in runners]
    inputs: dict[str, dict[str, list[Batch]]] = {
        f"{count}x{length}": {name: [readers.synthetic(name, [count, length])] for name in names}
        for count, length in shapes
    }
    own = {id(tokenizer): rows(tokenizer) for tokenizer in readers.every}
    inputs[TASK_LENGTHS] = {
        name: [_together(list(batches)) for batches in zip(*(own[id(t)] for t in readers.of[name]), strict=True)]
        for name in names
    }
    times: Times = {name: {} for name in names}
    for key, batches in inputs.items():
        log(f"timing {len(runners)} variants, {key}, {repeats} rounds")
        measured = latency.measure(runners, {key: batches}, repeats=repeats, least_ms=least_ms)
        for (name, _), values in measured.items():
            times[name][key] = values
    return times


def task_batches(tasks: Sequence[tuple[int, Encoded]], tokenizer: Any) -> list[Batch]:
    """Rows drawn evenly from the validation splits of all tasks; the same rows for every tokenizer.

    `tasks`: number of text columns and encoded rows of each task. A batch contains rows of similar length, either
    single texts or pairs.
    """
    random = np.random.default_rng(0)
    drawn: dict[int, list[tuple[Encoded, int]]] = {}
    for (columns, rows), _ in zip(_cycle(tasks), range(TASK_ROWS), strict=False):
        drawn.setdefault(columns, []).append((rows, int(random.integers(len(rows)))))
    batches = []
    for alike in drawn.values():
        alike.sort(key=lambda pair: int(pair[0].lengths[pair[1]]))
        for start in range(0, len(alike), TASK_BATCH):
            part = alike[start : start + TASK_BATCH]
            ids = [rows.ids[rows.offsets[i] : rows.offsets[i + 1]] for rows, i in part]
            together = Encoded(np.concatenate(ids), np.cumsum([0, *map(len, ids)]), None, None)
            pad_left = tokenizer.padding_side == "left"
            batches.append(pad(together, range(len(part)), tokenizer.pad_token_id, pad_left))
    return batches


def _cycle(values: Sequence[tuple[int, Encoded]]) -> Iterator[tuple[int, Encoded]]:
    while True:
        yield from values


def shapes(configured: Sequence[Sequence[int]], target: Sequence[int] | None) -> list[list[int]]:
    """The shapes to time: the configured ones, preceded by the target's shape if it is not among them.

    With three configured shapes, the middle one, at which speedups are reported, remains the middle one.
    """
    extra = [target] if target is not None and list(target) not in [list(shape) for shape in configured] else []
    return [list(shape) for shape in dict.fromkeys(map(tuple, [*extra, *configured]))]


def name_of(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
