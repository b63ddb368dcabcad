"""Folders of BEIR (Thakur et al. 2021, arXiv 2104.08663) and MTEB: documents, queries and judgements in files of their
own, which become rows of a query, a document and a score.

Judgements name few documents that are not relevant, often none. So documents that are not judged for a query are added
with the score 0, as metrics of BEIR count them: half of them similar to the query, by rare words, the others at random.

Only numbers of rows are in memory. Texts are copied, part by part, from the tables of the files, which are mapped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data import files
from distill.data.files import Table
from distill.data.meant import SPLITS
from distill.data.task_types.regression import numeric
from distill.data.task_types.task_type import is_number, is_text
from distill.errors import DataError

NOT_RELEVANT = 10
"""Documents of a query that are not relevant, judged or not. Those that lack are added."""

POOL = 50_000
"""Documents of the corpus, drawn at random from more, of which some are added."""

_IDS = ("_id", "id")
_TEXT = (*_IDS, "title", "text")
_JUDGED = ("query-id", "corpus-id", "score")
_FOLDERS = ("qrels", "default", "data")
"""Folders with judgements, of which the first that exists is read: BEIR's, and those of MTEB's parquet files."""
_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
_AT_ONCE = 4096
_COLUMNS = pa.schema([("query", pa.string()), ("document", pa.string()), ("score", pa.float64())])


def is_beir(folder: Path) -> bool:
    return bool(_parts(folder, "corpus") and _parts(folder, "queries") and _judgements(folder))


def tables(folder: Path, key: str) -> dict[str, Table]:
    """Name of a file or files of judgements -> rows `query`, `document` and `score`, of splits that are in `SPLITS`.

    Raises:
        DataError: for malformed files, without such a split, and for judgements of texts that are not there.
    """
    judged = _judgements(folder)
    known = {name: parts for name, parts in judged.items() if name.lower() in SPLITS}
    if not known:
        raise DataError(
            f"{folder}: got judgements of {', '.join(judged)}; must be of train, dev or test; rename a file, e.g. "
            "qrels/train.tsv"
        )
    # Other keys, such as metadata, may differ from row to row.
    corpus, queries = (files.read(_parts(folder, name), key, keys=_TEXT) for name in ("corpus", "queries"))
    states = [files.state_of(file) for file in (*corpus.files, *queries.files)]
    found = {}
    for name, parts in sorted(known.items(), key=lambda each: [*SPLITS].index(each[0].lower())):
        judgements = files.read(parts, key, "tab")

        def make(file: Path, judgements: Table = judgements, name: str = name) -> None:
            _write(file, _joined(corpus, queries, judgements, name))

        made_from = ["beir", name, states, [files.state_of(file) for file in parts]]
        table = Table(files.stored(made_from, make), judgements.files, judgements.starts)
        count = judgements.rows.num_rows
        found[name] = table.noted(
            f"{count:,} judgements, and {table.rows.num_rows - count:,} documents that are not judged, added as not "
            f"relevant, so that each query has {NOT_RELEVANT} such documents"
        )
    if others := sorted({*judged} - {*known}):
        first = next(iter(found))
        found[first] = found[first].noted(f"judgements of {', '.join(others)} are left out")
    return found


def _parts(folder: Path, name: str) -> list[str]:
    """The files with the texts of this name: one, or those in a folder of this name."""
    alone = [folder / f"{name}{ending}" for ending in _ENDINGS]
    inside = [file for file in sorted((folder / name).glob("*")) if file.name.endswith(_ENDINGS)]
    return [str(file) for file in (*[file for file in alone if file.is_file()][:1], *inside)]


def _judgements(folder: Path) -> dict[str, list[str]]:
    """Split, as the files call it, -> its files of judgements."""
    for name in _FOLDERS:
        found = dict[str, list[str]]()
        for file in sorted((folder / name).glob("*")):
            if file.name.endswith((".tsv", ".tsv.gz", *_ENDINGS)):
                found.setdefault(re.split(r"[-.]", file.name)[0], []).append(str(file))
        if found:
            return found
    return {}


@dataclass(frozen=True)
class _Texts:
    """The texts of a file or files, by their row."""

    ids: pa.ChunkedArray
    texts: Sequence[tuple[pa.ChunkedArray, ...]]
    """Columns whose texts are put together, of each part of the rows."""
    starts: np.ndarray
    """First row of each part."""
    files: str

    def rows_of(self, wanted: pa.Array) -> np.ndarray:
        """[n] the row with each of these ids, which all differ; -1 where there is none. DataError for an id of two
        rows."""
        rows, start = np.full(len(wanted), -1, np.int64), 0
        for part in self.ids.chunks:
            number = pc.fill_null(pc.index_in(part, value_set=wanted), -1).to_numpy(zero_copy_only=False)
            given = np.flatnonzero(number >= 0)
            again = rows[number[given]] >= 0
            if again.any() or len(np.unique(number[given])) < len(given):
                counted = np.bincount(number[given]) > 1
                twice = int(number[given][again][0]) if again.any() else int(np.flatnonzero(counted)[0])
                raise DataError(
                    f"{self.files}: got two rows with the id {wanted[twice].as_py()!r}; must be one for each id; "
                    "remove or rename one"
                )
            rows[number[given]] = start + given
            start += len(part)
        return rows

    def take(self, rows: np.ndarray) -> pa.Array:
        """The texts of these rows, in this order: the title, if there is one, and the text, as BEIR joins them."""
        order = np.argsort(rows, kind="stable")
        part = np.searchsorted(self.starts, rows[order], side="right") - 1
        found = []
        for number, of_part in zip(*_grouped(part, rows[order]), strict=True):
            inside = pa.array(of_part - self.starts[number])
            columns = [pc.fill_null(column.take(inside), "") for column in self.texts[number]]
            joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " ")
            found.append(pc.utf8_trim_whitespace(joined))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(found).take(pa.array(back))


def _grouped(numbers: np.ndarray, values: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """The different numbers [n], which are in order, and the values [n] of each."""
    distinct, starts = np.unique(numbers, return_index=True)
    return distinct.tolist(), np.split(values, starts[1:])


def _texts(table: Table, name: str) -> _Texts:
    """The texts of the table of this name. Documents may have a title."""
    rows, where = table.rows, ", ".join(table.files)
    column = next((each for each in _IDS if each in rows.column_names), None)
    if column is None or "text" not in rows.column_names:
        raise DataError(
            f"{where}: got columns {', '.join(rows.column_names)}; must have _id and text, as the {name} of BEIR; "
            "rename them"
        )
    titled = name == "corpus" and "title" in rows.column_names and not pa.types.is_null(rows["title"].type)
    columns = ["title", "text"] if titled else ["text"]
    for each in columns:
        if not is_text(rows[each].type):
            raise DataError(f"{where}: got {rows[each].type} in column {each}; must be text; convert it")
    parts = rows.select([column, *columns]).to_batches()
    ids = pa.chunked_array([_ids(part[column], where) for part in parts], pa.string())
    starts = np.cumsum([0, *(part.num_rows for part in parts[:-1])])
    return _Texts(ids, [tuple(part[each].cast(pa.string()) for each in columns) for part in parts], starts, where)


def _ids(column: pa.Array | pa.ChunkedArray, where: str) -> pa.Array:
    """Ids as text; numbers too, as JSON and parquet may have them."""
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"{where}: got ids of the type {column.type}; must be text; write them as text")
    return column.cast(pa.string())


def _joined(corpus: Table, queries: Table, judgements: Table, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a split: its judgements in their order, then the documents that are added."""
    where = ", ".join(judgements.files)
    missing = [column for column in _JUDGED if column not in judgements.rows.column_names]
    if missing:
        raise DataError(
            f"{where}: got columns {', '.join(judgements.rows.column_names)}; must have {', '.join(_JUDGED)}; add a "
            "header with these names"
        )
    scores = _scores(judgements)
    asked, shown = (
        _found(_texts(table, of), judgements.rows[column], where, column)
        for table, of, column in ((queries, "queries", "query-id"), (corpus, "corpus", "corpus-id"))
    )
    more = _added(asked, shown, scores, np.random.default_rng([0, zlib.crc32(name.encode())]))
    rows = np.concatenate([np.stack([asked.rows, shown.rows], axis=1), more])
    scores = np.concatenate([scores, np.zeros(len(more))])
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        texts = asked.texts.take(part[:, 0]), shown.texts.take(part[:, 1])
        yield pa.record_batch([*texts, pa.array(scores[start : start + _AT_ONCE])], schema=_COLUMNS)


