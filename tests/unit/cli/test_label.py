"""`python -m distill.label`: soft labels are the teacher's outputs, whichever processes make them and are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import log_softmax

from distill import config
from distill.cli.label import main
from distill.data.tasks import load_tasks, soft_outputs_of
from distill.errors import SIGNALS
from distill.labelling import plan as plans
from distill.labelling import work as works
from distill.models.families.head import stored_head
from tests import tiny
from tests.forked import PYTHON

SENTENCES = tiny.SENTENCES
COUNT = 40
TEXTS = [f"{SENTENCES[i % 8]} {' '.join(SENTENCES[i % 5].split()[: i % 7])} {i}".strip() for i in range(COUNT)]
NAMES = ("storm", "boat", "adult content")


def names(labels: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Lets signals do after a command what they did before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher") / "model"
    return tiny.save(folder, "bert", "SequenceClassification", std=0.4, **names(NAMES))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the command, with a parquet file of 4 row groups and a file of JSON Lines."""
    monkeypatch.chdir(tmp_path)
    labels = [NAMES[i % 3] for i in range(COUNT)]
    table = pa.table({"id": range(COUNT), "body": TEXTS, "queue": labels})
    pq.write_table(table.slice(0, 28), "a.parquet", row_group_size=7)
    Path("b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.slice(28).to_pylist()))
    return tmp_path


FILES = ("a.parquet", "b.jsonl", "--text", "body", "--label", "queue", "--threads", "1")


def read(folder: Path) -> list[dict[str, Any]]:
    """All rows, as a run reads them."""
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def answers(teacher: Path, problem: str) -> list[dict[str, float]]:
    """What the pipeline of transformers outputs for each text, one text at a time."""
    from transformers import pipeline

    function = {"multi_label_classification": "sigmoid", "regression": "none"}.get(problem, "softmax")
    ask = pipeline("text-classification", str(teacher), top_k=None, function_to_apply=function)
    return [{each["label"]: each["score"] for each in ask([text])[0]} for text in TEXTS]


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", NAMES),
        ("multi_label_classification", NAMES),
        ("regression", ("stars",)),
    ],
)
def test_soft_labels_are_what_transformers_outputs(
    problem: str, labels: tuple[str, ...], rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = tiny.save(
        rows / "model", "bert", "SequenceClassification", std=0.4, problem_type=problem, **names(labels)
    )
    assert main([str(teacher), *FILES, "--out", "out", "--rows", "5", "--tokens", "64"]) == 0
    assert "40 rows in 11 units are labelled, 40 of them by this process" in capsys.readouterr().err
    found, expected = read(rows / "out"), answers(teacher, problem)
    assert [row["body"] for row in found] == TEXTS
    assert [row["queue"] for row in found] == [NAMES[i % 3] for i in range(COUNT)]
    assert [*found[0]] == ["body", "queue", "soft"]
    if problem == "regression":
        assert [row["soft"] for row in found] == pytest.approx([row["stars"] for row in expected], abs=1e-5)
        return
    assert [*found[0]["soft"]] == list(labels)  # in the order of the outputs
    for row, one in zip(found, expected, strict=True):
        assert row["soft"] == pytest.approx(one, abs=1e-5)


def test_a_run_reads_them_as_the_outputs_of_the_teacher(
    teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(teacher), *FILES, "--out", "out"]) == 0
    words = capsys.readouterr().err.splitlines()[-1]
    assert words.startswith("train with: ")
    assert "'tasks.train=\"out/*.parquet\"' tasks.text=body tasks.label=queue tasks.soft_label=soft" in words
    settings = config.Tasks(train="out/*.parquet", text="body", label="queue", soft_label="soft")
    loaded = load_tasks(settings, config.Limit(), 0, stored_head(teacher))
    (data,) = loaded.tasks.values()
    soft = soft_outputs_of(data.train)
    assert soft is not None
    assert data.task.labels == NAMES
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(teacher)
    inputs = tokenizer(list(data.train["body"]), return_tensors="pt", padding=True, truncation=True, max_length=32)
    with torch.no_grad():
        logits = AutoModelForSequenceClassification.from_pretrained(teacher)(**inputs).logits.numpy()
    np.testing.assert_allclose(soft, log_softmax(logits, axis=1), atol=1e-5)


