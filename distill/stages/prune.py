"""Prune stage: the model of every task cut to smaller sizes, by what its own training rows show to matter least."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from distill import checkpoint, family, student, teacher
from distill.compress.choose import mean_loss
from distill.compress.reconstruct import gram_matrices, refitted
from distill.compress.search import Shape, Table, choose, fits_target, forgotten, grid, guessed, out_of_reach
from distill.compress.zeros import anywhere, zeroed
from distill.config import Prune, Target
from distill.data.tasks import TaskData
from distill.errors import UserError
from distill.evaluate import latency
from distill.evaluate.cost import size_mib_of
from distill.evaluate.table import measure
from distill.export.proof import plain_logits, prove_reload
from distill.plan import cut_by, goals, has_target
from distill.stages.context import Context
from distill.stages.sensitivity import Sensitivity, cut, in_training_precision, loaded, sample, sensitivity
from distill.student.shape import projects, setting

PROOF_ROWS = 4
TOLERANCE = 1e-3
"""Largest difference of a logit between the model in memory, on any device, and what was written, on the CPU."""

SHAPES, TIMES = "shapes.json", "times.json"
"""Files, beside what was measured of the tasks: the shape that was found for each target, and the table of times."""

REPEATS = 5
"""Timing rounds of the table."""

PARTS, SMOKE_PARTS = 8, 3
"""Sizes that are tried of hidden and of FFN channels, when there is a target; and in a run that means nothing."""


def run(ctx: Context, name: str, settings: Prune) -> dict[str, Any]:
    """Prune every task's model, once for each target, and leave it in the stage's folder. Returns the manifest."""
    with _counted(ctx, name):
        chosen = _models(ctx, name, settings)
    manifest = chosen.get("", {"models": list(chosen)}) | {"seconds": checkpoint.read_json(_seconds(ctx, name))}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _seconds(ctx: Context, name: str) -> Path:
    return ctx.folder / f"{name}.sensitivity" / "seconds.json"


@contextmanager
def _counted(ctx: Context, name: str) -> Iterator[None]:
    """The seconds inside are added to those of earlier parts of the stage: of a run that was stopped, too."""
    file, began = _seconds(ctx, name), time.monotonic()
    before = checkpoint.read_json(file) if file.is_file() else 0.0
    try:
        yield
    finally:
        file.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_json(file, before + time.monotonic() - began)


def _models(ctx: Context, name: str, settings: Prune) -> dict[str, dict[str, Any]]:
    """Every model, written and proved. Returns what was chosen for each target, by its label."""
    root, tasks = ctx.folder / name, ctx.tasks[0]
    config = teacher.read_config(ctx.checkpoint(settings.start, next(iter(tasks))))
    shapes = _wanted(ctx, settings, config)
    chosen = _chosen(ctx, name, settings, config, shapes)
    for data in tasks.values():
        pending = {
            n: Shape(**c["shape"]) for n, c in chosen.items() if not checkpoint.finished(root / n / data.task.name)
        }
        if pending:
            found = sensitivity(ctx, name, settings, data, shapes)
            _cut(ctx, name, settings, data, found, pending)
    texts = {root / label / task: texts_of(data) for label in chosen for task, data in tasks.items()}
    longest = ctx.config.tasks.max_length
    proved = {folder: (rows, plain_logits(folder, rows, longest)) for folder, rows in texts.items()}
    ctx.say(f"{name}: reload of {len(proved)} models in a fresh process")
    differences = prove_reload(proved, longest)
    for label, row in chosen.items():
        made = {task: checkpoint.read_json(root / label / task / checkpoint.MANIFEST) for task in tasks}
        row["tasks"] = {task: {"layers": m["layers"], "loss": m["loss"]} for task, m in made.items()}
        row["largest_difference"] = {task: differences[root / label / task] for task in tasks}
        if label:
            checkpoint.write_json(root / label / checkpoint.MANIFEST, row)
    return chosen


def check_reach(ctx: Context, name: str, settings: Prune, config: Any) -> None:
    """ConfigError for a target that no model cut from one of this config meets here: before anything is trained."""
    if ctx.config.limit.smoke or not has_target(ctx.config) or _shapes_file(ctx, name).is_file():
        return
    shapes, size = _wanted(ctx, settings, config), _size(config)
    with _counted(ctx, name):
        table, full = _table(ctx, name, config, shapes), shape_of(config)
    # A vocabulary that is cut before makes models smaller than can be said yet.
    unsized = cut_by(ctx.config, settings.start) is not None
    for goal in goals(ctx.config).values():
        target = replace(goal, size_mib=None) if unsized else goal
        if choose(shapes, fits_target(target, table, full, size), lambda shape: 0.0, table.milliseconds) is None:
            raise out_of_reach(target, shapes, table, full, size)


def shape_of(config: Any) -> Shape:
    return Shape(config.num_hidden_layers, config.hidden_size, setting(config, "intermediate_size"))


def _shapes_file(ctx: Context, name: str) -> Path:
    return ctx.folder / f"{name}.sensitivity" / SHAPES


def _wanted(ctx: Context, settings: Prune, config: Any) -> list[Shape]:
    """The one shape that `student.*` asks for, or all that are looked at for a target."""
    wanted, full, head = ctx.config.student, shape_of(config), config.hidden_size // config.num_attention_heads
    if not has_target(ctx.config):
        layers = len(wanted.layers) if wanted.layers else wanted.num_hidden_layers or full.layers
        hidden = wanted.hidden_size or full.hidden
        return [Shape(layers, hidden, wanted.intermediate_size or full.ffn * hidden // full.hidden)]
    may = {name: name in settings.dimensions for name in ("layers", "hidden", "ffn")}
    parts = SMOKE_PARTS if ctx.config.limit.smoke else PARTS

    def expressible(shape: Shape) -> bool:
        return projects(_config_of(config, shape)) == projects(config)

    widths = {
        shape.hidden: expressible(shape) for shape in grid(full, head, parts, layers=False, hidden=True, ffn=False)
    }
    return [shape for shape in grid(full, head, parts, **may) if widths.get(shape.hidden, True)]


def _config_of(full: Any, shape: Shape) -> Any:
    """Config of a model of this shape: which layers it has does not matter here, and it may have more."""
    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    made = student.student_config(full, range(min(shape.layers, full.num_hidden_layers)), None, sizes)
    setattr(made, family.family_of(made).settings.get("num_hidden_layers", "num_hidden_layers"), shape.layers)
    if kinds := getattr(made, "layer_types", None):
        made.layer_types = (kinds * shape.layers)[: shape.layers]
    return made


def _chosen(ctx: Context, name: str, settings: Prune, config: Any, shapes: list[Shape]) -> dict[str, dict[str, Any]]:
    """Label of a goal -> its shape, and what that is expected to reach; kept, so that a stopped run goes on."""
    file = _shapes_file(ctx, name)
    if not has_target(ctx.config):
        return {"": {"shape": asdict(shapes[0])}}
    if not file.is_file():
        tasks = ctx.tasks[0].values()
        # All tasks are looked at, for they have one shape together.
        found = [sensitivity(ctx, name, settings, data, shapes) for data in tasks]
        table = _table(ctx, name, config, shapes)
        wanted = goals(ctx.config).items()
        checkpoint.write_json(file, {label: _found(ctx, config, shapes, found, table, goal) for label, goal in wanted})
    stored: dict[str, dict[str, Any]] = checkpoint.read_json(file)
    if any(row["conditions"] != _conditions(ctx) for row in stored.values()):
        # Found on another machine, or with other threads: the shapes stay, what is expected of them is of this one.
        table, full = _table(ctx, name, config, shapes), shape_of(config)
        stored = {label: row | _expected(ctx, full, Shape(**row["shape"]), table) for label, row in stored.items()}
        checkpoint.write_json(file, stored)
    return stored


def _size(config: Any) -> Callable[[Shape], float]:
    """Shape -> MiB of a model's weights."""
    return functools.cache(lambda shape: size_mib_of(_config_of(config, shape)))


