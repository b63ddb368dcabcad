"""What `distill.predict` reads and writes: all columns of a file, values unchanged, lines of standard input, CSV cells.

The model repeats what it is asked, so that each row shows the text that it was made from.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distill.cli import predict
from distill.data.task_types import TASK_TYPES
from distill.deploy.export.record import Entry, Record, write
from distill.runtime.cells import cell, harmless

Call = Callable[..., tuple[int, str, str]]


class Echo:
    """Answers each row with what it was asked."""

    backend, scheme = "torch", "fp32"

    def predict(self, texts: list[Any], batch_size: int, detect: None) -> list[dict[str, Any]]:
        return [{"label": repr(text), "score": 0.5, "scores": {"a": 0.5, "=b": -0.5}} for text in texts]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """`call(*arguments, stdin=None, kind=..., columns=...)`: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("distill.deploy.serve.load", lambda *_, **__: Echo())

    def run(
        *arguments: object,
        stdin: bytes | None = None,
        kind: str = "classification",
        columns: tuple[str, ...] = ("text",),
        choices: tuple[str, ...] = (),
    ) -> tuple[int, str, str]:
        named = ("a", "b") if TASK_TYPES[kind].named else ()
        Path("model").mkdir(exist_ok=True)
        record = Record("t", TASK_TYPES[kind], named, columns, 32, (Entry("torch", "fp32", "."),), 0.5, None, choices)
        write(Path("model"), record)
        source = io.TextIOWrapper(io.BytesIO(stdin or b""))
        source.isatty = lambda: stdin is None  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", source)
        return (predict.main(["model", *map(str, arguments)]), *capsys.readouterr())

    return run


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.split("\n")[:-1]]


def read_back(text: str) -> list[dict[str, str]]:
    """The rows of a CSV, with the texts that `harmless` changed as they were."""

    def original(value: str) -> str:
        return value[1:] if value.startswith("'") and harmless(value[1:]) == value else value

    return [{k: original(v) for k, v in row.items()} for row in csv.DictReader(io.StringIO(text, newline=""))]


ROWS: list[dict[str, Any]] = [
    {"id": 2**53 + 1, "text": "a\rb", "tags": ["x", "y"], "more": {"n": 1, "deep": [1.5]}, "ok": True, "part": 0.1},
    {"id": 7, "text": "c\u2028d\u0085", "tags": [], "more": {"n": 2, "deep": []}, "ok": False, "part": None},
    {"id": -3, "text": "", "tags": None, "more": None, "ok": None, "part": -2.5},
]


def test_values_of_a_file_come_back_as_they_were(call: Call) -> None:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    code, _, errors = call("--file", "in.jsonl", "--output", "out.jsonl")
    assert (code, errors) == (0, "")
    text = Path("out.jsonl").read_text()
    assert len(text.splitlines()) == len(ROWS)  # also for readers that split lines at U+2028 and U+0085
    assert lines(text) == [
        row | {"label": repr(row["text"]), "score": 0.5, "scores": {"a": 0.5, "=b": -0.5}} for row in ROWS
    ]
    assert [list(row) for row in lines(text)] == [[*ROWS[0], "label", "score", "scores"]] * 3
    code, _, _ = call("--file", "in.jsonl", "--output", "out.csv")
    written = read_back(Path("out.csv").read_bytes().decode())
    assert list(written[0]) == [*ROWS[0], "label", "score", "scores.a", "scores.=b"]
    assert [row["id"] for row in written] == ["9007199254740993", "7", "-3"]
    assert [row["text"] for row in written] == [row["text"] for row in ROWS]
    assert json.loads(written[0]["more"]) == ROWS[0]["more"]
    assert [row["ok"] for row in written] == ["true", "false", ""]
    assert written[2]["part"] == "-2.5"


def test_dates_and_decimals_of_parquet(call: Call) -> None:
    table = {
        "text": ["a", "b"],
        "day": [date(2024, 2, 29), None],
        "at": pa.array([datetime(2024, 1, 2, 3, 4, 5), None], pa.timestamp("ns")),
        "price": [Decimal("12.50"), Decimal("-0.05")],
        "raw": [b"\x00\xff", None],
        "nan": [float("nan"), float("inf")],
    }
    pq.write_table(pa.table(table), "in.parquet")
    _, output, _ = call("--file", "in.parquet")
    first, second = lines(output)
    assert {key: first[key] for key in table} == {
        "text": "a", "day": "2024-02-29", "at": "2024-01-02T03:04:05", "price": "12.50", "raw": "AP8=", "nan": None,
    }  # fmt: skip
    assert (second["price"], second["nan"], second["day"]) == ("-0.05", "inf", None)
    _, output, _ = call("--file", "in.parquet", "--format", "csv")
    assert [row["price"] for row in csv.DictReader(io.StringIO(output))] == ["12.50", "-0.05"]


