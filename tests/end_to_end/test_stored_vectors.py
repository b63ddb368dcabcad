"""Whole runs whose teacher is a column of vectors: of an API, or of a model that is not at hand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distill.deploy.export.reload import vectors as elsewhere
from distill.errors import UserError
from distill.runtime.storage import atomic, run_folder
from tests import tiny

SMALL = ("limit=smoke", "limit.repeats=1", "tasks.max_length=24", "output=out", "target.speedup=null")
WIDTH = 24


def vector(text: str) -> list[float]:
    """An API's vector of a text: the sum of a fixed random one for each word, not of length 1."""
    words = [np.random.default_rng([*word.encode()]).normal(size=WIDTH) for word in text.split()]
    return [float(number) for number in np.sum(words, axis=0)]


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def pair(number: int) -> dict[str, Any]:
    first, second = f"{tiny.SENTENCES[number % 8]} {number}", tiny.SENTENCES[number // 8]
    return {"sentence1": first, "sentence2": second, "score": len({*first.split()} & {*second.split()})}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return tiny.save(tmp_path / "given", "bert", "", std=0.2, length=34, num_hidden_layers=3)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_plain_texts_with_vectors_train_a_student_without_a_teacher(given: Path, run: Any, tmp_path: Path) -> None:
    texts = [f"{tiny.SENTENCES[number % 8]} {number}" for number in range(96)]
    train = written(tmp_path / "texts.jsonl", [{"text": text, "vector": vector(text)} for text in texts])
    held = written(tmp_path / "held.jsonl", [pair(number) for number in range(64)])
    settings = ["teacher=none", f"student.name={given}", f"tasks.train={train}", f"tasks.validation={held}"]
    settings += ["tasks.kind=embedding", "tasks.soft_label=vector", "student.num_hidden_layers=1"]
    settings += ["stages.export.quantized=null", "stages.export.evaluated=null"]
    settings.append("limit.steps=3")
    run(tmp_path, "prune", *SMALL, *settings, "pipeline=[finetune_teacher,prune,recover,export]")
    for stage in ("finetune_teacher", "recover"):
        folder = tmp_path / "out" / stage / "texts"
        described = atomic.read_json(folder / "2_Dense" / "config.json")
        assert (described["in_features"], described["out_features"]) == (16, WIDTH)
        assert "vectors" in atomic.read_json(folder / run_folder.MANIFEST)["log"][-1]["terms"]
    made = elsewhere(str(tmp_path / "out" / "export" / "texts"), [[text] for text in texts[:4]], False)
    assert np.array(made).shape == (4, WIDTH)


@pytest.mark.slow
def test_vectors_of_another_width_than_the_teachers_are_refused(given: Path, run: Any, tmp_path: Path) -> None:
    rows = [pair(number) for number in range(64)]
    train = written(tmp_path / "texts.jsonl", [row | {"vectors": [vector("a"), vector("b")]} for row in rows])
    settings = [
        "teacher=hub",
        f"teacher.name={given}",
        f"tasks.train={train}",
        "tasks.kind=embedding",
        "tasks.text=sentence1",
    ]
    settings += [
        "tasks.text_pair=sentence2",
        "tasks.label=score",
        "tasks.soft_label=vectors",
        "student.num_hidden_layers=1",
    ]
    with pytest.raises(
        UserError, match=r"tasks.soft_label: got vectors of 24 numbers in texts; must be of 16, as those"
    ):
        run(tmp_path, "prune", *SMALL, *settings, "pipeline=[finetune_teacher,prune,recover]")


class Accepted(Exception):
    """All checks before the first stage have passed."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end before their first stage. Nothing is timed."""
    from distill.pipeline import run
    from distill.pipeline.validation import preflight

    def stop(*_: Any) -> None:
        raise Accepted

    monkeypatch.setattr(run, "_run_pending", stop)
    monkeypatch.setattr(preflight, "check_reach", lambda *_: None)
    monkeypatch.setattr(preflight, "search_inputs", lambda *_: None)


def documented(part: str) -> list[str]:
    """The command of docs/data/kinds/texts-alone.md that has a part."""
    text = (Path(__file__).parents[2] / "docs" / "data" / "kinds" / "texts-alone.md").read_text()
    [line] = [line for line in re.findall(r"^python -m distill (.*)$", text, re.MULTILINE) if part in line]
    return shlex.split(line)


def folder_of_the_documents(folder: Path) -> None:
    """The models and files that the commands name."""
    texts = [f"{tiny.SENTENCES[number % 8]} {number}" for number in range(128)]
    written(folder / "texts.jsonl", [{"text": text, "vector": vector(text)} for text in texts])
    pairs = [pair(number) for number in range(64)]
    written(folder / "pairs.jsonl", pairs)
    names = {"sentence1": "query", "sentence2": "document"}
    judged = [{names[key]: row[key] for key in names} | {"relevance": int(row["score"] > 3)} for row in pairs]
    written(folder / "judged.jsonl", judged)
    tiny.save(folder / "my-encoder", "bert", "", std=0.2, length=140)


def embedder(folder: Path, **settings: Any) -> Path:
    from distill.models.families import vectors

    tiny.save(folder, "bert", "", std=0.2, length=140)
    vectors.write(folder, vectors.Vectors(**settings), 16, {"add_pooling_layer": False})
    return folder


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("part", ["tasks.soft_label=vector", "terms.soft_targets.weight=0"])
def test_documented_commands_are_accepted_with_their_files(part: str, run: Any, tmp_path: Path) -> None:
    folder_of_the_documents(tmp_path)
    embedder(tmp_path / "my-embedder")
    recipe, *settings = documented(part)
    with pytest.raises(Accepted):
        run(tmp_path, recipe.removeprefix("recipe="), *settings)


@pytest.mark.usefixtures("stopped")
def test_a_baseline_without_labels_is_refused_with_the_settings_that_leave_it_out(run: Any, tmp_path: Path) -> None:
    folder_of_the_documents(tmp_path)
    recipe, *settings = documented("tasks.soft_label=vector")
    kept = [word for word in settings if not word.startswith(("pipeline=", "stages.evaluate.baseline="))]
    with pytest.raises(UserError) as caught:
        run(tmp_path, recipe.removeprefix("recipe="), *kept)
    [message] = caught.value.messages
    assert message.startswith("stages.recover_baseline.teacher: got null, and training rows of texts without labels;")
    action = message.partition("; set ")[2].removesuffix(", or add labels")
    assert shlex.split(action) == [word for word in settings if word not in kept]


@pytest.mark.usefixtures("stopped")
def test_a_student_of_another_width_than_the_vectors_is_refused_before_it_is_trained(run: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder_of_the_documents(tmp_path)
    recipe, *settings = documented("tasks.soft_label=vector")
    command = (recipe.removeprefix("recipe="), *[word for word in settings if "student.name" not in word])
    for width in (8, WIDTH):
        given = embedder(tmp_path / f"wide{width}", width=width)
        save_file({"linear.weight": torch.zeros(width, 16)}, given / "2_Dense" / "model.safetensors")
        expected = (
            rf"student.name: got an embedder of {width} dimensions; must have {WIDTH}, those of the vectors in tas"
        )
        with pytest.raises(Accepted if width == WIDTH else UserError, match=None if width == WIDTH else expected):
            run(tmp_path, *command, f"student.name={given}")
