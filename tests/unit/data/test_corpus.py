"""Corpora: which files are read, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.config import Corpus, Limit
from distill.data import files
from distill.data.corpus import load_corpus, revisions
from distill.data.documents import _OPEN
from distill.errors import ConfigError, DataError
from distill.pipeline.context.fingerprints import of_corpus


def parquet(file: Path, texts: list[str | None]) -> None:
    pq.write_table(pa.table({"text": texts, "number": range(len(texts))}), file)


def test_train_files_are_preferred(tmp_path: Path) -> None:
    parquet(tmp_path / "a_train.parquet", ["Rain fell.", " ", "Snow fell."])
    parquet(tmp_path / "b_train.parquet", ["Hail fell."])
    parquet(tmp_path / "a_validation.parquet", ["Nothing fell."])
    settings = Corpus(kind="parquet", path=str(tmp_path))
    assert sorted(load_corpus(settings, Limit(), 0)) == ["Hail fell.", "Rain fell.", "Snow fell."]
    one = Corpus(kind="parquet", path=str(tmp_path / "a_validation.parquet"))
    assert [*load_corpus(one, Limit(), 0)] == ["Nothing fell."]


def test_the_seed_decides_the_order_and_limit_takes_a_part(tmp_path: Path) -> None:
    lines = [f"Line {i}." for i in range(300)]
    (tmp_path / "all.txt").write_text("\n\n".join(lines), encoding="utf-8")
    settings = Corpus(kind="text", path=str(tmp_path))
    texts = load_corpus(settings, Limit(), 0)
    assert sorted(texts) == sorted(lines)
    assert [*load_corpus(settings, Limit(), 0)] == [*texts]
    assert [*load_corpus(settings, Limit(), 1)] != [*texts]
    assert [*load_corpus(settings, Limit(documents=20), 0)] == texts[:20]
    assert len(load_corpus(settings, Limit(smoke=True), 0)) == 200


@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_texts_are_those_of_the_files_whatever_their_characters(kind: str, tmp_path: Path) -> None:
    """Bytes are counted where texts have characters of several bytes; parquet keeps white space around a text."""
    texts = ["naïve café", "\u3000雪が降った。\u00a0", "", "  plain\t", "\u2003", "🐐 goats", "a\u2028b"]
    if kind == "parquet":
        parquet(tmp_path / "x.parquet", [*texts])
        pq.write_table(pa.table({"text": texts}), tmp_path / "y.parquet", row_group_size=2)
    else:
        for name in ("x", "y"):
            (tmp_path / f"{name}.txt").write_text("\r\n".join(texts), encoding="utf-8", newline="")
    found = load_corpus(Corpus(kind=kind, path=str(tmp_path)), Limit(), 0)
    kept = [text if kind == "parquet" else text.strip() for text in texts if text.strip()]
    assert sorted(found) == sorted(2 * kept)
    assert [found[number] for number in range(len(found))] == [*found]


def test_a_text_in_a_later_part_of_a_file_is_named_by_its_row(tmp_path: Path) -> None:
    texts = [*(str(number) for number in range(70_000)), None]
    parquet(tmp_path / "x.parquet", texts)
    with pytest.raises(DataError, match=r"x.parquet, row 70001: got null in text"):
        load_corpus(Corpus(kind="parquet", path=str(tmp_path)), Limit(), 0)


def test_smoke_replaces_docstrings_and_hub() -> None:
    for kind in ("docstrings", "hub"):
        texts = load_corpus(Corpus(kind=kind), Limit(smoke=True, documents=50), 0)
        assert len(texts) == len(set(texts)) == 50


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus.path: got null; must be a .parquet"):
        load_corpus(Corpus(kind="parquet"), Limit(), 0)
    with pytest.raises(ConfigError, match=r"corpus.path: got .*; must be a .txt"):
        load_corpus(Corpus(kind="text", path=str(tmp_path)), Limit(), 0)
    with pytest.raises(ConfigError, match=r"corpus.kind: got csv"):
        load_corpus(Corpus(kind="csv"), Limit(), 0)
    with pytest.raises(ConfigError, match=r"corpus.name"):
        load_corpus(Corpus(kind="hub"), Limit(), 0)


def test_bad_files_are_refused_with_file_and_row(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    settings = Corpus(kind="parquet", path=str(file))
    parquet(file, [" ", ""])
    with pytest.raises(DataError, match=r"got no text"):
        load_corpus(settings, Limit(), 0)
    pq.write_table(pa.table({"body": ["Rain fell."]}), file)
    with pytest.raises(DataError, match=r"x.parquet: got columns \['body'\]"):
        load_corpus(settings, Limit(), 0)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"x.parquet: got .*; must be a whole parquet file; copy or fetch it again"):
        load_corpus(settings, Limit(), 0)
    line = tmp_path / "x.txt"
    line.write_bytes(b"Rain fell.\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"x.txt, line 2: got invalid start byte; must be UTF-8"):
        load_corpus(Corpus(kind="text", path=str(line)), Limit(), 0)


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(400_000, np.int32)), pa.array(["x" * 100]))
    pq.write_table(pa.table({"text": text}), tmp_path / "x.parquet")
    settings = Corpus(kind="parquet", path=str(tmp_path))
    assert len(load_corpus(settings, Limit(), 0)) == 400_000
    monkeypatch.setattr(files, "HARMLESS", 2**20)
    with pytest.raises(DataError, match="must have at most 200 times its own size"):
        load_corpus(settings, Limit(), 0)


def test_a_text_that_is_not_utf8_is_named_by_its_row(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    text = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"text": text}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet, row 2: got .*; must be UTF-8"):
        load_corpus(Corpus(kind="parquet", path=str(tmp_path)), Limit(), 0)


def test_a_file_without_rows_beside_others_is_left_out(tmp_path: Path) -> None:
    parquet(tmp_path / "x.parquet", ["Rain fell."])
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "y.parquet")
    assert [*load_corpus(Corpus(kind="parquet", path=str(tmp_path)), Limit(), 0)] == ["Rain fell."]


def test_a_corpus_may_have_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    names = [f"text {number}" for number in range(3 * _OPEN)]
    for name in names:
        (tmp_path / f"{name}.txt").write_text(name)
    before = len(os.listdir("/proc/self/fd"))
    texts = load_corpus(Corpus(kind="text", path=str(tmp_path)), Limit(), 0)
    assert sorted(texts) == sorted(names)
    assert len(os.listdir("/proc/self/fd")) - before <= _OPEN
    assert texts[0] in names


def test_a_line_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a hole may be as long as it likes."""
    monkeypatch.setattr("distill.data.parquet.LARGEST", 2**20)
    (tmp_path / "x.txt").write_text("Rain fell.\n")
    os.truncate(tmp_path / "x.txt", 2**21)
    with pytest.raises(DataError, match=r"x.txt, line 2: got more than 1 MiB; must be shorter; divide the document"):
        load_corpus(Corpus(kind="text", path=str(tmp_path)), Limit(), 0)


