"""Situations in which a setting must have one value: the words for a message, and whether one holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from distill import config
from distill.config import NO_TEACHER, Config, Evaluate, Export, Prune, Quantize, Train, Vocabulary
from distill.config.loads import BATCH
from distill.config.masking_units import TOKEN
from distill.config.plan import SHARED_HEADS, STATIC, TEACHER, Plan, Step
from distill.config.schemes import SCHEMES
from distill.data.task import chosen
from distill.pipeline.validation.terms import masks_tokens


@dataclass(frozen=True)
class Case:
    """A run and, for the setting of a stage, a step of that stage."""

    config: Config
    plan: Plan
    step: Any = None

    @property
    def stage(self) -> Any:
        """Settings of the stage, whose kind has the setting of the row."""
        return self.step.settings

    @property
    def trains_students(self) -> bool:
        """Whether the stage trains students on tasks."""
        return isinstance(self.stage, Train) and self.stage.data == "tasks" and self.stage.role != "teacher"

    @property
    def trains_teachers(self) -> bool:
        """Whether the stage trains teachers on tasks."""
        return isinstance(self.stage, Train) and self.stage.data == "tasks" and self.stage.role == "teacher"

    @property
    def masks(self) -> bool:
        """Whether tokens are masked in the stage, or in a control that has its settings."""
        return any(
            step.on_corpus and masks_tokens(step.settings)
            for step in self.plan.of(Train)
            if self.step.stage in (step.stage, getattr(self.config.stages.get(step.stage), "baseline_of", None))
        )

    def without(self, source: str) -> bool:
        """Whether a source of rows without labels has no share of them."""
        return self.config.transfer.times == 0 or not self.config.transfer.sources.get(source)

    @property
    def pruners(self) -> list[Step]:
        """The prune steps that prune by the gates of the step."""
        return [other for other in self.plan.of(Prune) if other.gated is self.step]

    @property
    def shapes(self) -> list[str]:
        """The stages that cut a model for all tasks to the shape of the step."""
        return [other.stage for other in self.plan.of(Train) if other.source("shape_of") is self.step]

    @property
    def sizes(self) -> list[str]:
        """The settings of sizes that are set."""
        return [name for name in SIZES if value(self.config, name) is not None]

    @property
    def uneven(self) -> list[str]:
        """The stages that prune each layer to sizes of its own."""
        return [step.stage for step in self.plan.pruners if not step.settings.uniform]

    @property
    def cuts(self) -> list[str]:
        """The stages that change the models of single tasks."""
        return [step.stage for step in self.plan.of(Prune, Vocabulary) if step.stage in self.config.stages]

    @property
    def left_out(self) -> list[str]:
        """The prune stages that `pipeline` leaves out, although a stage in it starts from their models, or from models
        that are made of them."""
        stages, found = self.config.stages, [*self.config.pipeline]
        for name in found:  # which grows
            named = (getattr(stages.get(name), key, None) for key in config.REFERENCES)
            found += [other for other in named if other in stages and other not in found]
        absent = (name for name in found if name not in self.config.pipeline)
        return [name for name in absent if isinstance(stages[name], Prune)]

    @property
    def unmeasured(self) -> list[str]:
        """The stages whose models a budget decides by, but which no stage quantizes."""
        quantized = {step.settings.start for step in self.plan.of(Quantize)}
        return [start for start in self.decisive if start not in quantized]

    @property
    def unlimited(self) -> bool:
        """Whether quantized models that a budget decides by are not scored."""
        stages = [step.settings for step in self.plan.of(Quantize)]
        return any(
            all(stage.max_drop is None and stage.max_recall_drop is None for stage in stages if stage.start == start)
            for start in self.decisive
        )

    @property
    def decisive(self) -> list[str]:
        """The stages of the teacher and the student that a budget decides by."""
        return [start for step in self.plan.of(Evaluate) for start in (step.settings.teacher, step.settings.student)]


@dataclass(frozen=True)
class Situation:
    words: str
    """The situation in a message, after the value that the setting must have there."""
    holds: Callable[[Case], Any]


SIZES = tuple(f"student.{name}" for name in config.SIZES)
"""Settings of the sizes of a student."""

OTHER_TEACHER = Situation(
    "with teacher={case.config.teacher.kind}", lambda case: case.config.teacher.kind not in ("hub", NO_TEACHER)
)
ONE_TEACHER = Situation("with teacher={case.config.teacher.kind}", lambda case: case.config.teacher.kind != "ensemble")
ENSEMBLE = Situation("with teacher=ensemble", lambda case: case.config.teacher.kind == "ensemble")
WITHOUT_TEACHER = Situation("with teacher=none", lambda case: case.config.teacher.kind == NO_TEACHER)
OTHER_CORPUS = Situation(
    "with corpus={case.config.corpus.kind}", lambda case: case.config.corpus.kind not in ("parquet", "text")
)
OWN_ROWS = Situation("with tasks.train", lambda case: case.config.tasks.train is not None)
NO_FILES = Situation(
    "where rows are not from files", lambda case: not any(task.train for task in chosen(case.config.tasks).values())
)
NO_SHARE = Situation("without rows from files", lambda case: case.without("files"))
NO_EDITS = Situation("without rows that are edits", lambda case: case.without("edits"))
NO_TRANSFER = Situation(
    "in a recipe that distils no task",
    lambda case: not any(getattr(case.config.stages.get(name), "transfer", False) for name in case.config.pipeline),
)
WINDOWS = Situation(
    "with teacher.window, by which the time of the teacher depends on its texts",
    lambda case: case.config.teacher.window is not None and case.plan.of(Prune),
)
OTHERS_PRUNED = Situation(
    "where other models than the teacher's are pruned",
    lambda case: not all(step.builder is None and step.lineage[-1] is TEACHER for step in case.plan.pruners),
)
NO_SCORES = Situation("in a pipeline without an evaluate stage", lambda case: not case.plan.of(Evaluate))
NO_EXPORT = Situation("in a pipeline without an export stage", lambda case: not case.plan.of(Export))
BUILT_STUDENT = Situation("in a recipe that builds its student", lambda case: not case.plan.given_student)
GIVEN_STUDENT = Situation("where student.name gives the student", lambda case: case.plan.given_student)
GIVEN_EVEN = Situation("where student.name gives the student", lambda case: case.plan.given_student and not case.uneven)
GIVEN_WHOLE = Situation(
    "where student.name gives the student", lambda case: case.plan.given_student and not case.plan.of(Prune)
)
UNCHANGED = Situation(
    "where no stage builds or prunes a student",
    lambda case: not (case.plan.builds or case.plan.of(Prune) or case.plan.given_student),
)
UNSHAPED = Situation(
    "where no stage builds or prunes a student",
    lambda case: case.plan.of(Vocabulary) and UNCHANGED.holds(case),
)
LEFT_OUT = Situation(
    "where pipeline leaves out {case.left_out[0]}, the prune stage of the recipe",
    lambda case: not case.plan.of(Prune) and case.left_out,
)
UNPRUNED = Situation("in a recipe without a prune stage", lambda case: not case.plan.of(Prune))
CUT_FROM_TEACHER = Situation(
    "in a recipe that prunes the teacher",
    lambda case: any(s.builder is None and s.lineage[-1] is TEACHER for s in case.plan.pruners),
)
WITHOUT_LAYERS = Situation(
    "with student.init=static, which has no layers", lambda case: case.config.student.init == STATIC
)
EVEN = Situation("in a recipe that prunes the teacher", lambda case: CUT_FROM_TEACHER.holds(case) and not case.uneven)
BUILT_AND_PRUNED = Situation(
    "in a recipe that builds a student and prunes it",
    lambda case: any(step.builder is not None for step in case.plan.of(Prune)),
)
STATIC_AND_PRUNED = Situation(
    "with student.init=static and a prune stage, because such a student has no layers to prune",
    lambda case: case.config.student.init == STATIC and case.plan.of(Prune),
)
STATIC_AND_CUT = Situation(
    "with student.init=static and a vocabulary stage, because the tokenizer of such a student is made of the given one",
    lambda case: case.config.student.init == STATIC and case.plan.of(Vocabulary),
)
UNEVEN = Situation(
    "where stages.{case.uneven[0]}.uniform is false, which prunes heads and FFN channels to given sizes",
    lambda case: case.uneven and not BUILT_AND_PRUNED.holds(case),
)
SIZED = Situation(
    "where {case.sizes[0]} sets the size",
    lambda case: case.plan.of(Prune) and case.sizes and not BUILT_AND_PRUNED.holds(case),
)
NO_TRAINING = Situation(
    "in a recipe that does not train a student on tasks",
    lambda case: not any(Case(case.config, case.plan, step).trains_students for step in case.plan.steps),
)
CUT = Situation("where {case.cuts[0]} changes the encoder of each task", lambda case: case.cuts)
NO_SPEEDUP = Situation(
    "in a recipe without target.speedup, whose models are made one by one",
    lambda case: not case.plan.of(Prune) or case.config.target.speedup is None,
)
OTHER_TARGET = Situation(
    "with target.latency_ms or target.size_mib",
    lambda case: case.config.target.latency_ms is not None or case.config.target.size_mib is not None,
)
FIXED_SHAPE = Situation("with target.shape, which says it", lambda case: isinstance(case.config.target.shape, list))
BATCHES_OF_LATENCY = Situation(
    "with target.latency_ms, which is the time of one text",
    lambda case: case.config.target.load == BATCH and case.config.target.latency_ms is not None,
)
OTHER_SCORES = Situation("in a pipeline that has not one evaluate stage", lambda case: len(case.plan.of(Evaluate)) != 1)
UNMEASURED = Situation(
    "in a pipeline without a quantize stage of {case.unmeasured[0]}, whose score decides", lambda case: case.unmeasured
)
UNLIMITED = Situation("where max_drop is null and nothing is scored", lambda case: case.unlimited)
CUT_FOR_ALL = Situation(
    "with shape_of and several targets, whose models are not chained",
    lambda case: (
        len(case.plan.targets) > 1 and any(step.source("shape_of") is not None for step in case.plan.of(Train))
    ),
)
EMBEDS = Situation("where an embedder is exported", lambda case: case.step.embeds)
ON_CORPUS = Situation("on the corpus, which has no rows of tasks", lambda case: case.stage.data == "corpus")
ON_TASKS = Situation("on tasks", lambda case: case.stage.data == "tasks")
NO_STUDENT = Situation("for a teacher and on a corpus", lambda case: not case.trains_students)
NO_TEACHER_TRAINED = Situation("in a stage that fine-tunes no teacher on tasks", lambda case: not case.trains_teachers)
TAUGHT = Situation("in a stage with a teacher of its own", lambda case: case.stage.teacher is not None)
UNUSED = Situation(
    "where no stage has {case.step.stage} as its teacher",
    lambda case: not any(other.teacher is case.step for other in case.plan.of(Train)),
)
SEVERAL_OR_WINDOWS = Situation(
    "where teachers are trained, with teacher=ensemble or teacher.window",
    lambda case: case.trains_teachers and (ENSEMBLE.holds(case) or case.config.teacher.window is not None),
)
UNMASKED = Situation("in a stage that masks no tokens", lambda case: not case.masks)
WHOLE_WORDS = Situation(
    "with stages.{case.step.stage}.masking.unit={case.stage.masking.unit}, where words are drawn alike",
    lambda case: case.stage.masking.unit != TOKEN.name,
)
PAIRED = Situation(
    "with a term on {case.stage.segments}, whose pairs are drawn anew in each epoch",
    lambda case: getattr(case.stage, "segments", None) is not None,
)
GATED = Situation(
    "in a stage with gates, which are open and closed at its end alone", lambda case: case.stage.gates.trained
)
SHARED = Situation(
    "with student.heads=shared, where one encoder is trained on all tasks",
    lambda case: case.config.student.heads == SHARED_HEADS and case.trains_students,
)
NO_PRUNER = Situation("in a stage that no prune stage starts from", lambda case: not case.pruners)
NOT_RECOVERING = Situation(
    "in a stage that trains a teacher or builds a student",
    lambda case: case.stage.role == "teacher" or case.stage.build_student,
)
SELF_TRAINING = Situation(
    "with budget.minutes, which is spent on students", lambda case: case.config.budget.minutes is not None
)
BUDGET = Situation("with budget.minutes, whose estimates have no further trainings", SELF_TRAINING.holds)
SAMPLED = Situation(
    "with limit.examples, which draws training rows by the seed of the run, so that runs would not share a teacher",
    lambda case: case.config.limit.examples is not None and not case.config.limit.smoke,
)
CHAINED = Situation(
    "with target.chain or budget.minutes, where models are not pruned by gates",
    lambda case: case.config.target.chain or case.config.budget.minutes is not None,
)
LAYERS = Situation(
    "with student.layers, because gates choose the layers",
    lambda case: case.config.student.layers is not None and case.stage.gates.kind == "l0",
)
CUT_BETWEEN = Situation(
    "before a vocabulary stage with target.size_mib",
    lambda case: (
        case.config.target.size_mib is not None and any(other.start is not case.step for other in case.pruners)
    ),
)
NOT_FROM_TEACHER = Situation(
    "in a stage that does not build its student from its own teacher, one that a stage on tasks made",
    lambda case: (
        not (
            case.stage.build_student
            and isinstance(case.step.start, Step)
            and case.step.start is case.step.teacher
            and not case.step.start.on_corpus
        )
    ),
)
REPLACED = Situation(
    "where layers are replaced, so that the student's fit between the teacher's",
    lambda case: any(step.settings.replacing is not None for step in case.plan.of(Train)),
)
BY_GATES = Situation("where gates are trained", lambda case: case.step.gated is not None)
SHAPE_BY_GATES = Situation(
    "where {case.stage.shape_of} prunes by gates",
    lambda case: getattr(case.step.source("shape_of"), "gated", None) is not None,
)
SHAPED = Situation("with stages.{case.shapes[0]}.shape_of", lambda case: case.shapes)
CUTS_FOR_ALL = Situation(
    "with stages.{case.step.stage}.shape_of", lambda case: case.step.source("shape_of") is not None
)
FROM_STUDENT = Situation("where a stage starts from student", lambda case: case.plan.given_student)
NO_ONNX = Situation(
    "without a stage that makes ONNX files, the only ones that can have layers of different widths",
    lambda case: not any(SCHEMES[n].onnx for s in case.plan.of(Quantize) for n in s.settings.schemes if n in SCHEMES),
)


MISSING = object()
"""Value of a setting that a kind of stage does not have."""


def value(settings: Config, key: str) -> Any:
    def member(node: Any, name: str) -> Any:
        return node.get(name, MISSING) if isinstance(node, dict) else getattr(node, name, MISSING)

    return reduce(member, key.split("."), settings)
