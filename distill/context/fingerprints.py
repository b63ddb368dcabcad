"""Fingerprints of the given models and data, by content, so that a run notices when one was replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset

from distill import checkpoint
from distill.config import Config, Corpus, Vocabulary
from distill.data import corpus
from distill.data.tasks import TaskData
from distill.environment import source_hash
from distill.plan import STUDENT, TEACHER, Step

CACHE = ".fingerprints.json"
"""File in the run folder with size, modification time and hash of every fingerprinted file."""

_AT_ONCE = 8192
"""Rows of tasks that are hashed at once."""

NAMES = {
    "teacher": "the teacher",
    "student": "the given student",
    "tokenizer": "the student's tokenizer",
    "tasks": "the rows of the tasks",
    "corpus": "the corpus",
    "unlabelled": "the rows without labels",
}
"""Name of a given model or data set -> its name in messages."""


def needed(step: Step, config: Config) -> list[str]:
    """Names, in `NAMES`, of the given models and data that a step itself reads.

    A change of those that only earlier steps read changes the models of these steps.
    """
    direct = [source for sources in step.sources.values() for source in sources]
    texts = step.settings.texts if isinstance(step.settings, Vocabulary) else ()
    transfer = getattr(step.settings, "transfer", False) and config.transfer.times > 0
    reads = {
        "teacher": TEACHER in direct,
        "student": STUDENT in direct,
        "tokenizer": step.builder is step and config.student.tokenizer is not None,
        "tasks": not step.on_corpus,
        "corpus": step.on_corpus or "corpus" in texts or (transfer and config.transfer.sources.get("corpus", 0) > 0),
        "unlabelled": transfer and config.transfer.files is not None,
    }
    return [name for name, reads_it in reads.items() if reads_it]


def of_tasks(tasks: Mapping[str, TaskData]) -> str:
    """Hash of all rows of all tasks, in order."""
    digest = hashlib.sha256()
    for task, data in tasks.items():
        digest.update(f"{data.task.kind.name} {data.task.labels} {data.task.metrics}".encode())
        for split, rows in {"train": data.train, **data.development, **data.reported}.items():
            digest.update(f"{task} {split}".encode())
            for part in rows.with_format("arrow").iter(_AT_ONCE):
                digest.update(_bytes(part))
    return digest.hexdigest()[:16]


def of_texts(rows: Dataset, columns: Sequence[str]) -> str:
    """Hash of the text columns of all rows of a task, in order."""
    digest = hashlib.sha256()
    for part in rows.select_columns(list(columns)).with_format("arrow").iter(_AT_ONCE):
        digest.update(_bytes(part))
    return digest.hexdigest()[:16]


def of_encoded(texts: list[Any], tokenizers: Iterable[Any], sizes: tuple[int, int | None]) -> str:
    """Hash of what an encoded corpus follows from.

    Args:
        texts: what its texts follow from.
        sizes: maximum tokens of a sequence, and of all.
    """
    tokens = [tokenizer.backend_tokenizer.to_str() for tokenizer in tokenizers]
    return checkpoint.fingerprint([texts, tokens, sizes, source_hash()])


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


@dataclass(frozen=True)
class Hashes:
    """Hashes of files, cached in the run folder: a file whose size and time are unchanged is not read again."""

    folder: Path
    """The run folder."""
    writes: bool
    """Whether this process writes the cache."""

    def of_models(self, folders: Iterable[str]) -> str:
        """Hash of the files that determine the outputs of models or tokenizers."""
        return checkpoint.fingerprint([[self._of(file) for file in _files(Path(folder))] for folder in folders])

    def of_corpus(self, settings: Corpus) -> str:
        """Hash of the corpus's files, or of the names and versions that determine its texts."""
        if settings.kind in ("parquet", "text"):
            return checkpoint.fingerprint([self._of(file) for file in corpus.files(settings)])
        return checkpoint.fingerprint(corpus.versions(settings))

    def _of(self, file: Path) -> list[str]:
        """Name and content hash of a file."""
        cache = self.folder / CACHE
        hashes = checkpoint.read_json(cache) if cache.is_file() else {}
        key, stat = str(file.resolve()), file.stat()
        state = [stat.st_size, stat.st_mtime_ns]
        if key not in hashes or hashes[key][:2] != state:
            with file.open("rb") as content:
                hashes[key] = [*state, hashlib.file_digest(content, "sha256").hexdigest()]
            if self.writes:
                checkpoint.write_json(cache, hashes)
        return [file.name, hashes[key][2]]


def _files(folder: Path) -> list[Path]:
    endings = (".json", ".txt", ".model", ".safetensors")
    files = (path for path in folder.iterdir() if path.suffix in endings and path.name != checkpoint.MANIFEST)
    return [*sorted(files), *sorted(folder.glob("1_Pooling/config.json"))]
