"""Checks of the pipeline: its stages, their references to each other, and settings that depend on other stages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec

from distill.config import (
    NO_TEACHER,
    REFERENCES,
    STAGES,
    Baseline,
    Config,
    Evaluate,
    Export,
    Prune,
    Quantize,
    Stage,
    Train,
    Vocabulary,
    names,
)
from distill.config.baselines import BASELINE, SELF_TRAINED, expanded
from distill.config.feature_kinds import LOGITS, POOLED, kinds_of
from distill.config.plan import CONTROLS, GIVEN, STATIC, TEACHER, Given, Plan, Source, Step, targets, tokenizer_of
from distill.config.schemes import SCHEMES
from distill.config.stages import DIMENSIONS
from distill.errors import Line, Problem
from distill.pipeline.validation.baseline import baselines, compared
from distill.pipeline.validation.rules import alike, nearest
from distill.pipeline.validation.terms import TermFacts, terms
from distill.runtime import quoting

STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Valid names of stages, which are names of folders in the run folder too."""


def pipeline(config: Config, plan: Plan) -> Iterator[Line]:
    """All problems of the pipeline and of the stages in it."""
    yield from baselines(config)
    yield from compared(config)
    config = expanded(config)
    if not config.pipeline:
        yield Problem("pipeline", "[]", "name at least one stage", "choose a recipe, e.g. recipe=distilbert")
    yield from _stage_names(config)
    # The steps of one stage differ only in their target. Cuts of baselines have the settings of their prune stage.
    steps = {step.stage: step for step in plan.steps if step.stage in config.stages}
    yield from _chained(plan, config)
    for step in steps.values():
        for key in step.sources:
            if isinstance(source := step.source(key), Step):
                yield from _reference(step, key, source)
        if isinstance(step.settings, Train):
            yield from _train(step, step.settings, config)
        yield from _lists(step.stage, step.settings)
        if config.teacher.kind == "ensemble":
            yield from _one_per_teacher(step)


def _chained(plan: Plan, config: Config) -> Iterator[Line]:
    """Baselines of several targets that would begin with what the student of the target before them learned."""
    if not config.target.chain or len(plan.targets) < 2 or config.budget.minutes is not None:
        return
    of_controls = {s.stage: s for s in plan.of(Train) if s.settings.role in CONTROLS and s.target}
    for stage, step in of_controls.items():
        start, pruner = step.start, step.pruner
        if pruner is not None and not (isinstance(start, Step) and start.cutter is start and start.pruner is pruner):
            yield Problem(
                f"stages.{stage}.start",
                getattr(start, "stage", start),
                f"be {pruner.stage} with target.chain, so that baselines are pruned one from the other",
                "set it, or target.chain=false",
            )


def _is_name(name: str) -> bool:
    fits = STAGE_NAME.fullmatch(name) is not None and len(name) <= names.LONGEST
    return fits and name not in GIVEN and not names.is_device(name)


def _stage_names(config: Config) -> Iterator[Line]:
    for name in config.stages:
        if not _is_name(name):
            yield Problem(
                f"stages.{name}",
                f"{name} as the name of a stage",
                f"be letters, digits, - and _, a letter first, not {' or '.join(GIVEN)} nor the name of a device, "
                f"and at most {names.LONGEST} bytes, because it names a folder of the run",
                "rename the stage",
            )
    yield from alike("stages", filter(_is_name, config.stages), "stages")
    for index, name in enumerate(config.pipeline):
        if name not in config.stages:
            yield Problem("pipeline", name, "be in stages", nearest(name, list(config.stages)))
            continue
        if name in config.pipeline[:index]:
            yield Problem("pipeline", f"{name} twice", "name a stage once", "add a stage under another name")
        yield from _references(name, config, config.pipeline[:index])


def _references(name: str, config: Config, earlier: list[str]) -> Iterator[Line]:
    """Settings of a stage that name another stage which does not run before it."""
    stage = config.stages[name]
    for key in REFERENCES:
        other = getattr(stage, key, None)
        allowed = ("start", "teacher"), ("teacher", "teacher"), ("start", "student")
        given = isinstance(stage, Train) and (key, other) in allowed
        if other is not None and not given and other not in earlier:
            yield Problem(
                f"stages.{name}.{key}", other, "be an earlier stage of the pipeline", nearest(str(other), earlier)
            )


REFERRED_KINDS = {"quantized": ("quantize",), "evaluated": ("evaluate",), "pruned": ("prune",), "shape_of": ("prune",)}
"""Setting -> kinds of stages that it may name. All other settings name stages that write models."""


