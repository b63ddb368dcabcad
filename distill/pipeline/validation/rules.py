"""Rules for single settings, and functions that find settings in the tree of a config."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distill.config import Baseline, feature_kinds
from distill.config.baselines import SHARED

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
"""Experiment trackers, each of which is also the name of its package and of an extra."""

Rule = tuple[str, Callable[[Any], bool], str, str]
"""Pattern of the key, whether a value is valid, the rule in words, and advice."""


def _number(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and low <= value <= high and math.isfinite(value)


def _above(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and low < value < high


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: value in names


def _repository(name: Any) -> bool:
    pattern = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]{0,95}"
    return isinstance(name, str) and re.fullmatch(pattern, name) is not None


RULES: tuple[Rule, ...] = (
    ("temperature", _above(0), "> 0", "2 is usual"),
    ("seed", _number(0), ">= 0", "0 is the default"),
    ("threads", _number(1), ">= 1", "null uses every core"),
    ("precision", _one_of("auto", "bf16", "fp32"), "auto, bf16 or fp32", "auto detects"),
    ("tracker", _one_of(*TRACKERS), f"one of {', '.join(TRACKERS)}, or null", "null tracks nothing"),
    ("push", _repository, "OWNER/NAME or null", "it is a repository on the Hugging Face hub"),
    ("device", _one_of("auto", "cpu", "cuda"), "auto, cpu or cuda", "auto detects"),
    (
        "teacher.kind",
        _one_of("embedded", "hub", "ensemble", "none", "random"),
        "embedded, hub, ensemble, none or random",
        "choose with teacher=NAME",
    ),
    ("teacher.window", _number(16), ">= 16", "null cuts no text into windows"),
    ("student.num_hidden_layers", _number(1), ">= 1", "null keeps all, or those of student.layers"),
    ("student.hidden_size", _number(1), ">= 1", "null is the teacher's"),
    ("student.intermediate_size", _number(1), ">= 1", "null keeps its ratio to the width"),
    ("student.embedding_size", _number(1), ">= 1", "null is the teacher's"),
    ("student.num_attention_heads", _number(1), ">= 1", "null keeps the size of the heads"),
    ("teacher.head", _one_of("given", "new"), "given or new", "new gives every task its own"),
    ("student.init", _one_of("teacher_layers", "random"), "teacher_layers or random", "choose with student=NAME"),
    ("student.heads", _one_of("own", "shared"), "own or shared", "shared trains one encoder for all tasks"),
    ("target.speedup", _above(1), "> 1", "2 is twice as fast as the teacher"),
    ("target.latency_ms", _above(0), "> 0", "it is the time of one text, or of one batch of target.shape"),
    ("target.retained", _above(0, 100), "between 0 and 100", "it is a percentage of the teacher's macro score"),
    ("budget.minutes", _above(0), "> 0", "null sets no limit"),
    ("cache.max_gib", _number(0), ">= 0", "20 is the default, and with 0 nothing is reused"),
    ("report.hourly_rate", _above(0), "> 0", "null leaves the price out"),
    ("target.size_mib", _above(0), "> 0", "it is the size of float32 weights"),
    (
        "corpus.kind",
        _one_of("docstrings", "parquet", "text", "hub"),
        "docstrings, parquet, text or hub",
        "choose with corpus=NAME",
    ),
    ("corpus.max_length", _number(16), ">= 16", "128 is the default"),
    ("tasks.max_length", _number(8), ">= 8", "128 is the default"),
    ("transfer.times", _number(0), ">= 0", "0 makes no rows; 5 is the default"),
    ("transfer.passes", _number(0), ">= 0 or null", "3 is the default, 1 with transfer.files"),
    ("transfer.most", _number(1), ">= 1", "20000 is the default"),
    ("transfer.sources.*", _number(0), ">= 0", "it is the source's share of the rows"),
    ("limit.*", _number(1), ">= 1", "null sets no limit"),
    (
        "stages.*.role",
        _one_of("teacher", "student"),
        "teacher or student",
        "a baseline is a stage of kind baseline",
    ),
    ("stages.*.data", _one_of("corpus", "tasks"), "corpus or tasks", "see distill/config"),
    ("stages.*.temperature", _above(0), "> 0", "2 is usual"),
    ("stages.*.epochs", _above(0), "> 0", "3 is usual"),
    ("stages.*.steps", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.min_steps", _number(0), ">= 0", "0 sets no minimum"),
    ("stages.*.best_of", _number(1), ">= 1", "1 keeps the model at the end, and is the default"),
    ("stages.*.folds", _number(1), ">= 1", "1 trains no further models, and is the default"),
    ("stages.*.clip", _above(0), "> 0", "1 is usual"),
    ("stages.*.dropout", _number(0, 0.9), "from 0 to 0.9", "null keeps the model's own"),
    ("stages.*.checkpoint_seconds", _above(0), "> 0", "120 is the default"),
    ("stages.*.batch.tokens", _number(1), ">= 1", "4096 is the default"),
    ("stages.*.batch.examples", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.batch.device_tokens", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.masking.probability", _above(0, 1), "between 0 and 1", "0.15 is usual"),
    ("stages.*.masking.smoothing", _number(0, 1), "from 0 to 1", "0 masks every token alike, 0.7 rare ones more often"),
    ("stages.*.base_lr", _above(0), "> 0", "1e-4 is the default"),
    ("stages.*.per_cut.*", _number(0, 2), "from 0 to 2", "it is the power of the cut; 0 changes nothing"),
    ("stages.*.optimizer.lr", _above(0), "> 0", "5e-5 is usual"),
    ("stages.*.schedule.warmup", _number(0, 1), "from 0 to 1", "it is a share of the steps"),
    ("stages.*.terms.*.weight", _number(0), ">= 0", "drop the term with weight 0"),
    (
        "stages.*.terms.*.features",
        _one_of(*feature_kinds.KINDS),
        feature_kinds.choices(),
        "see conf/term",
    ),
    ("stages.*.terms.*.teacher_layer", _number(0), ">= 0", "null is the last"),
    ("stages.*.terms.*.heads", _number(1), ">= 1", "null is the student's attention heads"),
    ("stages.*.terms.*.against", _one_of("teacher", "labels"), "teacher or labels", "see conf/term"),
    ("stages.*.terms.*.positions", _one_of("masked", "all"), "masked or all", "see conf/term"),
    ("stages.*.examples", _number(32), ">= 32", "fewer rows measure too coarsely; 256 is the default"),
    ("stages.*.retrain_steps", _number(0), ">= 0", "0 measures right after the cut; 20 is the default"),
    ("stages.*.finalists", _number(1), ">= 1", "1 tries none, and is the default"),
    ("stages.*.trial_steps", _number(1), ">= 1", "100 is the default"),
    ("stages.*.max_drop", _number(0), ">= 0", "null sets no limit"),
    ("stages.*.max_recall_drop", _number(0), ">= 0", "null sets no limit"),
    ("stages.*.gates.kind", _one_of("none", "l0", "movement"), "none, l0 or movement", "see distill/config"),
    ("stages.*.gates.lr", _above(0), "> 0", "0.05 is the default"),
    ("stages.*.min_count", _number(1), ">= 1", "1 keeps every token that is used"),
    ("stages.*.tokens", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.repeats", _number(1), ">= 1", "8 is the default"),
)


def existing(key: str, value: str | None, rule: str) -> Iterator[str]:
    """An error for a path that is not set or does not exist."""
    if not value:
        yield f"{key}: got nothing; must be {rule}; set {key}=PATH"
    elif not Path(value).exists():
        yield f"{key}: got {value}; must be {rule} that exists; check the path (from {Path.cwd()})"


def flatten(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> value of each leaf in a tree of dataclasses and dicts. A list is a leaf."""
    if is_dataclass(value):
        items = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, dict):
        items = list(value.items())
    else:
        return {key: value}
    return {k: v for name, part in items for k, v in flatten(part, f"{key}.{name}" if key else str(name)).items()}


