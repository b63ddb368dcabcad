"""A few rows with their outputs, stored with quantized artifacts, to check other processors.

Integer arithmetic differs between processors: without VNNI, products of 8-bit numbers may overflow
(`distill.runtime.versions.saturates`). The rows are random tokens, because an exported folder may be published and must
not contain the texts that it was evaluated on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distill.errors import DataError
from distill.inference.latency import synthetic
from distill.inference.runners import FLOATS, Batch, Run
from distill.runtime.storage import atomic

FILE = "check.json"
ROWS, LENGTH = 16, 24
"""Number of the stored rows, and of the tokens of each."""
TOLERANCE = 0.1
"""Largest accepted difference of an output, in standard deviations of the stored outputs: rounding differs between
processors, and now and then an activation is rounded to the next of 256 steps."""


@dataclass(frozen=True)
class Check:
    """Rows, and the outputs of each quantized artifact for them on the processor that it was proved on."""

    rows: np.ndarray
    """Token ids [ROWS, LENGTH], int64."""
    outputs: Mapping[str, np.ndarray]
    """Backend and scheme, e.g. `onnxruntime int8` -> outputs of all rows, flat, row by row."""


def is_checked(scheme: str) -> bool:
    """Whether artifacts of a scheme are checked. Quantized ones are."""
    return scheme not in FLOATS


def rows(vocabulary: int, special: list[int], last: int | None, longest: int) -> np.ndarray:
    """Random tokens [ROWS, LENGTH] of a vocabulary without its special tokens, or [ROWS, longest] if that is shorter.
    Each row ends with `last` unless that is None."""
    return synthetic((ROWS, min(LENGTH, longest)), vocabulary, last, without=special)["input_ids"]


def outputs(run: Run, ids: np.ndarray) -> np.ndarray:
    """Outputs of a model for the rows `ids` [ROWS, LENGTH], one row at a time, flat [outputs]."""
    return np.concatenate([run(_batch(row)).ravel() for row in ids])


def _batch(row: np.ndarray) -> Batch:
    ids = row[None].astype(np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def difference(expected: np.ndarray, got: np.ndarray) -> float:
    """Largest difference of an output, in standard deviations of the expected outputs [outputs].

    Infinite for other shapes and for outputs that are not finite.
    """
    if expected.shape != got.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - expected).max() / (expected.std() or 1.0))


def write(folder: Path, check: Check) -> None:
    """Write the file atomically."""
    stored = {name: [float(value) for value in values] for name, values in check.outputs.items()}
    atomic.write_json(folder / FILE, {"rows": check.rows.tolist(), "outputs": stored})


def read(folder: Path) -> Check | None:
    """The stored rows of a folder; None without them. Raises DataError for a damaged file."""
    if not (folder / FILE).is_file():
        return None
    try:
        content = atomic.read_json(folder / FILE)
        ids = np.array(content["rows"], np.int64)
        stored = {str(name): np.array(values, np.float32) for name, values in content["outputs"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        problem = " ".join(str(error).split())[:200]
        raise DataError(
            f"{folder / FILE}: got {problem}; must be the file of the export; copy the folder again"
        ) from error
    if ids.ndim != 2 or (ids < 0).any() or len(ids) > ROWS or ids.shape[1] > LENGTH:
        raise DataError(
            f"{folder / FILE}: got rows {ids.shape}; must be at most {ROWS} lists of at most {LENGTH} token ids; copy "
            "the folder again"
        )
    return Check(ids, stored)


def problem(folder: Path, name: str, run: Run, proved_on: str, here: str) -> str | None:
    """How the outputs of an artifact differ from the stored ones by more than `TOLERANCE`. None if they do not, or if
    the folder has no stored outputs.

    Args:
        name: backend and scheme of the artifact.
        run: the artifact, loaded.
        proved_on: flags of the processor that it was proved on.
        here: flags of this processor.
    """
    check = read(folder)
    if check is None or name not in check.outputs:
        return None
    largest = difference(check.outputs[name], outputs(run, check.rows))
    if largest <= TOLERANCE:
        return None
    return (
        f"{folder}: {name} differs on this processor by up to {largest:.2g} standard deviations of its outputs on "
        f"{len(check.rows)} stored rows. It was proved on a processor with {proved_on or 'unknown flags'}; this one "
        f"has {here or 'unknown flags'}. Evaluate it here, or load another scheme."
    )