def _scores(judgements: Table) -> np.ndarray:
    """[n] the score of each judgement. DataError for one that is no number."""
    column = judgements.rows["score"]
    if is_text(column.type) or is_number(column.type):
        values, bad = numeric(column)
    else:
        values, bad = np.zeros(len(column)), np.ones(len(column), np.bool_)
    if len(wrong := np.flatnonzero(bad | np.isnan(values))):
        row = int(wrong[0])
        raise DataError(
            f"{judgements.where(row)}: got {column[row].as_py()!r} as score; must be a number; correct the row"
        )
    return values


@dataclass(frozen=True)
class _Found:
    """Texts that judgements name."""

    texts: _Texts
    ids: pa.Array
    """Their ids, all different."""
    places: np.ndarray
    """[ids] the row of each."""
    rows: np.ndarray
    """[n] the row of each judgement's text."""


def _found(texts: _Texts, column: pa.ChunkedArray, where: str, name: str) -> _Found:
    """The texts with the ids of a column of judgements. DataError, with their number, for ids that no text has."""
    given = _ids(column, where)
    ids = pc.unique(given.drop_null())
    places = texts.rows_of(ids)
    number = pc.fill_null(pc.index_in(given, value_set=ids), -1).to_numpy()
    rows = np.append(places, -1)[number]
    if len(absent := np.flatnonzero(rows < 0)):
        raise DataError(
            f"{where}: got {len(absent):,} of {len(rows):,} judgements whose {name} is in no row of {texts.files} "
            f"({int((places < 0).sum()):,} of {len(ids):,} ids, e.g. {given[int(absent[0])].as_py()!r}); must all be "
            "there; remove these judgements, or add the texts"
        )
    return _Found(texts, ids, places, rows)


def _added(asked: _Found, shown: _Found, scores: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """[m, 2] rows of a query and of a document that is not judged for it, and has not its id."""
    from distill.data.similar import Index  # with scipy, which other tasks do not need

    order = np.argsort(asked.places)
    queries, itself = asked.places[order], shown.texts.rows_of(asked.ids)[order]
    of_judgement = np.searchsorted(queries, asked.rows)
    lacking = NOT_RELEVANT - np.bincount(of_judgement, scores <= 0, len(queries)).astype(np.int64)
    without = [{own} for own in itself.tolist()]
    for query, row in zip(of_judgement.tolist(), shown.rows.tolist(), strict=True):
        without[query].add(row)
    count = len(shown.texts.ids)
    pool = np.sort(random.choice(count, POOL, replace=False)) if count > POOL else np.arange(count)
    index, found = Index(shown.texts.take(pool).to_pylist()), [np.zeros((0, 2), np.int64)]
    for start in range(0, len(queries), _AT_ONCE):
        numbers = np.flatnonzero(lacking[start : start + _AT_ONCE] > 0) + start
        if not len(numbers):
            continue
        near = pool[index.nearest(asked.texts.take(queries[numbers]).to_pylist(), 2 * NOT_RELEVANT)]
        for number, similar in zip(numbers.tolist(), near, strict=True):
            drawn = _drawn(similar, pool, int(lacking[number]), without[number], random)
            found.append(np.stack([np.full(len(drawn), queries[number]), drawn], axis=1))
    return np.concatenate(found)


def _drawn(
    similar: np.ndarray, pool: np.ndarray, count: int, without: set[int], random: np.random.Generator
) -> np.ndarray:
    """At most `count` rows, half of them of `similar` and the others of `pool`, in random order and each once."""
    first = [row for row in random.permutation(similar).tolist() if row not in without][: count // 2]
    others = random.choice(pool, 4 * count + len(without)).tolist()
    rows = dict.fromkeys(first) | dict.fromkeys(row for row in others if row not in without)
    return np.array([*rows][:count], np.int64)


def _write(file: Path, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, _COLUMNS) as writer:
        for batch in batches:
            writer.write_batch(batch)
