"""The loss of a pruned model after a few steps of training, on rows other than those of the measurement."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from distill import teacher
from distill.compress.choose import mean_loss
from distill.compress.sensitivity import LESSON, Subject, retrained
from distill.compress.sensitivity import row_loss as loss_of_kind
from distill.data.kinds import KINDS
from distill.data.task import Task
from distill.data.tasks import TaskData

row_loss = functools.partial(loss_of_kind, KINDS["classification"])
TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny.py"))


def rows(count: int, labels: int) -> TaskData:
    """A task whose label is a letter in the text; with as many labels as rows it is the row's number."""
    texts = [f"it is {chr(ord('a') + n % labels % 26)}" for n in range(count)]
    data = Dataset.from_dict({"text": texts, "label": [n % labels for n in range(count)]})
    return TaskData(Task("own", KINDS["classification"], ("text",), ("a", "b"), ("accuracy",)), data, {}, {})


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return TINY["save"](tmp_path, "bert", "SequenceClassification", num_labels=2)


def subject_of(folder: Path, data: TaskData) -> Subject:
    model, tokenizer = teacher.load_classifier(folder, 2), teacher.load_tokenizer(folder)
    return Subject("prune/own", model, tokenizer, data, folder, max_length=32, seed=0)


@pytest.mark.parametrize(("count", "measured", "learned"), [(200, 64, 4 * LESSON), (60, 30, 30)])
def test_training_and_measurement_use_different_rows(count: int, measured: int, learned: int, given: Path) -> None:
    subject = subject_of(given, rows(count, count))
    one, other = subject.sample(64), subject.sample(64, then=4)
    assert sum(len(part["labels"]) for part in one) == measured
    assert sum(len(part["labels"]) for part in other) == learned
    assert max(len(part["labels"]) for part in other) <= LESSON
    ours, theirs = (torch.cat([part["labels"] for part in parts]).tolist() for parts in (one, other))
    assert not {*ours} & {*theirs}
    assert theirs != sorted(theirs), "drawn, not as they stand"


def test_a_little_training_lowers_the_loss_and_none_leaves_the_model(given: Path) -> None:
    subject = subject_of(given, rows(200, 2))
    model, parts, lessons = subject.model, subject.sample(64), subject.sample(64, then=8)
    before = mean_loss(model, parts, row_loss)
    assert retrained(model, lessons, row_loss, 0) is model
    assert mean_loss(model, parts, row_loss) == before
    after = retrained(model, lessons, row_loss, 400)
    assert not after.training
    assert mean_loss(after, parts, row_loss) < before
