"""The transfer set of each task of a run: made once, stored in the run folder, and added to the rows of a training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as replace_struct

from distill.config import Transfer
from distill.data.files import Table
from distill.data.held_out import Apart, parts_of
from distill.data.listed import listed
from distill.data.near import NearCopies, normalized
from distill.data.similar import similar_words
from distill.data.task_model import load_for
from distill.data.task_types import MISSING, TaskType
from distill.data.task_types.layout import Making
from distill.data.task_types.task_type import SOFT
from distill.data.task_types.words import LETTER, MARKS, UNSPACED
from distill.data.tasks import TaskData, targets_of
from distill.data.transfer import HeldOut, Pool, Row, made, pieces, texts_of
from distill.inference.masked_lm import MaskedLm
from distill.models import teacher
from distill.pipeline.artefacts import TransferSet
from distill.pipeline.context.folder import TRANSFER
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.prepare import frozen
from distill.runtime import progress
from distill.runtime.storage import atomic, run_folder, structs

if TYPE_CHECKING:
    from datasets import Dataset

MOST_OWN = 50_000
"""Rows of each task from which transfer sets are made, drawn at random from more."""

MOST_SENTENCES = 100_000
SENTENCE = (20, 300)
"""Least and most characters of a sentence of the corpus."""

_ENDS = re.compile(r"(?<=[.!?؟।…])\s+|(?<=[。！？｡])(?![。！？｡”’」』）])|(?<=[。！？｡][”’」』）])")
"""Where a sentence of the corpus ends. Scripts without spaces between words have none between sentences."""

MOST_WORDS = 20_000
"""Words, the most frequent first, for which similar ones are found."""

SIMILAR = 8
"""Number of similar words for each word."""

_SIMILAR = re.compile(rf"{LETTER}|(?:[^\W\d_{UNSPACED}][{MARKS}]*){{2,}}")
"""A word that has similar ones: letters, or one letter of a script without spaces between words."""

ROWS = "rows.json"


@dataclass(frozen=True)
class Sources:
    """What the transfer sets of all tasks are made from."""

    settings: Transfer
    tasks: Mapping[str, TaskData]
    held_out: Apart
    """What development and reported splits have."""
    unlabelled: Table | None
    """The rows of `transfer.files`."""
    texts: Callable[[], Iterable[str]]
    """Returns the documents of the corpus."""
    given: str
    """Folder of the given teacher, by whose embeddings words are similar."""
    tokenizer: Any
    """Tokenizer of that teacher."""
    masked_lm: str | None = None
    """Folder of the masked language model that replaces words; None without one."""

    @cached_property
    def near(self) -> NearCopies:
        """The held-out texts, of which near copies are found. Made once for all tasks."""
        return NearCopies(sorted(self.held_out.texts))


def makes(kind: TaskType) -> bool:
    """Whether transfer sets are made for a kind of task."""
    return kind.layout.making is not None


def extended(sources: Sources, data: TaskData, count: int, runtime: Runtime) -> tuple[TaskData, TransferSet]:
    """The task with at most `count` rows of its transfer set after its training rows, and a description of the set."""
    every, found = transfer_rows(sources, data, runtime)
    rows = every[:count]
    made = replace_struct(found, used=len(rows))
    if not rows:
        return data, made
    from datasets import Dataset, concatenate_datasets

    schema = data.train.data.table.schema
    given = _making(data).columns(data.task.columns, rows)
    columns: dict[str, Any] = {name: pa.array(values, schema.field(name).type) for name, values in given.items()}
    for name in {"label", *([SOFT] if SOFT in schema.names else [])} - columns.keys():
        columns[name] = _missing(schema.field(name).type, len(rows))
    table = pa.table(columns)
    own = data.train.select_columns(table.column_names)
    added = Dataset(table, info=own.info, fingerprint=f"transfer-{len(rows)}")
    return replace(data, train=concatenate_datasets([own, added])), made


def _missing(kind: pa.DataType, count: int) -> pa.Array:
    """Targets of rows without a label. Lists of any length are empty."""
    if pa.types.is_list(kind):
        return pa.array([[]] * count, kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_missing(kind.value_type, count * kind.list_size), kind.list_size)
    return pa.array(np.full(count, np.nan if pa.types.is_floating(kind) else MISSING), kind)


def transfer_rows(sources: Sources, data: TaskData, runtime: Runtime) -> tuple[list[Row], TransferSet]:
    """The rows of a task's transfer set, and where they come from. The main process makes them, on first use."""
    name, folder = data.task.name, runtime.folder / TRANSFER / data.task.name
    with runtime.machine.main_first():
        if not run_folder.finished(folder):
            settings = sources.settings
            count = min(round(settings.times * len(data.train)), settings.most)
            with progress.counted(f"{name}: making rows without labels", count) as done:
                predicted = _masked_lm(sources, runtime)
                pool = replace(_pool(sources, data, runtime.seed), predicted=predicted)
                random = np.random.default_rng(runtime.seed)
                shares = {name: settings.sources.get(name, 0) for name in _making(data).sources}
                result = made(pool, shares, count, _held_out(sources, data, pool), random, done)
            with atomic.writing(folder) as temporary:
                atomic.write_json(temporary / ROWS, result.rows)
                share = predicted.found / predicted.asked if predicted is not None and predicted.asked else None
                found = TransferSet(
                    own=len(data.train), sources=result.counts, held_out=result.held_out, predicted=share
                )
                structs.write(temporary / run_folder.MANIFEST, found)
            runtime.machine.log(described(name, found))
    stored = atomic.read_json(folder / ROWS)
    rows = [tuple(tuple(part) if isinstance(part, list) else part for part in row) for row in stored]
    return rows, structs.read(folder / run_folder.MANIFEST, TransferSet)


