"""`transformers.Trainer` with a distillation loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from distill.errors import ConfigError
from distill.losses.collated import INPUTS
from distill.losses.distillation_loss import DistillationLoss
from distill.losses.terms import Loss, Term
from distill.models import families

STORED = "teacher_logits"
"""Column of a teacher's stored outputs."""
_MAPS = "distill_maps.safetensors"


class _OfMaps(TrainerCallback):
    """Does for the gradients of the maps what the Trainer does for those of its model."""

    def __init__(self, maps: nn.ModuleDict) -> None:
        self._maps = maps

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **settings: Any) -> None:
        if args.max_grad_norm > 0 and len(self._maps):
            nn.utils.clip_grad_norm_(self._maps.parameters(), args.max_grad_norm)

    def on_step_end(self, args: Any, state: Any, control: Any, **settings: Any) -> None:
        self._maps.zero_grad()


class DistillationTrainer(Trainer):
    """A `transformers.Trainer` whose training loss is a `DistillationLoss`.

    The mean of each term is logged beside the loss. In evaluation the loss is the model's own. Only `model` is saved,
    without the teacher and the maps between hidden states of different widths. Checkpoints have the maps too, in a file
    of their own.

    Args:
        model: the student.
        teacher: as of `DistillationLoss`. With stored `teacher_logits` it is None.
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
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model: got {model!r}; must be the student; load it, and leave model_init out")
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
        self.add_callback(_OfMaps(self._maps))
        self.model_accepts_loss_kwargs = False  # the loss is a mean over the rows of its batch
        self._sums: dict[str, Tensor] = {}
        self._batches = 0

    def _set_signature_columns_if_needed(self) -> None:
        """Keep what the teacher takes too: a DistilBERT has no token types, and its BERT has."""
        super()._set_signature_columns_if_needed()
        known: list[str] = self._signature_columns or []  # type: ignore[has-type]
        self._signature_columns = list(dict.fromkeys([*known, *INPUTS, STORED]))

    def create_optimizer(self, model: Any = None) -> Any:
        """The Trainer's optimizer, which also trains the maps between hidden states of different widths."""
        optimizer = super().create_optimizer(model)
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        maps = [p for p in self._maps.parameters() if id(p) not in known]
        if maps and self.lr_scheduler is not None:  # it was given, and knows the groups that there were
            optimizer.param_groups[-1]["params"] += maps
        elif maps:
            optimizer.add_param_group({"params": maps})
        return optimizer

    @property
    def _maps(self) -> nn.ModuleDict:
        return self.loss_fn.objective.projections

    def _save_checkpoint(self, model: Any, trial: Any, *arguments: Any, **settings: Any) -> None:
        """The Trainer's checkpoint, with the maps, whose state the optimizer's is of."""
        super()._save_checkpoint(model, trial, *arguments, **settings)
        if maps := {name: values.contiguous() for name, values in self._maps.state_dict().items()}:
            folder = Path(self._get_output_dir(trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            if folder.is_dir():  # else an older one is better
                save_file(maps, folder / _MAPS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self._maps.state_dict():
            file = Path(resume_from_checkpoint, _MAPS)
            if not file.is_file():
                raise ConfigError(
                    f"resume_from_checkpoint: got {resume_from_checkpoint} without {_MAPS}; must be a checkpoint of a "
                    "DistillationTrainer with these terms; train from the start"
                )
            self._maps.load_state_dict(load_file(file, str(self.args.device)))

    def _own(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs of a batch without those that the teacher alone takes."""
        taken = families.input_names(self.loss_fn.objective.student.config)
        return {name: values for name, values in inputs.items() if name in taken or name not in (*INPUTS, STORED)}

    def prediction_step(self, model: Any, inputs: dict[str, Any], *arguments: Any, **settings: Any) -> Any:
        """As the Trainer's, of the student alone."""
        return super().prediction_step(model, self._own(inputs), *arguments, **settings)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The distillation loss in training; in evaluation the model's own."""
        if not model.training:
            return super().compute_loss(model, self._own(inputs), return_outputs, num_items_in_batch)
        with self.accelerator.autocast():  # parts of the student, and the teacher, are called by themselves
            loss, parts = self.loss_fn(inputs)
        for name, value in parts.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._batches += 1
        return (loss, {}) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Log `logs` and the mean of each term since the last call, beside what the Trainer logs by the same name."""
        if "loss" in logs and self._batches:
            means = {name: value.item() / self._batches for name, value in self._sums.items()}
            logs |= {f"term_{name}" if name in logs else name: mean for name, mean in means.items()}
            self._sums, self._batches = {}, 0
        super().log(logs, *arguments, **settings)
