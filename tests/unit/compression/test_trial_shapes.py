"""Trials: models of several shapes are distilled briefly, and the best of them is chosen."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from distill.compression.pruning.importance import magnitude
from distill.compression.pruning.search import Shape, finalists
from distill.compression.pruning.sensitivity import Sensitivity, Subject, cut
from distill.compression.pruning.trial_shapes import LEAST, TEMPERATURE, trial
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.models import teacher
from tests import tiny


def test_finalists_differ_in_depth() -> None:
    shapes = [Shape(2, 4, 16), Shape(2, 8, 32), Shape(1, 16, 16), Shape(1, 8, 64), Shape(3, 4, 8)]
    price = dict(zip(shapes, [0.3, 0.1, 0.2, 0.4, 0.5], strict=True))
    assert finalists(shapes, price.__getitem__, 10) == [Shape(2, 8, 32), Shape(1, 16, 16), Shape(3, 4, 8)]
    assert finalists(shapes, price.__getitem__, 2) == [Shape(2, 8, 32), Shape(1, 16, 16)]
    assert finalists([], price.__getitem__, 2) == []


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    folder = tiny.save(tmp_path, "bert", "SequenceClassification", num_labels=2)
    texts = [f"it is {chr(ord('a') + n % 26)} {n}" for n in range(200)]
    data = Dataset.from_dict({"text": texts, "label": [n % 2 for n in range(200)]})
    task = TaskData(Task("own", TASK_TYPES["classification"], ("text",), ("a", "b"), ("accuracy",)), data, {}, {})
    model, tokenizer = teacher.load_classifier(folder, 2), teacher.load_tokenizer(folder)
    with torch.no_grad():  # outputs that differ from row to row
        model.classifier.weight.mul_(100.0)
    return Subject("prune/own", model, tokenizer, task, folder, max_length=32, seed=0)


def measured(subject: Subject) -> Sensitivity:
    depth = subject.model.config.num_hidden_layers
    layers = {count: [*range(count)] for count in range(1, depth + 1)}
    return Sensitivity(magnitude(subject.model), refit=False, layers=layers, losses=None)


def full(subject: Subject) -> Shape:
    config = subject.model.config
    return Shape(config.num_hidden_layers, config.hidden_size, config.intermediate_size)


def test_the_loss_is_the_divergence_from_the_unpruned_model(subject: Subject) -> None:
    small = Shape(1, full(subject).hidden, full(subject).ffn)
    found = trial(subject, measured(subject), 64, 0, "fp32").loss(small)
    cut_model = cut(subject.model, [0], measured(subject).scores, small.hidden, small.ffn)
    total, count = 0.0, 0
    for batch in subject.sample(64):
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        with torch.no_grad():
            p, q = (model(**inputs).logits.double().numpy() / TEMPERATURE for model in (subject.model, cut_model))
        p, q = (z - np.log(np.exp(z).sum(1, keepdims=True)) for z in (p, q))
        total += float((np.exp(p) * (p - q)).sum()) * TEMPERATURE**2
        count += len(p)
    assert found == pytest.approx(math.log(total / count), abs=1e-4)


@pytest.mark.slow
def test_what_is_kept_whole_loses_nothing_and_distillation_recovers(subject: Subject) -> None:
    before = {key: value.clone() for key, value in subject.model.state_dict().items()}
    small = Shape(1, full(subject).hidden, full(subject).ffn // 4)
    whole, cut, distilled = (
        trial(subject, measured(subject), 64, steps, "fp32").loss(shape)
        for shape, steps in ((full(subject), 0), (small, 0), (small, 100))
    )
    assert whole == pytest.approx(math.log(LEAST))
    assert whole <= distilled < cut, "where it recovers wholly, both losses are the least that is told apart"
    assert all(torch.equal(value, before[key]) for key, value in subject.model.state_dict().items())
