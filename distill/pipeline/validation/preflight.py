"""Loads and checks the inputs of all pending steps, so that wrong models and data are refused before any training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from distill.compression.pruning.ragged import STEP
from distill.config import Evaluate, Prune, Train, Vocabulary
from distill.config.plan import STUDENT, Step
from distill.data.labels import check_head
from distill.errors import ConfigError, refuse
from distill.inference.timing import OWN
from distill.models import families, student, teacher
from distill.models.families.head import stored_head
from distill.models.families.record import UNBOUNDED
from distill.models.student.shape import projects, setting
from distill.pipeline.context import Context
from distill.pipeline.stages.shape_search import check_reach, search_inputs
from distill.pipeline.validation.models import (
    check_activation,
    check_architecture,
    check_embedders,
    check_folds,
    check_labels,
    check_margins,
    check_memory,
    check_rows,
    check_shared,
    check_soft_labels,
    same_tokens,
)
from distill.runtime import quoting as advice

SAMPLE, SHARE_CUT = 1000, 0.01
"""Number of training rows whose lengths are measured, and the share of longer texts from which they are reported."""


def prepare(ctx: Context, pending: list[Step]) -> None:
    """Load and check the inputs of the pending steps.

    Raises:
        ConfigError: for models that do not fit the settings.
        DataError: for files that cannot be read.
    """
    if not pending:
        return
    _check_weights(ctx, pending)
    _ = ctx.given.student_tokenizer  # on every process, because loading it synchronizes them
    _check_models(ctx, pending)
    check_embedders(ctx, pending)
    if any(not step.on_corpus for step in pending):
        for line in (*ctx.notes, coverage(ctx.coverage)):
            ctx.machine.log(line)
        check_architecture(ctx)
        check_shared(ctx)
        check_margins(ctx, pending)
        for line in _cut(ctx):
            ctx.machine.log(line)
        for folder in ctx.given.teachers:
            check_head(stored_head(folder), [data.task for data in ctx.tasks.values()], ctx.given.key)
        check_activation(ctx, pending)
        check_rows(ctx, pending)
        check_folds(ctx, pending)
        check_labels(ctx, pending)
        check_soft_labels(ctx)
        if ctx.plan.given_student:
            check_head(stored_head(ctx.given.student), [data.task for data in ctx.tasks.values()], "student.name")
    for step in pending:
        if step.on_corpus:
            ctx.corpus(step)
    if ctx.machine.main:
        _on_main_process(ctx, pending)


def _check_weights(ctx: Context, pending: list[Step]) -> None:
    """Check that models are whole, and that the student of an embedder can be exported as one."""
    given = dict.fromkeys(ctx.given.teachers, ctx.given.key)
    if ctx.plan.given_student:
        given.setdefault(ctx.given.student, "student.name")
    for folder, key in given.items():
        notes = teacher.check_given(folder, key)
        for line in notes if ctx.config.teacher.kind != "embedded" else ():  # of which the user need not know
            ctx.machine.log(line)
    if any(step.embeds for step in pending):
        teacher.check_exported(ctx.given.teacher)


def _on_main_process(ctx: Context, pending: list[Step]) -> None:
    """Load texts that only the main process uses, and check that pruned models can meet the targets."""
    for step in pending:
        if isinstance(step.settings, Vocabulary) and "corpus" in step.settings.texts:
            _ = ctx.texts
        # With a budget, targets out of reach are not tried.
        if step in ctx.plan.pruners and ctx.config.budget.minutes is None:
            check_reach(search_inputs(ctx, step), ctx.runtime, _pruned_from(ctx, step))


def _pruned_from(ctx: Context, step: Step) -> Any:
    """Config of the models that a step prunes, which may not exist yet."""
    loaded = teacher.read_config(ctx.given.teacher, ctx.given.key)
    if step.builder is not None:
        return _student(ctx, loaded)
    return teacher.read_config(ctx.given.student, "student.name") if step.lineage[-1] is STUDENT else loaded


def coverage(rows: list[dict[str, Any]]) -> str:
    """One line per task: the number of rows of each split, and the official number if it differs."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        official = "" if row["official_rows"] in (None, row["rows"]) else f" of {row['official_rows']}"
        lines.setdefault(row["task"], []).append(f"{row['split']} {row['rows']}{official}")
    return "\n".join(f"{task}: {', '.join(splits)} rows" for task, splits in lines.items())


