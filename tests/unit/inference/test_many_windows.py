"""Texts of many windows: how they are timed, and drawn for calibration and for the training of pruned models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForTokenClassification

from distill.compression.pruning.sensitivity import LESSON, Subject
from distill.compression.quantization.quality_limits import source_of
from distill.config import Limit, Tasks
from distill.data.asked import Asked
from distill.data.task_types.words import words_of
from distill.data.tasks import TaskData, load_tasks
from distill.inference import timing
from distill.inference.runners import Batch, Runner, ensemble
from distill.inference.timing import AT_ONCE, SINGLE_TEXTS, TASK_LENGTHS, Readers, divided, timed
from distill.models.families.record import TOKENS
from tests import tiny

WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split()]


def batch_of(count: int, first: int = 0) -> Batch:
    ids = np.arange(first, first + count)[:, None] + np.zeros((1, 16), np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE + 3])
def test_parts_of_a_batch_have_all_sequences_once(count: int) -> None:
    parts = divided(batch_of(count))
    assert max(len(part["input_ids"]) for part in parts) <= AT_ONCE
    assert len(parts) == -(-count // AT_ONCE)
    for key, value in batch_of(count).items():
        np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), value)


def test_models_with_more_and_with_fewer_windows_run_in_as_many_parts() -> None:
    one, other = batch_of(70), batch_of(45, first=100)
    both = {f"{n}.{key}": value for n, own in enumerate((one, other)) for key, value in own.items()}
    parts = divided(both)
    assert [len(part["0.input_ids"]) for part in parts] == [24, 23, 23]
    assert [len(part["1.input_ids"]) for part in parts] == [15, 15, 15]


def read_by(seen: list[tuple[int, ...]], name: str) -> Runner:
    def run(batch: Batch) -> np.ndarray:
        seen.append(batch["input_ids"].shape)
        return np.zeros((*batch["input_ids"].shape, 3), np.float32)

    return Runner(name, "torch", "fp32", run)


def test_a_long_text_is_timed_in_parts_also_by_an_ensemble_of_two_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second tokenizer makes about half as many tokens, so that its model has fewer windows."""
    monkeypatch.setattr(timing, "TASK_ROWS", 9)
    one, seen = tiny.tokenizer(), list[tuple[int, ...]]()

    class Coarse:
        """Drops every other word."""

        def __getattr__(self, name: str) -> Any:
            return getattr(one, name)

        def __len__(self) -> int:
            return len(one)

        def __call__(self, texts: Any, *others: Any, **settings: Any) -> Any:
            halved = [" ".join(text.split()[::2]) for text in texts] if isinstance(texts, list) else texts
            return one(halved, *others, **settings)

    other: Any = Coarse()
    runners = [ensemble("teacher", [read_by(seen, "1"), read_by(seen, "2")], [1, 1]), read_by(seen, "student")]
    of = {"teacher": [one, other], "student": [one]}
    texts = [" ".join(np.random.default_rng(n).choice(WORDS, 300)) for n in range(9)]
    rows = [Asked(TOKENS, (text, words_of(text))) for text in texts]
    found = timed(
        runners, Readers(of, [one, other], of), [[64, 16]], [rows], 16,
        repeats=1, requests=4, least_ms=0, meter="none", log=lambda text: None,
    )  # fmt: skip
    assert {key: len(times) for key, times in found.times["teacher"].items()} == {
        "64x16": 1,
        TASK_LENGTHS: 1,
        SINGLE_TEXTS: 4,
    }
    assert (64, 16) in seen, "a shape that was asked for is one batch"
    assert max(count for count, _ in seen if count != 64) <= AT_ONCE


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TaskData:
    """Texts of about 12 windows."""
    random, file = np.random.default_rng(0), tmp_path_factory.mktemp("words") / "places.jsonl"
    with file.open("w") as lines:
        for _ in range(60):
            words = [*random.choice(WORDS, 100), "goats"]
            tags = ["B-ANIMAL" if word == "goats" else "O" for word in words]
            lines.write(json.dumps({"tokens": words, "ner_tags": tags}) + "\n")
    return load_tasks(Tasks(train=str(file)), Limit(), 0).tasks["places"]


def texts_with(data: TaskData, windows: list[list[int]]) -> set[int]:
    """Numbers of the training texts that contain one of these windows of words, which are one token each."""
    texts = data.train["tokens"][:]
    reader = tiny.tokenizer()
    found = set()
    for window in windows:
        inner = " ".join(reader.convert_ids_to_tokens(window[1:-1]))
        found |= {number for number, text in enumerate(texts) if f" {inner} " in f" {text} "}
    return found


def test_calibration_has_windows_of_many_texts(data: TaskData, tmp_path: Path) -> None:
    source = source_of(tmp_path, tiny.tokenizer(), data, 24, 16, 0)
    assert len(source.rows) == 24
    windows = [row["input_ids"][0][row["attention_mask"][0] == 1].tolist() for row in source.rows]
    assert len(texts_with(data, windows)) > 8


def test_lessons_are_as_many_as_asked_and_of_many_texts(data: TaskData, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "TokenClassification", num_labels=len(data.task.labels))
    model = AutoModelForTokenClassification.from_pretrained(folder)
    lessons = Subject("prune", model, tiny.tokenizer(), data, folder, max_length=16, seed=0).sample(8, then=2)
    assert [len(lesson["input_ids"]) for lesson in lessons] == [LESSON, LESSON]
    ids, masks = (
        np.concatenate([lesson[key].numpy() for lesson in lessons]) for key in ("input_ids", "attention_mask")
    )
    assert len(texts_with(data, [row[mask == 1].tolist() for row, mask in zip(ids, masks, strict=True)])) > 8
