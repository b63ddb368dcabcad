"""The training loss: a weighted sum of terms over one batch.

A module, so that data-parallel training wraps student and loss together. It returns the **sum** of each term over this
batch; the engine divides by counts taken over all processes and parts of a step, so that neither accumulation nor the
number of processes changes a gradient.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from distill import family, losses
from distill.errors import ConfigError
from distill.features import Features, capture
from distill.losses.precision import working


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
    layers: str = "last"
    teacher_layer: int | None = None
    heads: int | None = None

    def pairs(self, student: int, teacher: int) -> list[tuple[int, int]]:
        """(student's layer, teacher's layer) that are compared, of models of these depths.

        `uniform` is the mapping g(m) = m N / M of Jiao et al. 2020, arXiv 1909.10351, section 3.1.
        """
        if self.layers == "uniform":
            return [(layer, round((layer + 1) * teacher / student) - 1) for layer in range(student)]
        return [(student - 1, teacher - 1 if self.teacher_layer is None else self.teacher_layer)]


FIELDS = {
    "hidden": ("hidden",),
    "pooled": ("hidden",),
    "relations": ("queries", "keys", "values"),
    "scores": ("scores",),
}
"""What a term compares -> fields of Features that it needs of each of its layers."""

NOWHERE = -1e4
"""Relation of a token to padding: nothing after a softmax."""

CHUNK = 1024
"""Positions whose vocabulary logits are held at once when a term asks for all positions."""


GATES = "gates"
"""Name of the term that gates add to the loss, and of what it looks at."""


def counts(terms: Mapping[str, BoundTerm], batch: Mapping[str, Tensor]) -> Tensor:
    """Rows each term sums over in this batch, float32 `[terms]`."""
    rows = [1 if term.features == GATES else batch[_rows(term, batch)].shape[0] for term in terms.values()]
    return torch.tensor(rows, dtype=torch.float32)


def _rows(term: BoundTerm, batch: Mapping[str, Tensor]) -> str:
    """Name of what has an entry for each row that a term sums over."""
    if "masked" not in batch and term.features == "logits":
        return "labels"
    if term.features == "pooled":
        return "input_ids"
    if term.features == "hidden" and "aligned" in batch:
        return "aligned"
    return "masked" if term.positions == "masked" and term.features in ("logits", "hidden") else "real"


class Objective(nn.Module):
    """Student and terms over a batch.

    Of several teachers, with `weights`, the mean of their vocabulary probabilities is the target; other features are
    those of the first.

    A corpus batch has `input_ids`, `attention_mask` `[B, L]`, `masked` `[M]` and `real` `[R]` (flat positions that are
    masked, and that are no padding) and `labels` `[M]`. Where student and teacher have tokenizers of their own it has
    `teacher_input_ids` and so on `[B, L']` too, not masked, and `aligned` and `teacher_aligned` `[P]`, flat positions
    of tokens that end at the same character: hidden states are compared there. A task batch has `labels` `[B]` instead,
    and no `masked`; and `teacher_logits` `[B, C]` where a term needs them and no teacher is there to give them.

    `gates` mask parts of the student (`gates.on(student, progress)`) and add a term (`gates.cost(progress)`);
    `progress` is the share of the training that is done, and is set from outside.
    """

    def __init__(
        self,
        student: nn.Module,
        terms: Mapping[str, BoundTerm],
        teachers: Sequence[nn.Module] = (),
        pooling: str = "mean",
        weights: Sequence[float] = (1.0,),
        gates: Any = None,
    ) -> None:
        super().__init__()
        self.student, self.gates, self.progress = student, gates, 0.0
        self.terms = dict(terms)
        if gates is not None:
            self.terms[GATES] = BoundTerm(1.0, GATES, "labels", "all", losses.mse)
        self.pooling = pooling
        # In a tuple, so that they are no submodules: they get no gradient, no synchronization, no train mode.
        self.teachers = tuple(teachers)
        self.weights = tuple(weights)
        self._pairs = _pairs(self.terms, student, teachers[0]) if teachers else {}
        self.projections = _projections(student, teachers[0] if teachers else None, self.terms)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over this batch, unweighted, float32 `[terms]`."""
        gated = contextlib.nullcontext() if self.gates is None else self.gates.on(self.student, self.progress)
        with self._arithmetic(batch["input_ids"].device.type), gated:
            sums = self._corpus(batch) if "masked" in batch else self._task(batch)
        if self.gates is not None:
            sums[GATES] = self.gates.cost(self.progress)
        return torch.stack([sums[name].float() for name in self.terms])

    def _arithmetic(self, device: str) -> AbstractContextManager[Any]:
        """That of the loop, or float32 where the student's code knows no other."""
        bf16 = family.family_of(self.student).bf16
        return contextlib.nullcontext() if bf16 else torch.autocast(device, enabled=False)

    def _task(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        compared, found = dict[str, Tensor](), batch.get("teacher_logits")
        if not self._pairs:
            logits = self.student(**family.inputs(self.student, batch)).logits
        else:
            student, (teacher, *_) = self._captured(self.student, batch, side=0), self._of_teachers(batch)
            logits, compared, found = student.logits, self._compared_all(student, teacher, batch), teacher.logits
        targets = {"labels": batch["labels"]} | ({} if found is None else {"teacher": found})
        terms = {name: term for name, term in self.terms.items() if term.features == "logits"}
        return compared | {name: term.loss(logits, targets[term.against]).sum() for name, term in terms.items()}

    def _corpus(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        student, teachers = self._captured(self.student, batch, side=0), self._of_teachers(batch)
        last = student.hidden[max(student.hidden)].flatten(0, 1)
        guides = [teacher.hidden[max(teacher.hidden)].flatten(0, 1) for teacher in teachers]
        sums: dict[str, Tensor] = {}
        for where, rows in (("masked", batch["masked"]), ("all", batch["real"])):
            terms = {n: term for n, term in self.terms.items() if (term.features, term.positions) == ("logits", where)}
            if terms:
                theirs = [] if "aligned" in batch else [guide[rows] for guide in guides]
                sums |= self._logits(terms, last[rows], theirs, batch["labels"], chunk=where == "all")
        return sums | (self._compared_all(student, teachers[0], batch) if self._pairs else {})

    def _compared_all(self, student: Features, teacher: Features, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums of the terms on anything but logits."""
        return {
            name: torch.stack(
                [self._compared(name, self.terms[name], student, teacher, pair, batch) for pair in pairs]
            ).sum()
            for name, pairs in self._pairs.items()
        }

    def _compared(
        self,
        name: str,
        term: BoundTerm,
        student: Features,
        teacher: Features,
        pair: tuple[int, int],
        batch: dict[str, Tensor],
    ) -> Tensor:
        """Sum of a term over its rows, for one layer of each."""
        one, other = pair
        if term.features == "hidden":
            rows = batch["masked" if term.positions == "masked" else "real"]
            mine, theirs = batch.get("aligned", rows), batch.get("teacher_aligned", rows)
            hidden = student.hidden[one].flatten(0, 1)[mine], teacher.hidden[other].flatten(0, 1)[theirs]
            return term.loss(self._projected(name, hidden[0]), hidden[1]).sum()
        if term.features == "pooled":
            vectors = [pooled(f.hidden[layer], f.mask, self.pooling) for f, layer in ((student, one), (teacher, other))]
            return term.loss(self._projected(name, vectors[0]), vectors[1]).sum()
        if term.features == "scores":
            sides = [_score_rows(f.scores[layer], f.mask) for f, layer in ((student, one), (teacher, other))]
            return term.loss(*sides).sum() / student.scores[one].shape[1]
        heads = term.heads or student.queries[one].shape[1]
        values = []
        for what in FIELDS["relations"]:
            mine, theirs = getattr(student, what)[one], getattr(teacher, what)[other]
            values.append(term.loss(relations(mine, student.mask, heads), relations(theirs, teacher.mask, heads)).sum())
        return torch.stack(values).sum() / heads

    def _projected(self, name: str, student: Tensor) -> Tensor:
        return self.projections[name](student) if name in self.projections else student

    @torch.no_grad()
    def _of_teachers(self, batch: dict[str, Tensor]) -> list[Features]:
        # Where they have tokens of their own, they are of the same texts.
        own = {key.removeprefix("teacher_"): value for key, value in batch.items() if key.startswith("teacher_")}
        return [self._captured(teacher, own or batch, side=1) for teacher in self.teachers]

    def _captured(self, model: nn.Module, batch: dict[str, Tensor], side: int) -> Features:
        """What the terms need of the student (side 0) or the teacher (side 1), the last hidden state always."""
        needs: dict[str, set[int]] = {"hidden": {family.depth(model) - 1}}
        for name, pairs in self._pairs.items():
            for what in FIELDS[self.terms[name].features]:
                needs.setdefault(what, set()).update(pair[side] for pair in pairs)
        if needs == {"hidden": {family.depth(model) - 1}} and "masked" in batch:
            return Features(None, batch["attention_mask"], {family.depth(model) - 1: family.encode(model, batch)})
        return capture(model, batch, {what: sorted(layers) for what, layers in needs.items()})

    def _logits(
        self, terms: dict[str, BoundTerm], student: Tensor, teachers: list[Tensor], labels: Tensor, *, chunk: bool
    ) -> dict[str, Tensor]:
        """Terms on vocabulary logits; the head runs only on the rows given, in recomputed chunks if there are many."""
        whole = partial(self._head_terms, terms)
        if not chunk:
            return dict(zip(terms, whole(student, teachers, labels), strict=True))
        total = student.new_zeros(len(terms), dtype=torch.float32)
        for start in range(0, len(student), CHUNK):
            rows = slice(start, start + CHUNK)
            part = [teacher[rows] for teacher in teachers]
            total = total + checkpoint(whole, student[rows], part, labels, use_reentrant=False)
        return dict(zip(terms, total, strict=True))

    def _head_terms(
        self, terms: dict[str, BoundTerm], student: Tensor, teachers: list[Tensor], labels: Tensor
    ) -> Tensor:
        logits = family.mlm_logits(self.student, student)
        targets = {"labels": labels}
        if any(term.against == "teacher" for term in terms.values()):
            with torch.no_grad():
                pairs = zip(self.teachers, teachers, strict=True)
                targets["teacher"] = averaged([family.mlm_logits(*pair) for pair in pairs], self.weights)
        return torch.stack([term.loss(logits, targets[term.against]).sum().float() for term in terms.values()])


def averaged(logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Logits of the weighted mean of the probabilities that each [N, V] of `logits` stands for; one is left as it is.

    As `distill.evaluate.mixture.average`.
    """
    if len(logits) == 1:
        return logits[0]
    total = math.log(sum(weights))
    shares = [math.log(weight) - total for weight in weights]
    parts = [working(one).log_softmax(-1) + share for one, share in zip(logits, shares, strict=True)]
    found = torch.stack(parts).logsumexp(0)
    return found - found.mean(-1, keepdim=True)


def pooled(hidden: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector [B, H] of the hidden states [B, L, H] of each text: their mean, first or largest."""
    if how == "cls":
        return hidden[torch.arange(len(hidden)), mask.argmax(1)]
    real = mask[:, :, None].bool()
    if how == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(1)
    return (hidden * real).sum(1) / real.sum(1)


def relations(projected: Tensor, mask: Tensor, heads: int) -> Tensor:
    """A A^T / sqrt(d) of queries, keys or values A [B, h, L, d'], split anew into `heads`: [tokens x heads, L].

    The self-attention relations of Wang et al. 2021, arXiv 2012.15828, equation 5, before their softmax. Padding is
    left out of the rows, and out of the softmax.
    """
    split = projected.transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2)
    found = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    found = found.masked_fill(~mask[:, None, None].bool(), NOWHERE)
    return found.transpose(1, 2)[mask.bool()].flatten(0, 1)


def _score_rows(scores: Tensor, mask: Tensor) -> Tensor:
    """Attention scores [B, h, L, L] as rows [tokens x h, L]: nothing at padding, and a mean over a row is one over its
    text's tokens.
    """
    real = mask[:, None, None].bool()
    found = scores.masked_fill(~real, 0) * (mask.shape[1] / mask.sum(1)).sqrt()[:, None, None, None]
    return found.transpose(1, 2)[mask.bool()].flatten(0, 1)


def _pairs(terms: Mapping[str, BoundTerm], student: nn.Module, teacher: nn.Module) -> dict[str, list[tuple[int, int]]]:
    """Layers that each term compares. ConfigError for what these two models cannot be compared by."""
    depths, heads = [[f(model) for model in (student, teacher)] for f in (family.depth, family.heads)]
    found, errors = {}, []
    for name, term in terms.items():
        if term.features in ("logits", GATES):
            continue
        found[name] = term.pairs(*depths)
        where = f"terms.{name}"
        if max(layer for _, layer in found[name]) >= depths[1]:
            errors.append(
                f"{where}.teacher_layer: got {term.teacher_layer}; must be < {depths[1]}, the teacher's layers"
            )
        if term.features == "scores" and heads[0] != heads[1]:
            errors.append(
                f"{where}.features: got scores; must be relations where student and teacher have {heads[0]} and "
                f"{heads[1]} heads; put the term relations in its place"
            )
        widths = [family.width(model) for model in (student, teacher)]
        split = term.heads or heads[0]
        if term.features == "relations" and any(width % split for width in widths):
            errors.append(
                f"{where}.heads: got {split}; must divide the widths of student and teacher, {widths[0]} and "
                f"{widths[1]}; set {math.gcd(*widths)} or a divisor of it"
            )
    if errors:
        raise ConfigError(errors)
    return found


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
            if term.features in ("hidden", "pooled")
        }
    )
