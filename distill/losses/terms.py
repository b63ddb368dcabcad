"""The terms of a training loss: what each compares, with its weight and its function.

A term may also be a plain function `f(student, teacher) -> [rows]` of logits, or any of these terms with a function of
its own as `loss`. The defaults are those of `conf/term/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

from torch import Tensor

from distill import losses
from distill.config.feature_kinds import FEATURE_KINDS, GATES, LOGITS, REPLACED, VECTORS, FeatureKind
from distill.config.instantiate import bind
from distill.config.stages import Term as Settings
from distill.data.task_types import TaskType
from distill.errors import ConfigError

Loss = Callable[[Tensor, Tensor], Tensor]
"""(rows of the student, rows of the teacher or labels) -> the loss of each row [rows], not reduced."""

Layers = str | Sequence[Sequence[int]]
"""`last`; `uniform`, which is every layer of the student with the teacher's layer that it was copied from or, if that
is not known, as of a student that was loaded again, with the one at the same relative depth; or pairs [student's layer,
teacher's layer], counted from 0. -1 are the embeddings, not the last layer."""


@dataclass(frozen=True)
class Term:
    """A weight, the features that are compared, and a function bound to its hyper-parameters. Fields as in
    `distill.config.stages.Term`."""

    weight: float
    features: str
    compare_with: str
    positions: str
    loss: Loss
    layers: Layers = "last"
    teacher_layer: int | None = None
    heads: int | None = None

    @property
    def kind(self) -> FeatureKind:
        return GATES if self.features == GATES.name else FEATURE_KINDS[self.features]

    @property
    def of_batch(self) -> bool:
        """Whether its loss compares the rows of a batch with each other, so that it needs all rows of a step at once.
        Its value is then the mean of what the loss returns."""
        return bool(getattr(getattr(self.loss, "func", self.loss), "of_batch", False))

    def total(self, student: Tensor, other: Tensor, rows: int, valid: Tensor | None = None) -> Tensor:
        """Sum [] of the loss over `rows` rows of the student and of the teacher, or labels. If it is of a batch, each
        row has the value of the batch. `valid` [rows] flags the rows that count; None for all of them."""
        values = self.loss(student, other)
        if self.of_batch:
            return values.sum() * (rows / max(len(values), 1))
        check_rows(values, student, self.loss)
        return (values if valid is None else values.where(valid, 0)).sum()

    def of_texts(self, student: Tensor, other: Tensor, rows: int, valid: Tensor | None) -> Tensor:
        """`total` for the vectors [N, 2 H] of both texts of a row, of which each counts as much."""
        if self.of_batch:
            return self.total(student, other, rows, valid)
        ours, theirs = (vectors.unflatten(1, (2, -1)).flatten(0, 1) for vectors in (student, other))
        return self.total(ours, theirs, rows, None if valid is None else valid.repeat_interleave(2)) / 2

    def pairs(self, student: int, teacher: int, kept: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """Pairs (student's layer, teacher's layer) that are compared, counted from 0, for models of these depths.

        With `uniform`, layer m of the student is paired with layer `kept[m]` of the teacher, which it was copied from;
        if `kept` is None, by the mapping g(m) = m N / M of Jiao et al. 2020, arXiv 1909.10351, section 3.1.
        """
        if not isinstance(self.layers, str):
            return [(student_layer, teacher_layer) for student_layer, teacher_layer in self.layers]
        if self.layers == "uniform":
            return list(enumerate(kept or [round((m + 1) * teacher / student) - 1 for m in range(student)]))
        return [(student - 1, teacher - 1 if self.teacher_layer is None else self.teacher_layer)]


def check_rows(values: Tensor, student: Tensor, loss: Loss) -> None:
    """Raise ConfigError unless a loss returned one value for each row of the student."""
    if values.shape != student.shape[:1]:
        function: Any = getattr(loss, "func", loss)
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"terms: got {name}, which returned the shape {[*values.shape]} for {len(student)} rows; must return one "
            "value for each row; use reduction='none' and, of what it returns, .mean(-1)"
        )


def bound(settings: Mapping[str, Settings], task: TaskType | None = None) -> dict[str, Term]:
    """The terms of a stage that have a weight above 0, with loss functions bound to their hyper-parameters.

    Args:
        settings: name -> term, as in `stages.STAGE.terms`.
        task: the kind of task that the stage trains on; None for a corpus. Terms on vectors are left out unless it
            outputs vectors, and terms on logits with a teacher have its `teacher_weight`.
    """
    terms = {
        name: Term(
            t.weight, t.features, t.compare_with, t.positions, bind(t.loss, "loss"), t.layers, t.teacher_layer, t.heads
        )
        for name, t in settings.items()
        if t.weight > 0
    }
    if task is None:
        return terms
    return {
        name: replace(term, weight=term.weight * task.teacher_weight)
        if term.kind is LOGITS and term.compare_with == "teacher"
        else term
        for name, term in terms.items()
        if task.separate or term.kind is not VECTORS
    }


def SoftTargets(weight: float = 1.0, temperature: float = 2.0, *, positions: str = "masked") -> Term:
    """KL between the softened probabilities of teacher and student: `losses.soft_targets` (Hinton et al. 2015, arXiv
    1503.02531, section 2).

    Args:
        temperature: by which logits are divided before the softmax.
        positions: of a language model, `masked` compares the masked tokens and `all` every token but padding.
    """
    return Term(weight, "logits", "teacher", positions, partial(losses.soft_targets, temperature=temperature))


def Supervised(weight: float = 1.0) -> Term:
    """Cross-entropy with the labels, or squared error where the model outputs one number: `losses.supervised`."""
    return Term(weight, "logits", "labels", "masked", losses.supervised)


def MaskedLM(weight: float = 1.0) -> Term:
    """Cross-entropy of the masked tokens: `losses.mlm` (Devlin et al. 2019, arXiv 1810.04805, section 3.1)."""
    return Term(weight, "logits", "labels", "masked", losses.mlm)


def InterClass(weight: float = 1.0, temperature: float = 1.0, *, positions: str = "masked") -> Term:
    """Correlation of the probabilities of teacher and student over the classes of a row: `losses.inter_class` (DIST,
    Huang et al. 2022, arXiv 2205.10536). `positions` as of `SoftTargets`."""
    return Term(weight, "logits", "teacher", positions, partial(losses.inter_class, temperature=temperature))


def IntraClass(weight: float = 1.0, temperature: float = 1.0, *, positions: str = "masked") -> Term:
    """Correlation of the probabilities that teacher and student give to a class, over the rows of a batch:
    `losses.intra_class` (DIST, as of `InterClass`). `positions` as of `SoftTargets`."""
    return Term(weight, "logits", "teacher", positions, partial(losses.intra_class, temperature=temperature))


def Distances(weight: float = 1.0) -> Term:
    """Distances between the pooled vectors of the texts of a batch, whose widths may differ: `losses.distances` (RKD,
    Park et al. 2019, arXiv 1904.05068, equation 5)."""
    return Term(weight, "pooled", "teacher", "all", losses.distances)


def Angles(weight: float = 1.0) -> Term:
    """Angles between the pooled vectors of the texts of a batch: `losses.angles` (RKD, as of `Distances`)."""
    return Term(weight, "pooled", "teacher", "all", losses.angles)


def Hidden(
    weight: float = 1.0, layers: Layers = "last", *, loss: Loss = losses.mse, teacher_layer: int | None = None
) -> Term:
    """Hidden states [rows, H] of student and teacher. Where their widths differ, a linear map is trained along, as in
    Jiao et al. 2020, arXiv 1909.10351, equation 8.

    Args:
        layers: which layers are compared.
        loss: `losses.mse`, `losses.cosine` or a function of your own.
        teacher_layer: with layers="last", the teacher's layer, counted from 0; its last when None.
    """
    return Term(weight, "hidden", "teacher", "all", loss, layers, teacher_layer)


def Pooled(weight: float = 1.0, *, loss: Loss = losses.cosine) -> Term:
    """One vector per text [texts, H]: the hidden states of the last layer, pooled."""
    return Term(weight, "pooled", "teacher", "all", loss)


def Vectors(weight: float = 1.0, *, loss: Loss = losses.cosine) -> Term:
    """The vectors that embedders output for the texts of a row, side by side: for `EmbeddingLoss`."""
    return Term(weight, "vectors", "teacher", "all", loss)


def Relations(
    weight: float = 1.0,
    layers: Layers = "last",
    *,
    heads: int | None = None,
    teacher_layer: int | None = None,
    loss: Loss | None = None,
) -> Term:
    """KL between self-attention relations, which are scaled dot products of tokens among queries, among keys and among
    values (MiniLMv2, Wang et al. 2021, arXiv 2012.15828, equation 5).

    Args:
        heads: relation heads that the projections of both models are split into; the student's heads when None.
        teacher_layer: with layers="last", the teacher's layer, counted from 0; its last when None.
    """
    return Term(
        weight,
        "relations",
        "teacher",
        "all",
        loss or partial(losses.soft_targets, temperature=1.0),
        layers,
        teacher_layer,
        heads,
    )


def Attention(weight: float = 1.0, layers: Layers = "uniform", *, loss: Loss = losses.mse) -> Term:
    """Attention scores before the softmax [rows, tokens], head by head (Jiao et al. 2020, arXiv 1909.10351, equation
    7). Student and teacher must have the same number of heads."""
    return Term(weight, "scores", "teacher", "all", loss, layers)


def Logits(loss: Loss, weight: float = 1.0, *, positions: str = "masked") -> Term:
    """A function of your own of the logits [rows, C] of student and teacher."""
    return Term(weight, "logits", "teacher", positions, loss)


def named(terms: Mapping[str, Term | Loss] | Sequence[Term | Loss]) -> dict[str, Term]:
    """The terms by name. Plain functions become `Logits`. Terms of a list are named after their functions, with `_2`
    and so on where a name comes again.

    Raises:
        ConfigError: no term, or something that is neither a term nor a function.
    """
    listed = [terms] if isinstance(terms, Term) or callable(terms) else terms
    given = listed if isinstance(listed, Mapping) else _by_function(listed)
    if not given:
        raise ConfigError("terms: got none; must be at least one, such as distill.terms.SoftTargets()")
    return {name: _term(term) for name, term in given.items()}


def _by_function(terms: Sequence[Term | Loss]) -> dict[str, Term | Loss]:
    by_name: dict[str, Term | Loss] = {}
    for term in map(_term, terms):
        function: Any = term.loss
        function = getattr(function, "func", function)
        name = getattr(function, "__name__", type(function).__name__)
        name = name if term.features == "logits" else f"{term.features}_{name}"
        unique, number = name, 1
        while unique in by_name:
            number += 1
            unique = f"{name}_{number}"
        by_name[unique] = term
    return by_name


def _check(term: Term) -> None:
    """ConfigError for values that a term of a recipe cannot have."""
    pairs = term.layers
    if pairs not in ("last", "uniform") and (not _is_list(pairs) or not all(map(_is_pair, pairs))):
        raise ConfigError(
            f"layers: got {pairs!r}; must be last, uniform or pairs such as [[0, 1]], counted from 0, where -1 are the "
            "embeddings; correct it"
        )
    temperature = getattr(term.loss, "keywords", {}).get("temperature", 1.0)
    for name, value, right, must in (
        ("positions", term.positions, term.positions in ("masked", "all"), "masked or all"),
        ("weight", term.weight, 0 < term.weight < math.inf, "a number above 0"),
        ("temperature", temperature, 0 < temperature < math.inf, "a number above 0"),
        ("teacher_layer", term.teacher_layer, (term.teacher_layer or 0) >= 0, "counted from 0"),
    ):
        if not right:
            raise ConfigError(f"{name}: got {value!r}; must be {must}; correct it")


def _is_list(values: object) -> TypeGuard[Sequence[object]]:
    return isinstance(values, Sequence) and not isinstance(values, str)


def _is_pair(layers: object) -> bool:
    whole = isinstance(layers, Sequence) and len(layers) == 2
    return whole and all(isinstance(layer, int) and not isinstance(layer, bool) and layer >= -1 for layer in layers)  # type: ignore[attr-defined]


def _term(term: Any) -> Term:
    if isinstance(term, Term) and (term.kind.segments or term.kind is REPLACED):
        raise ConfigError(f"terms: got {term.features}; must be of a stage on a corpus; leave it out")
    if isinstance(term, Term):
        _check(term)
        return term
    if callable(term):
        return Logits(term)
    raise ConfigError(
        f"terms: got {term!r}; must be a term of distill.terms, or a function of the student's and the teacher's logits"
    )
