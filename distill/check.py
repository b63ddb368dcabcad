"""Static checks of a whole config: every problem at once, before any download or training. torch is not imported.

`settings(config, recipe)` returns lines of the form `<key>: got X; must be Y; do Z`.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distill.config import REFERENCES, Config, Evaluate, Quantize, Stage, Train, given_student, of_student, recipes

TASKS = {
    "glue": ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"),
    "docstrings": ("package", "corrupted", "body", "order", "overlap"),
}
"""Names of the tasks of each kind; distill.data.tasks holds the rest."""

FAMILIES = (
    "bert", "ernie", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "mpnet", "deberta",
    "deberta-v2", "modernbert",
)  # fmt: skip
"""Model types of students; distill.family holds the rest."""

SCHEMES = ("bitsandbytes", "onnxruntime")
"""What a quantize stage can make."""

TARGETS = ("distill.", "torch.optim.", "transformers.", "bitsandbytes.optim.")
"""A `_target_` may only name something below these: a config must not run arbitrary code."""

Rule = tuple[str, Callable[[Any], bool], str, str]


def _number(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: low <= value <= high and math.isfinite(value)


def _above(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: low < value < high


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: value in names


RULES: tuple[Rule, ...] = (
    ("temperature", _above(0), "> 0", "2 is usual"),
    ("seed", _number(0), ">= 0", "0 is the default"),
    ("threads", _number(1), ">= 1", "null uses every core"),
    ("precision", _one_of("auto", "bf16", "fp32"), "auto, bf16 or fp32", "auto detects"),
    ("device", _one_of("auto", "cpu", "cuda"), "auto, cpu or cuda", "auto detects"),
    ("teacher.kind", _one_of("embedded", "hub", "random"), "embedded, hub or random", "choose with teacher=NAME"),
    ("student.hidden_size", _number(1), ">= 1", "null is the teacher's"),
    ("student.intermediate_size", _number(1), ">= 1", "null keeps its ratio to the width"),
    ("student.embedding_size", _number(1), ">= 1", "null is the teacher's"),
    ("student.num_attention_heads", _number(1), ">= 1", "null keeps the size of the heads"),
    ("student.init", _one_of("teacher_layers", "random"), "teacher_layers or random", "choose with student=NAME"),
    (
        "corpus.kind",
        _one_of("docstrings", "parquet", "text", "hub"),
        "docstrings, parquet, text or hub",
        "choose with corpus=NAME",
    ),
    ("corpus.max_length", _number(16), ">= 16", "128 is the default"),
    ("tasks.kind", _one_of(*TASKS), "docstrings or glue", "choose with tasks=NAME"),
    ("tasks.max_length", _number(8), ">= 8", "128 is the default"),
    ("limit.*", _number(1), ">= 1", "null sets no limit"),
    (
        "stages.*.role",
        _one_of("teacher", "student", "baseline"),
        "teacher, student or baseline",
        "see distill/config.py",
    ),
    ("stages.*.data", _one_of("corpus", "tasks"), "corpus or tasks", "see distill/config.py"),
    ("stages.*.temperature", _above(0), "> 0", "2 is usual"),
    ("stages.*.epochs", _above(0), "> 0", "3 is usual"),
    ("stages.*.steps", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.min_steps", _number(0), ">= 0", "0 sets no minimum"),
    ("stages.*.clip", _above(0), "> 0", "1 is usual"),
    ("stages.*.dropout", _number(0, 0.9), "from 0 to 0.9", "null keeps the model's own"),
    ("stages.*.checkpoint_seconds", _above(0), "> 0", "120 is the default"),
    ("stages.*.batch.tokens", _number(1), ">= 1", "4096 is the default"),
    ("stages.*.batch.examples", _number(1), ">= 1", "null sets no limit"),
    ("stages.*.batch.accumulate", _number(1), ">= 1", "1 computes a step in one part"),
    ("stages.*.masking.probability", _above(0, 1), "between 0 and 1", "0.15 is usual"),
    ("stages.*.masking.smoothing", _number(0, 1), "from 0 to 1", "0 masks every token alike, 0.7 rare ones more often"),
    ("stages.*.optimizer.lr", _above(0), "> 0", "5e-5 is usual"),
    ("stages.*.schedule.warmup", _number(0, 1), "from 0 to 1", "it is a share of the steps"),
    ("stages.*.terms.*.weight", _number(0), ">= 0", "drop the term with weight 0"),
    (
        "stages.*.terms.*.features",
        _one_of("logits", "hidden", "pooled", "relations", "scores"),
        "logits, hidden, pooled, relations or scores",
        "see conf/term",
    ),
    ("stages.*.terms.*.layers", _one_of("last", "uniform"), "last or uniform", "see distill/config.py"),
    ("stages.*.terms.*.teacher_layer", _number(0), ">= 0", "null is the last"),
    ("stages.*.terms.*.heads", _number(1), ">= 1", "null is the student's attention heads"),
    ("stages.*.terms.*.against", _one_of("teacher", "labels"), "teacher or labels", "see conf/term"),
    ("stages.*.terms.*.positions", _one_of("masked", "all"), "masked or all", "see conf/term"),
    ("stages.*.repeats", _number(1), ">= 1", "8 is the default"),
)


def settings(config: Config, recipe: str | None) -> list[str]:
    """Every problem of the config, in words; empty if there is none."""
    values = flatten(config)
    # A stage that takes the temperature of the whole run would repeat the same problem.
    values = {k: v for k, v in values.items() if not (k.endswith(".temperature") and v == config.temperature)}
    errors = [*_unknown(config, ""), *_rules(values), *_sources(config)]
    if recipe is None:
        first = f"recipe: got nothing; must be one of {', '.join(recipes())}; choose one, e.g. recipe=distilbert"
        return [first, *errors]
    errors += _pipeline(config)
    errors += _student(config)
    for key, value in values.items():
        if key.endswith("._target_"):
            errors += _target(key.removesuffix("._target_"), value, config)
    return errors


def flatten(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> leaf of a tree of dataclasses and dicts. A list is a leaf."""
    if is_dataclass(value):
        items = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, dict):
        items = list(value.items())
    else:
        return {key: value}
    return {k: v for name, part in items for k, v in flatten(part, f"{key}.{name}" if key else str(name)).items()}


