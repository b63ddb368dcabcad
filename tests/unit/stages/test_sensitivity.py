"""What a cut costs once it has learned a little: on other rows than it is measured on."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset

from distill import teacher
from distill.compress.choose import mean_loss
from distill.stages.sensitivity import LESSON, retrained, row_loss, sample

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny.py"))


def rows(count: int, labels: int) -> Any:
    """A task whose label is a letter in the text; with as many labels as rows it is the row's number."""
    texts = [f"it is {chr(ord('a') + n % labels % 26)}" for n in range(count)]
    data = Dataset.from_dict({"text": texts, "label": [n % labels for n in range(count)]})
    return SimpleNamespace(train=data, task=SimpleNamespace(columns=("text",), num_labels=2))


@pytest.fixture
def ctx() -> Any:
    config = SimpleNamespace(seed=0, tasks=SimpleNamespace(max_length=32))
    return SimpleNamespace(config=config, accelerator=SimpleNamespace(device=torch.device("cpu")))


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return TINY["save"](tmp_path, "bert", "SequenceClassification", num_labels=2)


@pytest.mark.parametrize(("count", "measured", "learned"), [(200, 64, 4 * LESSON), (60, 30, 30)])
def test_what_is_learned_is_not_what_is_measured(
    count: int, measured: int, learned: int, ctx: Any, given: Path
) -> None:
    tokenizer = teacher.load_tokenizer(given)
    data = rows(count, count)
    one = sample(ctx, data, tokenizer, 64)
    other = sample(ctx, data, tokenizer, 64, then=4)
    assert sum(len(part["labels"]) for part in one) == measured
    assert sum(len(part["labels"]) for part in other) == learned
    assert max(len(part["labels"]) for part in other) <= LESSON
    ours, theirs = (torch.cat([part["labels"] for part in parts]).tolist() for parts in (one, other))
    assert not {*ours} & {*theirs}
    assert theirs != sorted(theirs), "drawn, not as they stand"


def test_a_little_training_lowers_the_loss_and_none_leaves_the_model(ctx: Any, given: Path) -> None:
    tokenizer, data = teacher.load_tokenizer(given), rows(200, 2)
    model = teacher.load_classifier(given, 2)
    parts, lessons = sample(ctx, data, tokenizer, 64), sample(ctx, data, tokenizer, 64, then=8)
    before = mean_loss(model, parts, row_loss)
    assert retrained(model, lessons, row_loss, 0) is model
    assert mean_loss(model, parts, row_loss) == before
    after = retrained(model, lessons, row_loss, 400)
    assert not after.training
    assert mean_loss(after, parts, row_loss) < before
