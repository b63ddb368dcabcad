"""The training loss for any loop: a module that takes the batches of a collator of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distill.config.feature_kinds import VECTORS
from distill.errors import ConfigError, DataError
from distill.losses.collated import LABELS, batch_of, kind_named, kind_of
from distill.losses.objective import Objective
from distill.losses.terms import Loss, Term, named
from distill.models import families
from distill.models.compatible import misfit
from distill.models.copied import copied_from, copied_layers
from distill.models.unwrapped import is_parallel, unwrapped


class DistillationLoss(nn.Module):
    """A weighted sum of terms between a student and its teacher, for a training loop of your own.

        terms = [distill.terms.SoftTargets(temperature=2.0), distill.terms.Hidden(layers="uniform")]
        loss_fn = distill.DistillationLoss(student, teacher, terms)
        optimizer = torch.optim.AdamW(loss_fn.parameters(), lr=5e-5)
        loss, parts = loss_fn(batch)

    It computes what a training stage of a recipe computes. `parameters()` are those of the student and, where terms
    compare hidden states of other widths, of the linear maps between them. The teacher is put into eval mode, gets no
    gradient, and is no submodule: neither `train()` nor `state_dict()` reaches it. `to()` moves it along.

    Args:
        student: an `AutoModelFor...` of transformers with a head, of a family that distill knows: MaskedLM,
            SequenceClassification, TokenClassification, MultipleChoice or QuestionAnswering.
        teacher: a model with the same head and the same tokenizer. None if no term needs a teacher, or if every batch
            has `teacher_logits` and no term compares layers. Several language models are averaged.
        terms: terms of `distill.terms`, or plain functions of the logits [rows, C] of student and teacher; in a
            mapping, by the names that they have in the result.
        layer_map: the teacher's layer that each layer of the student was copied from, for `layers="uniform"`. If it is
            None, that is known of what `distill.student` and `distill.prune` made, and was not loaded again. Of other
            students, layer m of M is compared with the teacher's layer at the same relative depth (Jiao et al. 2020,
            arXiv 1909.10351, section 3.1).
        pooling: how `terms.Pooled` makes one vector of the hidden states of a text: mean, cls, max,
            mean_sqrt_len_tokens, weightedmean or lasttoken.
        kind: name of the kind of task, one of `distill.data.task_types.TASK_TYPES`, such as reranking, where the config
            of the student cannot tell it from another kind with the same head. With None it is the kind for which
            transformers trains such a model.

    Raises:
        ConfigError: for models, terms or a kind that do not fit each other.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module | Sequence[nn.Module] | None,
        terms: Mapping[str, Term | Loss] | Sequence[Term | Loss],
        *,
        layer_map: Sequence[int] | None = None,
        pooling: str = "mean",
        kind: str | None = None,
    ) -> None:
        super().__init__()
        if is_parallel(student):
            raise ConfigError(
                f"student: got a {type(student).__name__}; must be the model in it, as the loss calls its parts; wrap "
                "the loss, which has the model as a part"
            )
        student = unwrapped(student)
        teachers = list(map(unwrapped, [teacher] if isinstance(teacher, nn.Module | str | Path) else teacher or ()))
        found = kind_of(student)
        _check(student, teachers, found)
        outputs = getattr(student.config, "num_labels", 0)
        self._kind = found if kind is None else kind_named(kind, found, outputs)
        for each in teachers:
            each.eval()
        own = self._kind
        rows: dict[str, Any] = {} if own is None else {"rows": own.rows, "label_rows": own.on_labels}
        by_name = named(terms)
        if of_texts := [name for name, term in by_name.items() if term.kind is VECTORS]:
            raise ConfigError(
                f"terms: got {of_texts[0]}, which compares the vectors that embedders make of texts; must compare what "
                "a model with a head computes; leave it out, or use distill.EmbeddingLoss"
            )
        if not teachers and (inside := [name for name, term in by_name.items() if term.kind.inside]):
            raise ConfigError(
                f"teacher: got None; must be a model for the term {inside[0]}, which compares its layers; pass one, or "
                "leave the term out"
            )
        kept = _copied(student, teachers) if layer_map is None else [int(number) for number in layer_map]
        self.objective = Objective(
            student, by_name, teachers, pooling, [1.0] * max(len(teachers), 1), kept=kept, **rows
        )
        self._on_labels = all(term.compare_with == "labels" for term in by_name.values()) and found is not None
        masked = [name for name, term in by_name.items() if "masked" in term.kind.rows and term.positions == "masked"]
        self._on_masked = masked if found is None else []
        self._learns = [name for name, term in by_name.items() if term.compare_with == "teacher"]
        self.register_buffer("_weights", torch.tensor([term.weight for term in by_name.values()]), persistent=False)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss [] of a batch, and the mean of each term over its rows, unweighted and without a gradient.

        Args:
            batch: as a collator returns it; see `distill.losses.collated.batch_of`. It must be on the models' device.

        Raises:
            ConfigError: a term compares with a teacher, and there is neither a teacher nor `teacher_logits`.
            DataError: for tensors of other shapes than the model's task has, and for no labels where every term
                compares with labels.
        """
        if self._on_labels and not {*LABELS} & {*batch}:
            raise DataError(
                f"batch: got {', '.join(batch)}; must have labels, with which every term compares; add them, as labels"
            )
        if self._on_masked and not {*LABELS} & {*batch}:
            raise DataError(
                f"batch: got {', '.join(batch)}; must have labels, which tell the masked tokens, for the term "
                f"{self._on_masked[0]}; use DataCollatorForLanguageModeling, or positions='all'"
            )
        if self._learns and not self.objective.teachers and "teacher_logits" not in batch:
            raise ConfigError(
                f"teacher: got None; must be a model for the term {self._learns[0]}; pass one, or put teacher_logits "
                "into the batch"
            )
        for teacher in self.objective.teachers:
            if teacher.training:  # since it was given
                teacher.eval()
        student: Any = self.objective.student
        prepared = batch_of(self._kind, getattr(student.config, "num_labels", 0), batch)
        sums = self.objective(prepared)
        weights: Any = self._weights.to(sums.device)
        counts = self.objective.counts(prepared).to(sums.device).clamp_(min=1)
        means = sums * (1.0 / counts)
        parts = dict(zip(self.objective.terms, means.detach().unbind(), strict=True))
        return (weights * means).sum(), parts

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DistillationLoss:
        for teacher in self.objective.teachers:
            teacher._apply(fn)
        super()._apply(fn, recurse)
        return self


def _copied(student: nn.Module, teachers: Sequence[nn.Module]) -> list[int] | None:
    """The layers that a student's were copied from, if that is known and the teacher has them."""
    known = copied_layers(student)
    if known is None or not teachers or len(known) != families.depth(student):
        return None
    return known if copied_from(student) == families.depth(teachers[0]) else None