def nearest(name: str, names: list[str]) -> str:
    """`did you mean a, b?`, by the whole name or by its last part; else a choice of what there is."""
    near = get_close_matches(name, names, n=3, cutoff=0.7)
    leaf = name.rpartition(".")[2]
    near = near or [n for n in names if get_close_matches(leaf, [n.rpartition(".")[2]], cutoff=0.8)][:4]
    return f"did you mean {', '.join(near)}?" if near else f"there is {', '.join(names[:20]) or 'nothing'}"


def _unknown(value: Any, key: str) -> Iterator[str]:
    """A `+` in front of a misspelt key makes Hydra add it; nothing would read it."""
    if is_dataclass(value):
        names = [f.name for f in fields(value)]
        for name in sorted(vars(value).keys() - set(names)):
            got = getattr(value, name)
            yield f"{key}{name}: got {got}; must be a setting that exists; {nearest(name, names)}"
    if is_dataclass(value) or isinstance(value, dict):
        for name, part in (vars(value) if is_dataclass(value) else value).items():
            yield from _unknown(part, f"{key}{name}.")


def _matches(pattern: str, key: str) -> bool:
    parts, names = pattern.split("."), key.split(".")
    return len(parts) == len(names) and all(p in ("*", n) for p, n in zip(parts, names, strict=True))


