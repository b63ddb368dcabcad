"""The proof that an exported artifact loads without distill and outputs the logits that were measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill.deploy.export import reload
from distill.errors import UserError
from distill.models import families

TOLERANCE = 1e-5
"""Largest accepted difference of a logit in a fresh process: other batches or threads round differently."""

WRITTEN_TOLERANCE = 1e-3
"""Largest accepted difference of a logit between the model in memory, on any device, and its folder."""


@dataclass(frozen=True)
class Artifact:
    """A model file or folder, and what loads it: torch (with transformers), onnxruntime or openvino."""

    backend: str
    path: Path
    tokenizer: Path
    """Folder of its tokenizer."""


Texts = Mapping[Path, list[list[str]]]
"""Tokenizer folder -> rows, all of one text or all of two."""


def logits_of(artifact: Artifact, texts: list[list[str]], max_length: int, extremes: bool = False) -> np.ndarray:
    """Logits float32 [n, C], computed as a user does, one row at a time; with `extremes`, of extreme inputs too.

    The logits of a model that classifies tokens are flat, because texts have different lengths.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(artifact.tokenizer, trust_remote_code=False)
    rows = reload.logits(artifact.backend, str(artifact.path), tokenizer, texts, max_length, extremes)
    return _array(rows)


def _array(rows: list[list[float]]) -> np.ndarray:
    """Rows of one length as [n, C], others flat."""
    same = len({len(row) for row in rows}) == 1
    return np.asarray(rows if same else [value for row in rows for value in row], dtype=np.float32)


def fresh(artifacts: Sequence[Artifact], texts: Texts, max_length: int, extremes: bool = False) -> list[np.ndarray]:
    """`logits_of` each artifact [n, C] or flat, computed in one new process that imports nothing of distill.

    Raises:
        UserError: with the last line of the process's error, if an artifact does not load.
    """
    request: dict[str, Any] = {
        "artifacts": [[a.backend, str(a.path.resolve()), str(a.tokenizer.resolve())] for a in artifacts],
        "texts": {str(folder.resolve()): rows for folder, rows in texts.items()},
        "max_length": max_length,
        "extremes": extremes,
    }
    code, output, errors = run_script(json.dumps(request))
    if code != 0:
        reason = (errors.strip().splitlines() or ["no message"])[-1]
        names = ", ".join(str(artifact.path) for artifact in artifacts)
        raise UserError(f"{names}: does not load in a fresh process without distill: {reason}")
    # Libraries may print lines before the result.
    return [_array(rows) for rows in json.loads(output.splitlines()[-1])]


def run_script(request: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `reload.py` in a new process, in an empty folder."""
    with tempfile.TemporaryDirectory() as elsewhere:
        child = subprocess.run(
            [sys.executable, "-P", reload.__file__],
            input=request,
            cwd=elsewhere,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    return child.returncode, child.stdout, child.stderr


def difference(path: Path, got: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> float:
    """Largest absolute difference of a logit, or of an entry of a vector, between arrays of one shape [...].

    Raises:
        UserError: if it is above the tolerance.
    """
    largest = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("inf")
    # NaN must fail too.
    if not largest <= tolerance:
        raise UserError(
            f"{path}: got outputs in a fresh process that differ from the model's by {largest:.2g} (shapes {got.shape} "
            f"and {expected.shape}); must be at most {tolerance:g}; report it"
        )
    return largest


def plain_logits(folder: Path, texts: list[list[str]], max_length: int = 128) -> np.ndarray:
    """Logits float32 [n, C] of a model folder as a user computes them: plain transformers, one row at a time."""
    return logits_of(Artifact("torch", folder, folder), texts, max_length)


def prove_reload(rows: Mapping[Path, tuple[list[list[str]], np.ndarray]], max_length: int = 128) -> dict[Path, float]:
    """Load model folders in one fresh process that imports only transformers and torch.

    `rows` maps a folder to texts and their expected logits `[n, C]`. Returns the largest difference for each folder,
    which is 0 if the expected logits are `plain_logits` of the source.

    Raises:
        UserError: for a difference above 1e-5, or if a folder does not load.
    """
    artifacts = [Artifact("torch", folder, folder) for folder in rows]
    outputs = fresh(artifacts, {folder: texts for folder, (texts, _) in rows.items()}, max_length)
    return {
        folder: difference(folder, logits, expected)
        for (folder, (_, expected)), logits in zip(rows.items(), outputs, strict=True)
    }


def prove_same(model: Any, folder: Path, texts: list[list[str]], max_length: int) -> float:
    """Largest difference of a logit between a model in memory, on any device, and its folder, on the CPU.

    Raises:
        UserError: if it is above 1e-3: the folder then contains another model.
    """
    import torch
    from transformers import AutoTokenizer

    from distill.runtime.machine import arithmetic

    tokenizer, rows = AutoTokenizer.from_pretrained(folder, trust_remote_code=False), []
    # A training on a GPU leaves TF32 switched on, which rounds more than the difference may be.
    with torch.no_grad(), arithmetic("highest", torch.get_num_threads()):
        for text in texts:
            parts = reload.parted(tokenizer, text)
            batch = tokenizer(*parts, truncation=True, max_length=max_length, return_tensors="pt").to(model.device)
            rows.append(families.logits(model, dict(batch))[0].float().cpu().numpy().ravel())
    largest = float(np.abs(np.concatenate(rows) - plain_logits(folder, texts, max_length).ravel()).max())
    # NaN must fail too.
    if not largest <= WRITTEN_TOLERANCE:
        raise UserError(
            f"{folder}: got logits that differ from those of the model in memory by {largest:.2g}; must be at most "
            f"{WRITTEN_TOLERANCE:g}; report it"
        )
    return largest
