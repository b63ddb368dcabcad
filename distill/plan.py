"""The recipe, resolved once: its steps in the order they run, and what each of them is made from. Without torch.

A stage of the recipe is one step, or one for each of several targets. The step answers every question about a stage:
whose models it leaves, whose tokens they read, who teaches it. The names that a recipe uses are compared here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from distill.config import REFERENCES, Baseline, Config, Evaluate, Export, Prune, Stage, Target, Train, Vocabulary

UNITS = {"speedup": "x", "latency_ms": "ms", "size_mib": "MiB"}
"""Setting of `target` that a shape is searched for by -> unit in the name of the model made for it, e.g. `2x`."""

EMBEDDER = "embedder"
"""Name of the folder an embedder is exported to, where models of tasks are named by their task."""


OWN = ("kind", "role", "start", "teacher", "terms", "skip_if_mlm_head", "gates", "quantization_aware")
SHARED = tuple(field.name for field in fields(Train) if field.name not in OWN)
"""Settings of a train stage that its baseline is trained with too: all but `OWN`."""


@dataclass(frozen=True)
class Given:
    """A model that no stage makes: the teacher or the student of the settings."""

    name: str


TEACHER, STUDENT = Given("teacher"), Given("student")
GIVEN = {source.name: source for source in (TEACHER, STUDENT)}


@dataclass(frozen=True, eq=False)
class Step:
    """One stage of the recipe, for one target."""

    stage: str
    """Its name in `stages`."""
    settings: Any
    """What the recipe sets for it: a `Train`, `Prune` and so on."""
    target: str = ""
    """Label of its target, e.g. `2x`; empty where the recipe has one target or none."""
    goal: Target = field(default_factory=Target)
    """The target itself: no list, but one number."""
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    """Setting that names another stage, e.g. `start` -> the steps it stands for, or the model that was given."""
    own_tokenizer: bool = False
    """Whether the recipe's student reads in tokens of its own."""

    @property
    def kind(self) -> str:
        kind: str = self.settings.kind
        return kind

    @property
    def folder(self) -> str:
        """Its folder, below that of the run."""
        return f"{self.stage}/{self.target}" if self.target else self.stage

    def source(self, key: str) -> Source | None:
        """The one thing that a setting names; None where it names nothing."""
        return next(iter(self.sources.get(key, ())), None)

    @property
    def start(self) -> Source:
        """Where its models go on from."""
        source = self.source("start")
        assert source is not None, f"{self.stage} has no start"
        return source

    @property
    def teacher(self) -> Source | None:
        """The teacher of a train step, or the reference of an evaluate step."""
        return self.source("teacher")

    @property
    def inputs(self) -> list[Step]:
        """Every step that it is made from."""
        named = (source for sources in self.sources.values() for source in sources)
        return list(dict.fromkeys(source for source in named if isinstance(source, Step)))

    @cached_property
    def lineage(self) -> tuple[Source, ...]:
        """The step, the one it starts from, and so on; last the model that was given."""
        start = self.source("start")
        before = start.lineage if isinstance(start, Step) else () if start is None else (start,)
        return (self, *before)

    @property
    def ancestors(self) -> list[Step]:
        """The step, and every earlier one that its models come from."""
        return [source for source in self.lineage if isinstance(source, Step)]

    @property
    def of_student(self) -> bool:
        """Whether its models are students: given, built here, or made from an earlier step's."""
        built = (
            isinstance(s.settings, Vocabulary) or getattr(s.settings, "build_student", False) for s in self.ancestors
        )
        return any(built) or self.lineage[-1] is STUDENT

    @property
    def builder(self) -> Step | None:
        """The step of its lineage that builds the student of `student.*`."""
        return next((step for step in self.ancestors if getattr(step.settings, "build_student", False)), None)

    @property
    def pruner(self) -> Step | None:
        """The prune step that its models come from; itself, for one."""
        return next((step for step in self.ancestors if isinstance(step.settings, Prune)), None)

    @property
    def tokenizer(self) -> Source:
        """Whose tokenizer its models read with: the teacher's, the student's, or that of a vocabulary step."""
        cut = next((step for step in self.ancestors if isinstance(step.settings, Vocabulary)), None)
        return cut or (STUDENT if self.own_tokenizer and self.of_student else TEACHER)

    @property
    def on_corpus(self) -> bool:
        """Whether it trains on the corpus, and leaves one model; other steps leave one for each task."""
        return isinstance(self.settings, Train) and self.settings.data == "corpus"

    @property
    def embeds(self) -> bool:
        """Whether it exports an embedder: a model that learned vectors on a corpus, and no task."""
        start = self.source("start")
        return isinstance(self.settings, Export) and isinstance(start, Step) and start.on_corpus


Source = Step | Given


def tokenizer_of(source: Source) -> Source:
    """Whose tokenizer the models of a step, or a given model, read with."""
    return source.tokenizer if isinstance(source, Step) else source


@dataclass(frozen=True)
class Compared:
    """What an evaluate step compares of one target; its teacher is the same for all."""

    target: str
    student: Step
    pruned: Step | None
    """The student as it was cut."""
    quantized: Step | None
    baseline: Step | None


