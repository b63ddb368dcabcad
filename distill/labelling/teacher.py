"""The teacher of a labelling: how it is loaded, and its outputs for the rows of a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distill.data.asked import asked, encode
from distill.data.encode import Encoded
from distill.data.task_types import TASK_TYPES, TaskType
from distill.data.task_types.answers import NONE, candidates
from distill.deploy import serve
from distill.deploy.serve.model import Model
from distill.errors import ConfigError, DataError, UserError, reason
from distill.inference.predict import predict, window_logits
from distill.inference.runners import check_device
from distill.inference.runners import load as load_runner
from distill.labelling.options import Options
from distill.labelling.plan import Columns, Plan, Unit
from distill.labelling.rows import Reader
from distill.runtime.cores import cores

_TORCH, _FLOAT = "torch", "fp32"
_HALVES = ("bf16", "fp16", "tf32")
"""Schemes that torch makes of a float model when it is loaded."""
_AT_ONCE = 8192
"""Rows that are Python objects at the same time. Those of a batch are of similar length."""
_TELLING = 32
"""Rows without a finite output from which on the teacher is at fault, and not a few odd rows, if no row has one."""


def loaded(folder: Path, options: Options, known: Plan | None, say: Callable[[str], None]) -> Model:
    """The teacher, in the form of a folder of labels that was begun, unless options name another: by default the
    fastest in float32, and on a GPU the precision in which runs train there.

    Raises:
        ConfigError: for a folder of several heads, and for a model whose outputs cannot be soft labels.
    """
    if options.device != "cpu":
        check_device(options.device)
    backend: str | None = options.backend or (known.backend if known else None)
    scheme: str | None = options.scheme or (known.scheme if known else None)
    if scheme is None and options.device != "cpu" and backend in (None, _TORCH):
        scheme = _of_gpu(options.device)
    half = scheme if scheme in _HALVES and backend in (None, _TORCH) else None
    found = serve.load(
        folder,
        backend=_TORCH if half else backend,
        scheme=_FLOAT if half else scheme or _FLOAT,
        device=options.device,
        threads=options.threads,
        max_length=options.max_length,
        say=say,
    )
    if not isinstance(found, Model):
        raise ConfigError(
            f"label.teacher: got {folder}, a model with several heads; must be one head; name a folder in it"
        )
    _check(found.kind, found.labels)
    return found if half is None else _in_half(found, half, options)


def _of_gpu(device: str) -> str:
    import torch

    from distill.runtime.machine import detect_precision

    return detect_precision("auto", torch.device(device))


def _in_half(model: Model, scheme: str, options: Options) -> Model:
    """The same model with weights and arithmetic of 16 bits."""
    from distill.deploy.serve.whole import tokenizer_and_length

    runner = load_runner(
        f"{_TORCH} {scheme}",
        model.folder,
        backend=_TORCH,
        scheme=scheme,
        device=options.device,
        threads=options.threads or cores(),
    )
    half = replace(model, scheme=scheme, run=serve.within(runner.run, tokenizer_and_length(model.folder)[1]))
    try:
        half.outputs(serve.probe(half))
    except UserError:
        raise
    except Exception as error:  # of any kind: some models of transformers mix types
        raise ConfigError(
            f"label.scheme: got {scheme}, in which this model does not run ({reason(error)}); must be one in which it "
            "runs; set label.scheme=fp32"
        ) from error
    return half


def _check(kind: TaskType, labels: Sequence[str]) -> None:
    """Raise ConfigError for a teacher whose outputs cannot be soft labels."""
    if kind.soft is None or kind.soft_column is None:
        fit = (name for name, each in TASK_TYPES.items() if each.soft is not None and each.soft_column is not None)
        raise ConfigError(
            f"label.teacher: got a model for {kind.name}; must be for one of {', '.join(fit)}, whose outputs can be "
            "read as soft labels; use the model itself as the teacher of a run (teacher.name)"
        )
    if len({label.strip() for label in labels}) < len(labels):
        raise ConfigError(
            "label.teacher: got two labels of one name; must be different names; correct id2label in its config.json"
        )


@contextmanager
def labeller(
    model: Model, plan: Plan, tokens: int, said: Callable[[str], object]
) -> Iterator[Callable[[Unit], pa.Table]]:
    """A function from a unit to its rows with soft labels. It raises Changed for a file that has changed.

    Args:
        tokens: most tokens of a batch.
        said: gets a line for a unit of which some rows have no soft label.
    """
    reader = Reader(plan.sources, plan.columns, model.kind, plan.separator)
    missing = _Missing(f"{model.backend} {model.scheme}")

    def label(unit: Unit) -> pa.Table:
        rows = reader.rows(unit)
        parts = [_labels(model, rows.slice(start, _AT_ONCE), plan, tokens) for start in range(0, unit.rows, _AT_ONCE)]
        labels, empty = pa.chunked_array([part for part, _ in parts]), sum(count for _, count in parts)
        for line in missing.lines(unit, max(0, labels.null_count - empty), empty):
            said(line)
        return rows.append_column(plan.columns.soft, labels)

    with closing(reader):
        yield label


@dataclass
class _Missing:
    """The rows without a soft label, of all units that a process labels."""

    form: str
    """Of the teacher."""
    works: bool = False
    """Whether some row has one."""
    rows: int = 0
    """Number of rows whose outputs are not finite."""

    def lines(self, unit: Unit, bad: int, empty: int) -> list[str]:
        """Lines about the rows of a unit whose outputs are not finite, and about those without a token.

        Raises:
            DataError: if no row has a finite output, and at least `_TELLING` rows were tried.
        """
        every = bad + empty == unit.rows
        self.works, self.rows = self.works or not every, self.rows + bad
        wrong = f"outputs of {self.form} that are not finite"
        if every and bad and (bad if self.works else self.rows) >= _TELLING:
            raise DataError(
                f"{unit.place}: got {wrong} for every row; must be numbers; set another label.scheme, and another "
                "label.out"
            )
        found = {why: count for why, count in ((wrong, bad), ("no token in the text", empty)) if count}
        return [f"{unit.place}: {count:,} rows have no soft label (null): {why}" for why, count in found.items()]


def _labels(model: Model, rows: pa.Table, plan: Plan, tokens: int) -> tuple[pa.Array, int]:
    """(the soft labels of rows, number of rows without a token). A row without a token, and one of which an output is
    not finite, has null."""
    assert model.kind.soft_column is not None
    outputs, sizes, empty = _outputs(model, rows, plan.columns, tokens)
    if model.activation is not None and not plan.reranks:
        outputs = model.activation(outputs)  # as its library scores pairs
    return model.kind.soft_column(outputs, model.labels, sizes), empty


def _outputs(model: Model, rows: pa.Table, columns: Columns, tokens: int) -> tuple[np.ndarray, np.ndarray | None, int]:
    """(outputs float32, number of parts of each row) as `TaskType.soft_column` takes them, and the number of rows
    without a token. NaN stands in the place of their outputs, and of outputs of which one is not finite."""
    layout = model.kind.layout
    parts = [layout.divide(row) for row in asked(rows, columns.text, columns.choices)]
    encoded = encode(layout.architecture, parts, model.tokenizer, model.max_length)
    empty = _without_token(encoded, len(parts))
    found, sizes = _of_tokens(model, _with_tokens(encoded, model.tokenizer.pad_token_id), tokens)
    found[np.repeat(empty, sizes) if model.kind.windowed and sizes is not None else empty, -1] = np.nan
    return found, sizes, int(empty.sum())


def _without_token(encoded: Encoded, rows: int) -> np.ndarray:
    """[rows] whether a sequence of a row has no token, as of a tokenizer that adds no special ones."""
    flags, windows, owners = np.zeros(rows, np.bool_), encoded.spans or encoded.words, np.arange(rows)
    if windows is not None:
        owners = windows.owners
    elif encoded.groups is not None:
        owners = np.repeat(owners, np.diff(encoded.groups))
    flags[owners[np.diff(encoded.offsets) == 0]] = True
    return flags


def _with_tokens(encoded: Encoded, token: int) -> Encoded:
    """The same sequences, with a token in those that have none: a model can be asked about no empty one."""
    empty = np.diff(encoded.offsets) == 0
    at = encoded.offsets[:-1][empty]
    if not len(at):
        return encoded
    spans, segments = encoded.spans, encoded.segments
    return replace(
        encoded,
        ids=np.insert(encoded.ids, at, token),
        offsets=encoded.offsets + np.cumsum([False, *empty]),
        segments=None if segments is None else np.insert(segments, at, 0),
        spans=None if spans is None else replace(spans, characters=np.insert(spans.characters, at, NONE, axis=0)),
    )


def _of_tokens(model: Model, encoded: Encoded, tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(outputs, number of parts of each row): see `_outputs`."""
    if encoded.spans is not None:
        return _candidates(model, encoded, tokens)
    found = predict(
        model.run,
        encoded,
        pad_id=model.tokenizer.pad_token_id,
        left=model.tokenizer.padding_side == "left",
        tokens=tokens,
        rows=1 if model.row_by_row else None,
    )
    found[~np.isfinite(found).all(axis=1)] = np.nan
    if encoded.words is not None:
        return found, encoded.words.of_texts
    return found, None if encoded.groups is None else np.diff(encoded.groups)


def _candidates(model: Model, encoded: Encoded, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(candidates for the answers, number of them for each question): see `answers.candidates`."""
    assert encoded.spans is not None
    logits = window_logits(
        model.run, encoded, pad_id=model.tokenizer.pad_token_id, tokens=1 if model.row_by_row else tokens
    )
    places = np.split(encoded.spans.characters, encoded.offsets[1:-1])
    return candidates(logits, places, encoded.spans.owners)
