"""Checks that models, terms and settings support the tasks, once rows and models are known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distill.config import NO_TEACHER, Prune, Quantize, Train
from distill.config.feature_kinds import FEATURE_KINDS
from distill.config.plan import Step, tokenizer_of
from distill.config.schemes import SCHEMES
from distill.data.task_types import TaskType, labelled
from distill.data.tasks import soft_outputs_of, targets_of
from distill.deploy.export import cross_encoder
from distill.errors import ConfigError, DataError, refusing
from distill.inference.cost import size_mib_of
from distill.models import families, teacher
from distill.models.families import sentence
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS
from distill.models.families.vectors import check_cosines
from distill.pipeline.context import Context
from distill.pipeline.train_steps.folds import texts
from distill.pipeline.train_steps.teacher_logits import APART
from distill.pipeline.validation.shared import unlike
from distill.runtime import quoting
from distill.runtime.versions import memory

PROBE = "Zoë isn't naïve: 42% of THIS\tcosts 3.50 €"
"""Text that is tokenized differently with and without folding of case or accents, or splitting of numbers."""

ROWS_PER_WEIGHT = 2
"""Minimum held-out training rows for each teacher whose weight is learned."""

MEASURED_ROWS = 32
"""Minimum training rows of a task on which losses or ranges of activations are measured."""


STATES = {"AdamW": 2, "Adam": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adagrad": 1, "RMSprop": 1}
"""Optimizer -> count of numbers that it keeps for each weight."""


@refusing
def check_architecture(ctx: Context) -> Iterator[str]:
    """Check that settings and models support the kinds of the tasks.

    Raises:
        ConfigError: for settings and models that support only classifiers of texts.
    """
    tasks = [data.task for data in ctx.tasks.values() if data.task.kind.architecture != TEXTS]
    if not tasks:
        return
    window = ctx.config.teacher.window
    if window is not None:
        yield f"teacher.window: got {window}; must be null for {tasks[0].kind.name}; leave it out"
    for kind in {task.kind.name: task.kind for task in tasks}.values():
        yield from _unfit_for_kind(ctx, kind)


def _unfit_for_kind(ctx: Context, kind: TaskType) -> Iterator[str]:
    """Reasons why the weights or the models of the run do not fit a kind of task."""
    if ctx.config.teacher.weights == "learned" and (kind.per_token or kind.extractive):
        yield f"teacher.weights: got learned; must be numbers or null for {kind.name}; set them, or leave it out"
    types = ", ".join(record.name for record in families.FAMILIES.values() if kind.architecture not in record.without)
    for folder in ctx.given.teachers:
        record = families.family_of(teacher.read_config(folder, ctx.given.key))
        if kind.architecture in record.without:
            yield (
                f"{ctx.given.key}: got a model of type {record.name}; must be one of {types} for {kind.name}; choose "
                "such a model"
            )
    if kind.extractive:
        yield from _other_tokens(ctx, kind.name)


def check_soft_labels(ctx: Context) -> None:
    """Check that every training row has a soft label where no teacher could label it.

    Raises:
        DataError: for rows without one.
    """
    if ctx.config.teacher.kind != NO_TEACHER:
        return
    for name, data in ctx.tasks.items():
        soft = soft_outputs_of(data.train)
        assert soft is not None
        if without := int(np.isnan(soft).any(axis=1).sum()):
            raise DataError(
                f"tasks.soft_label: got {without:,} of {len(soft):,} training rows of {name} without one; must be in "
                "each row with teacher=none; add them, leave these rows out, or set teacher.name=FOLDER"
            )


@refusing
def check_shared(ctx: Context) -> Iterator[str]:
    """Check that the tasks can share an encoder, where they must.

    Raises:
        ConfigError: if they cannot.
    """
    if ctx.shared:
        yield from unlike({name: data.task for name, data in ctx.tasks.items()})


@refusing
def check_margins(ctx: Context, steps: list[Step]) -> Iterator[str]:
    """Check that all tasks have queries with documents, if a term compares these.

    Raises:
        ConfigError: for a task without them.
    """
    tasks = {name: data.task.kind for name, data in ctx.tasks.items() if data.task.kind.name != "reranking"}
    if not tasks:
        return
    keys = {
        f"stages.{step.stage}.terms.{label}.weight": term
        for step in steps
        if isinstance(step.settings, Train)
        for label, term in step.settings.terms.items()
        if term.weight > 0 and FEATURE_KINDS[term.features].paired
    }
    name, kind = next(iter(tasks.items()))
    for key, term in keys.items():
        yield (
            f"{key}: got {term.weight:g}; must be 0 for {name}, a task of kind {kind.name}, which has no documents "
            f"of a query to compare; set {key}=0, or tasks.kind=reranking"
        )


def _other_tokens(ctx: Context, kind: str) -> Iterator[str]:
    """Reasons why students have other tokens than their teachers, for a kind of task that compares token by token."""
    action = f"must be the teacher's for {kind}, where models are compared token by token"
    if not same_tokens(ctx.given.tokenizers[0], ctx.given.student_tokenizer):
        key = "student.name" if ctx.plan.given_student else "student.tokenizer"
        yield f"{key}: got a tokenizer that is not the teacher's; {action}; choose the same"
    taught = [step for step in ctx.plan.steps if step.teacher and tokenizer_of(step.teacher) is not step.tokenizer]
    for cut in dict.fromkeys(step.tokenizer for step in taught if isinstance(step.tokenizer, Step)):
        settings = cut.settings
        if settings.tokens is not None or settings.min_count > 1 or "tasks" not in settings.texts:
            yield (
                f"stages.{cut.stage}: got settings that remove tokens of the training texts; tokens {action}; set "
                "min_count=1, tokens=null and texts=[tasks]"
            )


@refusing
def check_rows(ctx: Context, steps: list[Step]) -> Iterator[str]:
    """Check that tasks have enough training rows to learn weights of teachers, and to measure losses and ranges.

    Raises:
        ConfigError: for too few rows, and for kinds of tasks whose teachers cannot be averaged.
    """
    prunes = any(isinstance(step.settings, Prune) for step in steps)
    schemes = {name for step in steps if isinstance(step.settings, Quantize) for name in step.settings.schemes}
    calibrated = sorted(name for name in schemes if SCHEMES[name].calibrated)
    for name, data in ctx.tasks.items():
        kind = data.task.kind.name
        if not data.task.kind.averaged and (len(ctx.given.teachers) > 1 or ctx.config.teacher.window is not None):
            yield (
                f"tasks.kind: got {kind} for {name}; must not be {kind} with several teachers or teacher.window, whose "
                "outputs are averaged as probabilities of classes; give one teacher, and leave teacher.window out"
            )
        rows, fewest = len(data.train), APART * ROWS_PER_WEIGHT * len(ctx.given.teachers)
        if ctx.config.teacher.weights == "learned" and rows < fewest:
            yield (
                f"teacher.weights: got learned; must have {fewest} training rows or more in {name}, and has {rows}; "
                "leave the task out, or give the weights"
            )
        few = f"tasks.names: got {name} with {rows} training rows; must have {MEASURED_ROWS} or more to measure"
        if prunes and rows < MEASURED_ROWS:
            yield f"{few} what can be pruned from its model; leave it out, or raise limit.examples"
        if calibrated and rows < MEASURED_ROWS:
            yield (
                f"{few} ranges of activations; leave it out, raise limit.examples, or quantize without "
                f"{' and '.join(calibrated)}"
            )


@refusing
def check_memory(ctx: Context, students: Sequence[tuple[Step, Any]], teachers: Sequence[Any]) -> Iterator[str]:
    """Check that the machine has the memory that trainings on a CPU need, whatever their batches.

    Args:
        students: each step with the config of the student that it builds or is given; None for any other step.
        teachers: configs of the teachers.

    Raises:
        ConfigError: for trainings that need more.
    """
    most = memory()
    if ctx.machine.device.type != "cpu" or most is None:
        return
    for step, student in students:
        trained = [student] if student is not None else _trained_teachers(ctx, step, teachers)
        needed = max((least_memory(config, step.settings) for config in trained), default=0)
        # Models of tasks may be trained by one process each, or by fewer than there are.
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if step.on_corpus else 1
        if needed > most:
            yield (
                f"stages.{step.stage}: got a training that needs {needed / 2**30:,.1f} GiB of memory for weights, "
                f"gradients and optimizer alone; must be less than the {most / 2**30:,.1f} GiB that this machine has; "
                "use a smaller model, fewer processes, or a machine with more memory"
            )


def _trained_teachers(ctx: Context, step: Step, teachers: Sequence[Any]) -> list[Any]:
    """Configs of the given teachers that a step trains, without teachers whose stored head is used."""
    settings = step.settings
    if not isinstance(settings, Train) or settings.role != "teacher":
        return []
    given = zip(ctx.given.teachers, teachers, strict=True)
    return [config for folder, config in given if not settings.skip_if_head or stored_head(folder) is None]


def least_memory(config: Any, settings: Any) -> int:
    """Minimum bytes for the training of a model, given by its config: float32 weights and, for trained weights,
    gradients and the optimizer's state. 0 for a stage that does not train whole models.

    On tasks, the rows of the token table that occur in no text are not trained (`student.training`).
    """
    if not isinstance(settings, Train) or settings.only_head or settings.skip_if_mlm_head:
        return 0
    copies = 1 + STATES.get(settings.optimizer["_target_"].rpartition(".")[2], 0)
    weights = int(size_mib_of(config) * 2**20)
    width = getattr(config, "embedding_size", None) or config.hidden_size
    trained = weights - (4 * config.vocab_size * width if settings.data == "tasks" else 0)
    return weights + copies * trained


def same_tokens(first: Any, second: Any) -> bool:
    """Whether two tokenizers have the same vocabulary and split `PROBE` into the same tokens."""
    return bool(first.get_vocab() == second.get_vocab() and first(PROBE)["input_ids"] == second(PROBE)["input_ids"])


@refusing
def check_folds(ctx: Context, steps: list[Step]) -> Iterator[str]:
    """Check that tasks can be divided into folds.

    Raises:
        ConfigError: for a task with fewer texts than folds, and for a kind whose models are not classifiers of texts:
            vectors of different models, for example, are not in the same space.
    """
    for step in steps:
        if not isinstance(step.settings, Train) or step.settings.folds == 1:
            continue
        got = f"stages.{step.stage}.folds: got {step.settings.folds}; must be"
        for name, data in ctx.tasks.items():
            if data.task.kind.architecture != TEXTS:
                yield f"{got} 1 for {data.task.kind.name}, the kind of {name}; leave it out"
            elif (most := len(np.unique(texts(data)))) < step.settings.folds:
                yield (
                    f"{got} <= {most}, the number of different first texts in the training rows of {name}; set it to "
                    f"{most}"
                )


def check_embedders(ctx: Context, pending: list[Step]) -> None:
    """Check that a run reads embedders as sentence-transformers does.

    Raises:
        ConfigError: if texts would be cut later, or would not be lower-cased.
        DataError: for vectors that are not compared by cosines.
    """
    kinds = [data.task.kind for data in ctx.tasks.values()] if _on_tasks(pending) else []
    exported = any(step.embeds for step in pending)
    if exported or any(kind.separate for kind in kinds):
        for folder in [*ctx.given.teachers, *([ctx.given.student] if ctx.plan.given_student else [])]:
            check_cosines(folder)
        for folder, tokenizer in zip(ctx.given.teachers, ctx.given.tokenizers, strict=True):
            if sentence.is_listed(folder):
                _check_lengths(ctx, pending, teacher.longest(folder, tokenizer, teacher.read_config(folder)), folder)
    kept = all(kind.separate for kind in kinds) if kinds else exported
    for folder, tokenizer in zip(ctx.given.teachers, ctx.given.tokenizers, strict=True):
        if teacher.is_lower_cased(tokenizer) and not (kept and ctx.config.student.tokenizer is None):
            raise ConfigError(
                f"{ctx.given.key}: got {folder}, whose {sentence.LENGTHS} has do_lower_case true; must be false for a "
                "student that is no embedder, or has its own tokenizer, because that does not lower-case texts; to "
                "train on texts in their own case, set do_lower_case to false in a copy of the folder"
            )


def check_activation(ctx: Context, pending: list[Step]) -> None:
    """Check that a cross-encoder that is used without training for a regression has its output as its score.

    Raises:
        ConfigError: if it has not, because labels and outputs would be on different scales.
    """
    used = any(isinstance(step.settings, Train) and step.settings.skip_if_head for step in pending)
    if not (used and _on_tasks(pending) and any(d.task.kind.name == "regression" for d in ctx.tasks.values())):
        return
    for folder in ctx.given.teachers:
        if stored_head(folder) is None or not sentence.of_cross_encoder(folder):
            continue
        if (name := cross_encoder.activation([Path(folder)])) != cross_encoder.IDENTITY:
            raise ConfigError(
                f"{ctx.given.key}: got {folder}, a cross-encoder whose scores are the {name.rpartition('.')[2]} of its "
                "output; must be its output for a regression, whose labels are on that scale; to learn the labels with "
                f"a new head, set {quoting.setting('teacher.head', 'new')}"
            )


def _on_tasks(pending: list[Step]) -> bool:
    return any(not step.on_corpus and not step.embeds for step in pending)


def _check_lengths(ctx: Context, pending: list[Step], most: int, folder: str) -> None:
    """Raise ConfigError for texts that are longer than the texts that the teacher's library reads."""
    tasks, corpus = ctx.config.tasks.max_length, ctx.config.corpus.max_length
    lengths = {"tasks.max_length": tasks if _on_tasks(pending) else 0}
    lengths |= {"corpus.max_length": corpus if any(step.on_corpus for step in pending) else 0}
    for key, value in lengths.items():
        if value > most:
            raise ConfigError(
                f"{key}: got {value}; must be <= {most}, the number of tokens at which sentence-transformers cuts the "
                f"texts of {folder}; set {quoting.setting(key, most)}"
            )


def check_labels(ctx: Context, steps: list[Step]) -> None:
    """Check that stages on tasks of embedders have a teacher or labels to train on.

    Raises:
        ConfigError: for a stage with neither.
    """
    every = [data for data in ctx.tasks.values() if data.task.kind.separate]
    without = [data.task for data in every if not labelled(targets_of(data.train)).any()]
    head = stored_head(ctx.given.teacher) if without else None
    for step in steps:
        if not without or not isinstance(step.settings, Train) or step.on_corpus or step.teacher is not None:
            continue
        as_it_is = head is not None and head.architecture == without[0].kind.architecture
        if not (step.settings.skip_if_head and as_it_is):
            raise ConfigError(
                f"stages.{step.stage}.teacher: got null, and training rows of {without[0].name} without labels; must "
                "be a stage, or rows with labels; leave the stage out of pipeline, or add labels"
            )
