"""Files in fastText's form: rows and labels as fastText reads them, and other files that begin alike."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from distill.data.files import Table, read
from distill.data.split_names import by_split
from distill.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


def load(path: Path) -> Table:
    return read(str(path), "tasks.train")


@pytest.mark.parametrize("name", ["f.txt", "f.train", "f.valid", "f.test", "f.csv", "f.ft.txt.gz"])
def test_one_label_in_each_row_is_a_class(name: str, tmp_path: Path) -> None:
    rows = [
        "__label__card My card, it is lost\r",
        "",
        "__label__no-answer\tno one  __label__ answers",
        " __label__card new",
    ]
    content = "\n".join(rows)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    table = load(path)
    assert table.rows.to_pydict() == {
        "text": ["My card, it is lost", "no one  __label__ answers", "new"],
        "label": ["card", "no-answer", "card"],
    }
    (note,) = table.notes
    assert "as fastText writes them" in note


def test_several_labels_are_lists_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("__label__a one\n" * 300 + "__label__b two __label__a three __label__b\nnone\n")
    labels = load(tmp_path / "f.txt").rows["label"].to_pylist()
    assert labels == [["a"]] * 300 + [["b", "a"], None]
    assert load(tmp_path / "f.txt").rows["text"].to_pylist()[-2:] == ["two three", "none"]


def test_labels_with_columns_behind_them_are_not_of_fasttext(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("__label__a,My card\n__label__b,My book\n")
    with pytest.raises(DataError, match=r"f\.txt, header: got lines without tabs"):
        load(tmp_path / "f.txt")
    (tmp_path / "g.tsv").write_text("label\ttext\n__label__a\tMy card\n")
    assert load(tmp_path / "g.tsv").rows.to_pylist() == [{"label": "__label__a", "text": "My card"}]


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"__label__a one\n" * 300 + b"\n__label__a caf\xe9\n")
    with pytest.raises(DataError, match=r"f\.txt, row 301: got byte 0xe9"):
        load(tmp_path / "f.txt")


def test_endings_of_files_are_their_splits() -> None:
    assert by_split(["cooking.train", "cooking.valid", "cooking.test.gz"]) == {
        "train": ["cooking.train"],
        "validation": ["cooking.valid"],
        "test": ["cooking.test.gz"],
    }


@pytest.mark.parametrize("names", [("one.train", "several.train"), ("several.train", "one.train")])
def test_a_file_with_one_label_in_each_row_is_a_part_of_rows_with_several(
    names: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "one.train").write_text("__label__a one\n__label__b two\n")
    (tmp_path / "several.train").write_text("__label__a __label__b three\n__label__c four\n")
    rows = {"one.train": [["a"], ["b"]], "several.train": [["a", "b"], ["c"]]}
    table = read([str(tmp_path / name) for name in names], "tasks.train")
    assert table.rows["label"].to_pylist() == [labels for name in names for labels in rows[name]]
    assert table.files == tuple(str(tmp_path / name) for name in names)
    assert load(tmp_path / "one.train").rows["label"].to_pylist() == ["a", "b"]
