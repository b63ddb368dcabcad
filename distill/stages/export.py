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
    began, tasks, root = time.monotonic(), ctx.tasks[0], ctx.folder / name
    measured = results(ctx) if settings.evaluated is not None else None
    student = " ".join(("student", *name.split("/")[1:]))
    expected = {}
    for task, data in tasks.items():
        source, texts = ctx.checkpoint(settings.start, task), _texts(data)
        card = f"# {task}\n" if measured is None else model_card(measured, student, task)
        export_folder(source, root / task, card)
        expected[root / task] = (texts, plain_logits(source, texts, ctx.config.tasks.max_length))
        if settings.quantized is not None:
            for file in (ONNX, ONNX_INT8):
                made = ctx.folder / settings.quantized / task / file
                if made.is_file():
                    shutil.copy2(made, root / task / file)
    ctx.say(f"{name}: reload of {len(expected)} students in a fresh process")
    proofs = prove_reload(expected, ctx.config.tasks.max_length)
    manifest = {
        "largest_difference": {folder.name: difference for folder, difference in proofs.items()},
        "rows": {folder.name: len(texts) for folder, (texts, _) in expected.items()},
        "seconds": time.monotonic() - began,
    }
    checkpoint.write_json(root / checkpoint.MANIFEST, manifest)
    return manifest


def _texts(data: TaskData) -> list[list[str]]:
    """Real rows of the task: one or two texts each."""
    rows = next(iter(data.validation.values()))
    count = min(PROOF_ROWS, len(rows))
    return [[rows[i][column] for column in data.task.columns] for i in range(count)]
