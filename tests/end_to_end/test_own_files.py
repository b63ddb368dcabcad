"""A user's own files on the command line: each mistake is one line with file and row, before any model is loaded.

The tests in tests/unit/data show the message for each kind of wrong file and row. These tests show messages that no
unit test shows, and that a message reaches the user of the command.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra._internal.hydra import Hydra
from hydra.types import RunMode

COUNT = 24
WORDS = ("card", "transfer", "refund", "limit", "address", "password")
SUBJECTS = [f"The {WORDS[i % 6]} of customer {i} does not work since {i + 2} days." for i in range(COUNT)]
QUEUES = ("billing", "fraud", "other")

Rows = dict[str, Sequence[Any]]
Files = dict[str, bytes]
"""Name of a file -> its content."""

TICKETS: Rows = {"body": SUBJECTS, "queue": [QUEUES[i % 3] for i in range(COUNT)]}
SCORES: Rows = {"text1": SUBJECTS, "text2": SUBJECTS[1:] + SUBJECTS[:1], "score": [i / COUNT for i in range(COUNT)]}
FLAGS: Rows = {"text": SUBJECTS, "urgent": [i % 2 for i in range(COUNT)], "angry": [i // 2 % 2 for i in range(COUNT)]}


def cell(rows: Rows, column: str, row: int, value: Any) -> Rows:
    """The rows with another value in one row, counted from 1."""
    values = list(rows[column])
    values[row - 1] = value
    return rows | {column: values}


def to_csv(rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return text.getvalue().encode()


def to_jsonl(rows: Rows) -> bytes:
    return b"".join(
        json.dumps(dict(zip(rows, row, strict=True))).encode() + b"\n" for row in zip(*rows.values(), strict=True)
    )


def tickets(rows: Rows = TICKETS, **others: bytes) -> Files:
    return {"tickets.csv": to_csv(rows)} | {f"{name}.csv": content for name, content in others.items()}


def lines(**columns: Sequence[Any]) -> Files:
    return {"t.jsonl": to_jsonl(columns)}


Case = tuple[Callable[[], Files], list[str], str]
"""(files, settings besides `tasks.train`, which is the first file, what the message is)."""

BODY = "tickets.csv, row {}: "
ANSWERS, QUESTIONS = "tasks.kind=question_answering", [f"Which item is number {i}?" for i in range(COUNT)]
MALFORMED: dict[str, Case] = {
    # settings of files
    "no such file": (tickets, ["tasks.train=tickts.csv"], "tasks.train: got tickts.csv, which does not exist"),
    "no such validation file": (tickets, ["tasks.validation=v*.csv"], r"tasks.validation: got v\*.csv, which matches"),
    "a mapping as train": (tickets, ["tasks.train={a:b.csv}"], "tasks.train: got {'a': 'b.csv'}; must be a file or"),
    "a split named train": (
        tickets, ["tasks.validation={train:tickets.csv}"], "tasks.validation: got a split train; must have another",
    ),
    "a name that leaves the folder": (tickets, ["tasks.name=../up"], "tasks.name: got '../up' as the name of a task"),
    "a name that is too long": (tickets, [f"tasks.name={'a' * 201}"], ".*, at most 200 bytes, and not the name"),
    # files
    "Latin-1": (lambda: {"t.csv": to_csv(TICKETS) + b"caf\xe9,billing\n"}, [], "t.csv, row 25: got byte 0xe9"),
    "a broken line": (lambda: {"t.jsonl": to_jsonl(TICKETS) + b'{"body": \n'}, [], "t.jsonl, row 25: got broken JSON"),
    "a wrong separator": (tickets, ["tasks.separator=';'"], "tasks.label: got nothing, and no column of tickets.csv i"),
    # columns
    "text and pair are one": (
        tickets, ["tasks.text=body", "tasks.text_pair=body"], "tasks.label: got .* must be different columns of ticket",
    ),
    "free text as a label": (
        lambda: tickets({"text": SUBJECTS, "label": SUBJECTS[::-1]}), [], "tasks.label: got label, with 24 different l",
    ),
    "soft labels of no column": (
        tickets, ["tasks.soft_label=soft"], "tasks.soft_label: got soft; must be a column of tickets.csv, of body, que",
    ),
    "soft labels that are the label": (
        tickets, ["tasks.label=queue", "tasks.soft_label=queue"], "tasks.soft_label: got queue; must be another column",
    ),
    "one of several columns is missing": (
        lambda: tickets(FLAGS), ["tasks.label=[urgent,rude]"], "tasks.label: got rude; must be a column of tickets.csv",
    ),
    "a column twice": (
        lambda: tickets(FLAGS), ["tasks.label=[urgent,urgent]"], r"tasks.label: got \['urgent', 'urgent'\]; must be di",
    ),
    "labels listed twice": (tickets, ["tasks.labels=[a,A]"], r"tasks.labels: got \['a', 'A'\]; must be two different"),
    # rows
    "an empty text": (lambda: tickets(cell(TICKETS, "body", 7, " ")), [], BODY.format(7) + "got no text in body"),
    "a text that is too long": (
        lambda: tickets(cell(TICKETS, "body", 7, "x" * 1_000_001)), [], BODY.format(7) + "got a text of 1,000,001 char",
    ),
    "no label in validation": (
        lambda: tickets(val=to_csv(TICKETS | {"queue": [""] * COUNT})),
        ["tasks.validation=val.csv"],
        "val.csv: got 0 labelled validation rows",
    ),
    "names of scores": (lambda: tickets(SCORES), ["tasks.labels=[a,b]"], BODY.format(1) + "got label '\\d"),
    "one query": (
        lambda: tickets({"query": ["where is my card"] * COUNT, "document": SUBJECTS, "score": [0, 1, 2] * 8}),
        [],
        "tickets.csv: got 0 labelled ",
    ),
    "no tag but O": (
        lambda: lines(tokens=[text.split()[:9] for text in SUBJECTS], ner_tags=[["O"] * 9] * COUNT),
        [],
        "t.jsonl: got only the label 'O'",
    ),
    "one choice": (
        lambda: lines(
            question=SUBJECTS, choices=[["no", "yes"]] * 6 + [["no"]] + [["no", "yes"]] * 17, answer=["A", "B"] * 12
        ),
        [],
        "t.jsonl, row 7: got 1 choices in choices",
    ),
    "one prompt": (
        lambda: tickets(SCORES),
        ["tasks.kind=embedding", "tasks.prompts=[a]"],
        r"tasks.prompts: got \['a'\]; must be two texts",
    ),
    "numbers as answers": (
        lambda: lines(question=QUESTIONS, context=SUBJECTS, answers=[*range(COUNT)]),
        [ANSWERS],
        "t.jsonl: got int64 in column answers; must be answers",
    ),
    "no question has an answer": (
        lambda: lines(question=QUESTIONS, context=SUBJECTS, answers=[[]] * COUNT),
        [ANSWERS],
        "t.jsonl: got the same label in all rows",
    ),
    "multi_label on fractions": (
        lambda: tickets(SCORES), ["tasks.kind=multi_label"], "tasks.kind: got multi_label, and 0.* in score of tickets",
    ),
    "a column that is not 0 or 1": (
        lambda: tickets(cell(FLAGS, "angry", 3, 2)), ["tasks.label=[urgent,angry]"], BODY.format(3) + "got '2' in angr",
    ),
    "lists among 0 and 1": (
        lambda: {"t.jsonl": to_jsonl(FLAGS | {"angry": [[1]] * COUNT})},
        ["tasks.label=[urgent,angry]"],
        "t.jsonl: got list<.* in column angry",
    ),
}  # fmt: skip

HEADS: dict[str, tuple[dict[str, Any], int, Callable[[], Files], list[str], str]] = {
    "other labels": (
        {"id2label": {"0": "spam", "1": "ham", "2": "eggs"}}, 3, tickets, [],
        "tasks.label: got billing, fraud, other; must be labels of the teacher, which are spam, ham, eggs",
    ),
    "fewer labels": (
        {"id2label": {"0": "billing", "1": "fraud"}}, 2, tickets, [],
        "tasks.label: got billing, fraud, other; must be labels of the teacher, which are billing, fraud",
    ),
    "labels without names": ({}, 3, tickets, [], "tasks.labels: got nothing, and the teacher's 3 outputs have no name"),
    "a number for classes": (
        {}, 1, tickets, ["tasks.kind=classification"],
        "tasks.labels: got nothing, and the teacher's 1 outputs have no names|teacher.name: got a classifier of 1 outp",
    ),
    "classes for a number": (
        {"id2label": {"0": "bad", "1": "good"}}, 2, lambda: tickets(SCORES), ["tasks.kind=regression"],
        r"teacher.name: got a classifier of 2 outputs \(bad, good\); must have a head for the labels of tickets: a num",
    ),
    "one label for several": (
        {"id2label": {"0": "angry", "1": "urgent"}, "problem_type": "single_label_classification"}, 2,
        lambda: tickets(FLAGS), ["tasks.label=[urgent,angry]"],
        "teacher.name: got a classifier of 2 outputs .* must have a head for the labels of tickets: ",
    ),
    "labels set that are others": (
        {"id2label": {"0": "billing", "1": "fraud", "2": "misc"}}, 3, tickets, ["tasks.labels=[other,fraud,billing]"],
        "teacher.name: got a classifier of 3 outputs .* must have a head for the labels of tickets: other, fraud, bill",
    ),
}  # fmt: skip
"""Case -> (config of the teacher, number of its outputs, files, settings, message)."""

TUNE = """# @package _global_
defaults:
  - /stage@stages.finetune_teacher: finetune_teacher
  - override /tasks: own
  - _self_