def _reference(step: Step, key: str, source: Step) -> Iterator[Line]:
    """Whether the stage that a setting names has the models, files or scores that the setting needs."""
    models = [kind for kind, settings in STAGES.items() if settings.writes_models]
    kinds, where = REFERRED_KINDS.get(key, models), f"stages.{step.stage}.{key}"
    settings, other = step.settings, source.settings
    if key in CONTROLS.values() and source.kind == Train.kind:
        yield from _control(where, key, step, source)
    elif source.kind not in kinds:
        yield Problem(where, source.stage, f"be a stage of kind {' or '.join(kinds)}", f"it is of kind {source.kind}")
    elif key == "quantized" and isinstance(other, Quantize):
        start = settings.student if isinstance(settings, Evaluate) else getattr(settings, "start", None)
        if other.start != start and not step.embeds:
            yield Problem(
                where,
                f"{source.stage}, which quantizes {other.start}",
                f"quantize {start}, the models of this stage",
                f"set {quoting.setting(f'stages.{source.stage}.start', start)}",
            )
    elif isinstance(settings, Export) and isinstance(other, Evaluate) and not step.embeds:
        if other.student != settings.start:
            yield Problem(
                where,
                f"{source.stage}, which scores {other.student}",
                f"score {settings.start}, the exported models",
                "set it to null",
            )
    elif key not in REFERRED_KINDS:
        yield from _one_or_per_task(step, key, source)


def _control(where: str, key: str, step: Step, source: Step) -> Iterator[Line]:
    """Whether a control is one, and of the student that it is compared with."""
    role = source.settings.role
    wanted = next(name for name, setting in CONTROLS.items() if setting == key)
    if SELF_TRAINED in (role, wanted) and role != wanted:
        must = f"be a stage {'without' if role == SELF_TRAINED else 'of kind baseline with'} a teacher"
        instead = f"name it in stages.{step.stage}.{CONTROLS[role]}" if role in CONTROLS else "name another"
        yield Problem(where, source.stage, must, instead)
        return
    other, learned = step.source("baseline"), source.settings.teacher
    if role == SELF_TRAINED and isinstance(other, Step) and _role(other) == BASELINE and other.stage != learned:
        yield Problem(
            where,
            f"{source.stage}, which learns from {learned}",
            f"learn from {other.stage}, the baseline that is compared too",
            f"set {quoting.setting(f'stages.{source.stage}.teacher', other.stage)}",
        )
    else:
        yield from _one_or_per_task(step, key, source)


def _one_or_per_task(step: Step, key: str, source: Step) -> Iterator[Line]:
    """A stage on the corpus has one model, any other stage has one for each task."""
    where = f"stages.{step.stage}.{key}"
    if step.on_corpus and not source.on_corpus:
        yield Problem(where, source.stage, "be a stage with data corpus", "it has a model for each task")
    elif isinstance(step.settings, Export) and source.on_corpus:
        yield from _embedder(step, source)
    elif key == "teacher" and source.on_corpus and not step.on_corpus and _outputs(step):
        words = "be a stage with data tasks, or terms must compare layers alone"
        yield Problem(where, source.stage, words, "it has no head for a task")
    elif not isinstance(step.settings, Train | Baseline) and source.on_corpus:
        yield Problem(where, source.stage, "be a stage with data tasks", "it has no model for a task")


def _outputs(step: Step) -> bool:
    """Whether a term of a stage compares outputs with the teacher's."""
    given = getattr(step.settings, "terms", {})
    return any(kind.head and given[label].compare_with == "teacher" for label, kind in kinds_of(given).items())


def _embedder(step: Step, source: Step) -> Iterator[Line]:
    """A stage on the corpus can be exported only as a sentence embedder, if it was trained on pooled vectors."""
    name, start = step.stage, source.stage
    if POOLED not in kinds_of(getattr(source.settings, "terms", {})).values():
        yield Problem(
            f"stages.{name}.start",
            start,
            "be a stage with data tasks, or one with a term on pooled vectors of a sentence embedder",
            "try recipe=embedder",
        )
    if find_spec("sentence_transformers") is None:
        yield (
            f"stages.{name}.start: got {start}; needs sentence-transformers to verify the exported embedder; run "
            f"{quoting.install('embedder')}, or leave the stage out"
        )


def _one_per_teacher(step: Step) -> Iterator[Line]:
    """References that do not fit a stage with a model for each of several teachers."""
    settings, key = step.settings, f"stages.{step.stage}"
    start, teacher = (_role(step.source(name)) for name in ("start", "teacher"))
    if isinstance(settings, Train) and settings.role == "teacher" and start not in ("teacher", None):
        yield Problem(
            f"{key}.start",
            settings.start,
            "be teacher, or a stage of role teacher, with teacher=ensemble",
            "each teacher starts from its own model",
        )
    if isinstance(settings, Evaluate) and teacher not in ("teacher", None):
        yield Problem(
            f"{key}.teacher",
            settings.teacher,
            "be a stage of role teacher with teacher=ensemble",
            f"set stages.{settings.teacher}.role=teacher",
        )
    if isinstance(settings, Quantize | Export) and start == "teacher":
        yield Problem(
            f"{key}.start",
            settings.start,
            "be a student's stage with teacher=ensemble: it has a model for each teacher",
            "name another",
        )


