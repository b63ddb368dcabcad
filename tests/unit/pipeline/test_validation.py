"""Static checks: every rule refuses and allows some value, and all problems are reported at once."""

from __future__ import annotations

import copy
import math
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from distill.config import (
    STAGES,
    Config,
    Prune,
    Task,
    Tasks,
    Term,
    Train,
    Vocabulary,
    folder,
    instantiate,
    load_config,
    recipes,
)
from distill.config.allowed import ruled
from distill.errors import ConfigError
from distill.pipeline import validation
from distill.pipeline.validation import hydra, rules

NAN, INFINITY = math.nan, math.inf
GLUE, DOCSTRINGS = (load_config([f"tasks={name}"]).tasks for name in ("glue", "docstrings"))

EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "temperature": ([0.0, -1.0, NAN, INFINITY, "warm"], [0.1, 2.0]),
    "seed": ([-1], [0, 7]),
    "threads": ([0, -2], [1, None]),
    "precision": (["fp8", 16], ["auto", "bf16", "fp16", "tf32", "fp32"]),
    "tracker": (["tensorbord"], [None]),
    "log": (["loud"], ["text", "json", "quiet"]),
    "push": (["student", "me/", "me/a b", "me/a/b", "/x", 3], ["me/student", "me/a-b_c.d", None]),
    "device": (["gpu"], ["auto", "cpu", "cuda"]),
    "teacher.kind": (["hubb"], ["embedded", "random"]),
    "teacher.window": ([0, 15], [16, None]),
    "teacher.seed": ([-1], [0, None]),
    "student.num_hidden_layers": ([0, -1], [1, None]),
    "student.hidden_size": ([0, -1], [1, None]),
    "student.intermediate_size": ([0], [1, None]),
    "student.embedding_size": ([0], [1, None]),
    "student.num_attention_heads": ([0], [1, None]),
    "teacher.head": (["old", 1], ["given", "new"]),
    "student.init": (["teacher"], ["teacher_layers", "random", "static"]),
    "student.heads": (["one"], ["own", "shared"]),
    "target.speedup": ([1.0, 0, "fast", INFINITY], [1.5]),
    "target.latency_ms": ([0, -1.0], [5.0]),
    "target.retained": ([0, 100], [97]),
    "target.load": (["texts"], ["batch", "single"]),
    "budget.minutes": ([0, -1.0], [60]),
    "cache.max_gib": ([-1.0], [0, 0.5, 100]),
    "report.hourly_rate": ([0, -1.0], [0.4]),
    "target.size_mib": ([0, -1.0], [20.0]),
    "corpus.kind": (["csv"], ["docstrings"]),
    "corpus.max_length": ([15, 0], [16, 512]),
    "tasks.max_length": ([7], [8, 512]),
    "transfer.times": ([-1, INFINITY], [0, 2.5]),
    "transfer.passes": ([-1.0], [0, 2.5]),
    "transfer.most": ([0], [1]),
    "transfer.sources.pairs": ([-1.0], [0, 2.0]),
    "limit.examples": ([0, -1], [1, None]),
    "stages.pretrain.role": (["pupil", "baseline"], ["teacher", "student"]),
    "stages.pretrain.data": (["glue"], ["corpus", "tasks"]),
    "stages.pretrain.temperature": ([0.0, -2.0], [1.0]),
    "stages.pretrain.epochs": ([0.0, -1.0], [0.5]),
    "stages.pretrain.steps": ([0], [1, None]),
    "stages.finetune.min_steps": ([-1], [0]),
    "stages.finetune.best_of": ([0, -1], [1, 5]),
    "stages.finetune.lr_factors": ([0, -1.0], [0.5, 2]),
    "stages.finetune_baseline.lr_factors": ([0, INFINITY], [0.5, 2]),
    "stages.finetune.retries": ([-1], [0, 2]),
    "stages.finetune_teacher.folds": ([0, -1], [1, 5]),
    "stages.finetune.replacing": ([-0.1, 1.5], [0, 0.3, 1, None]),
    "stages.pretrain.clip": ([0.0], [0.1]),
    "stages.pretrain.dropout": ([-0.1, 0.91, 1.0], [0.0, 0.9, None]),
    "stages.pretrain.checkpoint_seconds": ([0.0], [0.5]),
    "stages.pretrain.batch.tokens": ([0, -1], [1, 4096]),
    "stages.pretrain.batch.examples": ([0], [1, None]),
    "stages.pretrain.batch.device_tokens": ([0], [1, None]),
    "stages.pretrain.masking.probability": ([0.0, 1.0, NAN], [0.15]),
    "stages.pretrain.masking.smoothing": ([-0.1, 1.1], [0.0, 1.0]),
    "stages.pretrain.masking.unit": (["words"], ["token", "word"]),
    "stages.pretrain.base_lr": ([0.0, -1e-4, INFINITY], [1e-4]),
    "stages.finetune.scale_with_compression.epochs": ([-1.0, 2.5], [0, 1.0]),
    "stages.pretrain.terms.soft_targets.loss.temperature": ([0.0, -1.0, "warm"], [0.5, 4.0]),
    "stages.pretrain.optimizer.lr": ([0.0, -1e-4, "fast", [1e-4]], [1e-4]),
    "stages.pretrain.schedule.warmup": ([-0.1, 1.1, "long"], [0, 1.0]),
    "stages.pretrain.terms.mlm.weight": ([-1.0, INFINITY], [0.0, 5.0]),
    "stages.pretrain.terms.cosine.features": (["attention"], ["hidden", "pooled"]),
    "stages.pretrain.terms.cosine.teacher_layer": ([-1], [0, None]),
    "stages.pretrain.terms.cosine.heads": ([0], [12, None]),
    "stages.pretrain.terms.mlm.compare_with": (["student"], ["labels", "teacher"]),
    "stages.pretrain.terms.mlm.positions": (["some"], ["masked", "all"]),
    "stages.prune.examples": ([0, 31], [32]),
    "stages.prune.retrain_steps": ([-1], [0, 20]),
    "stages.prune.finalists": ([0], [1, 10]),
    "stages.prune.trial_steps": ([0], [1, 100]),
    "stages.quantize.max_drop": ([-1], [None, 0, 0.5]),
    "stages.quantize.max_recall_drop": ([-1], [None, 0, 0.5]),
    "stages.adapt.gates.kind": (["hard"], ["none", "l0", "movement"]),
    "stages.adapt.gates.lr": ([0], [0.01]),
    "stages.vocabulary.min_count": ([0], [1]),
    "stages.vocabulary.tokens": ([0], [1]),
    "stages.evaluate.repeats": ([0], [1]),
}
"""A setting with a rule -> values that the rule refuses, values that it allows."""


