"""What is measured of a task's model before it is pruned: which parts matter, and the loss without them.

It is kept on disk, so that a run that was stopped resumes, and so that every target is met from one set of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from distill import checkpoint, family, student
from distill.bind import bind
from distill.compress.choose import by_loss, mean_loss, most_important
from distill.compress.importance import SCORES, Batch, Importance, Loss, read, write
from distill.compress.prune import everything, pruned
from distill.compress.reconstruct import refitted
from distill.compress.search import Losses, Shape, falling
from distill.config import Prune
from distill.data.collate import pad
from distill.data.encode import encode_task
from distill.data.tasks import TaskData
from distill.engine.schedule import linear
from distill.evaluate.predict import batches
from distill.losses.precision import working
from distill.student.shape import setting
from distill.student.training import only_used_embeddings, quick_attention

TOKENS = 4096
"""Most tokens of a batch that importances are measured on."""

LESSON, RATE, WARMUP = 16, 1e-4, 0.2
"""Rows of a batch, largest learning rate and warm-up of the training after which the loss of a cut is measured."""

NUMBERS = "losses.json"


@dataclass(frozen=True)
class Sensitivity:
    """Importance of heads and channels of a task's model, which layers to keep by their number, and losses by size."""

    scores: Importance
    refit: bool
    """Whether what remains is refitted when channels go."""
    layers: dict[int, list[int]]
    losses: Losses | None
    """None where the sizes are given."""