def test_pipes_in_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.txt")
    settings = Corpus(kind="text", path=str(tmp_path))
    with pytest.raises(ConfigError, match=r"corpus.path: got .*; must be a .txt file or a folder of them"):
        load_corpus(settings, Limit(), 0)
    (tmp_path / "x.txt").write_text("Rain fell.\n")
    assert [*load_corpus(settings, Limit(), 0)] == ["Rain fell."]


def test_a_file_that_changes_while_it_is_read_ends_in_no_traceback(tmp_path: Path) -> None:
    """The run that reads it refuses it by its hash."""
    file = tmp_path / "x.txt"
    file.write_text("Rain fell.\n" * 20_000)
    texts = load_corpus(Corpus(kind="text", path=str(file)), Limit(), 0)
    with file.open("r+b") as opened:
        opened.write(b"Rain\xfffell")
    assert {*texts} == {"Rain fell.", "Rain\ufffdfell."}


def test_a_folder_that_stands_for_a_data_set_is_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: pytest.fail("no name of a folder is sent to the hub"))
    (tmp_path / "data" / "mine").mkdir(parents=True)
    settings, found = Corpus(kind="hub", name=["data/mine"]), []
    for texts in (["Rain fell."], ["Snow fell."]):
        parquet(tmp_path / "data" / "mine" / "train.parquet", [*texts])
        os.utime(tmp_path / "data" / "mine" / "train.parquet", ns=(10**18, 10**18))
        found.append(of_corpus(settings))
    assert found[0] != found[1]
    assert revisions(settings) == [None]


def test_another_revision_is_noticed_between_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is not outdated by what is uploaded after it."""
    settings, commits = Corpus(kind="hub", name=["owner/name/part"]), iter("ab")
    monkeypatch.setattr("distill.data.corpus.newest", lambda name: f"{name} {next(commits)}")
    before = of_corpus(settings)
    assert [revisions(settings), revisions(settings)] == [["owner/name a"], ["owner/name b"]]
    assert of_corpus(settings) == before


def test_an_unreachable_hub_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(ConfigError, match=r"corpus.name: got owner/name; must be a data set"):
        load_corpus(Corpus(kind="hub", name=["owner/name"]), Limit(), 0)