@pytest.fixture(scope="module")
def _good() -> Config:
    return load_config(["recipe=distilbert"])


@pytest.fixture
def config(_good: Config) -> Config:
    changed = copy.deepcopy(_good)
    # In no pipeline: only their rules are read.
    changed.stages["prune"] = Prune(
        start="finetune_teacher", importance={"_target_": "distill.compression.pruning.importance.magnitude"}
    )
    changed.stages["vocabulary"] = Vocabulary(start="finetune_teacher")
    return changed


def put(config: Config, key: str, value: Any) -> None:
    *path, last = key.split(".")
    node: Any = config
    for name in path:
        node = node[name] if isinstance(node, dict) else getattr(node, name)
    if isinstance(node, dict):
        node[last] = value
    else:
        setattr(node, last, value)


def errors(config: Config, **settings: Any) -> list[str]:
    """Problems after changes; `__` in a name stands for a dot."""
    for name, value in settings.items():
        put(config, name.replace("__", "."), value)
    return validation.settings(config, "distilbert")


def test_a_valid_config_has_no_problems(config: Config) -> None:
    assert errors(config) == []


def test_every_rule_has_examples_and_every_example_a_rule(config: Config) -> None:
    config.transfer.sources["pairs"] = 1.0
    for name in ("finetune", "finetune_baseline"):
        put(config, f"stages.{name}.lr_factors", [1.0])
    rules_of = {key: rule for key, _, rule in ruled(config)}
    assert {type(stage) for stage in config.stages.values()} == {*STAGES.values()}
    assert {*rules_of.values()} == {rules_of[key] for key in EXAMPLES}
    assert all(bad and good for bad, good in EXAMPLES.values())


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, (bad, _) in EXAMPLES.items() for value in bad])
def test_a_rule_refuses_invalid_values(key: str, value: Any, config: Config) -> None:
    put(config, key, value)
    (rule,) = (rule for other, _, rule in ruled(config) if other == key)
    assert f"{key}: got {value}; must be {rule.words}; {rule.advice}" in validation.settings(config, "distilbert")


@pytest.mark.quick(19)
@pytest.mark.parametrize("key", EXAMPLES)
def test_a_rule_allows_valid_values(key: str, config: Config) -> None:
    for value in EXAMPLES[key][1]:
        put(config, key, value)
        (rule,) = (rule for other, _, rule in ruled(config) if other == key)
        problems = validation.settings(config, "distilbert")
        assert not [e for e in problems if e.startswith(key) and f"must be {rule.words};" in e]


def test_all_problems_are_reported_at_once(config: Config) -> None:
    problems = errors(
        config,
        temperature=-1.0,
        seed=-2,
        tasks__names=["cola"],
        student__layers=[2, 1],
        stages__finetune__start="pretrian",
        stages__pretrain__terms__mlm__loss__temperature=2.0,
    )
    assert problems == [
        "temperature: got -1.0; must be > 0; 2 is usual",
        "seed: got -2; must be >= 0; 0 is the default",
        "tasks.names: got cola; must be one of package, corrupted, body, order, overlap; choose from package, "
        "corrupted, body, order, overlap",
        "stages.finetune.start: got pretrian; must be an earlier stage of the pipeline; did you mean pretrain?",
        "student.layers: got [2, 1]; must be distinct ascending layer numbers from 0; e.g. [0,2,5]",
        "stages.pretrain.terms.mlm.loss.temperature: got 2.0; must be a parameter of distill.losses.mlm; leave it out",
    ]


def test_settings_are_checked_without_a_recipe_too() -> None:
    assert validation.settings(load_config([]), None) == [
        f"recipe: got nothing; must be one of {', '.join(recipes())}; "
        "start with recipe=auto teacher.name=MODEL tasks.train=FILE, or see python -m distill recipes"
    ]
    first, second = validation.settings(load_config(["temperature=-1.0"]), None)
    assert first.startswith("recipe: got nothing")
    assert second == "temperature: got -1.0; must be > 0; 2 is usual"