def described(task: str, made: TransferSet) -> str:
    """A line on the contents of a transfer set."""
    counts = made.sources
    named = {
        "files": "of transfer.files",
        "tasks": "of the other tasks",
        "corpus": "of the corpus",
        "pairs": "of its texts paired anew",
        "spans": "of its texts with other spans",
        "edits": "of its texts edited",
    }
    parts = ", ".join(f"{count:,} {named[source]}" for source, count in counts.items())
    text = (
        f"{task}: besides {made.own:,} training rows, there are {sum(counts.values()):,} rows without labels, "
        f"which the teacher labels for the student: {parts or 'none'}; {made.held_out:,} others are left out, "
        "because one of their texts is, or is nearly, a text of a development or reported split"
    )
    if made.held_out > sum(counts.values()):
        text += (
            ". These are more than are kept: the training rows and those splits have nearly the same texts, or "
            "transfer.files has texts of the splits"
        )
    if made.predicted is not None:
        text += (
            f". transfer.masked_lm predicted {100 * made.predicted:.0f}% of the words that edits were to replace. A "
            "word without a prediction was replaced by a similar word if the teacher has it as one token, and "
            "otherwise it stayed"
        )
    return text


def _held_out(sources: Sources, data: TaskData, pool: Pool) -> HeldOut:
    """What no row of a task's transfer set may have. Only rows of several texts may have held-out texts."""
    if not pool.own or len(pool.own[0]) == 1:
        return HeldOut(sources.near)
    rows = sources.held_out.rows[data.task.name]
    return HeldOut(sources.near, rows, frozenset(map(normalized, _texts(data))))


def _texts(data: TaskData) -> set[str]:
    """The texts of all training rows of a task."""
    return {text for column in data.task.columns for text in data.train[column][:]}


def _making(data: TaskData) -> Making:
    making = data.task.kind.layout.making
    assert making is not None
    return making


def _pool(sources: Sources, data: TaskData, seed: int) -> Pool:
    """The sources from which rows of a task are made."""
    shares, making = sources.settings.sources, _making(data)
    chosen = _chosen(data, seed)
    own = parts_of(data.task, chosen)

    def part(text: str) -> Any:
        return making.part(text, own)

    others = [other for other in sources.tasks.values() if other is not data and makes(other.task.kind)]
    spans = making.spans is not None and making.spans(own, targets_of(chosen), data.task.labels)
    return Pool(
        own,
        _of_files(sources.unlabelled, data.task.columns, making, own),
        [row for other in others for row in _fitting(parts_of(other.task, _chosen(other, seed)), other, data, own)],
        _sentences(sources.texts()) if shares.get("corpus") and data.task.kind.layout.makes("corpus") else (),
        _words(sources.given, sources.tokenizer, data, own) if shares.get("edits") else None,
        spans or (),
        part,
    )


