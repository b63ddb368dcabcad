"""Separators and quotes of text files: read as their writer meant them and said, or refused with both readings."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path

import pandas as pd
import pytest

from distill import config
from distill.data.files import Table, read
from distill.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")

ROWS = [("the lamp, it flickers", "repair"), ("two chairs; one table", "order"), ('a 30" shelf', "order")]


def load(path: Path, separator: str | None = None) -> Table:
    return read(str(path), "tasks.train", separator)


def rows(table: Table) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in table.rows.to_pylist()]


def written(separator: str, ends: str = "\n") -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator=ends).writerows([("text", "desk"), *ROWS])
    return text.getvalue()


@pytest.mark.parametrize(
    ("name", "separator"),
    [("f.csv", ";"), ("f.csv", "\t"), ("f.csv", "|"), ("f.tsv", ","), ("f.tab", ";"), ("f.txt", "\t")],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_other_separator_is_read_and_said(name: str, separator: str, ends: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(written(separator, ends).encode(encoding))
    for table in (load(path), load(path)):  # the second one is from the cache
        assert rows(table) == ROWS
        (note,) = table.notes
        assert note.startswith(f"{path}: its header is separated by ")
        assert note.endswith("so its columns are text, desk")


def test_usual_separator_is_not_worth_a_note(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(written(","))
    table = load(tmp_path / "f.csv")
    assert (rows(table), table.notes) == (ROWS, ())


@pytest.mark.parametrize("name", ["semicolon", "tab", "comma", "pipe", "Semicolon"])
def test_separator_is_set_by_name(name: str, tmp_path: Path) -> None:
    mark = {"semicolon": ";", "tab": "\t", "comma": ",", "pipe": "|"}[name.lower()]
    (tmp_path / "f.csv").write_text(written(mark))
    table = load(tmp_path / "f.csv", name)
    assert (rows(table), table.notes) == (ROWS, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("f.csv", "surname, name;town\nAda, Byron;London\nBlaise, Pascal;Paris\n"),
        ("f.csv", "text;desk|floor\na;b|c\nd;e|f\n"),
        ("f.txt", "text;desk\na;b\n"),
    ],
)
def test_two_readings_are_refused_and_the_advice_works(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=r"header: got (what could be .*, or columns|lines without)") as caught:
        load(path)
    (advice,) = shlex.split(caught.value.messages[0].rpartition("; set ")[2])
    settings = config.load_config(["recipe=prune", f"tasks.train={path}", advice])
    assert load(path, settings.tasks.separator).rows.num_rows


def test_one_row_of_another_width_does_not_hide_the_separator(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("text;desk\n" + "a lamp;repair\n" * 20 + "a lamp; a shelf;order\n")
    with pytest.raises(DataError, match="row 21: got 3 values; must be 2"):
        load(path)


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;\r", "\ufeffsep=;"])
@pytest.mark.parametrize("separator", [None, ";"])
def test_line_for_excel_is_used(line: str, separator: str | None, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(f"{line}\n{written(';')}".encode())
    table = load(path, separator)
    assert rows(table) == ROWS
    assert len(table.notes) == (separator is None)
    assert all("states the separator" in note for note in table.notes)


def test_column_named_sep_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("sep,text\n1,a\n")
    assert rows(load(tmp_path / "f.csv")) == [("1", "a")]


def test_decimal_commas_stay_text(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a", "b"], "score": [3.5, 0.25]}).to_csv(
        tmp_path / "f.csv", sep=";", decimal=",", index=False
    )
    assert rows(load(tmp_path / "f.csv")) == [("a", "3,5"), ("b", "0,25")]


@pytest.mark.parametrize(
    ("name", "line", "separator", "given"),
    [
        ("f.csv", "# exported 2024-05-01", ",", None),
        ("f.csv", "# exported 2024-05-01", ";", None),
        ("f.csv", "Tickets of the desk", ",", None),
        ("f.csv", "Tickets of the desk", ";", "semicolon"),
        ("f.tsv", "Tickets of the desk", "\t", None),
        ("f.txt", "Tickets of the desk", "\t", None),
    ],
)
def test_a_line_above_the_names_is_refused(
    name: str, line: str, separator: str, given: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(f"{line}\n{written(separator)}")
    with pytest.raises(DataError, match=f"header: got '{line}' above lines of 2 values; must .*; remove this line"):
        load(tmp_path / name, given)


@pytest.mark.parametrize(
    ("content", "given"),
    [
        ("text\na; b\nc; d\n", None),
        ("What is wrong?\na; b\nc; d\n", None),
        ('"What, in short,\nis wrong?"\n"a, b"\n"c, d"\n', None),
        ('"What, in short,\nis wrong?",queue\na,b\nc,d\n', "comma"),
        ("# of cars\n1\n2\n", None),
    ],
)
def test_a_name_of_a_column_is_no_line_above_the_names(content: str, given: str | None, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(content)
    table = load(tmp_path / "f.csv", given)
    expected = pd.read_csv(tmp_path / "f.csv", dtype=str)
    assert rows(table) == [tuple(row) for row in expected.to_numpy().tolist()]


# Quotes

BARE = [
    ("plain words", "good"),
    ('"Never again, wrote a guest', "bad"),
    ("nothing special", "good"),
    ('a screen of 27"', "bad"),
    ("also fine", "good"),
]


def bare(table: list[tuple[str, str]], separator: str = "\t") -> str:
    return "".join(separator.join(row) + "\n" for row in [("text", "vote"), *table])


@pytest.mark.parametrize(("name", "separator"), [("f.tsv", "\t"), ("f.csv", "\t"), ("f.txt", "\t"), ("f.csv", "|")])
@pytest.mark.parametrize(
    "table",
    [
        BARE,
        [*BARE, ('"Odd" she said', "bad")],
        [("fine", "good"), ('"never closed', "bad"), ("fine", "bad")],
        [("fine", "good"), ('"closed" here', "bad"), ('"whole"', "bad"), ("fine", "bad")],
    ],
)
def test_quotes_of_texts_lose_no_row(name: str, separator: str, table: list[tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / name).write_text(bare(table, separator))
    read_in = load(tmp_path / name)
    assert rows(read_in) == table
    assert any("quotes are a part of the texts" in note for note in read_in.notes)


def test_quotes_that_could_be_both_are_refused(tmp_path: Path) -> None:
    for name, separator in (("f.csv", ","), ("f.csv", ";")):
        (tmp_path / name).write_text(bare([(text.replace(",", ""), vote) for text, vote in BARE], separator))
        with pytest.raises(DataError, match=r"row 2: got quotes, before '\"Never .*', that could enclose 3 lines"):
            load(tmp_path / name)
    pd.DataFrame({"text": ["a\tb\nc", "d"], "vote": ["x", "y"]}).to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    with pytest.raises(DataError, match="row 1: got quotes"):
        load(tmp_path / "p.tsv")


def test_quotes_of_csv_enclose_lines(tmp_path: Path) -> None:
    table = [("Dear all,\nI want, please,\nhelp", "good"), ('say "no"', "bad"), ("a\tb", "bad"), ("", "good")]
    for separator in ",;\t|":
        frame = pd.DataFrame(table, columns=["text", "vote"])
        frame.to_csv(tmp_path / "f.csv", sep=separator, index=False)
        assert rows(load(tmp_path / "f.csv")) == table
        (tmp_path / "f.csv").unlink()


def test_values_in_quotes_beside_others_are_said(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text('text\tvote\n"good stuff"\tgood\nbad stuff\tbad\n')
    table = load(tmp_path / "f.tsv")
    assert rows(table) == [("good stuff", "good"), ("bad stuff", "bad")]
    assert "the quotes around 1 of its values enclose them" in table.notes[0]


@pytest.mark.parametrize("content", ["text\na\rb\nc\n", "text,vote\na\rb,1\nc,2\n", 'text\n"a\rb"\nc\rd\n'])
def test_lone_carriage_return_is_no_end_of_a_row(content: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(content.encode())
    with pytest.raises(DataError, match=r"row \d: got a line that ends with a carriage return, where others"):
        load(tmp_path / "f.csv")
    (tmp_path / "g.csv").write_bytes(b'text\n"a\rb"\nc\n')
    assert rows(load(tmp_path / "g.csv")) == [("a\rb",), ("c",)]


def test_names_of_a_single_column_may_contain_a_separator(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a list;of words\nwithout any\nother column\n")
    with pytest.raises(DataError, match=r"one column 'a list;of words', or columns 'a list' and 'of words'"):
        load(tmp_path / "f.csv")
    assert rows(load(tmp_path / "f.csv", "comma")) == [("without any",), ("other column",)]


@pytest.mark.parametrize(
    "values", [('"1","hello"', '"2","by post, or not"', '"3","ok"'), ("hello,", "by post,", "ok,")]
)
def test_values_of_no_column_are_below_a_name(values: tuple[str, ...], tmp_path: Path) -> None:
    """As R writes the names of rows, and other programs a separator at the end of each."""
    (tmp_path / "f.csv").write_text("\n".join(['"Customer message"', *values]) + "\n")
    table = load(tmp_path / "f.csv")
    assert table.rows.num_rows == 3
    assert table.rows["Customer message"][2].as_py() == "ok"
