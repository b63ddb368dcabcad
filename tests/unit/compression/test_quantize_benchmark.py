"""benchmarks/quantize.py measures every variant."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import BertConfig

from benchmarks import quantize
from benchmarks.tables.speed import quantize_table
from distill.config.schemes import SCHEMES

SHAPE = (3, 16)


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch compiles with a C++ compiler")
@pytest.mark.slow
def test_every_variant_is_timed(tmp_path: Path) -> None:
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    measured = quantize.benchmark(BertConfig(vocab_size=200, **small), SHAPE, tmp_path, threads=1, repeats=2)
    rows = {(row["backend"], row["scheme"]): row for row in measured["rows"]}
    installed = [scheme for scheme in SCHEMES.values() if all(map(find_spec, scheme.packages))]
    assert {(scheme.backend, scheme.scheme) for scheme in installed} < rows.keys()
    assert rows["onnxruntime", "fp32"]["mib"] > rows["onnxruntime", "int8"]["mib"] > 0
    best = tuple(measured["fastest_float32"].split())
    assert rows[best]["speedup"]["median"] == 1.0
    assert rows[best]["median_ms"] == min(r["median_ms"] for (_, s), r in rows.items() if s.startswith("fp32"))
    table = quantize_table(measured)
    assert [row[:2] for row in table.rows] == list(rows)
    assert "1 layers and hidden size 64, batch 3 x 16" in table.notes[0]
