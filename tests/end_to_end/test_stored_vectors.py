"""Whole runs whose teacher is a column of vectors: of an API, or of a model that is not at hand."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.deploy.export.reload import vectors as elsewhere
from distill.errors import UserError
from distill.runtime.storage import atomic, run_folder

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
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
    first, second = f"{TINY['SENTENCES'][number % 8]} {number}", TINY["SENTENCES"][number // 8]
    return {"sentence1": first, "sentence2": second, "score": len({*first.split()} & {*second.split()})}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return TINY["save"](tmp_path / "given", "bert", "", std=0.2, length=34, num_hidden_layers=3)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_plain_texts_with_vectors_train_a_student_without_a_teacher(given: Path, run: Any, tmp_path: Path) -> None:
    texts = [f"{TINY['SENTENCES'][number % 8]} {number}" for number in range(96)]
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
