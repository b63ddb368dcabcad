"""The teacher of a labelling: how it is loaded, and its outputs for the rows of a unit."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distill.cli.label import soft
from distill.cli.label.plan import Plan, Unit, unchanged
from distill.cli.texts import asked
from distill.data.encode import encode_texts
from distill.deploy import serve
from distill.deploy.serve.model import Model, texts_in
from distill.errors import ConfigError, DataError, UserError, reason
from distill.inference.predict import predict
from distill.inference.runners import load as load_runner
from distill.runtime.cores import cores

_TORCH, _FLOAT = "torch", "fp32"
_HALVES = ("bf16", "fp16", "tf32")
"""Schemes that torch makes of a float model when it is loaded."""
_AT_ONCE = 8192
"""Rows that are Python objects at the same time. Those of a batch are of similar length."""


def loaded(folder: Path, options: argparse.Namespace, known: Plan | None, say: Callable[[str], None]) -> Model:
    """The teacher, in the form of a folder of labels that was begun, unless options name another: by default the
    fastest in float32, and bf16 on a GPU where runs train in it too.

    Raises:
        ConfigError: for a folder of several heads, and for a model whose outputs cannot be soft labels.
    """
    if options.device != "cpu":
        from distill.deploy.serve.whole import check_device  # which needs torch

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
        raise ConfigError(f"TEACHER: got {folder}, a model with several heads; must be one head; name a folder in it")
    soft.check(found.kind, found.labels)
    return found if half is None else _in_half(found, half, options)


def _of_gpu(device: str) -> str:
    import torch

    from distill.runtime.machine import detect_precision

    return detect_precision("auto", torch.device(device))


def _in_half(model: Model, scheme: str, options: argparse.Namespace) -> Model:
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
            f"--scheme: got {scheme}, in which this model does not run ({reason(error)}); must be one in which it "
            "runs; set --scheme fp32"
        ) from error
    return half


def labeller(
    model: Model, plan: Plan, tokens: int, separator: str | None, said: Callable[[str], object]
) -> Callable[[Unit], pa.Table]:
    """A function from a unit to its rows with soft labels. It raises Changed for a file that has changed.

    Args:
        tokens: most tokens of a batch.
        said: gets a line for a unit of which some rows have no soft label.
    """
    columns, sources = plan.columns, {source.name: source for source in plan.sources}

    def label(unit: Unit) -> pa.Table:
        source = unchanged(sources[unit.source], columns, separator)
        rows = columns.of(source.rows.slice(unit.start, unit.rows))
        starts = range(0, unit.rows, _AT_ONCE)
        parts = [
            soft.SOFT[plan.kind](
                _outputs(model, rows.slice(start, _AT_ONCE), columns.text, tokens, unit.start + start, source.where),
                model.labels,
            )
            for start in starts
        ]
        labels = pa.chunked_array(parts)
        if labels.null_count:
            wrong = f"outputs of {model.backend} {model.scheme} that are not finite"
            if labels.null_count == unit.rows:
                raise DataError(
                    f"{unit.place}: got {wrong} for every row; must be numbers; set another --scheme, and another --out"
                )
            said(f"{unit.place}: {labels.null_count:,} rows have no soft label (null): {wrong}")
        return rows.append_column(columns.soft, labels)

    return label


def _outputs(
    model: Model, rows: pa.Table, text: tuple[str, ...], tokens: int, first: int, where: Callable[[int], str]
) -> np.ndarray:
    """Outputs float32 [n, outputs] of rows, of which the first is row `first` of its file; NaN for a row of which one
    is not finite."""
    texts = texts_in(asked(rows, text), len(text))
    encoded = encode_texts([list(column) for column in zip(*texts, strict=True)], model.tokenizer, model.max_length)
    if len(empty := np.flatnonzero(encoded.lengths == 0)):
        raise DataError(
            f"{where(first + int(empty[0]))}: got no text; must be a token; leave it out, and set another --out"
        )
    found = predict(
        model.run,
        encoded,
        pad_id=model.tokenizer.pad_token_id,
        left=model.tokenizer.padding_side == "left",
        tokens=tokens,
        rows=1 if model.row_by_row else None,
    )
    found[~np.isfinite(found).all(axis=1)] = np.nan
    return found
