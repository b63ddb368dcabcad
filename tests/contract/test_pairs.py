"""Features that work together: each run has several, and its models are compared with these that they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import distill
from distill import config, report
from distill.data import tasks
from distill.deploy.export.proof import plain_logits
from distill.models import teacher
from distill.runtime.storage import atomic, run_folder
from tests import scored, tiny

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
ORDER = ["tasks=docstrings", "tasks.names=[order]", "output=out"]
FEW = ["limit=smoke", "limit.steps=2", "limit.repeats=1"]
UNQUANTIZED = ["stages.evaluate.quantized=null", "stages.evaluate.baseline=null", "stages.evaluate.shapes=[[1,16]]"]


def layers(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of the layers of a BERT."""
    weights = load_file(folder / "model.safetensors")
    return {key.partition(".layer.")[2]: value for key, value in weights.items() if ".layer." in key}


def assert_cut(small: Path, whole: Path, kept: list[int]) -> None:
    """The layers of a model are these of another one."""
    found, source = layers(small), layers(whole)
    assert {int(key.partition(".")[0]) for key in found} == {*range(len(kept))}
    for key, value in found.items():
        number, _, name = key.partition(".")
        torch.testing.assert_close(value, source[f"{kept[int(number)]}.{name}"])


@pytest.mark.slow
def test_a_student_is_cut_from_the_first_of_several_teachers_that_read_windows(run: Any, tmp_path: Path) -> None:
    """In vocabulary and layers. The student reads whole texts, and learns what all teachers say together."""
    more = ["+stage@stages.vocabulary=vocabulary", "stages.vocabulary.start=finetune_teacher"]
    more += ["stages.prune.start=vocabulary", "pipeline=[finetune_teacher,vocabulary,prune,recover,evaluate]"]
    results = run(
        tmp_path,
        "prune",
        "teacher=ensemble",
        "teacher.window=16",
        "student.layers=[0,2]",
        *more,
        *ORDER,
        *FEW,
        *UNQUANTIZED,
        onnx=False,
    )
    assert report.validate(results) == []
    out = tmp_path / "out"
    assert_cut(out / "prune" / "order", out / "finetune_teacher" / "1" / "order", [0, 2])
    sizes = {(model["role"], model["name"]): model["parameters"] for model in results["models"]}
    members = [size for (role, _), size in sizes.items() if role == "member"]
    assert len(members) == 2
    assert sizes["teacher", "teacher"] == sum(members)
    settings = config.load_config(["recipe=prune", *ORDER, *FEW])
    data = tasks.load_tasks(settings.tasks, settings.limit, settings.seed).tasks["order"]
    ((split, rows),) = data.reported.items()
    texts = [[row[column] for column in data.task.columns] for row in rows]
    found = scored.logits(out, "order", "student torch fp32", split)
    np.testing.assert_allclose(found, plain_logits(out / "recover" / "order", texts, 128), atol=1e-3)


@pytest.mark.slow
def test_a_given_student_is_pruned_after_it_learned_the_task(run: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path / "one", "bert", "", length=130, **SMALL)
    tiny.save(tmp_path / "student", "bert", "", length=130, **SMALL | {"num_hidden_layers": 3})
    given = ["teacher.name=one", "student.name=student", "student.layers=[0,2]"]
    again = ["+stage@stages.prune=prune", "stages.prune.start=finetune", "+stage@stages.recover=distil_tasks"]
    again += ["stages.recover.start=prune", "stages.recover.teacher=finetune_teacher"]
    again += ["pipeline=[finetune_teacher,finetune,prune,recover]"]
    run(tmp_path, "task", *given, *again, *ORDER, *FEW)
    out = tmp_path / "out"
    assert_cut(out / "prune" / "order", out / "finetune" / "order", [0, 2])
    manifest = atomic.read_json(out / "recover" / "order" / run_folder.MANIFEST)
    assert "soft_targets" in manifest["log"][-1]["terms"]


@pytest.mark.slow
def test_sizes_are_of_the_built_student_and_the_target_is_of_the_pruned_one(run: Any, tmp_path: Path) -> None:
    sizes = ["student.num_hidden_layers=3", "student.intermediate_size=40", "student.init=random"]
    more = ["pipeline=[pretrain,finetune_teacher,finetune,prune]", "stages.prune.start=finetune", "target.speedup=1.5"]
    run(tmp_path, "distil_prune_int8", *sizes, *more, *ORDER, *FEW, "limit.documents=60")
    out = tmp_path / "out"
    built, pruned = (teacher.read_config(out / name) for name in ("pretrain", "prune/order"))
    assert (built.num_hidden_layers, built.intermediate_size) == (3, 40)
    shape = atomic.read_json(out / "prune" / run_folder.MANIFEST)["shape"]
    assert shape["layers"] == pruned.num_hidden_layers <= 3
    assert shape["ffn"] == pruned.intermediate_size <= 40


@pytest.mark.slow
def test_a_single_task_may_have_the_one_head_of_a_shared_encoder(run: Any, tmp_path: Path) -> None:
    given = ["student.heads=shared", "pipeline=[finetune_teacher,finetune,export]", "stages.finetune.start=teacher"]
    more = ["stages.export.quantized=null", "stages.export.evaluated=null", "~stages.finetune.terms.vectors"]
    run(tmp_path, "distilbert", *given, *more, *ORDER, *FEW)
    folder = tmp_path / "out" / "export" / "shared"
    texts = [["one day", "a night"], ["the sea", "it rained"]]
    outputs: Any = distill.load(folder).outputs([tuple(pair) for pair in texts])  # type: ignore[arg-type]
    assert [*outputs] == ["order"]
    np.testing.assert_allclose(outputs["order"], plain_logits(folder / "order", texts, 128), atol=1e-4)
