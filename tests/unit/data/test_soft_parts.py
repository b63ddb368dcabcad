"""Soft labels of words, choices and spans: the outputs that they stand for, in every form of a file, and what is
refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import softmax

from distill import config
from distill.data.soft_labels import aligned, of_column, soft_column, without
from distill.data.task_types import ABSENT, TASK_TYPES, answers
from distill.data.tasks import load_tasks, soft_outputs_of
from distill.errors import UserError
from tests import tiny

SENTENCES = tiny.SENTENCES
LABELS = ("O", "B-PER", "I-PER")
NUMBERS = {label: number for number, label in enumerate(LABELS)}
WORDS = [[[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], None, [[0.25, 0.25, 0.5]]]
COUNT = 24


TEACHER: Any = SimpleNamespace(soft_first=True)


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def read(kind: str, values: pa.ChunkedArray) -> np.ndarray:
    soft = TASK_TYPES[kind].soft
    assert soft is not None
    return soft(values, NUMBERS, lambda row: f"t.jsonl, row {row + 1}", "soft")


def text(values: list[Any]) -> pa.ChunkedArray:
    return column([None if value is None else json.dumps(value) for value in values])


def test_every_form_of_words_is_the_same() -> None:
    named = [row and [dict(zip(LABELS, word, strict=True)) for word in row] for row in WORDS]
    sparse = [row and [{label: p for label, p in word.items() if p} for word in row] for row in named]
    pairs = [row and [[*word.items()] for word in row] for row in named]
    forms = [
        column(WORDS),
        column(WORDS, pa.list_(pa.list_(pa.float32(), 3))),
        column(WORDS, pa.large_list(pa.list_(pa.float64()))),
        column(named),
        column(sparse),
        column(pairs, pa.list_(pa.map_(pa.string(), pa.float64()))),
        *map(text, (WORDS, named, sparse)),
    ]
    for form in forms:
        found = read("token_classification", form)
        assert [len(row) for row in found] == [2, 0, 1]
        for row, given in zip(found, WORDS, strict=True):
            if given is not None:
                np.testing.assert_allclose(softmax(row, axis=1), given, atol=1e-6)


def test_a_word_without_probabilities_is_nan_and_a_row_of_such_words_has_no_soft_label() -> None:
    given = read("token_classification", column([[[1.0, 0.0, 0.0], None], [None, None], None]))
    for found in (given, of_column(pa.chunked_array([soft_column(given)]))):
        assert found[0][0].tolist() == [0, ABSENT, ABSENT]
        assert np.isnan(found[0][1]).all()
        assert without(found).tolist() == [False, True, True]


@pytest.mark.parametrize("form", [column, text])
def test_choices_and_spans(form: Any) -> None:
    found = read("multiple_choice", form([[0.25, 0.75], None, [0.5, 0.5, 0.0]]))
    assert [row.shape for row in found] == [(2, 1), (0, 1), (3, 1)]
    np.testing.assert_allclose(softmax(found[2][:, 0]), [0.5, 0.5, 0])
    spans = [{"start": 0, "end": 3, "score": 0.25}, {"start": None, "end": None, "score": 0.7495}]
    first, second = read("question_answering", form([spans, None]))
    np.testing.assert_allclose(first, [[0, 3, 0.25 / 0.9995], [-1, -1, 0.7495 / 0.9995]])
    assert len(second) == 0


@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice", "question_answering"])
def test_a_stored_column_is_the_same(kind: str) -> None:
    span = [{"start": 4, "end": 9, "score": 1.0}]
    values = {"token_classification": WORDS, "multiple_choice": [[0.5, 0.5], None], "question_answering": [span, None]}
    given = read(kind, column(values[kind]))
    stored = pa.chunked_array([soft_column(given)])
    for found in (of_column(stored), of_column(pa.chunked_array([stored.combine_chunks().take([*range(len(given))])]))):
        assert without(found).tolist() == [row is None for row in values[kind]]
        for one, other in zip(found, given, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(of_column(stored.slice(1))[0], given[1])


WRONG: dict[str, tuple[str, list[Any], str]] = {
    "a sum": ("token_classification", [[[1.0, 0, 0]], [[1.0, 0, 0], [0.7, 0.2, 0.2]]], "row 2, word 2: got probabil"),
    "negative": ("token_classification", [[[1.2, -0.2, 0.0]]], "row 1, word 1: got probability 1.2 in soft; must be"),
    "NaN": ("token_classification", [[[float("nan"), 0.5, 0.5]]], "row 1, word 1: got probability nan in soft"),
    "too few": ("token_classification", [None, [[0.5, 0.5]]], "row 2, word 1: got 2 probabilities in soft; must be 3"),
    "a label": ("token_classification", [[{"B-LOC": 1.0}]], "row 1, word 1: got label 'B-LOC' in soft; must be of O"),
    "a number": ("token_classification", [0.5], "row 1: got '0.5' in soft; must be a list with an entry for each word"),
    "numbers": ("token_classification", [[0.5]], "row 1, word 1: got 0.5 in soft; must be a list of probabilities"),
    "a word": ("token_classification", ["[[1, 0, 0"], "row 1: got '[[1, 0, 0' in soft; must be a list with an entry"),
    "a sum of choices": ("multiple_choice", [[0.5, 0.5], [0.5, 0.6]], "row 2: got probabilities in soft that sum to 1"),
    "a choice": ("multiple_choice", [[0.5, 0.5], [-0.5, 1.5]], "row 2: got probability -0.5 in soft; must be a number"),
    "no choice": ("multiple_choice", [[None, 1.0]], "row 1: got probability None in soft; must be a number from 0"),
    "text": ("multiple_choice", ['["a", 1]'], "row 1: got probability 'a' in soft; must be a number from 0 to 1"),
    "a sum of spans": (
        "question_answering", [[{"start": 0, "end": 1, "score": 0.5}]], "sum to 0.5; must sum to 1, where an object",
    ),
    "half a span": (
        "question_answering", [[{"start": 1, "end": None, "score": 1.0}]], "row 1: got a span from 1 to None in soft",
    ),
    "an empty span": (
        "question_answering", [[{"start": 2, "end": 2, "score": 1.0}]], "row 1: got a span from 2 to 2 in soft; must",
    ),
    "no score": ("question_answering", [[{"start": 2, "end": 4}]], "row 1: got score None in soft; must be a number"),
    "no object": ("question_answering", [[[0, 4, 1.0]]], "row 1: got score None in soft; must be a number from 0"),
    "no list": ("question_answering", ["all"], "row 1: got 'all' in soft; must be a list of objects with start, end"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_values_that_are_no_soft_labels_are_refused_with_their_row(case: str) -> None:
    kind, values, message = WRONG[case]
    with pytest.raises(UserError) as caught:
        read(kind, column(values))
    assert message in str(caught.value)
    assert str(caught.value).count(";") >= 2


def rows_of(kind: str) -> list[dict[str, Any]]:
    """Rows whose soft labels are one-sided, so that a wrong order is seen; each fourth has none."""
    rows = list[dict[str, Any]]()
    for i in range(COUNT):
        words = [*SENTENCES[i % 8].split(), str(i)]
        if kind == "token_classification":
            row = {"tokens": words, "ner_tags": [LABELS[i % 2], *["O"] * (len(words) - 1)]}
            row["soft"] = [[0.5, 0.375, 0.125], *[[0.875, 0.125, 0.0]] * (len(words) - 1)]
        elif kind == "multiple_choice":
            choices = words[: 2 + i % 3]
            row = {"question": f"which {i}", "choices": choices, "answer": 0}
            row["soft"] = [0.75, 0.25, *[0.0] * (len(choices) - 2)]
        else:
            context = " ".join(words)
            row = {"question": f"what {i}", "context": context, "answers": [words[0]]}
            row["soft"] = [
                {"start": 0, "end": len(words[0]), "score": 0.625},
                {"start": len(words[0]) + 1, "end": len(context), "score": 0.25},
                {"start": None, "end": None, "score": 0.125},
            ]
        rows.append(row | ({"soft": None} if i % 4 == 3 else {}))
    return rows


def load(folder: Path, rows: list[dict[str, Any]], kind: str) -> Any:
    file = folder / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = config.Tasks(
        train=str(file), soft_label="soft", kind=kind, labels=[*LABELS] if kind == "token_classification" else None
    )
    (data,) = load_tasks(tasks, config.Limit(examples=16), 0).tasks.values()
    return data


@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice", "question_answering"])
def test_rows_are_aligned_with_what_a_model_outputs(kind: str, tmp_path: Path) -> None:
    data = load(tmp_path, rows_of(kind), kind)
    soft, tokenizer = soft_outputs_of(data.train), tiny.tokenizer()
    assert soft is not None
    encoded = data.encoded(data.train, tokenizer, 8 if kind == "token_classification" else 32)  # several windows a text
    found = aligned(data.task.kind.architecture, soft, encoded)
    missing = without(soft)
    assert 0 < missing.sum() < len(missing)
    if kind == "token_classification":
        assert encoded.words is not None
        assert len(encoded) > len(soft)
        owner = np.repeat(np.arange(len(soft)), encoded.words.of_texts)
        assert np.isnan(found).any(axis=1).tolist() == missing[owner].tolist()
        for row in np.flatnonzero(~missing):
            np.testing.assert_allclose(softmax(found[owner == row][0]), [0.5, 0.375, 0.125], atol=1e-6)
    elif kind == "multiple_choice":
        assert np.isnan(found).all(axis=1).tolist() == missing.tolist()
        for row, choices in enumerate(data.train["second_texts"][:]):
            if not missing[row]:
                shares = softmax(found[row])
                np.testing.assert_allclose(shares[:2], [0.75, 0.25], atol=1e-6)
                assert not shares[2:].any()
                assert (found[row, len(choices) :] == ABSENT).all()
    else:
        _check_windows(data, found, encoded, missing, tokenizer)


def _check_windows(data: Any, found: np.ndarray, encoded: Any, missing: np.ndarray, tokenizer: Any) -> None:
    """The probabilities of start and end are at the tokens of the spans' first and last characters."""
    for window, owner in enumerate(encoded.spans.owners):
        logits = found[window].reshape(2, -1)
        if missing[owner]:
            assert np.isnan(logits).all()
            continue
        ids = encoded.ids[encoded.offsets[window] : encoded.offsets[window + 1]]
        places = encoded.spans.characters[encoded.offsets[window] : encoded.offsets[window + 1]]
        first, context = data.train["context"][int(owner)].split()[0], data.train["context"][int(owner)]
        whole = places[:, 1].max() == len(context) and (places[:, 0] == 0).any()
        start, end = softmax(logits, axis=1)
        assert whole
        by_start, by_end = dict(enumerate(start)), dict(enumerate(end))
        at = next(n for n, place in enumerate(places) if place[0] == 0)
        assert by_start[at] == pytest.approx(0.625, abs=1e-5)
        assert by_start[0] == by_end[0] == pytest.approx(0.125, abs=1e-5)
        last = max(n for n, place in enumerate(places) if place[1] == len(context))
        assert by_end[last] == pytest.approx(0.25, abs=1e-5)
        assert len(ids) == len(places)
        ends = next(n for n, place in enumerate(places) if place[1] == len(first))
        assert by_end[ends] == pytest.approx(0.625, abs=1e-5)