pipeline: [finetune_teacher]
"""
"""A recipe of one stage, which Hydra composes faster than others."""

FORM = re.compile(r"[^:]+: got .+; (.*must|names must) .+; .+")


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`refused(files, *settings)`: the line that the command line prints when it refuses the first of the files."""
    from distill.cli import run as command

    # Hydra composes the config twice, the first time to learn whether this is a sweep.
    monkeypatch.setattr(Hydra, "get_mode", lambda *_, **settings: RunMode.RUN)
    monkeypatch.setattr(command, "_tracebacks", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "tune.yaml").write_text(TUNE)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def refuse(files: Files, *settings: str) -> str:
        for name, content in files.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(content)
        train = [] if any(s.startswith("tasks.train=") for s in settings) else [f"tasks.train={next(iter(files))}"]
        arguments = ["--config-dir", str(tmp_path / "mine"), "recipe=tune", *train, *settings]
        monkeypatch.setattr(sys, "argv", ["distill", *arguments])
        began = time.process_time()
        with pytest.raises(SystemExit) as stopped:
            command.main()
        assert time.process_time() - began < 5, "torch was imported, or the file was read more than once"
        output = capsys.readouterr()
        assert (stopped.value.code, output.out) == (2, "")
        (line,) = output.err.splitlines()
        assert FORM.fullmatch(line), line
        assert not [path for path in Path().rglob("*") if path.suffix == ".safetensors" or path.name == "manifest.json"]
        return line

    return refuse


