"""Every family from a plain folder to its report, and the stage that gives a teacher a language-model head."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.models import families, teacher
from distill.models.families.record import TEXTS
from distill.runtime.storage import atomic, checksums, run_folder
from tests import scored, tiny

SAME = tiny.SAME
SHAPES = [name for name in families.STUDENTS if name not in SAME]
LAYERS = 4


def folder(home: Path, name: str, head: str, layers: int = LAYERS) -> Path:
    """A tiny random model with a tokenizer; `head` as in transformers' class names, "" for none."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers, "length": 130}
    return tiny.save(home / "teacher", name, head, **sizes)


def arguments(given: Path, *pipeline: str) -> list[str]:
    few = [f"pipeline=[{','.join(pipeline)}]"] if pipeline else []
    small = ["limit=smoke", "limit.documents=60", "corpus.max_length=32"]
    return ["teacher=hub", f"teacher.name={given}", *small, "output=out", *few]


def whole(path: Path, auto: Any) -> Any:
    """The model of a folder, every parameter of it stored there."""
    model, told = auto.from_pretrained(path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    return model


def test_every_family_is_tiny_somewhere() -> None:
    assert list(tiny.FAMILIES) == list(families.STUDENTS)
    assert [*tiny.FAMILIES, *tiny.TEACHERS] == list(families.FAMILIES)
    for name, other in SAME.items():
        one, same = families.FAMILIES[name], families.FAMILIES[other]
        alike: dict[str, Any] = {"name": "", "encoder": "", "pooler": "", "segment_head": None}
        assert replace(one, **alike) == replace(same, **alike)


REPORTED = ["modernbert"]
"""Families that go on to tasks and a report. BERT does in every recipe. That others learn tasks, are exported,
quantized and served is in test_kinds, test_cross_encoder and test_compression, and that a form which fails is reported
in test_ensemble."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_bare_encoder_is_a_teacher_and_gets_a_student(name: str, run: Any, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

    layers = 2 if name in REPORTED else LAYERS  # ONNX exports take seconds a layer
    given = folder(tmp_path, name, "", layers)
    assert teacher.load_mlm(given)[1] is False
    few = [
        "tasks.names=[order]",
        "stages.quantize.schemes=[bitsandbytes,onnxruntime]",
        "limit.repeats=1",
        "limit.steps=3",
        "stages.evaluate.shapes=[[1,16]]",
    ]
    out = tmp_path / "out"
    results = run(tmp_path, "distilbert", *arguments(given, *[] if name in REPORTED else ["adapt", "pretrain"]), *few)
    adapted, student = whole(out / "adapt", AutoModelForMaskedLM), whole(out / "pretrain", AutoModelForMaskedLM)
    assert teacher.load_mlm(out / "adapt")[1] is True
    assert adapted.config.model_type == student.config.model_type == name
    assert (adapted.config.num_hidden_layers, student.config.num_hidden_layers) == (layers, layers // 2)
    start, trained = teacher.load_mlm(given)[0].state_dict(), adapted.state_dict()
    moved = [key for key in start if not torch.equal(start[key], trained[key])]
    assert any(key.startswith(families.FAMILIES[name].mlm_head[0]) for key in moved), "the head is trained"
    assert any(families.FAMILIES[name].layers in key for key in moved), "and the encoder with it"
    if name not in REPORTED:
        return
    assert {model["role"] for model in results["models"]} == {"teacher", "student", "baseline"}
    assert [model["failed"] for model in results["models"] if "failed" in model] == []
    for stage, left in (("finetune_teacher", layers), ("export", layers // 2)):
        classifier = whole(out / stage / "order", AutoModelForSequenceClassification)
        assert classifier.config.num_hidden_layers == left
        assert classifier.config.num_labels == 2
    proofs = atomic.read_json(out / "export" / run_folder.MANIFEST)["proofs"]["order"]
    assert set(proofs) == {"torch float", "onnxruntime fp32", "onnxruntime int8", "bitsandbytes int8"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("electra", "modernbert"))]
)
def test_a_teacher_with_a_head_is_not_adapted(name: str, run: Any, tmp_path: Path, capsys: Any) -> None:
    import torch

    given = folder(tmp_path, name, "MaskedLM")
    before = (given / "model.safetensors").read_bytes()
    run(tmp_path, "distilbert", *arguments(given, "adapt", "pretrain"), "limit.steps=1")
    assert "adapt: the teacher has a language-model head" in capsys.readouterr().out.splitlines()
    manifest = atomic.read_json(tmp_path / "out" / "adapt" / run_folder.MANIFEST)
    assert manifest["skipped"] == "the teacher has a language-model head"
    assert {file.name for file in (tmp_path / "out" / "adapt").iterdir()} == {run_folder.MANIFEST, checksums.SUMS}
    assert (given / "model.safetensors").read_bytes() == before
    made, _ = teacher.load_mlm(tmp_path / "out" / "pretrain")
    original, _ = teacher.load_mlm(given)
    # One step at the start of the warm-up moves each weight by less than the learning rate.
    last = families.layers(made)[-1].state_dict()
    torch.testing.assert_close(last, families.layers(original)[-1].state_dict(), rtol=0, atol=1e-3)


def test_without_texts_long_enough_there_is_nothing_to_learn_from(run: Any, tmp_path: Path) -> None:
    from distill.errors import UserError

    (tmp_path / "short.txt").write_text("tea\nmore tea\n")
    given = folder(tmp_path, "bert", "")
    with pytest.raises(UserError, match=r"corpus\.path: got no sequence of 12 tokens"):
        run(tmp_path, "distilbert", *arguments(given, "adapt"), "corpus=text", "corpus.path=short.txt")


STUDENTS = {
    "another family": (["student.family=distilbert"], "distilbert", 32),
    "narrower": (["student.hidden_size=16"], "bert", 16),
    "narrower embeddings": (["student.family=electra", "student.embedding_size=8"], "electra", 32),
    "shared layers": (["student.family=albert"], "albert", 32),
    "from nothing": (["student=random", "student.family=modernbert", "student.hidden_size=16"], "modernbert", 16),
}
"""Settings of a student of a BERT teacher, its family and its width."""
QUICK = ("another family", "from nothing")
"""The others are trained among the slow tests; the unit tests build every one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in STUDENTS]
)
def test_a_student_of_another_shape_learns_a_task(name: str, run: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    settings, kind, width = STUDENTS[name]
    given = folder(tmp_path, "bert", "MaskedLM")
    pipeline = ["adapt", "pretrain", "finetune_teacher", "finetune"]
    run(tmp_path, "distilbert", *arguments(given, *pipeline), "tasks.names=[order]", "limit.steps=2", *settings)
    made = whole(tmp_path / "out" / "finetune" / "order", AutoModelForSequenceClassification)
    assert (made.config.model_type, made.config.hidden_size) == (kind, width)
    words = AutoTokenizer.from_pretrained(tmp_path / "out" / "finetune" / "order")
    assert words.model_input_names == list(families.input_names(made.config))


@pytest.mark.slow
def test_a_student_with_a_tokenizer_of_its_own_goes_the_whole_way(run: Any, tmp_path: Path) -> None:
    """Another family and other tokens: hidden states compared by word, tasks by soft targets."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    align = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "data" / "test_align.py"))
    align["bpe"]().save_pretrained(tmp_path / "words")
    given = folder(tmp_path, "bert", "MaskedLM")
    own = ["student.tokenizer=words", "student.family=roberta", "student.hidden_size=16"]
    few = ["tasks.names=[order]", "limit.repeats=1", "limit.steps=3", "stages.evaluate.shapes=[[1,16]]"]
    with pytest.raises(AssertionError, match=r"terms.soft_targets.features: got logits; must be hidden"):
        run(tmp_path, "distilbert", *arguments(given), *few, *own)
    own += ["stages.quantize.schemes=[bitsandbytes]"]
    results = run(
        tmp_path, "distilbert", *arguments(given), *few, *own, "~stages.pretrain.terms.soft_targets", onnx=False
    )
    assert [model["failed"] for model in results["models"] if "failed" in model] == []
    made = whole(tmp_path / "out" / "export" / "order", AutoModelForSequenceClassification)
    words = AutoTokenizer.from_pretrained(tmp_path / "out" / "export" / "order")
    assert (made.config.model_type, made.config.vocab_size) == ("roberta", len(words))
    assert words.convert_ids_to_tokens([0, 1, 2]) == ["<s>", "<pad>", "</s>"]
    pretrained, baseline = (
        atomic.read_json(tmp_path / "out" / stage / run_folder.MANIFEST) for stage in ("pretrain", "pretrain_baseline")
    )
    assert set(pretrained["log"][-1]["terms"]) == {"mlm", "cosine"}
    same = ("steps", "tokens", "corpus")
    assert [pretrained[key] for key in same] == [baseline[key] for key in same]
    answers_alone(tmp_path / "out", made, "student torch fp32", "finetune")


def answers_alone(out: Path, model: Any, form: str, stage: str = "finetune_teacher") -> None:
    """What was scored is what the model answers to each text alone, in its own tokens."""
    import torch
    from transformers import AutoTokenizer

    from distill import config
    from distill.data import tasks

    words = AutoTokenizer.from_pretrained(out / stage / "order")
    settings = config.load_config(["tasks.names=[order]", "limit=smoke"])
    loaded = tasks.load_tasks(settings.tasks, settings.limit, 0).tasks
    rows = loaded["order"].reported["validation"]
    found = scored.logits(out, "order", form)
    assert len(found) == len(rows)
    for row, logits in zip(rows, found, strict=True):
        batch = words(row["sentence1"], row["sentence2"], truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            answer = model.eval()(**{k: batch[k] for k in families.input_names(model.config)}).logits[0].numpy()
        np.testing.assert_allclose(logits, answer, rtol=1e-3, atol=1e-4)


GUIDES = [name for name in tiny.TEACHERS if TEXTS not in families.FAMILIES[name].without]
WHOLE_WAY = ("t5",)
"""Teachers of tasks that are scored too. XLNet's answers are in test_ensemble."""


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in WHOLE_WAY)) for name in GUIDES]
)
def test_a_teacher_of_tasks_teaches_a_student_that_is_given(name: str, run: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    whole_way = name in WHOLE_WAY
    one = {"num_layers": 1} if whole_way else {}
    tiny.save(tmp_path / "teacher", name, "SequenceClassification", num_labels=2, **one)
    align = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "data" / "test_align.py"))
    words = align["bpe"]()
    student = tiny.model("roberta", "", vocab_size=len(words), num_hidden_layers=1, length=130)
    student.save_pretrained(tmp_path / "student")
    words.save_pretrained(tmp_path / "student")
    settings = [f"teacher.name={tmp_path / 'teacher'}", f"student.name={tmp_path / 'student'}", "limit=smoke"]
    settings += ["tasks=docstrings", "tasks.names=[order]", "limit.steps=2", "output=out"]
    stages = ["finetune_teacher", "finetune", *(["quantize", "evaluate"] if whole_way else [])]
    settings += [f"pipeline=[{','.join(stages)}]", "limit.repeats=1", "stages.evaluate.shapes=[[1,16]]"]
    settings += ["stages.evaluate.baseline=null", "stages.quantize.schemes=[bitsandbytes]"]
    results = run(tmp_path, "task", *settings, onnx=False)
    taught = whole(tmp_path / "out" / "finetune" / "order", AutoModelForSequenceClassification)
    assert taught.config.model_type == "roberta"
    guide = whole(tmp_path / "out" / "finetune_teacher" / "order", AutoModelForSequenceClassification)
    assert (guide.config.model_type, guide.config.pad_token_id) == (name, 1)
    if whole_way:
        rows = {(model["role"], model["backend"], model["scheme"]): model for model in results["models"]}
        assert "failed" not in rows["teacher", "torch", "fp32"]
        assert "failed" not in rows["student", "bitsandbytes", "int8"]
        answers_alone(tmp_path / "out", guide, "teacher torch fp32")


