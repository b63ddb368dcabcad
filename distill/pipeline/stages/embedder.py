"""Export of a sentence embedder, verified in a fresh process that must compute the same embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from distill.config.plan import EMBEDDER, TEACHER, Step
from distill.data.tasks import TaskData
from distill.deploy.export.embedder import Embedder, export_embedder, vectors
from distill.deploy.export.proof import Artifact, difference, fresh
from distill.deploy.export.static import add_static
from distill.evaluation.metrics import METRICS
from distill.evaluation.results import Origin
from distill.evaluation.similarity import Similarity
from distill.models import families, teacher
from distill.models.families import earlier
from distill.models.families.vectors import Vectors, read
from distill.models.student import is_static
from distill.pipeline import openings
from distill.pipeline.artefacts import Exported
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.origin import origin
from distill.pipeline.runtime import Runtime
from distill.report import embedder_card
from distill.runtime.storage import atomic

PROOF_TEXTS, SMOKE_TEXTS = 256, 4
"""Number of texts that verify an export, and under limit=smoke."""


@dataclass(frozen=True)
class EmbedderInputs:
    """What an export step of an embedder reads."""

    name: str
    """Folder of the step, relative to the run folder."""
    stage: str
    """The stage that trained the embedder."""
    models: Checkpoints
    teacher: Checkpoints
    tasks: dict[str, TaskData]
    origin: Origin
    reader: openings.Reader


def inputs(ctx: Context, step: Step) -> EmbedderInputs:
    assert isinstance(step.start, Step)
    return EmbedderInputs(
        name=step.folder,
        stage=step.start.stage,
        models=ctx.models(step.start),
        teacher=ctx.models(TEACHER),
        tasks=ctx.tasks,
        origin=origin(ctx.given, ctx.recipe, ctx.command, ctx.embeds),
        reader=openings.reader(ctx),
    )


def run(inputs: EmbedderInputs, runtime: Runtime) -> Exported:
    """Export the embedder of a step and verify it in a fresh process."""
    source, tokenizer, of_teacher = inputs.models.folder(), inputs.models.tokenizer, inputs.teacher.tokenizer
    student, whole = (_embedder(folder, inputs.teacher) for folder in (source, inputs.teacher.folder()))
    texts = _texts(inputs.tasks, SMOKE_TEXTS if runtime.limit.smoke else PROOF_TEXTS, student.given.prompt)
    ours, theirs = vectors(student, tokenizer, texts), vectors(whole, of_teacher, texts)
    pairs = {task: _read(data) for task, data in inputs.tasks.items() if _is_rated(data)}
    openings.record(runtime.folder, inputs.reader, pairs.values())
    measured = Similarity(
        texts=len(texts),
        cosine=float((ours * theirs).sum(1).mean()) if ours.shape == theirs.shape else None,
        spearman={
            task: [_similarity(data, whole, of_teacher), _similarity(data, student, tokenizer)]
            for task, data in pairs.items()
        },
    )
    card = embedder_card(inputs.origin, inputs.stage, measured, needs_5=earlier.needs_5(source))
    with atomic.writing(runtime.folder / inputs.name) as temporary:
        folder = temporary / EMBEDDER
        export_embedder(student, folder, card)
        exported = Exported(largest_difference=_verified(student, tokenizer, texts, folder), similarity=measured)
        add_static(folder, student.max_length, texts, lambda: ours)
    runtime.machine.log(f"{inputs.name}: {_summary(measured)}")
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


def _embedder(folder: Path, of_teacher: Checkpoints) -> Embedder:
    """The model of a folder with the teacher's pooling and maximum length."""
    whole = str(of_teacher.folder())
    given = read(whole) or Vectors()
    longest = teacher.longest(whole, of_teacher.tokenizer, teacher.read_config(whole))
    config = teacher.read_config(folder)
    pooling = "mean" if is_static(config) else given.pooling
    return Embedder(folder, pooling, min(longest, families.max_length(config)), given)


def _texts(tasks: Mapping[str, TaskData], count: int, prompt: str) -> list[str]:
    """Texts of the development splits, on which the student was not trained, from each task in turn, after a prompt."""
    columns = [next(iter(data.development.values()))[data.task.columns[0]] for data in tasks.values()]
    # Stripped, because some versions of sentence-transformers do so.
    return [prompt + column[i].strip() for i in range(count) for column in columns if i < len(column)][:count]


def _is_rated(data: TaskData) -> bool:
    """Whether a task has pairs of texts with a number that says how similar they are."""
    return data.task.kind.name in ("regression", "embedding") and data.task.in_pairs


def _read(data: TaskData) -> TaskData:
    """With the first reported split alone, which is the one that is scored."""
    return replace(data, reported=dict(list(data.reported.items())[:1]))


def _similarity(data: TaskData, embedder: Embedder, tokenizer: Any) -> float:
    """Spearman correlation, in percent, between the cosines of a task's pairs and their labels, without fine-tuning."""
    rows = next(iter(data.reported.values()))
    prompts = data.task.prompts or [embedder.given.prompt] * 2
    columns = ([prompt + text for text in rows[c]] for prompt, c in zip(prompts, data.task.columns, strict=True))
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
