"""Checks of the pipeline: its stages, their references to each other, and settings that depend on other stages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec

from distill.config import (
    DIMENSIONS,
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
from distill.config.baselines import expanded
from distill.config.feature_kinds import POOLED
from distill.config.plan import GIVEN, TEACHER, Given, Plan, Source, Step, tokenizer_of
from distill.config.schemes import SCHEMES
from distill.pipeline.validation.baseline import baselines
from distill.pipeline.validation.rules import nearest, only
from distill.pipeline.validation.terms import TermFacts, terms
from distill.runtime import quoting

STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Valid names of stages, which are names of folders in the run folder too."""


def pipeline(config: Config, plan: Plan) -> Iterator[str]:
    """All problems of the pipeline and of the stages in it."""
    yield from baselines(config)
    config = expanded(config)
    if not config.pipeline:
        yield "pipeline: got []; must name at least one stage; choose a recipe, e.g. recipe=distilbert"
    if not plan.of(Export):
        where, advice = "in a pipeline without an export stage", "add one, or leave it out"
        yield from only(None, {"push": config.push}, where, advice)
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
        yield from _several_teachers(step, config)


def _chained(plan: Plan, config: Config) -> Iterator[str]:
    """Baselines of several targets that would begin with what the student of the target before them learned."""
    if not config.target.chain or len(plan.targets) < 2 or config.budget.minutes is not None:
        return
    for stage, step in {s.stage: s for s in plan.of(Train) if s.settings.role == "baseline" and s.target}.items():
        start, pruner = step.start, step.pruner
        if pruner is not None and not (isinstance(start, Step) and start.cutter is start and start.pruner is pruner):
            yield (
                f"stages.{stage}.start: got {getattr(start, 'stage', start)}; must be {pruner.stage} with "
                "target.chain, so that baselines are pruned one from the other; set it, or target.chain=false"
            )


def _is_name(name: str) -> bool:
    fits = STAGE_NAME.fullmatch(name) is not None and len(name) <= names.LONGEST
    return fits and name not in GIVEN and not names.is_device(name)


def _stage_names(config: Config) -> Iterator[str]:
    first: dict[str, str] = {}
    for name in config.stages:
        if not _is_name(name):
            yield (
                f"stages.{name}: got {name} as the name of a stage; must be letters, digits, - and _, a letter first, "
                f"not {' or '.join(GIVEN)} nor the name of a device, and at most {names.LONGEST} bytes, because it "
                "names a folder of the run; rename the stage"
            )
        elif (other := first.setdefault(names.folded(name), name)) != name:
            yield (
                f"stages.{name}: got {name} beside {other} as names of stages; must differ in more than case, because "
                "some file systems have one folder for both; rename one of the stages"
            )
    for index, name in enumerate(config.pipeline):
        if name not in config.stages:
            yield f"pipeline: got {name}; must be in stages; {nearest(name, list(config.stages))}"
            continue
        if name in config.pipeline[:index]:
            yield f"pipeline: got {name} twice; must name a stage once; add a stage under another name"
        yield from _references(name, config, config.pipeline[:index])


def _references(name: str, config: Config, earlier: list[str]) -> Iterator[str]:
    """Settings of a stage that name another stage which does not run before it."""
    stage = config.stages[name]
    for key in REFERENCES:
        other = getattr(stage, key, None)
        allowed = ("start", "teacher"), ("teacher", "teacher"), ("start", "student")
        given = isinstance(stage, Train) and (key, other) in allowed
        if other is not None and not given and other not in earlier:
            yield (
                f"stages.{name}.{key}: got {other}; must be an earlier stage of the pipeline; "
                f"{nearest(str(other), earlier)}"
            )


REFERRED_KINDS = {"quantized": ("quantize",), "evaluated": ("evaluate",), "pruned": ("prune",), "shape_of": ("prune",)}
"""Setting -> kinds of stages that it may name. All other settings name stages that write models."""


