"""Folders of BEIR and MTEB, written as they are published: the rows that they become, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill import config
from distill.data import beir, folders
from distill.data.beir import NOT_RELEVANT
from distill.data.tasks import load_tasks
from distill.errors import ConfigError, DataError

KINDS = (
    "otter", "heron", "badger", "salmon", "beetle", "falcon", "lizard", "marten", "weasel", "plover", "spider",
    "turtle",
)  # fmt: skip
CORPUS = [
    {"_id": f"d{n}", "title": f"Notes {n}" if n % 3 else "", "text": f"The {KINDS[n % 12]} was seen at place {n}.",
     "metadata": {}}
    for n in range(120)
]  # fmt: skip
QUERIES = [
    {"_id": f"q{n}", "text": f"where was the {KINDS[n % 12]} seen in case {n}", "metadata": {f"d{n}": [n]}}
    for n in range(60)
]
SPLITS = {"train": range(40), "dev": range(40, 50), "test": range(50, 60)}


def judgements(split: str) -> list[tuple[str, str, int]]:
    """Two relevant documents of each query, and one that is judged and not relevant for every fourth."""
    return [
        (f"q{n}", f"d{document}", score)
        for n in SPLITS[split]
        for document, score in [(n % 12, 2), (n % 12 + 12, 1), *([(n % 12 + 17, 0)] if n % 4 == 0 else [])]
    ]


def of_text(document: dict[str, Any]) -> str:
    """As BEIR puts title and text together for a model."""
    return (document["title"] + " " + document["text"]).strip()


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder: Path, splits: tuple[str, ...] = ("train", "dev", "test")) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines(CORPUS))
    (folder / "queries.jsonl").write_text(lines(QUERIES))
    for split in splits:
        rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judgements(split))]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder


def as_parquet(folder: Path, judged: str) -> Path:
    """As MTEB publishes data sets, in folders of parquet files; ids are numbers in some of them."""
    parts = {"corpus": CORPUS, "queries": QUERIES}
    for name, rows in parts.items():
        (folder / name).mkdir(parents=True)
        for part in range(2):
            table = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "metadata"} for row in rows[part::2]])
            pq.write_table(table, folder / name / f"test-0000{part}-of-00002.parquet")
    (folder / judged).mkdir()
    for split in SPLITS:
        table = pa.Table.from_pylist(
            [dict(zip(("query-id", "corpus-id", "score"), r, strict=True)) for r in judgements(split)]
        )
        pq.write_table(table, folder / judged / f"{split}-00000-of-00001.parquet")
    return folder


def check(rows: list[dict[str, Any]], split: str) -> None:
    """The judgements in their order, then documents that are not judged."""
    judged, texts = judgements(split), {of_text(document): document["_id"] for document in CORPUS}
    asked = {query["text"]: query["_id"] for query in QUERIES}
    found = [(asked[row["query"]], texts[row["document"]], row["score"]) for row in rows]
    assert found[: len(judged)] == judged
    added = found[len(judged) :]
    assert {score for *_, score in added} == {0}
    pairs = [(query, document) for query, document, _ in found]
    assert len({*pairs}) == len(pairs)
    for number in SPLITS[split]:
        assert sum(query == f"q{number}" and score == 0 for query, _, score in found) == NOT_RELEVANT


def test_judgements_become_rows_of_texts(tmp_path: Path) -> None:
    found = folders.tables(str(written(tmp_path / "animals")), "tasks.train")
    assert [*found] == ["train", "validation", "test"]
    for split, name in zip(found, SPLITS, strict=True):
        check(found[split].rows.to_pylist(), name)
    train = found["train"]
    assert train.where(2) == f"{tmp_path}/animals/qrels/train.tsv, row 3"
    assert train.notes == (
        f"{tmp_path}/animals/qrels/train.tsv: 90 judgements, and 390 documents that are not judged, added as not "
        "relevant, so that each query has up to 10 such documents",
    )


@pytest.mark.parametrize("judged", ["qrels", "default", "data"])
def test_folders_of_parquet_files(judged: str, tmp_path: Path) -> None:
    found = folders.tables(str(as_parquet(tmp_path / "animals", judged)), "tasks.train")
    for split, name in zip(found, SPLITS, strict=True):
        check(found[split].rows.to_pylist(), name)


def test_texts_that_each_split_has_again(tmp_path: Path) -> None:
    """As MTEB publishes data sets of several splits: the rows are those of the texts once."""
    folder = as_parquet(tmp_path / "animals", "qrels")
    for name in ("corpus", "queries"):
        for file in [*(folder / name).iterdir()]:
            shutil.copy(file, file.with_name(file.name.replace("test", "train")))
    for split, table in zip(SPLITS, folders.tables(str(folder), "tasks.train").values(), strict=True):
        check(table.rows.to_pylist(), split)


def test_half_of_the_added_documents_share_rare_words(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    more = [{"_id": f"d{n}", "title": "", "text": f"A {KINDS[n % 12]} came by at place {n}."} for n in range(120, 600)]
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, *more]))
    rows = folders.tables(str(folder), "tasks.train")["train"].rows.to_pylist()
    added = rows[len(judgements("train")) :]
    same = [next(kind for kind in KINDS if kind in row["query"]) in row["document"] for row in added]
    # Of the half that is drawn at random, one document in 12 is of the same kind.
    assert np.mean(same) == pytest.approx(0.5 + 0.5 / 12, abs=0.08)


def test_the_same_folder_becomes_the_same_rows_and_a_changed_one_others(tmp_path: Path, monkeypatch: Any) -> None:
    folder = str(written(tmp_path / "animals"))
    first = folders.tables(folder, "tasks.train")["train"].rows
    monkeypatch.setattr(beir, "_joined", None)  # kept
    assert folders.tables(folder, "tasks.train")["train"].rows.equals(first)
    monkeypatch.undo()
    changed = [CORPUS[0] | {"text": "Nothing was seen."}, *CORPUS[1:]]
    (tmp_path / "animals" / "corpus.jsonl").write_text(lines(changed))
    other = folders.tables(folder, "tasks.train")["train"].rows["document"].to_pylist()
    assert of_text(CORPUS[0]) in first["document"].to_pylist()
    assert of_text(CORPUS[0]) not in other
    assert "Nothing was seen." in other


def test_only_a_part_of_a_large_corpus_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beir, "POOL", 30)
    rows = folders.tables(str(written(tmp_path / "animals")), "tasks.train")["test"].rows.to_pylist()
    check(rows, "test")
    added = {row["document"] for row in rows[len(judgements("test")) :]}
    assert len(added) <= 30


def test_parts_of_the_tables_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beir, "_AT_ONCE", 7)
    monkeypatch.setattr("distill.data.lines.ROWS", 11)
    check(folders.tables(str(written(tmp_path / "animals")), "tasks.train")["validation"].rows.to_pylist(), "dev")


def test_a_query_that_is_a_document_is_not_added_to_itself(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    renamed = [query | {"_id": f"d{n + 40}"} for n, query in enumerate(QUERIES)]
    (folder / "queries.jsonl").write_text(lines(renamed))
    for split in SPLITS:
        rows = [(f"d{int(query[1:]) + 40}", document, score) for query, document, score in judgements(split)]
        content = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(content) + "\n")
    texts = {of_text(document): document["_id"] for document in CORPUS}
    asked = {query["text"]: query["_id"] for query in renamed}
    for table in folders.tables(str(folder), "tasks.train").values():
        assert all(asked[row["query"]] != texts[row["document"]] for row in table.rows.to_pylist())


def test_compressed_files_and_ids_that_are_numbers(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals", ("train",))
    numbered = [document | {"_id": int(document["_id"][1:])} for document in CORPUS]
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(lines(numbered).encode()))
    file = folder / "qrels" / "train.tsv"
    file.write_text(file.read_text().replace("\td", "\t"))
    check(folders.tables(str(folder), "tasks.train")["train"].rows.to_pylist(), "train")


def loaded(path: Path, **settings: Any) -> Any:
    result = load_tasks(config.Tasks(train=str(path), **settings), config.Limit(), 0)
    ((name, data),) = result.tasks.items()
    assert name == "animals"
    return data, result.notes


def test_a_reranker_is_trained_on_the_splits_as_they_are(tmp_path: Path) -> None:
    data, notes = loaded(written(tmp_path / "animals"))
    assert data.task.kind.name == "reranking"
    assert data.task.columns == ("query", "document")
    assert {split: len({*rows["query"]}) for split, rows in data.reported.items()} == {"test": 10}
    assert {split: len({*rows["query"]}) for split, rows in data.development.items()} == {"validation": 10}
    assert len({*data.train["query"]}) == 40
    assert any("90 judgements, and 390 documents" in note for note in notes)


def test_an_embedder_searches_the_documents(tmp_path: Path) -> None:
    data, _ = loaded(written(tmp_path / "animals"), kind="retrieval")
    assert {*data.train["label"]} == {0.0, 1.0, 2.0}
    truth = data.truth(data.reported["test"])
    assert len(np.unique(truth["group"])) == 10
    assert len(np.unique(truth["document"])) > 2 * 12  # more than the relevant ones


def test_without_test_rows_queries_are_set_aside(tmp_path: Path) -> None:
    data, _ = loaded(written(tmp_path / "animals", ("train",)))
    splits = [data.train, *data.development.values(), *data.reported.values()]
    asked = [{*rows["query"]} for rows in splits]
    assert sum(map(len, asked)) == len(set().union(*asked)) == 40


def test_a_folder_of_other_rows_may_be_tested(tmp_path: Path) -> None:
    train = tmp_path / "animals.jsonl"
    train.write_text(
        lines([{"query": q["text"], "document": of_text(CORPUS[n]), "score": n % 2} for n, q in enumerate(QUERIES)])
    )
    folder = written(tmp_path / "other", ("test",))
    data, _ = loaded(train, test=str(folder))
    assert len({*data.reported["test"]["query"]}) == 10


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        folders.of_training(str(folder), "tasks.train", config.Task())
    return str(caught.value)


def test_judgements_of_texts_that_are_not_there(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    (folder / "corpus.jsonl").write_text(lines(CORPUS[:14]))
    message = refused(folder)
    assert "qrels/train.tsv: got " in message
    assert "of 90 judgements whose corpus-id is in no row of " in message
    absent = sum(int(document[1:]) >= 14 for _, document, _ in judgements("train"))
    different = len({document for _, document, _ in judgements("train") if int(document[1:]) >= 14})
    every = len({document for _, document, _ in judgements("train")})
    assert f"got {absent} of 90 judgements" in message
    assert f"({different} of {every} ids, e.g. 'd1" in message


def change(folder: Path, file: str, old: str, new: str) -> None:
    content = (folder / file).read_text()
    assert old in content
    (folder / file).write_text(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("qrels/train.tsv", "query-id\tcorpus-id\tscore\n", "", "must have query-id, corpus-id, score; add a header"),
        ("qrels/train.tsv", "q1\td1\t2", "q1\td1\tmuch", "train.tsv, row 4: got 'much' as score; must be a number"),
        ("qrels/train.tsv", "q1\td1\t2", "q1\td1\t", "train.tsv, row 4: got '' as score; must be a number"),
        ("qrels/train.tsv", "q3\t", "q999\t", "got 1 of 90 judgements whose query-id is in no row of"),
        ("corpus.jsonl", '"_id": "d1"', '"_id": "d2"', "corpus.jsonl: got two rows with the id 'd2'; must be one"),
        ("queries.jsonl", '"text"', '"body"', "must have _id and text, as the queries of BEIR; rename them"),
    ],
)
def test_other_folders_are_refused(file: str, old: str, new: str, expected: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    if file == "queries.jsonl":
        content = (folder / file).read_text()
        (folder / file).write_text(content.replace(old, new))
    else:
        change(folder, file, old, new)
    assert expected in refused(folder)


def test_a_folder_without_training_rows_is_for_tests_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals", ("test",))
    assert "got test without training rows; must have them" in refused(folder)
    assert f"set tasks.test={folder}" in refused(folder)


def test_judgements_of_no_split_are_refused_and_of_others_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    (folder / "qrels" / "dev.tsv").rename(folder / "qrels" / "hard.tsv")
    table = folders.of_training(str(folder), "tasks.train", config.Task())["train"]
    assert any("the splits hard of its folder are left out" in note for note in table.notes)
    for split in ("train", "test"):
        (folder / "qrels" / f"{split}.tsv").unlink()
    assert "got the splits hard; must have one of train, validation (or dev) and test; rename a file" in refused(folder)


def judge(folder: Path, split: str, *rows: tuple[str, str, int]) -> None:
    """Add judgements to a split."""
    path = folder / "qrels" / f"{split}.tsv"
    if not path.exists():
        path.write_text("query-id\tcorpus-id\tscore\n")
    with path.open("a") as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)


def test_the_last_of_repeated_judgements_counts(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    judge(folder, "train", ("q1", "d1", 0), ("q1", "d1", 5), ("q2", "d2", 7))
    table = folders.tables(str(folder), "tasks.train")["train"]
    given = dict[tuple[str, str], float]()
    for query, document, score in [*judgements("train"), ("q1", "d1", 0), ("q1", "d1", 5), ("q2", "d2", 7)]:
        given[query, document] = score  # as the loader of BEIR keeps them
    texts, asked = {of_text(d): d["_id"] for d in CORPUS}, {query["text"]: query["_id"] for query in QUERIES}
    rows = [(asked[row["query"]], texts[row["document"]], row["score"]) for row in table.rows.to_pylist()]
    assert {(query, document): score for query, document, score in rows[: len(given)]} == given
    assert len({(query, document) for query, document, _ in rows}) == len(rows)
    assert any("3 judgements of a pair that is judged again later are left out" in note for note in table.notes)
    assert table.where(len(given) - 1).endswith("qrels/train.tsv, row 93")
    assert table.where(0).endswith("qrels/train.tsv, row 1")
    assert table.where(len(given)).endswith("qrels/train.tsv, an added document")


def test_judgements_of_one_ending_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    for ending, compressed in (
        (".tsv.gz", gzip.compress(b"query-id\tcorpus-id\tscore\nq1\td90\t4\n")),
        (".parquet", b"PAR1"),
    ):
        (folder / "qrels" / f"train{ending}").write_bytes(compressed)
    (folder / "qrels" / "._train.tsv").write_bytes(b"\0")  # macOS
    for name in ("corpus/part.parquet", "data/train-0.parquet", "data/validation.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"PAR1")
    found = folders.tables(str(folder), "tasks.train")
    check(found["train"].rows.to_pylist(), "train")
    unread = "qrels/train.tsv.gz, qrels/train.parquet, data/train-0.parquet"
    start = f"{folder}/qrels/train.tsv: not read, because of another ending or folder:"
    assert found["train"].notes[1:] == (f"{start} {unread}", f"{start} data/validation.parquet")
    assert len(found["test"].notes) == 1


def test_texts_that_are_judged_are_not_added_under_another_id(tmp_path: Path) -> None:
    """Documents and queries are there twice, under two ids, of which one is judged."""
    folder = written(tmp_path / "animals")
    copies = [document | {"_id": f"copy-{document['_id']}", "text": document["text"] + " "} for document in CORPUS]
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, *copies]))
    (folder / "queries.jsonl").write_text(lines([*QUERIES, QUERIES[0] | {"_id": "again"}]))
    judge(folder, "train", ("again", "d50", 2))
    rows = folders.tables(str(folder), "tasks.train")["train"].rows.to_pylist()
    pairs = [(row["query"], row["document"].strip()) for row in rows]
    assert len({*pairs}) == len(pairs)
    assert len(rows) > 40 * NOT_RELEVANT


def test_documents_that_are_queries_are_not_added(tmp_path: Path) -> None:
    """As in ArguAna: each query is a document of the corpus, with the same id."""
    folder = written(tmp_path / "animals")
    own = [{"_id": query["_id"], "title": "Own", "text": query["text"]} for query in QUERIES]
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, *own]))
    judge(folder, "train", ("q3", "q4", 1))
    table = folders.tables(str(folder), "tasks.train")["train"]
    found = [row["document"] for row in table.rows.to_pylist()]
    asked = {f"Own {query['text']}" for query in QUERIES[:40]}  # of this split
    assert [document for document in found if document in asked] == [f"Own {QUERIES[4]['text']}"]
    assert any("1 judgements are of documents that are queries too" in note for note in table.notes)
    other = [{"_id": query["_id"], "title": "", "text": f"Other text {n}."} for n, query in enumerate(QUERIES)]
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, *other]))  # numbers of queries, which mean nothing
    table = folders.tables(str(folder), "tasks.train")["train"]
    assert any("Other text" in row["document"] for row in table.rows.to_pylist()[91:])
    assert not any("queries too" in note for note in table.notes)


def test_only_documents_that_are_queries(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals", ("train",))
    (folder / "corpus.jsonl").write_text(lines(QUERIES))
    content = ["query-id\tcorpus-id\tscore", *(f"q{n}\tq{59 - n}\t1" for n in range(60))]
    (folder / "qrels" / "train.tsv").write_text("\n".join(content) + "\n")
    assert folders.tables(str(folder), "tasks.train")["train"].rows.num_rows == 60


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = written(tmp_path / "animals"), beir.files.read

    def changing(paths: Any, *args: Any, **settings: Any) -> Any:
        if "qrels" in str(paths):
            (folder / "corpus.jsonl").write_text(lines([CORPUS[0] | {"text": "Nothing was seen."}, *CORPUS[1:]]))
        return real(paths, *args, **settings)

    monkeypatch.setattr(beir.files, "read", changing)
    with pytest.raises(DataError, match=r"corpus.jsonl: got other rows while it was read; must not change"):
        folders.tables(str(folder), "tasks.train")
    monkeypatch.undo()
    assert any(
        "Nothing" in row["document"] for row in folders.tables(str(folder), "tasks.train")["train"].rows.to_pylist()
    )


def test_only_the_wanted_split_is_made(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nnobody\td1\t1\n")
    check(folders.of_role(str(folder), "test", "tasks.test").rows.to_pylist(), "test")


@pytest.mark.parametrize("role", ["validation", "test", "development"])
def test_rows_that_the_user_names_take_the_place_of_a_split(role: str, tmp_path: Path) -> None:
    folder, own = written(tmp_path / "animals"), tmp_path / "own.jsonl"
    own.write_text(
        lines([{"query": f"what is {n // 2}", "document": f"Own text {n}.", "score": n % 2} for n in range(12)])
    )
    data, notes = loaded(folder, **{role: str(own)})
    assert [*data.reported] == ["test"]
    mine, others = (data.reported, data.development) if role == "test" else (data.development, data.reported)
    assert [{*rows["query"]} for rows in mine.values()] == [{f"what is {n}" for n in range(6)}]
    assert [len({*rows["query"]}) for rows in others.values()] == [10]
    split = "test" if role == "test" else "validation"
    assert any(
        f"the split {split} of its folder is not used, as the settings name other rows" in note for note in notes
    )


def test_no_folder_beside_other_files(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    for given, expected in (
        ([str(folder), str(folder / "corpus.jsonl")], "must be one folder alone, or files"),
        (str(folder / "qrels"), "must be files, or a folder of BEIR or save_to_disk"),
        ([], "must be a file, a glob or a list of them"),
    ):
        with pytest.raises(ConfigError, match=f"tasks.train: got .*{expected}"):
            load_tasks(config.Tasks(train=given, name="animals"), config.Limit(), 0)


def test_a_document_that_another_split_judges_is_not_added(tmp_path: Path) -> None:
    """As `train_test_split` of the judgements leaves them: each query is in both splits, one under another id."""
    folder = written(tmp_path / "animals", ())
    (folder / "queries.jsonl").write_text(lines([*QUERIES, {**QUERIES[0], "_id": "again"}]))
    judge(folder, "train", *((f"q{n}", f"d{n}", 1) for n in range(1, 60)), ("again", "d0", 1))
    judge(folder, "test", *((f"q{n}", f"d{n + 12}", 1) for n in range(60)))
    judge(folder, "dev_small", *((f"q{n}", f"d{n + 24}", 1) for n in range(60)))  # not read, and yet known
    found = folders.tables(str(folder), "tasks.train")
    assert {*found} == {"train", "test"}
    numbers = {of_text(document): n for n, document in enumerate(CORPUS)}
    for table in found.values():
        rows = table.rows.to_pylist()
        added = [(row["query"], numbers[row["document"]]) for row in rows if row["score"] == 0]
        assert len(added) > 500
        of_query = {query["text"]: n for n, query in enumerate(QUERIES)}
        assert not [each for query, each in added if each in {of_query[query] + more for more in (0, 12, 24)}]


def test_an_empty_document_is_not_added(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, *({"_id": f"e{n}", "text": " "} for n in range(500))]))
    assert "" not in folders.tables(str(folder), "tasks.train")["train"].rows["document"].to_pylist()


def test_a_split_with_a_longer_name_is_another_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "animals")
    judge(folder, "dev-small", ("q1", "d5", 7))
    judge(folder, "test.hard", ("q1", "d5", 7))
    (folder / "qrels" / "test.empty.tsv").write_text("")
    found = folders.tables(str(folder), "tasks.train")
    assert 7 not in [score for table in found.values() for score in table.rows["score"].to_pylist()]
    assert "the splits dev-small, test.empty, test.hard of its folder are left out" in str(found["train"].notes)