def test_texts_of_a_csv_are_no_numbers(call: Call) -> None:
    Path("in.csv").write_text("id,text,code\n007,a,401.0\n1e3,b,\n")
    _, output, _ = call("--file", "in.csv")
    assert [(row["id"], row["code"]) for row in lines(output)] == [("007", "401.0"), ("1e3", "")]


def test_the_prediction_never_replaces_a_column(call: Call) -> None:
    Path("in.jsonl").write_text(
        '{"label": "gold", "score": 9, "text": "a", "predicted_score": 8, "scores.a": 1, "other": 0}\n'
    )
    for form in ("jsonl", "csv"):
        code, output, errors = call("--file", "in.jsonl", "--format", form)
        (row,) = lines(output) if form == "jsonl" else csv.DictReader(io.StringIO(output))
        assert code == 0
        assert (row["label"], str(row["score"]), str(row["predicted_score"])) == ("gold", "9", "8")
        assert (row["predicted_label"], float(row["predicted_score_2"])) == ("'a'", 0.5)
        assert errors.splitlines() == [
            "the input has a column label: the prediction is in predicted_label",
            "the input has a column score: the prediction is in predicted_score_2",
            "the input has a column scores: the prediction is in predicted_scores",
        ]
    assert float(row["predicted_scores.a"]) == 0.5
    assert str(row["scores.a"]) == "1"