def test_a_window_without_the_whole_span_has_no_answer(tmp_path: Path) -> None:
    rows = rows_of("question_answering")
    for row in rows:
        row["context"] = " ".join([*row["context"].split(), *SENTENCES[0].split() * 4])
        row["soft"] = [{"start": 0, "end": 3, "score": 1.0}]
    data = load(tmp_path, rows, "question_answering")
    encoded = data.encoded(data.train, tiny.tokenizer(), 24)
    soft = soft_outputs_of(data.train)
    assert soft is not None
    found = softmax(aligned(data.task.kind.architecture, soft, encoded).reshape(len(encoded), 2, -1), axis=2)
    later = np.r_[False, np.diff(encoded.spans.owners) == 0]
    assert later.any()
    np.testing.assert_allclose(found[later][:, :, 0], 1)
    assert not found[~later][:, :, 0].any()


@pytest.mark.parametrize(
    ("kind", "soft", "message"),
    [
        ("token_classification", [[1.0, 0.0, 0.0]], "row 5: got a list of 1 in soft for "),
        ("multiple_choice", [1.0], "row 5: got a list of 1 in soft for 3 choices; must have one for each choice"),
        ("question_answering", [{"start": 0, "end": 999, "score": 1.0}], "row 5: got a span that ends at 999 in soft"),
    ],
)
def test_soft_labels_of_other_parts_are_refused(kind: str, soft: Any, message: str, tmp_path: Path) -> None:
    rows = rows_of(kind)
    rows[4]["soft"] = soft
    with pytest.raises(UserError) as caught:
        load(tmp_path, rows, kind)
    assert message in str(caught.value)


