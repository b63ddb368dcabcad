"""Features that do not fit together, as a table: a setting that must have one value in a situation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distill import config
from distill.config import Config
from distill.config.loads import SINGLE
from distill.config.plan import Plan
from distill.errors import Problem
from distill.pipeline.validation import situations as when
from distill.pipeline.validation.situations import MISSING, SIZES, Case, Situation, value


@dataclass(frozen=True)
class Refusal:
    """Settings that must have one value in a situation."""

    keys: tuple[str, ...]
    """The settings. In `stages.*.NAME`, the situation is asked of each stage that has the setting."""
    only: Any
    """The value that they must have."""
    where: Situation
    do: str


FORM = ("student.tokenizer", "student.family", "student.embedding_size")
_OF_LAYERS = tuple(
    f"student.{name}"
    for name in ("layers", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size", "family")
)
TARGETS = tuple(f"target.{name}" for name in config.UNITS)
_GATES, _FOLDS, _BEST = ("stages.*.gates.kind",), ("stages.*.folds",), ("stages.*.best_of",)
_RATES, _RETRIES, _HEADS = ("stages.*.lr_factors",), ("stages.*.retries",), ("student.heads",)
_FILES, _MINUTES, _SHAPE_OF = ("transfer.files",), ("budget.minutes",), ("stages.*.shape_of",)
_TRANSFER, _REPLACING = ("transfer.files", "transfer.masked_lm"), ("stages.*.replacing",)


OUT = "leave it out"
REFUSES = (
    Refusal(("teacher.name",), None, when.OTHER_TEACHER, "add teacher=hub"),
    Refusal(("teacher.names",), [], when.ONE_TEACHER, "add teacher=ensemble"),
    Refusal(("teacher.weights",), None, when.ONE_TEACHER, "add teacher=ensemble"),
    Refusal(("teacher.revision",), None, when.ENSEMBLE, "download to folders"),
    Refusal(("teacher.head",), "given", when.WITHOUT_TEACHER, OUT),
    Refusal(("teacher.seed",), None, when.SAMPLED, "leave one of them out"),
    Refusal(("corpus.path",), None, when.OTHER_CORPUS, "add corpus=parquet or text"),
    Refusal(("tasks.hub",), None, when.OWN_ROWS, "leave one of them out"),
    Refusal(("tasks.path",), None, when.NO_FILES, "add tasks=glue"),
    Refusal(_FILES, None, when.NO_SHARE, "set transfer=mixed"),
    Refusal(("transfer.masked_lm",), None, when.NO_EDITS, "set transfer=mixed transfer.sources.edits=1"),
    Refusal(_TRANSFER, None, when.WITHOUT_TEACHER, "leave it out, or set teacher.name=FOLDER"),
    Refusal(_TRANSFER, None, when.NO_TRANSFER, "leave it out, or set stages.STAGE.transfer=true"),
    Refusal(("push",), None, when.NO_EXPORT, "add one, or leave it out"),
    Refusal(("student.name",), None, when.BUILT_STUDENT, "try recipe=task"),
    Refusal(FORM, None, when.GIVEN_STUDENT, OUT),
    Refusal(("student.num_attention_heads",), None, when.GIVEN_EVEN, OUT),
    Refusal(("student.init",), "teacher_layers", when.GIVEN_STUDENT, OUT),
    Refusal(SIZES, None, when.GIVEN_WHOLE, OUT),
    Refusal(("student.num_hidden_layers",), None, when.UNCHANGED, OUT),
    Refusal(("student.init",), "teacher_layers", when.UNCHANGED, OUT),
    Refusal((*FORM, *SIZES), None, when.UNSHAPED, OUT),
    Refusal(TARGETS, None, when.LEFT_OUT, "add {case.left_out[0]} to pipeline, or set it to null"),
    Refusal(TARGETS, None, when.UNPRUNED, "try recipe=prune, with its own pipeline"),
    Refusal(FORM, None, when.CUT_FROM_TEACHER, OUT),
    Refusal(("student.num_attention_heads",), None, when.EVEN, OUT),
    Refusal(("student.init",), "teacher_layers", when.CUT_FROM_TEACHER, OUT),
    Refusal(_OF_LAYERS, None, when.WITHOUT_LAYERS, OUT),
    Refusal((*TARGETS, "student.hidden_size"), None, when.UNEVEN, "set null"),
    Refusal(("student.layers",), None, when.BUILT_AND_PRUNED, "set student.num_hidden_layers instead"),
    Refusal(TARGETS, None, when.SIZED, "set it to null, or leave {case.sizes[0]} out"),
    Refusal(_HEADS, "own", when.NO_TRAINING, OUT),
    Refusal(_HEADS, "own", when.CUT, "leave the stage or the setting out"),
    Refusal(("target.speedup",), None, when.WINDOWS, "set sizes, or target.speedup=null and target.latency_ms"),
    Refusal(("target.load",), None, when.FIXED_SHAPE, OUT),
    Refusal(("target.load",), SINGLE, when.BATCHES_OF_LATENCY, OUT),
    Refusal(("target.retained",), None, when.NO_SCORES, "add one, or leave it out"),
    Refusal(_MINUTES, None, when.NO_SPEEDUP, "use recipe=auto"),
    Refusal(_MINUTES, None, when.ENSEMBLE, "give one teacher, or leave it out"),
    Refusal(_MINUTES, None, when.OTHERS_PRUNED, OUT),
    Refusal(_MINUTES, None, when.OTHER_TARGET, "set target.speedup alone"),
    Refusal(_MINUTES, None, when.OTHER_SCORES, "use recipe=auto"),
    Refusal(_MINUTES, None, when.UNMEASURED, "use recipe=auto"),
    Refusal(_MINUTES, None, when.UNLIMITED, "leave stages.*.max_drop out"),
    Refusal(("target.chain",), False, when.CUT_FOR_ALL, OUT),
    Refusal(("stages.*.quantized", "stages.*.evaluated"), None, when.EMBEDS, OUT),
    Refusal(("stages.*.teacher",), None, when.SEVERAL_OR_WINDOWS, OUT),
    Refusal(("stages.*.self_trained",), None, when.SELF_TRAINING, OUT),
    Refusal(
        ("stages.*.quantization_aware",), False, when.NO_STUDENT, "set it where students are last trained on tasks"
    ),
    Refusal(("stages.*.quantization_aware", "stages.*.skip_if_head"), False, when.SHARED, OUT),
    Refusal(("stages.*.quantization_aware",), False, when.WITHOUT_LAYERS, OUT),
    Refusal(_BEST, 1, when.ON_CORPUS, OUT),
    Refusal(_BEST, 1, when.GATED, OUT),
    Refusal(_BEST, 1, when.SHARED, OUT),
    Refusal(_RATES, [], when.ON_CORPUS, OUT),
    Refusal(_RATES, [], when.SHARED, OUT),
    Refusal(_RETRIES, 0, when.ON_CORPUS, OUT),
    Refusal(_RETRIES, 0, when.SHARED, OUT),
    Refusal(_RETRIES, 0, when.BUDGET, OUT),
    Refusal(_FOLDS, 1, when.NO_TEACHER_TRAINED, "set it in the stage that does"),
    Refusal(_FOLDS, 1, when.ENSEMBLE, "give one teacher, or leave it out"),
    Refusal(_FOLDS, 1, when.WITHOUT_TEACHER, OUT),
    Refusal(_FOLDS, 1, when.TAUGHT, "leave it out, or set stages.{case.step.stage}.teacher=null"),
    Refusal(_FOLDS, 1, when.UNUSED, "leave it out, or set stages.STAGE.teacher={case.step.stage}"),
    Refusal(("stages.*.masking.unit",), "token", when.UNMASKED, OUT),
    Refusal(("stages.*.masking.fixed",), False, when.UNMASKED, OUT),
    Refusal(("stages.*.masking.smoothing",), 0.0, when.WHOLE_WORDS, "leave one of them out"),
    Refusal(_GATES, "none", when.ON_CORPUS, "train gates on tasks"),
    Refusal(_GATES, "none", when.SHARED, OUT),
    Refusal(_GATES, "none", when.NO_PRUNER, "leave it out, or set stages.PRUNE.start={case.step.stage}"),
    Refusal(_GATES, "none", when.NOT_RECOVERING, OUT),
    Refusal(_GATES, "none", when.CHAINED, "leave them out"),
    Refusal(_GATES, "none", when.LAYERS, "set student.num_hidden_layers instead"),
    Refusal(_GATES, "none", when.CUT_BETWEEN, "let that stage run first"),
    Refusal(("stages.*.uniform",), True, when.BY_GATES, OUT),
    Refusal(("stages.*.uniform",), True, when.SHAPED, OUT),
    Refusal(("stages.*.uniform",), True, when.BUILT_AND_PRUNED, OUT),
    Refusal(("stages.*.uniform",), True, when.NO_ONNX, "add a quantize stage with onnxruntime"),
    Refusal(("stages.*.finalists",), 1, when.BY_GATES, OUT),
    Refusal(("stages.*.refit",), False, when.BY_GATES, OUT),
    Refusal(("stages.*.masking.fixed",), False, when.PAIRED, "leave one of them out"),
    Refusal(("stages.*.generator",), None, when.ENSEMBLE, "give one teacher"),
    Refusal(_REPLACING, None, when.ON_CORPUS, "replace layers on tasks"),
    Refusal(_REPLACING, None, when.SHARED, OUT),
    Refusal(_REPLACING, None, when.ENSEMBLE, "give one teacher, or leave it out"),
    Refusal(_REPLACING, None, when.NOT_FROM_TEACHER, "set build_student=true there, and one such stage as both"),
    Refusal(("student.init",), "teacher_layers", when.REPLACED, OUT),
    Refusal((*FORM, "student.hidden_size"), None, when.REPLACED, OUT),
    Refusal(_SHAPE_OF, None, when.ON_TASKS, "set stages.{case.step.stage}.start={case.stage.shape_of}"),
    Refusal(_SHAPE_OF, None, when.SHAPE_BY_GATES, OUT),
    Refusal(("stages.*.build_student",), False, when.CUTS_FOR_ALL, "set one of them"),
    Refusal(("stages.*.build_student",), False, when.FROM_STUDENT, OUT),
    Refusal(("stages.*.build_student",), False, when.STATIC_AND_PRUNED, "leave the prune stage out"),
    Refusal(("stages.*.build_student",), False, when.STATIC_AND_CUT, "leave the vocabulary stage out"),
)
"""Every pair that is refused. Of several rows about a setting, the first that holds is reported."""


def refused(settings: Config, plan: Plan) -> Iterator[Problem]:
    """A problem for each setting that has another value than it must have in its situation. `settings`: as the user
    wrote them, with baseline stages."""
    of_stages = list(
        {step.stage: Case(settings, plan, step) for step in plan.steps if step.stage in settings.stages}.values()
    )
    reported: set[str] = set()
    for row in REFUSES:
        for pattern in row.keys:
            for case in of_stages if pattern.startswith("stages.*.") else [Case(settings, plan)]:
                key = pattern if case.step is None else pattern.replace("*", case.step.stage)
                got = value(settings, key)
                if got not in (row.only, MISSING) and key not in reported and row.where.holds(case):
                    reported.add(key)
                    words, do = (text.format(case=case) for text in (row.where.words, row.do))
                    yield Problem(key, shown(got), f"be {required(row.only)} {words}", do)


def required(value: Any) -> str:
    """A value that a setting must have, after `must be`."""
    return "left out" if value in (None, []) else shown(value)


def shown(value: Any) -> str:
    """A value as it is written in settings."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
