"""A stage that replaces layers trains the layers of a student, and leaves a model that plain transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from distill.config import load_config
from distill.pipeline import validation

FEW = ["limit=smoke", "limit.steps=3", "tasks=docstrings", "tasks.names=[order]", "output=out"]


@pytest.mark.slow
def test_the_layers_alone_are_trained_and_the_rest_is_the_teachers(run: Any, tmp_path: Path) -> None:
    run(tmp_path, "theseus", *FEW, "pipeline=[finetune_teacher,replace,replace_baseline]")
    teacher, student, baseline = (
        load_file(tmp_path / "out" / stage / "order" / "model.safetensors")
        for stage in ("finetune_teacher", "replace", "replace_baseline")
    )
    of_layers = {name for name in student if ".encoder.layer." in name}
    assert student.keys() == baseline.keys()
    assert student.keys() - of_layers == {name for name in teacher if ".encoder.layer." not in name}
    for name in student.keys() - of_layers:
        assert student[name].equal(teacher[name]), name
    assert any(not baseline[name].equal(teacher[name]) for name in baseline.keys() - of_layers), (
        "it is a plain training"
    )
    first, last = ({n: v for n, v in teacher.items() if f".layer.{number}." in n} for number in (0, 3))
    for number, copied in ((0, first), (1, {n.replace(".3.", ".1."): v for n, v in last.items()})):
        moved = [name for name in copied if not student[name].equal(copied[name])]
        assert any("query.weight" in name for name in moved), number
        assert any("output.dense.weight" in name for name in moved), number


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        (["student.hidden_size=192"], "student.hidden_size: got 192; must be left out where layers are replaced"),
        (["student.family=roberta"], "student.family: got roberta; must be left out where layers are replaced"),
        (
            ["stages.replace.start=teacher"],
            "stages.replace.replacing: got 0.3; must be left out in a stage that does not",
        ),
        (["stages.replace.build_student=false"], "stages.replace.replacing: got 0.3; must be left out in a stage that"),
        (
            ["+term@stages.replace.terms.more=hidden"],
            "stages.replace.terms.more.features: got hidden; must be logits where layers are replaced",
        ),
    ],
)
def test_what_cannot_run_within_the_teacher_is_refused(settings: list[str], start: str) -> None:
    found = validation.settings(load_config(["recipe=theseus", *settings]), "theseus")
    assert any(line.startswith(start) for line in found), found


@pytest.mark.parametrize("setting", ["student.intermediate_size=768", "student.num_hidden_layers=4"])
def test_other_shapes_of_layers_fit_between_the_teachers(setting: str) -> None:
    assert validation.settings(load_config(["recipe=theseus", setting]), "theseus") == []
