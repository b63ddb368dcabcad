"""The artifacts of an exported model, and the proof that they output what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from distill.config.backends import BACKENDS
from distill.config.schemes import FLOAT_ONNX, ONNX, SCHEMES
from distill.data.task import Task
from distill.deploy import serve
from distill.deploy.export import cross_encoder, onnx, recheck, record
from distill.deploy.export.proof import Artifact, difference, fresh, logits_of
from distill.evaluation.metrics import METRICS
from distill.inference.timing import last_special
from distill.models.families import earlier, sentence, vectors
from distill.runtime.storage.structs import Stored

FLOAT = "torch float"
"""Name of a float model among the artifacts."""


@dataclass(frozen=True)
class File:
    """A model as a step made it, and its place in an exported folder."""

    backend: str
    scheme: str
    """`backend` and `scheme` are its names in results.json."""
    made: Path
    """The file or folder of the step."""
    path: str
    """Its path below the exported folder; `.` for the folder itself."""


class Proof(Stored, frozen=True, kw_only=True):
    """How far the outputs of an artifact are from the expected ones. Differences are the largest of a logit."""

    agreement: float | None
    """Share of rows with the prediction of the float model; None for numbers."""
    rows: int | None = None
    """None, as the differences are, for the heads of several tasks, which have proofs of their own."""
    largest_difference: float | None = None
    """Between a fresh process and the source of the artifact."""
    from_float: float | None = None
    """Between a fresh process and the float model."""


def float_model(checkpoint: Path) -> File:
    """A float model, which is the exported folder itself."""
    return File("torch", "fp32", checkpoint, ".")


def files_in(folder: Path, schemes: Sequence[str]) -> Iterator[File]:
    """The files that a quantize step has for a task: the float32 ONNX file and the models in these schemes."""
    if (folder / ONNX).is_file():
        yield File(*FLOAT_ONNX, folder / ONNX, f"onnx/{ONNX}")
    for scheme in (SCHEMES[name] for name in schemes):
        if (folder / scheme.file).exists():
            path = f"onnx/{scheme.file}" if Path(scheme.file).suffix == Path(ONNX).suffix else scheme.file
            yield File(scheme.backend, scheme.scheme, folder / scheme.file, path)


@dataclass(frozen=True)
class Exported:
    """One artifact of the model of a task, or of all tasks."""

    task: str
    backend: str
    scheme: str
    path: str
    source: Artifact
    """The artifact in the folder of the step that produced it."""
    copy: Artifact
    """The artifact in the exported folder."""

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return FLOAT if self.path == "." else f"{self.backend} {self.scheme}"


def exported(task: str, file: File, tokenizer: Path, out: Path, tokenizer_out: Path) -> Exported:
    """A file that was copied to the folder `out`. Folders of its tokenizer: of the step, and the exported one."""
    loader = BACKENDS[file.backend].reloader or BACKENDS[file.backend].runtime
    source, copy = Artifact(loader, file.made, tokenizer), Artifact(loader, out / file.path, tokenizer_out)
    return Exported(task, file.backend, file.scheme, file.path, source, copy)


def configure(folder: Path, task: Task, teachers: Sequence[Path], longest: int) -> None:
    """Write what the libraries that load an exported float model have to know besides its config: of an embedder its
    prompts, of a reranker or a cross-encoder the activation of its teachers, and of both their length; and the settings
    of version 4 of transformers in each config."""
    earlier.complete(folder)
    if task.kind.separate:
        student, given = vectors.read(folder) or vectors.Vectors(), vectors.read(teachers[0]) or vectors.Vectors()
        vectors.finish(folder, longest, vectors.with_prompts(student, given, task.prompts, task.kind.grouped))
    elif task.kind.pipeline == cross_encoder.PIPELINE:
        cross_encoder.configure(folder, cross_encoder.activation(teachers))
    elif task.kind.name == "regression" and sentence.of_cross_encoder(folder):
        # The teacher's config states it, and the student has this config.
        cross_encoder.configure(folder, cross_encoder.IDENTITY)
    if not task.kind.separate and sentence.of_cross_encoder(folder):
        cross_encoder.limit_length(folder, longest)


def verified(
    artifacts: Sequence[Exported], tasks: Mapping[str, Task], texts: Mapping[str, list[list[str]]], longest: int
) -> dict[str, dict[str, Proof]]:
    """Task -> artifact -> its proof.

    Args:
        artifacts: the float model of each task before its other artifacts. An artifact whose `task` is none of `tasks`
            has the heads of all of them, on the same texts.
        texts: for each `task` of the artifacts.
        longest: number of tokens to which texts are truncated.

    Raises:
        UserError: if a difference is too large.
    """
    texts_of_folder = {artifact.copy.tokenizer: texts[artifact.task] for artifact in artifacts}
    with ThreadPoolExecutor(1) as pool:
        fresh_process = pool.submit(fresh, [artifact.copy for artifact in artifacts], texts_of_folder, longest, True)
        expected_logits = [logits_of(artifact.source, texts[artifact.task], longest, True) for artifact in artifacts]
        logits = fresh_process.result()
    proofs: dict[str, dict[str, Proof]] = {artifact.task: {} for artifact in artifacts}
    float_logits: dict[str, np.ndarray] = {}
    for artifact, got, expected in zip(artifacts, logits, expected_logits, strict=True):
        if artifact.path == ".":
            float_logits[artifact.task] = expected
        of_all = artifact.task not in tasks
        in_float = np.concatenate([*float_logits.values()], axis=-1) if of_all else float_logits[artifact.task]
        if (artifact.backend, artifact.scheme) == FLOAT_ONNX:
            difference(artifact.copy.path, got, in_float, onnx.TOLERANCE)
        agree = _agreement_of_all([*tasks.values()], got, in_float) if of_all else None
        proofs[artifact.task][artifact.name] = Proof(
            agreement=agree if of_all else _agreement(tasks[artifact.task], got, in_float),
            rows=len(texts[artifact.task]),
            largest_difference=difference(artifact.copy.path, got, expected),
            from_float=float(np.abs(got - in_float).max()),
        )
    return proofs


def _agreement_of_all(tasks: Sequence[Task], outputs: np.ndarray, expected: np.ndarray) -> float | None:
    """`_agreement` of the worst task, from the outputs of all heads side by side."""
    ends = np.cumsum([task.outputs for task in tasks])[:-1]
    parts = zip(tasks, np.split(outputs, ends, axis=-1), np.split(expected, ends, axis=-1), strict=True)
    return min((share for part in parts if (share := _agreement(*part)) is not None), default=None)


def _agreement(task: Task, outputs: np.ndarray, expected: np.ndarray) -> float | None:
    """Share of rows with the same prediction; None for numbers."""
    both = (task.predictions(values.reshape(-1, task.outputs)) for values in (outputs, expected))
    return METRICS["accuracy"](*both) if task.kind.named else None


def loads_elsewhere(artifact: Exported, texts: list[list[str]], longest: int) -> None:
    """Raise UserError if sentence-transformers, where it is installed, makes other vectors of the exported float
    model."""
    if find_spec("sentence_transformers") is None:
        return
    from tokenizers.normalizers import Lowercase

    folder, stripped = artifact.copy.path, [[text.strip()] for (text,) in texts]  # as some versions of it do
    (got,) = fresh([Artifact("sentence-transformers", folder, folder)], {folder: stripped}, longest)
    if sentence.reading(folder).lower:  # which the tokenizer's own files may not state
        stripped = [[Lowercase().normalize_str(text)] for (text,) in stripped]
    difference(folder, got, logits_of(artifact.source, stripped, longest))


def store_check(folder: Path, entries: Sequence[record.Entry], tokenizer: Any, longest: int, threads: int) -> None:
    """Store rows by which `distill.load` checks the quantized artifacts of a folder on another processor, if it has
    any."""
    checked = [entry for entry in entries if recheck.is_checked(entry.scheme)]
    if not checked:
        return
    rows = recheck.rows(len(tokenizer), tokenizer.all_special_ids, last_special(tokenizer), longest)
    outputs = {}
    for entry in checked:
        model = serve.load(folder, backend=entry.backend, scheme=entry.scheme, threads=threads)
        run = model.model.run if isinstance(model, serve.Heads) else model.run
        outputs[entry.name] = recheck.outputs(run, rows)
    recheck.write(folder, recheck.Check(rows, outputs))
