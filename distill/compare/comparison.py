"""Compares two models on the rows of a file: `compare` returns the content of compare.json. torch is imported late."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill import __version__, config
from distill.compare import predictions, statistics, words
from distill.compare.labels import common
from distill.compare.result import sentences
from distill.compare.rows import Rows, Targets, check_width, read_rows, targets
from distill.data.kinds import Kind, Words, labelled
from distill.environment import hardware
from distill.errors import UserError
from distill.family.head import stored_head
from distill.family.record import ANSWERS, CHOICES, TOKENS, VECTORS

if TYPE_CHECKING:
    from distill.serve import Model

_AT_ONCE = 4096
"""Rows whose texts are in memory at once."""
_CHARACTERS = 200
"""Characters of a text that are shown."""
TOP = 10


def compare(
    a: str | Path,
    b: str | Path,
    file: str,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | Sequence[str] | None = None,
    separator: str | None = None,
    top: int = TOP,
    batch_size: int = 32,
    backends: tuple[str | None, str | None] = (None, None),
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Two models of one kind and with the same labels, on the rows of a file, labelled or not.

    Args:
        text, text_pair, label: columns of the file; when None, those that B was made from, or likely ones.
            Several label columns are of 0 and 1.
        separator: between the values of a CSV; a comma, or a tab in .tsv, when None.
        top: number of rows to list, of those on which the models' outputs differ most.
        backends: of A and of B; None for the default of `distill.load`.

    Returns:
        The content of compare.json.

    Raises:
        UserError: for a file or a model that cannot be used, and for models that cannot be compared.
    """
    own = label if label is None or isinstance(label, str) else list(label)
    settings = config.Task(text=text, text_pair=text_pair, label=own, separator=separator)
    columns, per_token = _columns(b)
    rows = read_rows(file, settings, columns, per_token=per_token)
    check_width("B", columns, rows)
    models = _loaded((a, b), backends, log)
    check_width("A", models[0].columns, rows)
    kinds = _kinds(models)
    kind = kinds[0]
    _check_kind("A", kind)
    head, order = common(kinds, (models[0].labels, models[1].labels))
    given = targets(rows, settings, kind, head)
    lengths = _lengths(models[0], rows)
    outputs = [_outputs(model, name, rows, batch_size, log) for name, model in zip("AB", models, strict=True)]
    outputs[1] = outputs[1][:, order]
    log("timing both models in turn")
    measured = _latency(models, rows, lengths)
    names = head.labels or (tuple(map(str, range(head.outputs))) if kind.named else ())
    of_a, of_b = (kind.decode(values, names, model.threshold) for values, model in zip(outputs, models, strict=True))
    log("scoring")
    scored = _compared(kind, of_a, of_b, rows, given, names, lengths)
    result = {
        "schema": 1,
        "version": __version__,
        "file": str(file),
        "columns": list(rows.text),
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
        "notes": [given.note] if given.note else [],
    }
    return result | {"result": sentences(result)}


def _compared(
    kind: Kind,
    a: np.ndarray,
    b: np.ndarray,
    rows: Rows,
    given: Targets,
    names: Sequence[str],
    lengths: np.ndarray,
) -> dict[str, Any]:
    """What depends on predictions and targets."""
    if kind.per_token:
        return words.compared(kind, a, b, given.values, names, lengths, _sizes(_words(kind, rows)))
    texts = rows.table.rows[rows.text[0]].to_pylist()
    truth = None if given.values is None else kind.truth(given.values, texts, names)
    return predictions.compared(kind, a, b, truth, names, lengths)


def _words(kind: Kind, rows: Rows, numbers: np.ndarray | None = None) -> list[Words]:
    """These texts in words, or all; empty for kinds whose rows are texts."""
    if not kind.per_token or kind.divide is None:
        return []
    return [kind.divide(text) for text in rows.texts(np.arange(len(rows)) if numbers is None else numbers)]


def _sizes(texts: Sequence[Words]) -> np.ndarray:
    return np.array([len(places) for _, places in texts], np.int64)


def _columns(folder: str | Path) -> tuple[Sequence[str], bool]:
    """The text columns that an exported folder states, none for any other; and whether its model classifies words."""
    from distill.export.record import located, read

    with _named("B"):
        path = located(folder)
        record = read(path)
    if record is None:
        head = stored_head(path)
        return (), head is not None and head.architecture == TOKENS
    _check_kind("B", record.kind)
    return record.columns, record.kind.per_token