def test_an_invalid_temperature_of_the_run_is_reported_once(config: Config) -> None:
    for stage in config.stages.values():
        if isinstance(stage, Train):
            stage.temperature = -1.0
    assert len(errors(config, temperature=-1.0)) == 1


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("temprature", "did you mean temperature?"),
        ("student.layer", "did you mean layers?"),
        ("stages.pretrain.terms.mlm.weigth", "did you mean weight?"),
        ("stages.export.zip", "choose from kind, start, quantized, evaluated"),
    ],
)
def test_an_unknown_setting_is_refused(key: str, near: str, config: Config) -> None:
    put(config, key, 3)
    assert validation.settings(config, "distilbert") == [f"{key}: got 3; must be a setting that exists; {near}"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pipeline": []}, "pipeline: got []; must name at least one stage"),
        ({"pipeline": ["adapt", "adapted"]}, "pipeline: got adapted; must be in stages; did you mean adapt?"),
        ({"pipeline": ["adapt", "adapt"]}, "pipeline: got adapt twice; must name a stage once"),
        ({"pipeline": ["pretrain"]}, "stages.pretrain.start: got adapt; must be an earlier stage of the pipeline"),
        ({"stages__pretrain__start": "finetune"}, "stages.pretrain.start: got finetune; must be an earlier stage"),
        ({"stages__pretrain__teacher": "pretrain"}, "stages.pretrain.teacher: got pretrain; must be an earlier stage"),
        ({"stages__quantize__start": "teacher"}, "stages.quantize.start: got teacher; must be an earlier stage"),
        ({"stages__evaluate__student": "finetne"}, "must be an earlier stage of the pipeline; did you mean finetune"),
        ({"stages__evaluate__baseline": "export"}, "stages.evaluate.baseline: got export; must be an earlier stage"),
        ({"stages__evaluate__quantized": "finetune"}, "quantized: got finetune; must be a stage of kind quantize; "),
        ({"stages__export__evaluated": "quantize"}, "evaluated: got quantize; must be a stage of kind evaluate; "),
        (
            {"stages__export__start": "evaluate"},
            "start: got evaluate; must be a stage of kind train or baseline or prune or voc",
        ),
        ({"stages__evaluate__teacher": "adapt"}, "stages.evaluate.teacher: got adapt; must be a stage with data tasks"),
        ({"stages__quantize__start": "pretrain"}, "start: got pretrain; must be a stage with data tasks; "),
        ({"stages__finetune__teacher": "adapt"}, "teacher: got adapt; must be a stage with data tasks, or terms must"),
        ({"stages__quantize__schemes": ["int4"]}, "stages.quantize.schemes: got int4; must be bitsandbytes or bitsa"),
        ({"stages__quantize__schemes": ["torchao"] * 2}, "stages.quantize.schemes: got torchao twice; must name"),
        (
            {"stages__quantize__start": "finetune_baseline"},
            "stages.export.quantized: got quantize, which quantizes fine",
        ),
        (
            {"stages__evaluate__student": "finetune_baseline"},
            "stages.evaluate.quantized: got quantize, which quantizes f",
        ),
        (
            {"stages__export__start": "finetune_baseline", "stages__export__quantized": None},
            "stages.export.evaluated: got evaluate, which scores finetune; must score finetune_baseline, ",
        ),
        ({"stages__evaluate__shapes": [[8, 128], [8]]}, "stages.evaluate.shapes: got [8]; must be [batch size, leng"),
        ({"stages__evaluate__shapes": [[0, 128]]}, "stages.evaluate.shapes: got [0, 128]; must be [batch size, leng"),
    ],
    ids=str,
)
def test_stages_that_do_not_fit_together(settings: dict[str, Any], expected: str, config: Config) -> None:
    assert [e for e in errors(config, **settings) if expected in e]


def test_a_language_model_does_not_start_from_a_model_for_each_task(config: Config) -> None:
    again = copy.deepcopy(config.stages["adapt"])
    assert isinstance(again, Train)
    again.start = "finetune"
    config.stages["again"], config.pipeline = again, [*config.pipeline, "again"]
    assert errors(config) == [
        "stages.again.start: got finetune; must be a stage with data corpus; it has a model for each task"
    ]


@pytest.mark.parametrize(
    ("stage", "changes", "expected"),
    [
        ("pretrain", {}, ""),
        ("pretrain", {"terms.mlm": Term(0.0, loss={"_target_": "distill.losses.mlm"})}, ""),
        ("adapt", {"terms.mlm.weight": 0.0}, "stages.adapt.terms: got none with a weight; must be at least one; "),
        (
            "finetune",
            {"teacher": None, "terms.vectors.weight": 0.0},
            "terms.soft_targets.compare_with: got teacher; must be labels where ",
        ),
        ("pretrain", {"terms.mlm.positions": "all"}, "terms.mlm.positions: got all; must be masked with labels; "),
        ("pretrain", {"terms.soft_targets.positions": "all"}, ""),
        ("finetune", {"terms.supervised.positions": "all"}, ""),
        ("pretrain", {"batch.tokens": 127}, "stages.pretrain.batch.tokens: got 127; must be >= 128 (max_length); "),
        ("pretrain", {"batch.tokens": 128}, ""),
    ],
    ids=str,
)
def test_terms_that_do_not_fit_their_stage(stage: str, changes: dict[str, Any], expected: str, config: Config) -> None:
    for key, value in changes.items():
        put(config, f"stages.{stage}.{key}", value)
    problems = validation.settings(config, "distilbert")
    assert len(problems) == bool(expected)
    assert expected in "".join(problems)