def test_predictions_of_predictions(call: Call) -> None:
    Path("in.csv").write_text("text\na\n")
    for number in range(3):
        call("--file", f"in{number or ''}.csv", "--output", f"in{number + 1}.csv")
    with Path("in3.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert [row[f"{each}label"] for each in ("", "predicted_")] == ["'a'", "'a'"]
    assert row["predicted_label_2"] == "'a'"


def test_files_of_a_glob_follow_one_another(call: Call) -> None:
    for name, rows in (("b", "3,z\n"), ("a", "1,x\n2,y\n")):
        Path(f"{name}.csv").write_text(f"id,text\n{rows}")
    _, output, _ = call("--file", "[ab].csv")
    assert [(row["id"], row["label"]) for row in lines(output)] == [("1", "'x'"), ("2", "'y'"), ("3", "'z'")]


def test_kinds_are_asked_their_own_columns(call: Call) -> None:
    row = {"id": 1, "question": "who?", "context": "she", "options": ["she", "he"], "words": ["two", "goats"]}
    Path("in.jsonl").write_text(json.dumps(row) + "\n")
    for kind, columns, choices, asked in (
        ("question_answering", ("question", "context"), (), ("who?", "she")),
        ("multiple_choice", ("question",), ("options",), ("who?", ["she", "he"])),
        ("multiple_choice", ("context", "question"), ("options",), ("she", "who?", ["she", "he"])),
        ("token_classification", ("words",), (), ["two", "goats"]),
        ("multi_label", ("context",), (), "she"),
    ):
        code, output, errors = call("--file", "in.jsonl", kind=kind, columns=columns, choices=choices)
        assert (code, errors) == (0, "")
        (got,) = lines(output)
        assert {key: got[key] for key in row} == row
        assert got["label"] == repr(asked)


def test_documents_of_beir_are_read_with_their_titles(call: Call) -> None:
    rows = [{"_id": "7", "title": "Goats", "text": "Two of them."}, {"_id": "8", "title": "", "text": "A storm."}]
    Path("corpus.jsonl").write_text("".join(json.dumps(row | {"metadata": {}}) + "\n" for row in rows))
    code, output, errors = call("--file", "corpus.jsonl", kind="retrieval", columns=("query",))
    assert (code, [row["label"] for row in lines(output)]) == (0, ["'Goats Two of them.'", "'A storm.'"])
    assert [{key: row[key] for key in rows[0]} for row in lines(output)] == rows
    assert errors.startswith("corpus.jsonl: title and text are read as one text, as in a folder of BEIR")
    _, output, _ = call("--file", "corpus.jsonl", "--text", "text", kind="retrieval", columns=("query",))
    assert [row["label"] for row in lines(output)] == ["'Two of them.'", "'A storm.'"]
    _, output, errors = call("--file", "corpus.jsonl", kind="classification", columns=("text",))
    assert [row["label"] for row in lines(output)] == ["'Two of them.'", "'A storm.'"]


def test_lists_written_as_text_are_asked_as_lists(call: Call) -> None:
    Path("in.csv").write_text("id,tokens\n1,\"['two', 'goats']\"\n2,\"['a', 'storm']\"\n")
    code, output, _ = call("--file", "in.csv", kind="token_classification", columns=("tokens",))
    assert code == 0
    assert [row["label"] for row in lines(output)] == ["['two', 'goats']", "['a', 'storm']"]
    assert [row["tokens"] for row in lines(output)] == ["['two', 'goats']", "['a', 'storm']"]


def test_what_is_guessed_is_said(call: Call) -> None:
    Path("in.csv").write_text("nummer,сообщение\n1,two goats\n2,a storm\n")
    code, _, errors = call("--file", "in.csv", "--text", "сообщение")
    assert (code, errors) == (0, "")
    Path("pairs.csv").write_text("n,premise,hypothesis\n1,x,y\n")
    code, output, errors = call("--file", "pairs.csv", columns=("a", "b"))
    assert (code, errors) == (0, "pairs.csv: the text is from premise and hypothesis\n")
    assert lines(output)[0]["label"] == "('x', 'y')"


def test_a_first_row_in_place_of_names_is_not_lost(call: Call) -> None:
    rows = [f"{name} goats,{'few' if number % 2 else 'many'}" for number, name in enumerate(("two", "red", "old") * 3)]
    Path("in.csv").write_text("\n".join(f"{row}" if n == 0 else f"{n} {row}" for n, row in enumerate(rows)))
    code, output, errors = call("--file", "in.csv")
    assert (code, output) == (2, "")
    assert "got 'many' as the name of a column and as a label in it; must begin with a line of names" in errors
    assert errors.endswith("if it has the names, set --text 'two goats'\n")
    code, output, _ = call("--file", "in.csv", "--text", "two goats")
    assert (code, len(lines(output))) == (0, 8)


STDIN: list[tuple[bytes, list[str]]] = [
    (b"", []),
    (b"a\rb\nc\r\nd", ["a\rb", "c", "d"]),
    (b"\n\n", ["", ""]),
    ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
    ("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"]),
    (b"\t\n \r\r\n", ["\t", " \r"]),
    ("\U0001f600\u202eש\n".encode(), ["\U0001f600\u202eש"]),
]


@pytest.mark.parametrize(("given_lines", "texts"), STDIN)
def test_each_line_of_standard_input_has_one_prediction(given_lines: bytes, texts: list[str], call: Call) -> None:
    code, output, errors = call(stdin=given_lines)
    assert (code, errors) == (0, "")
    assert len(output.splitlines()) == len(texts)
    assert [row["text"] for row in lines(output)] == texts
    assert [row["label"] for row in lines(output)] == list(map(repr, texts))


def test_standard_input_that_is_no_text_is_refused_with_its_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        b"fine\n\xff\n": "line 2: got byte 0xff",
        "fine".encode("utf-16"): "line 1: got",
        "fine\n".encode("utf-16-le"): "line 1: got a NUL byte",
        b"a\n\xed\xa0\x80\n": "line 2: got byte 0xed",
    }
    for content, message in wrong.items():
        code, _, errors = call(stdin=content)
        assert (code, errors.count("\n")) == (2, 1)
        assert errors.startswith(f"standard input, {message}"), errors
    monkeypatch.setattr("distill.cli.texts._LONGEST", 10)
    assert call(stdin=b"x" * 11)[2].startswith("standard input, line 1: got more than 10 bytes; ")
    assert call(stdin=b"x" * 10 + b"\n")[0] == 0


