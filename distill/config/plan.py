"""The plan of a recipe: its steps in the order in which they run, and the inputs of each. Without torch.

A stage of the recipe becomes one step, or one step for each of several targets. A `Step` has the stage's start,
teacher, tokenizer and target, so that no other module compares stage names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from distill.config import (
    REFERENCES,
    UNITS,
    Budget,
    Config,
    Evaluate,
    Export,
    Prune,
    Quantize,
    Stage,
    Target,
    Train,
    Vocabulary,
)
from distill.config.baselines import BASELINE, SELF_TRAINED, Control, expanded, is_taught

EMBEDDER = "embedder"
"""Name of the folder that an embedder is exported to. Models of tasks are exported to folders named after the task."""

STATIC = "static"
"""Value of `student.init` of a student that has a vector for each token and no layers."""

SHARED_HEADS = "shared"
"""Value of `student.heads` with which all tasks share one encoder."""


@dataclass(frozen=True)
class Given:
    """A model that the user gives, and no stage produces: the teacher or the student of the settings."""

    name: str


TEACHER, STUDENT = Given("teacher"), Given("student")
GIVEN = {source.name: source for source in (TEACHER, STUDENT)}
OF_TEACHER = "_teacher"
"""Ending of the name of a stage that exports the teacher beside its students."""


@dataclass(frozen=True, eq=False)
class Step:
    """One stage of the recipe, for one target."""

    stage: str
    """Its name in `stages`. The cut of a baseline in a chain has the names of the prune stage and of the baseline."""
    settings: Any
    """Settings of the stage: a `Train`, `Prune` and so on."""
    target: str = ""
    """Label of its target, e.g. `2x`; empty if the recipe has one target or none."""
    goal: Target = field(default_factory=Target)
    """The target, with a number in place of a list."""
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    """Setting that names another stage, e.g. `start` -> that stage's steps, or the given model."""
    own_tokenizer: bool = False
    """Whether the recipe's student has a tokenizer of its own."""

    @property
    def kind(self) -> str:
        kind: str = self.settings.kind
        return kind

    @property
    def folder(self) -> str:
        """Its folder, relative to the run folder."""
        return f"{self.stage}/{self.target}" if self.target else self.stage

    def source(self, key: str) -> Source | None:
        """The first step of the stage that a setting names, or the given model; None if it names none."""
        return next(iter(self.sources.get(key, ())), None)

    @property
    def start(self) -> Source:
        """The step or given model whose models it starts from."""
        source = self.source("start")
        assert source is not None, f"{self.stage} has no start"
        return source

    @property
    def teacher(self) -> Source | None:
        """The teacher of a train step, or the reference of an evaluate step."""
        return self.source("teacher")

    @property
    def inputs(self) -> list[Step]:
        """Every step whose models, files or scores it uses."""
        named = (source for sources in self.sources.values() for source in sources)
        return list(dict.fromkeys(source for source in named if isinstance(source, Step)))

    @cached_property
    def lineage(self) -> tuple[Source, ...]:
        """The step, the step that it starts from, and so on; last the given model."""
        start = self.source("start")
        before = start.lineage if isinstance(start, Step) else () if start is None else (start,)
        return (self, *before)

    @property
    def ancestors(self) -> list[Step]:
        """The steps of its lineage: itself, the step that it starts from, and so on."""
        return [source for source in self.lineage if isinstance(source, Step)]

    @property
    def of_student(self) -> bool:
        """Whether its models are students: given, built, or with a smaller vocabulary. Pruning alone does not count."""
        built = (
            isinstance(s.settings, Vocabulary) or getattr(s.settings, "build_student", False) for s in self.ancestors
        )
        return any(built) or self.lineage[-1] is STUDENT

    @property
    def builder(self) -> Step | None:
        """The step of its lineage that builds the student of `student.*`."""
        return next((step for step in self.ancestors if getattr(step.settings, "build_student", False)), None)

    @property
    def cutter(self) -> Step | None:
        """The last step of its lineage that cuts models: a prune step, or a train step with `shape_of`."""
        cuts = (isinstance(step.settings, Prune) or step.source("shape_of") is not None for step in self.ancestors)
        return next((step for step, does in zip(self.ancestors, cuts, strict=True) if does), None)

    @property
    def pruner(self) -> Step | None:
        """The prune step that chose the shape of its models; itself if it is this step."""
        cutter = self.cutter
        shape = None if cutter is None else cutter.source("shape_of") or cutter
        return shape if isinstance(shape, Step) else None

    @property
    def first_pruner(self) -> Step | None:
        """As `pruner`, but the first one if the models were pruned several times, one from the other."""
        first = self.pruner
        while first is not None and isinstance(first.start, Step) and first.start.pruner is not None:
            first = first.start.pruner
        return first

    @property
    def gated(self) -> Step | None:
        """The train step whose gates this prune step prunes by: the step that it starts from. Vocabulary steps in
        between are skipped, because they keep gates."""
        start = self.source("start")
        while isinstance(start, Step) and isinstance(start.settings, Vocabulary):
            start = start.source("start")
        gated = isinstance(self.settings, Prune) and isinstance(getattr(start, "settings", None), Train)
        return start if gated and isinstance(start, Step) and start.settings.gates.trained else None

    @property
    def tokenizer(self) -> Source:
        """Owner of its models' tokenizer: the given teacher, the given student, or a vocabulary step."""
        cut = next((step for step in self.ancestors if isinstance(step.settings, Vocabulary)), None)
        return cut or (STUDENT if self.own_tokenizer and self.of_student else TEACHER)

    @property
    def on_corpus(self) -> bool:
        """Whether it trains on the corpus, and so has one model. Other steps have one for each task."""
        return isinstance(self.settings, Train) and self.settings.data == "corpus"

    @property
    def embeds(self) -> bool:
        """Whether it exports an embedder: a model that was trained on the corpus, not on tasks."""
        start = self.source("start")
        return isinstance(self.settings, Export) and isinstance(start, Step) and start.on_corpus


