"""A whole run of token classification on texts that are several windows long."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli.compare.comparison import compare
from tests import tiny
from tests.small import SMALL, given

TYPES = {"boat": "PLACE", "village": "PLACE", "goats": "ANIMAL", "fishermen": "ANIMAL"}


def words(number: int) -> list[str]:
    return [word for n in range(4 + number % 3) for word in tiny.SENTENCES[(number + n) % 8].split()]


@pytest.mark.slow
def test_long_texts_are_trained_scored_and_read_in_windows(
    run: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "places.jsonl"
    rows = [
        {"tokens": words(n), "ner_tags": [f"B-{TYPES[w]}" if w in TYPES else "O" for w in words(n)]} for n in range(64)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ["tasks.max_length=16", "stages.quantize.max_recall_drop=100"]
    results = run(tmp_path, "prune", *SMALL, *more, f"teacher.name={given(tmp_path)}", f"tasks.train={file}")
    said = " ".join("".join(capfd.readouterr()).split())
    assert re.search(r"100% of \d+ training texts have more than 16 tokens, .* and are divided; to divide fewer", said)
    thirds = [third for model in results["models"] for third in model.get("by_length", {}).get("places", [])]
    assert thirds
    assert min(third["from"] for third in thirds) > 30, "the whole text counts"
    folder = tmp_path / "out" / "export" / "places"
    texts = [words(n) for n in range(8)]
    for backend in ("torch", "onnxruntime"):
        model: Any = distill.load(folder, backend=backend)
        outputs = model.outputs(texts)
        assert outputs.shape == (sum(map(len, texts)), 5)
        assert np.abs(outputs).max(axis=1).all(), "every word has outputs"
        np.testing.assert_allclose(outputs, model.outputs([" ".join(text) for text in texts]), atol=1e-3)
    compared = compare(folder, folder, str(file))
    assert compared["agreement"]["percent"] == 100
    assert [compared["models"][name]["truncated_rows"] for name in "ab"] == [0, 0]
