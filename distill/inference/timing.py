"""Times batches of a fixed shape, texts of the tasks at their own lengths in batches and one at a time, and their
tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice, zip_longest
from typing import Any

import numpy as np

from distill.config.loads import SINGLE_TEXTS as SINGLE_TEXTS
from distill.data.asked import Asked, encode
from distill.data.collate import pad
from distill.inference import latency
from distill.inference.energy import Meter, Missing
from distill.inference.runners import Batch, Run, Runner, joined

OWN = "own"
"""`target.shape` for texts as long as the tasks' own."""
TASK_ROWS, TASK_BATCH = 32, 8
AT_ONCE = 32
"""Most sequences of texts in one call of a model, as in `distill.load`: one text may be hundreds of windows."""
TASK_LENGTHS = f"{TASK_ROWS} rows of the tasks at their own lengths, at most {TASK_BATCH} at a time"

MOST_SECONDS = 120.0
"""Maximum seconds for the rounds of one input. If they would take longer, there are fewer rounds."""
REQUESTS, SMOKE_REQUESTS = 200, 4
"""Number of single texts, and the same in smoke runs."""

Times = dict[str, dict[str, list[float]]]
"""Variant -> name of the inputs -> milliseconds of each round, or of each text with `SINGLE_TEXTS`."""


@dataclass(frozen=True)
class Timed:
    """The measured times, in a form that JSON can store. Times under one name have the same rounds or texts, in the
    same order, for all variants and tokenizers."""

    times: Times
    """From token ids to outputs."""
    tokenizer: Times
    """From texts to token ids, by all tokenizers of the variant, with `TASK_LENGTHS` and `SINGLE_TEXTS`."""
    distinct: int
    """Number of different texts among the single ones."""
    energy: dict[str, float]
    """Variant -> joules of a single text, mean over texts; empty if energy cannot be measured."""
    energy_missing: str | None
    """Why it cannot be measured."""

    def from_text(self, name: str, inputs: str) -> list[float]:
        """Milliseconds from texts to outputs of a variant, in each round or for each text."""
        both = zip(self.times[name][inputs], self.tokenizer[name][inputs], strict=True)
        return [model + tokenizer for model, tokenizer in both]


@dataclass(frozen=True)
class Readers:
    """The tokenizers of each variant, one for each of its models."""

    of: Mapping[str, Sequence[Any]]
    every: Sequence[Any]
    """The tokenizers of all models of the run, each once: synthetic tokens are in the vocabulary of each."""
    serving: Mapping[str, Sequence[Any]]
    """The tokenizers of `of`, as they are when the variant serves: those of transformers, or of their library alone,
    which make the same tokens."""

    @cached_property
    def timed(self) -> list[Any]:
        """The tokenizers that are timed, each once."""
        return list({id(each): each for own in self.serving.values() for each in own}.values())

    def synthetic(self, name: str, shape: Sequence[int]) -> Batch:
        """Random tokens that are in every vocabulary, except special tokens."""
        vocabulary = min(map(len, self.every))

        def batch(tokenizer: Any) -> Batch:
            special = tokenizer.all_special_ids
            return latency.synthetic((shape[0], shape[1]), vocabulary, last_special(tokenizer), without=special)

        return joined([batch(tokenizer) for tokenizer in self.of[name]])

    def batches(self, parts: Sequence[Sequence[Asked]], longest: int) -> dict[str, list[Batch]]:
        """Variant or tokenizer -> its batches: token ids for a variant, rows for a tokenizer."""
        made = {id(each): [tokenized(part, each, longest) for part in parts] for each in self.every}
        texts: list[Batch] = [{_ROWS: np.fromiter(part, object, len(part))} for part in parts]
        of_variants = {
            name: [joined(list(models)) for models in zip(*(made[id(each)] for each in own), strict=True)]
            for name, own in self.of.items()
        }
        return of_variants | dict.fromkeys(map(_named, self.timed), texts)

    def runners(self, longest: int) -> list[Runner]:
        """The tokenizers as runners, which are timed as variants are: from texts to a padded batch of token ids."""

        def runner(tokenizer: Any) -> Runner:
            def run(batch: Batch) -> np.ndarray:
                return tokenized(list(batch[_ROWS]), tokenizer, longest)["input_ids"]

            return Runner(_named(tokenizer), "", "", run)

        return [runner(tokenizer) for tokenizer in self.timed]

    def tokenizing(self, name: str, times: Times, inputs: str) -> list[float]:
        """Milliseconds of all tokenizers of a variant, in each round or for each text."""
        each = [times[_named(tokenizer)][inputs] for tokenizer in self.serving[name]]
        return [sum(values) for values in zip(*each, strict=True)]


