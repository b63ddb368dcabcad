"""The third phase: checks that rows, models and settings support the tasks, once rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distill.config import NO_TEACHER, Config, Prune, Quantize, Train
from distill.config.feature_kinds import kinds_of
from distill.config.plan import CONTROLS, SHARED_HEADS, STATIC, Plan, Step, tokenizer_of
from distill.config.schemes import SCHEMES
from distill.data.development_split import aside
from distill.data.labels import check_head
from distill.data.members import read_by
from distill.data.soft_labels import without
from distill.data.task_types import TaskType, labelled
from distill.data.tasks import TaskData, soft_outputs_of, targets_of
from distill.deploy.export import cross_encoder
from distill.errors import Line, Problem
from distill.models import families, teacher
from distill.models.families import sentence
from distill.models.families.embedding import dense_width, width_of
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS, UNBOUNDED
from distill.models.families.vectors import check_cosines, check_prompted
from distill.models.student.static import FAMILY
from distill.pipeline.train_steps.folds import texts
from distill.pipeline.train_steps.teacher_logits import APART
from distill.pipeline.validation.models import Models, found, same_tokens
from distill.pipeline.validation.shared import unlike
from distill.runtime import quoting

ROWS_PER_WEIGHT = 2
"""Minimum held-out training rows for each teacher whose weight is learned."""

MEASURED_ROWS = 32
"""Minimum training rows of a task on which losses or ranges of activations are measured."""

SAMPLE, SHARE_CUT = 1000, 0.01
"""Number of training rows whose lengths are measured, and the share of longer texts from which they are reported."""

Tasks = Mapping[str, TaskData]


def problems(tasks: Tasks, models: Models, config: Config, plan: Plan, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each task that the settings or the models do not support.

    Raises:
        DataError: for a head of a given model that does not fit a task.
    """
    kinds = {data.task.kind.name: data.task.kind for data in tasks.values() if data.task.kind.architecture != TEXTS}
    for kind in kinds.values():
        yield from unfit_for_kind(kind, models, config, plan)
    if config.student.heads == SHARED_HEADS:
        yield from unlike({name: data.task for name, data in tasks.items()})
    yield from without_pairs(tasks, steps)
    every = [data.task for data in tasks.values()]
    for each in models.teachers:
        yield from found(check_head, stored_head(each.folder), every, models.key)
    if models.student is not None:
        yield from found(check_head, stored_head(models.student.folder), every, "student.name")
    yield from _other_scale(tasks, models, steps)
    yield from few_rows(tasks, len(models.teachers), config, steps)
    yield from undivided(tasks, steps)
    yield from untuned(tasks, steps)
    yield from _unlabelled(tasks, models, steps, config)
    if config.teacher.kind == NO_TEACHER:
        yield from _without_soft_labels(tasks)
    yield from _other_width(tasks, models, config.teacher.kind == NO_TEACHER)


def unfit_for_kind(kind: TaskType, models: Models, config: Config, plan: Plan) -> Iterator[Line]:
    """Reasons why the weights or the models of the run do not fit a kind of task."""
    if config.teacher.weights == "learned" and (kind.per_token or kind.extractive or kind.mixed):
        yield Problem("teacher.weights", "learned", f"be numbers or null for {kind.name}", "set them, or leave it out")
    types = ", ".join(record.name for record in families.FAMILIES.values() if kind.architecture not in record.without)
    for each in models.configs:
        record = families.family_of(each)
        if kind.architecture in record.without:
            got = f"a model of type {record.name}"
            yield Problem(models.key, got, f"be one of {types} for {kind.name}", "choose such a model")
    if config.student.init == STATIC and kind.architecture in families.FAMILIES[FAMILY].without:
        must = f"be another for {kind.name}, for which models of its type, {FAMILY}, have no head"
        yield Problem("student.init", STATIC, must, "choose teacher_layers or random")
    elif kind.extractive:
        yield from _other_tokens(models, plan, kind.name)