PRETRAIN = "stages.pretrain"


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("terms.mlm.loss", "os.system"),
        ("terms.mlm.loss", "torch.load"),
        ("terms.mlm.loss", "distillery.losses.mlm"),
        ("terms.mlm.loss", "distill.losses.ml"),
        ("terms.mlm.loss", "distill.losses.logits.mlm"),
        ("terms.mlm.loss", "distill.runtime.storage.atomic.remove"),
        ("terms.mlm.loss", "torch.optim.AdamW"),
        ("terms.mlm.loss", 3),
        ("terms.mlm.loss", ["distill.losses.mlm"]),
        ("terms.mlm.loss", None),
        ("optimizer", "shutil.rmtree"),
        ("optimizer", "torch.optim.LBFGS"),
        ("optimizer", "torch.optim.swa_utils.AveragedModel"),
        ("optimizer", "bitsandbytes.optim.GlobalOptimManager"),
        ("schedule", "transformers.AutoModel.from_pretrained"),
        ("schedule", "distill.losses.mlm"),
    ],
)
def test_a_function_of_another_place_is_refused(place: str, target: Any, config: Config) -> None:
    put(config, f"{PRETRAIN}.{place}._target_", target)
    known = instantiate.PLACES[place.rpartition(".")[2]]
    problems = validation.settings(config, "distilbert")
    assert problems == [f"{PRETRAIN}.{place}._target_: got {target}; must be one of {', '.join(known)}; choose one"]


def test_an_importance_is_refused_as_a_loss(config: Config) -> None:
    (line,) = errors(config, stages__prune__importance___target_="distill.losses.mlm")
    assert line.startswith(
        "stages.prune.importance._target_: got distill.losses.mlm; must be one of distill.compression"
    )


@pytest.mark.parametrize("value", [None, "torch.optim.AdamW", [{"_target_": "torch.optim.AdamW"}]])
def test_a_value_without_a_function_is_refused_where_one_belongs(value: Any, config: Config) -> None:
    (line,) = errors(config, stages__pretrain__optimizer=value)
    assert line.startswith(f"stages.pretrain.optimizer._target_: got {value}; must be one of torch.optim.AdamW, ")


CALL = {"_target_": "os.getcwd"}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("optimizer.betas", [CALL, 0.9], "optimizer.betas.0._target_"),
        ("optimizer.betas", [[0.9, CALL], 0.9], "optimizer.betas.0.1._target_"),
        ("optimizer.eps", CALL, "optimizer.eps._target_"),
        ("optimizer._args_", [CALL], "optimizer._args_"),
        ("optimizer._convert_", "all", "optimizer._convert_"),
        ("schedule._recursive_", True, "schedule._recursive_"),
        ("terms.mlm.loss._anything_", 1, "terms.mlm.loss._anything_"),
        ("epochs", CALL, "epochs._target_"),
        ("batch.examples", [{"x": [CALL]}], "batch.examples.0.x.0._target_"),
        ("terms.mlm.loss.inner", CALL, "terms.mlm.loss.inner._target_"),
        ("terms.mlm.layers", [[0, CALL]], "terms.mlm.layers.0.1._target_"),
        ("terms.mlm.layers", [CALL], "terms.mlm.layers.0._target_"),
    ],
)
def test_a_reserved_key_of_hydra_is_refused_at_any_depth(key: str, value: Any, named: str, config: Config) -> None:
    put(config, f"{PRETRAIN}.{key}", value)
    got = value if key == named else "os.getcwd"
    line = f"{PRETRAIN}.{named}: got {got}; must not be set: no function belongs here; leave it out"
    assert line in validation.settings(config, "distilbert")


@pytest.mark.parametrize("key", ["teacher.weights", "target.speedup", "stages"])
def test_a_reserved_key_of_hydra_is_refused_outside_of_stages_too(key: str, config: Config) -> None:
    put(config, f"{key}{'.more' if key == 'stages' else ''}", CALL)
    problems = [
        line for line in validation.settings(config, "distilbert") if "_target_: got os.getcwd; must not be set" in line
    ]
    assert [line.startswith(key) for line in problems] == [True]


def test_arguments_of_a_function_must_be_plain_values(config: Config) -> None:
    key = "stages.pretrain.optimizer"
    assert errors(config, stages__pretrain__optimizer__eps={"a": 1}, stages__pretrain__optimizer___partial_=False) == [
        f"{key}._partial_: got False; must be true: its tensors are passed later; leave it out",
        f"{key}.eps: got {{'a': 1}}; must be a number, a string, or a list of these; set one",
    ]


@pytest.mark.parametrize("place", ["optimizer", "schedule"])
def test_every_allowed_function_is_accepted(place: str, config: Config) -> None:
    settings = {"optimizer": {"lr": 0.1, "weight_decay": 0.1}, "schedule": {"warmup": 0.1}}[place]
    for target in instantiate.PLACES[place]:
        put(config, f"stages.pretrain.{place}", {"_target_": target, **settings})
        assert validation.settings(config, "distilbert") == [], target


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("stages.pretrain.terms.soft_targets.loss.temprature", 2, "distill.losses.soft_targets; did you mean temperat"),
        ("stages.pretrain.terms.cosine.loss.margin", 0.1, "distill.losses.cosine; leave it out"),
        ("stages.pretrain.optimizer.beta", 0.9, "torch.optim.AdamW; did you mean betas?"),
        ("stages.pretrain.schedule.warmups", 0.1, "distill.training.schedule.linear; did you mean warmup?"),
    ],
)
def test_an_unknown_parameter_of_a_function_is_refused(key: str, value: float, expected: str, config: Config) -> None:
    put(config, key, value)
    (line,) = validation.settings(config, "distilbert")
    assert line.startswith(f"{key}: got {value}; must be a parameter of {expected}")