Source = Step | Given


def tokenizer_of(source: Source) -> Source:
    """Owner of the tokenizer of a step's models, or of a given model."""
    return source.tokenizer if isinstance(source, Step) else source


@dataclass(frozen=True)
class Compared:
    """The steps whose models an evaluate step compares for one target. The teacher is the same for all targets."""

    target: str
    student: Step
    pruned: Step | None
    """The prune step of the student, if its models are also scored before they recover."""
    quantized: Step | None
    controls: dict[Control, Step]
    """Role -> the step of a model that no teacher taught: the baseline and the self-trained one, if there are any."""


@dataclass(frozen=True)
class Plan:
    """All steps of a recipe."""

    steps: tuple[Step, ...]
    targets: dict[str, Target]
    """Label -> target with a number in place of a list. A single target has the label ""."""
    has_target: bool
    """Whether sizes of pruned models are searched for a target; if false, they are given by `student.*`."""
    given_student: bool
    """Whether the student is a given pretrained model; if false, it is built from the teacher."""

    def of(self, *kinds: type[Stage]) -> list[Step]:
        """The steps whose settings are of these kinds."""
        return [step for step in self.steps if isinstance(step.settings, kinds)]

    def only(self, labels: Sequence[str]) -> Plan:
        """The plan of these targets alone. Without any, the teacher is also evaluated, and exported, as the student."""
        evaluate = self.of(Evaluate)[0]
        reference = evaluate.teacher
        assert reference is not None
        if not labels:
            whole: dict[str, tuple[Source, ...]] = {"start": (reference,)}
            whole["quantized"] = tuple(step for step in self.of(Quantize) if step.start is reference)
            exports = {step.stage: step for step in self.of(Export)}.values()
            before = [step for step in self.steps if not step.target and step is not evaluate]
            of = {"teacher": (reference,), "student": (reference,), "quantized": whole["quantized"]}
            evaluate = replace(evaluate, sources=of)
            after = [replace(step, target="", sources=whole | {"evaluated": (evaluate,)}) for step in exports]
            return replace(self, steps=(*before, evaluate, *after), targets={})
        kept: dict[Source, Source] = {source: source for source in GIVEN.values()}
        for step in self.steps:
            if not step.target or step.target in labels:
                of = {key: tuple(kept[s] for s in sources if s in kept) for key, sources in step.sources.items()}
                if step is evaluate:  # it scores what the budget decided about
                    of["whole"] = tuple(kept[s] for s in self.of(Quantize) if s.start is reference and s in kept)
                kept[step] = replace(step, sources=of)
        steps = tuple(step for step in kept.values() if isinstance(step, Step))
        return replace(self, steps=steps, targets={label: self.targets[label] for label in labels})

    def with_teacher(self) -> Plan:
        """The plan in which the teacher is exported too, in the files that the last evaluate step scored; this plan if
        it exports the teacher already, or evaluates or exports no models of tasks."""
        evaluate = next(reversed(self.of(Evaluate)), None)
        reference = None if evaluate is None else evaluate.teacher
        exports = [step for step in self.of(Export) if not step.embeds]
        if evaluate is None or reference is None or not exports or any(step.start == reference for step in exports):
            return self
        made = evaluate.source("whole") or evaluate
        of: dict[str, tuple[Source, ...]] = {"start": (reference,), "quantized": (made,), "evaluated": (evaluate,)}
        added = replace(exports[0], stage=f"{exports[0].stage}{OF_TEACHER}", target="", sources=of)
        return replace(self, steps=(*self.steps, added))

    def chained(self) -> Plan:
        """The plan with the steps of one target after the other, from the slowest on.

        Each target prunes the model that recovered for the target before it. The models of each baseline stage form a
        chain of their own: each starts from the one of the target before it, cut to the shape of the student.
        """
        ways = (("speedup", 1), ("latency_ms", -1), ("size_mib", -1))  # of which one differs; texts are refused later
        speed = {n: [s * v for k, s in ways if type(v := vars(t)[k]) in (int, float)] for n, t in self.targets.items()}
        place = {label: number for number, label in enumerate(["", *sorted(speed, key=speed.__getitem__)])}
        after, last = self.of(Evaluate, Export), dict[str, Step]()  # by stage for baselines; "" is the student
        made: dict[Source, Source] = {source: source for source in GIVEN.values()}
        steps: list[Step] = []
        for step in sorted(self.steps, key=lambda step: len(place) if step in after else place[step.target]):
            sources = {key: tuple(made[source] for source in of) for key, of in step.sources.items()}
            if isinstance(step.settings, Prune) and "" in last:
                sources["start"] = (last[""],)
            start = sources.get("start", (None,))[0]
            baseline = isinstance(step.settings, Train) and step.settings.role in (BASELINE, SELF_TRAINED)
            taught = isinstance(step.settings, Train) and step.teacher is not None and not baseline
            if baseline and step.stage in last and isinstance(start, Step) and start.pruner is start:
                of: dict[str, tuple[Source, ...]] = {"start": (last[step.stage],), "shape_of": (start,)}
                steps.append(replace(start, stage=f"{start.stage}_{step.stage}", sources=of))
                sources["start"] = (steps[-1],)
            made[step] = added = replace(step, sources=sources)
            steps.append(added)
            if step.target and (taught or baseline):
                last["" if taught else step.stage] = added
        return replace(self, steps=tuple(steps))

    @property
    def pruners(self) -> list[Step]:
        """The prune steps that choose a shape; the others cut a baseline to the shape of its student."""
        return [step for step in self.of(Prune) if step.pruner is step]

    @property
    def builds(self) -> list[str]:
        """The stages that build the student of `student.*`."""
        return list(dict.fromkeys(step.stage for step in self.steps if step.builder is step))

    def untaught(self, embeds: bool) -> bool:
        """Whether stages train a student, and none learns from a teacher. `embeds`: as in `is_taught`."""
        trained = [step for step in self.of(Train) if step.settings.role == "student"]
        return bool(trained) and not any(is_taught(step.settings, embeds) for step in trained)

    @property
    def taught_start(self) -> bool:
        """Whether a baseline, and with it a self-trained student, starts from a student that was distilled."""
        earlier = (
            ancestor.settings
            for step in self.of(Train)
            if step.settings.role in (BASELINE, SELF_TRAINED)
            for ancestor in step.ancestors[1:]
        )
        return any(isinstance(s, Train) and s.role == "student" and s.teacher is not None for s in earlier)


