"""Rows of queries and documents in the forms of sentence-transformers and of MS MARCO: read as meant, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from distill import config
from distill.data.tasks import read_task
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import TEXTS, VECTORS

COUNT = 60
QUERIES = [f"where was the otter number {n // 3} seen last summer" for n in range(COUNT)]
DOCUMENTS = [f"the otter of story {n} was seen at the quiet harbour" for n in range(COUNT)]
ONE, EMBEDDER = Head(1, (), None, TEXTS), Head(0, (), None, VECTORS)

Read = Callable[..., Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """`read(rows, head, validation=rows, form=..., **settings)`: the task that a run makes of a file of rows."""

    def write(rows: list[dict[str, Any]], name: str, form: str) -> str:
        file = tmp_path / f"{name}.{form}"
        if form == "csv":
            pd.DataFrame(rows).to_csv(file, index=False)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(file)

    def run(
        rows: list[dict[str, Any]], head: Head | None, validation: Any = None, form: str = "jsonl", **settings: Any
    ) -> Any:
        task: dict[str, Any] = {"train": write(rows, "train", form), **settings}
        if validation is not None:
            task["validation"] = write(validation, "validation", form)
        settings = config.Task(**task)
        found = read_task("own", settings, config.Tasks(**task), head, stand_in=False)
        assert found is not None
        return found

    return run


def judged(labels: list[Any]) -> list[dict[str, Any]]:
    return [{"query": q, "document": d, "label": y} for q, d, y in zip(QUERIES, DOCUMENTS, labels, strict=True)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize(("head", "kind"), [(ONE, "reranking"), (EMBEDDER, "retrieval"), (None, "reranking")])
def test_true_and_false_are_1_and_0(form: str, head: Head | None, kind: str, read: Read) -> None:
    labels = [n % 3 == 0 for n in range(COUNT)]
    for values in (labels, [int(each) for each in labels], [str(each).upper() for each in labels]):
        data = read(judged(values), head, form=form)
        assert data.task.kind.name == kind
        assert {float(y) for y in np.unique(data.reported["validation"].table["label"].to_numpy())} == {0.0, 1.0}


def test_grades_above_0_alone_are_refused(read: Read) -> None:
    with pytest.raises(DataError, match="got labels from 1 to 3, all above 0, so that every document is relevant"):
        read(judged([1 + n % 3 for n in range(COUNT)]), ONE)
    assert read(judged([n % 3 for n in range(COUNT)]), ONE).task.kind.name == "reranking"
    assert read(judged([1 + n % 3 for n in range(COUNT)]), ONE, kind="regression").task.kind.name == "regression"


def test_similarities_of_an_embedder_are_no_grades(read: Read) -> None:
    values = np.random.default_rng(0).random(COUNT).round(3).tolist()
    assert read(judged(values), EMBEDDER).task.kind.name == "embedding"
    assert read(judged([(n % 3) / 2 for n in range(COUNT)]), EMBEDDER).task.kind.name == "retrieval"


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("head", [ONE, None])
def test_probabilities_are_no_grades_in_silence(form: str, head: Head | None, read: Read) -> None:
    drawn = np.random.default_rng(0).random(COUNT).round(3).tolist()
    values = [value if n % 3 else 0.0 for n, value in enumerate(drawn)]
    with pytest.raises(
        ConfigError, match=r"different numbers from 0 to 0\.\d+ in column label .* set tasks\.kind=regr"
    ):
        read(judged(values), head, form=form)
    for kind in ("regression", "reranking"):
        assert read(judged(values), head, form=form, kind=kind).task.kind.name == kind
    assert read(judged([(n % 3) / 2 for n in range(COUNT)]), head, form=form).task.kind.name == "reranking"


@pytest.mark.parametrize("head", [ONE, EMBEDDER, None])
def test_lists_of_documents_are_no_words(head: Head | None, read: Read) -> None:
    rows = [{"query": q, "docs": DOCUMENTS[n : n + 3], "labels": [1, 0, 0]} for n, q in enumerate(QUERIES[:50])]
    with pytest.raises(DataError, match="got lists of texts in docs with as many labels in labels; must be a row for"):
        read(rows, head)


@pytest.mark.parametrize("head", [ONE, EMBEDDER, None])
@pytest.mark.parametrize("asked", ["query", "anchor", "Question"])
def test_margins_of_two_documents_are_no_labels_of_a_text(asked: str, head: Head | None, read: Read) -> None:
    rows = [
        {asked: q, "positive": d, "negative": d[::-1], "label": 0.1 * n}
        for n, (q, d) in enumerate(zip(QUERIES, DOCUMENTS, strict=True))
    ]
    with pytest.raises(DataError, match=f"got {asked}, positive and negative with a label in label; must be a row for"):
        read(rows, head)


@pytest.mark.parametrize("names", [("anchor", "positive"), ("anchor", "positive", "negative"), ("text",)], ids=len)
def test_all_texts_of_an_embedders_rows_are_distilled(names: tuple[str, ...], read: Read) -> None:
    columns = dict(zip(("anchor", "positive", "negative", "text"), (QUERIES, DOCUMENTS, DOCUMENTS[::-1], DOCUMENTS)))  # noqa: B905
    rows = [{name: f"{columns[name][n]}, {name} {n}" for name in names} for n in range(COUNT)]
    checked = [{"sentence1": q, "sentence2": d, "score": n % 5} for n, (q, d) in enumerate(zip(DOCUMENTS, QUERIES))]  # noqa: B905
    data = read([{"id": f"number {n}", **row} for n, row in enumerate(rows)], EMBEDDER, checked)
    table = data.train.table
    texts = [text for row in table.to_pylist() for text in (row["sentence1"], row["sentence2"])]
    assert texts == [text for row in rows for text in row.values()]
    assert f"{len(texts)} texts of {' and '.join(names)} taken in pairs, without labels" in str(data.notes)
    assert "not used" not in str(data.notes)
