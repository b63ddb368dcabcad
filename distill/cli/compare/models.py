"""Two models on the rows of a file: their kind and labels, their outputs, and their latency. torch is imported late."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.cli.compare.rows import Rows
from distill.data.labels import head_order
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES, TaskType
from distill.data.vectors import prompts_of
from distill.deploy.export.record import FILE, located, read
from distill.errors import ConfigError, reworded
from distill.models.families.head import SEVERAL, Head, stored_head, without_defaults
from distill.models.families.record import TEXTS, VECTORS
from distill.models.readable import encodable

if TYPE_CHECKING:
    from distill.deploy.serve import Model
    from distill.inference.runners import Batch, Runner

BATCHES = (1, 8)
TIMED_ROWS = 16
ROUNDS = 15
"""Rounds of the timing; each times both models at every batch size."""


def columns_of(folder: str | Path) -> tuple[Sequence[str], Sequence[str], str, bool, Head | None]:
    """The text columns and the columns of choices that an exported folder states, none for another folder; the
    architecture of its model; whether its outputs are labels with names, not numbers; and its head. Errors are about
    B."""
    with _named("B"):
        path = located(folder)
        record = read(path)
        if record is None:
            head = stored_head(path)
            number = head is not None and head.outputs == 1 and head.problem != SEVERAL
            number |= head is not None and head.architecture == VECTORS
            return (), (), TEXTS if head is None else head.architecture, not number, head
    kind = record.kind
    head = Head(len(record.labels) or kind.outputs, record.labels, kind.problem, kind.architecture)
    # An embedder states the column of single texts, and pairs are compared.
    return () if kind.separate else record.columns, record.choices, kind.architecture, kind.named, head


def loaded(
    folders: Sequence[str | Path], backends: Sequence[str | None], windows: bool, log: Callable[[str], None]
) -> list[Model]:
    """The models of A and B. UserError for a folder that cannot be loaded, or has several heads."""
    from distill.deploy.serve import Model, load

    models: list[Model] = []
    for name, folder, backend in zip("AB", folders, backends, strict=True):
        with _named(name):
            read(located(folder))  # refuses a folder with several heads
            model = load(folder, backend=backend, windows=windows, say=log)
            assert isinstance(model, Model)
            models.append(model)
        log(f"{name}: {folder}, {model.backend} {model.scheme}")
    return models


def _named(name: str) -> AbstractContextManager[None]:
    """Name the model and the options in errors about its folder."""
    words = {"folder": name, "backend": f"--backend, {name}", "windows": f"--windows, {name}"}
    return reworded(lambda line: re.sub("^(folder|backend|windows)(?=:)", lambda found: words[found[0]], line))


def kinds_of(models: Sequence[Model], ranked: Callable[[], bool]) -> tuple[TaskType, TaskType]:
    """The kinds of two models. A folder that was not exported states only `problem_type`, if that, and so does one that
    was quantized outside a run: where the other's kind fits its outputs, as a reranker's does a regression's, it is of
    that kind.

    Args:
        ranked: whether the rows are queries and documents. Embedders that were not exported are then retrievers.
    """
    a, b = models
    kinds = [model.kind for model in models]
    exported = [bool(model.columns) and (model.folder / FILE).is_file() for model in models]  # with a task
    if not any(exported) and all(kind.separate for kind in kinds) and ranked():
        return TASK_TYPES["retrieval"], TASK_TYPES["retrieval"]
    for number, (model, other) in enumerate(((a, b), (b, a))):
        head = None if exported[number] else stored_head(model.folder)
        fits = head is not None and head.problem in (None, other.kind.problem)
        fits = fits and model.kind.architecture == other.kind.architecture
        if fits and exported[1 - number] and bool(model.labels) == other.kind.named:
            kinds[number] = other.kind
    return kinds[0], kinds[1]


def common(
    kinds: tuple[TaskType, TaskType], labels: tuple[Sequence[str], Sequence[str]]
) -> tuple[Head, tuple[int, ...]]:
    """The labels of two models, A and B, in the order of A, and for each of them its output of B.

    Labels are matched by name. Where one model has no names, its outputs are those of the other in order.

    Raises:
        ConfigError: for models of different kinds, or with different labels.
    """
    of_a, of_b = kinds
    if of_a.name != of_b.name:
        raise ConfigError(
            f"B: got a model that {of_b.summary} ({of_b.name}); must be of A's kind, which {of_a.summary} "
            f"({of_a.name}); compare two models of one kind"
        )
    a, b = (_head(of_a, own, others) for own, others in (labels, labels[::-1]))
    head = Head(a.outputs, a.labels or b.labels, of_a.problem, of_a.architecture)
    order = head_order(b, Task("", of_a, (), head.names if of_a.named else (), ()))
    if order is None:
        raise ConfigError(
            f"B: got labels {', '.join(labels[1])}; must be A's, in any order, which are {', '.join(labels[0])}; "
            "compare models of the same labels"
        )
    return head, order


def in_order(kinds: tuple[TaskType, TaskType], labels: tuple[Sequence[str], Sequence[str]]) -> list[str]:
    """A sentence where one model names its outputs and the other does not."""
    named = [_head(kind, own, other).labels for kind, own, other in zip(kinds, labels, labels[::-1], strict=True)]
    if bool(named[0]) == bool(named[1]):
        return []
    without, names = ("A", named[1]) if named[1] else ("B", named[0])
    return [f"{without} does not name its outputs: they are compared in the other's order, {', '.join(names[:20])}."]


def _head(kind: TaskType, labels: Sequence[str], others: Sequence[str]) -> Head:
    """The outputs of a model. They have no names where they are numbered, unless the other model has the same names."""
    numbered = set(labels) != set(others) and list(labels) == [str(number) for number in range(len(labels))]
    names = () if numbered else without_defaults(tuple(labels))
    return Head(len(labels) or kind.outputs, names, kind.problem, kind.architecture)


def prompts_before(model: Model, kind: TaskType) -> tuple[str, ...]:
    """What an embedder reads before first texts and before second ones: what an exported one was trained with, or what
    its folder states."""
    record = read(model.folder)
    stated = record.prompts if record is not None else ()
    return stated or prompts_of(kind, stored_head(model.folder)) or ("", "")


def other_prompts(models: Sequence[Model], kind: TaskType) -> list[str]:
    """A sentence where two embedders read texts after different prompts, of which one may be missing by mistake."""
    found = [prompts_before(model, kind) for model in models] if kind.separate else []
    if len({*found}) < 2:
        return []
    a, b = (" and ".join(repr(each) if each else "nothing" for each in dict.fromkeys(prompts)) for prompts in found)
    return [
        f"Before its texts, A reads {a}, and B {b}. If a model needs other prompts, state them in its "
        "config_sentence_transformers.json."
    ]


def outputs_of(model: Model, kind: TaskType, rows: Rows, batch_size: int) -> np.ndarray:
    """Outputs [n, C] of all rows as from `Model.outputs`, of which those of a regression are the numbers that the model
    predicts; of embedders [n, 2 D] the vectors of both texts, after the model's prompts."""
    from distill.inference.predict import stacked

    prompts = prompts_before(model, kind)

    def run(texts: list[Any]) -> np.ndarray:
        if kind.separate:
            sides = [[prompt + row[side] for row in texts] for side, prompt in enumerate(prompts)]
            return np.concatenate([model.outputs(side, batch_size) for side in sides], axis=1)
        outputs = model.outputs(texts, batch_size)
        if kind.name == "regression" and model.activation is not None:  # of a cross-encoder
            return model.activation(outputs)
        return outputs

    return stacked([run(texts) for texts in rows.parts()])