def _role(source: Source | None) -> str | None:
    """Role of the models of a step, or of a given model; None without a source."""
    if isinstance(source, Given):
        return source.name
    settings = None if source is None else source.settings
    return settings.role if isinstance(settings, Train) else "student" if settings is not None else None


def _lists(name: str, stage: Stage) -> Iterator[Line]:
    """Problems of settings that are lists of names or shapes."""
    if isinstance(stage, Prune):
        yield from _names(f"stages.{name}.dimensions", stage.dimensions, DIMENSIONS, fewest=1)
    if isinstance(stage, Vocabulary):
        yield from _names(f"stages.{name}.texts", stage.texts, ("tasks", "corpus"), fewest=1)
    if isinstance(stage, Quantize):
        yield from _names(f"stages.{name}.schemes", stage.schemes, tuple(SCHEMES))
        yield from _installed(f"stages.{name}.schemes", stage.schemes)
    if isinstance(stage, Evaluate):
        for shape in stage.shapes:
            if len(shape) != 2 or min(shape) < 1:
                yield Problem(f"stages.{name}.shapes", shape, "be [batch size, length]", "e.g. [8,128]")


def _installed(key: str, schemes: list[str]) -> Iterator[Line]:
    """Schemes whose packages are not installed."""
    for scheme in (SCHEMES[name] for name in schemes if name in SCHEMES):
        if missing := [name for name in scheme.packages if find_spec(name) is None]:
            yield Problem(
                key,
                scheme.name,
                f"be a scheme whose packages are installed, and {' and '.join(missing)} is not",
                f"run {quoting.install(scheme.extra)}, or leave it out",
            )


def _names(key: str, given: list[str], allowed: tuple[str, ...], fewest: int = 0) -> Iterator[Line]:
    """Names that are not allowed, or appear twice; and too few of them."""
    if len(given) < fewest:
        yield Problem(key, "[]", f"contain at least one of {', '.join(allowed)}", "name one")
    for index, name in enumerate(given):
        if name not in allowed:
            yield Problem(key, name, f"be {' or '.join(allowed)}", "drop it")
        elif name in given[:index]:
            yield Problem(key, f"{name} twice", "name each once", "drop one")


def _cut_for_all(step: Step, stage: Train, config: Config) -> Iterator[Line]:
    """Problems of a stage that cuts one model for all tasks to the shape of a prune stage."""
    shape, start, key = step.source("shape_of"), step.source("start"), f"stages.{step.stage}"
    if not isinstance(shape, Step) or not isinstance(shape.settings, Prune):
        return
    lineages = [*shape.lineage[1:], *(start.lineage if isinstance(start, Step) else ())]
    changed = [other for other in lineages if isinstance(other, Step) and (other.cutter is other or other.of_student)]
    chained = config.target.chain and len(targets(config.target, config.budget)) > 1  # which is refused
    if not (chained and changed) and (changed or step.lineage[-1] is not TEACHER):
        yield Problem(
            f"{key}.start",
            stage.start,
            f"be the given teacher, or a stage that trains it, and so must be what {shape.stage} prunes: the "
            "shape is cut from models of the same sizes",
            f"set {key}.start=teacher",
        )


def _generator(step: Step) -> Iterator[Line]:
    """Whether the stage that replaces tokens has a language model of the same tokens."""
    source, where = step.source("generator"), f"stages.{step.stage}.generator"
    if not isinstance(source, Step) or not (step.on_corpus and source.on_corpus):
        return
    if LOGITS not in kinds_of(source.settings.terms).values():
        must = "be a stage with a term on logits, which trains a language model"
        yield Problem(where, source.stage, must, "e.g. adapt")
    elif tokenizer_of(source) is not step.tokenizer:
        must = "be a stage with the tokenizer of this one, because the tokens that it draws are the student's"
        yield Problem(where, source.stage, must, "give the student no tokenizer of its own")


def _train(step: Step, stage: Train, config: Config) -> Iterator[Line]:
    """Problems of a train stage that depend on other settings."""
    yield from _cut_for_all(step, stage, config)
    yield from _generator(step)
    key = f"stages.{step.stage}"
    facts = TermFacts(
        own_tokens=step.teacher is not None and step.tokenizer is not tokenizer_of(step.teacher),
        several_teachers=config.teacher.kind == "ensemble",
        windows=config.teacher.window is not None,
        pruned=step.pruner is not None,
        static=config.student.init == STATIC and step.of_student,
        soft_labels=config.teacher.kind == NO_TEACHER and stage.role == "teacher",
    )
    yield from terms(key, stage, facts)
    longest = config.corpus.max_length if stage.data == "corpus" else config.tasks.max_length
    if 0 < stage.batch.tokens < longest and stage.role not in CONTROLS:
        yield Problem(f"{key}.batch.tokens", stage.batch.tokens, f"be >= {longest} (max_length)", "set it higher")
