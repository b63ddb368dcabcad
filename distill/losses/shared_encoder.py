"""One encoder with a head for each of several tasks: the models that share it, their loss, and one pass through all.

This is hard parameter sharing (Caruana 1997, Machine Learning 28): all modules below the head are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from distill.losses.objective import Objective
from distill.models import families

Values = TypeVar("Values", np.ndarray, Tensor)


def share_encoder(models: Sequence[Any]) -> None:
    """Replace the encoder of every model, in place, by the first model's encoder, which all of them then share."""
    path, encoder = families.family_of(models[0]).encoder, families.encoder(models[0])
    for model in models[1:]:
        model.set_submodule(path, encoder)


def joined(batches: Mapping[int, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One batch from the batches of several tasks, by number. Arrays keep their shapes: `0.input_ids` [B, L] is the
    first task's."""
    return {f"{number}.{key}": value for number, batch in batches.items() for key, value in batch.items()}


def parted(batch: Mapping[str, Values]) -> dict[int, dict[str, Values]]:
    """The batches that were `joined`, by the number of their task. Arrays keep their shapes."""
    parts: dict[int, dict[str, Values]] = {}
    for name, value in batch.items():
        number, _, key = name.partition(".")
        parts.setdefault(int(number), {})[key] = value
    return parts


def tokens_in(batch: Mapping[str, np.ndarray]) -> int:
    """Number of the student's tokens without padding in a batch [B, L], of one task or `joined`."""
    masks = {name: value for name, value in batch.items() if name.rpartition(".")[2] == "attention_mask"}
    # A process without rows of its own has encoded another's.
    own = [value for name, value in masks.items() if len(batch.get(name.replace("attention_mask", "own"), "-"))]
    return sum(int(value.sum()) for value in own)


class SharedObjective(nn.Module):
    """The loss of all tasks: the sum of each term over the rows of every task in a batch.

    A batch has the arrays of each task as `joined` names them. A task without rows in it is left out. The training
    loop divides the sums by the number of rows of all tasks together, so that a task weighs in proportion to its rows.
    There is an objective for each task, all with the same terms and with students that share their encoder.
    """

    gates: Any = None

    def __init__(self, objectives: Sequence[Objective]) -> None:
        super().__init__()
        assert len({tuple(objective.terms) for objective in objectives}) == 1
        self.terms, self.progress = objectives[0].terms, 0.0
        self.objectives = nn.ModuleList(objectives)
        encoder = {id(parameter) for parameter in families.encoder(objectives[0].student).parameters()}
        # A list of lists, so that the parameters are not registered a second time.
        self._own = [[p for p in o.parameters() if id(p) not in encoder and p.requires_grad] for o in objectives]

    @property
    def student(self) -> Any:
        """The model of the first task."""
        return self.objectives[0].student

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """The models of all tasks, and their teachers."""
        return tuple(model for number in range(len(self.objectives)) for model in self._objective(number).models)

    def counts(self, batch: Mapping[str, Values]) -> Tensor:
        """Number of rows, over all tasks, that each term sums over in this batch, float32 `[terms]`."""
        return torch.stack([self._objective(number).counts(part) for number, part in parted(batch).items()]).sum(0)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over this batch, unweighted, float32 `[terms]`."""
        parts = parted(batch)
        sums = [self._objective(number)(part) for number, part in parts.items()]
        # Data parallelism waits for a gradient of every parameter, also of heads without rows in this batch.
        absent = [p.float().sum() for number, own in enumerate(self._own) if number not in parts for p in own]
        total = torch.stack(sums).sum(0)
        return total + 0 * torch.stack(absent).sum() if absent else total

    def _objective(self, number: int) -> Objective:
        objective = self.objectives[number]
        assert isinstance(objective, Objective)
        return objective


Trainable = Objective | SharedObjective


class _Passed(nn.Module):
    """Stands for the encoder in a model: returns the outputs that the encoder has computed already."""

    outputs: Any = None

    def forward(self, *args: Any, **inputs: Any) -> Any:
        return self.outputs


class OnePass(nn.Module):
    """Models that share an encoder, as one model: the encoder runs once, and every head on its output. The models are
    changed and must not be used otherwise; the encoder of the first is used for all of them."""

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__()
        self.config, path = models[0].config, families.family_of(models[0]).encoder
        # Registered under its own name, so that its modules are named as in the model of a single task.
        self.path = path
        self.add_module(path, families.encoder(models[0]))
        self.passed = _Passed()
        for model in models:
            model.set_submodule(path, self.passed)
        self.heads = nn.ModuleList(models)

    def each(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> list[Tensor]:
        """Logits [B, outputs] of every head."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs |= {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        self.passed.outputs = self.get_submodule(self.path)(**inputs)
        try:
            return [head(**inputs).logits for head in self.heads]
        finally:
            self.passed.outputs = None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """Logits [B, outputs of all heads], in the order of the heads."""
        every = self.each(input_ids, attention_mask, token_type_ids)
        return SequenceClassifierOutput(logits=torch.cat(every, dim=-1))