def test_files_without_given_labels_and_pairs(teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.csv").write_text("body,other\n" + "".join(f"{text},{text}\n" for text in TEXTS))
    assert main([str(teacher), "c.csv", "a.parquet", *FILES[2:], "--out", "out"]) == 0
    assert "c.csv: the given label is null in each row, as there is no column queue" in capsys.readouterr().err
    settings = config.Tasks(train="out/*.parquet", text="body", label="queue", soft_label="soft")
    (data,) = load_tasks(settings, config.Limit(), 0, stored_head(teacher)).tasks.values()
    assert {None if label < 0 else NAMES[label] for label in data.train["label"]} == {None, *NAMES}
    assert main([str(teacher), "c.csv", "--text", "body", "--text-pair", "other", "--out", "pairs"]) == 0
    assert [*read(rows / "pairs")[0]] == ["body", "other", "label", "soft"]


def test_a_finished_unit_is_not_made_again(teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(teacher), *FILES, "--out", "out", "--rows", "10"]
    assert main(words) == 0
    before = {path: path.stat().st_mtime_ns for path in (rows / "out").glob("*.parquet")}
    sorted(before)[2].unlink()
    capsys.readouterr()
    assert main(words) == 0
    assert "are labelled, 7 of them by this process" in capsys.readouterr().err
    after = {path: path.stat().st_mtime_ns for path in (rows / "out").glob("*.parquet")}
    assert [path.name for path in before if before[path] != after[path]] == ["000002.parquet"]


@pytest.mark.slow
def test_another_teacher_and_other_rows_are_refused(
    teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*FILES, "--out", "out", "--rows", "10"]
    assert main([str(teacher), *words]) == 0
    kept = read(rows / "out")

    def refused(*given: str) -> str:
        capsys.readouterr()
        assert main(given) == 2
        (line,) = [
            each for each in capsys.readouterr().err.splitlines() if each.startswith("--out: got out, which was")
        ]
        assert line.endswith("; choose another folder")
        return line

    other = tiny.save(rows / "other", "bert", "SequenceClassification", std=0.5, **names(NAMES))
    assert "begun with another teacher" in refused(str(other), *words)
    assert "begun with max_length 32, and not 16" in refused(str(teacher), *words, "--max-length", "16")
    assert "begun with columns body, queue, soft, and not body, queue, p" in refused(
        str(teacher), *words, "--soft-label", "p"
    )
    assert "4 units of a.parquet, and not 8" in refused(str(teacher), *FILES, "--out", "out", "--rows", "5")
    assert "begun with 2 files, and not 1" in refused(str(teacher), "a.parquet", *words[2:])
    assert "must be the same bytes" in refused(str(teacher), "b.jsonl", "a.parquet", *words[2:])
    Path("b.jsonl").write_text(Path("b.jsonl").read_text().replace("goats", "cows"))
    assert "the file b.jsonl as it was before it changed" in refused(str(teacher), *words)
    assert read(rows / "out") == kept


def test_what_cannot_be_labelled_is_refused_before_any_work(
    teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headless = tiny.save(rows / "tagger", "bert", "MaskedLM")
    (rows / "full").mkdir()
    (rows / "full" / "note.txt").write_text("mine")
    Path("empty.jsonl").write_text('{"body": "a text"}\n{"body": null}\n')
    Path("blank.jsonl").write_text('{"body": "  "}\n{"body": "a text"}\n')
    for words, message in {
        (str(headless), *FILES, "--out", "out"): "got a model without a head; must be one with a head for a task",
        (str(teacher), *FILES, "--out", "full"): "--out: got full, which this command has not begun",
        (str(teacher), *FILES, "--out", str(teacher)): "the folder of the teacher or one in it; must be another",
        (
            str(teacher),
            "empty.jsonl",
            "--text",
            "body",
            "--out",
            "out",
        ): "empty.jsonl, row 2: got null in body; must be text",
        (
            str(teacher),
            "blank.jsonl",
            "--text",
            "body",
            "--out",
            "out",
        ): "blank.jsonl, row 1: got no text in body; must be text",
        (
            str(teacher),
            "b.jsonl",
            "--text",
            "nobody",
            "--out",
            "out",
        ): "--text: got nobody; must be a column of b.jsonl",
        (str(teacher), "b.jsonl", "--label", "nobody", "--out", "out"): "--label: got nobody; must be a column of a f",
        (str(teacher), *FILES, "--soft-label", "queue", "--out", "out"): "got queue, which stands for two columns",
        (str(teacher), "missing.csv", "--out", "out"): "FILE: got missing.csv, which does not exist",
    }.items():
        assert main(words) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert message in line
        assert line.count(";") >= 2
    assert not (rows / "out").exists()
    assert [path.name for path in (rows / "full").iterdir()] == ["note.txt"]


WORKER = """
import os, sys
print(os.getpid(), flush=True)
from distill.cli.label import main
sys.exit(main(sys.argv[1:]))
"""


def start(*words: str, code: str = WORKER) -> tuple[subprocess.Popen[str], int]:
    """(process, its number for signals) of a command."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen([PYTHON, "-c", code, *words], **pipes)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def ended(processes: Sequence[tuple[subprocess.Popen[str], int]]) -> list[int]:
    codes = []
    for process, _ in processes:
        assert process.stdout is not None
        codes.append(process.wait(timeout=200))
        process.stdout.close()
    return codes


def made(folder: Path, number: int) -> None:
    """Wait for a number of labelled units."""
    until = time.monotonic() + 200
    while len([*folder.glob("*.parquet")]) < number:
        assert time.monotonic() < until, "processes that label nothing"
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it sends signals")
@pytest.mark.parametrize("seed", range(2))
def test_processes_of_which_some_are_killed_make_what_one_makes(seed: int, teacher: Path, rows: Path) -> None:
    """40 units of a row each; SIGKILL for two of four processes while they work, wherever they are."""
    draw = random.Random(seed)
    words = (str(teacher), *FILES, "--rows", "1", "--lease", "1")
    assert main([*words, "--out", "alone"]) == 0
    started = [start(*words, "--out", "out") for _ in range(4)]
    doomed = draw.sample(started, 2)
    for _, number in doomed:
        wanted = draw.randint(1, 12)
        made(rows / "out", wanted)
        time.sleep(draw.random() / 50)
        os.kill(number, signal.SIGKILL)
    assert ended([each for each in started if each not in doomed]) == [0, 0]
    ended(doomed)
    assert main([*words, "--out", "out"]) == 0
    found = sorted((rows / "out").glob("*.parquet"))
    assert [path.name for path in found] == [path.name for path in sorted((rows / "alone").glob("*.parquet"))]
    for one in found:
        assert one.read_bytes() == (rows / "alone" / one.name).read_bytes()
    assert {path.name for path in (rows / "out").iterdir()} == {".distill-label", *(path.name for path in found)}
    assert not [*(rows / "out" / ".distill-label").glob("*/leases/*")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it sends signals")
def test_all_that_worked_may_be_killed_and_a_second_start_finishes(teacher: Path, rows: Path) -> None:
    words = (str(teacher), *FILES, "--rows", "1", "--lease", "1", "--out", "out")
    started = [start(*words) for _ in range(2)]
    made(rows / "out", 3)
    for _, number in started:
        os.kill(number, signal.SIGKILL)
    ended(started)
    assert main(words) == 0
    assert [row["body"] for row in read(rows / "out")] == TEXTS


@pytest.mark.skipif(sys.platform == "win32", reason="it sends signals")
def test_a_process_that_is_told_to_end_gives_its_unit_back(teacher: Path, rows: Path) -> None:
    words = (str(teacher), *FILES, "--rows", "1", "--lease", "1", "--out", "out")
    process, number = start(*words)
    made(rows / "out", 2)
    os.kill(number, signal.SIGTERM)
    assert ended([(process, number)])[0] in (143, 0)
    # The signal may come when a unit is in its place and its lease is being given back.
    kept = {path.name for path in (rows / "out" / ".distill-label").glob("*/leases/*")}
    assert kept <= {path.stem for path in (rows / "out").glob("*.parquet")}
    assert main(words) == 0
    assert not [*(rows / "out" / ".distill-label").glob("*/tries/*")]
    assert [row["body"] for row in read(rows / "out")] == TEXTS


def test_failed_units_are_said_in_one_line(
    teacher: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distill.labelling import teacher as model

    outputs = model._outputs

    def broken(*given: Any) -> Any:
        if given[1]["body"][0].as_py() == TEXTS[7]:
            raise RuntimeError("no memory")
        return outputs(*given)

    monkeypatch.setattr(model, "_outputs", broken)
    for number in (1, 2):
        assert main([str(teacher), *FILES, "--out", "out", "--tries", "2"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if "of 2 failed" in line] == [
            f"a.parquet, rows 8 to 14: try {number} of 2 failed: RuntimeError: no memory"
        ]
        said = "out: got 1 of 5 units that failed (the first is a.parquet, rows 8 to 14: RuntimeError: no memory); must"
        assert lines[-1].startswith(said)
        assert ("after you removed" in lines[-1]) == (number == 2)
    assert len(read(rows / "out")) == COUNT - 7
    monkeypatch.setattr(model, "_outputs", outputs)
    assert main([str(teacher), *FILES, "--out", "out"]) == 2  # it was given up
    shutil.rmtree(next((rows / "out" / ".distill-label").glob("*/tries")))
    assert main([str(teacher), *FILES, "--out", "out", "--tokens", "64"]) == 0


def test_a_file_that_changes_within_a_run_ends_it(
    teacher: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distill.labelling import teacher as model

    outputs, before = model._outputs, Path("b.jsonl").read_text()

    def changing(*given: Any) -> Any:
        Path("b.jsonl").write_text(before.replace("goats", "cows"))
        return outputs(*given)

    monkeypatch.setattr(model, "_outputs", changing)
    words = [str(teacher), *FILES, "--out", "out"]
    assert main(words) == 2
    assert "b.jsonl: got other rows than those with which the labelling began" in capsys.readouterr().err
    assert {row["body"] for row in read(rows / "out")} == set(TEXTS[:28])
    assert not [*(rows / "out" / ".distill-label").glob("*/tries/*")]
    monkeypatch.setattr(model, "_outputs", outputs)
    Path("b.jsonl").unlink()
    assert main(words) == 2
    Path("b.jsonl").write_text(before)
    assert main(words) == 0
    assert [row["body"] for row in read(rows / "out")] == TEXTS


def test_rows_whose_outputs_are_not_finite_have_no_soft_label(
    teacher: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distill.labelling import teacher as model

    predict = model.predict

    def overflowing(*given: Any, **named: Any) -> np.ndarray:
        found = predict(*given, **named)
        found[3, 1] = np.inf
        return found

    monkeypatch.setattr(model, "predict", overflowing)
    assert main([str(teacher), "a.parquet", *FILES[2:], "--out", "out", "--rows", "100"]) == 0
    assert "a.parquet, rows 1 to 7: 1 rows have no soft label (null): outputs of torch fp32" in capsys.readouterr().err
    found = read(rows / "out")
    assert [number for number, row in enumerate(found) if row["soft"] is None] == [3, 10, 17, 24]
    settings = config.Tasks(train="out/*.parquet", text="body", label="queue", soft_label="soft")
    (data,) = load_tasks(settings, config.Limit(), 0, stored_head(teacher)).tasks.values()
    soft = soft_outputs_of(data.train)
    assert soft is not None
    without = {TEXTS[number] for number in (3, 10, 17, 24)}
    flags = np.isnan(soft).any(axis=1)
    assert [text in without for text in data.train["body"]] == flags.tolist()
    monkeypatch.setattr(model, "predict", lambda *given, **named: np.full_like(predict(*given, **named), np.nan))
    # A few odd rows do not make a folder impossible to finish. More of them, and no other, are the teacher's fault.
    assert main([str(teacher), "a.parquet", *FILES[2:], "--out", "few"]) == 0
    assert capsys.readouterr().err.count("7 rows have no soft label (null): outputs of torch fp32") == 4
    assert [row["soft"] for row in read(rows / "few")] == [None] * 28
    assert main([str(teacher), *FILES, "--out", "other"]) == 2
    said = capsys.readouterr().err
    assert "b.jsonl, rows 1 to 12: got outputs of torch fp32 that are not finite for every row" in said


def test_a_teacher_without_names_writes_lists_that_a_run_can_name(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = tiny.save(rows / "model", "bert", "SequenceClassification", std=0.4, num_labels=3)
    assert main([str(teacher), *FILES, "--out", "out"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "tasks.labels" in lines[-2]
    assert "put the names of the labels, in that order" in lines[-1]
    answered = answers(teacher, "single_label_classification")
    for row, one in zip(read(rows / "out"), answered, strict=True):
        assert row["soft"] == pytest.approx([one[f"LABEL_{number}"] for number in range(3)], abs=1e-5)
    settings = config.Tasks(
        train="out/*.parquet", text="body", label="queue", soft_label="soft", labels=["boat", "storm", "adult content"]
    )
    (data,) = load_tasks(settings, config.Limit(), 0, stored_head(teacher)).tasks.values()
    soft = soft_outputs_of(data.train)
    assert soft is not None
    wanted = {text: [one[f"LABEL_{number}"] for number in range(3)] for text, one in zip(TEXTS, answered, strict=True)}
    np.testing.assert_allclose(np.exp(soft), [wanted[text] for text in data.train["body"]], atol=1e-5)


def test_a_glob_leaves_the_folder_of_labels_out(teacher: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(teacher), "**/*.parquet", *FILES[2:], "--out", "out"]
    assert main(words) == 0
    assert main(words) == 0
    assert "out: 4 files in it are not labelled" in capsys.readouterr().err
    assert main([str(teacher), "out/*.parquet", *FILES[2:], "--out", "out"]) == 2
    assert main([str(teacher), *FILES, "--out", str(teacher / "out")]) == 2
    assert not (teacher / "out").exists()


def test_errors_of_a_disk_and_of_a_device_are_one_line(
    teacher: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(teacher), *FILES, "--out", "out", "--device", "nothing"]) == 2
    assert "device: got nothing; must be a device that this machine has" in capsys.readouterr().err

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device", "out/000000.parquet")

    monkeypatch.setattr(works, "_write", full)
    assert main([str(teacher), *FILES, "--out", "out"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("out/000000.parquet: got No space left on device; must")


def test_hidden_folders_are_no_part_of_a_teacher(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "weights").write_text("1")
    before = plans.of_teacher(tmp_path)
    (tmp_path / ".git" / "index").write_text("2")
    assert plans.of_teacher(tmp_path) == before
    (tmp_path / "weights").write_text("3")
    assert plans.of_teacher(tmp_path) != before


def test_a_model_that_is_padded_on_the_left_keeps_its_last_tokens(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = tiny.save(rows / "model", "xlnet", "SequenceClassification", std=0.4, **names(NAMES))
    words = [str(teacher), *FILES, "--max-length", "12"]
    assert main([*words, "--out", "float"]) == 0
    assert main([*words, "--scheme", "tf32", "--out", "other"]) == 0  # on a CPU, the same as float32
    for other, whole in zip(read(rows / "other"), read(rows / "float"), strict=True):
        assert other["soft"] == pytest.approx(whole["soft"], abs=1e-6)
    capsys.readouterr()
    assert main([*words, "--scheme", "bf16", "--out", "half"]) == 2
    assert "--scheme: got bf16, in which this model does not run (RuntimeError" in capsys.readouterr().err
    assert not (rows / "half").exists()