def _check_kind(name: str, kind: Kind) -> None:
    rows = {CHOICES: "choices", ANSWERS: "answers", VECTORS: "vectors"}.get(kind.architecture)
    if rows is not None:
        raise UserError(
            f"{name}: got a model that {kind.summary} ({kind.name}); must be of another kind, because {rows} are not "
            "compared yet; evaluate both models on labelled rows instead"
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the model and the options in errors about its folder."""
    try:
        yield
    except UserError as error:
        messages = [re.sub("^folder:", f"{name}:", message) for message in error.messages]
        raise type(error)([re.sub("^backend:", f"--backend, {name}:", message) for message in messages]) from error


def _threads() -> int:
    from distill.machine import cores

    return cores()


def _loaded(folders: Sequence[str | Path], backends: Sequence[str | None], log: Callable[[str], None]) -> list[Model]:
    from distill.export.record import located, read
    from distill.serve import Model, load

    models: list[Model] = []
    for name, folder, backend in zip("AB", folders, backends, strict=True):
        with _named(name):
            read(located(folder))  # refuses a folder with several heads
            model = load(folder, backend=backend, threads=_threads())
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


def _lengths(model: Model, rows: Rows) -> np.ndarray:
    """[n] number of tokens of each row for the tokenizer of a model, not truncated."""
    backend = model.tokenizer.backend_tokenizer
    counts: list[int] = []
    for numbers in _parts(rows):
        texts = [" ".join(text) if isinstance(text, list) else text for text in rows.texts(numbers)]
        counts += [len(encoding.ids) for encoding in backend.encode_batch_fast(texts)]
    return np.array(counts, np.int64)


def _parts(rows: Rows) -> list[np.ndarray]:
    return [np.arange(start, min(start + _AT_ONCE, len(rows))) for start in range(0, len(rows), _AT_ONCE)]


def _outputs(model: Model, name: str, rows: Rows, batch_size: int, log: Callable[[str], None]) -> np.ndarray:
    log(f"predicting {len(rows):,} rows with {name}")
    return np.concatenate([model.outputs(rows.texts(numbers), batch_size) for numbers in _parts(rows)])


def _latency(models: Sequence[Model], rows: Rows, lengths: np.ndarray) -> list[dict[str, Any]]:
    from distill.compare.timing import timed

    return timed(models, rows, lengths)


def _described(model: Model, lengths: np.ndarray) -> dict[str, Any]:
    return {
        "name": model.folder.resolve().name,
        "folder": str(model.folder),
        "backend": model.backend,
        "scheme": model.scheme,
        "max_length": model.max_length,
        "truncated_rows": int((lengths > model.max_length).sum()),
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
    distance, sizes = kind.difference(outputs[0], outputs[1]), _sizes(_words(kind, rows))
    if kind.per_token:
        distance = words.largest_by_text(distance, sizes)
    numbers = statistics.largest(distance, top)
    divided = _words(kind, rows, numbers)
    parts = [words.of_texts(own, sizes, numbers) if kind.per_token else own[numbers] for own in outputs]
    answers = [kind.answer(part, names, model.threshold, divided) for part, model in zip(parts, models, strict=True)]
    labels = [_label(kind, given.values, int(number), names, divided[n : n + 1]) for n, number in enumerate(numbers)]
    return [
        {
            "row": rows.table.where(int(number)),
            "texts": [_short(text) for text in _shown(texts)],
            "label": label,
            "difference": float(distance[number]),
            "a": of_a,
            "b": of_b,
        }
        for number, texts, label, of_a, of_b in zip(numbers, rows.texts(numbers), labels, *answers, strict=True)
    ]


def _shown(row: str | tuple[str, str] | list[str]) -> Sequence[str]:
    """The text, the two texts, or the words with spaces between them."""
    return [row] if isinstance(row, str) else [" ".join(row)] if isinstance(row, list) else row


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 3]}..."


def _label(
    kind: Kind, values: np.ndarray | None, row: int, names: Sequence[str], divided: Sequence[Words]
) -> str | float | None:
    """The label of a row: names of labels, a number, or the spans of a text in words; None without one."""
    if values is None or not labelled(values[row : row + 1])[0]:
        return None
    if kind.per_token:
        return words.label_of(kind, values[row], names, divided[0])
    if kind.flags is None:
        return float(values[row])
    flags = kind.flags(values[row : row + 1], len(names))[0]
    return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag)
