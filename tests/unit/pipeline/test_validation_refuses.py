"""Every pair of features that is refused is refused for some command, and named in the message."""

from __future__ import annotations

import pytest

from distill.config import load_config
from distill.pipeline import validation
from distill.pipeline.validation import situations
from distill.pipeline.validation.refuses import REFUSES, Refusal, required
from distill.pipeline.validation.situations import Situation

WRONG: dict[str, str] = {
    "teacher.name": "a/b",
    "teacher.names": "[a/b,c/d]",
    "teacher.weights": "[1,2]",
    "teacher.revision": "main",
    "teacher.head": "new",
    "corpus.path": "a.txt",
    "tasks.hub": "a/b",
    "tasks.path": ".",
    "transfer.files": "rows.csv",
    "transfer.masked_lm": "a/b",
    "push": "me/student",
    "teacher.seed": "3",
    "student.name": "a/b",
    "student.tokenizer": "a/b",
    "student.family": "albert",
    "student.embedding_size": "8",
    "student.layers": "[0,1]",
    "student.num_hidden_layers": "2",
    "student.hidden_size": "8",
    "student.intermediate_size": "8",
    "student.num_attention_heads": "2",
    "student.init": "random",
    "student.heads": "shared",
    "target.speedup": "2.5",
    "target.latency_ms": "2.5",
    "target.size_mib": "2.5",
    "target.retained": "97",
    "target.chain": "true",
    "target.load": "batch",
    "budget.minutes": "9",
    "stages.*.quantized": "quantize",
    "stages.*.evaluated": "evaluate",
    "stages.*.teacher": "teacher",
    "stages.*.self_trained": "recover_self_trained",
    "stages.*.quantization_aware": "true",
    "stages.*.skip_if_head": "true",
    "stages.*.best_of": "3",
    "stages.*.lr_factors": "[0.5,1]",
    "stages.*.retries": "2",
    "stages.*.folds": "3",
    "stages.*.masking.unit": "word",
    "stages.*.masking.fixed": "true",
    "stages.*.masking.smoothing": "0.7",
    "stages.*.generator": "adapt",
    "stages.*.gates.kind": "l0",
    "stages.*.uniform": "false",
    "stages.*.finalists": "3",
    "stages.*.refit": "true",
    "stages.*.replacing": "0.5",
    "stages.*.shape_of": "prune",
    "stages.*.build_student": "true",
}
"""Setting -> a value that its rows refuse."""

