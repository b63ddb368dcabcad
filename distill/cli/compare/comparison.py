"""Compares two models on the rows of a file: `compare` returns the content of compare.json. torch is imported late."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill import __version__, config
from distill.cli.compare import predictions, statistics, words
from distill.cli.compare.labels import common
from distill.cli.compare.outputs import lengths as tokens
from distill.cli.compare.outputs import outputs as outputs_of
from distill.cli.compare.outputs import served
from distill.cli.compare.result import sentences
from distill.cli.compare.rows import Rows, Targets, check_width, read_rows, targets
from distill.data.task_types import Kind, labelled
from distill.data.task_types.embedding import cosines
from distill.errors import UserError, printable
from distill.evaluation.disagreements import label_of, short, shown
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS
from distill.models.families.vectors import check_cosines
from distill.runtime.versions import hardware

if TYPE_CHECKING:
    from distill.deploy.serve import Model

TOP = 10


def compare(
    a: str | Path,
    b: str | Path,
    file: str,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    choices: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    separator: str | None = None,
    top: int = TOP,
    batch_size: int = 32,
    backends: tuple[str | None, str | None] = (None, None),
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Two models of one kind and with the same labels, on the rows of a file, labelled or not.

    Args:
        text, text_pair, choices, label: columns of the file; when None, those that B was made from, or likely ones.
            Several label columns are of 0 and 1. For embedders, each text of a file with one text column is paired
            with that of the next row.
        separator: between the values of a CSV; a comma, or a tab in .tsv, when None.
        top: number of rows to list, of those on which the models' outputs differ most.
        backends: of A and of B; None for the default of `distill.load`.

    Returns:
        The content of compare.json.

    Raises:
        UserError: for a file or a model that cannot be used, and for models that cannot be compared.
    """
    own, others = (value if value is None or isinstance(value, str) else list(value) for value in (label, choices))
    settings = config.Task(text=text, text_pair=text_pair, label=own, choices=others, separator=separator)
    columns, choice_columns, architecture = _columns(b)
    rows = read_rows(file, settings, columns, choice_columns, architecture)
    for note in rows.table.notes:
        log(printable(note))
    check_width("B", columns, rows)
    models = _loaded((a, b), backends, log)
    check_width("A", () if models[0].kind.separate else models[0].columns, rows)
    kinds = _kinds(models)
    kind = kinds[0]
    if kind.separate:
        for model in models:
            check_cosines(model.folder)
    head, order = common(kinds, (models[0].labels, models[1].labels))
    given = targets(rows, settings, kind, head)
    label_from = f", the label from {', '.join(given.label)}" if given.label else ""
    log(f"{file}: the text is from {' and '.join([*rows.text, *rows.choices])}{label_from}")
    lengths = tokens(models[0], rows)
    outputs = []
    for name, model in zip("AB", models, strict=True):
        log(f"predicting {len(rows):,} rows with {name}")
        outputs.append(outputs_of(model, kind, rows, batch_size))
    if kind.named:
        outputs[1] = outputs[1][:, order]
    log("timing both models in turn")
    measured = _latency(models, rows, lengths)
    names = head.labels or (tuple(map(str, range(head.outputs))) if kind.named else ())
    log("scoring")
    decoded = [kind.decode(values, names, model.threshold) for values, model in zip(outputs, models, strict=True)]
    if kind.separate:
        outputs = [cosines(values)[:, None] for values in outputs]
    scored = _compared(kind, decoded, outputs, rows, given, names, lengths)
    result = {
        "schema": 1,
        "version": __version__,
        "file": str(file),
        "columns": [*rows.text, *rows.choices],
        "label": list(given.label),
        "kind": kind.name,
        "labels": list(names),
        "rows": len(rows),
        "labelled_rows": 0 if given.values is None else int(labelled(given.values).sum()),
        "models": {name: _described(model, lengths) for name, model in zip("ab", models, strict=True)},
        **scored,
        "differences": _differences(kind, models, outputs, rows, given, names, top),
        "latency": measured,
        "environment": hardware(_threads()),
        "notes": [*rows.notes, *given.remarks, *([given.note] if given.note else [])],
    }
    return result | {"result": sentences(result)}


def _compared(
    kind: Kind,
    decoded: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    rows: Rows,
    given: Targets,
    names: Sequence[str],
    lengths: np.ndarray,
) -> dict[str, Any]:
    """What depends on predictions and targets. `outputs`: of embedders, the cosines of pairs."""
    a, b = decoded
    if kind.per_token:
        return words.compared(kind, a, b, given.values, names, lengths, _sizes(kind, rows))
    if kind.separate:
        a, b = (each[:, 0] for each in outputs)
    if given.values is None:
        return predictions.compared(kind, a, b, (a, b), None, np.zeros(len(rows), np.bool_), names, lengths)
    truth = kind.truth(given.values, [rows.table.rows[name].to_pylist() for name in rows.text], names)
    judged = decoded if kind.grade is None else [kind.grade(each, truth) for each in decoded]
    return predictions.compared(kind, a, b, judged, truth, labelled(given.values), names, lengths)