def _cut(ctx: Context) -> Iterator[str]:
    """A line for each task with many texts of more than `tasks.max_length` tokens."""
    most = ctx.config.tasks.max_length
    for name, data in ctx.tasks.items():
        sample = data.train.select(range(min(SAMPLE, len(data.train))))
        lengths = data.encoded(sample, ctx.given.tokenizer, UNBOUNDED).sequences.lengths
        if (share := float((lengths > most).mean())) >= SHARE_CUT:
            action = "divided; to divide fewer" if data.task.kind.extractive else "cut; to keep more of them"
            yield (
                f"{name}: {100 * share:.0f}% of {len(sample):,} training texts have more than {most} tokens, at most "
                f"{lengths.max():,}, and are {action}, set tasks.max_length"
            )


def _check_models(ctx: Context, steps: list[Step]) -> None:
    """Check that tokenizers, students and lengths fit the models. ConfigError with all problems."""
    configs = [teacher.read_config(folder, ctx.given.key) for folder in ctx.given.teachers]
    for tokenizer, config in zip(ctx.given.tokenizers, configs, strict=True):
        teacher.check_vocabulary(tokenizer, config, ctx.given.key)
    for line in _beyond_trained(ctx, steps, configs):
        ctx.machine.log(line)
    window, longest = ctx.config.teacher.window, min(families.max_length(config) for config in configs)
    errors: list[str] = []
    if window is not None and window > longest:
        errors.append(
            f"teacher.window: got {window}; must be <= {longest}, the maximum length of the teachers; set {longest}"
        )
    students: list[tuple[Step, Any]] = []
    for step in steps:
        config, wrong = _student_of(ctx, step, configs[0])
        students.append((step, config))
        errors += wrong
        if step.on_corpus:
            errors += _unfit_for_corpus(ctx, step, configs)
            if any(not families.family_of(config).mlm_head for config in configs):
                break
    lengths = [families.max_length(config) for _, config in students if config is not None]
    errors += _too_long(_lengths(ctx, [s for s in steps if s.on_corpus]), longest, lengths, "")
    # Only for tasks, because a corpus is cut into sequences anyway.
    windows = f", or {advice.setting('teacher.window', longest)}" if window is None else ""
    on_tasks = _lengths(ctx, [s for s in steps if not s.on_corpus])
    errors += _too_long(on_tasks, longest if window is None else None, lengths, windows)
    refuse(dict.fromkeys(errors))
    check_memory(ctx, students, configs)


def _beyond_trained(ctx: Context, steps: list[Step], configs: list[Any]) -> Iterator[str]:
    """A line for texts that are longer than those a teacher without a maximum length was trained on."""
    trained = [families.trained_length(config) for config in configs if families.max_length(config) >= UNBOUNDED]
    for key, value in _lengths(ctx, steps).items():
        if trained and value > min(trained) and not (ctx.config.teacher.window and key == "tasks.max_length"):
            yield (
                f"{key}: {value} tokens; the teacher has no maximum, but was most likely trained on at most "
                f"{min(trained)} (max_position_embeddings, or 512)"
            )


def _lengths(ctx: Context, steps: list[Step]) -> dict[str, int]:
    """Setting of a length -> its value in tokens, for the settings that the steps use."""
    lengths: dict[str, int] = {}
    for step in steps:
        if isinstance(step.settings, Evaluate):
            lengths |= {f"stages.{step.stage}.shapes {shape}": shape[1] for shape in step.settings.shapes}
        if isinstance(step.settings, Prune) and ctx.plan.has_target:
            lengths |= {} if ctx.config.target.shape == OWN else {"target.shape": ctx.config.target.shape[1]}
        if step.on_corpus:
            lengths["corpus.max_length"] = ctx.config.corpus.max_length
        else:
            lengths["tasks.max_length"] = ctx.config.tasks.max_length
    return lengths


def _student_of(ctx: Context, step: Step, loaded: Any) -> tuple[Any, list[str]]:
    """Config of the student that a step builds, prunes or is given, and its problems. None for any other step.

    Args:
        loaded: config of the first teacher.
    """
    settings = step.settings
    if isinstance(settings, Prune):
        return loaded, _prunable(ctx, loaded, settings)
    if not isinstance(settings, Train):
        return None, []
    if settings.gates.trained and loaded.model_type not in families.STUDENTS:
        return None, [_no_student("teacher.name", loaded)]
    try:
        if settings.build_student:
            return _student(ctx, loaded), []
        return (_given_student(ctx) if step.start is STUDENT else None), []
    except ConfigError as error:
        return None, error.messages


def _too_long(lengths: dict[str, int], teacher: int | None, students: list[int], advice: str) -> Iterator[str]:
    """Settings of lengths above the maximum length of a model.

    Args:
        lengths: setting -> tokens.
        teacher: maximum length of the teachers; None if they read windows.
        students: maximum lengths of the students.
        advice: added if the length exceeds only the teacher's maximum.
    """
    maximum = min([*students, *([] if teacher is None else [teacher])], default=None)
    for key, value in lengths.items():
        if maximum is not None and value > maximum:
            action = f"set it to {maximum}{advice if students and value <= min(students) else ''}"
            yield f"{key}: got {value}; must be <= {maximum}, the maximum length of teacher and student; {action}"