CONTROLS: dict[Control, str] = {BASELINE: "baseline", SELF_TRAINED: "self_trained"}
"""Role of a model that no teacher taught -> setting of an evaluate stage that names its stage."""


def compared(step: Step) -> list[Compared]:
    """The compared steps of an evaluate step, one entry for each target."""
    sources = {key: [s for s in step.sources.get(key, ()) if isinstance(s, Step)] for key in REFERENCES}

    def same(key: str, target: str) -> Step | None:
        # A step before the prune stage has no target and belongs to all of them.
        return next((s for s in sources[key] if s.target in (target, "")), None)

    return [
        Compared(
            s.target,
            s,
            same("pruned", s.target),
            same("quantized", s.target),
            {role: made for role, key in CONTROLS.items() if (made := same(key, s.target)) is not None},
        )
        for s in sources["student"]
    ]


SLOWER = (0.5, 1.0)
"""With a budget: the targets that are made, as shares of a single `target.speedup`."""


def targets(target: Target, budget: Budget) -> dict[str, Target]:
    """Label -> target with one number in place of a list; only the target itself, with label "", if it has no list."""
    if budget.minutes is not None and isinstance(target.speedup, int | float):
        target = replace(target, speedup=[part * target.speedup for part in SLOWER if part * target.speedup > 1])
    for name, unit in UNITS.items():
        values = getattr(target, name)
        if isinstance(values, list):
            return {f"{_number(value)}{unit}": replace(target, **{name: value}) for value in values}
    return {"": target}


