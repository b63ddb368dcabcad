"""Parts that training on the corpus and on tasks share: the trained model, the teachers, the terms and the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from distill import training
from distill.compression.pruning.gates import parameter_groups
from distill.compression.pruning.target import shape_of
from distill.config import Train
from distill.config.feature_kinds import FEATURE_KINDS
from distill.config.instantiate import bind
from distill.config.plan import STUDENT, Step
from distill.config.stages import BASE_WIDTH
from distill.losses.shared_encoder import Trainable
from distill.models import families, student, teacher
from distill.models.student.shape import setting
from distill.models.student.training import aligned_vocabulary, quick_on_cpu
from distill.pipeline.artefacts import Pruned, Trained
from distill.pipeline.context import Context
from distill.pipeline.train_steps.layer_map import cut_for_all
from distill.runtime.storage import atomic, run_folder, structs
from distill.runtime.storage.run_folder import STATE
from distill.training import batching
from distill.training.feed import Collate

FOLDS = ".folds"
"""Suffix of the folder with the logits of each fold, until the logits of all folds are stored beside the model."""


def prepared(ctx: Context, step: Step, model: Any) -> Any:
    """The model to train: `model`, or what is built or cut from it, with the stage's dropout and frozen parameters."""
    settings: Train = step.settings
    if settings.shape_of is not None:
        model = cut_for_all(ctx, step, model)
    if settings.build_student:
        shape = ctx.config.student
        if shape.tokenizer is not None:
            own = ctx.given.student_tokenizer
            model = student.with_vocabulary(model, own, student.pieces(own, ctx.given.tokenizer))
        layers = student.initial_layers(shape, model.config.num_hidden_layers)
        sizes = {name: getattr(shape, name) for name in student.SIZES}
        model = student.from_teacher(
            model, layers, init=shape.init, seed=ctx.config.seed, family=shape.family, sizes=sizes
        )
    if settings.dropout is not None:
        student.set_dropout(model, settings.dropout)
    if settings.data == "corpus" and not uses_head(settings):
        families.freeze_mlm_head(model)
    if settings.only_head:
        families.encoder(model).requires_grad_(False)
    return model.to(ctx.machine.device)


def uses_head(settings: Train) -> bool:
    """Whether a term with a weight needs the output of the model's head."""
    return any(FEATURE_KINDS[term.features].head and term.weight > 0 for term in settings.terms.values())


def frozen(ctx: Context, model: nn.Module) -> nn.Module:
    """The model as a teacher: eval mode, no gradients, on the device, weights in the training precision."""
    bf16 = ctx.machine.precision == "bf16" and families.family_of(model).bf16
    dtype = torch.bfloat16 if bf16 else torch.float32
    return model.eval().requires_grad_(False).to(ctx.machine.device, dtype)


def total_steps(ctx: Context, step: Step, lengths: np.ndarray, groups: np.ndarray | None = None) -> int:
    """Number of optimizer steps of a training on rows of these `lengths` [rows]: see `Train.epochs`."""
    settings: Train = step.settings
    share = ctx.epochs.get(step.target, 1.0)
    epochs = share * settings.epochs * compression(ctx, step) ** settings.scale_with_compression.epochs
    limits = [steps for steps in (settings.steps, ctx.config.limit.steps) if steps is not None]
    return batching.total_steps(
        lengths,
        settings.batch,
        seed=ctx.config.seed,
        epochs=epochs,
        most=min(limits, default=None),
        least=round(share * settings.min_steps),
        groups=groups,
    )


def compression(ctx: Context, step: Step) -> float:
    """The number of weights in the layers of a step's models before pruning, divided by the number after it; 1 if they
    were not pruned.

    The weights of the matrices of attention and of the feed-forward part count: layers x width x (4 width + 2 FFN).
    """
    pruner, first = step.pruner, step.first_pruner
    if pruner is None or first is None or pruner is step:
        return 1.0
    before = shape_of(teacher.read_config(ctx.checkpoint(first.start, next(iter(ctx.tasks)))))
    return before.weights / ctx.folder.result(pruner, Pruned).shape.weights


def trained(
    ctx: Context,
    step: Step,
    name: str,
    objective: Trainable,
    lengths: np.ndarray,
    collate: Collate,
    seed: int,
    total: int,
    groups: np.ndarray | None = None,
    global_batch: bool = False,
    after_step: Callable[[int], None] = lambda step: None,
) -> training.Trained:
    """Train the student of an objective in place. `name`: its folder, relative to the run folder.

    `total`: number of optimizer steps. Rows with the same of `groups` [rows] are batched together. `global_batch` and
    `after_step`: see `training.train`.
    """
    settings: Train = step.settings
    lr = learning_rate(ctx, step)
    ctx.machine.log(f"{name}: learning rate {lr:.2g}")
    named = [(name, p) for name, p in objective.named_parameters() if p.requires_grad]
    named = [(name, p) for name, p in named if not name.startswith("gates.")]
    # Norms and biases are not decayed, as in BERT.
    parameters = [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if objective.gates is not None:
        parameters += parameter_groups(objective.gates, settings.gates.lr)
    on_gpu = ctx.machine.device.type == "cuda"
    quick = aligned_vocabulary(objective.models) if on_gpu else quick_on_cpu(objective.student, lengths)
    with quick:
        return training.train(
            objective,
            lengths,
            collate,
            name=name,
            settings=settings,
            seed=seed,
            total=total,
            optimizer=bind(settings.optimizer | {"lr": lr}, "optimizer")(parameters),
            schedule=bind(settings.schedule, "schedule"),
            accelerator=ctx.machine.accelerator,
            state_folder=state_folder(ctx, name),
            console=ctx.machine.console,
            groups=groups,
            global_batch=global_batch,
            tracker=ctx.machine.tracker,
            after_step=after_step,
        )


def learning_rate(ctx: Context, step: Step) -> float:
    """`optimizer.lr` if it is set, else base_lr x 384 / width of the given model that the step's lineage starts from,
    and for pruned models this x `compression` to the power of `scale_with_compression.lr`.

    The best learning rate of Adam for weight matrices is inversely proportional to the width (Yang et al. 2022, arXiv
    2203.03466, table 8). Deviation: the embeddings, norms and biases, for which it is constant there, get the same.
    """
    settings: Train = step.settings
    if (lr := settings.optimizer.get("lr")) is not None:
        return float(lr)
    given = ctx.given.student if step.lineage[-1] is STUDENT else ctx.given.teacher
    width = int(setting(teacher.read_config(given), "hidden_size"))
    return settings.base_lr * BASE_WIDTH / width * compression(ctx, step) ** settings.scale_with_compression.lr


def state_folder(ctx: Context, name: str) -> Path:
    """Folder with the state from which the training of the model in folder `name` resumes."""
    return ctx.folder.path / f"{name}{STATE}"


def forget_training(ctx: Context, name: str) -> None:
    """Remove the files that only an unfinished training needs. `name` is the folder of its model, which is whole."""
    if ctx.machine.main:
        for ending in (STATE, FOLDS):
            atomic.remove(ctx.folder.path / f"{name}{ending}", ctx.folder.path)


def write_manifest(ctx: Context, name: str, models: Trained) -> Trained:
    """Write the manifest of the folder `name`. Returns it, in every process once it is written."""
    if ctx.machine.main:
        structs.write(ctx.folder.path / name / run_folder.MANIFEST, models)
    ctx.machine.wait()
    return models


def speed(tokens: int, seconds: float) -> float:
    """Tokens per second."""
    return tokens / max(seconds, 1e-9)