def _found(
    ctx: Context, config: Any, shapes: list[Shape], measured: list[Sensitivity], table: Table, target: Target
) -> dict[str, Any]:
    """The shape with the least estimated loss that meets a target."""
    full, size = shape_of(config), _size(config)
    losses = [one.losses for one in measured if one.losses is not None]
    cost, unsure = forgotten(losses), guessed(losses)
    fits = fits_target(target, table, full, size)
    shape = choose(shapes, fits, lambda shape: (unsure(shape), cost(shape)), table.milliseconds)
    if shape is None and ctx.config.limit.smoke:
        shape = min(shapes)  # times mean nothing there
    if shape is None:
        raise out_of_reach(target, shapes, table, full, size, cost)
    found = {"shape": asdict(shape), "full": asdict(full), "batch": target.shape, "tried": len(shapes)}
    return found | {"estimated_forgotten": cost(shape)} | _expected(ctx, full, shape, table)


def _expected(ctx: Context, full: Shape, shape: Shape, table: Table) -> dict[str, Any]:
    """The speed that is expected of a shape here."""
    before, after = table.milliseconds(full), table.milliseconds(shape)
    conditions = _conditions(ctx)
    speed = {"predicted_ms": after, "predicted_speedup": before / after}
    return speed | {"scheme": conditions["scheme"], "conditions": conditions}


