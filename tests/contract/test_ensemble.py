"""Several teachers as one, and teachers that read a long text in windows: from the command to the report."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import config, report
from distill.errors import ConfigError
from distill.models import teacher
from distill.pipeline import validation
from distill.pipeline.context.given import SMOKE_LAYERS
from distill.runtime.storage import atomic, run_folder
from tests import scored, tiny

ALIGN = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "data" / "test_align.py"))
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SHORT = [
    "pipeline=[finetune_teacher,finetune,evaluate]",
    "stages.evaluate.quantized=null",
    "stages.evaluate.baseline=null",
]
FEW = ["limit=smoke", "limit.steps=3", "limit.documents=60", "limit.repeats=1", "stages.evaluate.shapes=[[2,16]]"]


def bpe(folder: Path, name: str, head: str, **settings: Any) -> Path:
    """A tiny model that reads with another tokenizer than `tiny.save` gives."""
    words = ALIGN["bpe"]()
    tiny.model(name, head, vocab_size=len(words), **SMALL, **settings).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def tasks(*names: str) -> list[str]:
    return ["tasks=docstrings", f"tasks.names=[{','.join(names)}]", "output=out"]


def probabilities(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


@pytest.mark.slow
def test_teachers_of_two_families_and_tokenizers_teach_as_one(run: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path / "one", "bert", "", length=130, **SMALL)
    bpe(tmp_path / "two", "roberta", "", length=130)
    bpe(tmp_path / "student", "electra", "", length=130)
    given = ["teacher=ensemble", "teacher.names=[one,two]", "teacher.weights=learned", "student.name=student"]
    # Without ONNX files, of which test_several_embedders has those of an ensemble.
    results = run(tmp_path, "task", *given, *tasks("order", "overlap"), *FEW, *SHORT, onnx=False)
    assert report.validate(results) == []
    assert [model["failed"] for model in results["models"] if "failed" in model] == []

    out = tmp_path / "out"
    manifest = atomic.read_json(out / "finetune_teacher" / run_folder.MANIFEST)
    shares = manifest["weights"]
    assert all(sum(of_task) == pytest.approx(1) for of_task in shares.values())
    kinds = [atomic.read_json(out / "finetune_teacher" / n / "order" / "config.json") for n in ("1", "2")]
    assert [kind["model_type"] for kind in kinds] == ["bert", "roberta"]

    models = {(m["name"], m["backend"], m["scheme"]): m for m in results["models"]}
    best = next(m["scheme"] for m in results["models"] if m["name"] == "member 1")
    together, *alone = (models[name, "torch", best] for name in ("teacher", "member 1", "member 2"))
    assert together["parameters"] == sum(model["parameters"] for model in alone)
    assert all(model["role"] == "member" and model["retained"]["macro"] for model in alone)
    for task, of_task in shares.items():
        said = [scored.logits(out, task, f"{name} torch {best}") for name in ("teacher", "member 1", "member 2")]
        if task == "overlap":
            wanted = of_task[0] * said[1] + of_task[1] * said[2]
            np.testing.assert_allclose(said[0], wanted, rtol=1e-4, atol=1e-5)
        else:
            wanted = of_task[0] * probabilities(said[1]) + of_task[1] * probabilities(said[2])
            np.testing.assert_allclose(probabilities(said[0]), wanted, rtol=1e-4, atol=1e-6)
    order = ", ".join(f"{100 * share:.0f}%" for share in shares["order"])
    assert f"Weights of the members on order: {order}." in results["notes"]
    assert results["teacher_name"] == "an ensemble of one, two"
    rows = [atomic.read_json(out / "finetune_teacher" / n / "order" / run_folder.MANIFEST) for n in ("1", "2")]
    assert all(row["steps"] == 3 for row in rows)


def test_the_rows_that_weights_are_learned_on_train_no_teacher() -> None:
    from types import SimpleNamespace

    from datasets import Dataset

    from distill.pipeline.train_steps.teacher_logits import held_out

    data: Any = SimpleNamespace(train=Dataset.from_dict({"text": [str(n) for n in range(25)]}))
    kept, apart = held_out(data)
    assert (len(kept), len(apart)) == (23, 2)
    assert sorted([*kept["text"], *apart["text"]], key=int) == data.train["text"]


@pytest.mark.slow
def test_on_a_corpus_probabilities_of_tokens_are_averaged(run: Any, tmp_path: Path) -> None:
    pipeline = ["pipeline=[adapt,pretrain,finetune_teacher,finetune]", "~stages.pretrain.terms.cosine", "output=out"]
    for name, layers in (("one", 2), ("two", 3)):
        tiny.save(tmp_path / name, "bert", "MaskedLM", **SMALL | {"num_hidden_layers": layers}, length=130)
    names = ["teacher=ensemble", "teacher.names=[one,two]", "student.layers=[0]"]
    run(tmp_path, "distilbert", *names, *pipeline, *tasks("order")[:2], *FEW[:4])
    manifest = atomic.read_json(tmp_path / "out" / "pretrain" / run_folder.MANIFEST)
    assert set(manifest["log"][-1]["terms"]) == {"soft_targets", "mlm"}
    assert "skipped" in atomic.read_json(tmp_path / "out" / "adapt" / run_folder.MANIFEST)
    model, _ = teacher.load_mlm(tmp_path / "out" / "pretrain")
    assert model.config.num_hidden_layers == 1


@pytest.mark.slow
def test_without_names_a_smoke_run_has_two_random_teachers(run: Any, tmp_path: Path) -> None:
    few = ["pipeline=[finetune_teacher,finetune]", *tasks("order")[1:], *FEW[:2]]
    run(
        tmp_path,
        "distilbert",
        "teacher=ensemble",
        "stages.finetune.start=teacher",
        *few,
    )
    depths = [
        atomic.read_json(tmp_path / "out" / "finetune_teacher" / n / "order" / "config.json")["num_hidden_layers"]
        for n in ("1", "2")
    ]
    assert depths == [SMOKE_LAYERS, SMOKE_LAYERS + 1]


@pytest.mark.slow
def test_one_model_named_twice_is_two_teachers(run: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path / "one", "bert", "", length=130, **SMALL)
    names = ["teacher=ensemble", "teacher.names=[one,one]", "student.name=null", "pipeline=[finetune_teacher]"]
    run(tmp_path, "task", *names, *tasks("order"), *FEW[:2])
    heads = [
        teacher.load_classifier(tmp_path / "out" / "finetune_teacher" / n / "order", 2).classifier.weight
        for n in ("1", "2")
    ]
    assert not (heads[0] == heads[1]).any()


@pytest.mark.slow
def test_a_student_can_teach_another_with_its_own_tokenizer(run: Any, tmp_path: Path) -> None:
    """A teacher assistant: a stage whose teacher is a student's stage reads as that student does."""
    tiny.save(tmp_path / "one", "bert", "", length=130, **SMALL)
    bpe(tmp_path / "student", "electra", "", length=130)
    given = ["teacher.name=one", "student.name=student", "pipeline=[finetune_teacher,finetune,second]"]
    again = ["+stage@stages.second=distil_tasks", "stages.second.start=student", "stages.second.teacher=finetune"]
    again += ["stages.second.epochs=3"]
    run(tmp_path, "task", *given, *again, *tasks("order"), *FEW[:2])
    manifest = atomic.read_json(tmp_path / "out" / "second" / "order" / run_folder.MANIFEST)
    assert "soft_targets" in manifest["log"][-1]["terms"]