def test_an_error_about_a_text_names_its_row(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.deploy.serve.model import texts_in

    def checked(self: Any, texts: list[Any], size: int, detect: None) -> list[dict[str, Any]]:
        texts_in(["\ud800" if text == "bad" else text for text in texts])
        return [{"score": 1.0}] * len(texts)

    monkeypatch.setattr(Echo, "predict", checked)
    Path("in.csv").write_text("text\n" + "good\n" * 1500 + "bad\n")
    assert call("--file", "in.csv")[2].startswith("in.csv, row 1501: got a lone surrogate; must be Unicode")
    assert call(stdin=b"good\n" * 1100 + b"bad\n")[2].startswith("standard input, line 1101: got a lone surrogate")
    Path("in.jsonl").write_text('{"text": "fine"}\n{"text": "\\ud800"}\n')
    code, output, errors = call("--file", "in.jsonl")
    assert (code, output) == (2, "")
    assert errors.startswith("in.jsonl, row 2: got ")


def test_labels_that_are_no_unicode_text_are_escaped(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"label": "\ud800\u202e\x9b", "score": 1.0}
    monkeypatch.setattr(Echo, "predict", lambda self, texts, size, detect: [row] * len(texts))
    code, output, _ = call("a")
    assert (code, output) == (0, '{"text": "a", "label": "\\ud800\\u202e\\u009b", "score": 1.0}\n')
    assert lines(output)[0]["label"] == row["label"]
    assert "\\ud800" in call("a", "--format", "csv")[1]


def test_a_text_with_separators_of_other_languages_is_in_quotes(call: Call) -> None:
    """A spreadsheet that separates at semicolons or tabs has the whole text in one cell too."""
    Path("in.jsonl").write_text(json.dumps({"text": "ok;=1+cmd;x"}) + "\n" + json.dumps({"text": "ok\t=1"}) + "\n")
    call("--file", "in.jsonl", "--output", "out.csv")
    assert [line.split(",")[0] for line in Path("out.csv").read_text().split("\n")[1:3]] == [
        '"ok;=1+cmd;x"',
        '"ok\t=1"',
    ]


FORMULAS = ["=1+1", "+49 30", "-SUM(A1)", "@x", "\tx", "\r=x", " =x", "'=x", "''@x", "=", "\uff1d1", "\ufeff=1", "\n-1"]
PLAIN = ["-5", "+1.5e3", "-1,5", "-12.50%", "a=b", "'quoted'", "", "x", "3 - 2", "O'Hara", "'"]


def test_no_cell_begins_as_a_formula(call: Call) -> None:
    texts = [*FORMULAS, *PLAIN]
    Path("in.jsonl").write_text("".join(json.dumps({"@name": t, "text": t, "n": -1.5}) + "\n" for t in texts))
    code, _, _ = call("--file", "in.jsonl", "--output", "out.csv")
    assert code == 0
    content = Path("out.csv").read_bytes().decode()
    with Path("out.csv").open(newline="") as file:
        raw = list(csv.reader(file))
    assert raw[0][0] == "'@name"
    for value, row in zip(texts, raw[1:], strict=True):
        assert row[1] == (f"'{value}" if value in FORMULAS else value)
        assert (row[2], row[-1]) == ("-1.5", "-0.5")  # numbers stay numbers
    assert [row["text"] for row in read_back(content)] == texts
    frame = pd.read_csv("out.csv", keep_default_na=False)
    assert frame["n"].tolist() == [-1.5] * len(texts)
    _, output, _ = call("--file", "in.jsonl")
    assert [row["text"] for row in lines(output)] == texts


texts_of_strangers = st.text(st.sampled_from("=+-@'\"\t\r\n ,;|0a\ufeff\u2028\u0085\x00\x1b"), max_size=8)


ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@ANY
@given(st.lists(texts_of_strangers, min_size=1, max_size=4))
def test_any_texts_in_cells_can_be_read_back(values: list[str]) -> None:
    from distill.runtime.cells import csv_line

    header = ",".join(f"c{number}" for number in range(len(values))) + "\n"
    line = csv_line([*values, -1])
    (row,) = csv.reader(io.StringIO(line, newline=""))
    assert row == [*map(cell, values), "-1"]
    (found,) = read_back(header.replace("\n", ",n\n") + line)
    assert list(found.values()) == [*values, "-1"]
    for each in row:
        assert not each.lstrip().startswith(("=", "@"))


@settings(ANY, max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), st.text(st.characters(exclude_categories=["Cs"]))),
        min_size=1,
        max_size=6,
    )
)
def test_any_table_comes_back_in_its_order(call: Call, rows: list[tuple[int | None, str]]) -> None:
    frame = pd.DataFrame({"id": pd.array([i for i, _ in rows], "Int64"), "text": [t for _, t in rows]})
    frame.to_parquet("in.parquet")
    frame.to_json("in.jsonl", orient="records", lines=True)
    for name in ("in.parquet", "in.jsonl"):
        code, output, _ = call("--file", name)
        assert code == 0
        assert [(row["id"], row["text"], row["label"]) for row in lines(output)] == [(i, t, repr(t)) for i, t in rows]


