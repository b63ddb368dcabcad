"""Folders of BEIR (Thakur et al. 2021, arXiv 2104.08663) and MTEB: documents, queries and judgements in files of their
own, which become rows of a query, a document and a score.

Judgements name few documents that are not relevant, often none. So documents that are not judged for a query are added
with the score 0, as metrics of BEIR count them: half of them similar to the query, by rare words, the others at random.

Only numbers of rows are in memory. Texts are copied, part by part, from the tables of the files, which are mapped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data import files
from distill.data.about import About, about, with_about
from distill.data.files import Table
from distill.data.judged_texts import IDS, Texts, ids_of, is_id, texts_in
from distill.data.task_types.regression import numeric
from distill.data.task_types.task_type import is_number, is_text
from distill.errors import DataError
from distill.runtime import progress

NOT_RELEVANT = 10
"""Documents of a query that are not relevant, judged or not. Those that lack are added."""

POOL = 50_000
"""Documents of the corpus, drawn at random from more, of which some are added."""

_TEXT = (*IDS, "title", "text")
_JUDGED = ("query-id", "corpus-id", "score")
_FOLDERS = ("qrels", "default", "data")
"""Folders with judgements, of which the first that exists is read: BEIR's, and those of MTEB's parquet files."""
_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
_JUDGED_ENDINGS = (".tsv", ".tsv.gz", *_ENDINGS)
_AT_ONCE = 4096
_COLUMNS = pa.schema([("query", pa.string()), ("document", pa.string()), ("score", pa.float64()), ("row", pa.int64())])


def is_beir(folder: Path) -> bool:
    return bool(_parts(folder, "corpus") and _parts(folder, "queries") and _judgements(folder))


def splits(folder: Path) -> list[str]:
    """Splits with judgements, as the files call them."""
    return [*_judgements(folder)]


def tables(folder: Path, names: Sequence[str], key: str) -> dict[str, Table]:
    """Split -> rows `query`, `document` and `score`. `names`: some of `splits`.

    Raises:
        DataError: for malformed files, for judgements of texts that are not there, and for files that change meanwhile.
    """
    judged, texts = _judgements(folder), [_parts(folder, name) for name in ("corpus", "queries")]
    every = [*texts[0], *texts[1], *chain.from_iterable(judged.values())]
    states = {file: files.state_of(file) for file in every}
    # Other keys, such as metadata, may differ from row to row.
    corpus, queries = (files.read(parts, key, keys=_TEXT) for parts in texts)
    judgements = {name: files.read(judged[name], key, "tab") for name in names}
    unwanted = [_if_readable(each, key) for name, each in judged.items() if name not in names]
    if changed := [file for file in every if files.state_of(file) != states[file]]:
        raise files.changing(changed[0])
    found = {}
    for name in names:
        table, others = judgements[name], [each for split, each in judgements.items() if split != name]
        others += [each for each in unwanted if each is not None]

        def make(file: Path, table: Table = table, name: str = name, others: Sequence[Table] = others) -> None:
            _write(file, *_joined(corpus, queries, table, others, name))

        of_texts = [states[file] for parts in texts for file in parts]
        of_judged = [[split, [states[file] for file in each]] for split, each in judged.items()]
        rows = files.stored(["beir", name, of_texts, of_judged], make)
        kept = rows["row"].to_numpy()
        found[name] = Table(rows.drop_columns("row"), table.files, table.starts, table.about, kept)
        for note in (*about(rows.schema).notes, *_unread(folder, [name], judged)):
            found[name] = found[name].noted(note)
    for note in _unread(folder, {*_judgement_files(folder)} - {*judged}, judged):
        found[names[0]] = found[names[0]].noted(note)
    return found


def _if_readable(judged: Sequence[str], key: str) -> Table | None:
    """Judgements of a split that is not read otherwise, so that a fault in them is none of the run's."""
    try:
        return files.read(judged, key, "tab")
    except DataError:
        return None


def _parts(folder: Path, name: str) -> list[str]:
    """The files with the texts of this name: one, or those in a folder of this name."""
    alone = [[file] for ending in _ENDINGS if (file := folder / f"{name}{ending}").is_file()]
    inside = [parts for ending in _ENDINGS if (parts := _files(folder / name, ending))]
    return [str(file) for file in next(iter([*alone, *inside]), [])]


def _files(folder: Path, ending: str) -> list[Path]:
    """The files that end so, without hidden ones, such as macOS writes beside others."""
    return [file for file in sorted(folder.glob(f"*{ending}")) if not file.name.startswith(".")]


def _judgements(folder: Path) -> dict[str, list[str]]:
    """Split, as the files call it, -> its files of judgements, which have one ending."""
    for name in _FOLDERS:
        found = dict[str, list[str]]()
        for ending in _JUDGED_ENDINGS:
            given = dict[str, list[str]]()
            for file in _files(folder / name, ending):
                given.setdefault(_split(file), []).append(str(file))
            found = given | found
        if found:
            return found
    return {}


