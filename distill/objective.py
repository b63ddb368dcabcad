"""The training loss: a weighted sum of terms over one batch.

A module, so that data-parallel training wraps student and loss together. It returns the **sum** of each term over this
batch; the engine divides by counts taken over all processes and parts of a step, so that neither accumulation nor the
number of processes changes a gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from distill import family


class Loss(Protocol):
    def __call__(self, student: Tensor, target: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class BoundTerm:
    """A term with its function bound to its hyper-parameters. Fields as in `config.Term`."""

    weight: float
    features: str
    against: str
    positions: str
    loss: Loss


CHUNK = 1024
"""Positions whose vocabulary logits are held at once when a term asks for all positions."""


def counts(terms: Mapping[str, BoundTerm], batch: Mapping[str, Tensor]) -> Tensor:
    """Rows each term sums over in this batch, float32 `[terms]`."""
    return torch.stack([torch.as_tensor(batch[_rows(t, batch)].shape[0], dtype=torch.float32) for t in terms.values()])


def _rows(term: BoundTerm, batch: Mapping[str, Tensor]) -> str:
    """Name of what has an entry for each row that a term sums over."""
    if "real" not in batch:
        return "labels"
    if term.features == "hidden" and "aligned" in batch:
        return "aligned"
    return {"masked": "masked", "all": "real"}[term.positions]


class Objective(nn.Module):
    """Student and terms over a batch.

    A corpus batch has `input_ids`, `attention_mask` `[B, L]`, `masked` `[M]` and `real` `[R]` (flat positions that are
    masked, and that are no padding) and `labels` `[M]`. Where student and teacher have tokenizers of their own it has
    `teacher_input_ids` and so on `[B, L']` too, not masked, and `aligned` and `teacher_aligned` `[P]`, flat positions
    of tokens that end at the same character: hidden states are compared there. A task batch has `labels` `[B]` instead,
    and `teacher_logits` `[B, C]` where a term needs them.
    """

    def __init__(self, student: nn.Module, terms: Mapping[str, BoundTerm], teacher: nn.Module | None = None) -> None:
        super().__init__()
        self.student = student
        self.terms = dict(terms)
        # In a tuple, so that the teacher is no submodule: it gets no gradient, no synchronization, no train mode.
        self._teacher = (teacher,)
        self.projections = _projections(student, teacher, self.terms)

    @property
    def teacher(self) -> nn.Module | None:
        return self._teacher[0]

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over this batch, unweighted, float32 `[terms]`."""
        with self._arithmetic(batch["input_ids"].device.type):
            sums = self._task(batch) if "real" not in batch else self._corpus(batch)
        return torch.stack([sums[name].float() for name in self.terms])

    def _arithmetic(self, device: str) -> AbstractContextManager[Any]:
        """That of the loop, or float32 where the student's code knows no other."""
        bf16 = family.family_of(self.student).bf16
        return contextlib.nullcontext() if bf16 else torch.autocast(device, enabled=False)

    def _task(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = self.student(**family.inputs(self.student, batch)).logits
        names = {"teacher": "teacher_logits", "labels": "labels"}
        return {name: term.loss(logits, batch[names[term.against]]).sum() for name, term in self.terms.items()}

    def _corpus(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        student = family.encode(self.student, batch).flatten(0, 1)
        teacher = self._teacher_hidden(batch)
        sums: dict[str, Tensor] = {}
        for where in ("masked", "all"):
            rows = batch["masked" if where == "masked" else "real"]
            terms = {name: term for name, term in self.terms.items() if term.positions == where}
            hidden = {name: term for name, term in terms.items() if term.features == "hidden"}
            logits = {name: term for name, term in terms.items() if term.features == "logits"}
            if hidden:
                assert teacher is not None
                mine, theirs = batch.get("aligned", rows), batch.get("teacher_aligned", rows)
                sums |= {
                    name: term.loss(self._projected(name, student[mine]), teacher[theirs]).sum()
                    for name, term in hidden.items()
                }
            if logits:
                sums |= self._logits(
                    logits,
                    student[rows],
                    None if teacher is None or "aligned" in batch else teacher[rows],
                    batch["labels"],
                    chunk=where == "all",
                )
        return sums

    def _projected(self, name: str, student: Tensor) -> Tensor:
        return self.projections[name](student) if name in self.projections else student

    @torch.no_grad()
    def _teacher_hidden(self, batch: dict[str, Tensor]) -> Tensor | None:
        if self.teacher is None:
            return None
        # Where it has tokens of its own, they are of the same texts.
        own = {key.removeprefix("teacher_"): value for key, value in batch.items() if key.startswith("teacher_")}
        return family.encode(self.teacher, own or batch).flatten(0, 1)

    def _logits(
        self, terms: dict[str, BoundTerm], student: Tensor, teacher: Tensor | None, labels: Tensor, *, chunk: bool
    ) -> dict[str, Tensor]:
        """Terms on vocabulary logits; the head runs only on the rows given, in recomputed chunks if there are many."""
        whole = partial(self._head_terms, terms)
        if not chunk:
            return dict(zip(terms, whole(student, teacher, labels), strict=True))
        total = student.new_zeros(len(terms), dtype=torch.float32)
        for start in range(0, len(student), CHUNK):
            rows = slice(start, start + CHUNK)
            part = None if teacher is None else teacher[rows]
            total = total + checkpoint(whole, student[rows], part, labels, use_reentrant=False)
        return dict(zip(terms, total, strict=True))

    def _head_terms(
        self, terms: dict[str, BoundTerm], student: Tensor, teacher: Tensor | None, labels: Tensor
    ) -> Tensor:
        logits = family.mlm_logits(self.student, student)
        targets = {"labels": labels}
        if any(term.against == "teacher" for term in terms.values()):
            assert self.teacher is not None
            assert teacher is not None
            with torch.no_grad():
                targets["teacher"] = family.mlm_logits(self.teacher, teacher)
        return torch.stack([term.loss(logits, targets[term.against]).sum().float() for term in terms.values()])


def _projections(student: nn.Module, teacher: nn.Module | None, terms: Mapping[str, BoundTerm]) -> nn.ModuleDict:
    """A trained linear map for each term on hidden states, where the student's are not as wide as the teacher's.

    The regressor of Romero et al. 2015, arXiv 1412.6550, section 2.2, and W_h of Jiao et al. 2020, arXiv 1909.10351,
    equation 8. It is no part of the student that is saved.
    """
    if teacher is None:
        return nn.ModuleDict()
    width, wanted = family.width(student), family.width(teacher)
    if width == wanted:
        return nn.ModuleDict()
    like = next(student.parameters())
    return nn.ModuleDict(
        {
            name: nn.Linear(width, wanted, bias=False, device=like.device, dtype=like.dtype)
            for name, term in terms.items()
            if term.features == "hidden"
        }
    )