def test_several_names_in_a_cell(call: Call) -> None:
    assert predict.flat({"labels": ["a", "b"]}) == {"labels": "a|b"}
    assert predict.flat({"labels": ["a|b", "c"]}) == {"labels": '["a|b", "c"]'}
    assert predict.flat({"labels": ['["a"]']}) == {"labels": '["[\\"a\\"]"]'}
    assert predict.flat({"x": {"scores": {"a": 1}}}) == {"x.scores.a": 1}
    assert predict.renamed({"x": {"y": 1}, "x.y": 2}, []) == {"x": "x", "x.y": "predicted_x.y"}


def test_outputs_that_are_no_new_file_are_refused(call: Call) -> None:
    Path("in.csv").write_text("text\na\n")
    os.link("in.csv", "hard.csv")
    Path("link.csv").symlink_to("in.csv")
    Path("old.csv").write_text("old")
    os.mkfifo("pipe")
    for name in ("in.csv", "./in.csv", "hard.csv", "link.csv", "pipe", "model", "model/distill.json", "old.csv"):
        code, output, errors = call("--file", "in.cs[v]", "--output", name)
        assert (code, output, errors.count("\n")) == (2, "", 1), name
        assert errors.startswith("--output: got ")
    for name in ("in.csv", "hard.csv", "model/distill.json"):
        assert call("--file", Path("in.csv").resolve().as_uri(), "--output", name, "--overwrite")[0] == 2
    assert Path("in.csv").read_text() == "text\na\n"
    assert call("--file", "in.csv", "--output", "old.csv", "--overwrite")[0] == 0
    assert Path("old.csv").read_text().startswith("text,label,")
    code, _, errors = call("--file", "in.csv", "--output", "out.tsv")
    assert (code, errors.startswith("--output: got out.tsv; must end with .jsonl or .csv; ")) == (2, True)
    code, _, errors = call("--file", "in.csv", "--output", "/proc/none/a/out.jsonl")
    assert (code, errors.startswith("--output: got /proc/none/a/out.jsonl; must be writable")) == (2, True)
    assert call("a", "--output", "/dev/stdout")[1].startswith('{"text": "a"')


