"""Features that do not fit together, as a table: a setting that must have one value in a situation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from distill import config
from distill.config import NO_TEACHER, Config, Evaluate, Export, Prune, Quantize, Train, Vocabulary
from distill.config.loads import BATCH, SINGLE
from distill.config.plan import SHARED_HEADS, STATIC, TEACHER, Plan, Step
from distill.config.schemes import SCHEMES
from distill.data.task import chosen
from distill.errors import Problem


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
        return [name for name in SIZES if _value(self.config, name) is not None]

    @property
    def uneven(self) -> list[str]:
        """The stages that prune each layer to sizes of its own."""
        return [step.stage for step in self.plan.pruners if not step.settings.uniform]

    @property
    def cuts(self) -> list[str]:
        """The stages that change the models of single tasks."""
        return [step.stage for step in self.plan.of(Prune, Vocabulary) if step.stage in self.config.stages]

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


@dataclass(frozen=True)
class Refusal:
    """Settings that must have one value in a situation."""

    keys: tuple[str, ...]
    """The settings. In `stages.*.NAME`, the situation is asked of each stage that has the setting."""
    only: Any
    """The value that they must have."""
    where: Situation
    do: str


SIZES = tuple(f"student.{name}" for name in config.SIZES)
FORM = ("student.tokenizer", "student.family", "student.embedding_size")
_OF_LAYERS = tuple(
    f"student.{name}"
    for name in ("layers", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size", "family")
)
TARGETS = tuple(f"target.{name}" for name in config.UNITS)
_GATES, _FOLDS, _BEST = ("stages.*.gates.kind",), ("stages.*.folds",), ("stages.*.best_of",)
_TRANSFER = ("transfer.files", "transfer.masked_lm")
_FILES, _MINUTES = ("transfer.files",), ("budget.minutes",)
_HEADS, _SHAPE_OF = ("student.heads",), ("stages.*.shape_of",)

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

OUT = "leave it out"
REFUSES = (
    Refusal(("teacher.name",), None, OTHER_TEACHER, "add teacher=hub"),
    Refusal(("teacher.names",), [], ONE_TEACHER, "add teacher=ensemble"),
    Refusal(("teacher.weights",), None, ONE_TEACHER, "add teacher=ensemble"),
    Refusal(("teacher.revision",), None, ENSEMBLE, "download to folders"),
    Refusal(("teacher.head",), "given", WITHOUT_TEACHER, OUT),
    Refusal(("corpus.path",), None, OTHER_CORPUS, "add corpus=parquet or text"),
    Refusal(("tasks.hub",), None, OWN_ROWS, "leave one of them out"),
    Refusal(("tasks.path",), None, NO_FILES, "add tasks=glue"),
    Refusal(_FILES, None, NO_SHARE, "set transfer=mixed"),
    Refusal(("transfer.masked_lm",), None, NO_EDITS, "set transfer=mixed"),
    Refusal(_TRANSFER, None, WITHOUT_TEACHER, "leave it out, or set teacher.name=FOLDER"),
    Refusal(_TRANSFER, None, NO_TRANSFER, "leave it out, or set stages.STAGE.transfer=true"),
    Refusal(("push",), None, NO_EXPORT, "add one, or leave it out"),
    Refusal(("student.name",), None, BUILT_STUDENT, "try recipe=task"),
    Refusal(FORM, None, GIVEN_STUDENT, OUT),
    Refusal(("student.num_attention_heads",), None, GIVEN_EVEN, OUT),
    Refusal(("student.init",), "teacher_layers", GIVEN_STUDENT, OUT),
    Refusal(SIZES, None, GIVEN_WHOLE, OUT),
    Refusal(("student.num_hidden_layers",), None, UNCHANGED, OUT),
    Refusal(("student.init",), "teacher_layers", UNCHANGED, OUT),
    Refusal((*FORM, *SIZES), None, UNSHAPED, OUT),
    Refusal(TARGETS, None, UNPRUNED, "try recipe=prune"),
    Refusal(FORM, None, CUT_FROM_TEACHER, OUT),
    Refusal(("student.num_attention_heads",), None, EVEN, OUT),
    Refusal(("student.init",), "teacher_layers", CUT_FROM_TEACHER, OUT),
    Refusal(_OF_LAYERS, None, WITHOUT_LAYERS, OUT),
    Refusal((*TARGETS, "student.hidden_size"), None, UNEVEN, "set null"),
    Refusal(("student.layers",), None, BUILT_AND_PRUNED, "set student.num_hidden_layers instead"),
    Refusal(TARGETS, None, SIZED, "set it to null, or leave {case.sizes[0]} out"),
    Refusal(_HEADS, "own", NO_TRAINING, OUT),
    Refusal(_HEADS, "own", CUT, "leave the stage or the setting out"),
    Refusal(("target.speedup",), None, WINDOWS, "set sizes, or target.speedup=null and target.latency_ms"),
    Refusal(("target.load",), None, FIXED_SHAPE, OUT),
    Refusal(("target.load",), SINGLE, BATCHES_OF_LATENCY, OUT),
    Refusal(("target.retained",), None, NO_SCORES, "add one, or leave it out"),
    Refusal(_MINUTES, None, NO_SPEEDUP, "use recipe=auto"),
    Refusal(_MINUTES, None, ENSEMBLE, "give one teacher, or leave it out"),
    Refusal(_MINUTES, None, OTHERS_PRUNED, OUT),
    Refusal(_MINUTES, None, OTHER_TARGET, "set target.speedup alone"),
    Refusal(_MINUTES, None, OTHER_SCORES, "use recipe=auto"),
    Refusal(_MINUTES, None, UNMEASURED, "use recipe=auto"),
    Refusal(_MINUTES, None, UNLIMITED, "leave stages.*.max_drop out"),
    Refusal(("target.chain",), False, CUT_FOR_ALL, OUT),
    Refusal(("stages.*.quantized", "stages.*.evaluated"), None, EMBEDS, OUT),
    Refusal(("stages.*.teacher",), None, SEVERAL_OR_WINDOWS, OUT),
    Refusal(("stages.*.self_trained",), None, SELF_TRAINING, OUT),
    Refusal(("stages.*.quantization_aware",), False, NO_STUDENT, "set it where the student is last trained on tasks"),
    Refusal(("stages.*.quantization_aware", "stages.*.skip_if_head"), False, SHARED, OUT),
    Refusal(("stages.*.quantization_aware",), False, WITHOUT_LAYERS, OUT),
    Refusal(_BEST, 1, ON_CORPUS, OUT),
    Refusal(_BEST, 1, GATED, OUT),
    Refusal(_BEST, 1, SHARED, OUT),
    Refusal(_FOLDS, 1, NO_TEACHER_TRAINED, "set it in the stage that does"),
    Refusal(_FOLDS, 1, ENSEMBLE, "give one teacher, or leave it out"),
    Refusal(_FOLDS, 1, WITHOUT_TEACHER, OUT),
    Refusal(_FOLDS, 1, TAUGHT, "leave it out, or set stages.{case.step.stage}.teacher=null"),
    Refusal(_FOLDS, 1, UNUSED, "leave it out, or set stages.STAGE.teacher={case.step.stage}"),
    Refusal(_GATES, "none", ON_CORPUS, "train gates on tasks"),
    Refusal(_GATES, "none", SHARED, OUT),
    Refusal(_GATES, "none", NO_PRUNER, "leave it out, or set stages.PRUNE.start={case.step.stage}"),
    Refusal(_GATES, "none", NOT_RECOVERING, OUT),
    Refusal(_GATES, "none", CHAINED, "leave them out"),
    Refusal(_GATES, "none", LAYERS, "set student.num_hidden_layers instead"),
    Refusal(_GATES, "none", CUT_BETWEEN, "let that stage run first"),
    Refusal(("stages.*.uniform",), True, BY_GATES, OUT),
    Refusal(("stages.*.uniform",), True, SHAPED, OUT),
    Refusal(("stages.*.uniform",), True, BUILT_AND_PRUNED, OUT),
    Refusal(("stages.*.uniform",), True, NO_ONNX, "add a quantize stage with onnxruntime"),
    Refusal(("stages.*.finalists",), 1, BY_GATES, OUT),
    Refusal(("stages.*.refit",), False, BY_GATES, OUT),
    Refusal(_SHAPE_OF, None, ON_TASKS, "set stages.{case.step.stage}.start={case.stage.shape_of}"),
    Refusal(_SHAPE_OF, None, SHAPE_BY_GATES, OUT),
    Refusal(("stages.*.build_student",), False, CUTS_FOR_ALL, "set one of them"),
    Refusal(("stages.*.build_student",), False, FROM_STUDENT, OUT),
    Refusal(("stages.*.build_student",), False, STATIC_AND_PRUNED, "leave the prune stage out"),
    Refusal(("stages.*.build_student",), False, STATIC_AND_CUT, "leave the vocabulary stage out"),
)
"""Every pair that is refused. Of several rows about a setting, the first that holds is reported."""


def refused(settings: Config, plan: Plan) -> Iterator[Problem]:
    """A problem for each setting that has another value than it must have in its situation.

    Args:
        settings: the settings as the user wrote them, with baseline stages.
    """
    of_stages = list(
        {step.stage: Case(settings, plan, step) for step in plan.steps if step.stage in settings.stages}.values()
    )
    reported: set[str] = set()
    for row in REFUSES:
        for pattern in row.keys:
            for case in of_stages if pattern.startswith("stages.*.") else [Case(settings, plan)]:
                key = pattern if case.step is None else pattern.replace("*", case.step.stage)
                got = _value(settings, key)
                if got not in (row.only, MISSING) and key not in reported and row.where.holds(case):
                    reported.add(key)
                    words, do = (text.format(case=case) for text in (row.where.words, row.do))
                    yield Problem(key, shown(got), f"be {shown(row.only)} {words}", do)


MISSING = object()
"""Value of a setting that a kind of stage does not have."""


def _value(settings: Config, key: str) -> Any:
    def member(node: Any, name: str) -> Any:
        return node.get(name, MISSING) if isinstance(node, dict) else getattr(node, name, MISSING)

    return reduce(member, key.split("."), settings)


def shown(value: Any) -> str:
    """A value as it is written in settings."""
    if value == []:
        return "left out"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