BOTH = ["teacher=ensemble", "teacher.names=[a/b,c/d]"]
SOFT = ["teacher=none", "tasks.train=a.csv", "tasks.soft_label=soft"]
SHARED = ["student.heads=shared", "stages.quantize.schemes=[onnxruntime]", "tasks.names=[package,corrupted]"]
BETWEEN = [
    "+stage@stages.vocabulary=vocabulary",
    "stages.vocabulary.start=gated",
    "stages.prune.start=vocabulary",
    "pipeline=[finetune_teacher,gated,vocabulary,prune,recover]",
]
GATED, TAUGHT, PRUNE = "stages.gated", "stages.finetune_teacher", "stages.prune"
COMMANDS: dict[tuple[str, str], list[str]] = {
    ("teacher.name", "OTHER_TEACHER"): ["task", *BOTH],
    ("teacher.names", "ONE_TEACHER"): ["task"],
    ("teacher.weights", "ONE_TEACHER"): ["task"],
    ("teacher.revision", "ENSEMBLE"): ["task", *BOTH],
    ("teacher.head", "WITHOUT_TEACHER"): ["prune", *SOFT],
    ("teacher.seed", "SAMPLED"): ["prune", "limit.examples=100"],
    ("corpus.path", "OTHER_CORPUS"): ["distilbert", "corpus=docstrings"],
    ("tasks.hub", "OWN_ROWS"): ["prune", "tasks.train=a.csv"],
    ("tasks.path", "NO_FILES"): ["prune"],
    ("transfer.files", "NO_SHARE"): ["distilbert", "transfer=none"],
    ("transfer.masked_lm", "NO_EDITS"): ["distilbert", "transfer.sources.edits=0"],
    ("transfer.files", "WITHOUT_TEACHER"): ["task", *SOFT],
    ("transfer.files", "NO_TRANSFER"): ["distilbert", "pipeline=[adapt,pretrain]"],
    ("push", "NO_EXPORT"): ["prune", "pipeline=[finetune_teacher]"],
    ("student.name", "BUILT_STUDENT"): ["distilbert"],
    ("student.tokenizer", "GIVEN_STUDENT"): ["task"],
    ("student.num_attention_heads", "GIVEN_EVEN"): ["task"],
    ("student.init", "GIVEN_STUDENT"): ["task"],
    ("student.layers", "GIVEN_WHOLE"): ["task"],
    ("student.num_hidden_layers", "UNCHANGED"): ["vocabulary"],
    ("student.init", "UNCHANGED"): ["vocabulary"],
    ("student.tokenizer", "UNSHAPED"): ["vocabulary"],
    ("target.speedup", "LEFT_OUT"): ["prune", "pipeline=[finetune_teacher,recover]"],
    ("target.speedup", "UNPRUNED"): ["distilbert"],
    ("student.tokenizer", "CUT_FROM_TEACHER"): ["prune"],
    ("student.num_attention_heads", "EVEN"): ["prune"],
    ("student.init", "CUT_FROM_TEACHER"): ["prune"],
    ("student.layers", "WITHOUT_LAYERS"): ["distilbert", "student.init=static"],
    ("target.speedup", "UNEVEN"): ["prune", "target.speedup=null", f"{PRUNE}.uniform=false"],
    ("student.layers", "BUILT_AND_PRUNED"): ["distil_prune_int8"],
    ("target.speedup", "SIZED"): ["prune", "target.speedup=null", "student.num_hidden_layers=2"],
    ("student.heads", "NO_TRAINING"): ["distilbert", "pipeline=[adapt,pretrain]"],
    ("student.heads", "CUT"): ["prune"],
    ("target.speedup", "WINDOWS"): ["prune", "teacher=hub", "teacher.name=a/b", "teacher.window=16"],
    ("target.load", "FIXED_SHAPE"): ["prune", "target.shape=[8,64]"],
    ("target.load", "BATCHES_OF_LATENCY"): ["prune", "target.latency_ms=5"],
    ("target.retained", "NO_SCORES"): ["prune", "pipeline=[finetune_teacher,prune,recover]"],
    ("budget.minutes", "NO_SPEEDUP"): ["prune", "target.speedup=null", "target.latency_ms=5"],
    ("budget.minutes", "ENSEMBLE"): ["auto", *BOTH],
    ("budget.minutes", "OTHERS_PRUNED"): ["distil_prune_int8"],
    ("budget.minutes", "OTHER_TARGET"): ["auto", "target.latency_ms=5"],
    ("budget.minutes", "OTHER_SCORES"): ["auto", "pipeline=[finetune_teacher,prune,recover]"],
    ("budget.minutes", "UNMEASURED"): ["auto", "stages.quantize.start=finetune_teacher"],
    ("budget.minutes", "UNLIMITED"): ["auto", "stages.quantize.max_drop=null", "stages.quantize.max_recall_drop=null"],
    ("target.chain", "CUT_FOR_ALL"): ["prune_general", "target.speedup=[2,4]"],
    ("stages.*.quantized", "EMBEDS"): [
        "embedder",
        "pipeline=[pretrain,finetune_teacher,finetune,quantize,evaluate,export_embedder]",
    ],
    ("stages.*.teacher", "SEVERAL_OR_WINDOWS"): ["task", *BOTH],
    ("stages.*.self_trained", "SELF_TRAINING"): ["auto"],
    ("stages.*.quantization_aware", "NO_STUDENT"): ["prune"],
    ("stages.*.quantization_aware", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.quantization_aware", "WITHOUT_LAYERS"): ["distilbert", "student.init=static"],
    ("stages.*.best_of", "ON_CORPUS"): ["distilbert"],
    ("stages.*.best_of", "GATED"): ["cofi"],
    ("stages.*.best_of", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.lr_factors", "ON_CORPUS"): ["distilbert"],
    ("stages.*.lr_factors", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.retries", "ON_CORPUS"): ["distilbert"],
    ("stages.*.retries", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.retries", "BUDGET"): ["auto"],
    ("stages.*.folds", "NO_TEACHER_TRAINED"): ["prune"],
    ("stages.*.folds", "ENSEMBLE"): ["task", *BOTH],
    ("stages.*.folds", "WITHOUT_TEACHER"): ["task", *SOFT],
    ("stages.*.folds", "TAUGHT"): ["prune", f"{TAUGHT}.teacher=teacher"],
    ("stages.*.folds", "UNUSED"): ["prune", "pipeline=[finetune_teacher]"],
    ("stages.*.masking.unit", "UNMASKED"): ["prune"],
    ("stages.*.masking.fixed", "UNMASKED"): ["tinybert"],
    ("stages.*.masking.smoothing", "WHOLE_WORDS"): ["distilbert", "stages.pretrain.masking.unit=span"],
    ("stages.*.gates.kind", "ON_CORPUS"): ["cofi", f"{GATED}.data=corpus"],
    ("stages.*.gates.kind", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.gates.kind", "NO_PRUNER"): ["cofi", f"{PRUNE}.start=finetune_teacher"],
    ("stages.*.gates.kind", "NOT_RECOVERING"): ["cofi", f"{GATED}.role=teacher"],
    ("stages.*.gates.kind", "CHAINED"): ["cofi", "target.speedup=[2,4]", "target.chain=true"],
    ("stages.*.gates.kind", "LAYERS"): ["cofi", "target.speedup=null", "student.layers=[0,1]"],
    ("stages.*.gates.kind", "CUT_BETWEEN"): ["cofi", *BETWEEN, "target.speedup=null", "target.size_mib=20"],
    ("stages.*.uniform", "BY_GATES"): ["cofi"],
    ("stages.*.uniform", "SHAPED"): ["prune_general"],
    ("stages.*.uniform", "BUILT_AND_PRUNED"): ["distil_prune_int8"],
    ("stages.*.uniform", "NO_ONNX"): ["prune", "stages.quantize.schemes=[torchao]"],
    ("stages.*.finalists", "BY_GATES"): ["cofi"],
    ("stages.*.refit", "BY_GATES"): ["cofi"],
    ("stages.*.masking.fixed", "PAIRED"): ["distilbert", "+term@stages.pretrain.terms.order=sentence_order"],
    ("stages.*.generator", "ENSEMBLE"): ["electra_small", *BOTH],
    ("stages.*.replacing", "ON_CORPUS"): ["distilbert"],
    ("stages.*.replacing", "SHARED"): ["distilbert", *SHARED],
    ("stages.*.replacing", "ENSEMBLE"): ["theseus", *BOTH],
    ("stages.*.replacing", "NOT_FROM_TEACHER"): ["distilbert"],
    ("student.init", "REPLACED"): ["theseus"],
    ("student.tokenizer", "REPLACED"): ["theseus"],
    ("stages.*.shape_of", "ON_TASKS"): ["prune"],
    ("stages.*.shape_of", "SHAPE_BY_GATES"): [
        "cofi",
        "+stage@stages.general=train_corpus",
        "pipeline=[finetune_teacher,gated,prune,general]",
    ],
    ("stages.*.build_student", "CUTS_FOR_ALL"): ["prune_general"],
    ("stages.*.build_student", "FROM_STUDENT"): ["task"],
    ("stages.*.build_student", "STATIC_AND_PRUNED"): ["distil_prune_int8", "student.init=static"],
    ("stages.*.build_student", "STATIC_AND_CUT"): [
        "static",
        "+stage@stages.vocabulary=vocabulary",
        "stages.vocabulary.start=finetune",
        "pipeline=[pretrain,finetune_teacher,finetune,vocabulary]",
    ],
}
"""First setting of a row and its situation -> a command in which the situation holds: the recipe and settings."""

STAGES = {
    ("stages.*.quantized", "EMBEDS"): "export_embedder",
    ("stages.*.self_trained", "SELF_TRAINING"): "evaluate",
    ("stages.*.quantization_aware", "SHARED"): "finetune",
    ("stages.*.quantization_aware", "WITHOUT_LAYERS"): "finetune",
    ("stages.*.best_of", "ON_CORPUS"): "pretrain",
    ("stages.*.best_of", "SHARED"): "finetune",
    ("stages.*.best_of", "GATED"): "gated",
    ("stages.*.lr_factors", "ON_CORPUS"): "pretrain",
    ("stages.*.lr_factors", "SHARED"): "finetune_baseline",
    ("stages.*.retries", "ON_CORPUS"): "pretrain",
    ("stages.*.retries", "SHARED"): "finetune",
    ("stages.*.folds", "NO_TEACHER_TRAINED"): "recover",
    ("stages.*.masking.unit", "UNMASKED"): "recover",
    ("stages.*.masking.fixed", "UNMASKED"): "finetune",
    ("stages.*.masking.fixed", "PAIRED"): "pretrain",
    ("stages.*.generator", "ENSEMBLE"): "pretrain",
    ("stages.*.masking.smoothing", "WHOLE_WORDS"): "pretrain",
    ("stages.*.gates.kind", "SHARED"): "finetune",
    ("stages.*.replacing", "ON_CORPUS"): "pretrain",
    ("stages.*.replacing", "SHARED"): "finetune",
    ("stages.*.replacing", "ENSEMBLE"): "replace",
    ("stages.*.replacing", "NOT_FROM_TEACHER"): "finetune",
    ("stages.*.shape_of", "ON_TASKS"): "recover",
    ("stages.*.shape_of", "SHAPE_BY_GATES"): "general",
    ("stages.*.build_student", "CUTS_FOR_ALL"): "general",
    ("stages.*.build_student", "FROM_STUDENT"): "finetune",
    ("stages.*.build_student", "STATIC_AND_PRUNED"): "pretrain",
    ("stages.*.build_student", "STATIC_AND_CUT"): "pretrain",
}
"""Row of a stage's setting -> the stage whose setting is wrong, where it is not the usual one."""
USUAL = {"gates.kind": "gated", "uniform": "prune", "finalists": "prune", "refit": "prune"}

NAMES = {id(value): name for name, value in vars(situations).items() if isinstance(value, Situation)}


def of(row: Refusal) -> tuple[str, str]:
    return row.keys[0], NAMES[id(row.where)]


def test_every_row_has_a_command() -> None:
    assert [of(row) for row in REFUSES] == list(COMMANDS)
    assert {key for row in REFUSES for key in row.keys} == WRONG.keys()


@pytest.mark.quick(32)
@pytest.mark.parametrize(
    ("row", "key"), [(row, key) for row in REFUSES for key in row.keys], ids=lambda value: str(value)[:40]
)
def test_every_row_is_reached_by_a_command(row: Refusal, key: str) -> None:
    recipe, *settings = COMMANDS[of(row)]
    name = key.removeprefix("stages.*.")
    setting = key.replace("*", STAGES.get(of(row), USUAL.get(name, "finetune_teacher")))
    given = [f"recipe={recipe}", *settings, f"{setting}={WRONG[key]}"]
    found = validation.settings(load_config(given), recipe)
    words = row.where.words.partition("{")[0]
    wanted = f"; must be {required(row.only)} {words}"
    assert any(line.startswith(f"{setting}: got ") and wanted in line for line in found), found


def test_advice_for_a_share_of_zero_works() -> None:
    given = ["recipe=distilbert", "transfer.sources.edits=0", "transfer.masked_lm=a/b"]
    (line,) = (text for text in validation.settings(load_config(given), "distilbert") if "masked_lm" in text)
    advice = line.partition("; set ")[2].split()
    found = validation.settings(load_config([*given, *advice]), "distilbert")
    assert not any("masked_lm" in text for text in found)


@pytest.mark.parametrize(
    ("recipe", "pipeline", "advice"),
    [
        ("prune", "finetune_teacher,recover", "add prune to pipeline, or set it to null"),
        ("prune", "finetune_teacher,evaluate", "add prune to pipeline, or set it to null"),  # of recover, made of prune
        ("prune", "finetune_teacher", "try recipe=prune, with its own pipeline"),
        ("quantize", "finetune_teacher,quantize,evaluate", "try recipe=prune, with its own pipeline"),
    ],
)
def test_a_pipeline_without_the_prune_stage_of_its_recipe_is_told_which_one(
    recipe: str, pipeline: str, advice: str
) -> None:
    """It was told to try the recipe that it is of."""
    given = [f"recipe={recipe}", f"pipeline=[{pipeline}]", "target.speedup=4"]
    (line,) = (text for text in validation.settings(load_config(given), recipe) if text.startswith("target.speedup"))
    assert line.endswith(f"; {advice}")