def test_a_missing_parameter_of_a_function_is_refused(config: Config) -> None:
    term = config.stages["pretrain"].terms["soft_targets"]  # type: ignore[attr-defined]
    term.loss = {"_target_": "distill.losses.soft_targets", "_partial_": True}
    key = "stages.pretrain.terms.soft_targets.loss.temperature"
    assert errors(config) == [f"{key}: got nothing; must be set for distill.losses.soft_targets; add +{key}=VALUE"]


def test_parameters_of_an_optimizer_are_those_of_its_class(config: Config) -> None:
    target = {"_target_": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9}
    assert errors(config, stages__pretrain__optimizer=target) == []
    assert len(errors(config, stages__pretrain__optimizer={**target, "params": 1, "defaults": 1})) == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"teacher__kind": "hub"}, "teacher.name: got nothing; must be a hub name or a folder; "),
        ({"teacher__kind": "hub", "teacher__name": "some/model"}, ""),
        ({"corpus__kind": "parquet"}, "corpus.path: got nothing; must be a file or folder; set corpus.path=PATH"),
        ({"corpus__kind": "text", "corpus__path": "no/such"}, "corpus.path: got no/such; must be a file or folder th"),
        ({"corpus__kind": "text", "corpus__path": __file__}, ""),
        ({"corpus__kind": "hub"}, "corpus.name: got nothing; must name hub data sets; "),
        (
            {"tasks": replace(GLUE, path="no/such")},
            "tasks.path: got no/such; must be a folder of task files, e.g. in the ",
        ),
        ({"tasks": replace(GLUE, path=".")}, ""),
        ({"tasks": GLUE}, ""),
        ({"tasks": replace(GLUE, names=["sst"])}, "tasks.names: got sst; must be one of cola, sst2, "),
        ({"tasks": replace(GLUE, names=["wnli"])}, "tasks.each.*.in_headline: got false for every task; must be true "),
        ({"tasks": replace(GLUE, names=["wnli", "rte"])}, ""),
        ({"tasks": Tasks(train="a.csv", in_headline=False)}, "tasks.in_headline: got false for every task; must be "),
        ({"tasks": Tasks(train="a.csv", kind="squad")}, "tasks.kind: got squad; must be classification or "),
        ({"tasks": Tasks(train="a.csv", threshold=1.0)}, "tasks.threshold: got 1; must be between 0 and 1; "),
        ({"tasks": Tasks(train="a.csv", metrics=["bleu"])}, "tasks.metrics: got bleu; must be of accuracy, "),
        ({"tasks": Tasks(train="a.csv", metrics=[])}, "tasks.metrics: got []; must be one or more of accuracy, "),
        ({"tasks": Tasks(train="a.csv", labels=["yes", "yes"])}, "tasks.labels: got ['yes', 'yes']; must be two "),
        ({"tasks": Tasks(train="a.csv", range=[5, 0])}, "tasks.range: got [5, 0]; must be [lowest, highest]; "),
        ({"tasks": Tasks(train="a.csv", label=["a"])}, "tasks.label: got ['a']; must be one column, or for "),
        ({"tasks": Tasks(train="a.csv", label=3)}, "tasks.label: got 3; must be the name of a column; "),
        ({"tasks": Tasks(train="a.csv", text_pair="b")}, "tasks.text: got nothing; must be set where "),
        ({"tasks": replace(DOCSTRINGS, validation="b.csv")}, "tasks.train: got nothing; must be set with tasks.valid"),
        ({"tasks": Tasks()}, "tasks.train: got nothing; must be a file with labelled rows; "),
        ({"tasks": replace(GLUE, in_headline=False)}, "tasks.in_headline: got false; must be set for one "),
        ({"tasks": replace(DOCSTRINGS, docstrings=True)}, "tasks.docstrings: got true; must be set for one task of "),
        ({"tasks": replace(GLUE, rows={"train": 9})}, "tasks.rows: got {'train': 9}; must be set for one task of "),
        ({"tasks": Tasks(each={"a": Task()})}, "tasks.each.a.train: got nothing; must be a file with labelled rows; "),
        ({"tasks__names": ["order", "overlap"]}, ""),
        ({"student__layers": []}, "student.layers: got []; must be distinct ascending"),
        ({"student__layers": [0, 0]}, "student.layers: got [0, 0]; must be distinct ascending"),
        ({"student__layers": [-1, 2]}, "student.layers: got [-1, 2]; must be distinct ascending"),
        ({"student__layers": [1, 3]}, ""),
    ],
    ids=str,
)
def test_sources_and_student(settings: dict[str, Any], expected: str, config: Config) -> None:
    problems = errors(config, **settings)
    assert len(problems) == bool(expected)
    assert "".join(problems).startswith(expected)


