"""Inputs that do not fit together are refused once they are loaded, before any training."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.config import Config, Teacher, Term, Train
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.errors import ConfigError
from distill.models.student.training import only_used_embeddings
from distill.pipeline.validation import models


def context(kind: str, teachers: int, window: int | None) -> Any:
    task = Task(
        "own", TASK_TYPES[kind], ("text",), ("a", "b") if TASK_TYPES[kind].named else (), TASK_TYPES[kind].metrics
    )
    return SimpleNamespace(
        config=Config(teacher=Teacher(window=window)),
        given=SimpleNamespace(teachers=["x"] * teachers),
        tasks={"own": SimpleNamespace(task=task, train=range(100))},
    )


@pytest.mark.parametrize(("teachers", "window"), [(1, None), (2, None), (1, 64)])
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_only_outputs_that_can_be_averaged_are(kind: str, teachers: int, window: int | None) -> None:
    """The softmax over classes has no meaning for labels that do not exclude each other."""
    refused = not TASK_TYPES[kind].averaged and (teachers, window) != (1, None)
    if not refused:
        models.check_rows(context(kind, teachers, window), [])
        return
    with pytest.raises(ConfigError, match=f"^tasks.kind: got {kind} for own; must not be {kind} with sev"):
        models.check_rows(context(kind, teachers, window), [])


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_margins_are_refused_for_tasks_without_queries(kind: str) -> None:
    step = SimpleNamespace(stage="s", settings=Train(terms={"m": Term(features="margins"), "x": Term(weight=0)}))
    without = SimpleNamespace(stage="s", settings=Train(terms={"m": Term(weight=0, features="margins"), "x": Term()}))
    models.check_margins(context(kind, 1, None), [without])
    if kind == "reranking":
        models.check_margins(context(kind, 1, None), [step])
        return
    with pytest.raises(ConfigError, match=f"^stages.s.terms.m.weight: got 1; must be 0 for own, a task of kind {kind}"):
        models.check_margins(context(kind, 1, None), [step])


def tiny(**sizes: int) -> Any:
    return BertConfig(**{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, **sizes}, vocab_size=500)


@pytest.mark.parametrize("data", ["corpus", "tasks"])
@pytest.mark.parametrize("optimizer", [*models.STATES, "SGD"])
def test_the_least_memory_is_that_of_the_tensors_after_a_step(optimizer: str, data: str) -> None:
    config = tiny()
    model = BertForSequenceClassification(config)
    batch = {"input_ids": torch.zeros(1, 4, dtype=torch.long)}
    with ExitStack() as stack:
        if data == "tasks":
            stack.enter_context(only_used_embeddings(model, np.array([0, 1])))
        stepped = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
        model(**batch).logits.sum().backward()
        stepped.step()
        states = [value for state in stepped.state.values() for value in state.values() if torch.is_tensor(value)]
        grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        tensors = [*model.parameters(), *grads, *(value for value in states if value.dim())]
        needed = sum(4 * tensor.numel() for tensor in tensors)
    least = models.least_memory(config, Train(data=data, optimizer={"_target_": f"torch.optim.{optimizer}"}))
    if data == "corpus":
        assert least == needed
    else:  # besides, there is the table of all tokens; the rows of two tokens are not counted
        needed += 4 * config.vocab_size * config.hidden_size
        assert least <= needed <= least + 4 * 2 * config.hidden_size * (2 + models.STATES.get(optimizer, 0))


@pytest.mark.parametrize(
    ("settings", "student", "refused"),
    [
        ({"role": "teacher"}, None, True),
        ({"role": "teacher", "only_head": True}, None, False),
        ({"role": "student"}, None, False),  # its size follows from an earlier stage
        ({"role": "student"}, tiny(num_hidden_layers=40), True),
        ({"role": "student"}, tiny(num_hidden_layers=1), False),
    ],
)
def test_a_training_for_which_memory_cannot_be_enough_is_refused(
    settings: dict[str, Any], student: Any, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context("classification", 1, None)
    ctx.machine = SimpleNamespace(device=torch.device("cpu"))
    optimizer = {"_target_": "torch.optim.AdamW"}
    step = SimpleNamespace(stage="s", on_corpus=True, settings=Train(optimizer=optimizer, **settings))
    teachers = [tiny(num_hidden_layers=30)]
    models.check_memory(ctx, [(step, student)], teachers)  # type: ignore[list-item]
    monkeypatch.setattr(models, "memory", lambda: 20 * 2**20)
    if not refused:
        models.check_memory(ctx, [(step, student)], teachers)  # type: ignore[list-item]
        return
    with pytest.raises(
        ConfigError, match=r"^stages.s: got a training that needs 0.\d GiB of memory .*that this machine"
    ):
        models.check_memory(ctx, [(step, student)], teachers)  # type: ignore[list-item]
    monkeypatch.setattr(models, "memory", lambda: None)
    models.check_memory(ctx, [(step, student)], teachers)  # type: ignore[list-item]
