"""The prune stage on tiny models of every family: sizes that are asked for, targets, and a run that was stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from distill import config
from distill.compression.pruning import sensitivity
from distill.errors import ConfigError
from distill.models import families
from distill.pipeline import validation
from distill.runtime.storage import atomic, run_folder
from tests import tiny

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 4, "length": 130}
TASK = [
    "tasks.names=[order]",
    "limit=smoke",
    "limit.steps=1",
    "output=out",
    "stages.prune.examples=32",
    "target.shape=[1,16]",
]
SHAPED = ["bert", "albert", "deberta-v2", "modernbert", "eurobert", "gte"]
"""Families that differ most in what is cut; the unit tests prune every one."""
QUICK = ("bert", "modernbert")
"""The others are pruned among the slow tests."""


def settings(given: Path, *more: str) -> list[str]:
    return ["teacher=hub", f"teacher.name={given}", "pipeline=[finetune_teacher,prune]", *TASK, *more]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in SHAPED]
)
def test_a_family_is_pruned_to_the_sizes_asked_for(name: str, run: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    given = tiny.save(tmp_path / "teacher", name, "", **SMALL)
    sizes = ["student.num_hidden_layers=2", "student.hidden_size=16", "student.intermediate_size=24"]
    run(tmp_path, "prune", *settings(given, "target.speedup=null", *sizes))
    folder = tmp_path / "out" / "prune"
    made, told = AutoModelForSequenceClassification.from_pretrained(folder / "order", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found = made.config
    assert (found.num_hidden_layers, found.hidden_size, found.num_attention_heads) == (2, 16, 2)
    manifest = atomic.read_json(folder / run_folder.MANIFEST)
    assert manifest["shape"] == {"layers": 2, "hidden": 16, "ffn": 24}
    assert len(manifest["tasks"]["order"]["layers"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("electra", marks=pytest.mark.slow), "modernbert"])
def test_a_speed_is_met_whatever_a_family_calls_its_sizes(name: str, run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", name, "", **SMALL)
    run(tmp_path, "prune", *settings(given, "target.speedup=1.2"))
    manifest = atomic.read_json(tmp_path / "out" / "prune" / run_folder.MANIFEST)
    assert manifest["speed"]["predicted_ms"] > 0
    assert manifest["tried"] == 4 * 3 * (2 if name == "electra" else 3)  # not as wide as its embeddings
    made = atomic.read_json(tmp_path / "out" / "prune" / "order" / "config.json")
    assert manifest["shape"]["hidden"] == made.get("hidden_size", made.get("dim"))


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["importance@stages.prune.importance=reconstruction", "stages.prune.refit=true"])
def test_what_is_left_is_refitted(chosen: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    refit = sensitivity.refitted
    monkeypatch.setattr(sensitivity, "refitted", lambda *args: calls.append(1) or refit(*args))
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    run(tmp_path, "prune", *settings(given, chosen, "target.speedup=null", "student.hidden_size=16"))
    assert calls
    manifest = atomic.read_json(tmp_path / "out" / "prune" / run_folder.MANIFEST)
    assert manifest["shape"] == {"layers": 4, "hidden": 16, "ffn": 32}


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("deberta-v2", {"conv_kernel_size": 3}),
        ("deberta", {"talking_head": True}),
        ("albert", {"num_hidden_groups": 2}),
        ("eurobert", {"num_key_value_heads": 2}),
    ],
)
def test_models_that_cannot_be_pruned_are_refused(name: str, setting: dict[str, Any], run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", name, "", **SMALL | setting)
    (key,) = setting
    with pytest.raises(ConfigError, match=rf"teacher\.name: got a model with {key} .*; must be .* to be pruned"):
        run(tmp_path, "prune", *settings(given))


@pytest.mark.slow
def test_layers_can_be_named(run: Any, tmp_path: Path) -> None:
    import torch

    from distill.models import teacher

    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    run(tmp_path, "prune", *settings(given, "target.speedup=null", "student.layers=[1,3]"))
    whole = teacher.load_classifier(tmp_path / "out" / "finetune_teacher" / "order", 2)
    small = teacher.load_classifier(tmp_path / "out" / "prune" / "order", 2)
    for new, old in enumerate((1, 3)):
        ours, theirs = families.layers(small)[new].state_dict(), families.layers(whole)[old].state_dict()
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items())


@pytest.mark.slow
def test_a_stopped_stage_goes_on_with_the_shape_it_found(run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    arguments = settings(given, "target.speedup=1.2", "tasks.names=[order,overlap]")
    run(tmp_path, "prune", *arguments)
    folder = tmp_path / "out" / "prune"
    before = atomic.read_json(folder / run_folder.MANIFEST)
    assert before["tried"] == 4 * 3 * 3
    weights = (folder / "overlap" / "model.safetensors").read_bytes()
    (folder / run_folder.MANIFEST).unlink()
    shutil.rmtree(folder / "overlap")
    run(tmp_path, "prune", *arguments)
    after = atomic.read_json(folder / run_folder.MANIFEST)
    assert after["seconds"] > before["seconds"], "those of both parts"
    assert [after[key] for key in ("shape", "speed", "tasks")] == [before[key] for key in ("shape", "speed", "tasks")]
    assert (folder / "overlap" / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_several_targets_are_met_from_one_set_of_measurements(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    run(tmp_path, "prune", *settings(given, "target.speedup=null", "target.size_mib=[0.3,0.2]"))
    root = tmp_path / "out"
    assert capsys.readouterr().out.count("importance of layers, heads and channels") == 1
    size = {}
    for label in ("0.3MiB", "0.2MiB"):
        folder = root / "prune" / label
        assert atomic.read_json(folder / run_folder.MANIFEST)["shape"]["layers"] <= 4
        size[label] = (folder / "order" / "model.safetensors").stat().st_size / 2**20
    assert size["0.2MiB"] < 0.21  # with the names of its tensors
    assert size["0.2MiB"] <= size["0.3MiB"] < 0.31
    kept = (root / "prune" / "0.2MiB" / "order" / "model.safetensors").read_bytes()
    # One of them is lost: it is made again, of the same measurements.
    shutil.rmtree(root / "prune" / "0.2MiB")
    run(tmp_path, "prune", *settings(given, "target.speedup=null", "target.size_mib=[0.3,0.2]"))
    told = capsys.readouterr().out
    assert "importance of layers" not in told
    assert "prune/0.3MiB: finished earlier, skipped" in told
    assert (root / "prune" / "0.2MiB" / "order" / "model.safetensors").read_bytes() == kept


def test_too_few_rows_to_measure_on_are_refused(run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    with pytest.raises(ConfigError, match=r"tasks\.names: got order with 20 training rows; must have 32 or more"):
        run(tmp_path, "prune", *settings(given, "limit.examples=20"))
    assert not (tmp_path / "out" / "finetune_teacher").exists()


@pytest.mark.slow
def test_a_target_that_nothing_meets_is_refused(run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    few = [entry for entry in settings(given, "tasks=docstrings", "limit.examples=48") if entry != "limit=smoke"]
    few += ["limit.validation=8", "limit.repeats=1", "stages.prune.dimensions=[layers]"]
    with pytest.raises(
        ConfigError, match=r"target\.size_mib: got 0\.001; must be >= .*, which 1 layers, .* the cost of"
    ):
        run(tmp_path, "prune", *few, "target.speedup=null", "target.size_mib=0.001")
    assert not (tmp_path / "out" / "finetune_teacher").exists(), "refused before anything is trained"


@pytest.mark.slow
def test_layers_of_different_widths_are_zeros_in_the_checkpoint_and_gone_from_onnx(run: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    few = [entry for entry in settings(given, "target.speedup=null") if not entry.startswith("pipeline=")]
    few += ["stages.prune.uniform=false", "student.num_attention_heads=2", "student.intermediate_size=24"]
    few += ["pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]", "limit.repeats=1"]
    few += ["stages.quantize.schemes=[onnxruntime]", "stages.evaluate.shapes=[[1,16]]", "stages.evaluate.baseline=null"]
    found = run(tmp_path, "prune", *few)
    out = tmp_path / "out"
    made = AutoModelForSequenceClassification.from_pretrained(out / "export" / "order")
    assert (made.config.num_attention_heads, made.config.intermediate_size) == (4, 64)
    writing = [
        (
            (layer.attention.output.dense.weight != 0).any(0).sum().item(),
            (layer.output.dense.weight != 0).any(0).sum().item(),
        )
        for layer in made.bert.encoder.layer
    ]
    assert sum(heads for heads, _ in writing) == 4 * 2 * 8
    assert sum(ffn for _, ffn in writing) == 4 * 24
    whole, left = (
        (out / stage / "order" / "model.safetensors").stat().st_size for stage in ("finetune_teacher", "export")
    )
    assert left == pytest.approx(whole, rel=0.01)
    teacher = next(m for m in found["models"] if (m["role"], m["backend"]) == ("teacher", "onnxruntime"))
    student = next(
        m for m in found["models"] if (m["role"], m["backend"], m["scheme"]) == ("student", "onnxruntime", "fp32")
    )
    assert "failed" not in student
    assert student["size_mib"] < 0.9 * teacher["size_mib"]
    in_torch = next(
        m for m in found["models"] if (m["role"], m["backend"], m["scheme"]) == ("student", "torch", "fp32")
    )
    assert in_torch["parameters"] == teacher["parameters"], "with its zeros"
    assert (student["parameters"], student["gmacs"]) == (None, None), "the file has fewer than the checkpoint"
    assert any("cannot express" in note for note in found["notes"])


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["target.speedup=null"], "target.speedup: got null; must be a number, or a size must be given; "),
        (["target.speedup=[2]"], "target.speedup: got [2]; must be one number, or a list of different ones; "),
        (["target.speedup=[2,2]"], "target.speedup: got [2, 2]; must be one number, or a list of different ones; "),
        (["target.speedup=[0.5,2]"], "target.speedup: got 0.5; must be > 1; "),
        (["target.speedup=[2,3]", "target.size_mib=[20,10]"], "target.size_mib: got a list, as target.speedup; "),
        (["target.speedup=[2,2.0]"], "target.speedup: got [2, 2.0]; must be one number, or a list of different ones; "),
        (
            ["target.speedup=[2,null]"],
            "target.speedup: got [2, None]; must be one number, or a list of different ones; ",
        ),
        (["target.speedup=true"], "target.speedup: got True; must be one number, or a list of different ones; "),
        (["target.speedup={a:1}"], "target.speedup: got "),
        (
            ["+term@stages.recover.terms.scores=attention"],
            "stages.recover.terms.scores.features: got scores; must not need all of the teacher's heads ",
        ),
        (["stages.prune.dimensions=[heads]"], "stages.prune.dimensions: got heads; must be layers or hidden or ffn; "),
        (["target.shape=[8]"], "target.shape: got [8]; must be own or [batch size, length]; e.g. [8,128]"),
        (["target.shape=fast"], "target.shape: got fast; must be own or [batch size, length]; e.g. [8,128]"),
        (
            ["target.scheme=torchao"],
            "target.scheme: got torchao; must be fp32 or bf16 or openvino or onnxruntime; add it to stages.quantize.s",
        ),
        (
            ["target.speedup=null", "student.layers=[0,1]", "student.num_hidden_layers=3"],
            "student.num_hidden_layers: got 3; must be 2, the number of student.layers; ",
        ),
    ],
)
def test_settings_that_pruning_cannot_have(given: list[str], line: str) -> None:
    found = validation.settings(config.load_config(["recipe=prune", *given]), "prune")
    assert any(problem.startswith(line) for problem in found), found


def test_a_student_that_is_built_and_pruned_is_pruned_to_a_target() -> None:
    given = ["recipe=distil_prune_int8", "target.speedup=null", "student.hidden_size=192"]
    (problem,) = validation.settings(config.load_config(given), "distil_prune_int8")
    assert problem.startswith("target.speedup: got null; must be a number, or another target must be given; ")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["student.layers=[0,1]"], None),
        (["student.layers=null"], 4.0),
        (["student.layers=[0,1]", "target.speedup=3"], 3.0),
        (["student.layers=[0,1]", "target={latency_ms: 3}"], 4.0),
        (["recipe=distil_prune_int8", "student.hidden_size=192"], 6.0),
    ],
)
def test_sizes_that_are_given_replace_the_target_of_a_recipe(given: list[str], left: float | None) -> None:
    loaded = config.load_config(["recipe=prune", *given] if "recipe" not in given[0] else given)
    assert loaded.target.speedup == left


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        (["student.num_hidden_layers=9"], r"student\.num_hidden_layers: got 9; must be <= 4, the number of the model"),
        (["student.layers=[0,7]"], r"student\.layers: got \[0,7\]; must be distinct ascending layer numbers"),
        (["student.hidden_size=20"], r"student\.hidden_size: got 20; must be a multiple of 8, the size of"),
        (
            ["student.hidden_size=64"],
            r"student\.hidden_size: got 64; must be <= 32, the teacher's; set a smaller value",
        ),
        (
            ["student.intermediate_size=65"],
            r"student\.intermediate_size: got 65; must be <= 64, the teacher's; set ",
        ),
        (
            [
                "stages.prune.uniform=false",
                "student.intermediate_size=65",
                "pipeline=[finetune_teacher,prune,quantize]",
                "stages.quantize.start=prune",
            ],
            r"student\.intermediate_size: got 65; must be from 8 to 64, the teacher's; set ",
        ),
    ],
)
def test_sizes_that_the_teacher_cannot_be_cut_to(sizes: list[str], line: str, run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", **SMALL)
    with pytest.raises(ConfigError, match=line):
        run(tmp_path, "prune", *settings(given, "target.speedup=null", *sizes))
    assert not (tmp_path / "out" / "finetune_teacher").exists()
