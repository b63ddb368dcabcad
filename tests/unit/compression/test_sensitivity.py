"""The loss of a pruned model after a few steps of training, on rows other than those of the measurement."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import log_loss
from torch import Tensor

from distill.compression.pruning.importance import SCORES, fisher, magnitude, write
from distill.compression.pruning.reconstruct import gram_matrices
from distill.compression.pruning.search import Shape
from distill.compression.pruning.select_kept import mean_loss, without_each
from distill.compression.pruning.sensitivity import (
    LESSON,
    Sensitivity,
    Subject,
    _constant_loss,
    cut,
    retrained,
    sensitivity,
)
from distill.compression.pruning.sensitivity import row_loss as loss_of_kind
from distill.config import Prune
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.task_types import MISSING, TASK_TYPES
from distill.data.tasks import TaskData
from distill.models import families, teacher
from distill.models.hooks import outputs_of
from tests import tiny

row_loss = functools.partial(loss_of_kind, TASK_TYPES["classification"])


def rows(count: int, labels: int) -> TaskData:
    """A task whose label is a letter in the text; with as many labels as rows it is the row's number."""
    texts = [f"it is {chr(ord('a') + n % labels % 26)}" for n in range(count)]
    data = Dataset.from_dict({"text": texts, "label": [n % labels for n in range(count)]})
    return TaskData(Task("own", TASK_TYPES["classification"], ("text",), ("a", "b"), ("accuracy",)), data, {}, {})


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return tiny.save(tmp_path, "bert", "SequenceClassification", num_labels=2)


@pytest.mark.parametrize("kind", ["classification", "multi_label", "question_answering", "multiple_choice"])
def test_the_constant_prediction_is_the_best_that_ignores_the_texts(kind: str) -> None:
    """scikit-learn's loss of the shares of each label; several labels of a row are predicted one by one."""
    random = np.random.default_rng(0)
    columns = {"multi_label": 3, "question_answering": 2}.get(kind, 1)
    labels = np.stack([random.integers(0, 2, 40) if n else random.random(40) < 0.05 for n in range(columns)], 1) * 1
    batch = {"input_ids": torch.zeros(40, 4), "labels": torch.from_numpy(labels.ravel())}
    if kind == "multiple_choice":
        batch |= {"input_ids": torch.zeros(160, 4), "groups": torch.arange(160).view(40, 4)}
    each = [log_loss(column, np.full(40, column.mean()), labels=[0, 1]) for column in labels.T]
    assert _constant_loss([batch]) == pytest.approx(np.mean(each), rel=1e-5)


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
    after = retrained(model, lessons, row_loss, 100)
    assert not after.training
    assert mean_loss(after, parts, row_loss) < before


def test_rows_without_a_label_count_nowhere(given: Path) -> None:
    subject = subject_of(given, rows(200, 2))
    model, (batch, *_) = subject.model, subject.sample(64)
    without = torch.arange(len(batch["labels"])) % 2 == 0
    some = batch | {"labels": batch["labels"].masked_fill(without, MISSING)}
    left = {name: value[~without] for name, value in batch.items()}
    assert mean_loss(model, [some], row_loss) == pytest.approx(mean_loss(model, [left], row_loss), rel=1e-4)
    ours, theirs = (without_each(model, [part], row_loss, range(3), [1]) for part in (some, left))
    assert ours[1] == pytest.approx(theirs[1], rel=1e-4)
    none = batch | {"labels": torch.full_like(batch["labels"], MISSING)}
    assert mean_loss(model, [none], row_loss) == 0.0
    assert all(value.isfinite().all() for value in retrained(model, [none, some], row_loss, 2).parameters())


