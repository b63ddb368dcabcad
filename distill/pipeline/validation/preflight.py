"""Loads and checks the inputs of all pending steps, so that wrong models and data are refused before any training."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distill.config import Vocabulary
from distill.config.plan import Step
from distill.errors import refuse
from distill.models import teacher
from distill.pipeline.context import Context
from distill.pipeline.context.given import GivenModels
from distill.pipeline.context.keys import needed
from distill.pipeline.stages.shape_search import check_reach, search_inputs
from distill.pipeline.validation import data, models, whole_steps
from distill.pipeline.validation.models import Model, Models
from distill.runtime.versions import memory


def prepare(ctx: Context, pending: list[Step]) -> None:
    """Load and check the inputs of the pending steps.

    Raises:
        ConfigError: for models and rows that do not fit the settings.
        DataError: for files that cannot be read.
    """
    if not pending:
        return
    config, plan, log = ctx.config, ctx.plan, ctx.machine.log
    given = loaded(ctx.given, pending, log)
    if any("masked_lm" in needed(step, config) for step in pending) and ctx.given.masked_lm is not None:
        teacher.check_masked_lm(ctx.given.masked_lm, "transfer.masked_lm")
    _log(log, models.beyond_trained(given, config, plan, pending))
    _log(log, models.unused_objective(given, pending))
    most = memory() if ctx.machine.device.type == "cpu" else None
    refuse(dict.fromkeys(models.problems(given, config, plan, pending, most)))
    on_tasks = any(not step.on_corpus and not step.embeds for step in pending)
    refuse(data.of_embedders(ctx.tasks if on_tasks else {}, given, config, pending))
    if any(not step.on_corpus for step in pending):
        _log(log, [*ctx.notes, data.coverage(ctx.coverage)])
        refuse(dict.fromkeys(data.problems(ctx.tasks, given, config, plan, pending)))
        _log(log, data.long_texts(ctx.tasks, ctx.given.tokenizer, config.tasks.max_length))
        _log(log, data.other_ends(ctx.given.tokenizer, ctx.given.student_tokenizer))
    tasks, processes = ctx.tasks if on_tasks else {}, ctx.machine.accelerator.num_processes
    refuse(whole_steps.problems(tasks, pending, processes))
    for step in pending:
        if step.on_corpus:
            ctx.corpus(step)
    for step in pending if ctx.machine.main else ():
        if isinstance(step.settings, Vocabulary) and "corpus" in step.settings.texts:
            _ = ctx.texts
        # With a budget, targets out of reach are not tried.
        if step in plan.pruners and config.budget.minutes is None:
            check_reach(search_inputs(ctx, step), ctx.runtime, given.unpruned(step, config.student))


def _log(log: Callable[[str], None], lines: Iterable[str]) -> None:
    for line in lines:
        log(line)


def loaded(given: GivenModels, pending: list[Step], log: Callable[[str], None]) -> Models:
    """The configs and tokenizers of the given models. Their weights are whole, and the student of an embedder can be
    exported as one. Every process loads them, because loading synchronizes the processes."""
    named = dict.fromkeys(given.teachers, given.key)
    if given.student_given:
        named.setdefault(given.student, "student.name")
    for folder, key in named.items():
        notes = teacher.check_given(folder, key)
        _log(log, notes if given.config.teacher.kind != "embedded" else ())  # of which the user need not know
    if any(step.embeds for step in pending):
        teacher.check_exported(given.teacher)
    own = given.student_tokenizer
    teachers = [
        Model(folder, teacher.read_config(folder, given.key), tokenizer)
        for folder, tokenizer in zip(given.teachers, given.tokenizers, strict=True)
    ]
    student = None
    if given.student_given:
        student = Model(given.student, teacher.read_config(given.student, "student.name"), own)
    return Models(given.key, teachers, student, own)