def _other_tokens(models: Models, plan: Plan, kind: str) -> Iterator[Line]:
    """Reasons why students have other tokens than their teachers, for a kind of task that compares token by token."""
    must = f"be the teacher's for {kind}, where models are compared token by token"
    if not same_tokens(models.teachers[0].tokenizer, models.student_tokenizer):
        key = "student.name" if plan.given_student else "student.tokenizer"
        yield Problem(key, "a tokenizer that is not the teacher's", must, "choose the same")
    taught = [step for step in plan.steps if step.teacher and tokenizer_of(step.teacher) is not step.tokenizer]
    for cut in dict.fromkeys(step.tokenizer for step in taught if isinstance(step.tokenizer, Step)):
        settings = cut.settings
        if settings.tokens is not None or settings.min_count > 1 or "tasks" not in settings.texts:
            got = "settings that remove tokens of the training texts"
            yield Problem(f"stages.{cut.stage}", got, must, "set min_count=1, tokens=null and texts=[tasks]")


def without_pairs(tasks: Tasks, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each term that compares documents of a query, if a task has none."""
    kinds = {name: data.task.kind.name for name, data in tasks.items() if data.task.kind.name != "reranking"}
    if not kinds:
        return
    name, kind = next(iter(kinds.items()))
    for step in steps:
        for label, of_term in kinds_of(step.settings.terms).items() if isinstance(step.settings, Train) else ():
            if of_term.paired:
                key = f"stages.{step.stage}.terms.{label}.weight"
                yield Problem(
                    key,
                    f"{step.settings.terms[label].weight:g}",
                    f"be 0 for {name}, a task of kind {kind}, which has no documents of a query to compare",
                    f"set {key}=0, or tasks.kind=reranking",
                )


def _other_scale(tasks: Tasks, models: Models, steps: Sequence[Step]) -> Iterator[Line]:
    """A cross-encoder that is used without training for a regression must have its output as its score, because labels
    and outputs would else be on different scales."""
    used = any(isinstance(step.settings, Train) and step.settings.skip_if_head for step in steps)
    if not (used and any(data.task.kind.name == "regression" for data in tasks.values())):
        return
    for each in models.teachers:
        if stored_head(each.folder) is None or not sentence.of_cross_encoder(each.folder):
            continue
        if (name := cross_encoder.activation([Path(each.folder)])) != cross_encoder.IDENTITY:
            yield Problem(
                models.key,
                f"{each.folder}, a cross-encoder whose scores are the {name.rpartition('.')[2]} of its output",
                "be its output for a regression, whose labels are on that scale",
                f"to learn the labels with a new head, set {quoting.setting('teacher.head', 'new')}",
            )


def few_rows(tasks: Tasks, teachers: int, config: Config, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each task whose outputs are not averaged over teachers or windows, and for each one with too
    few rows to learn weights of `teachers`, their number, or to measure losses and ranges."""
    prunes = any(isinstance(step.settings, Prune) for step in steps)
    schemes = {name for step in steps if isinstance(step.settings, Quantize) for name in step.settings.schemes}
    calibrated = " and ".join(sorted(name for name in schemes if SCHEMES[name].calibrated))
    for name, data in tasks.items():
        kind, rows, fewest = data.task.kind, len(data.train), APART * ROWS_PER_WEIGHT * teachers
        if (window := config.teacher.window) is not None and not (kind.averaged and kind.architecture == TEXTS):
            yield Problem("teacher.window", window, f"be left out for {kind.name}", "leave it out")
        if not (kind.averaged or kind.mixed) and teachers > 1:
            yield Problem(
                "tasks.kind",
                f"{kind.name} for {name}",
                f"not be {kind.name} with several teachers, whose outputs are averaged as probabilities of classes",
                "give one teacher",
            )
        if config.teacher.weights == "learned" and rows < fewest:
            must = f"have {fewest} training rows or more in {name}, and has {rows}"
            yield Problem("teacher.weights", "learned", must, "leave the task out, or give the weights")
        for measured, others in (
            (prunes and "what can be pruned from its model", "or raise limit.examples"),
            (calibrated and "ranges of activations", f"raise limit.examples, or quantize without {calibrated}"),
        ):
            if measured and rows < MEASURED_ROWS:
                got = f"{name} with {rows} training rows"
                must = f"have {MEASURED_ROWS} or more to measure {measured}"
                yield Problem("tasks.names", got, must, f"leave it out, {others}")


def undivided(tasks: Tasks, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each task that cannot be divided into folds: it has fewer texts than folds, or its models are
    not classifiers of texts. Vectors of different models, for example, are not in the same space."""
    for step in steps:
        if not isinstance(step.settings, Train) or step.settings.folds == 1:
            continue
        key, got = f"stages.{step.stage}.folds", step.settings.folds
        for name, data in tasks.items():
            if data.task.kind.architecture != TEXTS:
                yield Problem(key, got, f"be 1 for {data.task.kind.name}, the kind of {name}", "leave it out")
            elif (most := len(np.unique(texts(data)))) < got:
                must = f"be <= {most}, the number of different first texts in the training rows of {name}"
                yield Problem(key, got, must, f"set it to {most}")


def untuned(tasks: Tasks, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each task without development rows by which a learning rate could be chosen."""
    for step in {step.stage: step for step in steps}.values():
        if not isinstance(step.settings, Train) or not step.settings.lr_factors:
            continue
        key, got = f"stages.{step.stage}.lr_factors", str(step.settings.lr_factors)
        for name in (name for name, data in tasks.items() if not aside(data)):
            must = f"be left out where a task has no development rows but the reported ones, as {name}"
            yield Problem(key, got, must, "leave it out, or give such rows with tasks.development")


def _unlabelled(tasks: Tasks, models: Models, steps: Sequence[Step], config: Config) -> Iterator[Line]:
    """Stages on tasks of embedders must have a teacher or labels to train on, or soft labels that stand in for the
    teacher, so that they train the model at full size too."""
    every = [data for data in tasks.values() if data.task.kind.separate]
    without = [data.task for data in every if not labelled(targets_of(data.train)).any()]
    head = stored_head(models.teachers[0].folder) if without else None
    for step in steps:
        if not without or not isinstance(step.settings, Train) or step.on_corpus or step.teacher is not None:
            continue
        if config.teacher.kind == NO_TEACHER and step.settings.role == "teacher":
            continue
        as_it_is = head is not None and head.architecture == without[0].kind.architecture
        if not (step.settings.skip_if_head and as_it_is):
            yield Problem(
                f"stages.{step.stage}.teacher",
                f"null, and training rows of {without[0].name} without labels",
                "be a stage, or rows with labels",
                f"{_left_out(step, steps, config)}add labels",
            )


def _left_out(step: Step, steps: Sequence[Step], config: Config) -> str:
    """The settings that leave a stage out, if no other stage needs its model."""
    named = [(other, key) for other in steps for key, of in other.sources.items() if step in of]
    if any(key not in CONTROLS.values() for _, key in named):
        return ""
    kept = [stage for stage in config.pipeline if stage != step.stage]
    settings = [f"'pipeline=[{','.join(kept)}]'", *dict.fromkeys(f"stages.{s.stage}.{key}=null" for s, key in named)]
    return f"set {' '.join(settings)}, or "


def _without_soft_labels(tasks: Tasks) -> Iterator[Line]:
    """Every training row must have a soft label where no teacher could label it."""
    for name, data in tasks.items():
        soft = soft_outputs_of(data.train)
        assert soft is not None
        if missing := int(without(soft).sum()):
            yield Problem(
                "tasks.soft_label",
                f"{missing:,} of {len(soft):,} training rows of {name} without one",
                "be in each row with teacher=none",
                "add them, leave these rows out, or set teacher.name=FOLDER",
            )


def _other_width(tasks: Tasks, models: Models, alone: bool) -> Iterator[Line]:
    """Stored vectors must be of the teacher's width where it is scored beside them, and embeds the rows without.

    alone: whether they stand in for a teacher. They must then be of the width of a model's Dense, if it has one.
    """
    for name, data in tasks.items():
        soft = soft_outputs_of(data.train.select([0])) if data.task.kind.separate else None
        stored = None if soft is None else soft.shape[1] // 2
        for each in [*models.teachers, *filter(None, [models.student])] if stored is not None and alone else ():
            if (width := dense_width(each.folder)) not in (None, stored):
                must = f"have {stored}, those of the vectors in tasks.soft_label, or no Dense after its pooling"
                yield Problem("student.name", f"an embedder of {width} dimensions", must, "choose another")
        if stored is not None and len(models.teachers) > 1:
            must = "be left out with several teachers, whose vectors have another space"
            yield Problem("tasks.soft_label", f"vectors for {name}", must, "leave it out, or give one teacher")
        elif stored is not None and not alone and stored != (width := width_of(models.teachers[0].folder)):
            yield Problem(
                "tasks.soft_label",
                f"vectors of {stored} numbers in {name}",
                f"be of {width}, as those of the teacher, which embeds the rows without one",
                "name the model that made them as the teacher, or set teacher=none student.name=FOLDER",
            )


def of_embedders(tasks: Tasks, models: Models, config: Config, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a problem for each embedder that the run would not read as sentence-transformers does: its texts would be
    cut later, or would not be lower-cased. `tasks`: those that the steps use.

    Raises:
        DataError: for vectors that are not compared by cosines.
    """
    kinds = [data.task.kind for data in tasks.values()]
    exported = any(step.embeds for step in steps)
    if exported or any(kind.separate for kind in kinds):
        students = [] if models.student is None else [(0, models.student)]
        for number, each in [*enumerate(models.teachers), *students]:
            check_cosines(each.folder)
            check_prompted(each.folder, [p for data in tasks.values() for p in read_by(data, number).task.prompts])
        used = {"tasks.max_length": config.tasks.max_length} if kinds else {}
        if any(step.on_corpus for step in steps):
            used["corpus.max_length"] = config.corpus.max_length
        for each in models.teachers:
            if sentence.is_listed(each.folder):
                yield from _cut_later(used, teacher.longest(each.folder, each.tokenizer, each.config), each.folder)
    kept = all(kind.separate for kind in kinds) if kinds else exported
    for each in models.teachers:
        if teacher.is_lower_cased(each.tokenizer) and not (kept and config.student.tokenizer is None):
            yield Problem(
                models.key,
                f"{each.folder}, whose {sentence.LENGTHS} has do_lower_case true",
                "be false for a student that is no embedder, or has its own tokenizer, because that does not "
                "lower-case texts",
                "to train on texts in their own case, set do_lower_case to false in a copy of the folder",
            )


def _cut_later(used: Mapping[str, int], most: int, folder: str) -> Iterator[Line]:
    """Settings of lengths above the length at which the teacher's library cuts texts."""
    for key, value in used.items():
        if value > most:
            yield Problem(
                key,
                value,
                f"be <= {most}, the number of tokens at which sentence-transformers cuts the texts of {folder}",
                f"set {quoting.setting(key, most)}",
            )


def coverage(rows: list[dict[str, Any]]) -> str:
    """One line per task: the number of rows of each split, and the official number if it differs."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        official = "" if row["official_rows"] in (None, row["rows"]) else f" of {row['official_rows']}"
        lines.setdefault(row["task"], []).append(f"{row['split']} {row['rows']}{official}")
    return "\n".join(f"{task}: {', '.join(splits)} rows" for task, splits in lines.items())


def long_texts(tasks: Tasks, tokenizer: Any, most: int) -> Iterator[str]:
    """A line for each task with many texts of more than `most` tokens."""
    for name, data in tasks.items():
        sample = data.train.select(range(min(SAMPLE, len(data.train))))
        lengths = data.encoded(sample, tokenizer, UNBOUNDED).sequences.lengths
        if (share := float((lengths > most).mean())) >= SHARE_CUT:
            action = "divided; to divide fewer" if data.task.kind.windowed else "cut; to keep more of them"
            yield (
                f"{name}: {100 * share:.0f}% of {len(sample):,} training texts have more than {most} tokens, at most "
                f"{lengths.max():,}, and are {action}, set tasks.max_length"
            )


def other_ends(teacher: Any, student: Any) -> Iterator[str]:
    """A line if the tokenizers of teacher and student keep different ends of texts that are cut."""
    kept = {"right": "first", "left": "last"}
    if teacher.truncation_side != student.truncation_side:
        yield (
            f"student: of texts that are cut it reads the {kept[student.truncation_side]} tokens, and the teacher the "
            f"{kept[teacher.truncation_side]} ones, as the truncation_side of their tokenizers says"
        )