def lengths_of(model: Model, rows: Rows) -> np.ndarray:
    """[n] number of tokens of each row for the tokenizer of a model, not truncated: of a row with several sequences,
    the most tokens of one of them."""
    counts, layout = list[int](), model.kind.layout
    for texts in rows.parts():
        every = [layout.sequences(layout.divide(row)) for row in texts]
        sequences = [each if len(each) > 1 else each[0] for row in every for each in row]
        with encodable(model.folder):
            encoded = model.tokenizer.backend_tokenizer.encode_batch_fast(sequences)
        starts = np.cumsum([0, *map(len, every)])[:-1]
        counts += np.maximum.reduceat([len(encoding.ids) for encoding in encoded], starts).tolist()
    return np.array(counts, np.int64)


def timed(models: Sequence[Model], rows: Rows, lengths: np.ndarray) -> list[dict[str, Any]]:
    """Milliseconds of A and B for a batch, and how many times as fast B is, at each size of batch.

    The texts are those of random rows, of an embedder's pairs the first texts; a batch contains rows of similar length.
    Tokenizing is included.

    Args:
        lengths: [n] tokens of each row.
    """
    from distill.inference import latency

    drawn = np.random.default_rng(0).permutation(len(lengths))[:TIMED_ROWS]
    texts = rows.texts(drawn[np.argsort(lengths[drawn], kind="stable")])
    texts = [first for first, _ in texts] if models[0].kind.separate else texts
    every = np.fromiter(texts, object, len(texts))  # `np.array` would make a table of pairs, or of lists of words
    keyed: dict[latency.Key, dict[str, list[Batch]]] = {}
    sizes = list(dict.fromkeys(min(size, len(every)) for size in BATCHES))
    for size in sizes:
        whole = range(0, len(every) - size + 1, size)  # a part of a batch takes another time
        batches: list[Batch] = [{"texts": every[first : first + size]} for first in whole]
        keyed[str(size)] = dict.fromkeys("ab", batches)
    runners = [_runner(name, model) for name, model in zip("ab", models, strict=True)]
    times, result = latency.measure(runners, keyed, repeats=ROUNDS, least_ms=latency.LEAST_MS), []
    for size in sizes:
        count = len(keyed[str(size)]["a"])
        a, b = ([ms / count for ms in times[name, str(size)]] for name in "ab")
        row = {"batch": size, "rows": count * size, "a": latency.summary(a), "b": latency.summary(b)}
        result.append(row | {"speedup": latency.speedup(a, b)})
    return result


def _runner(name: str, model: Model) -> Runner:
    from distill.inference.runners import Runner

    return Runner(name, model.backend, model.scheme, lambda b: model.outputs(b["texts"].tolist(), len(b["texts"])))
