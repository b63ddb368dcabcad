"""`transformers.Trainer` with a distillation loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from transformers import Trainer

from distill.errors import ConfigError
from distill.losses.distillation_loss import DistillationLoss
from distill.losses.terms import Loss, Term


class DistillationTrainer(Trainer):
    """A `transformers.Trainer` whose training loss is a `DistillationLoss`.

    The mean of each term is logged beside the loss. In evaluation the loss is the model's own. Only `model` is saved,
    without the teacher and the maps between hidden states of different widths.

    Args:
        model: the student.
        teacher: as of `DistillationLoss`. With stored `teacher_logits` it is None, and
            `TrainingArguments(remove_unused_columns=False)` keeps that column.
        terms: as of `DistillationLoss`.
        layer_map: as of `DistillationLoss`.
        settings: all other arguments of `transformers.Trainer`.

    Raises:
        ConfigError: for models or terms that do not fit each other, and for several processes or GPUs, of which the
            Trainer wraps the student alone.
    """

    def __init__(
        self,
        model: nn.Module,
        teacher: nn.Module | Sequence[nn.Module] | None,
        terms: Mapping[str, Term | Loss] | Sequence[Term | Loss],
        *,
        layer_map: Sequence[int] | None = None,
        **settings: Any,
    ) -> None:
        loss_fn = DistillationLoss(model, teacher, terms, layer_map=layer_map)
        super().__init__(model=model, **settings)
        if self.args.world_size > 1 or self.args.n_gpu > 1:
            raise ConfigError(
                f"Trainer: got {max(self.args.world_size, self.args.n_gpu)} processes or GPUs; must be one; "
                "put distill.DistillationLoss into a loop of your own with accelerate, or use python -m distill"
            )
        for name, given in (
            ("label_smoothing_factor", self.args.label_smoothing_factor),
            ("compute_loss_func", self.compute_loss_func),
        ):
            if given:
                raise ConfigError(f"{name}: got {given}; must be left out, as the loss is that of the terms; remove it")
        self.loss_fn = loss_fn.to(self.args.device)
        self.model_accepts_loss_kwargs = False  # the loss is a mean over the rows of its batch
        self._sums: dict[str, Tensor] = {}
        self._batches = 0

    def create_optimizer(self, model: Any = None) -> Any:
        """The Trainer's optimizer, which also trains the maps between hidden states of different widths."""
        optimizer = super().create_optimizer(model)
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        maps = [p for p in self.loss_fn.objective.projections.parameters() if id(p) not in known]
        if maps:
            optimizer.add_param_group({"params": maps})
        return optimizer

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The distillation loss in training; in evaluation the model's own."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        loss, parts = self.loss_fn(inputs)
        for name, value in parts.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._batches += 1
        return (loss, {}) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Log `logs` and the mean of each term since the last call."""
        if "loss" in logs and self._batches:
            logs |= {name: value.item() / self._batches for name, value in self._sums.items()}
            self._sums, self._batches = {}, 0
        super().log(logs, *arguments, **settings)