_ROWS = "rows"
"""The array [B] of `Asked` in a batch of a tokenizer."""


def _named(tokenizer: Any) -> str:
    return f"tokenizer {id(tokenizer)}"


def last_special(tokenizer: Any) -> int | None:
    """The special token at the end of a text, if any: BART and T5 classify at its position."""
    last: int = tokenizer("a")["input_ids"][-1]
    return last if last in tokenizer.all_special_ids else None


def timed(
    runners: Sequence[Runner],
    readers: Readers,
    shapes: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Asked]],
    longest: int,
    *,
    repeats: int,
    requests: int,
    least_ms: float,
    meter: Meter | Missing,
    log: Callable[[str], None],
) -> Timed:
    """Time all runners on every shape, on texts of the tasks in batches, and on single texts; and all tokenizers on
    the same texts, in the same rounds.

    Args:
        rows: of each task.
        longest: number of tokens from which on texts are cut.
        repeats: number of rounds; fewer, but at least `latency.FEWEST`, where they take longer than `MOST_SECONDS`.
        requests: number of single texts, spread over the rounds.
    """
    names, tokenizers = [runner.name for runner in runners], readers.runners(longest)
    inputs: dict[str, dict[str, list[Batch]]] = {
        f"{count}x{length}": {name: [readers.synthetic(name, [count, length])] for name in names}
        for count, length in shapes
    }
    single, together = drawn(rows, requests), by_length(drawn(rows, TASK_ROWS), readers.every[0], longest)
    own = {TASK_LENGTHS: together, SINGLE_TEXTS: [[row] for row in single]}
    of_texts = {inputs: readers.batches(parts, longest) for inputs, parts in own.items()}
    reading = [replace(runner, run=_in_parts(runner.run)) for runner in runners]
    inputs[TASK_LENGTHS] = of_texts[TASK_LENGTHS]
    times: Times = {name: {} for name in (*names, *(tokenizer.name for tokenizer in tokenizers))}
    for key, batches in inputs.items():
        log(f"timing {len(runners)} variants, {key}")
        both = [*reading, *tokenizers] if key in of_texts else runners
        measured = latency.measure(both, {key: batches}, repeats=repeats, least_ms=least_ms, seconds=MOST_SECONDS)
        for (name, _), values in measured.items():
            times[name][key] = values
    log(f"timing {len(runners)} variants, {len(single)} single texts")
    answered = latency.requests([*reading, *tokenizers], of_texts[SINGLE_TEXTS], rounds=repeats)
    for name, values in answered.items():
        times[name][SINGLE_TEXTS] = values
    of_variants = {name: {key: readers.tokenizing(name, times, key) for key in of_texts} for name in names}
    found = {name: times[name] for name in names}
    distinct = len(set(map(repr, single)))
    if isinstance(meter, str):
        return Timed(found, of_variants, distinct, {}, meter)
    log(f"energy of {len(runners)} variants, {len(single)} single texts")
    joules = {runner.name: _joules(meter, runner, of_texts[SINGLE_TEXTS][runner.name]) for runner in reading}
    return Timed(found, of_variants, distinct, joules, None)


