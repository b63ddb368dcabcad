"""The training loss: a weighted sum of terms over one batch.

It is a module, so that data-parallel training wraps student and loss together. It returns the **sum** of each term over
the batch. The training loop divides these by the rows of all processes and parts of a step, so that neither
accumulation nor the number of processes changes a gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from distill import losses
from distill.config.feature_kinds import GATES, LOGITS, REPLACED, SCORES, SPAN_BOUNDARY, VECTORS
from distill.data.task_types import ABSENT
from distill.errors import ConfigError
from distill.losses.all_gather import of_all_processes
from distill.losses.feature_rows import ROWS, Part, margins
from distill.losses.layers import check_names, compared_layers, projections
from distill.losses.logits import averaged
from distill.losses.replaced import replaced
from distill.losses.span_boundary import SpanBoundary
from distill.losses.terms import Term, check_rows
from distill.models import families
from distill.models.hooks import Features, capture, outputs_of

CHUNK = 1024
"""Number of positions whose vocabulary logits are in memory at once for terms with `positions: all`."""

HEADS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    LOGITS.name: families.mlm_logits,
    REPLACED.name: families.rtd_logits,
    SPAN_BOUNDARY.name: families.mlm_logits,
}
"""Kind of term on a corpus -> the head that it needs: function of a model and its last hidden states [N, H], which
returns logits [N, C]."""


def counts(terms: Mapping[str, Term], batch: Mapping[str, Sized]) -> Tensor:
    """Number of rows that each term sums over in this batch, float32 `[terms]`.

    Only the lengths of its arrays are read, so that nothing waits for a batch that is not yet on a device.
    """
    return torch.tensor([_count(term, batch) for term in terms.values()], dtype=torch.float32)


def _count(term: Term, batch: Mapping[str, Sized]) -> int:
    if term.kind is GATES:
        return 1
    if "labelled" in batch and term.kind.head and term.compare_with == "labels":
        return len(batch["labelled"])
    rows = _rows(term, batch)
    return 0 if rows == "input_ids" and not len(batch.get("own", "-")) else len(batch[rows])


def _rows(term: Term, batch: Mapping[str, Sized]) -> str:
    """Name of the batch tensor that has one entry for each row that a term sums over."""
    if "masked" not in batch:
        # Also of texts, so that the weight of a task among several does not depend on the number of processes.
        return "labels" if term.of_batch else term.kind.task_rows
    if "aligned" in batch and term.kind.own_tokens is not None:
        return term.kind.own_tokens
    return term.kind.rows[term.positions]


class Objective(nn.Module):
    """Student, teachers and terms. `forward` returns the sum of each term over a batch.

    On a corpus, logits are compared with the mean, weighted by `weights`, of the vocabulary probabilities of all
    teachers. Other features are compared with the first teacher's.

    A corpus batch has `input_ids` and `attention_mask` `[B, L]`, the flat positions `masked` `[M]` of masked tokens and
    `real` `[R]` of all tokens but padding, and `labels` `[M]`. If student and teacher have different tokenizers it also
    has `teacher_input_ids`, `teacher_attention_mask` and so on `[B, L']`, without masks, and the flat positions
    `aligned` and `teacher_aligned` `[P]` of tokens that end at the same character, where hidden states are compared. A
    task batch has `labels` `[R]`, one for each row that `rows` makes of the model's outputs, and no `masked`. It has
    `teacher_logits` `[B, outputs]` if a term needs them and no teacher runs, or if they stand in for the teacher's. If
    some rows have no label, `labelled` `[N]` are the numbers of the rows that have one, and terms against labels leave
    out the others. `label_weights` `[R]` are factors of the rows in terms against labels. Where rows compare a text
    with all texts of the batch, `no_negatives` `[R, R]` flags the texts that terms against labels leave out. Terms on
    margins need `pairs` `[P, 2]`, the pairs of its rows with the same query; P may be 0. If a process encodes only some
    of the rows `step` `[N]` whose labels the batch has, `own` are their places. If it has flat positions `words` `[W]`,
    the outputs at these positions are compared, `[W, outputs]`. A term whose loss is of a batch compares all rows of a
    batch, or of all processes, with each other, and each of these rows counts with the value of the batch.

    With `masked_valid` `[M]`, `real_valid` `[R]` and so on, flags of the rows that have one entry in `masked`, `real`,
    `aligned`, `pair_labels`, `labels` or `pairs`, the sums leave out the rows whose flag is false, unless a loss is of
    a batch. `real` are then all positions, and `labelled_valid` `[R]` takes the place of `labelled`
    (`distill.training.fixed_shapes`).

    Args:
        pooling: how the hidden states of a text become one vector, as for `families.embedding.pooled`.
        weights: weight of each teacher.
        gates: changes the student in a forward pass (`gates.on(student, progress)`): masks its parts, or runs it within
            a teacher. It may add a term (`gates.cost(progress)`). The training loop sets `progress`, the share of
            training steps that are done.
        kept: for each layer of the student, the teacher's layer that it was copied from; None if none was copied.
        channels: the same for hidden channels.
        rows: outputs of a task's model `[B, outputs]` -> the rows `[R, C]` that terms compare.
        label_rows: the same for terms against labels; `rows` when None.
        generator: a language model that replaces the masked tokens of a corpus batch, which then also has `drawn` `[M]`
            (`distill.losses.replaced`). Student and teachers get the texts with replaced tokens.
        segment_head: the head for terms on pairs of segments, which is trained along. A corpus batch then also has
            `pairs` `[P]`, the numbers of its rows that are pairs, and `pair_labels` `[P]`.
        vectors: a teacher's vectors of the texts of rows -> those that terms on vectors compare with the student's;
            as they are when None.

    Raises:
        ConfigError: a term cannot compare these two models.
    """

    def __init__(
        self,
        student: nn.Module,
        terms: Mapping[str, Term],
        teachers: Sequence[nn.Module] = (),
        pooling: str = "mean",
        weights: Sequence[float] = (1.0,),
        gates: Any = None,
        kept: Sequence[int] | None = None,
        channels: Sequence[int] | None = None,
        rows: Callable[[Tensor], Tensor] = lambda outputs: outputs,
        label_rows: Callable[[Tensor], Tensor] | None = None,
        vectors: Callable[[Tensor], Tensor] | None = None,
        generator: nn.Module | None = None,
        segment_head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.segment_head = segment_head
        self.rows, self.label_rows, self.vectors = rows, label_rows or rows, vectors or (lambda outputs: outputs)
        self.student, self.gates, self.progress = student, gates, 0.0
        self.terms = dict(terms)
        if hasattr(gates, "cost"):
            self.terms[GATES.name] = Term(1.0, GATES.name, "labels", "all", losses.mse)
        # A token's vector does not depend on the text without layers, and so neither does the first one's.
        self.poolings = pooling if families.depth(student) else "mean", pooling
        # A tuple, so that teachers are not submodules: they get no gradients, no synchronization and no train mode.
        self.teachers = tuple(teachers)
        self.generators = () if generator is None else (generator,)
        self.weights = tuple(weights)
        self._pairs = compared_layers(self.terms, student, teachers[0], kept) if teachers else {}
        self.projections = projections(student, teachers[0] if teachers else None, self.terms, channels)
        self._boundaries = [name for name, term in self.terms.items() if term.kind is SPAN_BOUNDARY]
        check_names(self._boundaries)
        for name in self._boundaries:
            like = next(student.parameters())
            self.projections[name] = SpanBoundary(families.width(student)).to(like.device, like.dtype)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """The student, the teachers and the generator."""
        return self.student, *self.teachers, *self.generators

    def counts(self, batch: Mapping[str, Sized]) -> Tensor:
        """Number of rows that each term sums over in this batch, float32 `[terms]`."""
        return counts(self.terms, batch)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over this batch, unweighted, float32 `[terms]`."""
        if self._boundaries and "masked" not in batch:
            key = f"terms.{self._boundaries[0]}.features"
            raise ConfigError(f"{key}: got span_boundary; must be for masked language models; drop the term")
        for generator in self.generators:
            with _arithmetic(generator, batch["input_ids"]):
                batch = replaced(generator, batch)
        gated = contextlib.nullcontext() if self.gates is None else self.gates.on(self.student, self.progress)
        with _arithmetic(self.student, batch["input_ids"]), gated:
            sums = self._corpus(batch) if "masked" in batch else self._task(batch)
        if GATES.name in self.terms:
            sums[GATES.name] = self.gates.cost(self.progress)
        return torch.stack([sums[name].float() for name in self.terms])

    def _task(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        layer_sums, soft = dict[str, Tensor](), batch.get("teacher_logits")
        if not self._pairs:
            outputs = outputs_of(self.student, batch)
            if soft is None and self.teachers and self._learns_outputs:
                soft = self._outputs_of_teacher(batch)
        else:
            student, (teacher, *_) = self._captured(self.student, batch, side=0), self._of_teachers(batch)
            assert student.logits is not None
            outputs, soft = student.logits, teacher.logits if soft is None else soft
            layer_sums = self._layer_sums(student, teacher, batch)
        if "own" in batch:
            outputs = of_all_processes(outputs, batch["own"], len(batch["step"]))
            if soft is not None and "teacher_logits" not in batch:
                soft = of_all_processes(soft, batch["own"], len(batch["step"]))
        sums = {}
        for name, term in self.terms.items():
            if term.kind.head and term.compare_with == "labels":
                rows = self.label_rows(outputs)
                if "no_negatives" in batch:
                    rows = rows.masked_fill(batch["no_negatives"], ABSENT)
                sums[name] = _on_labels(term, rows, batch)
            elif term.kind.head:
                assert soft is not None
                # An embedder's vectors are compared without a trained projection.
                sums[name] = self._on_outputs(term, outputs, soft, batch)
        return layer_sums | sums

    def _on_outputs(self, term: Term, outputs: Tensor, soft: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Sum [] of a term between the outputs [N, C] of the student and of its teachers."""
        valid, rows = batch.get(f"{_rows(term, batch)}_valid"), _count(term, batch)
        if term.kind is VECTORS:  # an embedder's vectors are compared without a trained projection
            return term.of_texts(outputs, self.vectors(soft), rows, valid)
        ours, theirs = self.rows(outputs), self.rows(soft)
        if term.kind.paired:
            ours, theirs = margins(ours, batch["pairs"]), margins(theirs, batch["pairs"])
        return term.total(ours, theirs, rows, valid)

    @property
    def _learns_outputs(self) -> bool:
        return any(term.kind.head and term.compare_with == "teacher" for term in self.terms.values())

    @torch.no_grad()
    def _outputs_of_teacher(self, batch: dict[str, Tensor]) -> Tensor:
        with _arithmetic(self.teachers[0], batch["input_ids"]):
            return outputs_of(self.teachers[0], batch)

    def _corpus(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        student, teachers = self._captured(self.student, batch, side=0), self._of_teachers(batch)
        student_hidden = student.hidden[max(student.hidden)].flatten(0, 1)
        teacher_hidden = [teacher.hidden[max(teacher.hidden)].flatten(0, 1) for teacher in teachers]
        sums: dict[str, Tensor] = {}
        for kind, positions in [(each, positions) for each in (LOGITS, REPLACED) for positions in each.rows]:
            terms = {n: term for n, term in self.terms.items() if (term.kind, term.positions) == (kind, positions)}
            if terms:
                rows = batch[kind.rows[positions]]
                # The gradient of `hidden[rows]` would be sorted by row on a GPU.
                teacher_rows = [] if "aligned" in batch else [each.index_select(0, rows) for each in teacher_hidden]
                valid = batch.get(f"{kind.rows[positions]}_valid")
                own = student_hidden.index_select(0, rows)
                sums |= self._logits(terms, own, teacher_rows, batch[kind.targets], valid)
        for name in self._boundaries:
            made = self.projections[name](student_hidden, batch["masked"], batch["input_ids"].shape[1])
            boundary, valid = {name: self.terms[name]}, batch.get("masked_valid")
            sums |= self._logits(boundary, made, [], batch["labels"], valid)
        if self.segment_head is not None:
            logits = self.segment_head(student.hidden[max(student.hidden)][:, 0][batch["pairs"]])
            segments = {name: term for name, term in self.terms.items() if term.kind.segments}
            compared = logits, batch["pair_labels"], len(logits), batch.get("pair_labels_valid")
            sums |= {name: term.total(*compared) for name, term in segments.items()}
        return sums | (self._layer_sums(student, teachers[0], batch) if self._pairs else {})

    def _layer_sums(self, student: Features, teacher: Features, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sum of each term that compares layers."""
        return {
            name: torch.stack(
                [self._layer_sum(name, self.terms[name], student, teacher, pair, batch) for pair in pairs]
            ).sum()
            for name, pairs in self._pairs.items()
        }

    def _layer_sum(
        self,
        name: str,
        term: Term,
        student: Features,
        teacher: Features,
        pair: tuple[int, int],
        batch: dict[str, Tensor],
    ) -> Tensor:
        """Sum of a term over its rows, for one pair of layers."""
        rows, own = _rows(term, batch), families.heads(self.student)
        heads = term.heads or own if term.kind.splits_heads else own
        positions = batch[rows], batch.get(f"teacher_{rows}", batch[rows])
        sides = zip((student, teacher), pair, positions, self.poolings, strict=True)
        valid = batch.get(f"{rows}_valid")
        student_rows, teacher_rows = (
            ROWS[term.kind.name](Part(features, layer, at, heads, how, every=valid is not None))
            for features, layer, at, how in sides
        )
        if valid is not None and term.kind.splits_heads:
            valid = valid.repeat_interleave(heads)
        elif term.kind is SCORES:  # whose rows differ in length, and are those of tokens alone
            valid = None
        if term.of_batch:
            student_rows, teacher_rows = (_of_step(each, batch) for each in (student_rows, teacher_rows))
        count, both = _count(term, batch), zip(student_rows, teacher_rows, strict=True)
        sums = [term.total(self._projected(name, mine), target, count, valid) for mine, target in both]
        # A process without rows of its own has encoded another's.
        total = torch.stack(sums).sum() * min(count, 1)
        return total / heads if term.kind.by_head else total

    def _projected(self, name: str, student: Tensor) -> Tensor:
        return self.projections[name](student) if name in self.projections else student

    @torch.no_grad()
    def _of_teachers(self, batch: dict[str, Tensor]) -> list[Features]:
        # A teacher with its own tokenizer gets the same texts as other tokens.
        own = {key.removeprefix("teacher_"): value for key, value in batch.items() if key.startswith("teacher_")}
        own.pop("logits", None)
        features = []
        for teacher in self.teachers:
            with _arithmetic(teacher, batch["input_ids"]):
                features.append(self._captured(teacher, own or batch, side=1))
        return features

    def _captured(self, model: nn.Module, batch: dict[str, Tensor], side: int) -> Features:
        """Features that the terms need of the student (side 0) or of a teacher (side 1): at least its last layer."""
        needs: dict[str, set[int]] = {"hidden": {families.depth(model) - 1}}
        for name, pairs in self._pairs.items():
            for feature in self.terms[name].kind.fields:
                needs.setdefault(feature, set()).update(pair[side] for pair in pairs)
        if needs == {"hidden": {families.depth(model) - 1}} and "masked" in batch:
            return Features(None, batch["attention_mask"], {families.depth(model) - 1: families.encode(model, batch)})
        return capture(model, batch, {feature: sorted(layers) for feature, layers in needs.items()})

    def _logits(
        self, terms: dict[str, Term], student: Tensor, teachers: list[Tensor], labels: Tensor, valid: Tensor | None
    ) -> dict[str, Tensor]:
        """Sums of terms of one kind, at the same positions, on a head's logits, from the last hidden states [N, H] of
        the rows to compare.

        `valid` [N] is a mask of the rows that count in the sums; all count if it is None.

        On a vocabulary's logits of all positions, the head runs on `CHUNK` rows at a time, and again in the backward
        pass, to save memory.
        """
        head_sums, first = partial(self._head_sums, terms), next(iter(terms.values()))
        whole = first.kind is not LOGITS or first.positions != "all" or any(term.of_batch for term in terms.values())
        if whole:
            return dict(zip(terms, head_sums(student, teachers, labels, valid), strict=True))
        total = student.new_zeros(len(terms), dtype=torch.float32)
        for start in range(0, len(student), CHUNK):
            rows = slice(start, start + CHUNK)
            part, flags = [teacher[rows] for teacher in teachers], None if valid is None else valid[rows]
            inputs = head_sums, student[rows], part, labels, flags
            # A head draws nothing, and no CUDA graph can be recorded of code that reads the state of random numbers.
            total = total + checkpoint(*inputs, use_reentrant=False, preserve_rng_state=False)
        return dict(zip(terms, total, strict=True))

    def _head_sums(
        self,
        terms: dict[str, Term],
        student: Tensor,
        teachers: list[Tensor],
        labels: Tensor,
        valid: Tensor | None,
    ) -> Tensor:
        head = HEADS[next(iter(terms.values())).features]
        logits, compared = head(self.student, student), {"labels": labels}
        if any(term.compare_with == "teacher" for term in terms.values()):
            pairs = zip(self.teachers, teachers, strict=True)
            compared["teacher"] = averaged([_teacher_logits(head, *pair) for pair in pairs], self.weights)
        sums = [term.total(logits, compared[term.compare_with], len(logits), valid) for term in terms.values()]
        return torch.stack(sums).float()


def _of_step(rows: list[Tensor], batch: Mapping[str, Tensor]) -> list[Tensor]:
    """Vectors [n, H] of this process -> those of all processes."""
    if "own" not in batch:
        return rows
    own, count = batch["own"], len(batch["step"])
    texts = [each.unflatten(0, (max(len(own), 1), -1)).flatten(1) for each in rows]  # a row may have two
    return [of_all_processes(each, own, count).unflatten(1, (-1, rows[0].shape[1])).flatten(0, 1) for each in texts]


def _on_labels(term: Term, rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Sum of a term over rows [R, C] and their labels, or over those that have a label, with the labels' weights."""
    part, weights = batch.get("labelled", slice(None)), batch.get("label_weights")
    values = term.loss(rows[part], batch["labels"][part])
    check_rows(values, rows[part], term.loss)
    values = values if weights is None else values * weights[part]
    valid = batch.get("labelled_valid", batch.get("labels_valid"))
    return (values if valid is None else values.where(valid, 0)).sum()


def _arithmetic(model: nn.Module, like: Tensor) -> AbstractContextManager[Any]:
    """Float32 on the device of `like` for a family whose code fails under bf16 autocast; else no change."""
    bf16 = families.family_of(model).bf16
    return contextlib.nullcontext() if bf16 else torch.autocast(like.device.type, enabled=False)


@torch.no_grad()
def _teacher_logits(head: Callable[[nn.Module, Tensor], Tensor], teacher: nn.Module, hidden: Tensor) -> Tensor:
    with _arithmetic(teacher, hidden):
        return head(teacher, hidden)