FORMS: dict[str, Any] = {
    "lists": lambda words: words,
    "text": json.dumps,
    "texts": lambda words: [json.dumps(word) for word in words],
    "text that begins with null": lambda words: json.dumps([None, *words[1:]]),
    "text that begins with an object": lambda words: json.dumps([{"O": 1.0}, *words[1:]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_words_need_the_labels_in_their_order(form: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    rows = [row | {"soft": row["soft"] and FORMS[form](row["soft"])} for row in rows_of("token_classification")]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = config.Tasks(train=str(file), soft_label="soft")
    with pytest.raises(UserError, match=r"tasks\.labels: got nothing; must be the labels in the order of the prob"):
        load_tasks(tasks, config.Limit(), 0)


@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice", "question_answering"])
def test_what_soft_labels_do_not_give_is_the_teachers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher may have labelled more rows, in longer windows."""
    from distill.pipeline.train_steps import teacher_logits

    data: Any = load(tmp_path, rows_of(kind), kind)
    encoded, none = data.encoded(data.train, tiny.tokenizer(), 32), Any
    soft = teacher_logits.soft_outputs(data, encoded)
    assert soft is not None
    halves = 2 if kind == "question_answering" else 1
    wider = soft.shape[1] // halves + (8 if halves == 2 else 0)
    of_teacher = np.random.default_rng(0).normal(size=(len(soft) + (halves - 1), halves, wider)).astype(np.float32)
    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *_: of_teacher.reshape(len(of_teacher), -1))
    learned = teacher_logits.learned_outputs(TEACHER, data, none, encoded)
    missing = np.isnan(soft).any(axis=1)
    assert 0 < missing.sum() < len(missing)
    np.testing.assert_array_equal(learned[~missing], soft[~missing])
    own = of_teacher[: len(soft), :, : soft.shape[1] // halves].reshape(len(soft), -1)
    np.testing.assert_array_equal(learned[missing], own[missing])


def test_a_word_without_a_soft_label_is_the_teachers_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.pipeline.train_steps import tasks, teacher_logits
    from distill.pipeline.validation.data import _without_soft_labels

    rows = [row | {"soft": row["soft"] or [None] * len(row["tokens"])} for row in rows_of("token_classification")]
    for row in rows:
        row["soft"][1] = None
    data: Any = load(tmp_path, rows, "token_classification")
    encoded, none = data.encoded(data.train, tiny.tokenizer(), 32), Any
    (problem,) = _without_soft_labels({"t": data})
    empty = sum(int(text.split()[-1]) % 4 == 3 for text in data.train["tokens"])
    assert f"{empty} of {len(data.train)} training rows" in str(problem)

    of_teacher = np.random.default_rng(0).normal(size=(len(encoded.words.positions), 3)).astype(np.float32)
    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *_: of_teacher)
    soft = teacher_logits.soft_outputs(data, encoded)
    learned = teacher_logits.learned_outputs(TEACHER, data, none, encoded)
    assert soft is not None
    second = np.cumsum(np.r_[0, encoded.words.of_texts])[:-1] + 1
    np.testing.assert_array_equal(learned[second], of_teacher[second])
    missing = np.isnan(soft).any(axis=1)
    assert missing[second].all()
    assert not missing.all()
    np.testing.assert_array_equal(learned[~missing], soft[~missing])

    term = SimpleNamespace(kind=SimpleNamespace(head=True), compare_with="teacher")
    _, alone = tasks._teachers_or_logits(None, data, {"a": term}, False, encoded, none, none)
    assert alone is not None
    np.testing.assert_array_equal(alone.any(axis=1), ~missing)


@pytest.mark.parametrize("length", [1, 5, 29, 30, 31, 70])
def test_candidates_of_a_window_are_the_best_of_all_pairs(length: int) -> None:
    """Pairs of tokens at most 30 long, listed by loops."""
    draw = np.random.default_rng(length)
    places = np.full((length + 2, 2), -1)
    places[1:-1] = np.arange(length)[:, None] * 3 + [0, 2]
    logits = draw.normal(size=(1, 2, length + 2))
    found, sizes = answers.candidates(logits.reshape(1, -1), [places], np.zeros(1, np.int64))
    pairs = [(a, b) for a in range(length) for b in range(a, min(a + 30, length))]
    best = sorted(pairs, key=lambda pair: -logits[0, 0, pair[0] + 1] - logits[0, 1, pair[1] + 1])[:20]
    assert sizes.tolist() == [len(best) + 1]
    assert found[:, :2].tolist() == [*([3 * a, 3 * b + 2] for a, b in best), [-1, -1]]