def _divided(kind: Kind, rows: Rows, numbers: np.ndarray | None = None) -> list[Any]:
    """These rows, or all, as `Kind.answer` takes them; empty for kinds whose rows are texts or pairs."""
    if kind.divide is None:
        return []
    return [kind.divide(text) for text in rows.texts(np.arange(len(rows)) if numbers is None else numbers)]


def _sizes(kind: Kind, rows: Rows) -> np.ndarray:
    """[n] number of words of each text; empty for kinds whose rows are not words."""
    return np.array([len(places) for _, places in _divided(kind, rows)] if kind.per_token else [], np.int64)


def _columns(folder: str | Path) -> tuple[Sequence[str], Sequence[str], str]:
    """The text columns and those of the choices that an exported folder states, none for any other; and the
    architecture of its model."""
    from distill.deploy.export.record import located, read

    with _named("B"):
        path = located(folder)
        record = read(path)
    if record is None:
        head = stored_head(path)
        return (), (), TEXTS if head is None else head.architecture
    # An embedder states the column of single texts, and pairs are compared.
    return () if record.kind.separate else record.columns, record.choices, record.kind.architecture


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the model and the options in errors about its folder."""
    try:
        yield
    except UserError as error:
        messages = [re.sub("^folder:", f"{name}:", message) for message in error.messages]
        raise type(error)([re.sub("^backend:", f"--backend, {name}:", message) for message in messages]) from error


def _threads() -> int:
    from distill.runtime.machine import cores

    return cores()


def _loaded(folders: Sequence[str | Path], backends: Sequence[str | None], log: Callable[[str], None]) -> list[Model]:
    from distill.deploy.export.record import located, read
    from distill.deploy.serve import Model, load

    models: list[Model] = []
    for name, folder, backend in zip("AB", folders, backends, strict=True):
        with _named(name):
            read(located(folder))  # refuses a folder with several heads
            model = load(folder, backend=backend, threads=_threads(), say=log)
            assert isinstance(model, Model)
            models.append(model)
        log(f"{name}: {folder}, {models[-1].backend} {models[-1].scheme}")
    return models


def _kinds(models: Sequence[Model]) -> tuple[Kind, Kind]:
    """The kinds of two models. A folder that was not exported states only `problem_type`, if that: where the other's
    kind fits its outputs, as a reranker's does a regression's, it is of that kind."""
    a, b = models
    kinds = [model.kind for model in models]
    for number, (model, other) in enumerate(((a, b), (b, a))):
        head = None if model.columns else stored_head(model.folder)  # an export states its columns
        fits = head is not None and head.problem in (None, other.kind.problem)
        fits = fits and model.kind.architecture == other.kind.architecture
        if fits and other.columns and bool(model.labels) == other.kind.named:
            kinds[number] = other.kind
    return kinds[0], kinds[1]


def _latency(models: Sequence[Model], rows: Rows, lengths: np.ndarray) -> list[dict[str, Any]]:
    from distill.cli.compare.timing import timed

    return timed(models, lambda numbers: served(models[0].kind, rows.texts(numbers)), lengths)


def _described(model: Model, lengths: np.ndarray) -> dict[str, Any]:
    return {
        "name": model.folder.resolve().name,
        "folder": str(model.folder),
        "backend": model.backend,
        "scheme": model.scheme,
        "max_length": model.max_length,
        # Contexts are not truncated, but divided into windows.
        "truncated_rows": 0 if model.kind.extractive else int((lengths > model.max_length).sum()),
    }


def _differences(
    kind: Kind,
    models: Sequence[Model],
    outputs: Sequence[np.ndarray],
    rows: Rows,
    given: Targets,
    names: Sequence[str],
    top: int,
) -> list[dict[str, Any]]:
    """The rows on which the outputs differ most; of words, the texts with the words on which they do."""
    from distill.deploy.serve.model import scaled

    of_outputs, sizes = predictions.shown(kind), _sizes(kind, rows)
    distance = of_outputs.difference(outputs[0], outputs[1])
    if kind.per_token:
        distance = words.largest_by_text(distance, sizes)
    numbers = statistics.largest(distance, top)
    divided = _divided(kind, rows, numbers)
    parts = [words.of_texts(own, sizes, numbers) if kind.per_token else own[numbers] for own in outputs]
    answers = []
    for part, model in zip(parts, models, strict=True):
        logits, threshold = scaled(part, model.threshold, model.temperature)
        answers.append(of_outputs.answer(logits, names, threshold, divided))
    labels = [_label(kind, given.values, int(number), names, divided[n : n + 1]) for n, number in enumerate(numbers)]
    return [
        {
            "row": rows.table.where(int(number)),
            "texts": [short(text) for text in shown(texts)],
            "label": label,
            "difference": float(distance[number]),
            "a": of_a,
            "b": of_b,
        }
        for number, texts, label, of_a, of_b in zip(numbers, rows.texts(numbers), labels, *answers, strict=True)
    ]


def _label(
    kind: Kind, values: np.ndarray | None, row: int, names: Sequence[str], divided: Sequence[Any]
) -> str | float | None:
    """The label of a row: names of labels, a number, a choice, the answers in a context, or the spans of a text in
    words; None without one."""
    if values is None or not labelled(values[row : row + 1])[0]:
        return None
    if kind.per_token:
        return words.label_of(kind, values[row], names, divided[0])
    return label_of(kind, values[row : row + 1], names, divided[0] if len(divided) else None)
