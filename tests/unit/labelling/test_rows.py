"""Units are read from their places in files as the whole files are read, whatever their form."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.data import files, parquet
from distill.data.task_types import TASK_TYPES
from distill.errors import ConfigError, DataError, UserError
from distill.labelling import engine
from distill.labelling import rows as reading
from distill.labelling.options import Options
from distill.labelling.plan import Changed, Columns, Plan, Source, Unit

COLUMNS = Columns(("body",), "queue", "soft")
KIND = TASK_TYPES["classification"]


def values(count: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    letters = "abc \u00e9\u4e2d\U0001f600\u2028\u0085"
    return [
        {
            "body": f"{i} {''.join(draw.choices(letters, k=draw.randrange(20)))}x",
            "queue": draw.choice(["billing", "fraud", None]),
            "other": i if i % 2 else i / 2,
        }
        for i in range(count)
    ]


def units_of(source: Source) -> list[Unit]:
    plan = Plan("t", "torch", "fp32", 32, "classification", (), 3, 10, COLUMNS, (source,))
    return plan.units


def scan(file: Path, most: int = 7, said: list[str] | None = None) -> Source:
    return reading.scan(str(file), COLUMNS, KIND, None, most, (said if said is not None else []).append)


def check(source: Source, wanted: pa.Table) -> None:
    """All units, in a random order."""
    units = units_of(source)
    assert sum(unit.rows for unit in units) == wanted.num_rows
    with closing(reading.Reader([source], COLUMNS, KIND, None)) as reader:
        for unit in random.Random(1).sample(units, len(units)):
            found = reader.rows(unit)
            assert found.column_names == ["body", "queue"]
            assert found.to_pylist() == wanted.select(["body", "queue"]).slice(unit.start, unit.rows).to_pylist()


@pytest.mark.parametrize("most", [1, 7, 50, 1000])
@pytest.mark.parametrize("group", [10, 33, 1000])
def test_parts_of_row_groups(group: int, most: int, tmp_path: Path) -> None:
    wanted, file = pa.Table.from_pylist(values(100)), tmp_path / "a.parquet"
    pq.write_table(wanted, file, row_group_size=group)
    source = scan(file, most)
    assert source.way == reading.GROUPS
    assert all(size <= min(most, group) for size, *_ in source.units)
    check(source, wanted)


def test_row_groups_of_classes_and_of_several_columns_with_dots(tmp_path: Path) -> None:
    features = {"info": {"features": {"queue": {"names": ["billing", "fraud"], "_type": "ClassLabel"}}}}
    table = pa.table({"b.d": range(40), "queue": [i % 2 for i in range(40)], "body": [f"text {i}" for i in range(40)]})
    file = tmp_path / "a.parquet"
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), file, row_group_size=16)
    check(scan(file), files.read([str(file)], "f").rows)


def test_columns_that_pyarrow_takes_for_paths_of_others(tmp_path: Path) -> None:
    table = pa.table(
        {
            "body.raw": [{"x": i} for i in range(40)],
            "body": [f"text {i}" for i in range(40)],
            "queue.id": range(40),
            "queue": ["billing"] * 40,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=16)
    check(scan(tmp_path / "a.parquet"), table)


def test_a_row_group_is_read_once_for_units_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if other processes have some of them."""
    wanted, read = pa.Table.from_pylist(values(300)), list[int | None]()
    pq.write_table(wanted, tmp_path / "a.parquet", row_group_size=150)
    source, whole = scan(tmp_path / "a.parquet"), parquet.batches
    monkeypatch.setattr(parquet, "batches", lambda *given: read.append(given[3]) or whole(*given))
    with closing(reading.Reader([source], COLUMNS, KIND, None)) as reader:
        for unit in units_of(source)[::3]:
            assert reader.rows(unit)["body"].to_pylist() == wanted["body"].to_pylist()[unit.start :][: unit.rows]
    assert read == [0, 1]


def test_wrong_lines_are_named_by_their_rows_in_the_file(tmp_path: Path) -> None:
    """Those of a file that was written anew with the same state, as on some mounted servers."""
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    source = scan(tmp_path / "a.jsonl")
    unit = Unit("0", "a.jsonl", 5, 1, (0, 100))
    for line, message in (
        ('{"body": 1}', "a.jsonl, rows 6 to 6: got values of other types than when the labelling began"),
        ('{"body"', "a.jsonl, row 6: "),
        ('{"body": "x", "more": 1}', "a.jsonl, rows 6 to 6: got values of other types than when the labelling began"),
    ):
        with pytest.raises(DataError) as caught:
            reading._of_lines(lambda line=line: io.BytesIO(line.encode()), unit, source.types)
        assert message in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.csv"])
