"""Batches of rows with stored vectors have the vectors of exactly their texts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distill.config import Limit, load_config
from distill.data.tasks import load_tasks
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.prepare import Length
from distill.pipeline.train_steps.tasks import training_data
from tests import tiny

TOKENIZER = tiny.tokenizer()
WORDS = sorted({word for sentence in tiny.SENTENCES for word in sentence.split()})
TEXTS = [f"{WORDS[n % 10]} {WORDS[n // 10]}" for n in range(40)]


def vector(text: str) -> np.ndarray:
    """Of length 1; another for each text."""
    values = np.random.default_rng([*text.encode()]).normal(size=6)
    return np.asarray(values / np.linalg.norm(values), np.float32)


@pytest.mark.parametrize("kind", ["embedding", "retrieval"])
def test_a_batch_has_the_vectors_of_its_texts(kind: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": text, "vector": (3 * vector(text)).tolist()} for text in TEXTS]
    held = [
        {"sentence1": f"{a} {a}", "sentence2": f"{b} {b}", "label": n % 2} for n, (a, b) in enumerate(pairwise(TEXTS))
    ]
    for name, content in (("texts", rows), ("held", held)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    settings = ["recipe=prune", "teacher=none", f"tasks.train={tmp_path}/texts.jsonl", f"tasks.kind={kind}"]
    settings += [f"tasks.validation={tmp_path}/held.jsonl", "tasks.soft_label=vector", "student.name=any"]
    config = load_config(settings)
    data = load_tasks(config.tasks, config.limit, 0).tasks["texts"]
    runtime = Runtime(tiny.machine(), tmp_path, seed=0, limit=Limit(), longest=16)
    inputs: Any = SimpleNamespace(
        name="recover",
        seed=0,
        tokenizer=TOKENIZER,
        teacher=None,
        holds_out=False,
        window=None,
        transfer=None,
        length=Length(1.0, 1, None),
    )
    found = training_data(inputs, config.stages["recover"], runtime, data)
    texts = [(data.train["sentence1"][n], data.train["sentence2"][n]) for n in range(len(data.train))]
    assert texts == list(zip(TEXTS[::2], TEXTS[1::2], strict=True))
    for chosen in (np.arange(20), np.random.default_rng(0).permutation(20)[:7]):
        batch = found.collate(chosen, 0)
        expected = np.stack([np.concatenate([vector(first), vector(second)]) for first, second in texts])[chosen]
        np.testing.assert_allclose(batch["teacher_logits"], expected, atol=1e-6)
        # The texts of each row follow each other.
        shown = [TOKENIZER.decode(ids, skip_special_tokens=True) for ids in batch["input_ids"]]
        assert shown == [text for row in chosen for text in texts[row]]
        assert "labelled" not in batch  # no term compares with labels
