"""Static checks of a whole config: all problems at once, before any download or training, and without torch.

`settings(config, recipe)` returns lines of the form `<key>: got X; must be Y; do Z`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distill.config import NO_TEACHER, TRACKERS, TRANSFER_SOURCES, Config, Prune, Quantize, Train, Vocabulary, recipes
from distill.config.plan import UNITS, Plan, resolve
from distill.config.schemes import SCHEMES
from distill.data.task import chosen
from distill.models.families import STUDENTS
from distill.pipeline.validation.best import best
from distill.pipeline.validation.budget import budget
from distill.pipeline.validation.folds import folds
from distill.pipeline.validation.gates import gates
from distill.pipeline.validation.pipeline import pipeline
from distill.pipeline.validation.rules import broken, existing, flatten, nearest, only, unknown
from distill.pipeline.validation.shared import shared
from distill.pipeline.validation.system import system_files
from distill.pipeline.validation.targets import targets
from distill.pipeline.validation.tasks import tasks
from distill.runtime import quoting
from distill.runtime.storage.run_folder import is_path


def settings(config: Config, recipe: str | None) -> list[str]:
    """All problems of the config, one line each."""
    errors = [*unknown(config, ""), *broken(config), *_sources(config)]
    if recipe is None:
        missing = f"recipe: got nothing; must be one of {', '.join(recipes())}; choose one, e.g. recipe=distilbert"
        return [missing, *errors]
    plan = resolve(config)
    errors += pipeline(config, plan)
    errors += _student(config, plan)
    errors += shared(config, plan)
    errors += folds(config, plan)
    errors += best(config, plan)
    errors += budget(config, plan)
    errors += gates(config, plan)
    return list(dict.fromkeys([*errors, *targets(config)]))


def _sources(config: Config) -> Iterator[str]:
    """Problems of the settings that choose teacher, corpus and tasks."""
    teacher, corpus = config.teacher, config.corpus
    if teacher.kind == "hub" and not teacher.name:
        yield "teacher.name: got nothing; must be a hub name or a folder; set teacher.name=FOLDER"
    if teacher.kind == NO_TEACHER:
        yield from _without_teacher(config)
    elif teacher.kind != "hub":
        yield from only(None, {"teacher.name": teacher.name or None}, f"with teacher={teacher.kind}", "add teacher=hub")
    yield from _ensemble(config)
    yield from _model_folders(config)
    yield from _tracker(config)
    if corpus.kind in ("parquet", "text"):
        yield from existing("corpus.path", corpus.path, "a file or folder")
        yield from system_files("corpus.path", corpus.path)
    else:
        path = {"corpus.path": corpus.path or None}
        yield from only(None, path, f"with corpus={corpus.kind}", "add corpus=parquet or text")
    if corpus.kind == "hub" and not corpus.name:
        yield "corpus.name: got nothing; must name hub data sets; e.g. corpus.name=[wikimedia/wikipedia/20231101.en]"
    yield from tasks(config.tasks)
    yield from _transfer(config)
    yield from system_files("transfer.files", config.transfer.files)


def _transfer(config: Config) -> Iterator[str]:
    """Problems of the settings of transfer sets."""
    transfer, given = config.transfer, {"transfer.files": config.transfer.files}
    for name in transfer.sources:
        if name not in TRANSFER_SOURCES:
            yield f"transfer.sources.{name}: got a source {name}; must be of {', '.join(TRANSFER_SOURCES)}; correct it"
    if transfer.times == 0 or not transfer.sources.get("files"):
        yield from only(None, given, "without rows from files", "set transfer=mixed, or transfer.sources.files=1")
    if config.teacher.kind == NO_TEACHER:
        where = "with teacher=none, where nothing labels these rows"
        yield from only(None, given, where, "leave it out, or set teacher.name=FOLDER")
    stages = [config.stages.get(name) for name in config.pipeline]
    if not any(isinstance(stage, Train) and stage.transfer for stage in stages):
        advice = "leave it out, or set stages.STAGE.transfer=true"
        yield from only(None, given, "in a recipe that distils no task", advice)


def _without_teacher(config: Config) -> Iterator[str]:
    """A run without a teacher must have a model and soft labels, and no stage on a corpus, whose texts have none."""
    if config.teacher.name is None and not config.limit.smoke:
        yield (
            "student.name: got nothing; must be the model that is trained on the soft labels with teacher=none, a hub "
            "name or a folder; set student.name=FOLDER"
        )
    for name, task in chosen(config.tasks).items():
        if task.soft_label is None:
            yield (
                f"tasks.soft_label: got nothing for {name}; must be a column of probabilities with teacher=none, where "
                "soft labels stand in for a teacher; set tasks.soft_label=COLUMN, or teacher.name=FOLDER"
            )
    for stage in dict.fromkeys(step.stage for step in resolve(config).steps if step.on_corpus):
        yield (
            f"teacher.kind: got none; must be another in a recipe that trains on a corpus ({stage}), which has no soft "
            "labels; try recipe=prune or recipe=task, or set teacher.name=FOLDER"
        )


def _tracker(config: Config) -> Iterator[str]:
    name = config.tracker
    if name is not None and name in TRACKERS and find_spec(name) is None:
        yield f"tracker: got {name}; needs its package; run {quoting.install(name)}, or leave it out"


def _model_folders(config: Config) -> Iterator[str]:
    """Names of models and tokenizers that can only be paths, but are no folders. Under limit=smoke too."""
    models: dict[str, list[str | None]] = {
        "teacher.name": [config.teacher.name],
        "teacher.names": [*config.teacher.names],
        "student.name": [config.student.name],
        "student.tokenizer": [config.student.tokenizer],
    }
    for key, names in models.items():
        for name in names:
            if name is not None and is_path(name) and not Path(name).is_dir():
                yield f"{key}: got {name}; must be a folder that exists, or a name on the hub; check the path"


def _ensemble(config: Config) -> Iterator[str]:
    """Problems of the settings of several teachers, and of teachers that read windows."""
    teacher = config.teacher
    names, weights = teacher.names, teacher.weights
    longest = config.tasks.max_length
    if teacher.kind == NO_TEACHER:
        yield from only("given", {"teacher.head": teacher.head}, f"with teacher={NO_TEACHER}", "leave it out")
    if teacher.window is not None and teacher.window >= longest:
        yield (
            f"teacher.window: got {teacher.window}; must be < tasks.max_length, {longest}, which no text exceeds; "
            "raise tasks.max_length"
        )
    if teacher.kind != "ensemble":
        for key, value in (("names", names), ("weights", weights)):
            if value:
                yield f"teacher.{key}: got {value}; must be left out with teacher={teacher.kind}; add teacher=ensemble"
        return
    if len(names) < 2 and not (config.limit.smoke and not names):
        yield f"teacher.names: got {names}; must be two hub names or folders or more; e.g. teacher.names=[A,B]"
    yield from only(None, {"teacher.revision": teacher.revision}, "with teacher=ensemble", "download to folders")
    numbers = isinstance(weights, list) and all(type(w) in (int, float) and 0 < w < math.inf for w in weights)
    if weights is not None and weights != "learned" and not (numbers and len(weights) == len(names)):
        yield (
            f"teacher.weights: got {weights}; must be learned, or a number above 0 for each of teacher.names; "
            "null weighs them equally"
        )


def _vocabulary(config: Config, plan: Plan) -> Iterator[str]:
    """Settings that a recipe with a vocabulary stage must not have."""
    if not plan.of(Vocabulary):
        return
    if config.teacher.kind == "ensemble":
        yield "teacher.kind: got ensemble; must be one teacher in a recipe that cuts a vocabulary; add teacher=hub"
    window = {"teacher.window": config.teacher.window}
    yield from only(None, window, "in a recipe that cuts a vocabulary", "leave it out")
    if not (plan.builds or plan.of(Prune) or plan.given_student):
        shape = _of_student(config, without=("name", "init", "num_hidden_layers", "heads"))
        yield from only(None, shape, "where no stage builds or prunes a student", "leave it out")


def _of_student(config: Config, without: Collection[str]) -> dict[str, Any]:
    """The settings of the student, but for some."""
    return {f"student.{name}": value for name, value in flatten(config.student).items() if name not in without}


def _student(config: Config, plan: Plan) -> Iterator[str]:
    """Problems of the settings of the student, whether it is given, built or pruned."""
    layers, name, given = config.student.layers, config.student.name, plan.given_student
    if given and name is None and not config.limit.smoke:
        yield "student.name: got nothing; must be a hub name or a folder; set student.name=FOLDER"
    if not given:
        yield from only(None, {"student.name": name}, "in a recipe that builds its student", "try recipe=task")
    else:
        others = _of_student(config, without=("name", "init", "heads"))
        yield from only(None, others, "where student.name gives the student", "leave it out")
        for stage in plan.builds:
            yield f"stages.{stage}.build_student: got true; must be false where a stage starts from student"
    yield from _vocabulary(config, plan)
    yield from _pruned(config, plan)
    kind = config.student.family
    if kind is not None and kind not in STUDENTS:
        yield f"student.family: got {kind}; must be a supported model type; {nearest(kind, list(STUDENTS))}"
    if layers is not None and (not layers or layers != sorted(set(layers)) or layers[0] < 0):
        yield f"student.layers: got {layers}; must be distinct ascending layer numbers from 0; e.g. [0,2,5]"


def _lists(config: Config, plan: Plan, targets: dict[str, Any]) -> Iterator[str]:
    """At most one target may be a list, of two or more different numbers: a model is pruned for each."""
    lists = {key: value for key, value in targets.items() if isinstance(value, list)}
    for key, value in targets.items():
        numbers = [number for number in (value if isinstance(value, list) else [value]) if type(number) in (int, float)]
        several = len(numbers) >= 2 and len({f"{number:g}" for number in numbers}) == len(value)
        if not (several if isinstance(value, list) else numbers):
            yield f"{key}: got {value}; must be one number, or a list of several; e.g. {key}=[2,4,8]"
    prunes = list(dict.fromkeys(step.stage for step in plan.pruners))
    if lists and len(prunes) > 1:
        yield f"{next(iter(lists))}: got a list; must be one number where {' and '.join(prunes)} prune; give one"
    for key in [*lists][1:]:
        yield f"{key}: got a list, as {next(iter(lists))}; must be one number, or null; make only one target a list"
    if config.target.retained is not None and not lists and config.budget.minutes is None:
        yield (
            f"target.retained: got {config.target.retained:g}; must be null without a list of targets, of whose models "
            "the report names the fastest that keeps it; set one, e.g. target.speedup=[1.5,2,3,4], or use recipe=auto"
        )


def _pruned(config: Config, plan: Plan) -> Iterator[str]:
    """Settings that a recipe with a prune stage must or must not have."""
    student, teacher = config.student, config.teacher
    if not plan.of(Prune):
        # Only a recipe with a prune stage may have them.
        own = {"student.num_hidden_layers": student.num_hidden_layers, "target.retained": config.target.retained}
        yield from only(None, own | _targets(config), "in a recipe without a prune stage", "try recipe=prune")
        return
    uneven = list(dict.fromkeys(s.stage for s in plan.pruners if not s.settings.uniform))
    if teacher.kind == "ensemble":
        yield "teacher.kind: got ensemble; must be one teacher in a recipe that prunes it; add teacher=hub"
    wrong = ("name", "tokenizer", "family", "embedding_size", *(() if uneven else ("num_attention_heads",)))
    others = {f"student.{name}": getattr(student, name) for name in wrong}
    yield from only(None, others, "in a recipe with a prune stage", "leave it out")
    yield from only(None, {"teacher.window": teacher.window}, "in a recipe that prunes the teacher", "leave it out")
    yield from only("teacher_layers", {"student.init": student.init}, "in a recipe with a prune stage", "leave it out")
    if student.layers is not None and student.num_hidden_layers not in (None, len(student.layers)):
        yield (
            f"student.num_hidden_layers: got {student.num_hidden_layers}; must be {len(student.layers)}, the number of "
            "student.layers; set student.num_hidden_layers=null"
        )
    for name in uneven:
        yield from _only_onnx(config, plan, name)
    yield from _size_or_target(config, plan)


def _only_onnx(config: Config, plan: Plan, name: str) -> Iterator[str]:
    """Problems of a prune stage with `uniform: false`: sizes must be given, and only ONNX files can have them."""
    searched = {**_targets(config), "student.hidden_size": config.student.hidden_size}
    where = f"where stages.{name}.uniform is false, which prunes heads and FFN channels to given sizes"
    yield from only(None, searched, where, "set null")
    onnx = {scheme.name for scheme in SCHEMES.values() if scheme.onnx}
    if not any(onnx & {*step.settings.schemes} for step in plan.of(Quantize)):
        yield (
            f"stages.{name}.uniform: got false; must be true without a stage that makes ONNX files, the only ones that "
            "can have layers of different widths; add a quantize stage with onnxruntime"
        )


def _targets(config: Config) -> dict[str, Any]:
    return {f"target.{name}": getattr(config.target, name) for name in UNITS}


def _size_or_target(config: Config, plan: Plan) -> Iterator[str]:
    """A prune stage needs either sizes in `student.*` or a target in `target.*`."""
    names = ("layers", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    sizes = [name for name in names if getattr(config.student, name) is not None]
    if any(step.builder is not None for step in plan.of(Prune)):
        given = {f"student.{name}": getattr(config.student, name) for name in sizes}
        yield from only(None, given, "in a recipe that builds a student and prunes it", "set target.* instead")
    targets = {key: value for key, value in _targets(config).items() if value is not None}
    for key, value in targets.items() if sizes else ():
        advice = f"set {key}=null, or leave student.{sizes[0]} out"
        yield from only(None, {key: value}, f"where student.{sizes[0]} sets the size", advice)
    if not sizes and not targets:
        yield (
            "target.speedup: got null; must be a number, or a size must be given; e.g. target.speedup=2, or "
            "student.num_hidden_layers, student.hidden_size or student.intermediate_size"
        )
    yield from _lists(config, plan, targets)
    yield from _timed(config, plan)


def _timed(config: Config, plan: Plan) -> Iterator[str]:
    """The form and the inputs that are timed to meet a target."""
    shape, scheme = config.target.shape, config.target.scheme
    numbers = shape if isinstance(shape, list) else []
    if shape != "own" and (len(numbers) != 2 or not all(isinstance(number, int) and number > 0 for number in numbers)):
        yield f"target.shape: got {shape}; must be own or [batch size, length]; e.g. [8,128]"
    forms = ["fp32", "bf16", *dict.fromkeys(name for step in plan.of(Quantize) for name in step.settings.schemes)]
    if scheme is not None and scheme not in forms:
        yield f"target.scheme: got {scheme}; must be {' or '.join(forms)}; add it to stages.quantize.schemes"
