"""Compares two models on the rows of a file: `compare` returns the content of compare.json. torch is imported late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill import __version__, config
from distill.cli.compare.models import (
    columns_of,
    common,
    in_order,
    kinds_of,
    lengths_of,
    loaded,
    other_prompts,
    outputs_of,
    timed,
)
from distill.cli.compare.result import sentences
from distill.cli.compare.rows import Rows, Targets, are_ranked, read_rows, targets
from distill.cli.texts import check_width
from distill.data.task_types import TASK_TYPES, TaskType, labelled
from distill.data.task_types.embedding import cosines
from distill.deploy.export.record import FILE
from distill.errors import discreet, printable
from distill.evaluation import paired
from distill.evaluation.clusters import clusters
from distill.evaluation.disagreements import listed, short, shown
from distill.models.families.vectors import check_cosines
from distill.runtime.versions import hardware

if TYPE_CHECKING:
    from distill.deploy.serve import Model

IN_WINDOWS = (
    "Texts of more than the maximum tokens are read in overlapping windows, whose vectors are averaged. By default "
    "they are truncated, as in sentence-transformers."
)


def compare(
    a: str | Path,
    b: str | Path,
    file: str,
    settings: config.Task | None = None,
    *,
    top: int = 10,
    batch_size: int = 32,
    backends: tuple[str | None, str | None] = (None, None),
    windows: bool = False,
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Two models of one kind and with the same labels, on the rows of a file, labelled or not.

    Args:
        settings: columns and separator of the file; where columns are None, those that B was made from, or likely ones.
            For embedders, each text of a file with one text column is paired with that of the next row.
        top: number of rows to list, of those on which the models' outputs differ most.
        backends: of A and of B; None for the default of `distill.load`.
        windows: as in `distill.load`, of both.

    Returns:
        The content of compare.json.

    Raises:
        UserError: for a file or a model that cannot be used, and for models that cannot be compared.
    """
    from distill.runtime.machine import cores

    settings = settings or config.Task()
    columns, choice_columns, architecture, named, of_b = columns_of(b)
    rows = read_rows(file, settings, columns, choice_columns, architecture, named, of_b)
    for note in rows.table.notes:
        log(printable(note))
    check_width(rows.text, columns, "model B")
    models = loaded((a, b), backends, windows, log)
    check_width(rows.text, () if models[0].kind.separate else models[0].columns, "model A")
    kinds = kinds_of(models, lambda: are_ranked(rows, settings))
    kind = kinds[0]
    if kind.separate:
        for model in models:
            check_cosines(model.folder)
    head, order = common(kinds, (models[0].labels, models[1].labels))
    given = targets(rows, settings, kind, head, order)
    models = alike_without_answer(models, given, log)
    unlike = [*in_order(kinds, (models[0].labels, models[1].labels)), *other_prompts(models, kind)]
    label_from = f", the label from {', '.join(given.label)}" if given.label else ""
    log(f"{file}: the text is from {' and '.join([*rows.text, *rows.choices])}{label_from}")
    lengths, outputs = lengths_of(models[0], rows), []
    for name, model in zip("AB", models, strict=True):
        log(f"predicting {len(rows):,} rows with {name}")
        outputs.append(outputs_of(model, kind, rows, batch_size))
    if kind.named:
        outputs[1] = outputs[1][:, order]
    log("timing both models in turn")
    measured = timed(models, rows, lengths)
    names = head.names if kind.named else head.labels
    log("scoring")
    drawn_by_group = kind.per_token or kind.grouped
    texts = () if drawn_by_group else [rows.table.rows[name].to_pylist() for name in rows.text]
    parts = clusters([[str(text or "") for text in column] for column in texts]) if texts else None
    shared = shared_texts(parts, tested=kind.same is not None)
    notes = [*rows.notes, *given.notes, *unlike, *shared, *([IN_WINDOWS] if windows else [])]
    result = {
        "schema": 1,
        "version": __version__,
        "file": discreet(str(file)),
        "columns": [*rows.text, *rows.choices],
        "label": list(given.label),
        "kind": kind.name,
        "labels": list(names),
        "rows": len(rows),
        "labelled_rows": 0 if given.values is None else int(labelled(given.values).sum()),
        "models": {name: _described(model, lengths) for name, model in zip("ab", models, strict=True)},
        **_scored(kind, models, outputs, rows, given, names, lengths, parts, top),
        "latency": measured,
        "environment": hardware(cores()),
        "notes": [*map(discreet, notes)],
    }
    return result | {"result": sentences(result)}