BOTH = ["teacher=ensemble", "teacher.names=[one,two]"]
ORDER = ["pipeline=[finetune,finetune_teacher,evaluate]", "stages.finetune.teacher=null"]


@pytest.mark.parametrize(
    ("recipe", "settings", "line"),
    [
        ("distilbert", BOTH, r"terms\.cosine\.features: got hidden; must be logits with teacher=ensemble"),
        ("task", [*BOTH, "teacher.weights=[1]"], r"teacher\.weights: got .*; must be learned, or a number above 0"),
        ("task", [*BOTH, "teacher.weights=[1,-1]"], r"teacher\.weights: got .*; must be learned, or a number"),
        ("task", [*BOTH, "teacher.weights=best"], r"teacher\.weights: got best; must be learned, or a number"),
        ("task", [*BOTH, "teacher.weights=[1,x]"], r"teacher\.weights: got .*; must be learned, or a number"),
        ("task", ["teacher=ensemble", "teacher.names=[one]"], r"teacher\.names: got \['one'\]; must be two"),
        (
            "task",
            [*BOTH, "stages.finetune_teacher.role=student"],
            r"stages\.evaluate\.teacher: got finetune_teacher; must be a stage of role teacher",
        ),
        (
            "task",
            [*BOTH, "stages.quantize.start=finetune_teacher"],
            r"stages\.quantize\.start: got finetune_teacher; must be a student's stage",
        ),
        (
            "task",
            [*BOTH, *ORDER, "stages.finetune_teacher.start=finetune"],
            r"stages\.finetune_teacher\.start: got finetune; must be teacher, or a stage of role teacher",
        ),
    ],
)
def test_settings_that_an_ensemble_cannot_have(recipe: str, settings: list[str], line: str) -> None:
    found = validation.settings(config.load_config([f"recipe={recipe}", *settings, *FEW]), recipe)
    assert any(re.search(line, problem) for problem in found), found


