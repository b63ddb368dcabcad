"""The units of a labelling: which process tries them, and what becomes of those that fail. Without a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from distill.errors import UserError
from distill.labelling import plan as plans
from distill.labelling import work as works
from distill.runtime.storage import strict_json
from distill.runtime.storage.leases import Leases


def work_of(folder: Path, tries: int = 3, units: int = 6, name: str = "t.csv") -> works.Work:
    """Units of invented rows, without a model."""
    source = plans.Source(name, "hash", "table", ("t",), ("string",), ((5, 0, 0),) * units)
    columns = plans.Columns(("t",), "label", "soft")
    plan = plans.Plan("teacher", "torch", "fp32", 32, "regression", (), tries, 5, columns, (source,))
    assert plans.begun(folder, plan, print) is plan
    return works.Work(folder, plan, plans.stamp_of(plan), 60)


def numbered(unit: plans.Unit) -> pa.Table:
    return pa.table({"soft": np.arange(unit.start, unit.start + unit.rows)})


def failing(*which: int, until: int = 10**9) -> tuple[Callable[[plans.Unit], pa.Table], list[str]]:
    """A function that fails for units, `until` as many calls for them have failed; and the calls."""
    calls: list[str] = []

    def label(unit: plans.Unit) -> pa.Table:
        calls.append(unit.name)
        if int(unit.name) in which and calls.count(unit.name) <= until:
            raise RuntimeError("no memory\nand more")
        return numbered(unit)

    return label, calls


def test_a_unit_that_always_fails_is_listed_and_the_others_are_labelled(tmp_path: Path) -> None:
    work, (label, calls) = work_of(tmp_path), failing(1, 4)
    said: list[str] = []
    for process in range(4):
        works.run(work, label, lambda unit: None, said.append)
        wanted = min(process + 1, 3)  # each process tries a unit once
        assert [calls.count(f"{number:06d}") for number in range(6)] == [1, wanted, 1, 1, wanted, 1]
        poison = works.finish(work)
        assert poison[0] == {"file": "t.csv", "first_row": 6, "rows": 5, "errors": ["RuntimeError: no memory"] * wanted}
    assert said[0] == "t.csv, rows 6 to 10: try 1 of 3 failed: RuntimeError: no memory"
    assert json.loads((tmp_path / "poison.json").read_text()) == poison
    assert len(poison) == 2
    shutil.rmtree(work.tried)
    works.run(work, numbered, lambda unit: None, said.append)
    assert (works.finish(work), (tmp_path / "poison.json").exists()) == ([], False)


def test_what_may_be_a_secret_in_an_address_is_in_no_file(tmp_path: Path) -> None:
    work = work_of(tmp_path, units=1, name="https://me:thepassword@host/t.csv?sig=thesignature")

    def label(unit: plans.Unit) -> pa.Table:
        raise RuntimeError(f"404, {unit.source}")

    works.run(work, label, lambda unit: None, lambda line: None)
    (poison,) = works.finish(work)
    assert poison["file"] == "https://...@host/t.csv?..."
    written = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 2
    assert not [text for text in written if "thepassword" in text or "thesignature" in text]
    known = plans.stored(tmp_path)
    assert known is not None
    plans.check(tmp_path, known, work.plan)  # the same command goes on
    assert plans.stamp_of(known) == plans.stamp(tmp_path) == work.stamp


def test_a_unit_that_fails_twice_is_labelled_by_the_third_process(tmp_path: Path) -> None:
    work, (label, calls) = work_of(tmp_path), failing(2, until=2)
    for _ in range(3):
        works.run(work, label, lambda unit: None, lambda line: None)
    assert (works.finish(work), calls.count("000002")) == ([], 3)


def test_a_process_that_fails_everywhere_ends_and_its_tries_do_not_count(tmp_path: Path) -> None:
    work = work_of(tmp_path, units=12)
    label, calls = failing(*range(12))
    with pytest.raises(UserError, match="5 units in a row that failed in this process"):
        works.run(work, label, lambda unit: None, lambda line: None)
    assert (len(calls), [*work.tried.iterdir()], [*work.leases.iterdir()]) == (5, [], [])
    sick: list[str] = []

    def dying(unit: plans.Unit) -> pa.Table:
        sick.append(unit.name)
        if len(sick) > 3:
            raise RuntimeError("the device is lost")
        return numbered(unit)

    with pytest.raises(UserError, match="5 units in a row"):
        works.run(work, dying, lambda unit: None, lambda line: None)
    assert (len(set(sick)), [*work.tried.iterdir()]) == (8, [])


def test_a_unit_after_which_a_gpu_cannot_be_used_is_noted_and_ends_the_process(tmp_path: Path) -> None:
    """The tries of other units do not fail for it."""
    work, broken = work_of(tmp_path), list[str]()

    def label(unit: plans.Unit) -> pa.Table:
        if unit.name == "000002" or broken:
            broken.append(unit.name)
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        return numbered(unit)

    for number in range(1, 4):
        broken.clear()
        with pytest.raises(UserError, match="device-side assert triggered; must be labelled; after such an error no"):
            works.run(work, label, lambda unit: None, lambda line: None)
        assert (broken, len([*work.tried.iterdir()])) == (["000002"], number)
    broken.clear()
    works.run(work, label, lambda unit: None, lambda line: None)
    assert [each["first_row"] for each in works.finish(work)] == [11]


def test_units_in_a_row_that_fail_do_not_stop_a_process_that_can_label(tmp_path: Path) -> None:
    work = work_of(tmp_path, units=12)
    label, _ = failing(*range(3, 9))
    works.run(work, label, lambda unit: None, lambda line: None)
    assert [path.stem for path in sorted(tmp_path.glob("*.parquet"))] == [f"{n:06d}" for n in (0, 1, 2, 9, 10, 11)]
    assert [each["first_row"] for each in works.finish(work)] == [5 * n + 1 for n in range(3, 9)]


def test_a_unit_that_ends_the_process_is_listed_too(tmp_path: Path) -> None:
    """Its lease expires, which counts as a try."""
    work = replace(work_of(tmp_path, tries=1), seconds=0.2)
    Leases(work.leases, 0.2).take("000003")  # and nobody renews it
    works.run(work, numbered, lambda unit: None, lambda line: None)
    (listed,) = works.finish(work)
    assert listed["first_row"] == 16
    assert "ended without a word" in listed["errors"][0]


def test_what_is_no_file_of_labels_leaves_its_unit_open(tmp_path: Path) -> None:
    work = work_of(tmp_path, tries=1)
    (tmp_path / "000002.parquet").symlink_to(tmp_path / "gone.parquet")
    (tmp_path / "000003.parquet").mkdir()
    assert len(work.open()) == 6
    works.run(work, numbered, lambda unit: None, lambda line: None)
    poison = works.finish(work)
    assert [each["first_row"] for each in poison] == [11, 16]
    assert ["a symbolic link" in poison[0]["errors"][0], "a folder" in poison[1]["errors"][0]] == [True, True]


def test_a_unit_that_vanishes_after_it_was_labelled_is_listed(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    works.run(work, numbered, lambda unit: None, lambda line: None)
    (tmp_path / "000002.parquet").unlink()
    assert works.finish(work)[0]["errors"] == ["its file was removed after it was labelled"]


@pytest.mark.slow
def test_a_unit_that_another_process_labelled_meanwhile_is_kept(tmp_path: Path) -> None:
    work = work_of(tmp_path, units=1)

    def slow(unit: plans.Unit) -> pa.Table:
        work.file(unit).write_bytes(b"of the other process")
        return numbered(unit)

    told: list[plans.Unit] = []
    works.run(work, slow, told.append, lambda line: None)
    assert (told, work.file(work.plan.units[0]).read_bytes()) == ([], b"of the other process")
    assert not work.tried.exists()


def test_nothing_is_written_to_a_folder_that_was_begun_anew(tmp_path: Path) -> None:
    work = work_of(tmp_path / "out")

    def replaced(unit: plans.Unit) -> pa.Table:
        shutil.rmtree(tmp_path / "out")
        work_of(tmp_path / "out", tries=9)
        return numbered(unit)

    with pytest.raises(UserError, match="which was removed or begun anew meanwhile; must"):
        works.run(work, replaced, lambda unit: None, lambda line: None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".distill-label"]
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(UserError, match="removed or begun anew"):
        works.run(work, numbered, lambda unit: None, lambda line: None)
    assert not (tmp_path / "out").exists()


def test_what_a_process_of_an_unfinished_unit_needs_is_kept(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    works.run(work, numbered, lambda unit: None, lambda line: None)
    (tmp_path / "000002.parquet").unlink()
    kept = [tmp_path / f".000002.parquet.{1:015d}.distill-tmp", work.leases / "000002"]
    gone = [tmp_path / f".000003.parquet.{1:015d}.distill-tmp", work.leases / "000003"]
    for folder, lease in (kept, gone):
        folder.mkdir()
        lease.write_text("")
    works.finish(work)
    assert [path.exists() for path in (*kept, *gone)] == [True, True, False, False]


def test_who_comes_second_takes_the_plan_of_the_first(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    other = replace(work.plan, scheme="bf16")
    known = plans.begun(tmp_path, other, print)
    assert known == work.plan
    with pytest.raises(UserError, match="begun with scheme fp32, and not bf16; must be the same"):
        plans.check(tmp_path, known, other)
    assert plans.stamp(tmp_path) == work.stamp == plans.stamp_of(known)


def test_a_full_disk_is_no_fault_of_a_unit(tmp_path: Path) -> None:
    def full(unit: plans.Unit) -> pa.Table:
        raise OSError(28, "No space left on device", "out")

    work = work_of(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        works.run(work, full, lambda unit: None, lambda line: None)
    assert not work.tried.exists()
    assert not [*work.leases.iterdir()]


@pytest.mark.parametrize("content", ["", '{"schema": 4', "[]", "[" * 100_000])
def test_a_plan_that_cannot_be_read_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / plans.INSIDE).mkdir()
    (tmp_path / plans.INSIDE / plans.PLAN).write_text(content)
    with pytest.raises(UserError, match=r"plan\.json, which cannot be read .*; remove the folder, or choose another"):
        plans.stored(tmp_path)


def test_a_plan_of_others_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a" / plans.INSIDE).mkdir(parents=True)
    (tmp_path / "a" / plans.INSIDE / plans.PLAN).write_text('{"schema": 4}')
    with pytest.raises(UserError, match=r"plan\.json, which has other contents than it was written with"):
        plans.stored(tmp_path / "a")
    work = work_of(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / plans.INSIDE).symlink_to(tmp_path / "a")
    with pytest.raises(UserError, match="is a link; must be none, because nothing is written through links"):
        plans.begun(tmp_path / "c", work.plan, print)
    assert {path.name for path in (tmp_path / "a").iterdir()} == {plans.INSIDE}
    work.leases.parent.mkdir(exist_ok=True)
    work.leases.symlink_to(tmp_path / "a", target_is_directory=True)
    with pytest.raises(UserError, match=r"/leases is a link; must be none"):
        plans.stored(work.folder)
    work.leases.unlink()
    work.note(work.plan.units[0], "x", "y")
    work.noted(work.plan.units[0], "x").write_bytes(b"\xff")
    assert work.errors(work.plan.units[0]) == ["\ufffd"]


WRONG: dict[str, Any] = {
    "tries": "3",
    "labels": "ab",
    "columns": {"text": "ab", "label": "label", "soft": "soft"},
    "sources": [["a.csv"]],
    "separator": 1,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_with_a_value_of_another_type_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file = work_of(tmp_path).folder / plans.INSIDE / plans.PLAN
    known = json.loads(file.read_text())
    assert plans.stored(tmp_path) is not None
    file.write_text(json.dumps(known | {name: WRONG[name]}))
    with pytest.raises(UserError, match=r"plan\.json, which has other contents than it was written with"):
        plans.stored(tmp_path)


def test_a_plan_of_any_size_is_read_again(tmp_path: Path) -> None:
    """The limit that holds for files of strangers is 8 MiB."""
    columns = plans.Columns(text=("text",), label="label", soft="soft")
    names = tuple(f"column {number}" for number in range(600_000))
    source = plans.Source("a.csv", "x", "lines", names, ("string",), ((1, 0, 0),))
    whole = plans.Plan("t", "torch", "fp32", 32, "classification", ("a", "b"), 3, 1, columns, (source,))
    (tmp_path / plans.INSIDE).mkdir()
    (tmp_path / plans.INSIDE / plans.PLAN).write_text(whole.text)
    assert (tmp_path / plans.INSIDE / plans.PLAN).stat().st_size > strict_json.LARGEST
    assert plans.stored(tmp_path) == whole