def test_the_letters_of_a_text_are_no_choices(name: str, tmp_path: Path) -> None:
    rows = [{"body": f"text {i}", "options": "one or two"} for i in range(8)]
    file = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif name == "a.csv":
        file.write_text("body,options\n" + "".join(f"{row['body']},{row['options']}\n" for row in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for choices, message in (
        ("options", "label.choices: got options, a column of string in"),
        ("more", "label.choices: got more; must be a column of"),
    ):
        columns = Columns(("body",), "queue", "soft", (choices,))
        with pytest.raises(ConfigError) as caught:
            reading.scan(str(file), columns, TASK_TYPES["multiple_choice"], None, 7, str)
        assert message in str(caught.value)


def test_a_file_at_a_url_that_changes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system states a version, so that no copy is made."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    system = fsspec.filesystem("memory")
    whole = MemoryFileSystem.info
    monkeypatch.setattr(
        MemoryFileSystem,
        "info",
        lambda self, path, **more: whole(self, path, **more) | {"generation": hash(system.cat_file(path))},
    )
    rows = values(30)
    content = "".join(json.dumps(row) + "\n" for row in rows)
    url = "memory://labelled/a.jsonl"
    system.pipe_file("/labelled/a.jsonl", content.encode())
    try:
        source = reading.scan(url, COLUMNS, KIND, None, 7, str)
        check(source, pa.Table.from_pylist(rows))
        reader, (first, *_, last) = reading.Reader([source], COLUMNS, KIND, None), units_of(source)
        assert reader.rows(first).num_rows == first.rows
        system.pipe_file("/labelled/a.jsonl", content.replace("billing", "b1lling").encode())
        with pytest.raises(Changed, match="got other rows than those with which the labelling began"):
            reader.rows(last)
        system.pipe_file("/labelled/a.jsonl", content.encode())
        assert reader.rows(last).num_rows == last.rows
    finally:
        system.rm("/labelled", recursive=True)


@pytest.mark.parametrize("most", [1, 7, 50, 1000])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n \n"])
def test_lines(ending: str, most: int, tmp_path: Path) -> None:
    rows, file = values(100), tmp_path / "a.jsonl"
    content = ending.join(json.dumps(row, ensure_ascii=False) for row in rows)
    file.write_bytes(b"\xef\xbb\xbf" + content.encode())
    source = scan(file, most)
    assert source.way == reading.LINES
    check(source, pa.Table.from_pylist(rows))


def test_types_that_widen_after_the_first_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The label is null at first, and other columns come later."""
    from distill.data import lines

    monkeypatch.setattr(lines, "ROWS", 8)
    rows = [row | ({"queue": None} if i < 30 else {"late": 1}) for i, row in enumerate(values(60))]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = scan(file)
    assert source.names == ("body", "queue", "other", "late")
    check(source, files.read([str(file)], "f").rows)


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl.gz", "a.jsonl"])
def test_other_forms_are_parsed_as_a_whole(name: str, tmp_path: Path) -> None:
    import gzip

    rows = [{"body": f"text {i}", "queue": "fraud"} for i in range(20)]
    lines = [json.dumps(row) for row in rows]
    content = {
        "a.csv": "body,queue\n" + "".join(f'"text {i}",fraud\n' for i in range(20)),
        "a.json": json.dumps(rows),
        "a.jsonl.gz": "\n".join(lines),
        "a.jsonl": "\r".join(lines),
    }[name].encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = scan(file)
    assert source.way == reading.TABLE
    check(source, pa.Table.from_pylist(rows))


def test_no_row_of_parquet_and_lines_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_table", lambda *_: pytest.fail("a file was parsed into the cache"))
    pq.write_table(pa.Table.from_pylist(values(20)), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values(20)))
    for name in ("a.parquet", "b.jsonl"):
        check(scan(tmp_path / name), pa.Table.from_pylist(values(20)))


def test_a_wrong_row_is_named_by_its_number_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.data import lines

    monkeypatch.setattr(lines, "ROWS", 8)
    rows = values(40)
    for number, text, message in ((33, None, "row 34: got null in body"), (25, " ", "row 26: got no text in body")):
        wrong = [row | ({"body": text} if i == number else {}) for i, row in enumerate(rows)]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wrong))
        pq.write_table(pa.Table.from_pylist(wrong), tmp_path / "a.parquet", row_group_size=9)
        for name in ("a.jsonl", "a.parquet"):
            with pytest.raises(UserError, match=f"{name}, {message}"):
                scan(tmp_path / name)


def test_a_file_that_is_touched_is_read_and_one_that_changed_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    content = "".join(json.dumps(row) + "\n" for row in values(30))
    file.write_text(content)
    source = scan(file)
    reader, (first, *_, last) = reading.Reader([source], COLUMNS, KIND, None), units_of(source)
    assert reader.rows(first).num_rows == first.rows
    os.utime(file, ns=(1, 1))
    assert reader.rows(last).num_rows == last.rows
    file.write_text(content.replace("billing", "b1lling"))
    with pytest.raises(Changed, match="got other rows than those with which the labelling began"):
        reader.rows(first)
    file.unlink()
    with pytest.raises(Changed):
        reader.rows(first)
    file.write_text(content)
    assert reader.rows(first).num_rows == first.rows


class Counted(tuple[Source, ...]):
    """Sources, and how often all of them were looked at."""

    times = 0

    def __iter__(self) -> Iterator[Source]:
        self.times += 1
        return super().__iter__()


def test_all_files_of_a_folder_that_was_begun_are_looked_up_in_one_pass(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values(20, number)))
    names = [str(tmp_path / f"{number}.jsonl") for number in range(5)]
    sources = [reading.scan(name, COLUMNS, KIND, None, 7, str) for name in names]
    plan = Plan("t", "torch", "fp32", 32, "classification", (), 3, 7, COLUMNS, Counted(sources))
    model: Any = None  # no row is read
    assert engine._sources(names, COLUMNS, Options(rows=7), model, plan, str) == tuple(sources)
    assert isinstance(plan.sources, Counted)
    assert plan.sources.times == 1


def test_a_column_of_several_types_beside_the_label_that_is_named_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"body": "x", "queue": "a", "label": n}) + "\n" for n in (1, "b", 2)))
    assert sum(unit.rows for unit in units_of(scan(file))) == 3
    with pytest.raises(DataError, match="label"):
        reading.scan(str(file), Columns(("body",), "", "soft"), KIND, None, 7, [].append)