@pytest.mark.parametrize("case", MALFORMED)
def test_a_wrong_setting_or_row_is_one_line(case: str, refused: Callable[..., str]) -> None:
    files, settings, expected = MALFORMED[case]
    line = refused(files(), *settings)
    assert re.match(expected, line), line


def teacher(folder: Path, outputs: int, **settings: Any) -> Path:
    """A folder with the config of a BERT classifier and its head alone."""
    from safetensors.numpy import save_file

    folder.mkdir()
    architectures = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(architectures | settings))
    save_file({"classifier.weight": np.zeros((outputs, 4), np.float32)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("case", HEADS)
def test_a_teacher_that_does_not_fit_is_one_line(case: str, refused: Callable[..., str], tmp_path: Path) -> None:
    config, outputs, files, settings, expected = HEADS[case]
    folder = teacher(tmp_path / "teacher", outputs, **config)
    line = refused(files(), f"teacher.name={folder}", *settings)
    assert re.match(expected, line), line


NO_TORCH = """
import runpy, sys
try:
    runpy.run_module("distill", run_name="__main__", alter_sys=True)
finally:
    print(*sorted({"torch", "transformers", "datasets"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_wrong_row_is_found_before_torch_is_imported(tmp_path: Path) -> None:
    config = {"id2label": {"0": "fraud", "1": "other", "2": "billing"}}
    folder = teacher(tmp_path / "teacher", 3, **config)
    (tmp_path / "tickets.csv").write_bytes(to_csv(cell(TICKETS, "queue", 20, "")))
    (tmp_path / "val.csv").write_bytes(to_csv(cell(TICKETS, "body", 5, "")))
    settings = [f"teacher.name={folder}", "tasks.train=tickets.csv", "tasks.validation=val.csv"]
    command = [sys.executable, "-c", NO_TORCH, "recipe=prune", *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "\n"), done.stderr
    assert done.stderr == "val.csv, row 5: got no text in body; must be text; remove the row\n"
