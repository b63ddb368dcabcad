"""Names of tasks and stages: never those of a run's own files and folders, nor one folder for two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill import config
from distill.config import names
from distill.config.plan import EMBEDDER, SHARED_HEADS
from distill.config.schemes import SCHEMES
from distill.data.task import own_name, renamed
from distill.pipeline import validation
from distill.pipeline.context.folder import CORPUS, MEASURED, TEACHER_LOGITS, TRANSFER
from distill.pipeline.train_steps.prepare import FOLDS
from distill.pipeline.validation.tasks import tasks
from distill.runtime.storage import atomic
from distill.runtime.storage.run_folder import BEST, STATE

WRONG = [
    *(f"sales{ending}" for ending in (STATE, TEACHER_LOGITS, MEASURED, FOLDS, ".TARGETS", ".json", ".lock", ".npz")),
    *(CORPUS, TRANSFER, BEST, EMBEDDER, SHARED_HEADS, "Export", "report", "manifest.json", "README.md"),
    *(str(scheme.file).partition("/")[0] for scheme in SCHEMES.values()),
    *("CON", "nul", "Aux.txt", "com1.csv", "LPT9"),
    *(".hidden", "..", ".", "", "tickets.", "a/b", "a\\b", "a b", "a\nb", "-a", "x" * 201, "é" * 101, "a\udcff"),
]
RIGHT = ["tickets", "sales.eu", "v1.5", "A", "текст", "1", "reports", "exported.2024", "nullable", "com", "targets"]


@pytest.mark.parametrize("name", WRONG)
def test_names_of_a_runs_own_files_are_refused_and_mended(name: str) -> None:
    assert not names.is_valid(name)
    assert names.is_valid(names.mended(name))
    (problem,) = map(str, tasks(config.Tasks(train="rows.csv", name=name)))
    assert problem.startswith("tasks.name: got ")
    (problem,) = map(str, tasks(config.Tasks(each={name: config.Task(train="rows.csv")})))
    assert problem.startswith(f"tasks.each.{name}: got ")


@pytest.mark.parametrize("name", RIGHT)
def test_other_names_stay(name: str) -> None:
    assert names.is_valid(name)
    assert names.mended(name) == name
    assert not list(tasks(config.Tasks(train="rows.csv", name=name)))


@pytest.mark.parametrize("pair", [("A", "a"), ("Straße", "STRASSE"), ("é", "e\u0301"), ("İ", "i\u0307")])
def test_two_tasks_never_share_a_folder(pair: tuple[str, str]) -> None:
    each = {name: config.Task(train="rows.csv") for name in pair}
    problems = [line for line in map(str, tasks(config.Tasks(each=each))) if "beside" in line]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("train", "hub", "expected"),
    [
        ("data/tickets.csv", None, "tickets"),
        ("data/my tickets.csv", None, "my_tickets"),
        ("report.csv", None, "task_report"),
        ("NUL.csv", None, "task_NUL"),
        ("best/train.csv", None, "task_best"),
        ("x" * 240 + ".csv", None, "x" * 195),
        (None, "owner/sales.targets", "sales_targets"),
        (None, "owner/shared", "task_shared"),
    ],
)
def test_names_of_files_are_mended_and_what_changes_is_said(train: str | None, hub: str | None, expected: str) -> None:
    settings = config.Tasks(train=train, hub=hub)
    assert own_name(settings) == expected
    assert not [line for line in map(str, tasks(settings)) if "name" in line]
    line = renamed(settings)
    assert line is None if expected in ("tickets", "my_tickets") else line is not None and line.startswith(expected)


@pytest.mark.parametrize("stage", ["Distill", "aux", "y" * 201])
def test_stages_have_folders_of_their_own(stage: str) -> None:
    settings = config.load_config(["recipe=task", "tasks.train=rows.csv"])
    settings.stages[stage] = settings.stages["finetune"]
    settings.stages["distill"] = settings.stages["finetune"]
    assert any(
        f"stages.{name}: got" in line for line in validation.settings(settings, "task") for name in (stage, "distill")
    )


def test_a_folder_of_targets_deep_in_a_model_is_no_runs(tmp_path: Path) -> None:
    from distill.pipeline.context.folder import RunFolder
    from distill.runtime.storage import run_folder

    run_folder.claim(tmp_path)
    kept = ["export/4x/sales.targets/model.safetensors", "finetune/a/deep.targets/x"]
    gone = ["teacher.targets/a/x", "finetune/4x.targets/x"]
    for name in (*kept, *gone):
        atomic.write_text(tmp_path / name, "x")
    RunFolder(tmp_path).forget_given()
    assert [(tmp_path / name).is_file() for name in (*kept, *gone)] == [True, True, False, False]