def test_a_full_disk_is_one_message(call: Call) -> None:
    resource = pytest.importorskip("resource", reason="limits of files are POSIX's")
    Path("in.jsonl").write_text("".join(json.dumps({"text": "x" * 500}) + "\n" for _ in range(50)))
    assert call("--file", "in.jsonl", "--output", "first.csv")[0] == 0  # which fills the cache
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        code, _, errors = call("--file", "in.jsonl", "--output", "out.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, errors.count("\n")) == (2, 1), errors
    assert errors.startswith("--output: got out.csv; must be writable (File too large")
    assert not Path("out.csv").exists()


def test_advice_is_an_option_that_a_shell_reads(call: Call) -> None:
    Path("in.jsonl").write_text('{"a": 1}\n')
    code, _, errors = call("--file", "in.jsonl")
    assert (code, errors.startswith("--text: got nothing, and no column of in.jsonl but the label is text;")) == (
        2,
        True,
    )
    assert "tasks." not in errors
    assert shlex.split(errors.rpartition("; set ")[2])[0] == "--text"


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["<&-", ">&-", "> /dev/full"])
def test_a_closed_or_full_stream_is_one_message(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    write(
        tmp_path,
        Record("t", TASK_TYPES["classification"], ("a", "b"), ("text",), 32, (Entry("torch", "fp32", "."),)),
    )
    text = "" if redirection == "<&-" else "a"
    code = f"""
import distill.deploy.serve
from distill import predict
from distill.runtime import streams
from tests.unit.cli.test_predict_columns import Echo
distill.deploy.serve.load = lambda *_, **__: Echo()
arguments = [{str(tmp_path)!r}, *filter(None, [{text!r}])]
raise SystemExit(streams.printed(lambda: predict.main(arguments), first=True))
"""
    command = ["bash", "-c", f'"$0" -c "$1" {redirection}', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


@pytest.mark.slow
def test_predictions_end_with_their_reader(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    kind, artifact = TASK_TYPES["classification"], Entry("torch", "fp32", ".")
    write(tmp_path, Record("t", kind, ("a", "b"), ("text",), 32, (artifact,)))
    code = f"""
import sys
import distill.deploy.serve
from distill.cli import commands
from tests.unit.cli.test_predict_columns import Echo
distill.deploy.serve.load = lambda *_, **__: Echo()
sys.argv = ["distill", "predict", {str(tmp_path)!r}]
raise SystemExit(commands.main())
"""
    pipe = 'yes | "$0" -c "$1" | head -1; exit ${PIPESTATUS[1]}'
    command = ["bash", "-c", pipe, sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=100)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr


@pytest.mark.parametrize("tags", ["", ",tag"], ids=["without tags", "tagged"])
@pytest.mark.parametrize("names", [("sentence_id", "word"), ("Sentence #", "Word"), ("doc_id", "tokens")], ids=str)
def test_words_with_a_row_each_are_asked_as_texts(tags: str, names: tuple[str, str], call: Call) -> None:
    words = [("Sentence: 1", "the", "O"), ("", "boat", "B-X"), ("Sentence: 2", "nobody", "O"), ("", "crossed", "O")]
    rows = [",".join((*row[:2], *row[2:] * bool(tags))) for row in words]
    Path("words.csv").write_text(f"{','.join(names)}{tags}\n" + "\n".join(rows) + "\n")
    code, shown, told = call("--file", "words.csv", kind="token_classification")
    assert code == 0, told
    answered = [json.loads(line) for line in shown.splitlines()]
    assert [each["label"] for each in answered] == ["['the', 'boat']", "['nobody', 'crossed']"]
    assert [each[names[1]] for each in answered] == [["the", "boat"], ["nobody", "crossed"]]
    assert "2 texts of 4 words, which have a row each" in told


@pytest.mark.parametrize(
    "rows",
    [
        [("id", "text"), ("1", "the boat"), ("2", "nobody")],
        [("word", "sentence"), *[("boat", "the boat is small, and leaves the quiet harbour at night")] * 2],
    ],
    ids=["numbers", "words"],
)
def test_texts_beside_numbers_or_words_stay_texts(rows: list[tuple[str, str]], call: Call) -> None:
    Path("texts.jsonl").write_text("".join(json.dumps(dict(zip(rows[0], row, strict=True))) + "\n" for row in rows[1:]))
    code, shown, told = call("--file", "texts.jsonl", kind="token_classification")
    assert code == 0, told
    assert [json.loads(line)["label"] for line in shown.splitlines()] == [repr(row[1]) for row in rows[1:]]


def test_titles_of_a_file_with_the_models_own_columns_are_not_read(call: Call) -> None:
    rows = [{"id": 7, "title": "Goats", "text": "Two of them.", "queue": "farm"}]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for columns in (("text",), ("query",)):
        _, output, errors = call("--file", "in.jsonl", kind="retrieval", columns=columns)
        assert [row["label"] for row in lines(output)] == ["'Two of them.'"]
        assert "title" not in errors


@pytest.mark.parametrize(
    ("prompts", "own", "said"),
    [
        ((), "", False),
        (("query: ", "passage: "), "", True),
        (("", "passage: "), "", True),
        (("text: ", "text: "), "text: ", False),
    ],
)
def test_prompts_that_a_user_has_to_write_are_said(prompts: tuple[str, ...], own: str, said: bool) -> None:
    """A retriever reads queries and documents after different prompts, and is asked about single texts."""
    entries = (Entry("torch", "fp32", "."),)
    stored = Record("t", TASK_TYPES["retrieval"], (), ("query",), 32, entries, prompts=prompts)
    found = predict._unprompted(stored, SimpleNamespace(prompt=own))
    assert [("passage: " in line, "no prompt is put" in line) for line in found] == [(True, True)] * said
    assert predict._unprompted(None, SimpleNamespace(prompt=own)) == []