def _number(value: Any) -> str:
    # `distill.pipeline.validation` refuses other types than numbers, but needs the plan first.
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def resolve(config: Config) -> Plan:
    """The plan of a config. A reference that names no earlier stage is left out; `distill.pipeline.validation` refuses
    it."""
    config = expanded(config)
    given_student = any(
        isinstance(s := config.stages.get(n), Train) and s.start == STUDENT.name for n in config.pipeline
    )
    # A static student's tokenizer puts no special tokens around texts.
    own_tokenizer = given_student or config.student.tokenizer is not None or config.student.init == STATIC
    labels = targets(config.target, config.budget)
    resolved: dict[str, tuple[Step, ...]] = {}
    for name in dict.fromkeys(config.pipeline):
        if name in config.stages:
            resolved[name] = tuple(_steps(name, config.stages[name], labels, resolved, own_tokenizer))
    plan = Plan(
        tuple(step for steps in resolved.values() for step in steps),
        labels,
        any(getattr(config.target, name) is not None for name in UNITS),
        given_student,
    )
    # With a budget they are chained once it is known which of them are tried.
    return plan.chained() if config.target.chain and config.budget.minutes is None else plan


def _steps(
    name: str, stage: Stage, labels: dict[str, Target], earlier: dict[str, tuple[Step, ...]], own_tokenizer: bool
) -> Iterator[Step]:
    """The steps of a stage: one for each target if it prunes, trains gates or uses models that do, else one.

    An evaluate stage is always one step, which compares the models of all targets.
    """
    sources: dict[str, tuple[Source, ...]] = {
        key: earlier.get(other) or ((GIVEN[other],) if other in GIVEN else ())
        for key in REFERENCES
        if isinstance(other := getattr(stage, key, None), str)
    }
    of_targets = any(isinstance(source, Step) and source.target for steps in sources.values() for source in steps)
    gates = isinstance(stage, Train) and stage.gates.trained
    if isinstance(stage, Evaluate) or not (of_targets or gates or isinstance(stage, Prune)):
        yield Step(name, stage, sources=sources, goal=labels.get("", Target()), own_tokenizer=own_tokenizer)
        return
    for label, goal in labels.items():
        of_target = {key: _same_target(steps, label) for key, steps in sources.items()}
        yield Step(name, stage, label, goal, of_target, own_tokenizer)


def _same_target(sources: tuple[Source, ...], label: str) -> tuple[Source, ...]:
    if len(sources) < 2:
        return sources
    return tuple(source for source in sources if isinstance(source, Step) and source.target == label)