def _conditions(ctx: Context) -> dict[str, Any]:
    """What times depend on."""
    scheme = "fp32_medium" if ctx.fast_float32 else "fp32"
    return {"device": ctx.accelerator.device.type, "threads": ctx.threads, "scheme": scheme}


def _table(ctx: Context, name: str, config: Any, shapes: list[Shape]) -> Table:
    """Times of models of all widths, measured now or earlier under the same conditions."""
    file, target = ctx.folder / f"{name}.sensitivity" / TIMES, ctx.config.target
    conditions, widths = _conditions(ctx), {(shape.hidden, shape.ffn) for shape in shapes}
    head = config.hidden_size // config.num_attention_heads
    of = {"conditions": conditions, "model": config.model_type, "head": head, "batch": list(target.shape[:2])}
    if file.is_file() and (stored := checkpoint.read_json(file)).items() >= of.items():
        table = Table(*({(h, f): ms for h, f, ms in stored[part]} for part in ("fixed", "layer")))
        if widths <= table.fixed.keys():
            return table
    table = measure(
        functools.partial(_config_of, config),
        widths,
        batch=(target.shape[0], target.shape[1]),
        repeats=min(REPEATS, ctx.config.limit.repeats or REPEATS),
        least_ms=latency.SMOKE_MS if ctx.config.limit.smoke else latency.LEAST_MS,
        say=lambda text: ctx.say(f"{name}: {text}"),
        **conditions,
    )
    parts = {part: [[h, f, ms] for (h, f), ms in getattr(table, part).items()] for part in ("fixed", "layer")}
    file.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_json(file, of | parts)
    return table


def _cut(
    ctx: Context, name: str, settings: Prune, data: TaskData, found: Sensitivity, shapes: dict[str, Shape]
) -> None:
    """Write a task's model in each of the shapes, by their labels."""
    task = data.task.name
    model, tokenizer = loaded(ctx, settings, data)
    parts = sample(ctx, data, tokenizer, settings.examples)
    scores = replace(found.scores, grams=gram_matrices(model, parts) if found.refit else None)
    quick = in_training_precision(ctx)
    before = mean_loss(model, parts, quick)

    def made(layers: list[int], shape: Shape) -> Any:
        if settings.uniform:
            return cut(model, layers, scores, shape.hidden, shape.ffn)
        heads = ctx.config.student.num_attention_heads or family.heads(model)
        kept = anywhere(model, layers, scores, heads, shape.ffn)
        return zeroed(model if scores.grams is None else refitted(model, kept, scores.grams), kept)

    for label, shape in shapes.items():
        layers = found.layers[shape.layers]
        small = made(layers, shape)
        losses = {"before": before, "after": mean_loss(small, parts, quick)}
        ctx.say(
            f"{'/'.join(filter(None, (name, label, task)))}: {shape.layers} layers {layers}, {shape.hidden} wide, FFN "
            f"{shape.ffn}; loss {losses['before']:.3f} -> {losses['after']:.3f}"
        )
        manifest = {"layers": list(layers), "loss": losses}
        with ctx.writing(ctx.folder / name / label / task, small, tokenizer, manifest) as temporary:
            _same(small, temporary, texts_of(data), ctx.config.tasks.max_length)


def texts_of(data: TaskData) -> list[list[str]]:
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