def retriever(folder: Path, count: int = 64, words: int = 1) -> Subject:
    """An embedder with rows of queries that have several documents, which are shared, and not all relevant. A document
    is a sentence, so many times."""
    tiny.save(folder, "bert", "", std=0.3, length=520)
    sentences = tiny.SENTENCES
    texts = [sentences[n // 2 % 8] for n in range(count)], [" ".join([sentences[n % 5]] * words) for n in range(count)]
    labels = np.array([float(n % 3 > 0) for n in range(count)], np.float32)
    data = Dataset.from_dict({"a": texts[0], "b": texts[1], "label": labels})
    task = TaskData(Task("own", TASK_TYPES["retrieval"], ("a", "b"), (), ()), data, {}, {})
    return Subject("own", load_for(task.task, folder), teacher.load_tokenizer(folder), task, folder, 512, 0)


def test_losses_of_queries_have_the_negatives_of_training(tmp_path: Path) -> None:
    """Neither other relevant documents of a query, by a row of any batch or one that is not drawn, nor copies of its
    own document are negatives."""
    subject = retriever(tmp_path)
    kind, parts = subject.data.task.kind, subject.sample(64)

    def texts(part: Any, side: int) -> list[str]:
        ids = part["input_ids"][part["groups"][:, side]]
        return [subject.tokenizer.decode(row, skip_special_tokens=True) for row in ids]

    def read(text: str) -> str:
        decoded: str = subject.tokenizer.decode(subject.tokenizer(text)["input_ids"], skip_special_tokens=True)
        return decoded

    every = [(texts(part, 0), texts(part, 1), (part["labels"] != MISSING).tolist()) for part in parts]
    drawn = {row[:2] for columns in every for row in zip(*columns, strict=True) if row[2]}
    answered = {(read(row["a"]), read(row["b"])) for row in subject.data.train.to_list() if row["label"]}
    assert drawn < answered
    for part, (queries, documents, relevant) in zip(parts, every, strict=True):
        with torch.no_grad():
            scores, found = kind.on_labels(outputs_of(subject.model, part)), loss_of_kind(kind, subject.model, part)
        expected = []
        for i in np.flatnonzero(relevant).tolist():
            answers = torch.tensor([(queries[i], other) in answered or other == documents[i] for other in documents])
            answers[i] = False
            expected.append(scores[i][~answers].logsumexp(0) - scores[i, i])
            assert answers.any()
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("words", [1, 40])
def test_rows_that_are_compared_are_never_alone(words: int, tmp_path: Path) -> None:
    """Of long documents too, of which 4096 tokens would be few: a row alone has no negatives, and no gradients."""
    subject = retriever(tmp_path, 68, words)
    parts = subject.sample(64)
    assert [len(part["labels"]) for part in parts] == [12, 11, 11]
    assert max(part["input_ids"].shape[1] for part in parts) > 400 or words == 1
    scores = fisher(subject.model, parts, functools.partial(loss_of_kind, subject.data.task.kind))
    assert (scores.heads > 0).all()
    assert (scores.ffn > 0).any(1).all()


def measured(subject: Subject, importance: str, refit: bool, search: bool = False) -> Sensitivity:
    settings = Prune(importance={"_target_": f"distill.compression.pruning.{importance}"}, refit=refit, examples=64)
    shapes = [Shape(3, hidden, ffn) for hidden in (8, 16) for ffn in (8, 24)]
    return sensitivity(
        subject, settings, shapes, row_loss, layers=None, search=search, retrain_steps=0, log=lambda text: None
    )


def first_output(model: Any, parts: list[dict[str, Tensor]]) -> Tensor:
    """[tokens, width] what the feed-forward part of the first layer adds."""
    record, found = families.family_of(model).layer, list[Tensor]()
    assert record is not None
    module = families.layers(model)[0].get_submodule(record.ffn_out)
    for part in parts:
        real = part["attention_mask"].bool()
        handle = module.register_forward_hook(lambda module, given, output, real=real: found.append(output[real]))
        with torch.no_grad():
            families.logits(model, part)
        handle.remove()
    return torch.cat(found)


@pytest.mark.parametrize(
    "importance", [*(f"importance.{name}" for name in ("fisher", "taylor", "magnitude")), "reconstruct.reconstruction"]
)
@pytest.mark.parametrize("gates", [False, True])
def test_refitting_after_a_cut_by_any_importance_reduces_the_error(importance: str, gates: bool, given: Path) -> None:
    """The error of the first layer's output on the rows that are measured."""
    subject = subject_of(given, rows(200, 2))
    parts, grams = subject.sample(64), gram_matrices(subject.model, subject.sample(64))
    if gates:
        write(magnitude(subject.model), given / SCORES)
    assert measured(subject, importance, refit=False).refit == (importance == "reconstruct.reconstruction")
    found = measured(subject, importance, refit=True)
    assert found.refit
    whole = first_output(subject.model, parts)
    errors = []
    for given_grams in (None, grams):
        small = cut(subject.model, range(3), replace(found.scores, grams=given_grams), 16, 8)
        errors.append((first_output(small, parts) - whole).square().mean().item())
    assert errors[1] < 0.9 * errors[0]


def test_the_loss_by_size_is_that_of_refitted_models(given: Path) -> None:
    subject = subject_of(given, rows(200, 2))
    parts = subject.sample(64)
    grams = gram_matrices(subject.model, parts)
    losses = {}
    for refit in (False, True):
        found = measured(subject, "importance.fisher", refit, search=True)
        assert found.scores.grams is None
        assert found.losses is not None
        scores = replace(found.scores, grams=grams if refit else None)
        losses[refit] = mean_loss(cut(subject.model, range(3), scores, 16, 8), parts, row_loss)
        assert found.losses.ffn[8] == pytest.approx(max(losses[refit], found.losses.full), abs=1e-6)
    assert losses[True] != losses[False]
