"""Files of multiple choice: from columns of questions, choices and answers to tasks, their rows and predictions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.config import Limit, Task, Tasks
from distill.data.encode import encode_choices, encode_texts
from distill.data.task_types import ABSENT, MISSING, SECONDS, TASK_TYPES
from distill.data.task_types.multiple_choice import numbered
from distill.data.tasks import Loaded, load_tasks, targets_of
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import CHOICES
from distill.pipeline.validation.tasks import tasks as problems
from tests import tiny

COUNT = 40
KIND = TASK_TYPES["multiple_choice"]


def question(number: int) -> tuple[str, list[str], int]:
    """Text, choices and position of the right one."""
    right = number % 3
    choices = [f"{number + 7 * (place + 1)} boats" for place in range(3)]
    choices[right] = f"{number} boats"
    return f"How many boats crossed on day {number}?", choices, right


def load(file: Path, head: Head | None = None, **settings: Any) -> Loaded:
    return load_tasks(Tasks(train=str(file), **settings), Limit(), 0, head)


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".csv":
        with file.open("w", newline="") as to:
            writer = csv.DictWriter(to, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("\n".join(map(json.dumps, rows)))
    return file


def race(number: int) -> dict[str, Any]:
    text, choices, right = question(number)
    return {"article": f"It was day {number}.", "question": text, "options": choices, "answer": "ABC"[right]}


def swag(number: int) -> dict[str, Any]:
    text, choices, right = question(number)
    return {"sent1": text, "sent2": "It was"} | {f"ending{n}": c for n, c in enumerate(choices)} | {"label": right}


def letters(number: int) -> dict[str, Any]:
    text, choices, right = question(number)
    return {"question": text, **dict(zip("ABC", choices, strict=True)), "answer": choices[right]}


def from_one(number: int) -> dict[str, Any]:
    text, choices, right = question(number)
    return {"question": text, "option_1": choices[0], "option_2": choices[1], "option_3": choices[2], "y": right + 1}


def arc(number: int) -> dict[str, Any]:
    text, choices, right = question(number)
    names = ["A", "B", "C"] if number % 2 else ["1", "2", "3"]
    return {"question": text, "choices": {"text": choices, "label": names}, "answerKey": names[right]}


@pytest.mark.parametrize(
    ("form", "suffix", "columns", "choices", "start"),
    [
        (race, "jsonl", ("article", "question"), ("options",), "How many boats crossed on day 5? "),
        (race, "parquet", ("article", "question"), ("options",), "How many boats crossed on day 5? "),
        (swag, "csv", ("sent1", "sent2"), ("ending0", "ending1", "ending2"), "It was "),
        (letters, "csv", ("question",), ("A", "B", "C"), ""),
        (from_one, "csv", ("question",), ("option_1", "option_2", "option_3"), ""),
        (arc, "jsonl", ("question",), ("choices",), ""),
    ],
)
def test_columns_and_answers_of_usual_files(
    form: Any, suffix: str, columns: tuple[str, ...], choices: tuple[str, ...], start: str, tmp_path: Path
) -> None:
    file = write(tmp_path / f"quiz.{suffix}", [form(number) for number in range(COUNT)])
    loaded = load(file)
    data = loaded.tasks["quiz"]
    assert (data.task.kind.name, data.task.columns, data.task.choices) == ("multiple_choice", columns, choices)
    assert (data.task.labels, data.task.outputs, data.task.range) == ((), 1, None)
    assert any(f"choices from {', '.join(choices)}, label from" in note for note in loaded.notes)
    rows = {
        row[columns[0]]: row
        for part in (data.train, *data.development.values(), *data.reported.values())
        for row in part
    }
    assert len(rows) == COUNT
    text, given, right = question(5)
    row = rows["It was day 5." if form is race else text]
    assert row[SECONDS] == [f"{start}{choice}" for choice in given]
    assert row["label"] == right
    assert sorted(row["label"] for row in rows.values()) == sorted(question(n)[2] for n in range(COUNT))


def test_columns_that_are_set(tmp_path: Path) -> None:
    rows = [{"q": f"day {n}", "x": "one", "z": "two", "w": "three", "best": n % 3} for n in range(COUNT)]
    file = write(tmp_path / "quiz.csv", rows)
    settings = {"text": "q", "choices": ["x", "z", "w"], "label": "best"}
    data = load(file, kind="multiple_choice", **settings).tasks["quiz"]
    assert data.inputs(data.train.select([0]))[2] == [data.train[0]["q"], "three"]
    assert load(file, **settings).tasks["quiz"].task.kind is KIND


@pytest.mark.parametrize(("a", "label"), [(1.5, "yes"), ("red", "billing")])
def test_columns_with_letters_as_names_are_no_choices_where_labels_are_none(a: Any, label: str, tmp_path: Path) -> None:
    rows = [{"text": f"day {n}", "a": a, "b": a, "label": label if n % 2 else "no"} for n in range(COUNT)]
    task = load(write(tmp_path / "quiz.csv", rows)).tasks["quiz"].task
    assert (task.kind.name, task.columns) == ("classification", ("text",))


def test_a_teacher_with_such_a_head_decides(tmp_path: Path) -> None:
    rows = [{"q": f"day {n}", "choices": ["one", "two"], "mark": n % 2} for n in range(COUNT)]
    data = load(write(tmp_path / "quiz.jsonl", rows), Head(1, (), None, CHOICES), label="mark").tasks["quiz"]
    assert data.task.kind is KIND


def test_rows_with_other_numbers_of_choices_and_without_an_answer(tmp_path: Path) -> None:
    rows = [
        {"question": f"day {n}", "choices": ["one", "two", "three"][: 2 + n % 2], "label": None if n == 3 else 1}
        for n in range(COUNT)
    ]
    data = load(write(tmp_path / "quiz.jsonl", rows)).tasks["quiz"]
    assert MISSING in targets_of(data.train)
    encoded = data.encoded(data.train, tiny.tokenizer(), 24)
    assert encoded.groups is not None
    assert np.diff(encoded.groups).tolist() == [len(choices) for choices in data.train[SECONDS]]
    assert len(data.inputs(data.train)) == encoded.groups[-1]


def test_each_choice_is_encoded_as_a_pair() -> None:
    tokenizer = tiny.tokenizer()
    texts = [("the small boat", ["crossed", "the harbour"]), ("the clock", ["a spoon", "rain", "two goats"])]
    encoded = encode_choices(texts, tokenizer, 16)
    assert encoded.groups is not None
    assert encoded.groups.tolist() == [0, 2, 5]
    pairs = [(first, second) for first, seconds in texts for second in seconds]
    for number, pair in enumerate(pairs):
        alone = encode_texts([[pair[0]], [pair[1]]], tokenizer, 16)
        start, end = encoded.offsets[number : number + 2]
        assert encoded.ids[start:end].tolist() == alone.ids.tolist()


def test_answers_have_the_probabilities_of_their_choices() -> None:
    outputs = np.array([[1.0, 3.0, ABSENT], [0.5, 0.5, 2.0]], np.float32)
    texts = [KIND.layout.divide(("q", ["a", "b"])), KIND.layout.divide(("text", "q", ["a", "b", "c"]))]
    first, second = KIND.answer(outputs, (), 0.5, texts)
    assert (first["choice"], first["number"], len(first["scores"])) == ("b", 1, 2)
    assert first["scores"] == pytest.approx([1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))])
    assert (second["choice"], second["number"]) == ("q c", 2)
    assert sum(second["scores"]) == pytest.approx(1)
    assert KIND.decode(outputs, (), 0.5).tolist() == [1, 2]
    assert KIND.same is not None
    assert KIND.same(np.array([1, 2]), np.array([1, 0])).tolist() == [True, False]
    assert KIND.brief(first) == "b 0.88"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "A", "B", "C", "D", "answer"], ["A", "B", "C", "D"]),
        (["ending1", "ending0", "text"], ["ending0", "ending1"]),
        (["opa", "opb", "opc"], ["opa", "opb", "opc"]),
        (["sol1", "sol2", "goal"], ["sol1", "sol2"]),
        (["choice_b", "choice_a"], ["choice_a", "choice_b"]),
        (["sentence1", "sentence2"], []),
        (["question1", "question2"], []),
        (["1", "2", "3"], []),
        (["option2", "option3"], []),
        (["A"], []),
        (["option1", "option3"], []),
    ],
)
def test_columns_of_one_choice_each(names: list[str], expected: list[str]) -> None:
    assert numbered(names) == expected


def refusal(rows: list[dict[str, Any]], tmp_path: Path, **settings: Any) -> str:
    with pytest.raises((DataError, ConfigError)) as refused:
        load(write(tmp_path / "quiz.jsonl", rows), **settings)
    (line,) = refused.value.messages
    return line.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": ["one"]}, "quiz.jsonl, row 4: got 1 choices in options; must be two or more"),
        ({"options": None}, "quiz.jsonl, row 4: got 0 choices in options; must be two or more"),
        ({"options": ["one", " "]}, "quiz.jsonl, row 4: got no text as choice 2 in options; must be text"),
        ({"options": ["one", None]}, "quiz.jsonl, row 4: got no text as choice 2 in options; must be text"),
        ({"options": ["one", "x" * 100_001]}, "quiz.jsonl, row 4: got a choice of 100,001 characters in options"),
        ({"answer": "D"}, "quiz.jsonl, row 4: got 'D' in answer and 3 choices; must be the number"),
        ({"answer": "none of them"}, "quiz.jsonl, row 4: got 'none of them' in answer; must be the number"),
        ({"question": None}, "quiz.jsonl, row 4: got null in question; must be text"),
    ],
)
def test_wrong_rows_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = [race(number) for number in range(COUNT)]
    rows[3] |= change
    assert refusal(rows, tmp_path).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"choices": "answers"}, "tasks.choices: got answers; must be a column of"),
        ({"choices": "question"}, "quiz.jsonl: got string in column question; must be a list of texts"),
        (
            {"kind": "classification", "label": "answer", "choices": "options"},
            "tasks.choices: got options; must be left out for classif",
        ),
        ({"metrics": ["f1"]}, "tasks.metrics: got f1; must be of accuracy for multiple_choice"),
        ({"labels": ["a", "b"]}, "tasks.labels: got ['a', 'b']; must be left out for multiple_choice"),
        ({"range": [0, 3]}, "tasks.range: got [0, 3]; must be left out for multiple_choice"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = [race(number) for number in range(COUNT)]
    assert refusal(rows, tmp_path, **settings).startswith(message)


def test_files_without_choices_are_refused(tmp_path: Path) -> None:
    rows = [{"question": f"day {n}", "label": n % 2} for n in range(COUNT)]
    line = refusal(rows, tmp_path, kind="multiple_choice")
    assert line.startswith("tasks.choices: got nothing, and no column of quiz.jsonl is named as choices")


def test_settings_of_the_choices_are_checked_at_once() -> None:
    def lines(choices: Any) -> list[str]:
        return [*map(str, problems(Tasks(each={"own": Task(train="a.csv", choices=choices)})))]

    assert lines("options") == []
    assert lines(["a", "b"]) == []
    assert "must be one column of lists, or two columns or more" in lines(["a"])[0]
    assert "must be one column of lists, or two columns or more" in lines(["a", "a"])[0]
    assert "must be the name of a column, or a list of them" in lines(3)[0]
