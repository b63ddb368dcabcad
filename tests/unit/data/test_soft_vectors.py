"""Stored vectors as soft labels: the same unit vectors from every form of a file, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill import config
from distill.data.task_types import TASK_TYPES, embedding
from distill.data.task_types.soft_vectors import unit_vectors
from distill.data.tasks import load_tasks, soft_outputs_of
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import VECTORS

PAIRS = np.random.default_rng(0).normal(size=(6, 2, 4))
WANTED = (PAIRS / np.linalg.norm(PAIRS, axis=2, keepdims=True)).reshape(6, 8)
ROWS = PAIRS.tolist()


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def read(values: pa.ChunkedArray) -> np.ndarray:
    return unit_vectors(values, {}, lambda row: f"t.jsonl, row {row + 1}", "vectors")


FORMS = {
    "float64": column(ROWS),
    "float32": column(ROWS, pa.list_(pa.list_(pa.float32()))),
    "of fixed size": column(ROWS, pa.list_(pa.list_(pa.float32(), 4), 2)),
    "large": column(ROWS, pa.large_list(pa.large_list(pa.float64()))),
    "chunks": pa.chunked_array([pa.array(ROWS[:2]), pa.array(ROWS[2:])]),
    "text": column([json.dumps(row) for row in ROWS]),
    "texts": column([[json.dumps(vector) for vector in row] for row in ROWS]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_unit_vectors(form: str) -> None:
    found = read(FORMS[form])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, WANTED, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(embedding.halves(found)[1], axis=1), 1, atol=1e-6)


def test_rows_without_vectors_are_nan() -> None:
    expected = np.full((8, 8), np.nan)
    expected[[0, 2, 3, 4, 5, 7]] = WANTED
    for empty in (None, ""):
        as_text = [json.dumps(row) for row in ROWS]
        given = column([as_text[0], empty, *as_text[1:5], empty, as_text[5]])
        np.testing.assert_allclose(read(given), expected, atol=1e-6)
    np.testing.assert_allclose(read(column([ROWS[0], None, *ROWS[1:5], None, ROWS[5]])), expected, atol=1e-6)
    assert np.isnan(read(column([["[1.0]", "[2.0]"], ["", "[1.0]"]]))[1]).all()


WRONG: list[tuple[list[Any], str]] = [
    (
        [[[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [1.0]]],
        "row 2: got a vector of 1 numbers in vectors; must be of 2, as in",
    ),
    ([[[1.0, 2.0], [1.0, 2.0]], [[1.0], [1.0]]], "row 2: got a vector of 1 numbers in vectors; must be of 2"),
    ([[[1.0, 2.0], [0.0, 0.0]]], "row 1: got a vector in vectors of zeros, or with a number that is not finite; must"),
    (
        [None, [[1.0, float("nan")], [1.0, 1.0]]],
        "row 2: got a vector in vectors of zeros, or with a number that is not",
    ),
    ([[[1.0, float("inf")], [1.0, 1.0]]], "row 1: got a vector in vectors of zeros, or with a number that is not fini"),
    ([[[1.0, 2.0]]], "must be two lists of numbers, the vectors of both texts, or of rows with one text a list of n"),
    ([[1.0, 2.0]], "row 1: got [1.0, 2.0] in vectors; must be two lists of numbers"),
    ([[[], []]], "must be two lists of numbers"),
    (["[[1, true], [1, 2]]"], "must be two lists of numbers"),
    (['[[1, "a"], [1, 2]]'], "must be two lists of numbers"),
    ([f"[[1{'0' * 400}, 1], [1, 2]]"], "row 1: got a vector in vectors of zeros, or with a number that is not finite"),
    (["[[1e300, 1], [1, 2]]"], "row 1: got a vector in vectors of zeros, or with a number that is not finite"),
    (["[" * 100_000], "row 1: got '[[[["),
    (["far away"], "row 1: got 'far away' in vectors; must be two lists of numbers"),
    ([1.5], "row 1: got 1.5 in vectors; must be two lists of numbers"),
    ([None, None], "row 1: got no vector in vectors; must be in one row or more"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_what_is_no_pair_of_vectors_is_refused_with_its_row(values: list[Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(column(values))
    (line,) = caught.value.messages
    assert line.startswith("t.jsonl, row ")
    assert message in line


def test_kinds_of_vectors_have_them() -> None:
    kinds = {name for name, kind in TASK_TYPES.items() if kind.soft is unit_vectors}
    assert kinds == {name for name, kind in TASK_TYPES.items() if kind.separate} == {"embedding", "retrieval"}


WORDS = ["goats sleep", "snow falls", "plums are ripe", "the clock ticks", "boats cross", "bread rises", "a door opens"]


def loaded(tmp_path: Path, train: pa.Table, kind: str = "embedding", **settings: Any) -> Any:
    held = [
        {"sentence1": f"{a} now", "sentence2": f"{b} now", "label": n % 3} for n, (a, b) in enumerate(pairwise(WORDS))
    ]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    pq.write_table(train, tmp_path / "train.parquet")
    given: dict[str, Any] = {"train": str(tmp_path / "train.parquet"), "validation": str(tmp_path / "held.jsonl")}
    head = settings.pop("head", None)
    tasks = config.Tasks(kind=kind, name="own", **{"soft_label": "vector", **given, **settings})
    return load_tasks(tasks, config.Limit(), 0, head)


def test_texts_with_a_vector_each_are_paired_with_both_vectors(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(21, 3)).astype(np.float32)
    cells: list[Any] = vectors.tolist()
    cells[4] = None
    texts = [f"{word} {number}" for number in range(3) for word in WORDS]
    found = loaded(tmp_path, pa.table({"sentence": texts, "vector": pa.array(cells)}))
    train = found.tasks["own"].train
    assert train["sentence1"][:] == texts[0:20:2]
    assert train["sentence2"][:] == texts[1:20:2]
    soft = soft_outputs_of(train)
    assert soft is not None
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.concatenate([unit[0:20:2], unit[1:20:2]], axis=1)
    expected[2] = np.nan
    np.testing.assert_allclose(soft, expected, atol=1e-6)
    assert any("soft labels from vector for 9 of 10 rows of train" in note for note in found.notes)


def test_vectors_that_are_written_as_text_are_paired_too(tmp_path: Path) -> None:
    cells = [json.dumps([1.0, float(number)]) for number in range(21)]
    texts = [f"{word} {number}" for number in range(3) for word in WORDS]
    train = loaded(tmp_path, pa.table({"vector": cells, "sentence": texts})).tasks["own"].train
    soft = soft_outputs_of(train)
    assert soft is not None
    np.testing.assert_allclose(soft[:, 1] / soft[:, 0], np.arange(0, 20, 2), rtol=1e-5)
    np.testing.assert_allclose(soft[:, 3] / soft[:, 2], np.arange(1, 20, 2), rtol=1e-5)


def test_judged_rows_have_the_vectors_of_query_and_document(tmp_path: Path) -> None:
    pairs = np.random.default_rng(2).normal(size=(48, 2, 4))
    texts = [f"{WORDS[number % 7]} {number}" for number in range(48)]
    columns = {"sentence1": texts, "sentence2": texts[::-1], "label": [n % 2 for n in range(48)]}
    train = loaded(tmp_path, pa.table(columns | {"vector": pairs.tolist()}), "retrieval").tasks["own"].train
    soft = soft_outputs_of(train)
    assert soft is not None
    places = [texts.index(text) for text in train["sentence1"][:]]
    assert len(places) > 24  # some are those on which choices are made
    expected = (pairs / np.linalg.norm(pairs, axis=2, keepdims=True)).reshape(48, 8)[places]
    np.testing.assert_allclose(soft, expected, atol=1e-6)


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    train = pa.table({"sentence1": WORDS[:6], "sentence2": WORDS[1:], "label": [1.0, 0, 1, 1, 0, 1]})
    with pytest.raises(ConfigError, match=r"tasks.soft_label: got vector; must be a column of "):
        loaded(tmp_path, train)


def test_plain_texts_of_retrieval_are_not_relevant_for_each_other(tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).normal(size=(20, 3)).tolist()
    texts = [f"{word} {number}" for number in range(3) for word in WORDS][:20]
    train = loaded(tmp_path, pa.table({"sentence": texts, "vector": vectors}), "retrieval").tasks["own"].train
    assert len(train) == 10
    assert np.isnan(train["label"][:]).all()
    two = pa.table({"ask": texts, "answer": texts[::-1], "vector": vectors})
    wanted = "must have sentence1, sentence2, label, as the validation rows do, or one column of texts alone; add or"
    with pytest.raises(DataError, match=rf"got columns ask, answer, vector; {wanted}"):
        loaded(tmp_path, two, "retrieval")


TWENTY = [f"{word} {number}" for number in range(3) for word in WORDS][:20]
VECTORS_OF_20 = np.random.default_rng(3).normal(size=(20, 3)).tolist()


@pytest.mark.parametrize(
    "columns",
    [
        {"sentence1": TWENTY, "doc": TWENTY[::-1], "label": [n % 2 for n in range(20)]},
        {"sentence1": TWENTY, "doc": TWENTY[::-1]},
        {"sentence1": TWENTY, "doc": list(range(20)), "label": [n % 2 for n in range(20)]},
    ],
)
def test_judged_rows_with_a_column_of_another_name_are_not_read_as_texts_alone(
    columns: dict[str, Any], tmp_path: Path
) -> None:
    for settings in ({}, {"text": "sentence1", "text_pair": "sentence2"}):
        with pytest.raises(
            DataError, match=r"train.parquet: got columns sentence1, doc.*; must have sentence2(, label)?,"
        ):
            loaded(tmp_path, pa.table(columns), "retrieval", soft_label=None, **settings)


def test_ids_and_numbers_stand_beside_texts_alone(tmp_path: Path) -> None:
    columns = {"doc_id": [f"d{n}" for n in range(20)], "passage": TWENTY, "length": list(range(20))}
    found = loaded(tmp_path, pa.table(columns), "retrieval", soft_label=None)
    assert found.tasks["own"].train["sentence2"][:] == TWENTY[1::2]
    assert "own: train: 20 texts of passage taken in pairs, without labels" in found.notes


def test_messages_name_the_row_of_the_first_text_of_a_pair(tmp_path: Path) -> None:
    vectors: list[Any] = [*VECTORS_OF_20]
    vectors[7] = [0.0, 0.0, 0.0]
    with pytest.raises(DataError, match=r"train.parquet, row 7: got a vector in vector of zeros"):
        loaded(tmp_path, pa.table({"sentence": TWENTY, "vector": vectors}))
    texts = [" " if number in (12, 13) else text for number, text in enumerate(TWENTY)]
    with pytest.raises(DataError, match=r"train.parquet, row 13: got no text in sentence1 or sentence2"):
        loaded(tmp_path, pa.table({"sentence": texts}), soft_label=None)


def test_vectors_of_single_texts_are_not_learned_with_two_prompts_that_nobody_chose(tmp_path: Path) -> None:
    head = Head(3, (), None, VECTORS, ("query: ", "passage: "))
    train = pa.table({"sentence": TWENTY, "vector": VECTORS_OF_20})
    with pytest.raises(
        ConfigError, match=r"tasks.prompts: got nothing, with vectors of single texts in vector and a te"
    ):
        loaded(tmp_path, train, "retrieval", head=head)
    assert loaded(tmp_path, train, "retrieval", head=head, prompts=["a: ", "b: "]).tasks["own"].task.prompts
    alike = Head(3, (), None, VECTORS, ("text: ", "text: "))
    assert loaded(tmp_path, train, "retrieval", head=alike).tasks["own"].task.prompts == ("text: ", "text: ")
    assert loaded(tmp_path, train.drop_columns(["vector"]), "retrieval", head=head, soft_label=None).tasks