def shared_texts(parts: np.ndarray | None, *, tested: bool) -> list[str]:
    """A note about rows that intervals draw together. `tested`: whether McNemar's test would compare the models."""
    if parts is None:
        return []
    test = " McNemar's test, for which rows are independent, is then left out." if tested else ""
    together = f"{len(parts):,} rows as {parts.max() + 1:,} parts"
    return [f"Some rows share a text. Intervals draw such rows together: {together}.{test}"]


def _described(model: Model, lengths: np.ndarray) -> dict[str, Any]:
    return {
        "name": model.folder.resolve().name,
        "folder": str(model.folder),
        "backend": model.backend,
        "scheme": model.scheme,
        "max_length": model.max_length,
        "truncated_rows": 0 if model.kind.windowed or model.windows else int((lengths > model.max_length).sum()),
    }


def alike_without_answer(models: Sequence[Model], given: Targets, log: Callable[[str], None]) -> list[Model]:
    """Readers of passages with one threshold for no answer. A plain folder states none: it gets that of the other
    model or, if neither states one, 0.5 for a file that has questions without an answer, as in SQuAD 2's script."""
    plain = [not (model.folder / FILE).is_file() for model in models]
    kind = models[0].kind
    if not kind.extractive or kind.nothing is None or not any(plain):
        return list(models)
    stated = [model.threshold for model, unknown in zip(models, plain, strict=True) if not unknown]
    values = given.values
    without = values is not None and bool((labelled(values) & kind.nothing(values, ())).any())
    threshold = stated[0] if stated else 0.5 if without else models[0].threshold
    found = []
    for model, unknown in zip(models, plain, strict=True):
        if unknown and threshold != model.threshold:
            log(f"{model.folder}: gives no answer where that is more probable than {threshold:g}, in this comparison")
            model = replace(model, threshold=threshold)
        found.append(model)
    return found


def _scored(
    kind: TaskType,
    models: Sequence[Model],
    outputs: Sequence[np.ndarray],
    rows: Rows,
    given: Targets,
    names: Sequence[str],
    lengths: np.ndarray,
    parts: np.ndarray | None,
    top: int,
) -> dict[str, Any]:
    """What depends on outputs [R, C], with the rows on which they differ most. R is the number of rows or words."""
    owners = np.arange(len(rows))
    if kind.per_token:
        owners = np.repeat(owners, [len(kind.layout.divide(text)[1]) for part in rows.parts() for text in part])
    judged = [kind.decode(values, names, model.threshold) for values, model in zip(outputs, models, strict=True)]
    predictions, truth, chosen = judged, None, np.zeros(len(owners), np.bool_)
    if kind.separate:  # cosines are compared as numbers
        predictions = [cosines(values) for values in outputs]
        outputs = [values[:, None] for values in predictions]
    if given.values is not None:
        truth = kind.truth(given.values, [rows.table.rows[name].to_pylist() for name in rows.text], names)
        judged = judged if kind.grade is None else [kind.grade(each, truth) for each in judged]
        chosen = labelled(given.values)[owners]
    scored = paired.compared(kind, predictions, judged, truth, chosen, owners, lengths, names, parts)
    return scored | {"differences": _differences(kind, models, outputs, rows, given.values, names, owners, top)}


def _differences(
    kind: TaskType,
    models: Sequence[Model],
    outputs: Sequence[np.ndarray],
    rows: Rows,
    targets: np.ndarray | None,
    names: Sequence[str],
    owners: np.ndarray,
    top: int,
) -> list[dict[str, Any]]:
    """The rows on which the outputs differ most; of words, the texts with the words on which they do."""
    from distill.deploy.serve.model import scaled

    compared, distance = answered(kind), np.zeros(len(rows))
    np.maximum.at(distance, owners, compared.difference(outputs[0], outputs[1]))
    numbers = np.argsort(-distance, kind="stable")[:top]
    part = np.concatenate([np.flatnonzero(owners == number) for number in numbers])
    own = [scaled(each[part], model.threshold, model.temperature) for each, model in zip(outputs, models, strict=True)]
    texts = rows.texts(numbers)
    parts = [kind.layout.divide(text) for text in texts]
    found = listed(compared, own, parts, None if targets is None else targets[numbers], names)
    return [
        {
            "row": discreet(rows.table.where(int(number))),
            "texts": [short(each) for each in shown(text)],
            "label": label,
            "difference": float(distance[number]),
            "a": of_a,
            "b": of_b,
        }
        for number, text, (label, of_a, of_b) in zip(numbers, texts, found, strict=True)
    ]


def answered(kind: TaskType) -> TaskType:
    """The kind of the outputs that are compared: those of embedders are cosines, which are numbers."""
    return TASK_TYPES["regression"] if kind.separate else kind
