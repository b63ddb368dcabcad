"""What an upload takes from a run folder, and the names of repositories."""

from __future__ import annotations

from pathlib import Path

from distill import config
from distill.export.push import Repository, _changes, exported
from distill.plan import resolve


def test_every_model_has_a_repository_of_its_own() -> None:
    plan = resolve(config.load_config(["recipe=task", "tasks.train=rows.csv"]))
    tasks = ["a_b", "a-b", "a.b", "A--B", "текст", "слово"]
    names = exported(plan, tasks)
    assert [folder.rpartition("/")[2] for folder in names.values()] == tasks
    assert len({name.casefold() for name in names}) == len(tasks)
    assert next(iter(names)) == "a-b"


def test_a_link_in_an_exported_folder_is_not_uploaded(tmp_path: Path) -> None:
    folder, secret = tmp_path / "export", tmp_path / "secret"
    secret.mkdir()
    (secret / "id").write_text("of this machine")
    (folder / "onnx").mkdir(parents=True)
    for name in ("config.json", "onnx/model.onnx"):
        (folder / name).write_text("ours")
    (folder / "tokenizer.json").symlink_to(secret / "id")
    (folder / "more").symlink_to(secret, target_is_directory=True)
    files, outdated = _changes(Repository("me/student"), folder)
    assert sorted(files) == ["config.json", "onnx/model.onnx"]
    assert outdated == []
