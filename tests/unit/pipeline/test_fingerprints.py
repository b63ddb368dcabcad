"""Fingerprints: another for every part of a model, or of a task's rows, that outputs depend on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from distill.data.task import Task
from distill.data.task_types import SECONDS, TASK_TYPES, WORDS
from distill.data.tasks import TaskData
from distill.models.families import vectors
from distill.pipeline.context.fingerprints import model_files, of_inputs, of_models, of_tasks
from tests import tiny


def of(folder: Path) -> str:
    return of_models([str(folder)])


def edited(file: Path) -> None:
    """Another content of the same size, with the same time of change."""
    content, times = bytearray(file.read_bytes()), file.stat()
    content[-2] ^= 1
    with file.open("r+b") as opened:
        opened.write(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def read_by_nobody(file: Path) -> bool:
    return file.name == "README.md" or file.name.startswith(".")


@pytest.mark.slow  # importing sentence-transformers takes seconds
def test_every_file_that_sentence_transformers_writes_is_part_of_a_fingerprint(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    encoder = Transformer(str(tiny.save(tmp_path / "encoder", "bert", "")))
    modules = [encoder, Pooling(16, pooling_mode="mean"), Dense(16, 8), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "whole"))
    check_every_file(tmp_path / "whole")


def check_every_file(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and not read_by_nobody(file)]
    assert {"config.json", "model.safetensors"} <= {file.name for file in files if file.parent != folder}
    before = of(folder)
    for file in files:
        edited(file)
        assert of(folder) != before, file
        edited(file)
        assert of(folder) == before
    (folder / "README.md").write_text("another card")
    assert of(folder) == before


@pytest.mark.parametrize(("pooling", "dense"), [("1_Pooling", "2_Dense"), ("pool", "after/linear"), ("p", "1_Dense")])
def test_modules_are_found_wherever_the_list_of_modules_says(pooling: str, dense: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "embedder", "bert", "")
    vectors.write(folder, vectors.Vectors(width=8), 16, {})
    shutil.copy(folder / "model.safetensors", folder / "2_Dense")
    for old, new in (("1_Pooling", pooling), ("2_Dense", dense)):
        (folder / new).parent.mkdir(exist_ok=True)
        (folder / old).rename(folder / new)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"], modules[2]["path"] = pooling, dense
    (folder / "modules.json").write_text(json.dumps(modules))
    check_every_file(folder)


def test_parts_of_weights_are_found_wherever_the_index_says(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "")
    tiny.model("bert", "").save_pretrained(folder / "parts", max_shard_size="4KB")
    (index,) = (folder / "parts").glob("*.index.json")
    content = json.loads(index.read_text())
    content["weight_map"] = {name: f"parts/{file}" for name, file in content["weight_map"].items()}
    (folder / index.name).write_text(json.dumps(content))
    (folder / "model.safetensors").unlink()
    index.unlink()
    shards = sorted((folder / "parts").glob("*.safetensors"))
    assert len(shards) > 2
    for shard in shards:
        before = of(folder)
        edited(shard)
        assert of(folder) != before


@pytest.mark.parametrize("added", ["checkpoint-2/model.safetensors", "optimizer.pt", ".cache/x.json", "run/x.json"])
def test_what_stands_beside_a_model_does_not_change_it(added: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "")
    before = of(folder)
    (folder / added).parent.mkdir(exist_ok=True)
    (folder / added).write_text("{}")
    assert of(folder) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", '[{"path": "/"}, {"path": ".."}, {"path": "../beside"}, {}, 1]'),
        ("modules.json", '{"path": "1"}'),
        ("modules.json", "["),
        ("model.safetensors.index.json", "[" * 10_000),
        ("model.safetensors.index.json", '{"weight_map": ["a"]}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": "missing", "b": 3}}'),
    ],
)
def test_of_damaged_lists_only_the_files_in_the_folder_are_read(name: str, content: str, tmp_path: Path) -> None:
    for file in (tmp_path / "model" / "config.json", tmp_path / "beside" / "config.json", tmp_path / "config.json"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    (tmp_path / "model" / name).write_text(content)
    assert {file.name for file in model_files(tmp_path / "model")} == {"config.json", name}
    assert len(model_files(tmp_path / "model")) == 2


def data(**changes: Any) -> TaskData:
    """A task whose rows are texts in words with second texts: each kind reads a part of this."""
    rows = changes.pop("rows", {}) | {}
    columns = {"text": ["a b", "c"], WORDS: [[0, 1, 2, 3], [0, 1]], SECONDS: [["x"], ["y"]], "label": [0, 1]} | rows
    task = Task("own", TASK_TYPES["classification"], ("text",), ("a", "b"), ("accuracy",))
    train = Dataset.from_dict(columns)
    return TaskData(replace(task, **changes), train, {}, {"validation": train})


CHANGES: list[dict[str, Any]] = [
    {"labels": ("b", "a")},
    {"labels": ("a", "b", "c")},
    {"kind": TASK_TYPES["multi_label"]},
    {"prompts": ("query: ", "")},
    {"prompts": ("", "query: ")},
    {"choices": ("c1", "c2")},
    {"rows": {"text": ["a  b", "c"]}},
    {"rows": {"text": ["c", "a b"]}},
    {"rows": {WORDS: [[0, 3], [0, 1]]}},
    {"rows": {SECONDS: [["x"], ["z"]]}},
    {"rows": {SECONDS: [["x", "y"], []]}},
]


@pytest.mark.parametrize("function", [of_inputs, lambda data: of_tasks({"own": data})], ids=["of_inputs", "of_tasks"])
def test_tasks_that_differ_in_one_part_have_different_fingerprints(function: Callable[[TaskData], str]) -> None:
    found = [function(data(**change)) for change in [{}, *CHANGES]]
    assert len({*found}) == len(found)
    assert function(data()) == found[0]


def test_choices_depend_on_the_tasks_of_the_headline_and_outputs_do_not() -> None:
    assert of_inputs(data(in_headline=False)) == of_inputs(data())
    assert of_tasks({"own": data(in_headline=False)}) != of_tasks({"own": data()})


def test_a_teachers_outputs_do_not_depend_on_labels_of_rows() -> None:
    assert of_inputs(data(rows={"label": [1, 1]})) == of_inputs(data())
    assert of_tasks({"own": data(rows={"label": [1, 1]})}) != of_tasks({"own": data()})


def test_the_range_of_numbers_is_part_of_a_task() -> None:
    assert len({of_tasks({"own": data(range=range_)}) for range_ in (None, (0.0, 1.0), (0.0, 5.0))}) == 3
