"""What an upload takes from a run folder, and the names of repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill import config
from distill.config.plan import resolve
from distill.deploy.export.push import Repository, _changes, exported
from distill.errors import UserError


def test_every_model_has_a_repository_of_its_own() -> None:
    plan = resolve(config.load_config(["recipe=task", "tasks.train=rows.csv"]))
    tasks = ["a_b", "a-b", "a.b", "A--B", "текст", "слово"]
    names = exported(plan, tasks)
    assert [folder.rpartition("/")[2] for folder in names.values()] == tasks
    assert len({name.casefold() for name in names}) == len(tasks)
    assert next(iter(names)) == "a-b"


@pytest.mark.parametrize("name", ["tokenizer.json", "more"])
def test_a_link_in_an_exported_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder, secret = tmp_path / "export", tmp_path / "secret"
    secret.mkdir()
    (secret / "id").write_text("of this machine")
    (folder / "onnx").mkdir(parents=True)
    for file in ("config.json", "onnx/model.onnx"):
        (folder / file).write_text("ours")
    assert sorted(_changes(Repository(), folder)[0]) == ["config.json", "onnx/model.onnx"]
    (folder / name).symlink_to(secret if name == "more" else secret / "id")
    with pytest.raises(UserError, match=f"{name}: got a link; must be a file of the export"):
        _changes(Repository(), folder)