@pytest.mark.slow
def test_models_and_data_that_an_ensemble_cannot_use(run: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path / "one", "bert", "MaskedLM", **SMALL, length=130)
    bpe(tmp_path / "two", "roberta", "MaskedLM", length=130)
    with pytest.raises(ConfigError, match=r"teacher\.names: got teachers with different tokenizers, .*recipe=task"):
        run(tmp_path, "distilbert", *BOTH, "~stages.pretrain.terms.cosine", "tasks.names=[order]", *FEW)
    few = ["student.name=one", *tasks("order"), "limit.examples=30", "limit.steps=1"]
    with pytest.raises(ConfigError, match=r"teacher\.weights: got learned; must have 40 training rows or more in or"):
        run(tmp_path, "task", *BOTH, "teacher.weights=learned", *few)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "xlnet"])
def test_a_teacher_reads_a_long_text_in_windows(name: str, run: Any, tmp_path: Path) -> None:
    """The student reads it whole; what the teacher says of it is the mean over windows."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tiny.save(tmp_path / "teacher", name, "", **(SMALL | {"length": 32} if name == "bert" else {}))
    tiny.save(tmp_path / "student", "modernbert", "", **SMALL, length=256)
    given = ["teacher.name=teacher", "student.name=student", "tasks.max_length=200", *tasks("package"), *FEW[:-1]]
    shapes = "stages.evaluate.shapes=[[2,16],[2,100]]"
    if name == "bert":  # XLNet takes texts of any length
        with pytest.raises(ConfigError) as caught:
            run(tmp_path, "task", *given, shapes)
        assert any(
            "tasks.max_length: got 200; must be <= 32" in line and "or teacher.window=32" in line
            for line in caught.value.messages
        )
        with pytest.raises(ConfigError, match=r"teacher\.window: got 40; must be <= 32"):
            run(tmp_path, "task", *given, shapes, "teacher.window=40")
    results = run(tmp_path, "task", *given, shapes, *SHORT, "teacher.window=32")
    assert any(
        note.startswith("The teacher processes texts in windows of at most 32 tokens") for note in results["notes"]
    )
    failed = {(m["backend"], m["scheme"]) for m in results["models"] if "failed" in m}
    timed = {(m["backend"], m["scheme"]) for m in results["models"] if m["role"] == "teacher"}
    # XLNet has no ONNX file; bf16 is tried where the processor has it.
    unable = {("torch", "bf16"), ("onnxruntime", "fp32"), ("openvino", "fp32"), ("openvino", "bf16")}
    assert failed == (set() if name == "bert" else unable & timed)

    from distill.data import tasks as sets

    out = tmp_path / "out"
    words = AutoTokenizer.from_pretrained(out / "finetune_teacher" / "package")
    model = AutoModelForSequenceClassification.from_pretrained(out / "finetune_teacher" / "package").eval()
    settings = config.load_config(["tasks.names=[package]", "limit=smoke"])
    loaded = sets.load_tasks(settings.tasks, settings.limit, 0).tasks
    rows = loaded["package"].reported["validation"]["text"]
    found = scored.logits(out, "package", "teacher torch fp32")
    specials = words("")["input_ids"]
    before = 0 if name == "xlnet" else 1
    long = 0
    for text, logits in zip(rows, found, strict=True):
        ids = words(text, truncation=True, max_length=200, add_special_tokens=False)["input_ids"][: 200 - len(specials)]
        room = 32 - len(specials)
        starts = [0] if len(ids) <= room else [*range(0, len(ids) - room, room - room // 4), len(ids) - room]
        long += len(starts) > 2
        parts = [specials[:before] + ids[start : start + room] + specials[before:] for start in starts]
        with torch.no_grad():
            said = [model(input_ids=torch.tensor([part])).logits[0].numpy() for part in parts]
        np.testing.assert_allclose(probabilities(logits), probabilities(np.stack(said)).mean(0), rtol=1e-3, atol=1e-5)
    assert long


@pytest.mark.slow
def test_weights_that_are_given_count(run: Any, tmp_path: Path) -> None:
    from distill.inference.mixture import average

    tiny.save(tmp_path / "one", "bert", "", length=130, **SMALL)
    names = ["teacher=ensemble", "teacher.names=[one,one]", "teacher.weights=[3,1]", "student.name=one"]
    run(tmp_path, "task", *names, "pipeline=[finetune_teacher,finetune]", *tasks("order"), *FEW[:2])
    # The targets are dropped after training: they are made again, by the weights and each teacher alone.
    made: dict[str, np.ndarray] = {}
    for weights in ("[3,1]", "[1,1]"):
        made[weights], alone = targets(tmp_path, weights)
    for weights, share in (("[3,1]", [3, 1]), ("[1,1]", [1, 1])):
        np.testing.assert_allclose(made[weights], average(alone, share), rtol=1e-4, atol=1e-5)


def targets(home: Path, weights: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of all teachers with these weights, and of each."""
    import contextlib

    from accelerate import Accelerator
    from rich.console import Console

    from distill.config.plan import resolve
    from distill.pipeline.context import Context
    from distill.pipeline.context.folder import RunFolder
    from distill.pipeline.stages import train
    from distill.pipeline.train_steps.teacher_logits import _logits, teacher_logits
    from distill.runtime.machine import Machine

    names = ["recipe=task", "teacher=ensemble", "teacher.names=[one,one]", f"teacher.weights={weights}"]
    settings = config.load_config([*names, "student.name=one", *tasks("order"), *FEW[:2]])
    machine = Machine(Accelerator(cpu=True), Console(quiet=True), "fp32", 1, 1, fast_float32=False)
    with contextlib.chdir(home):
        ctx = Context(settings, resolve(settings), "task", "", machine, RunFolder(Path("out")))
        data = ctx.tasks["order"]
        teacher = train.inputs(ctx, ctx.plan.steps[1]).members[0].teacher
        assert teacher is not None
        members = zip(teacher.models.folders["order"], teacher.models.tokenizers, strict=True)
        alone = [_logits(folder, words, data, data.train, None, ctx.runtime) for folder, words in members]
        return teacher_logits(teacher, data, ctx.runtime), alone
