"""Measures, before a task's model is pruned, the importance of its parts and the loss without them.

The measurements are stored, so that an interrupted run resumes and all targets use the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from distill.compression.pruning.importance import SCORES, Batch, Importance, Loss, write
from distill.compression.pruning.importance import read as read_scores
from distill.compression.pruning.prune import everything, pruned
from distill.compression.pruning.reconstruct import gram_matrices, refitted
from distill.compression.pruning.search import Losses, Shape, falling, spaced
from distill.compression.pruning.select_kept import by_loss, mean_loss, mean_of, most_important, top
from distill.config import Prune
from distill.config.instantiate import bind
from distill.config.stages import BASE_WIDTH
from distill.data.collate import task_batch
from distill.data.task_types import ABSENT, MISSING, TaskType, labelled
from distill.data.task_types.retrieval import no_negatives, relevant_pairs
from distill.data.task_types.task_type import group_numbers
from distill.data.tasks import TaskData, targets_of
from distill.inference.predict import batches
from distill.losses import supervised
from distill.models import families, student
from distill.models.hooks import outputs_of
from distill.models.student.shape import setting
from distill.models.student.training import only_used_embeddings, quick_on_cpu
from distill.runtime import progress
from distill.runtime.precision import working
from distill.runtime.storage import atomic
from distill.training.schedule import linear

TOKENS = 4096
"""Maximum number of tokens in a batch on which importance and loss are measured, unless its rows are compared."""

LESSON, RATE, WARMUP = 16, 1e-4, 0.2
"""Rows per batch, peak learning rate of a model of width 384 and warm-up share of the training before a pruned model's
loss is measured. As for `base_lr`, the learning rate is inversely proportional to the width of the unpruned model."""

NOISE = 0.1
"""Standard deviation of drawn labels, which are cosines."""

NUMBERS = "losses.json"
"""File of the layers and losses."""


@dataclass(frozen=True)
class Sensitivity:
    """Measurements of a task's model."""

    scores: Importance
    refit: bool
    """Whether the remaining weights are refitted after pruning."""
    layers: dict[int, list[int]]
    """Number of layers -> the layers to keep."""
    losses: Losses | None
    """None where the settings or trained gates give the sizes."""

    def with_grams(self, model: Any, batches: Iterable[Batch]) -> Importance:
        """The scores, with Gram matrices of the model on the batches if its weights are to be refitted."""
        return replace(self.scores, grams=gram_matrices(model, batches) if self.refit else None)


