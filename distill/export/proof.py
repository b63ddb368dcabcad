"""The proof that what was exported loads, without distill, and says what was measured."""

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

from distill.errors import UserError
from distill.export import reload

TOLERANCE = 1e-5
"""Largest absolute difference of a logit in a fresh process: other batches or threads round differently."""

WRITTEN_TOLERANCE = 1e-3
"""Largest absolute difference of a logit between the model in memory, on any device, and what was written."""


@dataclass(frozen=True)
class Artifact:
    """A model as it is loaded: by torch (with transformers), onnxruntime or openvino."""

    backend: str
    path: Path
    tokenizer: Path
    """Folder of its tokenizer."""


Texts = Mapping[Path, list[list[str]]]
"""Tokenizer folder -> rows of one or two texts each, as many in every row."""


def here(artifact: Artifact, texts: list[list[str]], max_length: int, extremes: bool = False) -> np.ndarray:
    """Logits float32 [n, C] as a user computes them, one row at a time; and those of extremes, if asked for."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(artifact.tokenizer, trust_remote_code=False)
    said = reload.logits(artifact.backend, str(artifact.path), tokenizer, texts, max_length, extremes)
    return np.asarray(said, dtype=np.float32)


def fresh(artifacts: Sequence[Artifact], texts: Texts, max_length: int, extremes: bool = False) -> list[np.ndarray]:
    """As `here`, of all artifacts in one new process that imports nothing of distill.

    UserError, with its last line, where one of them does not load.
    """
    request: dict[str, Any] = {
        "artifacts": [[a.backend, str(a.path.resolve()), str(a.tokenizer.resolve())] for a in artifacts],
        "texts": {str(folder.resolve()): rows for folder, rows in texts.items()},
        "max_length": max_length,
        "extremes": extremes,
    }
    code, answer, errors = run_script(json.dumps(request))
    if code != 0:
        reason = (errors.strip().splitlines() or ["no message"])[-1]
        names = ", ".join(str(artifact.path) for artifact in artifacts)
        raise UserError(f"{names}: does not load in a fresh process without distill: {reason}")
    # Libraries may print before the answer.
    return [np.asarray(said, np.float32) for said in json.loads(answer.splitlines()[-1])]


def run_script(request: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of `reload.py` in a new process, somewhere else."""
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
    """Largest absolute difference of a logit, or of an entry of a vector; UserError above the tolerance."""
    far = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("inf")
    # Written so that NaN fails too.
    if not far <= tolerance:
        raise UserError(
            f"{path}: got logits {far:.2g} away from the model's in a fresh process; "
            f"must be at most {tolerance:g} (shapes {got.shape} and {expected.shape})"
        )
    return far


def plain_logits(folder: Path, texts: list[list[str]], max_length: int = 128) -> np.ndarray:
    """Logits float32 [n, C] of a model folder as a user computes them: plain transformers, one row at a time."""
    return here(Artifact("torch", folder, folder), texts, max_length)


def prove_reload(rows: Mapping[Path, tuple[list[list[str]], np.ndarray]], max_length: int = 128) -> dict[Path, float]:
    """Load model folders in one fresh process that imports transformers and torch alone.

    `rows` maps a folder to texts and the logits `[n, C]` they must give. Returns the largest absolute difference of
    each, which is 0 when the expected ones are `plain_logits` of the source. Raises UserError above 1e-5, or when a
    folder does not load.
    """
    artifacts = [Artifact("torch", folder, folder) for folder in rows]
    said = fresh(artifacts, {folder: texts for folder, (texts, _) in rows.items()}, max_length)
    wanted = [expected for _, expected in rows.values()]
    return {a.path: difference(a.path, got, want) for a, got, want in zip(artifacts, said, wanted, strict=True)}


def prove_same(model: Any, folder: Path, texts: list[list[str]], max_length: int) -> float:
    """Largest difference of a logit between a model in memory, on any device, and its folder, on the CPU.

    UserError above 1e-3: what was written is then another model.
    """
    import torch
    from transformers import AutoTokenizer

    tokenizer, rows = AutoTokenizer.from_pretrained(folder, trust_remote_code=False), []
    with torch.no_grad():
        for text in texts:
            batch = tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt").to(model.device)
            rows.append(model(**batch).logits[0].float().cpu().numpy())
    far = float(np.abs(np.stack(rows) - plain_logits(folder, texts, max_length)).max())
    # Written so that NaN fails too.
    if not far <= WRITTEN_TOLERANCE:
        raise UserError(
            f"{folder}: got logits {far:.2g} away from those of the model that was written; must be at most "
            f"{WRITTEN_TOLERANCE:g}; report it"
        )
    return far
