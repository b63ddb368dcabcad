"""Prune stage: the model of every task cut to smaller sizes, by what its own training rows show to matter least."""

from __future__ import annotations

import functools
import time
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
from distill.compress.importance import Batch, Importance
from distill.compress.prune import pruned
from distill.compress.reconstruct import gram_matrices, refitted
from distill.compress.search import Losses, Shape, choose, fits_target, grid, out_of_reach, total_rise
from distill.config import Prune, UserError, has_target
from distill.data.collate import pad
from distill.data.encode import encode_task
from distill.data.tasks import TaskData
from distill.evaluate.cost import size_mib_of
from distill.evaluate.predict import batches
from distill.evaluate.table import measure
from distill.export.huggingface import plain_logits, prove_reload
from distill.losses.precision import working
from distill.stages.context import Context
from distill.student.shape import projects, setting

TOKENS = 4096
"""Most tokens of a batch that importances are measured on."""

PROOF_ROWS = 4
TOLERANCE = 1e-3
"""Largest difference of a logit between the model in memory, on any device, and what was written, on the CPU."""

SHAPE = "shape.json"
"""File, in the stage's folder, of the shape that was found for a target."""


REPEATS = 5
"""Timing rounds of the table."""

PARTS = 8
"""Sizes that are tried of hidden and of FFN channels, when there is a target."""


@dataclass(frozen=True)
class Found:
    """What was measured of a task's model: importances, layers to keep by their number, and losses by size."""

    scores: Importance
    refit: bool
    layers: dict[int, list[int]]
    losses: Losses | None


def run(ctx: Context, name: str, settings: Prune) -> dict[str, Any]:
    """Prune every task's model and leave it in the stage's folder. Returns the manifest."""
    began, root = time.monotonic(), ctx.folder / name
    tasks = ctx.tasks[0]
    full, head = _full(ctx, settings)
    shapes = _wanted(ctx, settings, full, head)
    pending = [task for task in tasks if not checkpoint.finished(root / task)]
    # Where sizes are to be found, all tasks are looked at: they have one shape together.
    looked = tasks if has_target(ctx.config) and not (root / SHAPE).is_file() else ()
    found = {task: _measured(ctx, name, settings, tasks[task], shapes) for task in looked}
    chosen = _chosen(ctx, root, settings, shapes, full, found)
    shape = Shape(**chosen["shape"])
    for task in pending:
        _cut(ctx, name, settings, tasks[task], found.get(task), shape)
    made = {task: checkpoint.read_json(root / task / checkpoint.MANIFEST) for task in tasks}
    texts = {root / task: _texts(data) for task, data in tasks.items()}
    longest = ctx.config.tasks.max_length
    proved = {folder: (rows, plain_logits(folder, rows, longest)) for folder, rows in texts.items()}
    differences = prove_reload(proved, longest)
    manifest = chosen | {
        "tasks": {task: {"layers": m["layers"], "loss": m["loss"]} for task, m in made.items()},
        "largest_difference": {folder.name: value for folder, value in differences.items()},
        "seconds": time.monotonic() - began,
    }
    checkpoint.write_json(root / checkpoint.MANIFEST, manifest)
    return manifest


def _full(ctx: Context, settings: Prune) -> tuple[Shape, int]:
    """Shape of the models that are pruned, and how wide a head is."""
    config = _config(ctx, settings)
    shape = Shape(config.num_hidden_layers, config.hidden_size, setting(config, "intermediate_size"))
    return shape, config.hidden_size // config.num_attention_heads


def _config(ctx: Context, settings: Prune) -> Any:
    return teacher.load_config(ctx.checkpoint(settings.start, next(iter(ctx.tasks[0]))))