@pytest.mark.parametrize(
    "key", ["teacher.name", "teacher.names", "student.name", "student.tokenizer", "transfer.masked_lm"]
)
def test_a_path_of_a_model_is_a_folder(key: str, config: Config) -> None:
    for name, wrong in (("a/b", False), ("./missing", True), ("/missing/model", True), (".", False)):
        put(config, key, [name] if key == "teacher.names" else name)
        line = f"{key}: got {name}; must be a folder that exists, or a name on the hub; check the path"
        assert (line in validation.settings(config, "distilbert")) is wrong


def test_a_scheme_whose_packages_are_not_installed_is_refused(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["distill.pipeline.validation.pipeline"]
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "nncf" else name)
    assert errors(config, stages__quantize__schemes=["openvino", "torchao", "onnxruntime"]) == [
        "stages.quantize.schemes: got openvino; must be a scheme whose packages are installed, and nncf is not; run "
        "pip install -c constraints.txt -e '.[openvino]' in a checkout of distill, or leave it out"
    ]


@pytest.fixture
def embedder() -> Config:
    return load_config(["recipe=embedder", "pipeline=[pretrain,export_embedder]"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {"terms.pooled.weight": 0.0},
            ["stages.export_embedder.start: got pretrain; must be a stage with data tasks,"],
        ),
    ],
)
def test_only_a_stage_trained_on_pooled_vectors_is_exported_as_an_embedder(
    embedder: Config, changes: dict[str, Any], expected: list[str]
) -> None:
    for key, value in changes.items():
        put(embedder, f"stages.pretrain.{key}", value)
    problems = validation.settings(embedder, "embedder")
    assert [line[: len(start)] for line, start in zip(problems, expected, strict=True)] == expected


def test_an_embedder_is_verified_by_its_own_library(embedder: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["distill.pipeline.validation.pipeline"], "find_spec", lambda name: None)
    assert any("-e '.[embedder]'" in line for line in validation.settings(embedder, "embedder"))


def test_flatten_gives_dotted_keys() -> None:
    flat = rules.flatten({"a": {"b": [1, 2]}, "c": Term(weight=2.0, loss={"_target_": "x"})})
    assert flat == {
        "a.b": [1, 2],
        "c.weight": 2.0,
        "c.features": "logits",
        "c.layers": "last",
        "c.teacher_layer": None,
        "c.heads": None,
        "c.compare_with": "teacher",
        "c.positions": "masked",
        "c.loss._target_": "x",
    }
    composed = OmegaConf.structured(Config())
    assert set(rules.flatten(Config())) == set(rules.flatten(OmegaConf.to_container(composed)))


def test_nearest_compares_the_whole_name_then_its_last_part() -> None:
    names = ["stages.pretrain.temperature", "temperature", "seed"]
    assert rules.nearest("temprature", names) == "did you mean temperature?"
    assert rules.nearest("x.temprature_", ["a.b.c.d.e.temperature", "a.b.c.d.e.f.temperature", "g"]) == (
        "did you mean a.b.c.d.e.temperature, a.b.c.d.e.f.temperature?"
    )
    assert rules.nearest("zzz", names) == "choose from stages.pretrain.temperature, temperature, seed"
    assert rules.nearest("zzz", []) == "leave it out"
    many = rules.nearest("zzz", [str(number) for number in range(rules.LISTED + 3)])
    assert many.endswith(f", {rules.LISTED - 1} and 3 others")


@pytest.fixture(scope="module")
def shipped() -> DictConfig:
    with initialize_config_dir(str(folder("conf").resolve()), version_base="1.3"):
        settings = OmegaConf.to_container(compose("config", return_hydra_config=True).hydra)
    return OmegaConf.create(settings)  # type: ignore[call-overload, no-any-return]


def called(settings: DictConfig, **changes: Any) -> list[str]:
    """Problems of Hydra's own settings after changes; `__` in a name stands for a dot."""
    settings = copy.deepcopy(settings)
    for key, value in changes.items():
        OmegaConf.update(settings, key.replace("__", "."), value, merge=False)
    return list(hydra.hydra_settings(settings))


def test_settings_that_hydra_ships_are_accepted(shipped: DictConfig) -> None:
    assert called(shipped) == []
    for launcher, sweeper in product(hydra.CALLED["launcher"], hydra.CALLED["sweeper"]):
        sampler = {"_target_": "optuna.samplers.GridSampler", "_partial_": True, "seed": 1}
        assert [] == called(
            shipped,
            launcher={"_target_": launcher, "submitit_folder": "${hydra.sweep.dir}/jobs/%j", "setup": None},
            sweeper={
                "_target_": sweeper,
                "sampler": sampler,
                "params": {"seed": "range(0,3)"},
                "direction": "maximize",
            },
        )


