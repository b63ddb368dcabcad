"""Export of what learned a sentence embedder's vectors on a corpus, and the proof that it gives them elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distill import checkpoint, family, teacher
from distill.config import Export
from distill.data.tasks import TaskData
from distill.evaluate.metrics import spearman
from distill.export.embedder import Embedder, export_embedder, vectors
from distill.export.proof import Artifact, difference, fresh
from distill.plan import EMBEDDER
from distill.report import embedder_card
from distill.stages.context import Context
from distill.stages.results import origin

PROOF_TEXTS, SMOKE_TEXTS = 256, 4


def run(ctx: Context, name: str, settings: Export) -> dict[str, Any]:
    began, tasks = time.monotonic(), ctx.tasks[0]
    folder, source = ctx.folder / name / EMBEDDER, ctx.checkpoint(settings.start)
    _, tokenizer = ctx.tokenizer_of(settings.start)
    student, guide = _embedder(ctx, source), _embedder(ctx, Path(ctx.teacher))
    texts = _texts(tasks, SMOKE_TEXTS if ctx.config.limit.smoke else PROOF_TEXTS)
    said, wanted = vectors(student, tokenizer, texts), vectors(guide, ctx.tokenizer, texts)
    measured = {
        "texts": len(texts),
        "cosine": float((said * wanted).sum(1).mean()) if said.shape == wanted.shape else None,
        "spearman": {
            task: [_alike(data, guide, ctx.tokenizer), _alike(data, student, tokenizer)]
            for task, data in tasks.items()
            if data.task.num_labels == 1 and len(data.task.columns) == 2
        },
    }
    card = embedder_card(origin(ctx), settings.start, measured)
    export_embedder(student, folder, card)
    try:
        proof = {"largest_difference": _proved(student, tokenizer, texts, folder)}
    except BaseException:
        # A folder that is there under its name is one that was proved.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    ctx.say(f"{name}: {_told(measured)}")
    manifest = {"measured": measured, "proofs": {"": proof}, "seconds": time.monotonic() - began}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _proved(embedder: Embedder, tokenizer: Any, texts: list[str], folder: Path) -> float:
    """Largest difference of a vector in a fresh process, one word and the longest text too. UserError above 1e-5."""
    extremes = [*texts, *texts[0].split()[:1], " ".join(texts[:1] * embedder.max_length)]
    expected = vectors(embedder, tokenizer, extremes)
    (got,) = fresh([Artifact("sentence-transformers", folder, folder)], {folder: [[t] for t in extremes]}, 0, True)
    # One by one, then the first ones as one batch.
    return difference(folder, got, np.concatenate([expected, expected[: len(got) - len(extremes)]]))


def _embedder(ctx: Context, folder: Path) -> Embedder:
    # A folder of a newer sentence-transformers has the length in its tokenizer's settings.
    longest = teacher.embedder_length(ctx.teacher) or ctx.tokenizer.model_max_length
    most = family.max_length(teacher.read_config(folder))
    return Embedder(folder, teacher.pooling(ctx.teacher), min(longest, most))


def _texts(tasks: Mapping[str, TaskData], count: int) -> list[str]:
    """Texts of all tasks' validation rows, which were not trained on, in turn."""
    columns = [next(iter(data.validation.values()))[data.task.columns[0]] for data in tasks.values()]
    # Some versions of sentence-transformers strip them.
    return [column[i].strip() for i in range(count) for column in columns if i < len(column)][:count]


def _alike(data: TaskData, embedder: Embedder, tokenizer: Any) -> float:
    """Spearman correlation, in percent, of the cosines of a task's pairs with their labels: nothing was fine-tuned."""
    rows = next(iter(data.validation.values()))
    first, second = (vectors(embedder, tokenizer, list(rows[column])) for column in data.task.columns)
    return 100 * spearman((first * second).sum(1, keepdims=True), np.asarray(rows["label"]))


def _told(measured: dict[str, Any]) -> str:
    cosine = measured["cosine"]
    told = [] if cosine is None else [f"mean cosine to the teacher's vectors {cosine:.3f} on {measured['texts']} texts"]
    pairs = [
        f"Spearman of cosines on {task} {mine:.1f}, the teacher's {whole:.1f}"
        for task, (whole, mine) in measured["spearman"].items()
    ]
    return "; ".join([*told, *pairs])
