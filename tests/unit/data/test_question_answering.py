"""Answers of question answering: forms of files, scores against SQuAD's script, best spans against a slow search."""

from __future__ import annotations

import collections
import io
import json
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch

from distill import config
from distill.data.files import Table, read
from distill.data.labelled import labelled_rows
from distill.data.task_types import TASK_TYPES, Columns, labelled
from distill.data.task_types.answers import (
    BEST,
    COLUMNS,
    END,
    FIRST,
    LONGEST,
    NONE,
    NULL,
    PROBABILITY,
    best_spans,
    gathered,
    grades,
    narrowed,
    no_answer,
)
from distill.data.task_types.question_answering import QUESTION_ANSWERING as KIND
from distill.data.task_types.question_answering import answerable, find, spans_of
from distill.errors import ConfigError, DataError
from distill.evaluation.metrics import METRICS
from distill.models.families.head import Head

pytestmark = pytest.mark.usefixtures("own_cache")

CONTEXT = "The boat crossed the harbour. A second boat, the larger, stayed."


def normalize_answer(text: str) -> str:
    """As in SQuAD's evaluate-v2.0.py."""
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text).split())


def compute_exact(gold: str, answer: str) -> int:
    return int(normalize_answer(gold) == normalize_answer(answer))


def compute_f1(gold: str, answer: str) -> float:
    """As in SQuAD's evaluate-v2.0.py."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(answer).split()
    same = sum((collections.Counter(gold_words) & collections.Counter(words)).values())
    if len(gold_words) == 0 or len(words) == 0:
        return int(gold_words == words)
    if same == 0:
        return 0
    precision, recall = same / len(words), same / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


def references(rows: list[tuple[str, tuple[tuple[int, int], ...]]]) -> np.ndarray:
    truth = np.empty(len(rows), object)
    for number, row in enumerate(rows):
        truth[number] = row
    return truth


def test_scores_are_those_of_squad() -> None:
    random = np.random.default_rng(0)
    words = ["The", "boat,", "crossed", "a", "harbour", "an", "(old)", "BOAT", "--", "it's"]
    rows, predicted = [], []
    for _ in range(300):
        context = " ".join(random.choice(words, 8))
        spans = [tuple(sorted(random.integers(0, len(context) + 1, 2).tolist())) for _ in range(random.integers(0, 4))]
        rows.append((context, tuple(spans)))
        none = random.random() < 0.2
        predicted.append((NONE, NONE) if none else tuple(sorted(random.integers(0, len(context) + 1, 2).tolist())))
    values = grades(np.array(predicted), references(rows))
    for (context, spans), (first, end), got in zip(rows, predicted, values, strict=True):
        golds = [context[a:b] for a, b in spans if normalize_answer(context[a:b])] or [""]
        answer = "" if first == NONE else context[first:end]
        assert got[0] == max(compute_exact(gold, answer) for gold in golds)
        assert got[1] == pytest.approx(max(compute_f1(gold, answer) for gold in golds))
    assert 0.05 < values[:, 0].mean() < values[:, 1].mean() < 0.95
    truth = references(rows)
    assert METRICS["exact_match"](values, truth) == values[:, 0].mean()
    assert METRICS["answer_f1"](values, truth) == pytest.approx(values[:, 1].mean())


def slow_search(logits: np.ndarray, characters: np.ndarray) -> tuple[float, int, int]:
    """Score, first character and end of the best span of a window, one pair of tokens after the other."""
    best = (-np.inf, 0, 0)
    for start in range(len(logits)):
        for end in range(start, min(len(logits), start + LONGEST)):
            if characters[start, 0] >= 0 and characters[end, 0] >= 0:
                score = float(logits[start, 0]) + float(logits[end, 1])
                best = max(best, (score, int(characters[start, 0]), int(characters[end, 1])))
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_best_span_is_that_of_a_slow_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(20, 48, 2)).astype(np.float32)
    characters = np.full((20, 48, 2), NONE)
    for row in characters:
        first, last = random.integers(1, 10), random.integers(12, 48)
        row[first:last] = np.arange(first, last)[:, None] * 3 + (0, 2)
    outputs = best_spans(logits, characters)
    assert outputs.shape == (20, COLUMNS)
    for row, places, got in zip(logits, characters, outputs, strict=True):
        score, first, end = slow_search(row, places)
        assert (got[FIRST], got[END]) == (first, end)
        assert got[BEST] == pytest.approx(score, rel=1e-5)
        assert got[NULL] == pytest.approx(row[0].sum(), rel=1e-5)
        allowed = torch.from_numpy((places[:, 0] >= 0) | (np.arange(48) == 0))
        start, stop = (torch.from_numpy(row[:, side]).masked_fill(~allowed, -torch.inf).softmax(0) for side in (0, 1))
        at = [int(np.flatnonzero(places[:, side] == place)[0]) for side, place in ((0, first), (1, end))]
        assert got[PROBABILITY] == pytest.approx(float(start[at[0]] * stop[at[1]]), rel=1e-4)


def test_a_window_without_context_has_no_answer_and_nan_is_kept() -> None:
    logits, characters = np.zeros((2, 8, 2), np.float32), np.full((2, 8, 2), NONE)
    characters[1, 3:6] = np.arange(3)[:, None] + (0, 1)
    logits[1, 4] = np.nan
    without, broken = best_spans(logits, characters)
    assert (without[FIRST], without[END]) == (0, 0)
    assert no_answer(without[None]) == pytest.approx(1)
    assert not np.isfinite(broken).all()


def test_windows_of_a_question_are_gathered() -> None:
    random = np.random.default_rng(0)
    windows = random.normal(size=(9, COLUMNS)).astype(np.float32)
    owners = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4])
    result = gathered(windows, owners)
    for question, got in enumerate(result):
        own = windows[owners == question]
        expected = own[own[:, BEST].argmax()].copy()
        expected[NULL] = own[:, NULL].min()
        np.testing.assert_array_equal(got, expected)


def test_logits_are_cut_to_a_width() -> None:
    outputs = np.arange(24).reshape(2, 12)
    np.testing.assert_array_equal(narrowed(outputs, 4), outputs.reshape(2, 2, 6)[:, :, :4].reshape(2, 8))


def outputs_of(best: list[float], null: list[float]) -> np.ndarray:
    values = np.zeros((len(best), COLUMNS), np.float32)
    values[:, FIRST], values[:, END], values[:, PROBABILITY] = 4, 8, 0.5
    values[:, BEST], values[:, NULL] = best, null
    return values


def test_there_is_no_answer_above_the_threshold() -> None:
    outputs = outputs_of([3, 3, 3], [2, 3.1, 9])
    probability = 1 / (1 + np.exp(-np.array([-1, 0.1, 6])))
    np.testing.assert_allclose(no_answer(outputs), probability, rtol=1e-5)
    assert KIND.decode(outputs, (), 0.5).tolist() == [[4, 8], [NONE, NONE], [NONE, NONE]]
    assert KIND.decode(outputs, (), 0.9).tolist() == [[4, 8], [4, 8], [NONE, NONE]]
    assert KIND.decode(outputs, (), 1.0).tolist() == [[4, 8]] * 3
    rows = [("which", CONTEXT)] * 3
    first, _, last = KIND.answer(outputs, (), 0.5, rows)
    expected = {"answer": "boat", "start": 4, "end": 8, "score": 0.5, "no_answer": pytest.approx(probability[0])}
    assert first == expected
    assert (last["answer"], last["start"], last["end"]) == ("", None, None)
    assert [KIND.brief(answer) for answer in (first, last)] == ["boat", "no answer"]
    assert KIND.same is not None
    assert KIND.same(KIND.decode(outputs, (), 0.5), KIND.decode(outputs, (), 1.0)).tolist() == [True, False, False]


def test_spans_differ_by_the_characters_that_they_share() -> None:
    outputs, other = outputs_of([1, 1, 1], [0, 0, 0]), outputs_of([1, 1, 1], [0, 0, 0])
    other[1, END], other[2, [FIRST, END]] = 12, (20, 30)
    assert KIND.difference(outputs, other).tolist() == [0, 0.5, 1]


BOAT, SECOND = CONTEXT.index("boat"), CONTEXT.index("boat, the")


@pytest.mark.parametrize(
    ("answers", "start", "expected"),
    [
        ({"text": ["boat"], "answer_start": [SECOND]}, None, [(SECOND, SECOND + 4)]),
        ({"text": ["boat", "boat", "The"], "answer_start": [SECOND, SECOND, 0]}, None, [(SECOND, SECOND + 4), (0, 3)]),
        ({"text": "boat", "answer_start": SECOND}, None, [(SECOND, SECOND + 4)]),
        ({"text": ["boat"], "answer_start": None}, None, [(BOAT, BOAT + 4)]),
        ({"text": [], "answer_start": []}, None, []),
        ({"text": None, "answer_start": None}, None, None),
        ([{"text": "boat", "answer_start": SECOND}, {"text": "The"}], None, [(SECOND, SECOND + 4), (0, 3)]),
        (["boat", "The"], [SECOND, 0], [(SECOND, SECOND + 4), (0, 3)]),
        ({"text": ["boat"]}, [SECOND], [(SECOND, SECOND + 4)]),
        ("boat", f"{SECOND}.0", [(SECOND, SECOND + 4)]),
        (["boat", "harbour"], None, [(BOAT, BOAT + 4), (21, 28)]),
        ([], None, []),
        ("boat", None, [(BOAT, BOAT + 4)]),
        (" boat ", None, [(BOAT, BOAT + 4)]),
        ("boat", SECOND, [(SECOND, SECOND + 4)]),
        ("boat", str(SECOND), [(SECOND, SECOND + 4)]),
        ("boat", float(SECOND), [(SECOND, SECOND + 4)]),
        ([], -1, []),
        ([], [], []),
        ("", None, []),
        ("", -1, []),
        ({"text": [""], "answer_start": [-1]}, None, []),
        (None, None, None),
    ],
)  # fmt: skip
def test_forms_of_answers(answers: Any, start: Any, expected: Any) -> None:
    assert spans_of(answers, start, CONTEXT, "row 1") == expected


@pytest.mark.parametrize(
    ("answers", "start", "message"),
    [
        ("ship", None, "row 1: got the answer 'ship', which is not in the context; must be a part of it"),
        ("Boat", None, "row 1: got the answer 'Boat', which is not in the context"),
        ("boat", 5, "row 1: got the answer 'boat' with answer_start 5, where the context has 'oat '; must be"),
        ("boat", 999, "row 1: got the answer 'boat' with answer_start 999, where the context has ''"),
        ("boat", -4, "row 1: got the answer 'boat' with answer_start -4, below 0"),
        ("boat", -1, "row 1: got the answer 'boat' with answer_start -1, below 0"),
        ("boat", 4.5, "row 1: got answer_start 4.5; must be a whole number"),
        ("boat", "four", "row 1: got answer_start 'four'; must be a whole number"),
        ("", 4, "row 1: got an empty text as an answer, with answer_start 4; must be text"),
        (None, 4, "row 1: got answer_start 4 without an answer; must have both or none"),
        (["boat", "The"], [4], "row 1: got 2 answers and 1 answer_start; must be one for each answer"),
        (["boat"], [5], "row 1: got the answer 'boat' with answer_start 5, where the context has"),
        ({"text": ["boat"], "answer_start": [4, 5]}, None, "row 1: got 1 answers and 2 answer_start; must be one"),
        ({"text": [None], "answer_start": [4]}, None, "row 1: got null as an answer, with answer_start 4; must be"),
        ({"text": None, "answer_start": [4]}, None, "row 1: got 0 answers and 1 answer_start; must be one"),
        (["boat", None], None, "row 1: got null as an answer; must be text"),
    ],
)
def test_answers_that_are_not_in_the_context_are_refused(answers: Any, start: Any, message: str) -> None:
    with pytest.raises(DataError) as refused:
        spans_of(answers, start, CONTEXT, "row 1")
    (line,) = refused.value.messages
    assert line.startswith(message)
    assert "correct" in line


SQUAD = {
    "id": ["a", "b", "c", "d"] * 6,
    "title": ["Boats"] * 24,
    "context": [f"{CONTEXT} {number}" for number in range(24)],
    "question": ["What crossed?", "What stayed?", "Who?", "Which?"] * 6,
    "answers": [
        {"text": ["boat", "The boat"], "answer_start": [4, 0]},
        {"text": ["boat"], "answer_start": [SECOND]},
        {"text": [], "answer_start": []},
        None,
    ]
    * 6,
}


def loaded(rows: dict[str, list[Any]], **settings: Any) -> Any:
    table = Table(pa.table(rows), ("facts.jsonl",), (0,))
    head = settings.pop("head", None)
    return labelled_rows("facts", config.Task(**settings), {"train": table}, head, "tasks")


def test_columns_of_squad_are_recognized() -> None:
    result = loaded(SQUAD)
    assert (result.task.kind, result.task.columns, result.task.labels) == (KIND, ("question", "context"), ())
    assert (result.task.metrics, result.task.outputs) == (("exact_match", "answer_f1"), 2)
    assert result.task.threshold == 0.5
    assert any("of the training questions have no answer" in note for note in result.notes)
    content = result.train.table
    assert content.column_names == ["question", "context", "label"]
    targets = KIND.encode(content["label"], (), str, "")
    assert [row.tolist() for row in targets[:4]] == [[4, 8, 0, 8], [SECOND, SECOND + 4], [NONE, NONE], []]
    assert labelled(targets)[:4].tolist() == [True, True, True, False]
    assert answerable(targets)[:4].tolist() == [True, True, False, False]
    truth = KIND.truth(targets[:3], [[], SQUAD["context"][:3]], ())
    assert truth[0] == (SQUAD["context"][0], ((4, 8), (0, 8)))
    assert truth[2] == (SQUAD["context"][2], ())


@pytest.mark.parametrize("form", ["python", "numpy", "json"])
def test_squads_objects_that_pandas_wrote_to_a_csv_are_read(form: str) -> None:
    def cell(answer: dict[str, list[Any]] | None) -> Any:
        if answer is None or form == "python":
            return answer
        if form == "json":
            return json.dumps(answer)
        return {"text": np.array(answer["text"], object), "answer_start": np.array(answer["answer_start"], np.int32)}

    frame = pandas.DataFrame(SQUAD | {"answers": list(map(cell, SQUAD["answers"]))})
    again = pandas.read_csv(io.StringIO(frame.to_csv(index=False)), dtype=str, keep_default_na=False)
    result = loaded({name: again[name].tolist() for name in again})
    expected = loaded(SQUAD)
    assert result.task.kind is KIND
    assert result.train.table.equals(expected.train.table)


FACTS = {
    "question": [f"What crossed? {number}" for number in range(36)],
    "context": [f"{number} {CONTEXT}" for number in range(36)],
    "answer": ["boat", "harbour", "crossed"] * 12,
}


def test_texts_are_found_in_the_context() -> None:
    result = loaded(FACTS)
    assert result.task.kind is KIND
    assert result.task.threshold == 1
    assert any("every training question has an answer" in note for note in result.notes)
    starts = [context.index(answer) for context, answer in zip(FACTS["context"], FACTS["answer"], strict=True)]
    targets = KIND.encode(result.train.table["label"], (), str, "")
    assert [row[0] for row in targets] == starts
    other = [context.rindex("o") for context in FACTS["context"]]
    placed = loaded(FACTS | {"answer": ["o"] * 36, "answer_start": [str(start) for start in other]})
    assert [row[0] for row in KIND.encode(placed.train.table["label"], (), str, "")] == other


BEFORE = "\U0001f6a2 caf\u00e9 \U0001f6a2 "
"""Two ships of two UTF-16 units each, and a letter of two bytes."""
UNITS = {
    "UTF-16 units": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes of UTF-8": lambda text: len(text.encode()),
    "characters": len,
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("form", ["objects", "lists", "a column"])
def test_places_that_count_other_units_are_moved(form: str, unit: str) -> None:
    contexts = [f"{BEFORE * (n % 3 > 0)}{context}" for n, context in enumerate(FACTS["context"])]
    first = [context.rindex(answer) for context, answer in zip(contexts, FACTS["answer"], strict=True)]
    starts = [UNITS[unit](context[:place]) for context, place in zip(contexts, first, strict=True)]
    pairs = list(zip(FACTS["answer"], starts, strict=True))
    rows: dict[str, list[Any]] = {"question": FACTS["question"], "context": contexts}
    if form == "objects":
        rows |= {"answers": [[{"text": text, "answer_start": start}] for text, start in pairs]}
    elif form == "lists":
        rows |= {"answers": [{"text": [text], "answer_start": [start]} for text, start in pairs]}
    else:
        rows |= {"answer": FACTS["answer"], "answer_start": [str(start) for start in starts]}
    result = loaded(rows)
    assert [row[0] for row in KIND.encode(result.train.table["label"], (), str, "")] == first
    said = [note for note in result.notes if f"count {unit}, by which all of them are there" in note]
    assert len(said) == (unit != "characters")


def test_places_that_no_unit_fits_are_refused() -> None:
    contexts = [f"{BEFORE}{context}" for context in FACTS["context"]]
    starts = [UNITS["UTF-16 units"](c[: c.index(a)]) for c, a in zip(contexts, FACTS["answer"], strict=True)]
    rows = FACTS | {"context": contexts, "answer_start": [*starts[:5], starts[5] + 1, *starts[6:]]}
    with pytest.raises(DataError, match=r"row 1: got the answer 'boat' .* and not the UTF-16 unit or the byte"):
        loaded(rows)


@pytest.mark.parametrize(
    ("text", "context", "place"),
    [
        ("art", "cartoons of art, Kunst", 12),
        ("art", "cartoons of smart carts", 1),
        ("5", "in 1954, 15 and 5 of them", 16),
        ("km", "15km of roads", 2),
        ("Stra\u00dfe", "Stra\u00dfenbahn in der Stra\u00dfe", 19),
        ("\u4eac", "\u6771\u4eac\u90fd", 1),
        ("of art", "cartoons of art", 9),
        ("ox", "cartoons", -1),
    ],
)
def test_an_answer_is_found_as_whole_words_if_it_is_there_so(text: str, context: str, place: int) -> None:
    assert find(text, context) == place


def test_rows_of_several_annotators_accept_the_answers_of_all() -> None:
    """As in SQuAD's own files, where one row has all of them. A row's own answer stays the first."""
    rows = {
        "question": ["who", "who", "what", "who"],
        "context": ["Ann and Bob slept"] * 3 + ["Bob"],
        "answer": ["Ann", "Ann and Bob", "slept", "Bob"],
    }
    prepared = KIND.prepare(pa.table(rows), Columns(("question", "context"), ("answer",), KIND), str)
    assert prepared["answer"].to_pylist() == [[0, 3, 0, 11], [0, 11, 0, 3], [12, 17], [0, 3]]


def test_which_files_are_of_question_answering() -> None:
    classes = FACTS | {"answer": ["yes", "no"] * 18}
    assert loaded(classes, label="answer").task.kind is TASK_TYPES["classification"]
    assert loaded(FACTS, kind="classification", label="answer").task.kind is TASK_TYPES["classification"]
    renamed = {"q": FACTS["question"], "passage": FACTS["context"], "a": FACTS["answer"]}
    named = {"text": "q", "text_pair": "passage", "label": "a"}
    assert loaded(renamed, kind=KIND.name, **named).task.columns == ("q", "passage")
    head = Head(2, (), None, KIND.architecture)
    assert loaded(renamed, head=head, **named).task.kind is KIND
    with pytest.raises(ConfigError, match=r"tasks.text: got nothing; must be a column of facts.jsonl for question_an"):
        loaded(renamed, kind=KIND.name)
    with pytest.raises(ConfigError, match=r"tasks.text_pair: got nothing; must be a column"):
        loaded(renamed, kind=KIND.name, text="q", label="a")
    with pytest.raises(ConfigError, match=r"tasks.label: got q, with q and passage; must be different"):
        loaded(renamed, kind=KIND.name, text="q", text_pair="passage", label="q")


@pytest.mark.parametrize("column", ["question", "context"])
@pytest.mark.parametrize("value", ["", " \n", None])
def test_a_row_without_a_text_is_refused(column: str, value: str | None) -> None:
    rows = FACTS | {column: [*FACTS[column][:5], value, *FACTS[column][6:]]}
    with pytest.raises(DataError, match=f"facts.jsonl, row 6: got no text in {column}; must be text"):
        loaded(rows)


def test_rows_of_losses_are_start_and_end_of_each_window() -> None:
    outputs = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    rows = KIND.rows(outputs)
    assert rows.shape == (6, 8)
    assert torch.equal(rows[0::2], outputs[:, :8])
    assert torch.equal(rows[1::2], outputs[:, 8:])
    np.testing.assert_array_equal(KIND.rows(outputs.numpy()), rows.numpy())
    assert KIND.loss_targets(np.array([[1, 2], [3, 4], [0, 0]])).tolist() == [1, 2, 3, 4, 0, 0]


def test_jsonl_with_questions_without_answers_is_read(tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    rows = [dict(zip(SQUAD, row, strict=True)) for row in zip(*SQUAD.values(), strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    table = read(str(file), "tasks.train")
    columns = Columns(("question", "context"), ("answers",), KIND)
    assert KIND.prepare is not None
    prepared = KIND.prepare(table.rows, columns, table.where)
    assert prepared["answers"].to_pylist()[:4] == [[], [NONE, NONE], [SECOND, SECOND + 4], [4, 8, 0, 8]]


def nested(rows: dict[str, list[Any]]) -> dict[str, Any]:
    """The rows in the form of SQuAD's files, with a paragraph for each."""
    paragraphs = []
    for number, answers in enumerate(rows["answers"]):
        pairs = None if answers is None else zip(answers["text"], answers["answer_start"], strict=True)
        given = None if pairs is None else [{"text": text, "answer_start": start} for text, start in pairs]
        question = {"id": rows["id"][number], "question": rows["question"][number], "is_impossible": given == []}
        question |= {} if given is None else {"answers": given}
        paragraphs.append({"context": rows["context"][number], "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "Boats", "paragraphs": paragraphs}]}


@pytest.mark.parametrize("indent", [None, 1])
def test_squads_own_files_are_read(indent: int | None, tmp_path: Path) -> None:
    file = tmp_path / "train-v2.0.json"
    file.write_text(json.dumps(nested(SQUAD), indent=indent))
    table = read(str(file), "tasks.train")
    rows = table.rows.drop_columns("is_impossible")
    assert rows.to_pydict() == {name: SQUAD[name] for name in ("id", "title", "context", "question", "answers")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "1"}]}]}]}, "row 1: got a question .* 'question'"),
        ({"data": [{"paragraphs": [{"qas": [{"question": "a"}]}]}]}, "row 1: got a question .* without 'context'"),
        ({"data": [{"paragraphs": [{"context": "a", "qas": 3}]}]}, "row 1: got a question of SQuAD's form without"),
        ({"data": [{"paragraphs": []}]}, "got no rows"),
    ],
)
def test_a_broken_file_of_squad_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read(str(file), "tasks.train")
    file.write_text(json.dumps(content)[:-1])
    cut = message if "row 1" in message else "row 1: got 'the end of the file'"  # rows are read one after the other
    with pytest.raises(DataError, match=cut):
        read(str(file), "tasks.train")
