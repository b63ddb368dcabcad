"""One encoder with several heads, against the models with an encoder of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from distill import losses
from distill.config import Batch, Train
from distill.errors import Stopped
from distill.losses.objective import Objective
from distill.losses.shared_encoder import OnePass, SharedObjective, joined, parted, share_encoder, tokens_in
from distill.losses.terms import Term
from distill.models import families
from distill.training import schedule, train
from distill.training.train import gradients
from tests.tiny import SHAPES

TERMS = {
    "soft": Term(1.0, "logits", "teacher", "masked", partial(losses.soft_targets, temperature=2.0)),
    "hard": Term(0.5, "logits", "labels", "masked", losses.supervised),
}
WEIGHTS = torch.tensor([1.0, 0.5])
LABELS = (3, 2)
"""Number of labels of each task."""
LENGTHS = np.array([9, 4, 7, 12, 5, 9, 3, 8, 6, 10, 11, 4])
SPLIT = 8
"""Rows from this one on are those of the second task."""


def one_task(rows: np.ndarray, number: int) -> dict[str, np.ndarray]:
    """Invented tokens, labels and teacher's logits of these rows of a task."""
    lengths = LENGTHS[rows]
    real = np.arange(lengths.max()) < lengths[:, None]
    ids = np.where(real, 5 + (rows[:, None] * 7 + np.arange(lengths.max()) * 3) % 50, 1)
    logits = np.sin(rows[:, None] * 5 + np.arange(LABELS[number])).astype(np.float32)
    batch = {"input_ids": ids, "attention_mask": real.astype(np.int64), "token_type_ids": np.zeros_like(ids)}
    return batch | {"labels": rows % LABELS[number], "teacher_logits": logits}


