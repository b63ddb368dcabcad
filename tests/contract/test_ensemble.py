"""Several teachers as one, and teachers that read a long text in windows: from the command to the report."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import checkpoint, config, report, teacher
from distill.config import ConfigError

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
ALIGN = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "data" / "test_align.py"))
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
FEW = ["limit=smoke", "limit.steps=3", "limit.documents=60", "limit.repeats=1", "stages.evaluate.shapes=[[2,16]]"]


def bpe(folder: Path, name: str, head: str, **settings: Any) -> Path:
    """A tiny model that reads with another tokenizer than `TINY["save"]` gives."""
    words = ALIGN["bpe"]()
    TINY["model"](name, head, vocab_size=len(words), **SMALL, **settings).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def tasks(*names: str) -> list[str]:
    return ["tasks=docstrings", f"tasks.names=[{','.join(names)}]", "output=out"]


def probabilities(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["[3,1]", "learned"])
def test_teachers_of_two_families_and_tokenizers_teach_as_one(weights: str, run: Any, tmp_path: Path) -> None:
    TINY["save"](tmp_path / "one", "bert", "", length=130, **SMALL)
    bpe(tmp_path / "two", "roberta", "", length=130)
    bpe(tmp_path / "student", "electra", "", length=130)
    given = ["teacher=ensemble", "teacher.names=[one,two]", f"teacher.weights={weights}", "student.name=student"]
    results = run(tmp_path, "task", *given, *tasks("order", "overlap"), *FEW)
    assert report.validate(results) == []
    assert [model["failed"] for model in results["models"] if "failed" in model] == []

    out = tmp_path / "out"
    manifest = checkpoint.read_json(out / "finetune_teacher" / checkpoint.MANIFEST)
    shares = manifest["weights"] if weights == "learned" else {"order": [0.75, 0.25], "overlap": [0.75, 0.25]}
    assert all(sum(of_task) == pytest.approx(1) for of_task in shares.values())
    kinds = [checkpoint.read_json(out / "finetune_teacher" / n / "order" / "config.json") for n in ("1", "2")]
    assert [kind["model_type"] for kind in kinds] == ["bert", "roberta"]

    models = {(m["name"], m["backend"], m["scheme"]): m for m in results["models"]}
    best = next(m["scheme"] for m in results["models"] if m["name"] == "member 1")
    together, *alone = (models[name, "torch", best] for name in ("teacher", "member 1", "member 2"))
    assert together["parameters"] == sum(model["parameters"] for model in alone)
    assert all(model["role"] == "member" and model["retained"]["macro"] for model in alone)
    for task, of_task in shares.items():
        with np.load(out / "evaluate" / f"{task}.npz") as stored:
            said = [stored[f"{name} torch {best}|validation"] for name in ("teacher", "member 1", "member 2")]
        if task == "overlap":
            wanted = of_task[0] * said[1] + of_task[1] * said[2]
            np.testing.assert_allclose(said[0], wanted, rtol=1e-4, atol=1e-5)
        else:
            wanted = of_task[0] * probabilities(said[1]) + of_task[1] * probabilities(said[2])
            np.testing.assert_allclose(probabilities(said[0]), wanted, rtol=1e-4, atol=1e-6)
    order = " and ".join(f"{100 * share:.0f}%" for share in shares["order"])
    assert f"Shares of the members in order: {order.replace(' and ', ', ')}." in results["notes"]
    assert results["teacher_name"] == "an ensemble of one, two"
    rows = [checkpoint.read_json(out / "finetune_teacher" / n / "order" / checkpoint.MANIFEST) for n in ("1", "2")]
    assert all(row["steps"] == 3 for row in rows)


def test_the_rows_that_weights_are_learned_on_train_no_teacher() -> None:
    from types import SimpleNamespace

    from datasets import Dataset

    from distill.stages.train import _kept_apart

    data: Any = SimpleNamespace(train=Dataset.from_dict({"text": [str(n) for n in range(25)]}))
    for weights, most in (("learned", 23), ([1, 2], 25), (None, 25)):
        ctx: Any = SimpleNamespace(config=config.Config(teacher=config.Teacher(kind="ensemble", weights=weights)))
        kept, apart = _kept_apart(ctx, data)
        assert len(kept) == most
        assert sorted([*kept["text"], *apart["text"]], key=int) == data.train["text"]


def test_on_a_corpus_probabilities_of_tokens_are_averaged(run: Any, tmp_path: Path) -> None:
    pipeline = ["pipeline=[adapt,pretrain,finetune_teacher,finetune]", "~stages.pretrain.terms.cosine", "output=out"]
    for name, layers in (("one", 2), ("two", 3)):
        TINY["save"](tmp_path / name, "bert", "MaskedLM", **SMALL | {"num_hidden_layers": layers}, length=130)
    names = ["teacher=ensemble", "teacher.names=[one,two]", "student.layers=[0]"]
    run(tmp_path, "distilbert", *names, *pipeline, *tasks("order")[:2], *FEW[:4])
    manifest = checkpoint.read_json(tmp_path / "out" / "pretrain" / checkpoint.MANIFEST)
    assert set(manifest["log"][-1]["terms"]) == {"soft_targets", "mlm"}
    assert "skipped" in checkpoint.read_json(tmp_path / "out" / "adapt" / checkpoint.MANIFEST)
    model, _ = teacher.load_mlm(tmp_path / "out" / "pretrain")
    assert model.config.num_hidden_layers == 1


def test_what_an_ensemble_cannot_do_is_refused(run: Any, tmp_path: Path) -> None:
    TINY["save"](tmp_path / "one", "bert", "MaskedLM", **SMALL, length=130)
    bpe(tmp_path / "two", "roberta", "MaskedLM", length=130)
    names = ["teacher=ensemble", "teacher.names=[one,two]"]
    with pytest.raises(AssertionError, match=r"terms\.cosine\.features: got hidden; must be logits with teacher=en"):
        run(tmp_path, "distilbert", *names, *FEW)
    with pytest.raises(ConfigError, match=r"teacher\.names: got teachers with different tokenizers; .*recipe=task"):
        run(tmp_path, "distilbert", *names, "~stages.pretrain.terms.cosine", *FEW)
    for weights in ("[1]", "[1,-1]", "best", "[1,x]"):
        with pytest.raises(AssertionError, match=r"teacher\.weights: got .*; must be learned, or a number above 0"):
            run(tmp_path, "task", *names, f"teacher.weights={weights}", *FEW)
    with pytest.raises(AssertionError, match=r"teacher\.names: got \['one'\]; must be two"):
        run(tmp_path, "task", "teacher=ensemble", "teacher.names=[one]", *FEW)
    with pytest.raises(AssertionError, match=r"teacher\.weights: got \[1, 2\]; must be left out with teacher=hub"):
        run(tmp_path, "task", "teacher.name=one", "teacher.weights=[1,2]", *FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "xlnet"])
def test_a_teacher_reads_a_long_text_in_windows(name: str, run: Any, tmp_path: Path) -> None:
    """The student reads it whole; what the teacher says of it is the mean over windows."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    TINY["save"](tmp_path / "teacher", name, "", **(SMALL | {"length": 32} if name == "bert" else {}))
    TINY["save"](tmp_path / "student", "modernbert", "", **SMALL, length=256)
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
    results = run(tmp_path, "task", *given, shapes, "teacher.window=32")
    assert any(note.startswith("The teacher reads windows of at most 32 tokens") for note in results["notes"])
    failed = {(m["role"], m["backend"]) for m in results["models"] if "failed" in m}
    assert failed == (set() if name == "bert" else {("teacher", "torch"), ("teacher", "onnxruntime")})

    from distill.data import tasks as sets

    out = tmp_path / "out"
    words = AutoTokenizer.from_pretrained(out / "finetune_teacher" / "package")
    model = AutoModelForSequenceClassification.from_pretrained(out / "finetune_teacher" / "package").eval()
    loaded, _ = sets.load_tasks(config.Tasks(names=["package"]), config.Limit(smoke=True), 0)
    rows = loaded["package"].validation["validation"]["text"]
    with np.load(out / "evaluate" / "package.npz") as stored:
        found = stored[next(key for key in stored if key.startswith("teacher torch fp32"))]
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
