"""Export stage: the folder a user deploys, for every task, proved in a fresh process."""

from __future__ import annotations

import shutil
import time
from typing import Any

from distill import checkpoint
from distill.config import Export
from distill.data.tasks import TaskData
from distill.export.huggingface import export_folder, plain_logits, prove_reload
from distill.report import model_card
from distill.stages.context import Context
from distill.stages.quantize import ONNX, ONNX_INT8
from distill.stages.results import results

PROOF_ROWS = 16


def run(ctx: Context, name: str, settings: Export) -> dict[str, Any]:
    began, proofs = time.monotonic(), {}
    measured = results(ctx) if settings.evaluated is not None else None
    for task, data in ctx.tasks[0].items():
        folder, source = ctx.folder / name / task, ctx.checkpoint(settings.start, task)
        texts = _texts(data)
        if not checkpoint.finished(folder):
            ctx.say(f"{name}/{task}: reload in a fresh process")
            card = f"# {task}\n" if measured is None else model_card(measured, "student", task)
            expected = plain_logits(source, texts, ctx.config.tasks.max_length)
            export_folder(source, folder, card)
            difference = prove_reload(folder, texts, expected, ctx.config.tasks.max_length)
            if settings.quantized is not None:
                for file in (ONNX, ONNX_INT8):
                    made = ctx.folder / settings.quantized / task / file
                    if made.is_file():
                        shutil.copy2(made, folder / file)
            checkpoint.write_json(folder / checkpoint.MANIFEST, {"largest_difference": difference, "rows": len(texts)})
        proofs[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _texts(data: TaskData) -> list[list[str]]:
    """Real rows of the task: one or two texts each."""
    rows = next(iter(data.validation.values()))
    count = min(PROOF_ROWS, len(rows))
    return [[rows[i][column] for column in data.task.columns] for i in range(count)]