def _masked_lm(sources: Sources, runtime: Runtime) -> MaskedLm | None:
    """What predicts words in place of others; None without a masked language model, and without edits."""
    if sources.masked_lm is None or not sources.settings.sources.get("edits"):
        return None
    model, stored = teacher.load_mlm(sources.masked_lm)
    assert stored  # checked before the run began
    tokenizer = teacher.load_tokenizer(sources.masked_lm)
    return MaskedLm(frozen(model, runtime.machine), tokenizer, runtime.longest)


def _chosen(data: TaskData, seed: int) -> Dataset:
    """A task's training rows, or a random part if there are very many."""
    rows = data.train
    if len(rows) > MOST_OWN:
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:MOST_OWN]))
    return rows


def _fitting(rows: list[Row], other: TaskData, data: TaskData, own: list[Row]) -> list[Row]:
    """Rows of another task as rows of a task: each of their texts where a row is one text, else rows of the same parts.
    Embedders learn from any two texts."""
    making = _making(data)
    texts = list(dict.fromkeys(text for row in rows for text in texts_of(row)))
    if len(own[0]) == 1:
        return [(making.part(text, own),) for text in texts]
    if other.task.kind.architecture == data.task.kind.architecture:
        return [row for row in rows if len(row) == len(own[0])]
    return list(zip(texts[::2], texts[1::2], strict=False)) if making.any_texts else []


def _of_files(table: Table | None, columns: tuple[str, ...], making: Making, own: list[Row]) -> list[Row]:
    """Rows of `transfer.files` for a task with these text columns and rows; empty if the files lack the columns. If
    any two texts are a row, one of the columns is enough, whose texts are paired. Only rows in words may be lists."""
    names = [] if table is None else [name for name in columns if name in table.rows.column_names]
    if table is None or len(names) < making.least_columns(len(columns)):
        return []

    def part(text: Any) -> Any:
        if isinstance(text, str) and text.strip():
            return making.part(text, own)
        return tuple(text) if making.spans is not None and _in_words(text) else None

    columns_of = (table.rows[name] for name in names)
    if making.spans is not None:  # lists of words may be written as text
        columns_of = (column if (lists := listed(column)) is None else lists for column in columns_of)
    values = zip(*(column.to_pylist() for column in columns_of), strict=True)
    rows = [row for row in (tuple(map(part, row)) for row in values) if None not in row]
    if len(names) == len(columns):
        return rows
    texts = [text for (text,) in rows]
    return list(zip(texts[::2], texts[1::2], strict=False))


def _in_words(text: Any) -> bool:
    return isinstance(text, list) and all(isinstance(word, str) for word in text)


def _sentences(texts: Iterable[str]) -> list[str]:
    """Sentences of the corpus, of suitable length."""
    least, most = SENTENCE
    found: dict[str, None] = {}
    for text in texts:
        parts = (part.strip() for part in _ENDS.split(text))
        found |= dict.fromkeys(part for part in parts if least <= len(part) <= most)
        if len(found) >= MOST_SENTENCES:
            break
    return list(found)[:MOST_SENTENCES]


def _words(given: str, tokenizer: Any, data: TaskData, own: list[Row]) -> dict[str, list[str]]:
    """Word of the task -> words of the task with similar embeddings in the teacher; only words of a single token."""
    counted = Counter(word for row in own for text in pieces(row) for word in _SIMILAR.findall(text))
    words = [word for word, _ in counted.most_common(MOST_WORDS)]
    if not words:  # of texts in digits alone; transformers fails on a list without texts
        return {}
    # With the space before a word, byte-level tokenizers encode it as inside a text.
    ids = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    single = {word: tokens[0] for word, tokens in zip(words, ids, strict=True) if len(tokens) == 1}
    single = {word: token for word, token in single.items() if token != tokenizer.unk_token_id}
    model = load_for(data.task, given, pad_id=tokenizer.pad_token_id)
    matrix = model.get_input_embeddings().weight.detach().float().numpy()
    return similar_words(list(single), matrix[list(single.values())], SIMILAR)
