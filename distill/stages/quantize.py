"""Quantize stage: int8 forms of the student of every task, and the float32 ONNX file they start from."""

from __future__ import annotations

import time
from typing import Any

from distill import checkpoint
from distill.compress.quantize import bitsandbytes_int8, onnxruntime_int8
from distill.config import Quantize
from distill.export.onnx import export_onnx, onnx_parity
from distill.stages.context import Context

ONNX, ONNX_INT8, BITSANDBYTES = "model.onnx", "model_int8.onnx", "bitsandbytes"


def run(ctx: Context, name: str, settings: Quantize) -> dict[str, Any]:
    began, parity = time.monotonic(), {}
    for task in ctx.tasks[0]:
        folder, source = ctx.folder / name / task, ctx.checkpoint(settings.start, task)
        if checkpoint.finished(folder):
            parity[task] = checkpoint.read_json(folder / checkpoint.MANIFEST).get("onnx_difference")
            continue
        ctx.say(f"{name}/{task}: {', '.join(settings.schemes)}")
        with checkpoint.writing(folder) as temporary:
            manifest: dict[str, Any] = {"schemes": settings.schemes}
            if "bitsandbytes" in settings.schemes:
                bitsandbytes_int8(source, temporary / BITSANDBYTES)
            if "onnxruntime" in settings.schemes:
                export_onnx(source, temporary / ONNX)
                manifest["onnx_difference"] = parity[task] = onnx_parity(source, temporary / ONNX)
                onnxruntime_int8(temporary / ONNX, temporary / ONNX_INT8)
            checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
    manifest = {"schemes": settings.schemes, "onnx_difference": parity, "seconds": time.monotonic() - began}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest
