"""Exported folders are complete or absent, are uploaded to a hub, and load from there."""

from __future__ import annotations

import copy
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

import distill
from distill import config
from distill.config.plan import resolve
from distill.deploy.export import record
from distill.deploy.export.proof import plain_logits
from distill.deploy.export.push import MARKER, create, exported, preview, repositories, upload
from distill.errors import ConfigError, UserError
from distill.models import teacher
from distill.pipeline.validation import hydra_errors
from distill.runtime.storage import run_folder
from tests.small import content

RUN = (
    "tasks=docstrings", "limit=smoke", "limit.steps=2",
    "tasks.names=[order,overlap]", "pipeline=[finetune_teacher,finetune,export]",
    "stages.export.quantized=null", "stages.export.evaluated=null", "output=run",
)  # fmt: skip


GIT = b"*.safetensors filter=lfs\n"
"""The file that the hub puts into a new repository."""

# What huggingface_hub does with a small file.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def cwd(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has exported its models but not uploaded them."""
    folder = tmp_path_factory.mktemp("push")
    run(folder, "task", *RUN)
    return folder


def pushed(folder: Path) -> dict[str, bytes]:
    """Expected content of the repository that a folder was uploaded to."""
    names = sorted(content(folder))
    marker = {"made_by": "distill", "files": names}
    return content(folder) | {MARKER: json.dumps(marker, indent=2).encode() + b"\n", ".gitattributes": GIT}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small folder in place of an exported one."""
    for name in ("config.json", "model.safetensors", "onnx/model.onnx"):
        file = tmp_path / "folder" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "folder"


@pytest.mark.slow
def test_each_task_gets_its_repository(hub: Any, run: Any, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported = cwd / "run" / "export"
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}
    run(cwd, "task", *RUN, "push=me/student")
    assert f"{hub.url}/me/student-order" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in exported.rglob("*")}, "exported again"
    assert hub.repositories == {f"me/student-{task}": pushed(exported / task) for task in ("order", "overlap")}
    assert hub.private == {"me/student-order", "me/student-overlap"}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= hub.repositories[
        "me/student-order"
    ].keys()
    texts = [["some text", "and more"], ["this", "that"]]
    there = Path(teacher.fetch("me/student-order", "teacher.name"))
    assert there != exported / "order"
    assert (plain_logits(there, texts) == plain_logits(exported / "order", texts)).all()


@pytest.mark.parametrize(("task", "kind"), [("order", "classification"), ("overlap", "regression")])
def test_the_exported_folder_is_loaded_to_predict(cwd: Path, task: str, kind: str) -> None:
    folder, texts = cwd / "run" / "export" / task, [("some text", "and more"), ("this", "that"), ("a kettle", "sings")]
    described = record.read(folder)
    assert described is not None
    assert (described.task, described.kind.name, len(described.columns)) == (task, kind, 2)
    agreement = 1.0 if kind == "classification" else None
    assert described.artifacts == (record.Entry("torch", "fp32", ".", agreement=agreement),)
    model = distill.load(folder)
    expected = plain_logits(folder, [list(pair) for pair in texts], described.max_length)
    assert np.abs(model.outputs(texts) - expected).max() <= 1e-5
    scores = [prediction["score"] for prediction in model.predict(texts)]
    assert len(scores) == 3
    if kind == "regression":
        assert np.abs(np.asarray(scores) - expected[:, 0]).max() <= 1e-5
    with pytest.raises(ConfigError, match=r"with several exported folders; .*export/order or .*export/overlap$"):
        distill.load(cwd / "run" / "export")


@pytest.mark.slow
def test_a_full_disk_leaves_no_exported_folder(run: Any, cwd: Path, small_disk: Any) -> None:
    folder = cwd / "run" / "export"
    whole = content(folder / "order")
    size = len(whole["model.safetensors"])
    shutil.rmtree(folder)
    with small_disk(size - 1), pytest.raises(OSError, match="File too large") as caught:
        run(cwd, "task", *RUN)
    (message,) = hydra_errors.messages(caught.value, []) or []
    assert "got File too large after " in message
    assert "must be allowed to be so large; raise the limit (ulimit -f), or use another disk, then run" in message
    assert not folder.exists() or not list(folder.iterdir())
    run(cwd, "task", *RUN)
    assert content(folder / "order") == whole


def test_an_upload_replaces_only_files_of_an_earlier_one(hub: Any, folder: Path) -> None:
    assert create(["me/student"]) == {"me/student": "private"}
    assert upload({"me/student": folder}, "first") == {"on the hub (me/student, private)": f"{hub.url}/me/student"}
    assert hub.repositories["me/student"] == pushed(folder)
    upload({"me/student": folder}, "again")
    assert hub.commits == {"me/student": 1}, "equal files are sent twice"
    (folder / "onnx" / "model.onnx").unlink()
    (folder / "model.safetensors").write_text("another")
    (folder / "new.txt").write_text("new")
    create(["me/student"])
    upload({"me/student": folder}, "second")
    assert hub.repositories["me/student"] == pushed(folder)
    assert hub.commits == {"me/student": 2}


def test_a_dry_run_names_what_an_upload_would_do_and_changes_nothing(
    hub: Any, run: Any, cwd: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(cwd, "task", *RUN, "push=me/student", "push_dry_run=true")
    lines = capsys.readouterr().out.splitlines()
    assert "push_dry_run: me/student-order: it would be created, private" in lines
    size = (cwd / "run" / "export" / "order" / "model.safetensors").stat().st_size
    assert f"  upload model.safetensors, {size:,} bytes" in lines
    assert hub.repositories == {}
    create(["me/student"])
    upload({"me/student": folder}, "first")
    before = copy.deepcopy(hub.repositories)
    (folder / "onnx" / "model.onnx").unlink()
    (folder / "new.txt").write_text("new")
    shown = list(preview({"me/student": folder}))
    assert hub.repositories == before
    upload({"me/student": folder}, "second")
    now = hub.repositories["me/student"]
    assert shown[0] == "push_dry_run: me/student: it is private"
    uploads = {line.split(",")[0].removeprefix("  upload ") for line in shown if line.startswith("  upload")}
    assert uploads | {".gitattributes"} == now.keys()
    deletes = {line.removeprefix("  delete ") for line in shown if line.startswith("  delete")}
    assert deletes == before["me/student"].keys() - now.keys() == {"onnx/model.onnx"}
    hub.repositories["me/other"] = {"README.md": b"mine"}
    with pytest.raises(UserError, match=r"me/other, which contains README\.md; must be new, empty"):
        list(preview({"me/other": folder}))


OTHERS: list[dict[str, bytes]] = [
    {"README.md": b"mine"},
    {"config.json": b"{}", "model.safetensors": b"mine"},
    {MARKER: b'{"made_by": "distill", "files": ["config.json"]}', "config.json": b"{}", "notes/mine.txt": b"mine"},
    {MARKER: b"mine"},
    {MARKER: b"[1]"},
    {MARKER: b'{"files": ["config.json"]}', "config.json": b"{}"},
]


@pytest.mark.parametrize("files", OTHERS, ids=lambda files: "-".join(files))
def test_repositories_with_other_files_are_refused_and_unchanged(
    files: dict[str, bytes], hub: Any, folder: Path
) -> None:
    hub.repositories["me/mistyped"] = {".gitattributes": GIT, **files}
    line = (
        r"^push: got me/mistyped, which contains .*; must be new, empty, or contain only files that distill uploaded; "
    )
    with pytest.raises(ConfigError, match=line) as early:
        create(["me/new", "me/mistyped"])
    with pytest.raises(UserError, match=line) as late:
        upload({"me/mistyped": folder}, "first")
    assert early.value.messages == late.value.messages
    assert max(files) in early.value.messages[0]
    assert hub.repositories == {"me/mistyped": {".gitattributes": GIT, **files}}


def test_an_error_names_every_repository_and_some_of_the_files(hub: Any) -> None:
    hub.repositories = {"me/a": {name: b"" for name in "edcba"}, "me/b": {"x": b""}, "me/c": {".gitattributes": GIT}}
    with pytest.raises(ConfigError) as refused:
        create(["me/a", "me/b", "me/c"])
    first, second = refused.value.messages
    assert first.startswith("push: got me/a, which contains a, b, c and 2 more; must be")
    assert second.startswith("push: got me/b, which contains x; must be")


def test_repositories_with_other_files_are_refused_before_training(hub: Any, run: Any, tmp_path: Path) -> None:
    hub.repositories["me/student-order"] = {"config.json": b"{}"}
    with pytest.raises(ConfigError, match=r"which contains config\.json"):
        run(tmp_path, "task", *RUN, "push=me/student")
    assert not (tmp_path / "run" / "finetune_teacher").exists()
    assert hub.repositories == {"me/student-order": {"config.json": b"{}"}}


def test_a_repository_that_changes_during_the_upload_is_not_changed(
    hub: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(["me/student"])
    preupload = hub.preupload

    def changed(name: str, asked: dict[str, Any]) -> Any:
        hub.repositories[name]["mine.txt"] = b"mine"
        return preupload(name, asked)

    monkeypatch.setattr(hub, "preupload", changed)
    with pytest.raises(UserError, match=r"412.*run the same command again"):
        upload({"me/student": folder}, "first")
    assert hub.repositories["me/student"] == {".gitattributes": GIT, "mine.txt": b"mine"}


def test_a_repository_is_private_unless_asked_and_keeps_its_visibility(hub: Any, folder: Path) -> None:
    assert create(["me/open"], private=False) == {"me/open": "public"}
    assert hub.private == set()
    assert create(["me/open", "me/closed"]) == {"me/open": "public", "me/closed": "private"}
    assert create(["me/closed"], private=False) == {"me/closed": "private"}
    assert hub.private == {"me/closed"}
    assert [*upload({"me/open": folder, "me/closed": folder}, "first")] == [
        "on the hub (me/open, public)",
        "on the hub (me/closed, private)",
    ]


def test_visibility_does_not_change_the_run_folder() -> None:
    settings = ["seed=1", "push=me/student", "push_private=false"]
    assert run_folder.run_folder("task", settings, None) == run_folder.run_folder("task", ["seed=1"], None)
    assert config.load_config(["recipe=task"]).push_private is True
    assert config.load_config(["recipe=task", *settings]).push_private is False


def test_a_token_without_write_access_an_invalid_one_and_offline_mode_are_refused(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["me/student"] = {}
    monkeypatch.setenv("HF_TOKEN", "hf_that_reads")
    with pytest.raises(ConfigError, match=r"push: got me/student; .*403"):
        create(["me/student"])
    with pytest.raises(ConfigError, match=r"^push: got me/new; must be a repository.*401.*hf auth login"):
        create(["me/new"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="offline mode is enabled"):
        create(["me/student"])


def test_a_failed_upload_can_be_repeated(hub: Any, run: Any, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.broken = True
    with pytest.raises(UserError, match=r"No room left.*run the same command again"):
        run(cwd, "task", *RUN, "push=me/student")
    hub.broken = False
    run(cwd, "task", *RUN, "push=me/student")
    assert capsys.readouterr().out.count("export: finished earlier, skipped") == 2
    assert hub.commits == {"me/student-order": 1, "me/student-overlap": 1}


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_upload_that_is_cut_off_changes_nothing_or_all_and_can_be_repeated(
    when: str, hub: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between tries of huggingface_hub
    create(["me/student"])
    upload({"me/student": folder}, "first")
    first = pushed(folder)
    (folder / "onnx" / "model.onnx").unlink()
    (folder / "model.safetensors").write_text("another")
    (folder / "new.txt").write_text("new")
    cut, found, error = 0, list[str](), True
    while error:
        cut, error = cut + 1, False
        hub.repositories["me/student"], hub.requests, hub.cut = dict(first), 0, (cut, when)
        try:
            upload({"me/student": folder}, "second")
        except UserError:
            error = True
            found.append("new" if hub.repositories["me/student"] == pushed(folder) else "old")
            if found[-1] == "old":
                assert hub.repositories["me/student"] == first
        hub.cut = None
        upload({"me/student": folder}, "second")
        assert hub.repositories["me/student"] == pushed(folder)
    assert found.count("old") >= 5, found
    assert ("new" in found) == (when == "after"), found


def test_a_teacher_that_was_cached_without_its_card_is_loaded_offline(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["me/teacher"] = {"config.json": b"{}", "README.md": b"# A card"}
    first = teacher.fetch("me/teacher", "teacher.name", files=("*.json",))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert teacher.fetch("me/teacher", "teacher.name") == first
    assert not (Path(first) / "README.md").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["recipe=distilbert"], {"a": "export/a", "b": "export/b"}),
        (["recipe=embedder"], {"a": "export/a", "b": "export/b", "embedder": "export_embedder/embedder"}),
        (
            ["recipe=prune", "target.speedup=[1.5,2]"],
            {"1.5x-a": "export/1.5x/a", "1.5x-b": "export/1.5x/b", "2x-a": "export/2x/a", "2x-b": "export/2x/b"},
        ),
    ],
    ids=str,
)
def test_names_of_repositories(settings: list[str], expected: dict[str, str]) -> None:
    folders = exported(resolve(config.load_config(settings)), ["a", "b"])
    assert folders == expected
    assert repositories("me/student", folders) == {f"me/student-{name}": folder for name, folder in expected.items()}
    assert repositories("me/student", {"a": "export/a"}) == {"me/student": "export/a"}
