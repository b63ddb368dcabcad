"""Export of a sentence embedder, verified in a fresh process that must compute the same embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from distill.config.plan import EMBEDDER, Step
from distill.data.tasks import TaskData
from distill.deploy.export.embedder import Embedder, export_embedder, vectors
from distill.deploy.export.proof import Artifact, difference, fresh
from distill.evaluation.metrics import METRICS
from distill.models import families, teacher
from distill.models.families.vectors import Vectors, read
from distill.pipeline.artefacts import Exported, Similarity
from distill.pipeline.collect import origin
from distill.pipeline.context import Context
from distill.report import embedder_card
from distill.runtime.storage import run_folder

PROOF_TEXTS, SMOKE_TEXTS = 256, 4
"""Number of texts that verify an export, and under limit=smoke."""


def run(ctx: Context, step: Step) -> Exported:
    """Export the embedder of a step and verify it in a fresh process."""
    source, tokenizer = ctx.checkpoint(step.start), ctx.tokenizer(step.start)
    student, teacher_embedder = _embedder(ctx, source), _embedder(ctx, Path(ctx.given.teacher))
    texts = _texts(ctx.tasks, SMOKE_TEXTS if ctx.config.limit.smoke else PROOF_TEXTS, student.given.prompt)
    ours, theirs = vectors(student, tokenizer, texts), vectors(teacher_embedder, ctx.given.tokenizer, texts)
    measured = Similarity(
        texts=len(texts),
        cosine=float((ours * theirs).sum(1).mean()) if ours.shape == theirs.shape else None,
        spearman={
            task: [_similarity(data, teacher_embedder, ctx.given.tokenizer), _similarity(data, student, tokenizer)]
            for task, data in ctx.tasks.items()
            if data.task.kind.name == "regression" and len(data.task.columns) == 2
        },
    )
    assert isinstance(step.start, Step)
    card = embedder_card(origin(ctx), step.start.stage, asdict(measured))
    with run_folder.writing(ctx.folder.of(step)) as temporary:
        folder = temporary / EMBEDDER
        export_embedder(student, folder, card)
        exported = Exported(largest_difference=_verified(student, tokenizer, texts, folder), similarity=measured)
    ctx.machine.log(f"{step.folder}: {_summary(measured)}")
    return exported


def _verified(embedder: Embedder, tokenizer: Any, texts: list[str], folder: Path) -> float:
    """Largest difference between embeddings in a fresh process and here. Raises UserError if it is above 1e-5.

    A text of one word and one that is too long are added to the texts.
    """
    all_texts = [*texts, *texts[0].split()[:1], " ".join(texts[:1] * embedder.max_length)]
    expected = vectors(embedder, tokenizer, all_texts)
    (got,) = fresh([Artifact("sentence-transformers", folder, folder)], {folder: [[t] for t in all_texts]}, 0, True)
    # The fresh process embeds all texts one by one, then the first ones as one batch.
    return difference(folder, got, np.concatenate([expected, expected[: len(got) - len(all_texts)]]))


def _embedder(ctx: Context, folder: Path) -> Embedder:
    """The model of a folder with the teacher's pooling and maximum length."""
    given = read(ctx.given.teacher) or Vectors()
    longest = teacher.longest(ctx.given.teacher, ctx.given.tokenizer, teacher.read_config(ctx.given.teacher))
    return Embedder(folder, given.pooling, min(longest, families.max_length(teacher.read_config(folder))), given)


def _texts(tasks: Mapping[str, TaskData], count: int, prompt: str) -> list[str]:
    """Texts of the development splits, on which the student was not trained, from each task in turn, after a prompt."""
    columns = [next(iter(data.development.values()))[data.task.columns[0]] for data in tasks.values()]
    # Stripped, because some versions of sentence-transformers do so.
    return [prompt + column[i].strip() for i in range(count) for column in columns if i < len(column)][:count]


def _similarity(data: TaskData, embedder: Embedder, tokenizer: Any) -> float:
    """Spearman correlation, in percent, between the cosines of a task's pairs and their labels, without fine-tuning."""
    rows = next(iter(data.reported.values()))
    prompt = embedder.given.prompt
    columns = ([prompt + text for text in rows[column]] for column in data.task.columns)
    first, second = (vectors(embedder, tokenizer, texts) for texts in columns)
    return 100 * METRICS["spearman"]((first * second).sum(1), np.asarray(rows["label"]))


def _summary(measured: Similarity) -> str:
    cosine = measured.cosine
    parts = (
        [] if cosine is None else [f"mean cosine to the teacher's embeddings {cosine:.3f} on {measured.texts} texts"]
    )
    pairs = [
        f"Spearman of cosines on {task} {ours:.1f}, the teacher's {theirs:.1f}"
        for task, (theirs, ours) in measured.spearman.items()
    ]
    return "; ".join([*parts, *pairs])