def _wanted(ctx: Context, settings: Prune, full: Shape, head: int) -> list[Shape]:
    """The one shape that `student.*` asks for, or all that are looked at for a target."""
    wanted = ctx.config.student
    if not has_target(ctx.config):
        layers = len(wanted.layers) if wanted.layers else wanted.num_hidden_layers or full.layers
        hidden = wanted.hidden_size or full.hidden
        return [Shape(layers, hidden, wanted.intermediate_size or full.ffn * hidden // full.hidden)]
    may = {name: name in settings.dimensions for name in ("layers", "hidden", "ffn")}
    config = _config(ctx, settings)

    def expressible(shape: Shape) -> bool:
        return projects(_config_of(config, shape)) == projects(config)

    widths = {
        shape.hidden: expressible(shape) for shape in grid(full, head, PARTS, layers=False, hidden=True, ffn=False)
    }
    return [shape for shape in grid(full, head, PARTS, **may) if widths.get(shape.hidden, True)]


def _config_of(full: Any, shape: Shape) -> Any:
    """Config of a model of this shape: which layers it has does not matter here, and it may have more."""
    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    made = student.student_config(full, range(min(shape.layers, full.num_hidden_layers)), None, sizes)
    setattr(made, family.family_of(made).settings.get("num_hidden_layers", "num_hidden_layers"), shape.layers)
    if kinds := getattr(made, "layer_types", None):
        made.layer_types = (kinds * shape.layers)[: shape.layers]
    return made


def _loaded(ctx: Context, settings: Prune, data: TaskData) -> tuple[Any, Any]:
    """A task's model on the device, and its tokenizer."""
    _, tokenizer = ctx.tokenizer_of(settings.start)
    folder = ctx.checkpoint(settings.start, data.task.name)
    model = teacher.load_classifier(folder, data.task.num_labels, pad_id=tokenizer.pad_token_id)
    return model.to(ctx.accelerator.device), tokenizer


def _measured(ctx: Context, name: str, settings: Prune, data: TaskData, shapes: list[Shape]) -> Found:
    model, tokenizer = _loaded(ctx, settings, data)
    parts = _batches(ctx, data, tokenizer, settings.examples)
    ctx.say(f"{name}/{data.task.name}: importance of layers, heads and channels on {_rows(parts)} rows")
    scores = instantiate(settings.importance)(model, parts, row_loss)
    # The matrices to refit by are as large as the model: they are made again when a model is cut.
    lean, refit = replace(scores, grams=None), scores.grams is not None
    depth, fewest = family.depth(model), min(shape.layers for shape in shapes)
    given = ctx.config.student.layers
    if given is not None:
        return Found(lean, refit, {len(given): given}, None)
    kept = by_loss(model, parts, row_loss, fewest) if fewest < depth else {}
    layers = {count: chosen for count, (chosen, _) in kept.items()} | {depth: list(range(depth))}
    if not has_target(ctx.config) or (ctx.folder / name / SHAPE).is_file():
        return Found(lean, refit, layers, None)
    before = mean_loss(model, parts, row_loss)

    def after(hidden: int, ffn: int) -> float:
        return mean_loss(_pruned(model, range(depth), scores, hidden, ffn), parts, row_loss)

    width, inner = family.width(model), setting(model.config, "intermediate_size")
    losses = Losses(
        before,
        {count: loss for count, (_, loss) in kept.items()} | {depth: before},
        {size: before if size == width else after(size, inner) for size in {s.hidden for s in shapes}},
        {size: before if size == inner else after(width, size) for size in {s.ffn for s in shapes}},
        _ignorance(parts, data.task.num_labels),
    )
    return Found(lean, refit, layers, losses)


def _pruned(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Any:
    """The most important channels of these layers, with their weights refitted where that goes with the importance."""
    kept = most_important(model, layers, scores, hidden, ffn)
    return pruned(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def _ignorance(parts: list[Batch], num_labels: int) -> float:
    """Loss of a model that knows only how often each label comes: their entropy, or their variance."""
    labels = torch.cat([part["labels"] for part in parts]).cpu()
    if num_labels == 1:
        return max(labels.float().var(correction=0).item(), 1e-6)
    shares = torch.bincount(labels, minlength=num_labels) / len(labels)
    return max(-(shares * shares.clamp(min=1e-9).log()).sum().item(), 1e-6)


def _chosen(
    ctx: Context, root: Path, settings: Prune, shapes: list[Shape], full: Shape, found: dict[str, Found]
) -> dict[str, Any]:
    """The shape, and where there is a target what it is expected to reach; kept, so that a stopped run goes on."""
    if (root / SHAPE).is_file():
        stored: dict[str, Any] = checkpoint.read_json(root / SHAPE)
        return stored
    if not has_target(ctx.config):
        return {"shape": asdict(shapes[0])}
    target, config = ctx.config.target, _config(ctx, settings)

    scheme = "fp32_medium" if ctx.fast_float32 else "fp32"
    table = measure(
        functools.partial(_config_of, config),
        {(shape.hidden, shape.ffn) for shape in shapes},
        batch=(target.shape[0], target.shape[1]),
        scheme=scheme,
        device=ctx.accelerator.device.type,
        threads=ctx.threads,
        repeats=min(REPEATS, ctx.config.limit.repeats or REPEATS),
        least_ms=5.0 if ctx.config.limit.smoke else 50.0,
        say=lambda text: ctx.say(f"{root.name}: {text}"),
    )

    @functools.cache
    def size(shape: Shape) -> float:
        return size_mib_of(_config_of(config, shape))

    cost = total_rise(one.losses for one in found.values() if one.losses is not None)
    fits = fits_target(target, table, full, size)
    shape = choose(shapes, fits, cost, table.milliseconds)
    if shape is None and ctx.config.limit.smoke:
        shape = min(shapes, key=table.milliseconds)
    if shape is None:
        raise out_of_reach(target, shapes, table, full, size, cost)
    before, after = table.milliseconds(full), table.milliseconds(shape)
    chosen = {
        "shape": asdict(shape),
        "scheme": scheme,
        "batch": target.shape,
        "predicted_ms": after,
        "predicted_speedup": before / after,
        "estimated_rise": cost(shape),
        "tried": len(shapes),
    }
    checkpoint.write_json(root / SHAPE, chosen)
    return chosen


def _cut(ctx: Context, name: str, settings: Prune, data: TaskData, found: Found | None, shape: Shape) -> None:
    task = data.task.name
    found = found or _measured(ctx, name, settings, data, [shape])
    model, tokenizer = _loaded(ctx, settings, data)
    parts = _batches(ctx, data, tokenizer, settings.examples)
    layers = found.layers[shape.layers]
    grams = gram_matrices(model, parts) if found.refit else None
    small = _pruned(model, layers, replace(found.scores, grams=grams), shape.hidden, shape.ffn)
    losses = {"before": mean_loss(model, parts, row_loss), "after": mean_loss(small, parts, row_loss)}
    ctx.say(
        f"{name}/{task}: {shape.layers} layers {layers}, {shape.hidden} wide, FFN {shape.ffn}; loss "
        f"{losses['before']:.3f} -> {losses['after']:.3f}"
    )
    manifest = {"layers": list(layers), "loss": losses}
    with ctx.writing(ctx.folder / name / task, small, tokenizer, manifest) as temporary:
        _same(small, temporary, _texts(data), ctx.config.tasks.max_length)


def row_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of each row [B]: cross-entropy, or squared error where there is one label."""
    logits = working(model(**family.inputs(model, batch)).logits)
    if logits.shape[1] == 1:
        return F.mse_loss(logits[:, 0], batch["labels"].to(logits.dtype), reduction="none")
    return F.cross_entropy(logits, batch["labels"], reduction="none")


def _batches(ctx: Context, data: TaskData, tokenizer: Any, examples: int) -> list[Batch]:
    """Training rows drawn evenly, in batches of like lengths, on the device."""
    drawn = np.random.default_rng(ctx.config.seed).permutation(len(data.train))[:examples]
    encoded = encode_task(data.train.select(drawn), data.task.columns, tokenizer, ctx.config.tasks.max_length)
    assert encoded.labels is not None
    found = []
    for rows in batches(np.asarray(encoded.lengths), TOKENS):
        made = dict(pad(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left"))
        made["labels"] = encoded.labels[rows]
        found.append({key: torch.from_numpy(value).to(ctx.accelerator.device) for key, value in made.items()})
    return found


def _rows(parts: list[Batch]) -> int:
    return sum(len(part["labels"]) for part in parts)


def _texts(data: TaskData) -> list[list[str]]:
    """Some rows of the task: one or two texts each."""
    rows = data.train.select(range(min(PROOF_ROWS, len(data.train))))
    return [[row[column] for column in data.task.columns] for row in rows]


@torch.no_grad()
def _same(model: Any, folder: Path, texts: list[list[str]], max_length: int) -> None:
    """UserError unless what was written says what the model in memory says."""
    tokenizer = teacher.load_tokenizer(folder)
    said = []
    for text in texts:
        made = tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt").to(model.device)
        said.append(model(**made).logits[0].float().cpu().numpy())
    far = float(np.abs(np.stack(said) - plain_logits(folder, texts, max_length)).max())
    if not far <= TOLERANCE:
        raise UserError(
            f"{folder}: got logits {far:.2g} away from the pruned model's; must be at most {TOLERANCE:g}; report it"
        )