def _split(file: Path) -> str:
    """Split of a file with judgements, which may be one of several with its rows."""
    return re.sub(r"(-\d+)?(-of-\d+)?(\.tsv|\.jsonl|\.parquet)(\.gz)?$", "", file.name)


def _judgement_files(folder: Path) -> dict[str, list[Path]]:
    """Split -> all files with its judgements, including files that are not read."""
    found = dict[str, list[Path]]()
    for file in (file for each in _FOLDERS for ending in _JUDGED_ENDINGS for file in _files(folder / each, ending)):
        found.setdefault(_split(file), []).append(file)
    return found


def _unread(folder: Path, names: Collection[str], judged: Mapping[str, Sequence[str]]) -> list[str]:
    """A line about files with judgements of these splits that are not read, if there are any."""
    every = chain.from_iterable(each for name, each in _judgement_files(folder).items() if name in names)
    left = [file for file in every if str(file) not in judged.get(_split(file), ())]
    shown = ", ".join(str(file.relative_to(folder)) for file in left)
    return [f"not read, because of another ending or folder: {shown}"] if left else []


def _joined(
    corpus: Table, queries: Table, judgements: Table, others: Sequence[Table], name: str
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, with notes, and the rows of a split: its judgements in their order, then the documents that are
    added, whose `row` is -1. `others`: judgements of the other splits."""
    where = ", ".join(judgements.files)
    missing = [column for column in _JUDGED if column not in judgements.rows.column_names]
    if missing:
        raise DataError(
            f"{where}: got columns {', '.join(judgements.rows.column_names)}; must have {', '.join(_JUDGED)}; add a "
            "header with these names"
        )
    scores = _scores(judgements)
    asked, shown = (
        _found(texts_in(table, of), judgements.rows[column], where, column)
        for table, of, column in ((queries, "queries", "query-id"), (corpus, "corpus", "corpus-id"))
    )
    # The loader of BEIR keeps the last judgement of a pair.
    _, last = np.unique((asked.rows * len(shown.texts.ids) + shown.rows)[::-1], return_index=True)
    judged = np.sort(len(scores) - 1 - last)
    notes = list[str]()
    if again := len(scores) - len(judged):
        notes.append(f"{again:,} judgements of a pair that is judged again later are left out")
    asked, shown = (replace(each, rows=each.rows[judged]) for each in (asked, shown))
    themselves = _themselves(asked, shown)
    if len(among := np.flatnonzero(np.isin(shown.rows, themselves[:, 1]))):
        notes.append(
            f"{len(among):,} judgements are of documents that are queries too, which BEIR leaves out of what such a "
            "query finds; here a search finds them"
        )
    elsewhere = _elsewhere(asked.texts, shown.texts, others)
    random = np.random.default_rng([0, zlib.crc32(name.encode())])
    more = _added(asked, shown, scores[judged], themselves, elsewhere, random)
    notes.append(
        f"{len(judged):,} judgements, and {len(more):,} documents that are not judged, added as not relevant, so that "
        f"each query has up to {NOT_RELEVANT} such documents"
    )
    rows = np.concatenate([np.stack([asked.rows, shown.rows], axis=1), more])
    values = pa.array(np.concatenate([scores[judged], np.zeros(len(more))]))
    numbers = pa.array(np.concatenate([judged, np.full(len(more), -1)]))
    schema = with_about(_COLUMNS, About(notes=tuple(notes)))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            texts = asked.texts.take(part[:, 0]), shown.texts.take(part[:, 1])
            others = (values.slice(start, _AT_ONCE), numbers.slice(start, _AT_ONCE))
            yield pa.record_batch([*texts, *others], schema=schema)

    return schema, batches()


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

    texts: Texts
    ids: pa.Array
    """Their ids, all different."""
    places: np.ndarray
    """[ids] the row of each."""
    rows: np.ndarray
    """[n] the row of each judgement's text."""


def _found(texts: Texts, column: pa.ChunkedArray, where: str, name: str) -> _Found:
    """The texts with the ids of a column of judgements. DataError, with their number, for ids that no text has."""
    given = ids_of(column, where)
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


def _themselves(asked: _Found, shown: _Found) -> np.ndarray:
    """[m, 2] rows of a query and of a document that has its id and contains its text."""
    own = shown.texts.rows_of(asked.ids)
    pairs, found = np.stack([asked.places, own], axis=1)[own >= 0], [np.zeros((0, 2), np.int64)]
    for start in range(0, len(pairs), _AT_ONCE):
        part = pairs[start : start + _AT_ONCE]
        texts = zip(asked.texts.take(part[:, 0]).to_pylist(), shown.texts.take(part[:, 1]).to_pylist(), strict=True)
        found.append(part[[query in document for query, document in texts]])
    return np.concatenate(found)


def _elsewhere(queries: Texts, corpus: Texts, others: Sequence[Table]) -> np.ndarray:
    """[n, 2] rows of the queries and documents that other splits judge, as far as their texts are there."""
    found = [np.zeros((0, 2), np.int64)]
    for table in others:
        columns = {*table.rows.column_names}
        if not {*_JUDGED[:2]} <= columns or not all(is_id(table.rows[name].type) for name in _JUDGED[:2]):
            continue
        where, places = ", ".join(table.files), []
        for texts, name in zip((queries, corpus), _JUDGED[:2], strict=True):
            given = ids_of(table.rows[name], where)
            ids = pc.unique(given.drop_null())
            number = pc.fill_null(pc.index_in(given, value_set=ids), -1).to_numpy()
            places.append(np.append(texts.rows_of(ids), -1)[number])
        found.append(np.stack(places, axis=1)[(places[0] >= 0) & (places[1] >= 0)])
    return np.concatenate(found)


def _added(
    asked: _Found,
    shown: _Found,
    scores: np.ndarray,
    themselves: np.ndarray,
    elsewhere: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """[m, 2] rows of a query and of a document whose text is not judged for a query of this text, in no split, and that
    is no query itself.

    Args:
        themselves: [k, 2] rows of a query and of the document that it is.
        elsewhere: [k, 2] rows of a query and of a document that another split judges.
    """
    from distill.data.similar import Index  # with scipy, which other tasks do not need

    # Queries with the same text are one query, and documents with the same text one document.
    order = np.argsort(asked.places)
    texts = asked.texts.take(asked.places[order]).dictionary_encode()
    of_place = texts.indices.to_numpy()
    queries = asked.places[order][np.unique(of_place, return_index=True)[1]]
    of_judgement = of_place[np.searchsorted(asked.places[order], asked.rows)]
    pool = np.setdiff1d(np.arange(len(shown.texts.ids)), themselves[:, 1])
    pool = np.sort(random.choice(pool, POOL, replace=False)) if len(pool) > POOL else pool
    places = dict(zip(reversed(shown.texts.take(pool).to_pylist()), reversed(pool.tolist()), strict=True))
    # The texts of queries may be there under other ids, or under one id for each split.
    for text in ("", *shown.texts.take(themselves[:, 1]).to_pylist()):
        places.pop(text, None)
    pool = np.sort(np.fromiter(places.values(), np.int64))
    if not len(pool):
        return np.zeros((0, 2), np.int64)
    own = shown.texts.rows_of(asked.ids)[order]  # documents with the ids of queries
    others, of_other = np.unique(elsewhere[:, 0], return_inverse=True)
    of_others = pc.fill_null(pc.index_in(asked.texts.take(others), texts.dictionary), -1).to_numpy()[of_other]
    judged = np.concatenate([shown.rows, own[own >= 0], elsewhere[of_others >= 0, 1]])
    asking = np.concatenate([of_judgement, of_place[own >= 0], of_others[of_others >= 0]]).tolist()
    without: list[set[int | None]] = [set() for _ in queries]
    for query, row in zip(asking, _with_text(shown.texts, judged, places), strict=True):
        without[query].add(row)
    lacking = NOT_RELEVANT - np.bincount(of_judgement, scores <= 0, len(queries)).astype(np.int64)
    index, found = Index(shown.texts.take(pool).to_pylist()), [np.zeros((0, 2), np.int64)]
    with progress.counted("adding documents to queries", len(queries)) as done:
        for start in range(0, len(queries), _AT_ONCE):
            done(min(_AT_ONCE, len(queries) - start))
            numbers = np.flatnonzero(lacking[start : start + _AT_ONCE] > 0) + start
            if not len(numbers):
                continue
            near = pool[index.nearest(asked.texts.take(queries[numbers]).to_pylist(), 2 * NOT_RELEVANT)]
            for number, similar in zip(numbers.tolist(), near, strict=True):
                drawn = _drawn(similar, pool, int(lacking[number]), without[number], random)
                found.append(np.stack([np.full(len(drawn), queries[number]), drawn], axis=1))
    return np.concatenate(found)


def _with_text(texts: Texts, rows: np.ndarray, places: Mapping[str, int]) -> Iterator[int | None]:
    """For each row, that of `places` which has its text, if there is one."""
    distinct, number = np.unique(rows, return_inverse=True)
    found: list[int | None] = []
    for start in range(0, len(distinct), _AT_ONCE):
        found += map(places.get, texts.take(distinct[start : start + _AT_ONCE]).to_pylist())
    return map(found.__getitem__, number.tolist())


def _drawn(
    similar: np.ndarray, pool: np.ndarray, count: int, without: set[int | None], random: np.random.Generator
) -> np.ndarray:
    """At most `count` rows, half of them of `similar` and the others of `pool`, in random order and each once."""
    first = [row for row in random.permutation(similar).tolist() if row not in without][: count // 2]
    others = random.choice(pool, 4 * count + len(without)).tolist()
    rows = dict.fromkeys(first) | dict.fromkeys(row for row in others if row not in without)
    return np.array([*rows][:count], np.int64)


def _write(file: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