def _rules(values: dict[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        for pattern, good, rule, advice in RULES:
            if value is None or isinstance(value, bool) or not _matches(pattern, key):
                continue
            if not isinstance(value, str) and not isinstance(value, int | float):
                yield f"{key}: got {value}; must be {rule}; {advice}"
            elif not (good(value) if isinstance(value, str) == (rule[0].isalpha() and " or " in rule) else False):
                yield f"{key}: got {value}; must be {rule}; {advice}"


def _sources(config: Config) -> Iterator[str]:
    teacher, corpus, tasks = config.teacher, config.corpus, config.tasks
    if teacher.kind == "hub" and not teacher.name:
        yield "teacher.name: got nothing; must be a hub name or a folder; set teacher.name=FOLDER"
    if teacher.kind != "hub" and teacher.name:
        yield f"teacher.name: got {teacher.name}; must be null with teacher={teacher.kind}; add teacher=hub"
    if corpus.kind in ("parquet", "text"):
        yield from _path("corpus.path", corpus.path, "a file or folder")
    elif corpus.path:
        yield f"corpus.path: got {corpus.path}; must be null with corpus={corpus.kind}; add corpus=parquet or text"
    if corpus.kind == "hub" and not corpus.name:
        yield "corpus.name: got nothing; must name hub data sets; e.g. corpus.name=[wikimedia/wikipedia/20231101.en]"
    if tasks.kind == "glue" and tasks.path:
        yield from _path("tasks.path", tasks.path, "a folder in the layout of nyu-mll/glue")
    elif tasks.path:
        yield f"tasks.path: got {tasks.path}; must be null with tasks={tasks.kind}; add tasks=glue"
    known = list(TASKS.get(tasks.kind, ()))
    for name in tasks.names or []:
        if known and name not in known:
            yield f"tasks.names: got {name}; must be a task of tasks={tasks.kind}; {nearest(name, known)}"


def _path(key: str, value: str | None, what: str) -> Iterator[str]:
    if not value:
        yield f"{key}: got nothing; must be {what}; set {key}=PATH"
    elif not Path(value).exists():
        yield f"{key}: got {value}; must be {what} that exists; check the path (from {Path.cwd()})"


def _pipeline(config: Config) -> Iterator[str]:
    if not config.pipeline:
        yield "pipeline: got []; must name at least one stage; choose a recipe, e.g. recipe=distilbert"
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


def _reference(name: str, key: str, other: str, config: Config) -> Iterator[str]:
    """The stage that is named leaves what is looked for: models, ONNX files or numbers."""
    needed: type[Stage] = {"quantized": Quantize, "evaluated": Evaluate}.get(key, Train)
    stage, found = config.stages[name], config.stages[other]
    if not isinstance(found, needed):
        yield f"stages.{name}.{key}: got {other}; must be a stage of kind {needed.kind}; it is of kind {found.kind}"
    elif isinstance(found, Train) and isinstance(stage, Train) and (stage.data, found.data) == ("corpus", "tasks"):
        yield f"stages.{name}.{key}: got {other}; must be a stage with data corpus; it has a model for each task"
    elif isinstance(found, Train) and not isinstance(stage, Train) and found.data == "corpus":
        yield f"stages.{name}.{key}: got {other}; must be a stage with data tasks; it has no model for a task"


def _vocabularies(name: str, stage: Train, config: Config) -> Iterator[str]:
    """On a corpus, models with tokenizers of their own are compared by what they make of the same characters."""
    guide = stage.teacher
    if (config.student.tokenizer is None and not given_student(config)) or stage.data != "corpus" or guide is None:
        return
    if of_student(config, name) == of_student(config, guide):
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


def _measured(name: str, stage: Stage) -> Iterator[str]:
    if isinstance(stage, Quantize):
        for scheme in stage.schemes:
            if scheme not in SCHEMES:
                yield f"stages.{name}.schemes: got {scheme}; must be {' or '.join(SCHEMES)}; drop it"
    if isinstance(stage, Evaluate):
        if not stage.shapes:
            yield f"stages.{name}.shapes: got []; must hold at least one [batch size, length]; e.g. [[8,128]]"
        for shape in stage.shapes:
            if len(shape) != 2 or min(shape) < 1:
                yield f"stages.{name}.shapes: got {shape}; must be [batch size, length]; e.g. [8,128]"


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
        if term.features != "logits" and stage.data == "tasks":
            yield f"{where}.features: got {term.features}; must be logits on tasks; drop the term"
        if term.features in ("pooled", "relations", "scores") and term.positions == "masked":
            yield f"{where}.positions: got masked; must be all with features {term.features}; set {where}.positions=all"
        if term.features in ("logits", "pooled") and term.layers != "last":
            yield f"{where}.layers: got {term.layers}; must be last with features {term.features}; leave it out"
        if term.against == "labels" and term.positions == "all" and stage.data == "corpus":
            yield f"{where}.positions: got all; must be masked with labels; only masked positions have a label"
    yield from _vocabularies(name, stage, config)
    longest = config.corpus.max_length if stage.data == "corpus" else config.tasks.max_length
    if 0 < stage.batch.tokens < longest:
        yield f"{key}.batch.tokens: got {stage.batch.tokens}; must be >= {longest} (max_length); set it higher"


def _student(config: Config) -> Iterator[str]:
    layers = config.student.layers
    name, given = config.student.name, given_student(config)
    if given and name is None and not config.limit.smoke:
        yield "student.name: got nothing; must be a hub name or a folder; set student.name=FOLDER"
    if name is not None and not given:
        yield f"student.name: got {name}; must be null in a recipe that builds its student; try recipe=task"
    if given:
        for key, value in flatten(config.student).items():
            if key not in ("name", "init") and value is not None:
                yield f"student.{key}: got {value}; must be null where student.name gives the student; leave it out"
        for stage in config.pipeline:
            if getattr(config.stages.get(stage), "build_student", False):
                yield f"stages.{stage}.build_student: got true; must be false where a stage starts from student"
    kind = config.student.family
    if kind is not None and kind not in FAMILIES:
        yield f"student.family: got {kind}; must be a model type that is known; {nearest(kind, list(FAMILIES))}"
    if layers is not None and (not layers or layers != sorted(set(layers)) or layers[0] < 0):
        yield f"student.layers: got {layers}; must be distinct ascending layer numbers from 0; e.g. [0,2,5]"


def _target(key: str, target: Any, config: Config) -> Iterator[str]:
    """The node names something allowed, and its keys are parameters of it. Source is read, not imported."""
    if not isinstance(target, str) or not target.startswith(TARGETS):
        yield f"{key}._target_: got {target}; must start with {', '.join(TARGETS)}; use what is listed in conf"
        return
    if not target.startswith(("distill.", "torch.optim.")):
        return
    node: Any = config
    for part in key.split("."):
        node = node[part] if isinstance(node, dict) else getattr(node, part)
    signature = _signature(target)
    if signature is None:
        yield f"{key}._target_: got {target}; must be a function that exists; check the name"
        return
    names, required = signature
    given = {name for name in node if not name.startswith("_")}
    for name in sorted(given - names):
        yield f"{key}.{name}: got {node[name]}; must be a parameter of {target}; {nearest(name, sorted(names))}"
    for name in sorted(required - given):
        yield f"{key}.{name}: got nothing; must be set for {target}; add +{key}.{name}=VALUE"


@functools.cache
def _signature(target: str) -> tuple[set[str], set[str]] | None:
    """Parameters that a config may set, and those of them without a default, from source.

    Of a function: the keyword-only ones. Of an optimizer's class: all but the parameters to optimize.
    """
    module, _, name = target.rpartition(".")
    for file in _files(module):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                only = [arg.arg for arg in node.args.kwonlyargs]
                free = {arg for arg, default in zip(only, node.args.kw_defaults, strict=True) if default is None}
                return set(only), free
            if isinstance(node, ast.ClassDef) and node.name == name:
                made = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
                return {arg.arg for arg in [*made.args.args[2:], *made.args.kwonlyargs]}, set()
    return None


def _files(module: str) -> list[Path]:
    """Source of a module, or of all modules in a package's folder; nothing is imported."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    path = Path(spec.origin).parent.joinpath(*parts)
    return sorted(path.glob("*.py")) if path.is_dir() else [f for f in [path.with_suffix(".py")] if f.is_file()]