PRINT = {"_target_": "builtins.print"}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("callbacks", {"x": PRINT}, "hydra.callbacks: got {'x': {'_target_': 'builtins.print'}}; must be empty"),
        ("callbacks", "${hydra.help}", "hydra.callbacks: got ${hydra.help}; must be empty"),
        ("output_subdir", ".", "hydra.output_subdir: got .; must be left out: Hydra replaces config.yaml there"),
        ("run__dir", "/tmp/x", "hydra.run.dir: got /tmp/x; must be left out, as a run writes to its folder `output`"),
        ("run__dir", "a/${now:%Y}", "hydra.run.dir: got a/${now:%Y}; must be left out, as a run writes to its folder"),
        ("sweep__dir", "${oc.env:HOME}", "hydra.sweep.dir: got ${oc.env:HOME}; must be a folder below the current"),
        ("sweep__dir", "a/${now:..}/${now:..}/x", "hydra.sweep.dir: got a/${now:..}/${now:..}/x; must be a folder"),
        (
            "sweep__dir",
            "mine",
            "hydra.sweep.dir: got mine; must be below outputs, as Hydra replaces multirun.yaml there",
        ),
        ("sweep__dir", "outputs", "hydra.sweep.dir: got outputs; must be below outputs"),
        ("sweep__dir", "${now:.}./x", "hydra.sweep.dir: got ${now:.}./x; must be a folder below the current one"),
        ("launcher__submitit_folder", "/tmp/x", "hydra.launcher.submitit_folder: got /tmp/x; must be a folder below"),
        ("sweeper__storage", "sqlite:////tmp/x", "hydra.sweeper.storage: got sqlite:////tmp/x; must be empty"),
        ("sweeper__params", {"seed": "${oc.env:X}"}, "hydra.sweeper.params.seed: got ${oc.env:X}; must be a value, or"),
        ("sweep__subdir", "~/x", "hydra.sweep.subdir: got ~/x; must be a folder below the current one"),
        ("sweep__dir", "C:\\x", "hydra.sweep.dir: got C:\\x; must be a folder below the current one"),
        ("job__env_set", {"LD_PRELOAD": "x.so"}, "hydra.job.env_set: got {'LD_PRELOAD': 'x.so'}; must be empty"),
        (
            "launcher",
            PRINT,
            "hydra.launcher._target_: got builtins.print; must be one of hydra._internal.core_plugins.",
        ),
        ("launcher", "${hydra.help}", "hydra.launcher._target_: got ${hydra.help}; must be one of "),
        ("launcher__setup", ["ls"], "hydra.launcher.setup: got ['ls']; must be empty"),
        ("launcher__more", {"x": [PRINT]}, "hydra.launcher.more.x.0._target_: got builtins.print; must not be set"),
        ("launcher___args_", [1], "hydra.launcher._args_: got [1]; must not be set"),
        ("sweeper", PRINT, "hydra.sweeper._target_: got builtins.print; must be one of hydra._internal.core_plugins."),
        ("sweeper__direction", "minimize", "hydra.sweeper.direction: got minimize; must be maximize, for the retained"),
        ("sweeper__sampler", PRINT, "hydra.sweeper.sampler._target_: got builtins.print; must be one of optuna."),
        ("sweeper__params", {"seed": PRINT}, "hydra.sweeper.params.seed._target_: got builtins.print; must not be "),
        ("sweeper__params", {"seed": "${stages}"}, "hydra.sweeper.params.seed: got ${stages}; must be a value, or "),
        (
            "sweeper__custom_search_space",
            "os.getcwd",
            "hydra.sweeper.custom_search_space: got os.getcwd; must be empty",
        ),
        ("help", {"header": PRINT}, "hydra.help.header._target_: got builtins.print; must not be set"),
        ("job_logging", {"version": 1, "filters": {"x": {"()": "builtins.print"}}}, "hydra.job_logging: got settings"),
        (
            "hydra_logging__root",
            "${hydra.help}",
            "hydra.hydra_logging: got settings of its own; must be one of default",
        ),
    ],
)
def test_functions_in_hydras_settings_are_refused(key: str, value: Any, expected: str, shipped: DictConfig) -> None:
    (line,) = called(shipped, **{key: value})
    assert line.startswith(expected)


@pytest.mark.parametrize("key", ["launcher", "sweeper"])
def test_a_launcher_and_a_sweeper_need_a_sweep(key: str, shipped: DictConfig) -> None:
    """Hydra does not use them for a single run, such as one that should be a job of a cluster."""
    for target in hydra.CALLED[key][1:]:
        changes = {key: {"_target_": target}, "runtime__choices": {f"hydra/{key}": "theirs"}}
        assert called(shipped, mode="RUN", **changes) == [
            f"hydra/{key}: got theirs for a single run; must be used with -m, also for one job; add -m"
        ]
        assert called(shipped, mode="MULTIRUN", **changes) == called(shipped, mode=None, **changes) == []
    assert called(shipped, mode="RUN") == []


def test_the_folder_of_a_run_is_set_as_output(shipped: DictConfig) -> None:
    assert [called(shipped, run__dir=name)[0].rpartition("; ")[2] for name in ("my runs/x", "${now:%Y}")] == [
        "set 'output=\"my runs/x\"'",
        "leave it out",
    ]
    assert called(shipped, run__dir="./") == []


