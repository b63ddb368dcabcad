"""Fingerprints of what a run was given, by content: a file, a model or a data set that was replaced is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from distill import checkpoint
from distill.config import Corpus, Vocabulary
from distill.data import corpus
from distill.data.tasks import TaskData
from distill.plan import STUDENT, TEACHER, Step

KNOWN = ".fingerprints.json"
"""File, in the run folder, with size, time and hash of every file that was read for a fingerprint."""

NAMES = {
    "teacher": "the teacher",
    "student": "the given student",
    "tokenizer": "the student's tokenizer",
    "tasks": "the rows of the tasks",
    "corpus": "the corpus",
}
"""What is given -> how messages call it."""


def needed(step: Step, own_tokenizer: bool) -> list[str]:
    """Names, in `NAMES`, of what a step itself reads. What earlier steps read reaches it through their models.

    own_tokenizer: whether the student's tokenizer is one that was given for itself.
    """
    direct = [source for sources in step.sources.values() for source in sources]
    texts = step.settings.texts if isinstance(step.settings, Vocabulary) else ()
    reads = {
        "teacher": TEACHER in direct,
        "student": STUDENT in direct,
        "tokenizer": step.builder is step and own_tokenizer,
        "tasks": not step.on_corpus,
        "corpus": step.on_corpus or "corpus" in texts,
    }
    return [name for name, reads_it in reads.items() if reads_it]


def of_tasks(tasks: Mapping[str, TaskData]) -> str:
    """Hash of all rows of all tasks, in order."""
    digest = hashlib.sha256()
    for task, data in tasks.items():
        for split, rows in {"train": data.train, **data.validation}.items():
            digest.update(f"{task} {split}".encode())
            table = rows.with_format("arrow")[:]
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, table.schema.remove_metadata()) as writer:
                writer.write_table(table.replace_schema_metadata(None).combine_chunks())
            digest.update(memoryview(stream.getvalue()))
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Hashes:
    """Hashes of files. One of unchanged size and time is read once in a run and not again."""

    folder: Path
    """That of the run, where they are kept."""
    writes: bool
    """Whether this process keeps them."""

    def of_models(self, folders: Iterable[str]) -> str:
        """Of the files that decide what models, or tokenizers, output."""
        return checkpoint.fingerprint([[self._of(file) for file in _files(Path(folder))] for folder in folders])

    def of_corpus(self, wanted: Corpus) -> str:
        """Of the corpus's files; of names and versions where these decide its texts."""
        if wanted.kind in ("parquet", "text"):
            return checkpoint.fingerprint([self._of(file) for file in corpus.files(wanted)])
        return checkpoint.fingerprint(corpus.versions(wanted))

    def _of(self, file: Path) -> list[str]:
        """Name and content hash of a file."""
        known = self.folder / KNOWN
        hashes = checkpoint.read_json(known) if known.is_file() else {}
        key, now = str(file.resolve()), file.stat()
        state = [now.st_size, now.st_mtime_ns]
        if key not in hashes or hashes[key][:2] != state:
            with file.open("rb") as content:
                hashes[key] = [*state, hashlib.file_digest(content, "sha256").hexdigest()]
            if self.writes:
                checkpoint.write_json(known, hashes)
        return [file.name, hashes[key][2]]


def _files(folder: Path) -> list[Path]:
    endings = (".json", ".txt", ".model", ".safetensors")
    files = (path for path in folder.iterdir() if path.suffix in endings and path.name != checkpoint.MANIFEST)
    return [*sorted(files), *sorted(folder.glob("1_Pooling/config.json"))]