@dataclass(frozen=True)
class Subject:
    """A task's model that is to be pruned, with the rows that it is measured on."""

    name: str
    """What messages call it."""
    model: Any
    """On the device."""
    tokenizer: Any
    data: TaskData
    folder: Path
    """Its checkpoint, where gates may have left scores."""
    max_length: int
    seed: int

    def sample(self, examples: int, then: int = 0) -> list[Batch]:
        """At most `examples` training rows, and at most half of all, drawn evenly, in batches of like lengths.

        With `then`, that many batches of `LESSON` rows from the others, as they are drawn; fewer if there are fewer.
        """
        train, tokenizer = self.data.train, self.tokenizer
        drawn = np.random.default_rng(self.seed).permutation(len(train))
        apart = min(examples, len(drawn) // 2)
        drawn = drawn[apart : apart + then * LESSON] if then else drawn[:apart]
        encoded = encode_task(train.select(drawn), self.data.task.columns, tokenizer, self.max_length)
        assert encoded.labels is not None
        parts = []
        several = [np.arange(len(drawn))[at : at + LESSON] for at in range(0, len(drawn), LESSON)]
        for rows in several if then else batches(np.asarray(encoded.lengths), TOKENS):
            batch = dict(pad(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left"))
            batch["labels"] = encoded.labels[rows]
            parts.append({key: torch.from_numpy(value).to(self.model.device) for key, value in batch.items()})
        return parts


def stored(folder: Path, measure: Callable[[], Sensitivity]) -> Sensitivity:
    """What an earlier run measured and left in `folder`; measured now where there is nothing."""
    if not folder.is_dir():
        measured = measure()
        with checkpoint.writing(folder) as temporary:
            _write(temporary, measured)
    return _read(folder)


def _write(folder: Path, found: Sensitivity) -> None:
    write(found.scores, folder / SCORES)
    numbers = {"refit": found.refit, "layers": found.layers, "losses": found.losses and asdict(found.losses)}
    checkpoint.write_json(folder / NUMBERS, numbers)


def _read(folder: Path) -> Sensitivity:
    scores, numbers = read(folder / SCORES), checkpoint.read_json(folder / NUMBERS)
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
    say: Callable[[str], None],
) -> Sensitivity:
    """Measure a task's model on its training rows.

    `layers` are those that the settings ask for, if they do; with `search` losses by size are measured too, each after
    `retrain_steps` steps of training.
    """
    model, parts = subject.model, subject.sample(settings.examples)
    rows = sum(len(part["labels"]) for part in parts)
    say(f"{subject.name}: importance of layers, heads and channels on {rows} rows")
    scores = bind(settings.importance, "importance")(model, parts, row_loss)
    if (gates := subject.folder / SCORES).is_file():
        trained = vars(read(gates))
        scores = replace(scores, **{kind: trained[kind] for kind in ("heads", "ffn", "hidden") if trained[kind].any()})
    # The matrices to refit by are as large as the model: they are made again when a model is cut.
    lean, refit = replace(scores, grams=None), scores.grams is not None
    depth, fewest = family.depth(model), min(shape.layers for shape in shapes)
    if layers is not None:
        return Sensitivity(lean, refit, {len(layers): layers}, None)
    kept = by_loss(model, parts, loss, fewest) if fewest < depth else {}
    chosen = {count: numbers for count, (numbers, _) in kept.items()} | {depth: list(range(depth))}
    if not search:
        return Sensitivity(lean, refit, chosen, None)
    say(f"{subject.name}: loss by size, after {retrain_steps} steps of training")
    lessons = subject.sample(settings.examples, then=retrain_steps)
    width, inner = family.width(model), setting(model.config, "intermediate_size")

    def learned(small: Any) -> float:
        return mean_loss(retrained(small, lessons, loss, retrain_steps), parts, loss)

    def after(hidden: int, ffn: int) -> float:
        return learned(cut(model, range(depth), scores, hidden, ffn))

    before, scale = after(width, inner), _constant_loss(parts, subject.data.task.num_labels)
    hidden, ffn = {shape.hidden for shape in shapes}, {shape.ffn for shape in shapes}
    losses = Losses(
        before,
        falling(depth, before, scale, kept, lambda n: learned(pruned(model, everything(model, chosen[n])))),
        falling(width, before, scale, hidden, lambda size: after(size, inner)),
        falling(inner, before, scale, ffn, lambda size: after(width, size)),
        scale,
    )
    return Sensitivity(lean, refit, chosen, losses)


def cut(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Any:
    """The most important channels of these layers, with their weights refitted where that goes with the importance."""
    kept = most_important(model, layers, scores, hidden, ffn)
    return pruned(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def retrained(model: Any, lessons: Sequence[Batch], loss: Loss, steps: int) -> Any:
    """The model after a few steps of training.

    Loss right after a cut predicts recovered loss badly: it overstates the cost of width. Candidates are ranked after
    light retraining in Minitron, Muralidharan et al. 2024, arXiv 2407.14679, section 2.3; here each size of each
    dimension is retrained alone.
    """
    if not steps:
        return model
    student.set_dropout(model, 0.0)
    tokens = np.concatenate([batch["input_ids"].cpu().numpy().ravel() for batch in lessons])
    lengths = [batch["input_ids"].shape[1] for batch in lessons]
    with only_used_embeddings(model, tokens), quick_attention(model.train(), lengths):
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * linear(step, steps, warmup=WARMUP)
            loss(model, lessons[step % len(lessons)]).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def _constant_loss(parts: list[Batch], num_labels: int) -> float:
    """Loss of the best constant prediction: the entropy of the labels, or their variance."""
    labels = torch.cat([part["labels"] for part in parts]).cpu()
    if num_labels == 1:
        return max(labels.float().var(correction=0).item(), 1e-6)
    shares = torch.bincount(labels, minlength=num_labels) / len(labels)
    return max(-(shares * shares.clamp(min=1e-9).log()).sum().item(), 1e-6)


def row_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of each row [B]: cross-entropy, or squared error where there is one label."""
    logits = working(model(**family.inputs(model, batch)).logits)
    if logits.shape[1] == 1:
        return F.mse_loss(logits[:, 0], batch["labels"].to(logits.dtype), reduction="none")
    return F.cross_entropy(logits, batch["labels"], reduction="none")


def in_precision(precision: str) -> Loss:
    """`row_loss` in the arithmetic of training: bfloat16 is twice as fast, and close enough for a ranking."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        bf16 = precision == "bf16" and family.family_of(model).bf16
        with torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=bf16):
            return row_loss(model, batch)

    return loss