@dataclass(frozen=True)
class Plan:
    """All steps of a recipe, and what holds for all of them."""

    steps: tuple[Step, ...]
    targets: dict[str, Target]
    """Label -> target of each model that is pruned; one without a label where no target is a list."""
    has_target: bool
    """Whether the sizes of pruned models are searched for."""
    given_student: bool
    """Whether the student is a pretrained one that was given, and not built from the teacher."""

    def of(self, *kinds: type[Stage]) -> list[Step]:
        """The steps whose settings are of these kinds."""
        return [step for step in self.steps if isinstance(step.settings, kinds)]

    @property
    def builds(self) -> list[str]:
        """The stages that build the student of `student.*`."""
        return list(dict.fromkeys(step.stage for step in self.steps if step.builder is step))

    @property
    def taught_start(self) -> bool:
        """Whether a baseline starts from a model that a teacher helped to make."""
        earlier = (
            ancestor.settings
            for step in self.of(Train)
            if step.settings.role == "baseline"
            for ancestor in step.ancestors[1:]
        )
        return any(isinstance(s, Train) and s.role == "student" and s.teacher is not None for s in earlier)


def compared(step: Step) -> list[Compared]:
    """What an evaluate step compares, target by target."""
    sources = {key: [s for s in step.sources.get(key, ()) if isinstance(s, Step)] for key in REFERENCES}

    def same(key: str, target: str) -> Step | None:
        # What was made before the targets part is of all of them.
        return next((s for s in sources[key] if s.target in (target, "")), None)

    return [
        Compared(s.target, s, *(same(key, s.target) for key in ("pruned", "quantized", "baseline")))
        for s in sources["student"]
    ]


def targets(target: Target) -> dict[str, Target]:
    """Label -> target with one number in place of a list; one without a label where nothing is a list."""
    for name, unit in UNITS.items():
        values = getattr(target, name)
        if isinstance(values, list):
            return {f"{_number(value)}{unit}": replace(target, **{name: value}) for value in values}
    return {"": target}


def _number(value: Any) -> str:
    # What is no number is refused by `distill.check`, after the plan is made.
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def resolve(config: Config) -> Plan:
    """The plan of a config. Names that are not those of an earlier stage are left out: `distill.check` refuses them."""
    config = expanded(config)
    given = any(isinstance(s := config.stages.get(n), Train) and s.start == STUDENT.name for n in config.pipeline)
    own = given or config.student.tokenizer is not None
    labels = targets(config.target)
    resolved: dict[str, tuple[Step, ...]] = {}
    for name in dict.fromkeys(config.pipeline):
        if name in config.stages:
            resolved[name] = tuple(_steps(name, config.stages[name], labels, resolved, own))
    return Plan(
        tuple(step for steps in resolved.values() for step in steps),
        labels,
        any(getattr(config.target, name) is not None for name in UNITS),
        given,
    )


def _steps(
    name: str, stage: Stage, labels: dict[str, Target], earlier: dict[str, tuple[Step, ...]], own: bool
) -> Iterator[Step]:
    """A step for each target, of a prune stage and of all that is made from its models; an evaluate stage is one."""
    sources: dict[str, tuple[Source, ...]] = {
        key: earlier.get(other) or ((GIVEN[other],) if other in GIVEN else ())
        for key in REFERENCES
        if isinstance(other := getattr(stage, key, None), str)
    }
    several = any(len(steps) > 1 for steps in sources.values()) or isinstance(stage, Prune)
    if isinstance(stage, Evaluate) or not several:
        yield Step(name, stage, sources=sources, goal=labels.get("", Target()), own_tokenizer=own)
        return
    for label, goal in labels.items():
        mine = {key: _same_target(steps, label) for key, steps in sources.items()}
        yield Step(name, stage, label, goal, mine, own)


def _same_target(sources: tuple[Source, ...], label: str) -> tuple[Source, ...]:
    if len(sources) < 2:
        return sources
    return tuple(source for source in sources if isinstance(source, Step) and source.target == label)


def trained(config: Config, name: str) -> Train:
    """The settings that a train or a baseline stage is trained with; `baseline_of` must name a train stage.

    A baseline has the settings `SHARED` of the stage that `baseline_of` names, `build_student` among them, that stage's
    start unless its own is given, and its own terms. It has no teacher and no gates, is never skipped, and is not
    trained in simulated int8, because it is not quantized: it is scored in float alone.
    """
    stage = config.stages[name]
    if isinstance(stage, Train):
        return stage
    assert isinstance(stage, Baseline)
    student = config.stages[stage.baseline_of]
    assert isinstance(student, Train)
    shared = {setting: getattr(student, setting) for setting in SHARED}
    return Train(role="baseline", start=stage.start or student.start, terms=stage.terms, **shared)


def expanded(config: Config) -> Config:
    """The config with the settings of `trained` in place of each baseline stage that is of a train stage."""
    found = {name: stage for name, stage in config.stages.items() if isinstance(stage, Baseline)}
    baselines = [name for name, stage in found.items() if isinstance(config.stages.get(stage.baseline_of), Train)]
    return replace(config, stages=config.stages | {name: trained(config, name) for name in baselines})
