"""The folder a user deploys, and the proof that plain transformers loads it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from distill.checkpoint import writing
from distill.config import DataError, UserError
from distill.export import reload

TOLERANCE = 1e-5
"""Largest absolute difference of a logit: other batches or threads than those of `expected` round
differently.
"""
FILES = (
    "*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)


def export_folder(source: Path, out: Path, card: str) -> None:
    """Copy weights (safetensors), config and tokenizer of `source` to the new folder `out`; `card`
    is its README.md.
    """
    found = sorted({path for pattern in FILES for path in source.glob(pattern)})
    for needed in ("config.json", "*.safetensors", "tokenizer*"):
        if not any(path.match(needed) for path in found):
            raise DataError(f"{source}: got no {needed} file; must be a saved model with its tokenizer")
    with writing(out) as temporary:
        for path in found:
            shutil.copy2(path, temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def plain_logits(folder: Path, texts: list[list[str]], max_length: int = 128) -> np.ndarray:
    """Logits float32 [n, C] as a user computes them: plain transformers, one row of one or two
    texts at a time.
    """
    return np.asarray(reload.logits(str(folder), texts, max_length), dtype=np.float32)


def prove_reload(rows: Mapping[Path, tuple[list[list[str]], np.ndarray]], max_length: int = 128) -> dict[Path, float]:
    """Load folders in one fresh process that imports transformers and torch alone.

    `rows` maps a folder to texts and the logits `[n, C]` they must give. Returns the largest absolute difference of
    each, which is 0 when the expected ones are `plain_logits` of the source. Raises UserError above 1e-5, or when a
    folder does not load.
    """
    request = {"folders": {str(f.resolve()): texts for f, (texts, _) in rows.items()}, "max_length": max_length}
    with tempfile.TemporaryDirectory() as elsewhere:
        child = subprocess.run(
            [sys.executable, "-I", reload.__file__],
            input=json.dumps(request),
            cwd=elsewhere,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if child.returncode != 0:
        reason = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"{', '.join(map(str, rows))}: does not load with plain transformers in a fresh process: {reason}"
        )
    # Libraries may print before the answer.
    answer = json.loads(child.stdout.splitlines()[-1])
    return {f: _difference(f, np.asarray(answer[str(f.resolve())], np.float32), want) for f, (_, want) in rows.items()}


def _difference(folder: Path, got: np.ndarray, expected: np.ndarray) -> float:
    difference = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("inf")
    # Written so that NaN fails too.
    if not difference <= TOLERANCE:
        raise UserError(
            f"{folder}: got logits {difference:.2g} away from the model's in a fresh process; "
            f"must be at most {TOLERANCE:g} (shapes {got.shape} and {expected.shape})"
        )
    return difference
