"""Whole runs of question answering, from a file of questions, contexts and answers to predictions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import distill
from distill.cli.compare.comparison import compare
from distill.errors import ConfigError
from tests import tiny
from tests.small import FLOAT, SMALL, given

COUNT = 64


def squad(number: int) -> dict[str, Any]:
    """A row as in SQuAD 2: every fourth question has no answer, and the answers of one row are unknown."""
    context = f"{tiny.SENTENCES[number % 8]} and {tiny.SENTENCES[(number + 3) % 8]}, {number}"
    word = context.split()[1 + number % 7]
    answers = {"text": [word, word], "answer_start": [context.index(word)] * 2}
    if number % 4 == 3:
        answers = {"text": [], "answer_start": []}
    return {"question": f"what of {number}", "context": context, "answers": None if number == 5 else answers}


def plain(number: int) -> dict[str, Any]:
    row = squad(number)
    return {"question": row["question"], "context": row["context"], "answer": row["context"].split()[1 + number % 7]}


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".csv":
        with file.open("w", newline="") as to:
            writer = csv.DictWriter(to, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), [(squad, "facts.jsonl"), (plain, "facts.csv")])
def test_a_file_becomes_exported_models_that_answer(
    form: Any, name: str, run: Any, predicted: Any, tmp_path: Path
) -> None:
    rows = [form(number) for number in range(COUNT)]
    file = write(tmp_path / name, rows)
    settings = [*SMALL, *(() if form is squad else FLOAT), f"teacher.name={given(tmp_path)}", f"tasks.train={file}"]
    results = run(tmp_path, "prune", *settings, onnx=form is squad)
    folder = tmp_path / "out" / "export" / "facts"
    described = json.loads((folder / "config.json").read_text())
    assert described["architectures"] == ["BertForQuestionAnswering"]
    assert "pipeline_tag: question-answering" in (folder / "README.md").read_text()
    record = json.loads((folder / "distill.json").read_text())
    assert (record["kind"], record["columns"]) == ("question_answering", ["question", "context"])
    assert record["threshold"] == (0.5 if form is squad else 1)
    none = "of the training questions have no answer" if form is squad else "every training question has an answer"
    assert any(none in note for note in results["notes"])
    scores = [model["scores"]["facts"] for model in results["models"] if model["scores"].get("facts")]
    assert form is not squad or len(scores) >= 4  # teacher and student, each in float32 and int8
    scored = {model["role"] for model in results["models"] if model["scores"].get("facts")}
    assert scored == {"teacher", "student"}
    assert all(score.keys() == {"exact_match", "answer_f1"} for score in scores)
    assert all(0 <= score["exact_match"] <= score["answer_f1"] <= 100 for score in scores)
    model = distill.load(folder)
    pairs = [(row["question"], row["context"]) for row in rows[:8]]
    answers = model.predict(pairs)
    for answer, (_, context) in zip(answers, pairs, strict=True):
        if answer["answer"]:
            assert context[answer["start"] : answer["end"]] == answer["answer"]
        else:
            assert (answer["start"], answer["end"]) == (None, None)
            assert form is squad
            assert answer["no_answer"] > 0.5
        assert 0 <= answer["score"] <= 1
    compared = compare(folder, folder, str(file))
    assert compared["agreement"]["percent"] == 100
    lines = predicted(folder, file)
    assert [line["context"] for line in lines] == [row["context"] for row in rows]
    answered = [line["predicted_answer" if "answer" in rows[0] else "answer"] for line in lines[:8]]
    assert answered == [answer["answer"] for answer in answers]


def other_tokenizer(folder: Path) -> Path:
    """A tokenizer with the words of a single sentence."""
    from distill.models.teacher import random_teacher

    return Path(random_teacher(folder, 1, tiny.SENTENCES[:1]))


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        (
            "prune",
            "teacher.name=xlnet",
            "teacher.name: got a model of type xlnet; must be one of bert, .* for question_answering; ",
        ),
        ("distilbert", "student.tokenizer=other", "student.tokenizer: got a tokenizer that is not the teacher's; "),
        ("vocabulary", "stages.vocabulary.min_count=2", "stages.vocabulary: got settings that remove tokens of the t"),
    ],
)
def test_what_answers_do_not_support_is_refused(
    recipe: str, setting: str, message: str, run: Any, tmp_path: Path
) -> None:
    file = write(tmp_path / "facts.jsonl", [squad(number) for number in range(COUNT)])
    if setting == "teacher.name=xlnet":
        setting = f"teacher.name={tiny.save(tmp_path / 'xlnet', 'xlnet', '')}"
    if setting == "student.tokenizer=other":
        setting = f"student.tokenizer={other_tokenizer(tmp_path / 'other')} ~stages.pretrain.terms.soft_targets"
    settings = ["limit=smoke", "output=out", "tasks.max_length=32", f"tasks.train={file}", *setting.split()]
    if recipe == "prune":
        settings += ["target.speedup=null", "pipeline=[finetune_teacher]"]
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, recipe, *settings)