def named(timed: Timed, of: Mapping[str, str]) -> Timed:
    """The times under other names. `of`: name -> the variant whose times it gets."""
    times, tokenizer = ({name: each[own] for name, own in of.items()} for each in (timed.times, timed.tokenizer))
    energy = {name: timed.energy[own] for name, own in of.items() if own in timed.energy}
    return replace(timed, times=times, tokenizer=tokenizer, energy=energy)


def _joules(meter: Meter, runner: Runner, batches: Sequence[Batch]) -> float:
    """Mean joules of a runner's call on one of the batches, after one that is not counted."""

    def work() -> None:
        for batch in batches:
            runner.run(batch)

    runner.run(batches[0])
    return meter(work) / len(batches)


def drawn(tasks: Sequence[Sequence[Asked]], count: int) -> list[Asked]:
    """This number of rows, in random order, from all tasks in turn. None comes twice before every other came.

    The rows of a task are ordered by their characters, and drawn at even distances. 32 rows that were drawn at random
    would have up to a quarter more or less tokens than others of the same task.
    """
    random, seen = np.random.default_rng(0), set[str]()
    different: list[list[Asked]] = []
    for rows in tasks:
        own = {text: row for row in rows if (text := repr(row)) not in seen}
        seen |= own.keys()
        different.append([own[text] for text in sorted(own, key=lambda text: (len(text), text))])
    longest = max(map(len, different), default=0)
    turns = (number for turn in range(longest) for number, rows in enumerate(different) if turn < len(rows))
    shares = Counter(islice(turns, count))
    chosen = [
        [rows[(2 * place + 1) * len(rows) // (2 * shares[number])] for place in random.permutation(shares[number])]
        for number, rows in enumerate(different)
    ]
    every = [row for turn in zip_longest(*chosen) for row in turn if row is not None]
    return list(islice(cycle(every), count))


def by_length(rows: Sequence[Asked], tokenizer: Any, longest: int) -> list[list[Asked]]:
    """Rows in batches of at most `TASK_BATCH`, of one layout and of similar length in tokens."""

    def length(row: Asked) -> int:
        return int(tokenized([row], tokenizer, longest)["attention_mask"].sum())

    alike: dict[tuple[str, int], list[Asked]] = {}
    for row in rows:
        alike.setdefault((row.architecture, len(row.parts)), []).append(row)
    ordered = [sorted(each, key=length) for each in alike.values()]
    return [each[start : start + TASK_BATCH] for each in ordered for start in range(0, len(each), TASK_BATCH)]


def tokenized(rows: Sequence[Asked], tokenizer: Any, longest: int) -> Batch:
    """All sequences of all rows, which are of one layout."""
    encoded = encode(rows[0].architecture, [row.parts for row in rows], tokenizer, longest)
    sequences = range(len(encoded.offsets) - 1)
    return pad(encoded, sequences, tokenizer.pad_token_id, tokenizer.padding_side == "left")


def divided(batch: Batch) -> list[Batch]:
    """The batch in equal parts of at most `AT_ONCE` sequences. Each part of a `joined` batch has some of each model."""
    count = -(-max(map(len, batch.values())) // AT_ONCE)
    parts = {key: np.array_split(value, count) for key, value in batch.items()}
    return [{key: values[number] for key, values in parts.items()} for number in range(count)]


def _in_parts(run: Run) -> Run:
    """`run` on the parts of a batch, one after the other. Its outputs, which timings do not read, are the last ones."""
    return lambda batch: [run(part) for part in divided(batch)][-1]


def shapes(configured: Sequence[Sequence[int]], target: Sequence[int] | None) -> list[list[int]]:
    """The shapes to time: the configured ones, preceded by the target's shape if it is not among them."""
    extra = [target] if target is not None and list(target) not in [list(shape) for shape in configured] else []
    return [list(shape) for shape in dict.fromkeys(map(tuple, [*extra, *configured]))]
