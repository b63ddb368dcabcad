"""Which models are said to have collapsed: none that is as good as the development rows can tell."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from distill.config import Train
from distill.data.task import Task
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.regression import REGRESSION
from distill.data.task_types.reranking import RERANKING
from distill.data.task_types.task_type import GROUPED, TaskType
from distill.evaluation.tried import Tried, Try
from distill.pipeline.artefacts import TaskModel
from distill.pipeline.train_steps import tasks
from distill.pipeline.train_steps.development_rows import DevelopmentRows

LABELS = {CLASSIFICATION.name: ("no", "yes")}


def tried(
    kind: TaskType, truth: np.ndarray, outputs: np.ndarray, monkeypatch: pytest.MonkeyPatch, *metrics: str
) -> tuple[Try, float | None]:
    """The try of a model with these outputs, and the score without skill."""
    task = Task("a", kind, ("text",), LABELS.get(kind.name, ()), metrics or kind.metrics)
    runtime: Any = None
    data: Any = SimpleNamespace(task=task)
    rows = DevelopmentRows(data, None, None, runtime)
    rows.__dict__["parts"] = [(None, truth)]
    monkeypatch.setattr(DevelopmentRows, "_outputs", lambda self, model: iter([(outputs, truth)]))
    model: Any = None
    made = rows.tried(model, 1e-4, 0)
    return made.kept, made.chance


def of_classes(predicted: np.ndarray) -> np.ndarray:
    return np.eye(2, dtype=np.float32)[predicted]


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("metric", ["accuracy", "f1", "f1_macro", "matthews"])
def test_a_perfect_model_has_not_collapsed_on_rows_of_one_label(
    value: int, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.full(200, value)
    one, chance = tried(CLASSIFICATION, truth, of_classes(truth), monkeypatch, metric)
    assert (one.collapsed, chance) == (False, None)


def test_a_model_collapsed_if_it_predicts_one_class_and_not_if_it_weighs_a_rare_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = np.array([0] * 190 + [1] * 10)
    balanced = np.array([0] * 175 + [1] * 25)
    one, chance = tried(CLASSIFICATION, truth, of_classes(np.zeros(200, np.int64)), monkeypatch, "accuracy")
    assert (one.collapsed, one.score, chance) == (True, pytest.approx(95), pytest.approx(95))
    one, chance = tried(CLASSIFICATION, truth, of_classes(balanced), monkeypatch, "accuracy")
    assert (one.collapsed, one.score, chance) == (False, pytest.approx(92.5), pytest.approx(95))
    few = np.array([0, 0, 0, 0, 1])
    one, chance = tried(CLASSIFICATION, few, of_classes(np.zeros(5, np.int64)), monkeypatch)
    assert (one.collapsed, chance) == (False, None)


def test_numbers_without_skill_have_collapsed_though_half_of_them_are_above_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(5)
    truth = random.normal(size=500).astype(np.float32)
    found = [tried(REGRESSION, truth, random.normal(size=(500, 1)), monkeypatch)[0] for _ in range(40)]
    assert sum((one.score or 0) > 0 for one in found) in range(10, 31)
    assert sum(one.collapsed for one in found) >= 34
    one, chance = tried(REGRESSION, truth, (truth + random.normal(size=500))[:, None], monkeypatch)
    assert not one.collapsed
    assert chance is not None
    assert 0 < chance < 15
    skilled = truth[:10, None] + random.normal(size=(10, 1))
    assert tried(REGRESSION, truth[:10], skilled, monkeypatch)[1] is None
    assert tried(REGRESSION, np.ones(500, np.float32), truth[:, None], monkeypatch)[1] is None


def test_rankings_are_compared_with_random_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    truth = np.zeros(800, GROUPED)
    truth["group"], truth["label"] = np.arange(800) // 8, np.arange(800) % 8 == 3
    found = [tried(RERANKING, truth, random.normal(size=(800, 1)), monkeypatch)[0] for _ in range(20)]
    assert sum(one.collapsed for one in found) >= 16
    skilled = truth["label"] + random.normal(size=800)
    assert not tried(RERANKING, truth, skilled[:, None], monkeypatch)[0].collapsed
    truth["label"] = 0
    assert tried(RERANKING, truth, skilled[:, None], monkeypatch)[1] is None  # nothing is relevant


@pytest.mark.parametrize("kind", [CLASSIFICATION, REGRESSION], ids=lambda kind: kind.name)
def test_outputs_that_are_no_numbers_are_a_try_that_failed(kind: TaskType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a class that is taken for the likeliest is right."""
    truth = np.arange(100, dtype=np.float32) if kind is REGRESSION else np.arange(100) % 2
    outputs = np.full((100, 1 if kind is REGRESSION else 2), np.nan)
    one, _ = tried(kind, truth, outputs, monkeypatch)
    assert (one.score, one.failed) == (None, "outputs: got numbers that are not finite")


@pytest.mark.parametrize("retries", [0, 1])
def test_a_score_by_which_nothing_is_chosen_ends_no_training(retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, *arguments: Any) -> Any:
        raise RuntimeError("out of memory")

    lines = list[str]()
    monkeypatch.setattr(DevelopmentRows, "parts", [(None, np.arange(9))])
    monkeypatch.setattr(DevelopmentRows, "tried", failing)
    inputs: Any = SimpleNamespace(name="finetune", tokenizer=None, window=None, lr=1e-4, seed=0)
    runtime: Any = SimpleNamespace(
        machine=SimpleNamespace(main=True, log=lines.append), limit=SimpleNamespace(smoke=False)
    )
    data: Any = SimpleNamespace(task=SimpleNamespace(name="a"))
    made = TaskModel(steps=1, tokens=1, seconds=1.0)
    score = partial(tasks._scored, made, nn.Linear(1, 1), inputs, Train(data="tasks", retries=retries), runtime, data)
    if retries:  # the scores choose
        with pytest.raises(RuntimeError, match="out of memory"):
            score()
    else:
        assert score() == made
        assert lines == ["finetune/a: not scored on the development rows (RuntimeError: out of memory)"]


@pytest.mark.parametrize("in_int8", [False, True])
def test_a_model_that_is_trained_for_int8_is_scored_in_int8(in_int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, faked = nn.Sequential(nn.Linear(2, 2)), list[bool]()

    def seen(self: Any, model: nn.Sequential, lr: float, seed: int, score: float | None) -> Tried:
        faked.append("forward" in vars(model[0]))
        return Tried(task="a", chance=None, tries=[Try(lr=lr, seed=seed, score=50.0)])

    monkeypatch.setattr(DevelopmentRows, "parts", [(None, np.arange(9))])
    monkeypatch.setattr(DevelopmentRows, "tried", seen)
    monkeypatch.setattr(tasks, "linears", lambda model: ["0"])
    inputs: Any = SimpleNamespace(name="finetune", tokenizer=None, window=None, lr=1e-4, seed=0)
    runtime: Any = SimpleNamespace(machine=SimpleNamespace(main=True), limit=SimpleNamespace(smoke=False))
    data: Any = SimpleNamespace(task=SimpleNamespace(name="a"))
    settings = Train(data="tasks", quantization_aware=in_int8)
    made = tasks._scored(TaskModel(steps=1, tokens=1, seconds=1.0), model, inputs, settings, runtime, data)
    assert made.tried is not None
    assert faked == [in_int8]
    assert "forward" not in vars(model[0])
