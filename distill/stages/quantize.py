"""Quantize stage: int8 forms of the student of every task, and the float32 ONNX file they start from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.compress.quantize import bitsandbytes_int8, onnxruntime_int8
from distill.config import Quantize
from distill.export.onnx import export_onnx, onnx_parity
from distill.stages.context import Context

ONNX, ONNX_INT8, BITSANDBYTES = "model.onnx", "model_int8.onnx", "bitsandbytes"


def run(ctx: Context, name: str, settings: Quantize) -> dict[str, Any]:
    began, made = time.monotonic(), {}
    for task in ctx.tasks[0]:
        folder, source = ctx.folder / name / task, ctx.checkpoint(settings.start, task)
        if not checkpoint.finished(folder):
            ctx.say(f"{name}/{task}: {', '.join(settings.schemes)}")
            with checkpoint.writing(folder) as temporary:
                checkpoint.write_json(temporary / checkpoint.MANIFEST, _quantize(source, temporary, settings.schemes))
        made[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    failed = {scheme: f"{task}: {text}" for task, m in made.items() for scheme, text in m["failed"].items()}
    manifest = {
        "schemes": settings.schemes,
        "failed": failed,
        "onnx_difference": {task: m.get("onnx_difference") for task, m in made.items()},
        "seconds": time.monotonic() - began,
    }
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _quantize(source: Path, out: Path, schemes: list[str]) -> dict[str, Any]:
    """Make every scheme. One that fails is kept with its reason: it is a row of the report, not the end of the run."""
    manifest: dict[str, Any] = {"failed": {}}
    for scheme in schemes:
        try:
            if scheme == "bitsandbytes":
                bitsandbytes_int8(source, out / BITSANDBYTES)
            else:
                export_onnx(source, out / ONNX)
                manifest["onnx_difference"] = onnx_parity(source, out / ONNX)
                onnxruntime_int8(out / ONNX, out / ONNX_INT8)
        except OSError:
            raise
        except Exception as error:
            manifest["failed"][scheme] = reason(error)
    return manifest


def reason(error: BaseException) -> str:
    """One line for a row that failed."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
