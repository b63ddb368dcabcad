"""The record of when reported rows are read: rows are known by what they are, and every reading is one more line."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill import config
from distill.config.plan import resolve
from distill.data.tasks import TaskData, load_tasks
from distill.pipeline import openings
from distill.pipeline.context.fingerprints import of_reported
from distill.pipeline.openings import Reader
from distill.pipeline.stages import embedder
from distill.runtime.storage import atomic, cache, checksums, run_folder

ROWS = [(f"text {n % 7} of row {n}", "good" if n % 3 else "bad") for n in range(40)]
Rows = Sequence[tuple[str, str]]


def loaded(folder: Path, rows: Rows, header: str = "text,label") -> TaskData:
    """The task of a file, of which all rows are reported."""
    folder.mkdir(parents=True)
    for name, end in {"train": " to learn from", "test": ""}.items():
        (folder / f"{name}.csv").write_text("\n".join([header, *(f"{text}{end},{label}" for text, label in rows)]))
    overrides = [f"tasks.train={folder / 'train.csv'}", f"tasks.test={folder / 'test.csv'}", "tasks.name=mood"]
    settings = config.load_config(["recipe=task", *overrides])
    return load_tasks(settings.tasks, settings.limit, 0).tasks["mood"]


def of(data: TaskData) -> str:
    (rows,) = data.reported.values()
    return of_reported(data, rows)


def test_rows_are_known_at_another_path_in_another_order_and_with_other_names(tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    relabelled = [(text, "good") for text, _ in ROWS[:1]] + ROWS[1:]
    same = [
        loaded(tmp_path / "a", ROWS),
        loaded(tmp_path / "b" / "elsewhere", shuffled),
        loaded(tmp_path / "c", shuffled, "sentence,class"),
        loaded(tmp_path / "d", relabelled),
    ]
    assert same[2].task.columns == ("sentence",)
    assert len({of(data) for data in same}) == 1


def test_other_rows_have_another_fingerprint(tmp_path: Path) -> None:
    """As an oracle says: of the texts, counted as often as they are there, and of the names of the labels."""
    sets = {
        "all": ROWS,
        "without one": ROWS[1:],
        "one twice": [*ROWS, ROWS[0]],
        "a letter": [("Text 0 of row 0", "bad"), *ROWS[1:]],
        "a space": [(f"{ROWS[0][0]} x", "bad"), *ROWS[1:]],
        "other labels": [(text, f"is {label}") for text, label in ROWS],
    }
    found = {name: of(loaded(tmp_path / name.replace(" ", "-"), rows)) for name, rows in sets.items()}
    assert len(set(found.values())) == len(sets), found


@pytest.fixture
def data(tmp_path: Path) -> TaskData:
    return loaded(tmp_path / "files", ROWS)


def read(folder: Path, data: TaskData, settings: str = "s", purpose: str = "report") -> list[int | None]:
    """Read the rows in a run folder. Returns `others` of all openings of the run."""
    openings.record(folder, Reader(settings, purpose, "python -m distill recipe=task"), [data])
    return [each.others for each in openings.recorded(folder)]


def test_each_reading_is_a_line_of_the_run_and_of_the_user(data: TaskData, tmp_path: Path) -> None:
    with cache.using(tmp_path / "cache"):
        assert read(tmp_path / "one", data) == [0]
        assert read(tmp_path / "one", data, purpose="once more") == [0, 0]  # the run itself is no other
        assert read(tmp_path / "copy", data) == [0]
        assert read(tmp_path / "two", data, "other") == [1]
        assert read(tmp_path / "three", data, "third") == [2]
        assert read(tmp_path / "one", data) == [0, 0, 2]
    first, second, _ = openings.recorded(tmp_path / "one")
    assert (first.task, first.split, first.rows, first.purpose) == ("mood", "test", len(ROWS), "report")
    assert (first.fingerprint, first.settings, second.purpose) == (of(data), "s", "once more")
    assert first.commit is None or (len(first.commit) >= 7 and first.dirty in (True, False))
    (file,) = (tmp_path / "cache" / "openings").iterdir()
    assert file.name == f"{of(data)}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["settings"] for line in lines] == ["s", "s", "s", "other", "third", "s"]


def test_the_record_outlives_a_trimmed_cache(data: TaskData, tmp_path: Path) -> None:
    with cache.using(tmp_path / "cache", 1e-9):
        read(tmp_path / "one", data)
    with cache.using(tmp_path / "cache", 1e-9):
        cache.trim()
        assert read(tmp_path / "two", data, "other") == [1]


def test_the_line_is_there_before_a_killed_run_could_score(data: TaskData, tmp_path: Path) -> None:
    """What a killed process wrote of a line is no opening, and no error."""
    with cache.using(tmp_path / "cache"):
        read(tmp_path / "one", data)
        for file in (tmp_path / "one" / run_folder.OPENINGS, tmp_path / "cache" / "openings" / f"{of(data)}.jsonl"):
            with file.open("ab") as opened:
                opened.write(file.read_bytes()[:-20])
        assert read(tmp_path / "one", data, "other") == [0, 1]
        assert read(tmp_path / "two", data, "third") == [2]


def test_no_repair_of_a_run_folder_touches_the_record(data: TaskData, tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "run" / run_folder.OPENINGS
    run_folder.claim(run)
    with run_folder.locked(run), cache.using(tmp_path / "cache", 0):
        atomic.write_json(run / "config.json", {})
        read(run, data)
        with file.open("ab") as opened:
            opened.write(b'{"cut')
        content = file.read_bytes()
        run_folder.sweep(run)
        assert run_folder.mend(run) == []
        assert file.read_bytes() == content
        assert set(atomic.read_json(run / checksums.SUMS)["files"]) == {"config.json"}


def test_without_a_cache_only_the_run_has_a_record(data: TaskData, tmp_path: Path) -> None:
    with cache.using(tmp_path / "cache", 0):
        assert read(tmp_path / "one", data) == [None]
        assert read(tmp_path / "two", data, "other") == [None]
    assert not (tmp_path / "cache").exists()
    (tmp_path / "file").touch()
    with cache.using(tmp_path / "file" / "below"):  # cannot be made
        assert read(tmp_path / "three", data) == [None]


def test_a_step_without_reported_rows_writes_nothing(tmp_path: Path) -> None:
    openings.record(tmp_path, Reader("s", "report", "command"), [])
    assert not list(tmp_path.iterdir())
    assert openings.recorded(tmp_path) == []


def of_settings(*overrides: str, data: str = "rows", files: str = "") -> Reader:
    settings = config.load_config(["recipe=task", *overrides])
    plan = resolve(settings)
    found = {"unlabelled": files}
    ctx: Any = SimpleNamespace(config=settings, plan=plan, command="command")
    ctx.fingerprint = lambda name: f"{name} {found.get(name, data)}"
    return openings.reader(ctx)


def test_settings_are_others_if_they_may_change_a_score() -> None:
    same = [
        of_settings(),
        of_settings("output=elsewhere", "threads=1", "cache.max_gib=0"),
        of_settings("report.purpose='choose a rate'", "report.hourly_rate=3"),
    ]
    same += [of_settings(f"tasks.path={path}", f"teacher.name={path}/bert") for path in ("glue", "/home/me/glue")]
    same += [of_settings("stages.evaluate.repeats=3", "stages.finetune.retries=0", "stages.finetune.lr_factors=[]")]
    assert len({each.settings for each in same}) == 1
    assert [each.purpose for each in same[:3]] == ["report", "report", "choose a rate"]
    others = [of_settings("seed=5"), of_settings("temperature=3"), of_settings(data="other rows")]
    others += [of_settings("stages.finetune.retries=2"), of_settings("stages.finetune.epochs=4.5")]
    # What another step reads counts as what it is too.
    others += [of_settings("transfer=mixed", "transfer.files=a.csv", files=content) for content in ("one", "two")]
    assert len({each.settings for each in [same[0], *others]}) == 8


def test_the_purpose_is_no_part_of_the_name_of_a_run_folder() -> None:
    named = run_folder.run_folder("task", ["seed=1"], None)
    assert run_folder.run_folder("task", ["report.purpose=choose a rate", "seed=1"], None) == named


def test_an_embedder_reads_the_first_reported_split_alone(data: TaskData) -> None:
    (rows,) = data.reported.values()
    several = replace(data, reported={"matched": rows, "mismatched": rows})
    assert list(embedder._read(several).reported) == ["matched"]