@dataclass(frozen=True)
class Subject:
    """A task's model to be pruned, with its data."""

    name: str
    """Name in messages."""
    model: Any
    """The classifier, on its device."""
    tokenizer: Any
    data: TaskData
    folder: Path
    """Its checkpoint; may contain scores of trained gates."""
    max_length: int
    seed: int

    def sample(self, examples: int, then: int = 0) -> list[Batch]:
        """At most `examples` random training rows, at most half of all, in batches of similar lengths.

        With `then` > 0: at most that many batches of `LESSON` rows from the other rows, in random order; of windows,
        those of many rows.
        """
        train, tokenizer = self.data.train, self.tokenizer
        given = labelled(targets_of(train))
        train = train.select(np.flatnonzero(given)) if given.any() else train
        random = np.random.default_rng(self.seed)
        drawn = random.permutation(len(train))
        count = min(examples, len(drawn) // 2)
        drawn = drawn[count : count + then * LESSON] if then else drawn[:count]
        chosen = train.select(drawn)
        encoded = self.data.encoded(chosen, tokenizer, self.max_length)
        assert encoded.labels is not None
        generator = torch.Generator().manual_seed(2 * self.seed + (then > 0))
        sampled, order = [], np.arange(len(encoded))
        if then and self.data.task.kind.windowed:
            order = random.permutation(order)
        lessons = [order[at : at + LESSON] for at in range(0, len(order), LESSON)][:then]
        # Of all rows: a query may have an answer in a row that is not drawn.
        texts = self._numbered(train) if given.any() else None
        relevant = np.zeros(0, np.int64) if texts is None else relevant_pairs(texts[0], texts[1], targets_of(train))
        for rows in lessons if then else self._measured(np.asarray(encoded.lengths)):
            batch, numbers = task_batch(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left")
            batch["labels"] = self.data.task.kind.loss_targets(encoded.labels[numbers])
            if texts is not None:
                queries, documents = (column[drawn[numbers]] for column in texts)
                batch["no_negatives"] = no_negatives(queries, documents, relevant)
            tensors = {key: torch.from_numpy(value).to(self.model.device) for key, value in batch.items()}
            sampled.append(tensors if given.any() else tensors | {"labels": drawn_labels(self, tensors, generator)})
        return sampled

    def _measured(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Row numbers of each batch on which importance and losses are measured, of similar lengths.

        Embedders compare the rows of a batch, and a row alone loses nothing: they have as many in each as in a lesson,
        however long these are.
        """
        if not self.data.task.kind.separate:
            return batches(lengths, TOKENS)
        return np.array_split(np.argsort(-lengths, kind="stable"), -(-len(lengths) // LESSON))

    def _numbered(self, rows: Any) -> list[np.ndarray] | None:
        """Numbers [n] of the queries and of the documents of rows, equal for equal texts; None for other kinds, whose
        labels are not compared with the texts of other rows."""
        kind, columns = self.data.task.kind, self.data.task.columns
        return [group_numbers(rows[column]) for column in columns] if kind.separate and kind.grouped else None


@torch.no_grad()
def drawn_labels(subject: Subject, batch: Batch, generator: torch.Generator) -> Tensor:
    """Labels [R] of an embedder's rows without labels: its own cosines with normal noise or, for queries and documents,
    documents of the batch with its own probabilities.

    With labels drawn from the model itself, squared gradients estimate the Fisher information (Kunstner et al. 2019,
    arXiv 1905.12558, section 2), and the loss of a smaller model grows with the distance from the cosines.
    """
    kind = subject.data.task.kind
    logits = kind.on_labels(working(outputs_of(subject.model, batch)))
    if kind.grouped:
        return torch.multinomial(logits.softmax(-1).cpu(), 1, generator=generator)[:, 0].to(logits.device)
    cosines = logits[:, 0]
    return cosines + NOISE * torch.randn(len(cosines), generator=generator).to(cosines)


def stored(folder: Path, measure: Callable[[], Sensitivity]) -> Sensitivity:
    """The measurements stored in `folder`. If it has no measurements, the result of `measure` is stored there."""
    if not folder.is_dir():
        measured = measure()
        with atomic.writing(folder) as temporary:
            _write(temporary, measured)
    return read(folder)


def _write(folder: Path, measured: Sensitivity) -> None:
    write(measured.scores, folder / SCORES)
    losses = measured.losses and asdict(measured.losses)
    atomic.write_json(folder / NUMBERS, {"refit": measured.refit, "layers": measured.layers, "losses": losses})


def read(folder: Path) -> Sensitivity:
    """The measurements that `stored` stored in a folder."""
    scores, numbers = read_scores(folder / SCORES), atomic.read_json(folder / NUMBERS)
    layers = {int(count): chosen for count, chosen in numbers["layers"].items()}
    return Sensitivity(scores, numbers["refit"], layers, numbers["losses"] and _losses(numbers["losses"]))


def _losses(stored: dict[str, Any]) -> Losses:
    layers, hidden, ffn = (
        {int(size): loss for size, loss in stored[dimension].items()} for dimension in ("layers", "hidden", "ffn")
    )
    return Losses(stored["full"], layers, hidden, ffn, stored["scale"])


def sensitivity(
    subject: Subject,
    settings: Prune,
    shapes: Sequence[Shape],
    loss: Loss,
    *,
    layers: list[int] | None,
    search: bool,
    retrain_steps: int,
    log: Callable[[str], None],
) -> Sensitivity:
    """Measure a task's model on its training rows: see `measured`."""
    trained = read_scores(file) if (file := subject.folder / SCORES).is_file() else None
    return measured(
        subject.model,
        subject.sample(settings.examples),
        lambda: subject.sample(settings.examples, then=retrain_steps),
        shapes,
        importance=bind(settings.importance, "importance"),
        row_loss=partial(row_loss, subject.data.task.kind),
        loss=loss,
        layers=layers,
        gates=trained,
        refit=settings.refit,
        search=search,
        retrain_steps=retrain_steps,
        name=subject.name,
        log=log,
    )


def measured(
    model: Any,
    batches: list[Batch],
    lessons: Callable[[], Sequence[Batch]],
    shapes: Sequence[Shape],
    *,
    importance: Callable[[Any, list[Batch], Loss], Importance],
    row_loss: Loss,
    loss: Loss,
    layers: Sequence[int] | None = None,
    gates: Importance | None = None,
    refit: bool = False,
    search: bool = True,
    retrain_steps: int = 0,
    name: str = "prune",
    log: Callable[[str], None] = lambda text: None,
) -> Sensitivity:
    """Measure the importance of a model's parts, which layers to keep, and its loss at some sizes.

    Args:
        batches: on which importance and loss are measured, with `labels`.
        lessons: makes the batches of the training before a smaller model's loss is measured.
        shapes: the shapes that the model may be pruned to.
        importance: such as `importance.fisher`.
        row_loss: (model, batch) -> the loss of each row that has a label [R], in float32, for the importance.
        loss: the same, in the precision of training.
        layers: the layers to keep, counted from 0. By default, the layers with the highest gates if layers have trained
            gates, else the layers with which the loss is least.
        gates: scores of trained gates, which are importance where they are not zero.
        refit: whether the remaining weights are to be refitted after pruning.
        search: whether the loss for some sizes of each dimension is measured, after `retrain_steps` steps of training.
        name: of the model, in messages.
    """
    rows = sum(len(batch["labels"]) for batch in batches)
    log(f"{name}: importance of layers, heads and channels on {rows} rows")
    with progress.waiting(f"{name}: importance"):
        scores = importance(model, batches, row_loss)
    if gates is not None:
        trained = vars(gates)
        scores = replace(scores, **{kind: trained[kind] for kind in ("heads", "ffn", "hidden") if trained[kind].any()})
    # Without the Gram matrices, which are as large as the model; they are computed again when the model is pruned.
    stored_scores, refit = replace(scores, grams=None), refit or scores.grams is not None
    depth, fewest = families.depth(model), min(shape.layers for shape in shapes)
    if layers is not None:
        return Sensitivity(stored_scores, refit, {len(layers): list(layers)}, None)
    if gates is not None and gates.layers is not None:
        open_gates = {count: top(gates.layers, count).tolist() for count in range(fewest, depth + 1)}
        return Sensitivity(stored_scores, refit, open_gates, None)
    with progress.waiting(f"{name}: loss without each layer"):
        kept = by_loss(model, batches, loss, fewest) if fewest < depth else {}
    chosen = {count: numbers for count, (numbers, _) in kept.items()} | {depth: list(range(depth))}
    if not search:
        return Sensitivity(stored_scores, refit, chosen, None)
    if refit and scores.grams is None:
        scores = replace(scores, grams=gram_matrices(model, batches))
    log(f"{name}: loss by size, after {retrain_steps} steps of training")
    losses = _by_size(model, batches, lessons(), shapes, chosen, scores, loss, retrain_steps, name)
    return Sensitivity(stored_scores, refit, chosen, losses)


def _by_size(
    model: Any,
    batches: list[Batch],
    lessons: Sequence[Batch],
    shapes: Sequence[Shape],
    chosen: Mapping[int, Sequence[int]],
    scores: Importance,
    loss: Loss,
    retrain_steps: int,
    name: str,
) -> Losses:
    """The loss of models with a single dimension pruned, for some sizes of each. `chosen`: number -> its layers."""
    depth, width, inner = families.depth(model), families.width(model), setting(model.config, "intermediate_size")

    def loss_of(smaller: Any) -> float:
        done(1)
        return mean_loss(retrained(smaller, lessons, loss, retrain_steps, RATE * BASE_WIDTH / width), batches, loss)

    def loss_of_widths(hidden: int, ffn: int) -> float:
        return loss_of(cut(model, range(depth), scores, hidden, ffn))

    scale = _constant_loss(batches)
    hiddens, inners = {shape.hidden for shape in shapes}, {shape.ffn for shape in shapes}
    numbers, hidden, ffn = (spaced(sizes) for sizes in (chosen, {*hiddens, width}, {*inners, inner}))
    smaller = len(numbers) + len(hidden) + len(ffn) - 3
    with progress.counted(f"{name}: loss by size", 1 + smaller) as done:
        # Training may also harm a converged model; all smaller sizes would then look as good as the full one.
        before = min(mean_loss(model, batches, loss), loss_of_widths(width, inner))
        return Losses(
            before,
            falling(depth, before, scale, numbers, lambda n: loss_of(pruned(model, everything(model, chosen[n])))),
            falling(width, before, scale, hidden, lambda size: loss_of_widths(size, inner)),
            falling(inner, before, scale, ffn, lambda size: loss_of_widths(width, size)),
            scale,
        )


def cut(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Any:
    """The model pruned to the most important channels of `layers`; refitted if `scores` has Gram matrices."""
    kept = most_important(model, layers, scores, hidden, ffn)
    return pruned(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def cut_to(model: Any, measured: Sensitivity, shape: Shape, batches: Iterable[Batch]) -> Any:
    """The model pruned to a shape by what was measured of it; `batches` are those of the measurement."""
    scores = measured.with_grams(model, batches)
    return cut(model, measured.layers[shape.layers], scores, shape.hidden, shape.ffn)


def retrained(model: Any, lessons: Sequence[Batch], loss: Loss, steps: int, rate: float = RATE) -> Any:
    """The model after a few steps of training, in eval mode; it is changed in place.

    Loss right after pruning predicts recovered loss badly: it overstates the cost of width. Minitron, Muralidharan et
    al. 2024, arXiv 2407.14679, section 2.3, ranks candidates after light retraining. Deviation: here each size of each
    dimension is retrained, not each candidate.
    """
    if not steps:
        return model
    student.set_dropout(model.requires_grad_(True), 0.0)  # a copy, of a model that may be frozen
    tokens = np.concatenate([batch["input_ids"].cpu().numpy().ravel() for batch in lessons])
    lengths = [batch["input_ids"].shape[1] for batch in lessons]
    with only_used_embeddings(model, tokens), quick_on_cpu(model.train(), lengths):
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * linear(step, steps, warmup=WARMUP)
            mean_of(loss(model, lessons[step % len(lessons)])).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def _constant_loss(batches: list[Batch]) -> float:
    """Loss of the best constant prediction: the variance of numbers, or the entropy of the labels; its mean over the
    labels of a row where each is predicted by an output of its own."""
    labels = torch.cat([batch["labels"] for batch in batches]).cpu()
    if labels.is_floating_point():
        return max(labels.float().var(correction=0).item(), 1e-6)
    columns = labels.view(-1, _labels_of_a_row(batches[0]))
    columns = columns[columns[:, 0] != MISSING]
    shares = [torch.bincount(column) / len(column) for column in columns.T]
    entropies = [-(share * share.clamp(min=1e-9).log()).sum().item() for share in shares]
    return max(sum(entropies) / len(entropies), 1e-6)


def _labels_of_a_row(batch: Batch) -> int:
    """1 unless a row has labels that the loss takes one by one, such as several classes, or a start and an end."""
    if "words" in batch or "masked" in batch:
        return 1
    return max(1, len(batch["labels"]) // len(batch.get("groups", batch["input_ids"])))


def row_loss(kind: TaskType, model: nn.Module, batch: Batch) -> Tensor:
    """The loss on the label of each row that has one, [R], of the rows that the kind of task makes of the model's
    outputs. As in training, texts in `no_negatives` are left out."""
    rows, labels = kind.on_labels(working(outputs_of(model, batch))), batch["labels"]
    if "no_negatives" in batch:
        rows = rows.masked_fill(batch["no_negatives"], ABSENT)
    values = supervised(rows, labels)
    return values if labels.is_floating_point() else values[labels != MISSING]


def in_precision(precision: str, kind: TaskType) -> Loss:
    """`row_loss` in the precision of training: bf16 is twice as fast and exact enough to rank sizes."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with autocast(model, precision):
            return row_loss(kind, model, batch)

    return loss


def autocast(model: nn.Module, precision: str) -> AbstractContextManager[Any]:
    """bf16 if that is `precision` and the family's code allows it, else float32: fp16 would need scaled gradients."""
    bf16 = precision == "bf16" and families.family_of(model).bf16
    return torch.autocast(next(model.parameters()).device.type, torch.bfloat16, enabled=bf16)
