"""Words that share a token, as two Chinese letters of SentencePiece do, teach it one tag."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from distill.config import Limit, load_config
from distill.data.task_types.spans import codes, continues, spans
from distill.data.tasks import load_tasks
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.prepare import Length
from distill.pipeline.train_steps.tasks import training_data
from tests import tiny

LABELS = ("O", "B-place", "I-place", "B-name", "I-name")


def tokenizer() -> Any:
    """In `TEXT`, the first two letters are a token, and so are the third and the fourth."""
    pieces = ["<unk>", "\u2581\u5317\u4eac", "\u6b22\u8fce", "\u4f60", "\u2581"]
    backend = Tokenizer(models.Unigram([(piece, -1.0 - len(piece) / 10) for piece in pieces], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<unk>")


TEXT = "\u5317\u4eac\u6b22\u8fce\u4f60"


def test_which_words_continue() -> None:
    numbers = np.array([1, 2, 2, 0, 1, 1, 4, 3, 4, -100])
    assert np.flatnonzero(continues(numbers, LABELS)).tolist() == [0, 1, 7]
    assert continues(numbers[:0], LABELS).tolist() == []


def test_a_token_of_a_whole_span_learns_to_continue_it(tmp_path: Path) -> None:
    """As B and I it would be a tie, and B for both letters is two spans of one letter."""
    marked = {"text": TEXT, "spans": [{"start": 0, "end": 2, "label": "place"}]}
    rows = [marked | {"text": TEXT + " " + "\u4f60" * (n + 1)} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = load_config(["recipe=prune", "teacher=none", f"tasks.train={tmp_path}/rows.jsonl", "student.name=any"])
    data = load_tasks(config.tasks, config.limit, 0).tasks["rows"]
    runtime = Runtime(tiny.machine(), tmp_path, seed=0, limit=Limit(), longest=64)
    inputs: Any = SimpleNamespace(
        name="recover",
        seed=0,
        tokenizer=tokenizer(),
        teacher=None,
        holds_out=False,
        window=None,
        transfer=None,
        length=Length(1.0, 1, None),
    )
    settings: Any = SimpleNamespace(
        terms={}, transfer=False, folds=1, epochs=1.0, batch=config.stages["recover"].batch, data="tasks"
    )
    encoded = data.encoded(data.train, tokenizer(), 64)
    assert encoded.words is not None
    first = encoded.words.offsets[1]
    assert encoded.words.shares_with_next[:5].tolist() == [True, False, True, False, False]
    assert not encoded.words.shares_with_next[first - 1]
    batch = training_data(inputs, settings, runtime, data).collate(np.array([0]), 0)
    tags = [data.task.labels[number] for number in batch["labels"]]
    assert tags[:4] == ["I-place", "O", "O", "O"]
    predicted = codes(data.task.labels)[[data.task.labels.index(tag) for tag in ("I-place", "I-place", "O")]]
    assert spans(predicted, np.zeros(3, np.int64)).tolist() == [[0, 1, 0]]