def test_padding_to_the_left_changes_nothing_where_a_model_answers_at_the_last_token(tmp_path: Path) -> None:
    import torch

    from distill.data.collate import pad
    from distill.data.encode import Encoded

    model = tiny.model("xlnet", "SequenceClassification", num_labels=2)
    rows = Encoded(np.arange(5, 24, dtype=np.int32), np.array([0, 8, 19]), None, None)
    both = {k: torch.from_numpy(v) for k, v in pad(rows, [0, 1], 1, left=True).items()}
    assert both["attention_mask"][0].tolist() == [0] * 8 + [1] * 8
    with torch.no_grad():
        together = model(**families.inputs(model, both)).logits
        for number in (0, 1):
            alone = {k: torch.from_numpy(v) for k, v in pad(rows, [number], 1, left=True).items()}
            logits = model(**families.inputs(model, alone)).logits[0]
            torch.testing.assert_close(together[number], logits, rtol=1e-4, atol=1e-5)


def test_a_teacher_of_tasks_cannot_teach_on_a_corpus(run: Any, tmp_path: Path) -> None:
    from distill.errors import ConfigError

    tiny.save(tmp_path / "teacher", "xlnet", "SequenceClassification", num_labels=2)
    with pytest.raises(ConfigError, match=r"teacher\.name: got a model of type xlnet; .* use recipe=task"):
        run(tmp_path, "distilbert", *arguments(tmp_path / "teacher"), "tasks.names=[order]")


def test_a_student_that_cannot_be_is_refused_before_anything_is_trained(run: Any, tmp_path: Path) -> None:
    from distill.errors import ConfigError

    given = folder(tmp_path, "bert", "")
    with pytest.raises(ConfigError, match=r"student\.init: got teacher_layers; must be random"):
        run(tmp_path, "distilbert", *arguments(given), "student.family=modernbert")
    assert not (tmp_path / "out" / "adapt").exists()
