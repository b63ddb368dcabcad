"""`python -m distill.predict`: texts from arguments, standard input and files; JSONL and CSV; errors in one line."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distill
from distill.cli import predict
from distill.data.task_types import TASK_TYPES
from distill.deploy.export.record import Entry, Heads, Record, write
from tests import tiny

SENTENCES = tiny.SENTENCES
LABELS = {"id2label": {0: "boat", 1: "storm"}, "label2id": {"boat": 0, "storm": 1}}

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier without a record."""
    return tiny.save(tmp_path_factory.mktemp("model"), "bert", "SequenceClassification", **LABELS)


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported classifier of the column `body`."""
    folder = tiny.save(tmp_path_factory.mktemp("tickets"), "bert", "SequenceClassification", **LABELS)
    artifacts = (Entry("torch", "fp32", "."),)
    write(folder, Record("tickets", TASK_TYPES["classification"], ("boat", "storm"), ("body",), 32, artifacts))
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported multi-label classifier of the columns `q` and `s`."""
    kind = TASK_TYPES["multi_label"]
    folder = tiny.save(
        tmp_path_factory.mktemp("pairs"), "bert", "SequenceClassification", problem_type=kind.problem, **LABELS
    )
    artifacts = (Entry("torch", "fp32", "."),)
    write(folder, Record("pairs", kind, ("boat", "storm"), ("q", "s"), 32, artifacts, 0.01))
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """`call(*arguments, stdin=None)`: exit code, standard output and standard error. None stands for a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        source = io.TextIOWrapper(io.BytesIO(stdin or b""))
        source.isatty = lambda: stdin is None  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", source)
        monkeypatch.setattr(sys, "argv", ["predict", *map(str, arguments)])
        return (predict.main(), *capsys.readouterr())

    return run


def rows(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def of(folder: Path, texts: list[Any], *keys: str) -> list[dict[str, Any]]:
    """The expected rows."""
    keys = keys or ("text",)
    values = [(text,) if isinstance(text, str) else text for text in texts]
    predictions = distill.load(folder).predict(texts)
    return [dict(zip(keys, v, strict=True)) | p for v, p in zip(values, predictions, strict=True)]


def test_arguments_and_options_in_any_order(model: Path, call: Call) -> None:
    code, output, errors = call(model, "two goats", "--batch-size", 1, 'a "storm", déjà vu', "--", "--help")
    assert (code, errors) == (0, "")
    assert rows(output) == of(model, ["two goats", 'a "storm", déjà vu', "--help"])
    assert "déjà vu" in output


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_the_column_of_the_task_in_a_file(ending: str, tickets: Path, call: Call) -> None:
    table = {"id": ["1", "2", "3"], "text": ["x"] * 3, "body": SENTENCES[:3], "label": ["boat"] * 3}
    file, values = Path(f"in.{ending}"), list(zip(*table.values(), strict=True))
    if ending == "parquet":
        pq.write_table(pa.table(table), file)
    elif ending == "jsonl":
        file.write_text("".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in values))
    else:
        with file.open("w", newline="") as out:
            csv.writer(out, delimiter="\t" if ending == "tsv" else ",").writerows([list(table), *values])
    code, output, errors = call(tickets, "--file", file, "--output", "out/predictions.jsonl")
    assert (code, output) == (0, "")
    assert errors == "the input has a column label: the prediction is in predicted_label\n"
    expected = of(tickets, SENTENCES[:3])
    shown = [dict(zip(table, row, strict=True)) for row in values]
    got = rows(Path("out/predictions.jsonl").read_text())
    assert got == [
        row | {f"predicted_{key}" if key == "label" else key: one[key] for key in ("label", "score", "scores")}
        for row, one in zip(shown, expected, strict=True)
    ]
    code, output, _ = call(tickets, "--file", file, "--text", "text")
    assert [row["predicted_label"] for row in rows(output)] == [one["label"] for one in of(tickets, ["x"] * 3)]


def test_likely_columns_where_the_task_s_are_absent(model: Path, tickets: Path, call: Call) -> None:
    Path("in.csv").write_text("id;message;label\n1;two goats;boat\n2;a storm;storm\n")
    for folder in (model, tickets):
        code, output, errors = call(folder, "--file", "in.csv", "--separator", ";")
        assert code == 0
        assert errors.splitlines()[0] == "in.csv: the text is from message"
        predicted = [row["label"] for row in of(folder, ["two goats", "a storm"])]
        assert [row["predicted_label"] for row in rows(output)] == predicted


def test_pairs_in_a_file_to_csv(pairs: Path, call: Call) -> None:
    Path("in.csv").write_text('s,q\n"the ""roof"", of snow","two\ngoats"\nboat,harbour\n')
    code, _, errors = call(pairs, "--file", "in.csv", "--output", "out.csv")
    assert (code, errors) == (0, "")
    expected = of(pairs, [("two\ngoats", 'the "roof", of snow'), ("harbour", "boat")], "q", "s")
    with Path("out.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert list(written[0]) == ["s", "q", "labels", "scores.boat", "scores.storm"]
    for got, wanted in zip(written, expected, strict=True):
        assert (got["q"], got["s"]) == (wanted["q"], wanted["s"])
        assert got["labels"] == "|".join(wanted["labels"]) == "boat|storm"
        assert [float(got[f"scores.{name}"]) for name in ("boat", "storm")] == list(wanted["scores"].values())
    assert call(pairs, "--file", "in.csv", "--format", "csv")[1] == Path("out.csv").read_text()


def test_a_label_is_detected_by_its_own_threshold(tmp_path: Path, call: Call) -> None:
    folder = tiny.save(tmp_path / "guard", "bert", "SequenceClassification", **LABELS)
    for odds, label in ((1e-6, "storm"), (1 - 1e-6, "boat")):
        artifacts = (Entry("torch", "fp32", ".", thresholds={"storm": odds}),)
        write(folder, Record("t", TASK_TYPES["classification"], ("boat", "storm"), ("body",), 32, artifacts))
        code, output, _ = call(folder, "two goats", "--detect", "storm")
        assert (code, [row["label"] for row in rows(output)]) == (0, [label])
    code, _, errors = call(folder, "two goats", "--detect", "boat")
    assert code == 2
    assert "detect: got boat; must be of storm; " in errors


def test_several_heads_detect_nothing(tickets: Path, tmp_path: Path, call: Call) -> None:
    shutil.copytree(tickets, tmp_path / "both" / "weather")
    write(tmp_path / "both", Heads(("weather",), (Entry("torch", "fp32", "."),)))
    code, output, errors = call(tmp_path / "both", "two goats", "--detect", "storm", "--output", "out.csv")
    assert (code, output, Path("out.csv").exists()) == (2, "", False)
    assert "detect: got storm; must be left out for several heads; choose the folder of one of them: " in errors


def test_a_long_file_is_predicted_in_parts(tickets: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, sizes = [f"goats {number}" for number in range(2500)], list[int]()
    Path("in.csv").write_text("body\n" + "\n".join(texts) + "\n")
    from distill.deploy.serve import Model

    def predicted(self: Any, part: list[str], size: int, detect: None) -> list[dict[str, Any]]:
        sizes.append(len(part))
        return [{"score": len(text)} for text in part]

    monkeypatch.setattr(Model, "predict", predicted)
    code, output, _ = call(tickets, "--file", "in.csv")
    assert code == 0
    assert [row["body"] for row in rows(output)] == texts
    assert sizes == [1024, 1024, 452]


BAD: list[tuple[list[str], str]] = [
    (["nowhere", "x"], "folder: got nowhere; must be a local folder; "),
    ([], "the following arguments are required: FOLDER"),
    (["MODEL"], "TEXT: got nothing; must be texts; "),
    (["MODEL", "x", "--format", "xml"], "--format: got xml; must be jsonl or csv; "),
    (["MODEL", "x", "--batch-size", "0"], "--batch-size: got 0; must be a whole number from 1; "),
    (["MODEL", "x", "--speed", "9"], "unrecognized arguments: --speed 9; see "),
    (["MODEL", "x", "--backend", "openvino"], "backend: got openvino; must be of torch fp32; "),
    (["MODEL", "x", "--text", "body"], "--text: got body; must be used with --file; "),
    (["MODEL", "x", "--file", "in.csv"], "TEXT: got 'x' and --file; must be one of the two; "),
    (["MODEL", "--file", "no.csv"], "--file: got no.csv, which does not exist; "),
    (["MODEL", "--file", "in.xml"], "--file: got in.xml; must end with .csv, "),
    (["MODEL", "--file", "in.csv", "--text", "bdoy"], "--text: got bdoy; must be a column of in.csv, which has id, t"),
    (["MODEL", "--file", "in.csv", "--text-pair", "t"], "--text: got nothing; must be set where --text-pair is; "),
    (["MODEL", "--file", "semi.csv"], "semi.csv, header: got what could be columns 'id;t' and 'x', or columns"),
    (["MODEL", "--file", "ragged.csv"], "ragged.csv, row 1: got 2 values; must be 1"),
    (["MODEL", "--file", "null.jsonl"], "null.jsonl, row 2: got no text in column t; must be text; "),
    (["MODEL", "--file", "number.jsonl"], "--text: got nothing, and no column of number.jsonl but the label is text; "),
    (
        ["MODEL", "--file", "in.csv", "--output", "in.csv"],
        "--output: got in.csv, which the command reads; must be another file; ",
    ),
    (["MODEL", "--file", "in.csv", "--output", "."], "--output: got ., a folder; must be a file; "),
    (["MODEL", "--file", "in.csv", "--output", "in.csv/x"], "--output: got in.csv/x; must be in a folder, but "),
    (["PAIRS", "x"], "TEXT: got single texts; must be pairs for this model (q, s); "),
    (["PAIRS", "--file", "in.csv"], "--text: got t; must be 2 for this model (q, s); set --text COLUMN --text-pair CO"),
    (["MODEL", "\udcff"], "texts, number 1: got a lone surrogate; must be Unicode"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: "".join(value)[:40])
def test_errors_are_one_line(arguments: list[str], message: str, model: Path, pairs: Path, call: Call) -> None:
    Path("in.csv").write_text("id,t\n1,two goats\n")
    Path("in.xml").write_text("<t/>")
    Path("semi.csv").write_text("id;t,x\n1;two goats,2\n")
    Path("ragged.csv").write_text("t\ntwo,goats\n")
    Path("null.jsonl").write_text('{"t": "two goats"}\n{"t": null}\n')
    Path("number.jsonl").write_text('{"t": 2}\n')
    folders = {"MODEL": model, "PAIRS": pairs}
    code, output, errors = call(*(folders.get(argument, argument) for argument in arguments))
    assert (code, output) == (2, "")
    assert errors.startswith(message), errors
    assert errors.count("\n") == 1
    assert "tasks." not in errors


def test_a_wrong_file_is_found_before_the_model_is_loaded(
    model: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distill.deploy.serve.load", lambda *_, **__: pytest.fail("loaded"))
    assert call(model, "--file", "no.csv")[0] == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_command_leaves_no_output(
    error: type[BaseException], tickets: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in.csv").write_text("body\n" + "two goats\n" * 1100)
    Path("out.csv").write_text("before")
    from distill.deploy.serve import Model

    original = Model.predict

    def stopped(self: Any, part: list[str], size: int, detect: None) -> Any:
        if len(part) < 1024:
            raise error
        return original(self, part, size)

    monkeypatch.setattr(Model, "predict", stopped)
    arguments = (tickets, "--file", "in.csv", "--output", "out.csv", "--overwrite")
    if error is RuntimeError:
        with pytest.raises(RuntimeError):
            call(*arguments)
    else:
        assert call(*arguments) == (130, "", "stopped\n")
    assert Path("out.csv").read_text() == "before"
    assert {path.name for path in Path().iterdir()} == {"in.csv", "out.csv", "cache"}


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("two goats\n" * 1000)
    command = [sys.executable, "-m", "distill.predict", str(model)]
    ends: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (tmp_path / "in.txt").open() as lines:
        process = subprocess.Popen(command, stdin=lines, cwd=Path(__file__).parents[3], **ends)
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["text"] == "two goats"
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (0, "")
        process.stderr.close()
