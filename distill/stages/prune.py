"""Prune stage: the model of every task cut to smaller sizes, by what its own training rows show to matter least."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from torch import Tensor, nn

from distill import checkpoint, family, teacher
from distill.compress.choose import by_loss, mean_loss, most_important
from distill.compress.importance import Batch
from distill.compress.prune import pruned
from distill.config import Prune
from distill.data.collate import pad
from distill.data.encode import encode_task
from distill.data.tasks import TaskData
from distill.evaluate.predict import batches
from distill.export.huggingface import prove_reload
from distill.losses.precision import working
from distill.stages.context import Context
from distill.student.shape import setting

TOKENS = 4096
"""Most tokens of a batch that importances are measured on."""

PROOF_ROWS = 4


def run(ctx: Context, name: str, settings: Prune) -> dict[str, Any]:
    """Prune every task's model and leave it in the stage's folder. Returns the manifest."""
    began, made = time.monotonic(), {}
    for task, data in ctx.tasks[0].items():
        folder = ctx.folder / name / task
        if not checkpoint.finished(folder):
            _task(ctx, name, settings, data)
        made[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    proved = {ctx.folder / name / task: (m["texts"], np.array(m["logits"], np.float32)) for task, m in made.items()}
    differences = prove_reload(proved, ctx.config.tasks.max_length)
    manifest = {
        "tasks": {task: {key: m[key] for key in ("sizes", "layers", "loss")} for task, m in made.items()},
        "largest_difference": {folder.name: value for folder, value in differences.items()},
        "seconds": time.monotonic() - began,
    }
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _task(ctx: Context, name: str, settings: Prune, data: TaskData) -> None:
    start, task = ctx.checkpoint(settings.start, data.task.name), data.task.name
    _, tokenizer = ctx.tokenizer_of(settings.start)
    model = teacher.load_classifier(start, data.task.num_labels, pad_id=tokenizer.pad_token_id)
    model = model.to(ctx.accelerator.device)
    parts = list(_batches(ctx, data, tokenizer, settings.examples))
    ctx.say(f"{name}/{task}: importance of heads and channels on {sum(len(p['labels']) for p in parts)} rows")
    scores = instantiate(settings.importance)(model, parts, row_loss)
    wanted = ctx.config.student
    layers = wanted.layers
    if layers is None:
        count = wanted.num_hidden_layers or family.depth(model)
        layers = by_loss(model, parts, row_loss, count)[count][0]
    hidden = wanted.hidden_size or family.width(model)
    ffn = wanted.intermediate_size or setting(model.config, "intermediate_size")
    small = pruned(model, most_important(model, layers, scores, hidden, ffn))
    losses = {"before": mean_loss(model, parts, row_loss), "after": mean_loss(small, parts, row_loss)}
    manifest = {
        "sizes": {"num_hidden_layers": len(layers), "hidden_size": hidden, "intermediate_size": ffn},
        "layers": list(layers),
        "loss": losses,
    } | _answers(small, tokenizer, data, ctx.config.tasks.max_length)
    with ctx.writing(ctx.folder / name / task, small, tokenizer, manifest):
        pass


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


@torch.no_grad()
def _answers(model: Any, tokenizer: Any, data: TaskData, max_length: int) -> dict[str, Any]:
    """Some texts and what the model says to each alone: what its folder must say in a fresh process."""
    texts = [[row[column] for column in data.task.columns] for row in data.train.select(range(PROOF_ROWS))]
    try:
        made = [tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt") for text in texts]
    finally:
        tokenizer.backend_tokenizer.no_truncation()
    alone = [{key: value.to(model.device) for key, value in batch.items()} for batch in made]
    return {"texts": texts, "logits": [model(**family.inputs(model, batch)).logits[0].tolist() for batch in alone]}