def test_a_folder_of_a_sweep_may_have_the_time_in_its_name(shipped: DictConfig) -> None:
    assert called(shipped, sweep__dir="sweeps/${now:%Y-%m-%d}/${now:%H-%M}") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "${oc.env:HF_TOKEN}"),
        ("teacher.name", "./${oc.env:HF_TOKEN,x}"),
        ("tasks.train", "[a.csv,'${oc.env:HF_TOKEN}']"),
        ("output", "${hydra:runtime.cwd}/x"),
        ("output", "${oc.decode:x}"),
        ("stages.pretrain.terms.mlm.loss._target_", "${oc.env:HF_TOKEN}"),
    ],
)
def test_a_setting_takes_nothing_from_the_environment(key: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(ConfigError) as caught:
        load_config(["recipe=distilbert", f"{key}={value}"])
    (line,) = caught.value.messages
    assert line.startswith(key)
    assert line.endswith("; must be a value or the name of another setting, ${NAME}; write the value")
    assert "hf_secret" not in line
    assert load_config(["recipe=distilbert", "output=a:b-${seed}:c"]).output == "a:b-0:c"


def test_tasks_that_a_group_chose_are_not_asked_of_own_tasks_but_those_that_were_given_are(tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text("text,label\na,b\n")
    own = [f"tasks.train={file}", "recipe=prune", "target.speedup=2"]
    assert load_config(["tasks=docstrings"]).tasks.names == ["package", "body"]
    assert load_config(own).tasks.names is None
    assert load_config([*own, "tasks.names=[package]"]).tasks.names == ["package"]


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("a.txt", [], "text"),
        ("a.parquet", [], "parquet"),
        ("a.parquet", ["corpus=text"], "text"),
        ("a.txt", ["corpus=docstrings"], "docstrings"),
        ("a.txt", ["corpus.kind=docstrings"], "docstrings"),
    ],
)
def test_a_corpus_with_a_path_is_of_its_files(name: str, given: list[str], kind: str, tmp_path: Path) -> None:
    for path in (tmp_path / name, tmp_path):
        (tmp_path / name).touch()
        assert load_config(["recipe=distilbert", f"corpus.path={path}", *given]).corpus.kind == kind


def test_rows_of_files_have_a_share() -> None:
    for given, share in ((["transfer=none", "transfer.times=2"], 1.0), ([], 2.0)):
        loaded = load_config(["recipe=distilbert", "transfer.files=a.csv", *given])
        assert loaded.transfer.sources["files"] == share


def test_transfer_sets_need_a_use_and_known_sources() -> None:
    files = "transfer.files=rows.csv"
    (line,) = validation.settings(load_config(["recipe=distilbert", "+transfer.sources.web=1"]), "distilbert")
    assert line.startswith("transfer.sources.web: got a source web; must be of files, tasks, corpus, ")
    assert validation.settings(load_config(["recipe=distilbert", files]), "distilbert") == []


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["stages.general.shape_of=recover"], "stages.general.shape_of: got recover; must be an earlier stage"),
        (["stages.general.shape_of=finetune_teacher"], "must be a stage of kind prune; it is of kind train"),
        (["stages.general.shape_of=teacher"], "stages.general.shape_of: got teacher; must be an earlier stage"),
        (["stages.general.start=finetune_teacher"], "stages.general.start: got finetune_teacher; must be a stage with"),
    ],
)
def test_one_model_for_all_tasks_is_cut_from_the_given_teacher(overrides: list[str], expected: str) -> None:
    recipe = "prune_general"
    assert validation.settings(load_config([f"recipe={recipe}"]), recipe) == []
    assert [e for e in validation.settings(load_config([f"recipe={recipe}", *overrides]), recipe) if expected in e]


def test_with_a_budget_a_target_is_met_in_a_quantized_form() -> None:
    problems = validation.settings(load_config(["recipe=auto", "target.scheme=fp32"]), "auto")
    assert any("must be a scheme of stages.*.schemes with budget.minutes" in problem for problem in problems)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "overrides", [[], ["target.speedup=4"], ["target.speedup=[4,8]"], ["target.latency_ms=5", "target.speedup=null"]]
)
@pytest.mark.parametrize("recipe", ["prune", "frontier", "auto"])
def test_a_chain_may_have_one_target_or_a_budget(recipe: str, overrides: list[str]) -> None:
    if recipe == "auto" and "target.speedup=null" in overrides:
        overrides = []  # a budget needs a speedup
    given = [f"recipe={recipe}", "target.chain=true", *overrides]
    assert validation.settings(load_config(given), recipe) == []


def test_gates_need_the_prune_stage_that_prunes_by_them() -> None:
    def problems(*overrides: str) -> list[str]:
        return validation.settings(load_config(["recipe=cofi", *overrides]), "cofi")

    assert problems() == problems("stages.gated.gates.kind=movement") == problems("target.speedup=[2,4]") == []
    assert problems("target.speedup=null", "student.num_hidden_layers=2") == []
    cut = [
        "+stage@stages.vocabulary=vocabulary",
        "stages.vocabulary.start=gated",
        "stages.prune.start=vocabulary",
        "pipeline=[finetune_teacher,gated,vocabulary,prune,recover,recover_baseline,quantize,evaluate,export]",
    ]
    assert problems(*cut) == []


def test_in_a_chain_a_baseline_starts_from_its_cut() -> None:
    """After another stage it would start from what the student of the target before it learned."""
    between = [
        "+stage@stages.vocabulary=vocabulary",
        "stages.vocabulary.start=prune",
        "stages.recover.start=vocabulary",
    ]
    pipeline = "pipeline=[finetune_teacher,prune,vocabulary,recover,recover_baseline,quantize,evaluate,export]"
    given = ["recipe=frontier", *between, pipeline]
    (problem,) = validation.settings(load_config(given), "frontier")
    assert problem.startswith("stages.recover_baseline.start: got vocabulary; must be prune with target.chain")
    assert validation.settings(load_config([*given, "target.chain=false"]), "frontier") == []


def test_problems_of_a_prune_stage_are_reported_once_in_a_chain() -> None:
    problems = validation.settings(load_config(["recipe=frontier", "stages.prune.dimensions=[]"]), "frontier")
    assert [problem for problem in problems if "dimensions" in problem] == [
        "stages.prune.dimensions: got []; must contain at least one of layers, hidden, ffn; name one"
    ]
