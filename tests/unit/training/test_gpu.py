"""Graphs of steps, compiled losses, and copies that nothing waits for. Skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from distill import losses
from distill.config import Batch, Train
from distill.losses import logits
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import families
from distill.training import graphs, schedule, train
from distill.training.arithmetic import in_arithmetic
from distill.training.graphs import Graphs
from distill.training.train import backward, gradients

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LENGTHS = np.array([8, 16] * 24)
SOFT = partial(losses.soft_targets, temperature=2.0)
TERMS = {
    "soft_targets": Term(1.0, "logits", "teacher", "all", SOFT),
    "supervised": Term(1.0, "logits", "labels", "all", losses.supervised),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def collate(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
    width = int(LENGTHS[rows].max())
    ids = 5 + (rows[:, None] * 7 + np.arange(width) * 3) % 50
    real = (np.arange(width) < LENGTHS[rows][:, None] - rows[:, None] % 3).astype(np.int64)
    ids = np.where(real, ids, 1)
    ids[np.arange(len(rows)), real.sum(1) - 1] = 2  # sequence-to-sequence models read the end of a text
    soft = np.sin(np.outer(rows + 1, np.arange(1, 4))).astype(np.float32)
    batch = {"input_ids": ids, "attention_mask": real, "token_type_ids": np.zeros_like(ids)}
    return batch | {"labels": rows % 3, "teacher_logits": soft}


def fit(model: Any, folder: Path, precision: str = "no", device: str = "cuda", steps: int = 24) -> Any:
    objective = Objective(model.to(device), TERMS)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=0.002, fused=True)
    return train(
        objective,
        LENGTHS,
        collate,
        name="finetune",
        settings=Train(batch=Batch(tokens=4096, examples=8), steps=steps, checkpoint_seconds=1e9),
        total=steps,
        seed=3,
        optimizer=optimizer,
        schedule=partial(schedule.linear, warmup=0.1),
        accelerator=Accelerator(cpu=device == "cpu", mixed_precision=precision),
        state_folder=folder,
        console=None,
    )


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten().cpu() for parameter in model.parameters()])


def test_float32_training_gives_the_weights_of_a_cpu(tiny_model, tmp_path: Path) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        AcceleratorState._reset_state(reset_partial_state=True)
        model = tiny_model("bert", "SequenceClassification", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        fit(model, tmp_path / device, device=device)
        found[device] = weights(model)
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-3, atol=2e-3)  # a step changes weights by 2e-3


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("name", families.FAMILIES)
def test_replayed_steps_give_the_weights_of_others(name: str, precision: str, tiny_model, tmp_path: Path, monkeypatch):
    """With dropout: the random numbers are the same too."""
    made: list[Graphs] = []
    keep = Graphs.__init__

    def init(self: Graphs, *arguments: Any) -> None:
        made.append(self)
        keep(self, *arguments)

    monkeypatch.setattr(Graphs, "__init__", init)
    models = [tiny_model(name, "SequenceClassification") for _ in range(2)]
    for model in models:
        model.config.pad_token_id = 1
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.1
    fit(models[0], tmp_path / "a", precision)
    monkeypatch.setattr(graphs, "MOST", 0)
    fit(models[1], tmp_path / "b", precision)
    # A GPU adds in any order, and a step changes weights by up to 2e-3.
    torch.testing.assert_close(weights(models[0]), weights(models[1]), rtol=1e-3, atol=1e-3)
    assert bool(made) == families.recordable(models[0])
    assert all(each.failure is None for each in made)
    assert [each.replayed > 12 for each in made] == [True, False][: len(made)]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_step_does_not_wait_for_the_gpu(recorded: bool, tiny_model) -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    objective = Objective(tiny_model("bert", "SequenceClassification").to("cuda"), TERMS)
    module = accelerator.prepare_model(in_arithmetic(objective, Train(), accelerator)).train()
    ones, optimizer = torch.ones(2, device="cuda"), torch.optim.AdamW(objective.parameters(), fused=True)
    own = Graphs(partial(backward, module, ones, accelerator), list(objective.parameters())) if recorded else None

    def step() -> None:
        gradients(module, objective, [collate(np.arange(8), 0)], 1.0, ones, accelerator, own)
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(5):
        step()
    with pytest.MonkeyPatch.context() as patch:
        if not recorded:  # transformers asks whether a batch has padding
            patch.setattr("transformers.masking_utils._ignore_bidirectional_mask_sdpa", lambda *a, **k: False)
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_compiled_losses_are_those_of_a_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    for rows in (7, 300):
        student = 3 * torch.randn(rows, 5003, generator=generator)
        teacher, labels = 3 * torch.randn(rows, 5003, generator=generator), torch.arange(rows)
        expected, found = student.clone().requires_grad_(), student.cuda().requires_grad_()
        assert logits._compiles(found)
        for loss, target in ((SOFT, teacher), (losses.mlm, labels)):
            value, own = loss(expected, target), loss(found, target.cuda())
            torch.testing.assert_close(own.cpu(), value, rtol=1e-4, atol=1e-4)
            (one,) = torch.autograd.grad(value.sum(), expected)
            (two,) = torch.autograd.grad(own.sum(), found)
            torch.testing.assert_close(two.cpu(), one, rtol=1e-3, atol=1e-6)


def test_a_recording_that_fails_is_not_tried_again(tiny_model) -> None:
    """Random numbers, too, are then drawn as if it had not been tried."""
    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))

    def waits(batch: dict[str, torch.Tensor], factors: torch.Tensor) -> torch.Tensor:
        dropped = torch.nn.functional.dropout(weight * batch["x"].to("cuda"), 0.5)
        float(dropped.sum())  # waits for the GPU
        (dropped.sum() * factors).backward()
        return dropped.detach()

    found = []
    for run in (Graphs(waits, [weight]), waits):
        values = []
        for step in range(5):
            torch.manual_seed(step)
            values.append(run({"x": torch.ones(3)}, torch.tensor(1.0, device="cuda")).tolist())
            values.append(weight.grad.tolist())
            weight.grad = None
        found.append(values)
        assert isinstance(run, Graphs) == (run is not waits)
        assert run is waits or (run.failure is not None and run.replayed == 0)
    assert found[0] == found[1]