def _check(student: nn.Module, teachers: Sequence[nn.Module], kind: Any) -> None:
    """ConfigError unless the teachers have the student's head and outputs."""
    for teacher in teachers:
        if (theirs := kind_of(teacher, "teacher")) is not kind:
            raise ConfigError(
                f"teacher: got a {type(teacher).__name__} for a student of class {type(student).__name__}; must have "
                "the same kind of head; load both for the same task"
            )
        if not {*teacher.modules()}.isdisjoint(student.modules()):
            raise ConfigError(
                "teacher: got the student, or a model that shares modules with it; must be another, which training "
                "does not change; copy it with copy.deepcopy"
            )
        ours: Any = student.config
        config: Any = teacher.config
        size = "vocab_size" if theirs is None else "num_labels"
        if getattr(config, size) != getattr(ours, size):
            raise ConfigError(
                f"teacher: got {size} {getattr(config, size)}; must be {getattr(ours, size)}, the student's; use "
                "models of the same labels and the same tokenizer"
            )
        if (problem := misfit(config, ours)) is not None:
            raise ConfigError(f"teacher: got {problem}; use models of one tokenizer and one task, or teacher_logits")
    if len(teachers) > 1 and kind is not None:
        raise ConfigError(
            f"teacher: got {len(teachers)} models; must be one on tasks; average the logits of several, and put them "
            "into the batch as teacher_logits"
        )
