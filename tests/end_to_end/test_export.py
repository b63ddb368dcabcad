"""What is exported is whole or not there, is put on a hub, and read from it again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from distill import check, config, explain, teacher
from distill.errors import ConfigError, UserError
from distill.export.proof import plain_logits
from distill.export.push import exported, repositories
from distill.plan import unrolled

RUN = (
    "tasks=docstrings", "limit=smoke", "limit.steps=2",
    "tasks.names=[order,overlap]", "pipeline=[finetune_teacher,finetune,export]",
    "stages.export.quantized=null", "stages.export.evaluated=null", "output=run",
)  # fmt: skip


# What huggingface_hub does with a small file.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def cwd(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run has exported, and pushed nothing."""
    folder = tmp_path_factory.mktemp("push")
    run(folder, "task", *RUN)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_each_task_gets_its_repository(hub: Any, run: Any, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported = cwd / "run" / "export"
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}
    run(cwd, "task", *RUN, "push=me/student")
    assert f"{hub.url}/me/student-order" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in exported.rglob("*")}, "made again"
    assert hub.repositories == {f"me/student-{task}": content(exported / task) for task in ("order", "overlap")}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= hub.repositories[
        "me/student-order"
    ].keys()
    texts = [["some text", "and more"], ["this", "that"]]
    there = Path(teacher.fetch("me/student-order", "teacher.name"))
    assert there != exported / "order"
    assert (plain_logits(there, texts) == plain_logits(exported / "order", texts)).all()


def test_a_full_disk_leaves_nothing_that_looks_whole(run: Any, cwd: Path, small_disk: Any) -> None:
    folder = cwd / "run" / "export"
    whole = content(folder / "order")
    size = len(whole["model.safetensors"])
    shutil.rmtree(folder)
    with small_disk(size - 1), pytest.raises(OSError, match="File too large") as caught:
        run(cwd, "task", *RUN)
    (message,) = explain.messages(caught.value, []) or []
    assert message.endswith("got File too large; must be writable; mend it, then run the same command")
    assert not folder.exists() or not list(folder.iterdir())
    run(cwd, "task", *RUN)
    assert content(folder / "order") == whole


def test_a_repository_becomes_what_is_exported(hub: Any, run: Any, cwd: Path) -> None:
    exported = cwd / "run" / "export"
    hub.repositories["me/student-order"] = {"onnx/model.onnx": b"an earlier one", ".gitattributes": b"*"}
    run(cwd, "task", *RUN, "push=me/student")
    assert hub.repositories["me/student-order"] == content(exported / "order") | {".gitattributes": b"*"}
    run(cwd, "task", *RUN, "push=me/student")
    assert hub.commits == {"me/student-order": 1, "me/student-overlap": 1}, "nothing is sent twice"


def test_what_can_be_read_need_not_be_written(
    hub: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories = {"me/student-order": {"config.json": b"{}"}, "me/student-overlap": {}}
    monkeypatch.setenv("HF_TOKEN", "hf_that_reads")
    with pytest.raises(ConfigError, match=r"push: got me/student-order; .*403"):
        run(tmp_path, "task", *RUN, "push=me/student")
    assert not (tmp_path / "run" / "finetune_teacher").exists()


def test_what_may_not_be_written_to_is_found_first(
    hub: Any, run: Any, cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_another")
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, "task", *RUN, "push=me/student")
    (message,) = caught.value.messages
    assert message.startswith("push: got me/student-order; must be a repository")
    assert "401" in message
    assert "hf auth login" in message
    assert not (tmp_path / "run" / "finetune_teacher").exists()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="offline mode is enabled"):
        run(tmp_path, "task", *RUN, "push=me/student")


def test_an_upload_that_fails_loses_nothing(hub: Any, run: Any, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.broken = True
    with pytest.raises(UserError, match=r"No room left.*run the same command again"):
        run(cwd, "task", *RUN, "push=me/student")
    hub.broken = False
    run(cwd, "task", *RUN, "push=me/student")
    assert capsys.readouterr().out.count("export: finished earlier, skipped") == 2
    assert hub.commits == {"me/student-order": 1, "me/student-overlap": 1}


def test_a_teacher_that_was_cached_without_its_card_is_read_offline(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["me/teacher"] = {"config.json": b"{}", "README.md": b"# A card"}
    first = teacher.fetch("me/teacher", "teacher.name", files=("*.json",))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert teacher.fetch("me/teacher", "teacher.name") == first
    assert not (Path(first) / "README.md").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["recipe=distilbert"], {"a": "export/a", "b": "export/b"}),
        (
            ["recipe=embedder"],
            {"a": "export/a", "b": "export/b", "embedder": "export_embedder/embedder"},
        ),
        (
            ["recipe=prune", "target.speedup=[1.5,2]"],
            {"1.5x-a": "export/1.5x/a", "1.5x-b": "export/1.5x/b", "2x-a": "export/2x/a", "2x-b": "export/2x/b"},
        ),
    ],
    ids=str,
)
def test_names_of_repositories(settings: list[str], expected: dict[str, str]) -> None:
    found = exported(unrolled(config.load_config(settings)), ["a", "b"])
    assert found == expected
    assert repositories("me/student", found) == {f"me/student-{name}": folder for name, folder in expected.items()}
    assert repositories("me/student", {"a": "export/a"}) == {"me/student": "export/a"}


def test_a_pipeline_that_exports_nothing() -> None:
    settings = config.load_config(["recipe=distilbert", "pipeline=[adapt]", "push=me/student"])
    (message,) = check.settings(settings, "distilbert")
    assert message.startswith("push: got me/student; must be null in a pipeline without an export stage")
