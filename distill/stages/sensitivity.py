"""What a prune stage measures of a task's model: which parts matter, and what the loss is without them.

It is kept on disk, so that a run that was stopped goes on, and so that every target is met from one set of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from torch import Tensor, nn

from distill import checkpoint, family, student, teacher
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
from distill.plan import has_target
from distill.stages.context import Context
from distill.student.shape import setting
from distill.student.training import only_seen, quick_attention

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


def sensitivity(ctx: Context, name: str, settings: Prune, data: TaskData, shapes: list[Shape]) -> Sensitivity:
    """As measured of a task's model on its training rows, now or in an earlier run."""
    folder = ctx.folder / f"{name}.sensitivity" / data.task.name
    if not folder.is_dir():
        found = _measured(ctx, name, settings, data, shapes)
        with checkpoint.writing(folder) as temporary:
            _write(temporary, found)
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


def loaded(ctx: Context, settings: Prune, data: TaskData) -> tuple[Any, Any]:
    """A task's model on the device, and its tokenizer."""
    _, tokenizer = ctx.tokenizer_of(settings.start)
    folder = ctx.checkpoint(settings.start, data.task.name)
    model = teacher.load_classifier(folder, data.task.num_labels, pad_id=tokenizer.pad_token_id)
    return model.to(ctx.accelerator.device), tokenizer


def _measured(ctx: Context, name: str, settings: Prune, data: TaskData, shapes: list[Shape]) -> Sensitivity:
    model, tokenizer = loaded(ctx, settings, data)
    parts = sample(ctx, data, tokenizer, settings.examples)
    rows = sum(len(part["labels"]) for part in parts)
    ctx.say(f"{name}/{data.task.name}: importance of layers, heads and channels on {rows} rows")
    scores = instantiate(settings.importance)(model, parts, row_loss)
    gates = ctx.checkpoint(settings.start, data.task.name) / SCORES
    if gates.is_file():
        trained = vars(read(gates))
        scores = replace(scores, **{kind: trained[kind] for kind in ("heads", "ffn", "hidden") if trained[kind].any()})
    # The matrices to refit by are as large as the model: they are made again when a model is cut.
    lean, refit = replace(scores, grams=None), scores.grams is not None
    depth, fewest = family.depth(model), min(shape.layers for shape in shapes)
    given = ctx.config.student.layers
    if given is not None:
        return Sensitivity(lean, refit, {len(given): given}, None)
    quick = in_training_precision(ctx)
    kept = by_loss(model, parts, quick, fewest) if fewest < depth else {}
    layers = {count: chosen for count, (chosen, _) in kept.items()} | {depth: list(range(depth))}
    if not has_target(ctx.config):
        return Sensitivity(lean, refit, layers, None)
    steps = min(settings.retrain_steps, ctx.config.limit.steps or settings.retrain_steps)
    ctx.say(f"{name}/{data.task.name}: loss by size, after {steps} steps of training")
    lessons = sample(ctx, data, tokenizer, settings.examples, then=steps)
    width, inner = family.width(model), setting(model.config, "intermediate_size")

    def learned(small: Any) -> float:
        return mean_loss(retrained(small, lessons, quick, steps), parts, quick)

    def after(hidden: int, ffn: int) -> float:
        return learned(cut(model, range(depth), scores, hidden, ffn))

    before, scale = after(width, inner), _ignorance(parts, data.task.num_labels)
    hidden, ffn = {shape.hidden for shape in shapes}, {shape.ffn for shape in shapes}
    losses = Losses(
        before,
        falling(depth, before, scale, kept, lambda n: learned(pruned(model, everything(model, layers[n])))),
        falling(width, before, scale, hidden, lambda size: after(size, inner)),
        falling(inner, before, scale, ffn, lambda size: after(width, size)),
        scale,
    )
    return Sensitivity(lean, refit, layers, losses)


def cut(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Any:
    """The most important channels of these layers, with their weights refitted where that goes with the importance."""
    kept = most_important(model, layers, scores, hidden, ffn)
    return pruned(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def retrained(model: Any, lessons: Sequence[Batch], loss: Loss, steps: int) -> Any:
    """The model after a few steps of training. What a cut leaves says little of what it will have learned again: width
    looks lost, and FFN channels are not. Candidates are ranked after light retraining in Minitron, Muralidharan et al.
    2024, arXiv 2407.14679, section 2.3; here it is each size of each dimension by itself.
    """
    if not steps:
        return model
    student.set_dropout(model, 0.0)
    tokens = np.concatenate([batch["input_ids"].cpu().numpy().ravel() for batch in lessons])
    lengths = [batch["input_ids"].shape[1] for batch in lessons]
    with only_seen(model, tokens), quick_attention(model.train(), lengths):
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * linear(step, steps, warmup=WARMUP)
            loss(model, lessons[step % len(lessons)]).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def _ignorance(parts: list[Batch], num_labels: int) -> float:
    """Loss of a model that knows only how often each label comes: their entropy, or their variance."""
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


def in_training_precision(ctx: Context) -> Loss:
    """`row_loss` in the arithmetic of training: where it is bfloat16, that is twice as fast and near enough to rank."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        bf16 = ctx.precision == "bf16" and family.family_of(model).bf16
        with torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=bf16):
            return row_loss(model, batch)

    return loss


def sample(ctx: Context, data: TaskData, tokenizer: Any, examples: int, then: int = 0) -> list[Batch]:
    """At most `examples` training rows drawn evenly, in batches of like lengths, on the device; never more than half.

    With `then`, that many batches of `LESSON` rows from the others, as they come; fewer if there are not so many.
    """
    drawn = np.random.default_rng(ctx.config.seed).permutation(len(data.train))
    apart = min(examples, len(drawn) // 2)
    drawn = drawn[apart : apart + then * LESSON] if then else drawn[:apart]
    encoded = encode_task(data.train.select(drawn), data.task.columns, tokenizer, ctx.config.tasks.max_length)
    assert encoded.labels is not None
    found = []
    several = [np.arange(len(drawn))[at : at + LESSON] for at in range(0, len(drawn), LESSON)]
    for rows in several if then else batches(np.asarray(encoded.lengths), TOKENS):
        made = dict(pad(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left"))
        made["labels"] = encoded.labels[rows]
        found.append({key: torch.from_numpy(value).to(ctx.accelerator.device) for key, value in made.items()})
    return found