def nearest(name: str, names: list[str]) -> str:
    """Advice for an unknown name: names like it, or like its last part after a dot; else the first 20 names."""
    near = get_close_matches(name, names, n=3, cutoff=0.7)
    leaf = name.rpartition(".")[2]
    near = near or [n for n in names if get_close_matches(leaf, [n.rpartition(".")[2]], cutoff=0.8)][:4]
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"choose from {', '.join(names[:20])}" if names else "leave it out"


def unknown(value: Any, key: str) -> Iterator[str]:
    """Settings that do not exist. Hydra adds them for a `+` before a misspelt key, and they would have no effect."""
    if is_dataclass(value):
        names = [f.name for f in fields(value)]
        for name in sorted(vars(value).keys() - set(names)):
            got = getattr(value, name)
            advice = of_student(value, name) or nearest(name, names)
            yield f"{key}{name}: got {got}; must be a setting that exists; {advice}"
    if is_dataclass(value) or isinstance(value, dict):
        for name, part in (vars(value) if is_dataclass(value) else value).items():
            yield from unknown(part, f"{key}{name}.")


def of_student(stage: Any, setting: str) -> str | None:
    """Advice for a setting that a baseline stage takes from its student's stage; None for all other settings."""
    if isinstance(stage, Baseline) and setting.partition(".")[0] in SHARED:
        return f"set stages.{stage.baseline_of}.{setting}, which the baseline is trained with too"
    return None


def matches(pattern: str, key: str) -> bool:
    """Whether a dotted key matches a pattern, in which `*` stands for any one name."""
    parts, names = pattern.split("."), key.split(".")
    return len(parts) == len(names) and all(p in ("*", n) for p, n in zip(parts, names, strict=True))


def broken(settings: dict[str, Any]) -> Iterator[str]:
    """A line for each setting, by dotted key, that breaks a rule. null breaks none."""
    for key, setting in settings.items():
        is_list = isinstance(setting, list) and key.startswith("target.") and key != "target.shape"
        for value in setting if is_list else [setting]:
            for pattern, valid, rule, advice in RULES:
                if value is not None and not isinstance(value, bool) and matches(pattern, key) and not valid(value):
                    yield f"{key}: got {value}; must be {rule}; {advice}"
