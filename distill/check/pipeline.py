"""Whether the stages of a config fit together."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from distill.check.rules import DIMENSIONS, PACKAGES, SCHEMES, nearest
from distill.config import REFERENCES, Config, Evaluate, Export, Prune, Quantize, Stage, Train, Vocabulary
from distill.plan import ancestry, cut_by, embeds, given_student, of_student


def pipeline(config: Config) -> Iterator[str]:
    if not config.pipeline:
        yield "pipeline: got []; must name at least one stage; choose a recipe, e.g. recipe=distilbert"
    if config.push is not None and not any(isinstance(config.stages.get(name), Export) for name in config.pipeline):
        yield f"push: got {config.push}; must be null in a pipeline without an export stage; add one, or leave it out"
    for index, name in enumerate(config.pipeline):
        if name not in config.stages:
            yield f"pipeline: got {name}; must be in stages; {nearest(name, list(config.stages))}"
            continue
        if name in config.pipeline[:index]:
            yield f"pipeline: got {name} twice; must name a stage once; add a stage under another name"
        stage, earlier = config.stages[name], config.pipeline[:index]
        for key in REFERENCES:
            other = getattr(stage, key, None)
            given = isinstance(stage, Train) and (other == "teacher" or (key, other) == ("start", "student"))
            if other is not None and not given and other not in earlier:
                yield (
                    f"stages.{name}.{key}: got {other}; must be an earlier stage of the pipeline; "
                    f"{nearest(str(other), earlier)}"
                )
            elif other is not None and not given:
                yield from _reference(name, key, other, config)
        if isinstance(stage, Train):
            yield from _train(name, stage, config)
        yield from _measured(name, stage)
        yield from _one_or_several(name, stage, config)


def _reference(name: str, key: str, other: str, config: Config) -> Iterator[str]:
    """The stage that is named leaves what is looked for: models, ONNX files or numbers."""
    models = ("train", "prune", "vocabulary")
    needed = {"quantized": ("quantize",), "evaluated": ("evaluate",), "pruned": ("prune",)}.get(key, models)
    stage, found = config.stages[name], config.stages[other]
    if found.kind not in needed:
        kinds = " or ".join(needed)
        yield f"stages.{name}.{key}: got {other}; must be a stage of kind {kinds}; it is of kind {found.kind}"
    elif key == "quantized" and isinstance(found, Quantize):
        made_from = stage.student if isinstance(stage, Evaluate) else getattr(stage, "start", None)
        if found.start != made_from and not (isinstance(stage, Export) and embeds(config, name)):
            yield (
                f"stages.{name}.quantized: got {other}, made from {found.start}; must be made from {made_from}, as "
                f"what stands beside it; set stages.{other}.start={made_from}"
            )
    elif isinstance(stage, Export) and isinstance(found, Evaluate) and not embeds(config, name):
        if found.student != stage.start:
            yield (
                f"stages.{name}.evaluated: got {other}, which scores {found.student}; must score {stage.start}, whose "
                "card its numbers are for; set it to null"
            )
    elif key in ("quantized", "evaluated"):
        return
    elif _data(stage) == "corpus" and _data(found) == "tasks":
        yield f"stages.{name}.{key}: got {other}; must be a stage with data corpus; it has a model for each task"
    elif isinstance(stage, Export) and _data(found) == "corpus":
        yield from _embedder(name, stage, other, config)
    elif not isinstance(stage, Train) and _data(found) == "corpus":
        yield f"stages.{name}.{key}: got {other}; must be a stage with data tasks; it has no model for a task"


def _embedder(name: str, stage: Export, start: str, config: Config) -> Iterator[str]:
    """Of what learned on a corpus a sentence embedder is exported, where it learned vectors."""
    terms = getattr(config.stages[start], "terms", {}).values()
    if not any(term.weight > 0 and term.features == "pooled" for term in terms):
        yield (
            f"stages.{name}.start: got {start}; must be a stage with data tasks, or one that learns pooled "
            "vectors of a sentence embedder; try recipe=embedder"
        )
    for key in ("quantized", "evaluated"):
        if (got := getattr(stage, key)) is not None:
            yield f"stages.{name}.{key}: got {got}; must be null where an embedder is exported; leave it out"
    if find_spec("sentence_transformers") is None:
        yield (
            f"stages.{name}.start: got {start}; needs sentence-transformers for what is exported to be tried; run "
            "pip install 'distill[embedder]', or leave the stage out"
        )


def _data(stage: Stage) -> str:
    """What a stage works on, and leaves models for."""
    return stage.data if isinstance(stage, Train) else "tasks"


def _vocabularies(name: str, stage: Train, config: Config) -> Iterator[str]:
    """On a corpus, models with tokenizers of their own are compared by what they make of the same characters."""
    if stage.data != "corpus" or not _own_tokens(name, stage, config):
        return
    for label, term in stage.terms.items():
        where = f"stages.{name}.terms.{label}"
        if term.weight > 0 and term.features in ("logits", "relations", "scores") and term.against == "teacher":
            yield (
                f"{where}.features: got {term.features}; must be hidden or pooled where student.tokenizer is set: the "
                f"tokens differ, and so do {term.features}; drop the term with ~{where}"
            )
        if term.weight > 0 and term.features == "hidden" and term.positions == "masked":
            yield (
                f"{where}.positions: got masked; must be all where student.tokenizer is set: only the student masks "
                f"its tokens; set {where}.positions=all"
            )


def _own_tokens(name: str, stage: Train, config: Config) -> bool:
    """Whether the models of a stage and their teacher read a text in other tokens."""
    if stage.teacher is None:
        return False
    own = config.student.tokenizer is not None or given_student(config)
    cut = cut_by(config, name) != cut_by(config, stage.teacher)
    return cut or (own and of_student(config, name) != of_student(config, stage.teacher))


def _inside(name: str, stage: Train, config: Config) -> Iterator[str]:
    """On tasks, what is inside of models is compared while both read the same tokens of the same text."""
    for label, term in stage.terms.items():
        where = f"stages.{name}.terms.{label}"
        if stage.data != "tasks" or term.features == "logits":
            continue
        if _own_tokens(name, stage, config) or config.teacher.window is not None:
            reason = "with teacher.window" if config.teacher.window else "where the student has a tokenizer of its own"
            yield (
                f"{where}.features: got {term.features}; must be logits on tasks {reason}; drop the term with ~{where}"
            )
        if term.features == "hidden" and term.positions != "all":
            yield f"{where}.positions: got {term.positions}; must be all on tasks; set {where}.positions=all"
        pruned = any(isinstance(config.stages.get(other), Prune) for other in ancestry(config, name))
        if pruned and (term.features == "scores" or (term.features == "relations" and term.heads is None)):
            advice = f"set {where}.heads to a divisor of any width" if term.features == "relations" else "put hidden"
            yield (
                f"{where}.features: got {term.features}; must not need all of the teacher's heads where some go; "
                f"{advice}, or drop the term with ~{where}"
            )


def _of_several(name: str, stage: Train, config: Config) -> Iterator[str]:
    """Of several teachers only probabilities have a mean: their layers differ. Each is trained alone."""
    several, window = config.teacher.kind == "ensemble", config.teacher.window is not None
    trained = stage.role == "teacher" and stage.data == "tasks"
    if trained and stage.teacher is not None and (several or window):
        yield (
            f"stages.{name}.teacher: got {stage.teacher}; must be null where teachers are trained, with "
            "teacher=ensemble or teacher.window; leave it out"
        )
    if not several:
        return
    if stage.role == "teacher" and _role(stage.start, config) not in ("teacher", None):
        yield (
            f"stages.{name}.start: got {stage.start}; must be teacher, or a stage of role teacher, with "
            "teacher=ensemble; each teacher goes on from its own"
        )
    for label, term in stage.terms.items():
        where = f"stages.{name}.terms.{label}"
        if term.weight > 0 and term.against == "teacher" and term.features != "logits":
            yield (
                f"{where}.features: got {term.features}; must be logits with teacher=ensemble, whose members' layers "
                f"differ; drop the term with ~{where}"
            )


def _role(name: str, config: Config) -> str | None:
    """Role of the models a stage leaves; None for a stage that is not there."""
    if name in ("teacher", "student"):
        return name
    stage = config.stages.get(name)
    return stage.role if isinstance(stage, Train) else "student" if isinstance(stage, Prune | Vocabulary) else None


def _one_or_several(name: str, stage: Stage, config: Config) -> Iterator[str]:
    """Where a stage leaves a model for each of several teachers, only what can take them all may name it."""
    if config.teacher.kind != "ensemble":
        return
    if isinstance(stage, Evaluate) and _role(stage.teacher, config) not in ("teacher", None):
        yield (
            f"stages.{name}.teacher: got {stage.teacher}; must be a stage of role teacher with teacher=ensemble; set "
            f"stages.{stage.teacher}.role=teacher"
        )
    if isinstance(stage, Quantize | Export) and _role(stage.start, config) == "teacher":
        yield (
            f"stages.{name}.start: got {stage.start}; must be a student's stage with teacher=ensemble: it has a "
            "model for each teacher; name another"
        )


def _measured(name: str, stage: Stage) -> Iterator[str]:
    if isinstance(stage, Prune):
        if not stage.dimensions:
            yield f"stages.{name}.dimensions: got []; must hold at least one of {', '.join(DIMENSIONS)}; name one"
        yield from _names(f"stages.{name}.dimensions", stage.dimensions, DIMENSIONS)
    if isinstance(stage, Vocabulary):
        if not stage.texts:
            yield f"stages.{name}.texts: got []; must hold tasks, corpus or both; e.g. [tasks]"
        yield from _names(f"stages.{name}.texts", stage.texts, ("tasks", "corpus"))
    if isinstance(stage, Quantize):
        yield from _names(f"stages.{name}.schemes", stage.schemes, SCHEMES)
        yield from _installed(f"stages.{name}.schemes", stage.schemes)
    if isinstance(stage, Evaluate):
        if not stage.shapes:
            yield f"stages.{name}.shapes: got []; must hold at least one [batch size, length]; e.g. [[8,128]]"
        for shape in stage.shapes:
            if len(shape) != 2 or min(shape) < 1:
                yield f"stages.{name}.shapes: got {shape}; must be [batch size, length]; e.g. [8,128]"


def _installed(key: str, schemes: list[str]) -> Iterator[str]:
    for scheme in schemes:
        if missing := [package for package in PACKAGES.get(scheme, ()) if find_spec(package) is None]:
            yield (
                f"{key}: got {scheme}; must be one whose packages are there, and {' and '.join(missing)} is not; "
                f"run pip install 'distill[{scheme}]', or leave it out"
            )


def _names(key: str, given: list[str], known: tuple[str, ...]) -> Iterator[str]:
    for index, name in enumerate(given):
        if name not in known:
            yield f"{key}: got {name}; must be {' or '.join(known)}; drop it"
        elif name in given[:index]:
            yield f"{key}: got {name} twice; must name each once; drop one"


def _on_tasks(key: str, stage: Train) -> Iterator[str]:
    """What is done to students that learn tasks alone."""
    if stage.gates.kind != "none" and stage.data != "tasks":
        yield f"{key}.gates.kind: got {stage.gates.kind}; must be none on a corpus; train gates on tasks"
    if stage.quantization_aware and (stage.data != "tasks" or stage.role == "teacher"):
        yield (
            f"{key}.quantization_aware: got true; must be false for a teacher and on a corpus; set it where the "
            "student learns its tasks last"
        )


def _train(name: str, stage: Train, config: Config) -> Iterator[str]:
    key = f"stages.{name}"
    if not any(term.weight > 0 for term in stage.terms.values()):
        yield f"{key}.terms: got none with a weight; must be at least one; e.g. +term@{key}.terms.mlm=mlm"
    for label, term in stage.terms.items():
        where = f"{key}.terms.{label}"
        if term.against == "teacher" and stage.teacher is None:
            yield f"{where}.against: got teacher; must be labels where {key}.teacher is null; set {key}.teacher=STAGE"
        if term.features != "logits" and term.against == "labels":
            yield (
                f"{where}.against: got labels; must be teacher with features {term.features}; "
                f"set {where}.against=teacher"
            )
        if term.features in ("pooled", "relations", "scores") and term.positions == "masked":
            yield f"{where}.positions: got masked; must be all with features {term.features}; set {where}.positions=all"
        if term.features in ("logits", "pooled") and term.layers != "last":
            yield f"{where}.layers: got {term.layers}; must be last with features {term.features}; leave it out"
        if term.against == "labels" and term.positions == "all" and stage.data == "corpus":
            yield f"{where}.positions: got all; must be masked with labels; only masked positions have a label"
    yield from _on_tasks(key, stage)
    yield from _inside(name, stage, config)
    yield from _vocabularies(name, stage, config)
    yield from _of_several(name, stage, config)
    longest = config.corpus.max_length if stage.data == "corpus" else config.tasks.max_length
    if 0 < stage.batch.tokens < longest:
        yield f"{key}.batch.tokens: got {stage.batch.tokens}; must be >= {longest} (max_length); set it higher"