def _reference(step: Step, key: str, source: Step) -> Iterator[str]:
    """Whether the stage that a setting names has the models, files or scores that the setting needs."""
    models = [kind for kind, settings in STAGES.items() if settings.writes_models]
    kinds, where = REFERRED_KINDS.get(key, models), f"stages.{step.stage}.{key}"
    settings, other = step.settings, source.settings
    if source.kind not in kinds:
        yield f"{where}: got {source.stage}; must be a stage of kind {' or '.join(kinds)}; it is of kind {source.kind}"
    elif key == "quantized" and isinstance(other, Quantize):
        start = settings.student if isinstance(settings, Evaluate) else getattr(settings, "start", None)
        if other.start != start and not step.embeds:
            yield (
                f"{where}: got {source.stage}, which quantizes {other.start}; must quantize {start}, the models of "
                f"this stage; set {quoting.setting(f'stages.{source.stage}.start', start)}"
            )
    elif isinstance(settings, Export) and isinstance(other, Evaluate) and not step.embeds:
        if other.student != settings.start:
            yield (
                f"{where}: got {source.stage}, which scores {other.student}; must score {settings.start}, the exported "
                "models; set it to null"
            )
    elif key not in REFERRED_KINDS:
        yield from _one_or_per_task(step, where, source)


def _one_or_per_task(step: Step, where: str, source: Step) -> Iterator[str]:
    """A stage on the corpus has one model, any other stage has one for each task."""
    if step.on_corpus and not source.on_corpus:
        yield f"{where}: got {source.stage}; must be a stage with data corpus; it has a model for each task"
    elif isinstance(step.settings, Export) and source.on_corpus:
        yield from _embedder(step, step.settings, source)
    elif not isinstance(step.settings, Train | Baseline) and source.on_corpus:
        yield f"{where}: got {source.stage}; must be a stage with data tasks; it has no model for a task"


def _embedder(step: Step, settings: Export, source: Step) -> Iterator[str]:
    """A stage on the corpus can be exported only as a sentence embedder, if it was trained on pooled vectors."""
    name, start = step.stage, source.stage
    terms_of_source = getattr(source.settings, "terms", {}).values()
    if not any(term.weight > 0 and term.features == POOLED.name for term in terms_of_source):
        yield (
            f"stages.{name}.start: got {start}; must be a stage with data tasks, or one with a term on pooled vectors "
            "of a sentence embedder; try recipe=embedder"
        )
    others = {f"stages.{name}.{key}": getattr(settings, key) for key in ("quantized", "evaluated")}
    yield from only(None, others, "where an embedder is exported", "leave it out")
    if find_spec("sentence_transformers") is None:
        yield (
            f"stages.{name}.start: got {start}; needs sentence-transformers to verify the exported embedder; run "
            f"{quoting.install('embedder')}, or leave the stage out"
        )


def _own_tokens(step: Step) -> bool:
    """Whether the models of a step have another tokenizer than their teacher."""
    return step.teacher is not None and step.tokenizer is not tokenizer_of(step.teacher)


def _several_teachers(step: Step, config: Config) -> Iterator[str]:
    """Problems of a stage with an ensemble of teachers, or with a teacher that reads windows."""
    several, window, settings = config.teacher.kind == "ensemble", config.teacher.window is not None, step.settings
    if isinstance(settings, Train):
        if settings.role == "teacher" and settings.data == "tasks" and (several or window):
            where = "where teachers are trained, with teacher=ensemble or teacher.window"
            yield from only(None, {f"stages.{step.stage}.teacher": settings.teacher}, where, "leave it out")
    if several:
        yield from _one_per_teacher(step)


def _one_per_teacher(step: Step) -> Iterator[str]:
    """References that do not fit a stage with a model for each of several teachers."""
    settings, key = step.settings, f"stages.{step.stage}"
    start, teacher = (_role(step.source(name)) for name in ("start", "teacher"))
    if isinstance(settings, Train) and settings.role == "teacher" and start not in ("teacher", None):
        yield (
            f"{key}.start: got {settings.start}; must be teacher, or a stage of role teacher, with "
            "teacher=ensemble; each teacher starts from its own model"
        )
    if isinstance(settings, Evaluate) and teacher not in ("teacher", None):
        yield (
            f"{key}.teacher: got {settings.teacher}; must be a stage of role teacher with teacher=ensemble; set "
            f"stages.{settings.teacher}.role=teacher"
        )
    if isinstance(settings, Quantize | Export) and start == "teacher":
        yield (
            f"{key}.start: got {settings.start}; must be a student's stage with teacher=ensemble: it has a "
            "model for each teacher; name another"
        )


def _role(source: Source | None) -> str | None:
    """Role of the models of a step, or of a given model; None without a source."""
    if isinstance(source, Given):
        return source.name
    settings = None if source is None else source.settings
    return settings.role if isinstance(settings, Train) else "student" if settings is not None else None


