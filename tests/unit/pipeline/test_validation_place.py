"""No model or file that a run reads lies in its folder."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from distill import config
from distill.pipeline.validation.place import place


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my run", "outside"):
        Path(name, "model").mkdir(parents=True)
        Path(name, "rows.csv").touch()
    Path("linked").symlink_to("my run")


GIVEN: dict[str, dict[str, Any]] = {
    "teacher.name": {"teacher": config.Teacher(name="{}/model")},
    "teacher.names": {"teacher": config.Teacher(names=["outside/model", "{}/model"])},
    "student.name": {"student": config.Student(name="{}/model")},
    "student.tokenizer": {"student": config.Student(tokenizer="{}/model")},
    "corpus.path": {"corpus": config.Corpus(path="{}")},
    "transfer.masked_lm": {"transfer": config.Transfer(masked_lm="{}/model")},
    "transfer.files": {"transfer": config.Transfer(files=["{}/*.csv"])},
    "tasks.train": {"tasks": config.Tasks(train="{}/rows.csv")},
    "tasks.validation.may": {"tasks": config.Tasks(train="x", validation={"may": "{}/rows.csv"})},
    "tasks.each.a.test": {"tasks": config.Tasks(each={"a": config.Task(train="x", test="{}/rows.csv")})},
}


@cache
def composed() -> config.Config:
    return config.load_config(["recipe=task", "tasks.train=x"])


def settings(key: str, folder: str) -> config.Config:
    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{}", folder)
        if isinstance(value, list):
            return [filled(each) for each in value]
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        if hasattr(value, "__dict__"):
            return type(value)(**{name: filled(each) for name, each in vars(value).items()})
        return value

    loaded = deepcopy(composed())
    for name, value in GIVEN[key].items():
        setattr(loaded, name, filled(value))
    return loaded


@pytest.mark.parametrize("key", GIVEN)
@pytest.mark.parametrize("spelling", ["my run", "./outside/../my run", "linked", "file://my%20run"])
def test_inputs_in_the_run_folder_are_refused(key: str, spelling: str) -> None:
    (problem,) = place(settings(key, spelling), Path("my run"))
    assert problem.startswith(f"{key}: got ")
    assert problem.endswith("""; set 'output="my run-run"'""")
    assert not list(place(settings(key, spelling), Path("my")))


@pytest.mark.parametrize("key", GIVEN)
def test_inputs_elsewhere_are_accepted(key: str) -> None:
    assert not list(place(settings(key, "outside"), Path("my run")))


def test_task_files_are_relative_to_their_folder() -> None:
    tasks = config.Tasks(path="my run", each={"a": config.Task(train="rows.csv")})
    loaded = deepcopy(composed())
    loaded.tasks = tasks
    assert {line.partition(":")[0] for line in place(loaded, Path("my run"))} == {"tasks.path", "tasks.each.a.train"}
    loaded.tasks.path = "outside"
    assert not list(place(loaded, Path("my run")))