def _unfit_for_corpus(ctx: Context, step: Step, configs: list[Any]) -> Iterator[str]:
    """Reasons why a step cannot train on a corpus with these teachers, given by their configs."""
    for config in configs:
        if not families.family_of(config).mlm_head:
            yield (
                f"{ctx.given.key}: got a model of type {config.model_type}; must be one that stages on a corpus can "
                f"use, of type {', '.join(families.STUDENTS)}; use recipe=task, which trains on tasks alone"
            )
            return
    if ctx.tokenizer(step).mask_token_id is None:
        yield (
            f"{ctx.given.key}: got a tokenizer (or student.tokenizer) without a mask token; must have one for "
            "masked-language modelling; choose an encoder's"
        )
    first, *others = ctx.given.tokenizers
    sizes = {config.vocab_size for config in configs}
    if len(sizes) > 1 or any(not same_tokens(first, other) for other in others):
        yield (
            "teacher.names: got teachers with different tokenizers, or vocabularies of different sizes; must have the "
            "same for stages on a corpus, where the probabilities of tokens are averaged; use recipe=task"
        )


def _given_student(ctx: Context) -> Any:
    """Config of the given student. ConfigError if it cannot be one."""
    config = teacher.read_config(ctx.given.student, "student.name")
    teacher.check_vocabulary(ctx.given.student_tokenizer, config, "student.name")
    if config.model_type not in families.STUDENTS:
        raise ConfigError(_no_student("student.name", config))
    return config


def _student(ctx: Context, loaded: Any) -> Any:
    """Config of the student that would be built from a teacher with config `loaded`. ConfigError if none can be."""
    settings, own = ctx.config.student, ctx.given.student_tokenizer
    if settings.tokenizer is not None:
        loaded = copy.deepcopy(loaded)
        student.config_for(loaded, own)
    if loaded.model_type not in families.STUDENTS:
        raise ConfigError(
            f"{ctx.given.key}: got a model of type {loaded.model_type}; must be of type "
            f"{', '.join(families.STUDENTS)} for a student to be built from it; use recipe=task"
        )
    layers = settings.layers or student.half_depth(loaded.num_hidden_layers)
    sizes = {name: getattr(settings, name) for name in student.SIZES}
    config = student.student_config(loaded, layers, settings.family, sizes)
    teacher.check_vocabulary(own, config)
    if settings.init == "teacher_layers":
        student.check_transfer(loaded, config)
    return config


def _prunable(ctx: Context, loaded: Any, stage: Prune) -> list[str]:
    """Problems of the sizes in `student.*` to which the teacher is to be pruned."""
    target, depth = ctx.config.student, int(loaded.num_hidden_layers)
    if loaded.model_type not in families.STUDENTS:
        return [_no_student("teacher.name", loaded)]
    for name, required in families.family_of(loaded).unprunable.items():
        if (got := getattr(loaded, name, None) or required) != required:
            return [f"teacher.name: got a model with {name} {got}; must be {required} to be pruned; choose another"]
    if (target.num_hidden_layers or 1) > depth:
        return [
            f"student.num_hidden_layers: got {target.num_hidden_layers}; must be <= {depth}, the teacher's; set fewer"
        ]
    layers = target.layers or list(range(target.num_hidden_layers or depth))
    sizes = {name: getattr(target, name) for name in student.SIZES} if stage.uniform else {}
    if not stage.uniform and (errors := list(_too_many(ctx, loaded))):
        return errors
    try:
        config = student.student_config(loaded, layers, None, sizes)
        if projects(loaded) != projects(config):
            return [
                f"student.hidden_size: got {target.hidden_size}; must not be the width of the embeddings, because a "
                "model of that config would have no projection of them; choose another"
            ]
        student.check_transfer(loaded, config)
    except ConfigError as error:
        return [line.removesuffix("; or set student.init=random") for line in error.messages]
    return []


def _too_many(ctx: Context, loaded: Any) -> Iterator[str]:
    """Mean numbers of heads or FFN channels per layer that exceed the teacher's, or are too small."""
    for name, fewest in (("num_attention_heads", 1), ("intermediate_size", STEP)):
        most, got = setting(loaded, name), getattr(ctx.config.student, name)
        if got is not None and not fewest <= got <= most:
            yield f"student.{name}: got {got}; must be from {fewest} to {most}, the teacher's; set such a number"


def _no_student(key: str, config: Any) -> str:
    """Error message for a model of a family that cannot be a student."""
    types = ", ".join(families.STUDENTS)
    return f"{key}: got a model of type {config.model_type}; must be one of {types}; choose such a model"
