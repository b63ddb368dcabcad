"""The five made tasks, on made-up documents: labels that can be recomputed from the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from distill.config import Limit, load_config
from distill.data import docstring_corpus, docstrings, tasks
from distill.data.docstring_corpus import Document
from distill.errors import DataError

PACKAGES = [f"pack{letter}" for letter in "abcdefgh"]
COUNT = {"train": 680, "validation": 400}
COLUMNS = {
    "package": ("text",),
    "corrupted": ("sentence",),
    "body": ("summary", "body"),
    "order": ("sentence1", "sentence2"),
    "overlap": ("text1", "text2"),
}


def document(package: str, number: int) -> Document:
    """Every word but the common ones carries the number, so that texts tell where they are from."""
    first = f"Takes stone{number} to hill{number} and path{number} with wood{number} home."
    second = f"Leaves river{number} for boat{number} and then mill{number} there."
    return Document(package, f"{number}.py", (first, second, f"Keeps the salt{number} dry."))


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> tuple[Document, ...]:
    found = tuple(document(PACKAGES[i % 8], i) for i in range(2400))
    monkeypatch.setattr(docstring_corpus, "documents", lambda: found)
    monkeypatch.setattr(docstring_corpus, "versions", lambda: dict.fromkeys([*PACKAGES, "packi"], "1"))
    return found


def made(task: str, split: str = "train") -> Iterator[dict[str, object]]:
    columns = docstrings.rows(task, split, COUNT[split])
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def numbers(text: object) -> set[str]:
    return {"".join(c for c in word if c.isdigit()) for word in str(text).split()} - {""}


@pytest.mark.parametrize("task", COLUMNS)
def test_same_rows_every_time_from_files_of_the_split(documents: tuple[Document, ...], task: str) -> None:
    assert docstrings.rows(task, "train", 680) == docstrings.rows(task, "train", 680)
    columns = COLUMNS[task]
    seen = {
        split: set().union(*(numbers(row[c]) for row in made(task, split) for c in columns))
        for split in ("train", "validation")
    }
    kept = {d.file[:-3] for d in documents if d.validation}
    assert seen["validation"]
    assert seen["validation"] <= kept
    assert seen["train"]
    assert not seen["train"] & kept


@pytest.mark.parametrize("task", ["package", "corrupted", "body", "order"])
def test_labels_are_balanced(documents: tuple[Document, ...], task: str) -> None:
    counts = Counter(row["label"] for row in made(task))
    assert sorted(counts) == list(range(docstrings.CLASSES if task == "package" else 2))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_package_names_the_package(documents: tuple[Document, ...]) -> None:
    for row in made("package"):
        (number,) = numbers(row["text"])
        assert row["label"] == int(number) % 8


def test_package_leaves_out_texts_that_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Document("packa", "x.py", ("This is the text of the PackB that is told apart.",))
    texts = [document(p, 8 * i + k) for k, p in enumerate(PACKAGES) for i in range(40)]
    monkeypatch.setattr(docstring_corpus, "documents", lambda: (named, *texts))
    monkeypatch.setattr(docstring_corpus, "versions", lambda: dict.fromkeys(PACKAGES, "1"))
    found = [row["text"] for s in ("train", "validation") for row in made("package", s)]
    assert found
    assert not any("PackB" in str(text) for text in found)


def test_package_needs_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstring_corpus, "documents", lambda: (document("packa", 0),))
    monkeypatch.setattr(docstring_corpus, "versions", lambda: {"packa": "1"})
    with pytest.raises(DataError, match=r"must be 8 packages"):
        docstrings.rows("package", "train", 680)


def test_corrupted_differs_from_every_document(documents: tuple[Document, ...]) -> None:
    written = {d.paragraphs[0] for d in documents}
    for row in made("corrupted"):
        assert (row["sentence"] in written) == bool(row["label"])
        text = str(row["sentence"])
        assert text.startswith("Takes ")
        assert text.endswith(" home.")


def test_body_belongs_or_is_of_another_document(documents: tuple[Document, ...]) -> None:
    for row in made("body"):
        (summary,), (body,) = numbers(row["summary"]), numbers(row["body"])
        assert (summary == body) == bool(row["label"])


def test_order_is_original_or_swapped(documents: tuple[Document, ...]) -> None:
    for row in made("order"):
        assert str(row["sentence1"]).startswith("Takes") == bool(row["label"])
        assert numbers(row["sentence1"]) == numbers(row["sentence2"])


def test_overlap_is_the_share_of_common_words(documents: tuple[Document, ...]) -> None:
    labels = []
    for row in made("overlap"):
        one, two = numbers(row["text1"]), numbers(row["text2"])
        assert len(one) == len(two) == 3
        # Every sentence has the same number of words here, so words are shared as sentences are.
        assert row["label"] == pytest.approx(5 * len(one & two) / 3)
        labels.append(len(one & two))
    assert np.bincount(labels).min() >= len(labels) // 4 - 1


def test_load_tasks_gives_them_all(documents: tuple[Document, ...]) -> None:
    loaded = tasks.load_tasks(load_config(["tasks.names=null"]).tasks, Limit(examples=100), 0)
    assert {name: data.task.columns for name, data in loaded.tasks.items()} == COLUMNS
    assert [row["rows"] for row in loaded.coverage if row["split"] == "train"] == [100] * 5
    assert all(data.train.num_rows == 100 for data in loaded.tasks.values())
    assert loaded.tasks["package"].task.labels == (*PACKAGES[:8],)


def test_sample_is_short_real_text() -> None:
    texts = docstrings.sample(30)
    assert len(set(texts)) == 30
    assert all(6 <= len(text.split()) <= 30 for text in texts)
