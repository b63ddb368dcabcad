"""Fingerprints of the given models and data, by content, so that a run notices when one was replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distill.config import Corpus
from distill.data import corpus
from distill.data.task import Task
from distill.data.task_types import SECONDS, WORDS
from distill.data.tasks import TaskData
from distill.data.tokens import identity
from distill.models.families.sentence import MODULES
from distill.models.families.weights import READ
from distill.models.teacher.folders import CARD
from distill.runtime import outside
from distill.runtime.storage import atomic, checksums, file_hashes, run_folder
from distill.runtime.versions import source_hash

if TYPE_CHECKING:
    from datasets import Dataset

_AT_ONCE = 8192
"""Rows of tasks that are hashed at once."""


def of_tasks(tasks: Mapping[str, TaskData]) -> str:
    """Hash of all rows of all tasks, in order."""
    digest = hashlib.sha256()
    for task, data in tasks.items():
        digest.update(f"{data.task.kind.name} {data.task.labels} {data.task.metrics}".encode())
        if others := [*_others(data.task), *([] if data.task.in_headline else [("in_headline", False)])]:
            digest.update(repr(others).encode())
        for split, rows in {"train": data.train, **data.development, **data.reported}.items():
            digest.update(f"{task} {split}".encode())
            for part in rows.with_format("arrow").iter(_AT_ONCE):
                digest.update(_bytes(part))
    return digest.hexdigest()[:16]


def _others(task: Task) -> list[tuple[str, Any]]:
    """Names and values of other settings that determine what a task's rows mean, where they are set."""
    return [
        (name, value) for name in ("prompts", "member_prompts", "choices", "range") if (value := getattr(task, name))
    ]


def of_inputs(data: TaskData) -> str:
    """Hash of what a task's model reads and outputs: the texts of all training rows, in order, their prompts, and the
    labels in the order of the outputs."""
    task, digest = data.task, hashlib.sha256()
    digest.update(repr([task.kind.name, task.columns, task.labels, task.outputs, _others(task)]).encode())
    columns = [*task.columns, *(name for name in (WORDS, SECONDS) if name in data.train.column_names)]
    for part in data.train.select_columns(columns).with_format("arrow").iter(_AT_ONCE):
        digest.update(_bytes(part))
    return digest.hexdigest()[:16]


def of_reported(data: TaskData, rows: Dataset) -> str:
    """Hash of the texts of a split's rows, in any order, and of the names of its labels.

    It is the same wherever the files lie, and whatever their columns are called. The labels of the rows are left out:
    rows stay known when some of their labels are corrected. Other rows, one more or one less, have another hash.
    """
    columns = [*data.task.columns, *data.task.kind.layout.content]
    parts = (zip(*(part[name] for name in columns), strict=True) for part in rows.iter(_AT_ONCE))
    each = sorted(hashlib.sha256(json.dumps(row).encode()).hexdigest() for part in parts for row in part)
    return checksums.fingerprint([sorted(data.task.labels), each])


def of_encoded(texts: list[Any], tokenizers: Iterable[Any], sizes: tuple[int, int | None]) -> str:
    """Hash of everything on which an encoded corpus depends: facts on which its texts do, and as `sizes` the maximum
    tokens of a sequence, and of all."""
    code = [source_hash(), outside.code()]
    return checksums.fingerprint([texts, [identity(tokenizer) for tokenizer in tokenizers], sizes, code])


def of_rows(rows: pa.Table) -> str:
    """Hash of all rows of a table, in order."""
    digest = hashlib.sha256()
    for start in range(0, rows.num_rows, _AT_ONCE):
        digest.update(_bytes(rows.slice(start, _AT_ONCE)))
    return digest.hexdigest()[:16]


def _bytes(part: pa.Table) -> memoryview:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, part.schema.remove_metadata()) as writer:
        writer.write_table(part.replace_schema_metadata(None).combine_chunks())
    return memoryview(stream.getvalue())


def of_models(folders: Iterable[str]) -> str:
    """Hash of the files that determine the outputs of models or tokenizers."""
    return checksums.fingerprint([[_hashed(file) for file in model_files(Path(folder))] for folder in folders])


def of_corpus(settings: Corpus) -> str:
    """Hash of the corpus's files, or of the names and versions that determine its texts."""
    if settings.kind in ("parquet", "text"):
        return checksums.fingerprint([_hashed(file) for file in corpus.files(settings)])
    return checksums.fingerprint(corpus.versions(settings))


def _hashed(file: Path) -> list[str]:
    """Name and content hash of a file."""
    return [file.name, file_hashes.sha256(file)]


def model_files(folder: Path) -> list[Path]:
    """The files that loading a model or tokenizer may read.

    These are the files in its folder with the endings in `READ`, the files of an embedder's modules, and the parts of
    its weights. Other files, such as further checkpoints of a training, do not change the model.
    """
    top = [file for file in sorted(folder.iterdir()) if file.suffix in READ and file.name != run_folder.MANIFEST]
    inside = {*folder.glob("1_Pooling/config.json"), *_parts_of_weights(folder)}
    for module in _modules(folder):
        inside |= {file for file in module.rglob("*") if not file.name.startswith(".") and file.name != CARD}
    return [file for file in [*top, *sorted(inside - {*top})] if file.is_file()]


def _modules(folder: Path) -> Iterator[Path]:
    """Folders of an embedder's modules that are inside of its own folder."""
    for module in _listed(folder / MODULES, list):
        path = folder / str(module.get("path", "")) if isinstance(module, dict) else folder
        if folder.resolve() in path.resolve().parents:
            yield path


def _parts_of_weights(folder: Path) -> Iterator[Path]:
    """The files that an index of weights names, wherever they are."""
    for index in folder.glob("*.index.json"):
        parts = _listed(index, dict).get("weight_map")
        yield from {folder / str(part) for part in (parts.values() if isinstance(parts, dict) else ())}


def _listed(file: Path, kind: Callable[[], Any]) -> Any:
    """The content of a JSON file; an empty `kind` if it has another, or none. Loading the model refuses it."""
    try:
        content = atomic.read_json(file) if file.is_file() else None  # a pipe would be waited for
    except (OSError, ValueError, RecursionError):
        return kind()
    return content if isinstance(content, type(kind())) else kind()