def collate(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
    parts = {0: rows[rows < SPLIT], 1: rows[rows >= SPLIT]}
    return joined({number: one_task(part, number) for number, part in parts.items() if len(part)})


def tensors(batch: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {key: torch.from_numpy(value) for key, value in batch.items()}


@pytest.fixture
def models(tiny_model) -> Callable[..., list[Any]]:
    """Two classifiers with one encoder; with `own`, with equal encoders of their own."""

    def make(name: str = "bert", own: bool = False) -> list[Any]:
        created = [
            tiny_model(name, "SequenceClassification", layers=1, seed=number, num_labels=labels)
            for number, labels in enumerate(LABELS)
        ]
        if own:
            families.encoder(created[1]).load_state_dict(families.encoder(created[0]).state_dict())
        else:
            share_encoder(created)
        return created

    return make


def shared(models: list[Any]) -> SharedObjective:
    return SharedObjective([Objective(model, TERMS) for model in models])


def test_a_batch_of_several_tasks_is_taken_apart_again() -> None:
    batch = collate(np.array([1, 9, 4, 10]), 0)
    assert tokens_in(batch) == LENGTHS[[1, 9, 4, 10]].sum()
    parts = parted(tensors(batch))
    assert parts.keys() == {0, 1}
    for number, rows in enumerate(([1, 4], [9, 10])):
        for key, value in one_task(np.array(rows), number).items():
            np.testing.assert_array_equal(parts[number][key], value)
    one = one_task(np.array([2, 3]), 0)
    assert tokens_in(one | {"teacher_attention_mask": one["attention_mask"]}) == 19


def test_models_have_one_encoder_and_their_own_heads(models) -> None:
    one, other = models()
    assert families.encoder(one) is families.encoder(other)
    assert one.classifier is not other.classifier
    common = {id(p) for p in one.parameters()} & {id(p) for p in other.parameters()}
    assert common == {id(p) for p in families.encoder(one).parameters()}


def test_gradients_are_the_sum_of_those_of_separate_objectives(models) -> None:
    """Of the encoder; each head has the gradient of its own task."""
    together, batch = shared(models()), tensors(collate(np.arange(len(LENGTHS)), 0))
    sums = together(batch)
    (WEIGHTS * sums).sum().backward()
    separate = [Objective(model, TERMS) for model in models(own=True)]
    expected = [objective(part) for objective, part in zip(separate, parted(batch).values(), strict=True)]
    torch.testing.assert_close(sums, expected[0] + expected[1])
    assert together.counts(batch).tolist() == [12, 12]
    for one in expected:
        (WEIGHTS * one).sum().backward()
    encoders = [dict(families.encoder(objective.student).named_parameters()) for objective in separate]
    for name, parameter in families.encoder(together.student).named_parameters():
        both = [encoder[name].grad for encoder in encoders]
        torch.testing.assert_close(parameter.grad, both[0] + both[1], rtol=1e-4, atol=1e-6)
    for number, objective in enumerate(separate):
        head = together.objectives[number].student.classifier
        torch.testing.assert_close(head.weight.grad, objective.student.classifier.weight.grad)


def test_a_head_without_rows_has_a_gradient_of_zero(models) -> None:
    """Not None: processes of data-parallel training would wait for it."""
    together = shared(models())
    together(tensors(collate(np.array([0, 3]), 0))).sum().backward()
    own = [together.objectives[1].student.classifier.weight, together.objectives[1].student.classifier.bias]
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in own)
    assert all(parameter.grad is not None for parameter in together.parameters())
    assert together.counts(tensors(collate(np.array([0, 3]), 0))).tolist() == [2, 2]


def test_a_step_is_the_mean_over_the_rows_of_all_tasks(models) -> None:
    """However it is divided into parts: a task weighs in proportion to its rows."""
    found = []
    for division in ([np.arange(12)], [np.arange(3), np.arange(3, 9), np.arange(9, 12)]):
        together = shared(models())
        parts = [collate(rows, 0) for rows in division]
        values, tokens = gradients(together, together, parts, 1.0, WEIGHTS, Accelerator(cpu=True))
        assert tokens == LENGTHS.sum()
        found.append((values, [parameter.grad for parameter in together.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
    together = shared(models())
    torch.testing.assert_close(found[0][0], together(tensors(collate(np.arange(12), 0))).detach() / 12)


def run(objective: SharedObjective, folder: Path, interrupt: int | None = None) -> Any:
    calls = [0]

    def counting(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        calls[0] += 1
        if calls[0] == interrupt:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
        return collate(rows, epoch)

    return train(
        objective,
        LENGTHS,
        counting,
        name="finetune",
        settings=Train(batch=Batch(tokens=48), steps=8, epochs=9, checkpoint_seconds=1e9),
        seed=3,
        total=8,
        optimizer=torch.optim.AdamW(objective.parameters(), lr=0.02),
        schedule=partial(schedule.linear, warmup=0.1),
        accelerator=Accelerator(cpu=True),
        state_folder=folder / "state",
        console=None,
    )


def test_a_stopped_training_resumes_exactly(models, tmp_path: Path) -> None:
    whole, resumed = shared(models()), shared(models())
    done = run(whole, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(resumed, tmp_path, interrupt=5)
    started = shared(models())  # as in a new process
    again = run(started, tmp_path)
    assert (again.steps, again.tokens) == (done.steps, done.tokens) == (8, done.tokens)
    for name, parameter in started.named_parameters():
        assert torch.equal(parameter, dict(whole.named_parameters())[name]), name
    assert families.encoder(started.objectives[0].student) is families.encoder(started.objectives[1].student)


@pytest.mark.parametrize("name", SHAPES)
def test_one_pass_outputs_the_logits_of_every_model(name: str, models, tiny_batch: dict[str, Tensor]) -> None:
    separate = models(name, own=True)
    inputs = families.inputs(separate[0], tiny_batch)
    with torch.no_grad():
        expected = torch.cat([model(**inputs).logits for model in separate], dim=-1)
        calls: list[Any] = []
        one = OnePass(copy.deepcopy(separate))
        one.get_submodule(families.family_of(separate[0]).encoder).register_forward_hook(lambda *_: calls.append(1))
        logits = one(**inputs).logits
    assert len(calls) == 1
    torch.testing.assert_close(logits, expected, rtol=0, atol=0)
    assert expected.std(0).min() > 1e-3