def _lists(name: str, stage: Stage) -> Iterator[str]:
    """Problems of settings that are lists of names or shapes."""
    if isinstance(stage, Prune):
        if not stage.dimensions:
            yield f"stages.{name}.dimensions: got []; must contain at least one of {', '.join(DIMENSIONS)}; name one"
        yield from _names(f"stages.{name}.dimensions", stage.dimensions, DIMENSIONS)
    if isinstance(stage, Vocabulary):
        if not stage.texts:
            yield f"stages.{name}.texts: got []; must contain tasks, corpus or both; e.g. [tasks]"
        yield from _names(f"stages.{name}.texts", stage.texts, ("tasks", "corpus"))
    if isinstance(stage, Quantize):
        yield from _names(f"stages.{name}.schemes", stage.schemes, tuple(SCHEMES))
        yield from _installed(f"stages.{name}.schemes", stage.schemes)
    if isinstance(stage, Evaluate):
        if not stage.shapes:
            yield f"stages.{name}.shapes: got []; must contain at least one [batch size, length]; e.g. [[8,128]]"
        for shape in stage.shapes:
            if len(shape) != 2 or min(shape) < 1:
                yield f"stages.{name}.shapes: got {shape}; must be [batch size, length]; e.g. [8,128]"


def _installed(key: str, schemes: list[str]) -> Iterator[str]:
    """Schemes whose packages are not installed."""
    for scheme in (SCHEMES[name] for name in schemes if name in SCHEMES):
        if missing := [name for name in scheme.packages if find_spec(name) is None]:
            yield (
                f"{key}: got {scheme.name}; must be a scheme whose packages are installed, and {' and '.join(missing)} "
                f"is not; run {quoting.install(scheme.extra)}, or leave it out"
            )


def _names(key: str, given: list[str], allowed: tuple[str, ...]) -> Iterator[str]:
    """Names that are not allowed, or appear twice."""
    for index, name in enumerate(given):
        if name not in allowed:
            yield f"{key}: got {name}; must be {' or '.join(allowed)}; drop it"
        elif name in given[:index]:
            yield f"{key}: got {name} twice; must name each once; drop one"


def _on_tasks(key: str, stage: Train) -> Iterator[str]:
    """Settings that only a student's training on tasks may have."""
    if stage.quantization_aware and (stage.data != "tasks" or stage.role == "teacher"):
        yield (
            f"{key}.quantization_aware: got true; must be false for a teacher and on a corpus; set it in the last "
            "stage that trains the student on tasks"
        )


def _cut_for_all(step: Step, stage: Train, config: Config) -> Iterator[str]:
    """Problems of a stage that cuts one model for all tasks to the shape of a prune stage."""
    shape, start, key = step.source("shape_of"), step.source("start"), f"stages.{step.stage}"
    if not isinstance(shape, Step) or not isinstance(shape.settings, Prune):
        return
    if stage.data != "corpus":
        begin = quoting.setting(f"{key}.start", shape.stage)
        yield f"{key}.shape_of: got {shape.stage} on tasks; must be null there; set {begin}"
    where = f"with {key}.shape_of"
    yield from only(False, {f"{key}.build_student": stage.build_student}, where, "set one of them")
    yield from only(True, {f"stages.{shape.stage}.uniform": shape.settings.uniform}, where, "leave it out")
    lineages = [*shape.lineage[1:], *(start.lineage if isinstance(start, Step) else ())]
    changed = [other for other in lineages if isinstance(other, Step) and (other.cutter is other or other.of_student)]
    if config.target.chain and changed:
        yield f"target.chain: got true; must be false with {key}.shape_of, whose model is not chained; leave it out"
    elif changed or step.lineage[-1] is not TEACHER:
        yield (
            f"{key}.start: got {stage.start}; must be the given teacher, or a stage that trains it, and so must be "
            f"what {shape.stage} prunes: the shape is cut from models of the same sizes; set {key}.start=teacher"
        )


def _train(step: Step, stage: Train, config: Config) -> Iterator[str]:
    """Problems of a train stage that depend on other settings."""
    yield from _cut_for_all(step, stage, config)
    key = f"stages.{step.stage}"
    facts = TermFacts(
        own_tokens=_own_tokens(step),
        several_teachers=config.teacher.kind == "ensemble",
        windows=config.teacher.window is not None,
        pruned=step.pruner is not None,
        soft_labels=config.teacher.kind == NO_TEACHER and stage.role == "teacher",
    )
    yield from terms(key, stage, facts)
    yield from _on_tasks(key, stage)
    longest = config.corpus.max_length if stage.data == "corpus" else config.tasks.max_length
    if 0 < stage.batch.tokens < longest and stage.role != "baseline":
        yield f"{key}.batch.tokens: got {stage.batch.tokens}; must be >= {longest} (max_length); set it higher"
