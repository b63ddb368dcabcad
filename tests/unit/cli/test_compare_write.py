"""Where comparisons are written: each to a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distill.cli.compare import write as module
from distill.errors import ConfigError

NAME = Path("outputs", "compare", "teacher-vs-tickets")


@pytest.fixture(autouse=True)
def _plain_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.page, "blocks", lambda comparison: [])
    monkeypatch.setattr(module.page, "title", lambda comparison: "A page")
    monkeypatch.chdir(tmp_path)


def write(comparison: dict[str, Any], folder: Path | None = None, **options: Any) -> dict[str, Path]:
    """As the command does, which has the label as an option."""
    a, b = (model["folder"] for model in comparison["models"].values())
    own = module.told_apart(a, b, comparison["file"], {"label": comparison["label"]})
    return module.write(comparison, folder, own, **options)


def comparison(a: str = "teacher", b: str = "one/tickets", file: str = "may.csv", **others: Any) -> dict[str, Any]:
    models = {
        key: {"name": Path(folder).name, "folder": folder, "backend": "torch", "scheme": "fp32"}
        for key, folder in (("a", a), ("b", b))
    }
    return {"models": models, "file": file, "columns": ["body"], "label": ["queue"]} | others


def test_every_comparison_has_a_folder_of_its_own_and_replaces_itself_alone() -> None:
    every = [
        comparison(),
        comparison(b="two/tickets"),
        comparison(file="june.csv"),
        comparison(label=["mood"]),
        comparison(a="other/teacher"),
    ]
    folders = [write(each)["results"].parent for each in every]
    assert folders == [NAME, *(NAME.with_name(f"{NAME.name}-{number}") for number in range(2, 6))]
    for each, folder in zip(every, folders, strict=True):
        assert write(each | {"rows": 3})["results"].parent == folder
        assert json.loads((folder / "compare.json").read_text()) == each | {"rows": 3}
    relative = comparison(
        a="./teacher", b=str(Path("one/tickets").resolve()), file="../" + Path.cwd().name + "/may.csv"
    )
    assert write(relative)["results"].parent == NAME


@pytest.mark.parametrize("kind", ["a changed page", "a file of the user", "a file in the way"])
def test_files_of_others_are_kept(kind: str) -> None:
    if kind == "a changed page":
        (write(comparison())["page"]).write_text("mine")
    elif kind == "a file in the way":
        NAME.parent.mkdir(parents=True)
        NAME.write_text("mine")
    else:
        NAME.mkdir(parents=True)
        (NAME / "compare.html").write_text("mine")
    before = {path: path.read_bytes() for path in Path("outputs").rglob("*") if path.is_file()}
    assert write(comparison())["page"].parent.name == "teacher-vs-tickets-2"
    assert {path: path.read_bytes() for path in before} == before


def test_a_chosen_folder_is_not_taken_from_another_comparison() -> None:
    chosen = Path("mine")
    write(comparison(), chosen)
    write(comparison(), chosen)
    with pytest.raises(ConfigError, match=r"--output: got mine, .*; set --output mine-2$"):
        write(comparison(file="june.csv"), chosen)
    assert json.loads((chosen / "compare.json").read_text())["file"] == "may.csv"
    write(comparison(file="june.csv"), chosen, overwrite=True)
    assert json.loads((chosen / "compare.json").read_text())["file"] == "june.csv"


def test_what_tells_comparisons_apart_is_known_before_they_are_made() -> None:
    own = module.told_apart("teacher", "student", "rows.csv", {"label": None})
    assert own == module.told_apart(Path("./teacher"), "student/", "./rows.csv", {"label": None})
    others = [("x", "student", "rows.csv", None), ("teacher", "x", "rows.csv", None), ("teacher", "student", "x", None)]
    others.append(("teacher", "student", "rows.csv", ["mood"]))  # type: ignore[arg-type]
    assert own not in {module.told_apart(a, b, file, {"label": label}) for a, b, file, label in others}
    module.check(Path("new"), own, "rows.csv")
    module.write(comparison(), Path("new"), own)
    module.check(Path("new"), own, "rows.csv")
    with pytest.raises(ConfigError, match="another"):
        module.check(Path("new"), "another", "rows.csv")


@pytest.mark.parametrize("file", ["mine/compare.json", "../{here}/mine/compare.json", "mine/*.json", "**/compare.json"])
def test_the_rows_are_never_replaced(file: str) -> None:
    own, folder = module.told_apart("teacher", "student", file, {}), Path("mine")
    folder.mkdir()
    (folder / "compare.json").write_text('{"body": "a text"}')
    with pytest.raises(ConfigError, match=r"^--output: got mine, whose compare\.json the command reads; must be"):
        module.check(folder, own, file.format(here=Path.cwd().name), overwrite=True)
    module.check(folder, own, "mine/rows.json", overwrite=True)


def test_long_names_of_models_give_a_folder_that_can_be_made() -> None:
    folder = write(comparison(a="é" * 120, b="s" * 250))["results"].parent
    assert folder.name == f"{'é' * 55}-vs-{'s' * 110}"
    assert write(comparison(a="é" * 120, b="s" * 251))["results"].parent.name == f"{folder.name}-2"
