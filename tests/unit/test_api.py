"""The functions on plain models, each used as in the cell of a notebook; transformers, torch and scikit-learn tell what
is right."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

import distill
from distill.compression.pruning.prune import everything, pruned
from distill.errors import ConfigError, DataError, UserError
from distill.models import families
from tests import tiny

TEXTS = [f"{first} {second}" for first in tiny.SENTENCES for second in tiny.SENTENCES]


@pytest.fixture(scope="module")
def words() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.model_max_length = 60
    return tokenizer


@pytest.fixture(scope="module")
def teacher(words: Any) -> Any:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 4}
    sizes |= {"vocab_size": len(words), "num_labels": 2, "length": 60}
    model = tiny.model("bert", "SequenceClassification", std=0.3, **sizes)
    with torch.no_grad():  # half of the texts are of each class, and none lies on the border
        model.classifier.weight *= 10
        logits = model(**words(TEXTS, padding=True, return_tensors="pt")).logits
        model.classifier.bias[1] -= (logits[:, 1] - logits[:, 0]).quantile(0.5)
    return model


@pytest.fixture(scope="module")
def rows(words: Any, teacher: Any) -> list[dict[str, Any]]:
    """Tokenized texts; their labels are mostly what the teacher says."""
    tokenized = [dict(words(text)) for text in TEXTS]
    with torch.no_grad():
        said = [int(teacher(**words(text, return_tensors="pt")).logits.argmax()) for text in TEXTS]
    flipped = np.random.default_rng(0).random(len(said)) < 0.2
    return [row | {"labels": int(label) ^ int(flip)} for row, label, flip in zip(tokenized, said, flipped, strict=True)]


@pytest.fixture(scope="module")
def batches(words: Any, rows: list[dict[str, Any]]) -> list[dict[str, Tensor]]:
    collate = DataCollatorWithPadding(words)
    return [dict(collate(rows[start : start + 8])) for start in range(0, len(rows), 8)]


def refused(error: type[Exception], act: Callable[[], Any]) -> str:
    with pytest.raises(error) as raised:
        act()
    return str(raised.value)


def test_a_student_has_the_layers_that_were_asked_for(teacher: Any) -> None:
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    halved, three, chosen = (
        distill.student(teacher),
        distill.student(teacher, layers=3),
        distill.student(teacher, [1, 2]),
    )
    assert [m.config.num_hidden_layers for m in (halved, three, chosen)] == [2, 3, 2]
    for ours, theirs in ((halved, (0, 3)), (three, (0, 2, 3)), (chosen, (1, 2))):
        for layer, number in zip(ours.bert.encoder.layer, theirs, strict=True):
            expected = teacher.bert.encoder.layer[number].state_dict()
            assert all(value.equal(expected[name]) for name, value in layer.state_dict().items())
    small = distill.student(teacher, 2, hidden=16, ffn=24, family="distilbert", init="random", seed=3)
    again = distill.student(teacher, 2, hidden=16, ffn=24, family="distilbert", init="random", seed=3)
    assert (small.config.model_type, small.config.dim, small.config.hidden_dim, small.config.n_heads) == (
        *("distilbert", 16, 24),
        2,
    )
    assert all(map(torch.equal, small.parameters(), again.parameters()))
    assert all(value.equal(before[name]) for name, value in teacher.state_dict().items())


def test_what_no_student_can_be_is_said_in_the_words_of_the_call(teacher: Any) -> None:
    lines = [
        refused(ConfigError, lambda: distill.student(teacher, 5)),
        refused(ConfigError, lambda: distill.student(teacher, [0, 9])),
        refused(ConfigError, lambda: distill.student(teacher, hidden=12)),
        refused(ConfigError, lambda: distill.student(teacher, family="gpt2")),
        refused(ConfigError, lambda: distill.student("my-bert")),
    ]
    assert [line.split(";")[0].split(", the")[0] for line in lines] == [
        "layers: got 5",
        "layers: got [0,9]",
        "hidden: got 12",
        "family: got gpt2",
        "teacher: got a str",
    ]
    assert not any("student." in line for line in lines)


def test_a_loop_of_ones_own_distils(teacher: Any, batches: list[dict[str, Tensor]]) -> None:
    student = distill.student(teacher, layers=2, dropout=0.0)
    loss_fn = distill.DistillationLoss(student, teacher, [distill.terms.SoftTargets(), distill.terms.Hidden()])
    optimizer = torch.optim.AdamW(loss_fn.parameters(), lr=2e-3)
    before = np.mean([loss_fn(batch)[0].item() for batch in batches])
    for batch in batches * 3:
        loss, _ = loss_fn(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert np.mean([loss_fn(batch)[0].item() for batch in batches]) < 0.5 * before


def test_pruning_to_sizes_keeps_what_matters(teacher: Any, batches: list[dict[str, Tensor]], tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in teacher.state_dict().items()}
    small = distill.prune(teacher, batches, layers=[0, 2], hidden=16, ffn=40)
    config = small.config
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (2, 16, 40)
    small.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    given = {name: value for name, value in batches[0].items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**given).logits, small.eval()(**given).logits)
    assert distill.prune(teacher, batches, layers=4).config.num_hidden_layers == 4
    with torch.no_grad():  # nothing is cut
        torch.testing.assert_close(distill.prune(teacher, batches, ffn=64)(**given).logits, teacher(**given).logits)
    assert all(value.equal(state[name]) for name, value in teacher.state_dict().items())


def test_the_layers_that_cost_least_are_cut(teacher: Any, batches: list[dict[str, Tensor]]) -> None:
    """Of a model one of whose layers does nothing, that layer goes first."""
    idle = distill.student(teacher, layers=4).eval()
    layer = idle.bert.encoder.layer[2]
    with torch.no_grad():
        for part in (layer.attention.output, layer.output):
            part.dense.weight.zero_()
            part.dense.bias.zero_()
            part.LayerNorm.weight.fill_(1.0)
            part.LayerNorm.bias.zero_()
        # The layer before it ends with a plain norm, so that another norm changes nothing.
        idle.bert.encoder.layer[1].output.LayerNorm.weight.fill_(1.0)
        idle.bert.encoder.layer[1].output.LayerNorm.bias.zero_()
    inputs = [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]
    with torch.no_grad():
        said = [batch | {"labels": idle(**batch).logits.argmax(-1)} for batch in inputs]
    small, (given, *_) = distill.prune(idle, said, layers=3), inputs
    with torch.no_grad():
        torch.testing.assert_close(small(**given).logits, idle(**given).logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_other_heads_are_pruned(head: str, words: Any) -> None:
    model = tiny.model("distilbert", head, std=0.3, vocab_size=len(words), num_hidden_layers=2)
    encoded = words(TEXTS[:6], padding=True, return_tensors="pt")
    labels = torch.where(encoded["attention_mask"] == 1, 1, -100)
    small = distill.prune(model, [{**encoded, "labels": labels}], layers=1, ffn=16)
    assert type(small) is type(model)
    assert (small.config.n_layers, small.config.hidden_dim) == (1, 16)


@pytest.mark.slow
def test_pruning_to_a_size_in_mib(teacher: Any, batches: list[dict[str, Tensor]]) -> None:
    mib = sum(parameter.numel() for parameter in teacher.parameters()) * 4 / 2**20
    lines: list[str] = []
    small = distill.prune(teacher, batches, size_mib=0.6 * mib, retrain_steps=1, log=lines.append)
    assert sum(parameter.numel() for parameter in small.parameters()) * 4 / 2**20 <= 0.6 * mib
    assert any("loss by size" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("eurobert", {"num_attention_heads": 4, "num_key_value_heads": 2}),
        ("deberta", {"talking_head": True, "num_attention_heads": 4}),
        ("deberta-v2", {"conv_kernel_size": 3, "num_attention_heads": 4}),
    ],
)
def test_models_whose_width_is_fixed_are_pruned_in_the_rest(
    name: str, settings: dict[str, int], words: Any, batches: list[dict[str, Tensor]]
) -> None:
    model = tiny.model(name, "SequenceClassification", std=0.3, vocab_size=len(words), length=60, **settings)
    small = distill.prune(model, batches[:2], layers=2, ffn=12)
    assert (small.config.num_hidden_layers, small.config.hidden_size, small.config.intermediate_size) == (2, 16, 12)
    assert small(**families.inputs(small, batches[0])).logits.isfinite().all()
    setting = next(iter(families.FAMILIES[name].unprunable))
    for act in (
        lambda: distill.prune(model, batches[:2], hidden=8),
        lambda: distill.prune(model, batches[:2], speedup=1.1),
        lambda: pruned(model, replace(everything(model), hidden=torch.arange(8), heads=[torch.arange(2)] * 3)),
    ):
        message = refused(ConfigError, act)
        assert message.startswith(f"prune: got a model with {setting} {settings[setting]}; must be ")


def test_what_cannot_be_pruned_is_refused(teacher: Any, batches: list[dict[str, Tensor]]) -> None:
    lines = {
        refused(ConfigError, lambda: distill.prune(teacher, batches)): "prune: got neither sizes nor a target; must be",
        refused(ConfigError, lambda: distill.prune(teacher, batches, ffn=8, speedup=2)): "prune: got sizes and a tar",
        refused(ConfigError, lambda: distill.prune(teacher, batches, layers=9)): "layers: got 9; must be from 1 to 4",
        refused(ConfigError, lambda: distill.prune(teacher, batches, layers=[3, 1])): "layers: got [3,1]; must be dis",
        refused(ConfigError, lambda: distill.prune(teacher, batches, hidden=20)): "hidden: got 20; must be",
        refused(DataError, lambda: distill.prune(teacher, [], layers=2)): "calibration: got no batch",
        refused(
            DataError, lambda: distill.prune(teacher, [{"input_ids": batches[0]["input_ids"]}], layers=2)
        ): "calibration: got a batch with rows without labels",
        refused(
            ConfigError, lambda: distill.prune(teacher, batches, size_mib=1e-6, retrain_steps=0)
        ): "size_mib: got 1e-06; must be",
    }
    assert {line: line.startswith(start) for line, start in lines.items()} == dict.fromkeys(lines, True)


@pytest.mark.slow
def test_a_quantized_model_is_benchmarked_evaluated_and_loaded(
    teacher: Any, rows: list[dict[str, Any]], words: Any, tmp_path: Path
) -> None:
    int8 = distill.quantize(teacher, "onnxruntime", out=tmp_path / "int8", tokenizer=words)
    assert int8.path.is_file()
    AutoModelForSequenceClassification.from_pretrained(int8.folder)
    models = {"teacher": teacher.train(), "folder": int8.folder, "int8": int8}

    table = distill.benchmark(models, shapes=[(2, 8)], texts=TEXTS[:9], tokenizer=words, repeats=2)
    assert [(row["model"], row["input"]) for row in table] == [
        (name, key) for key in ("2x8", "texts") for name in models
    ]
    assert all(row["ms"] > 0 and row["ci95"][0] <= row["speedup"] <= row["ci95"][1] for row in table)
    assert [row["speedup"] for row in table if row["model"] == "teacher"] == [1.0, 1.0]
    assert str(table).splitlines()[0].split() == [
        "model",
        "backend",
        "scheme",
        "input",
        "ms",
        "p90_ms",
        "speedup",
        "ci95",
    ]

    scored = distill.evaluate(models, rows, metrics=["f1", "accuracy"])
    teacher.eval()
    said = np.array([int(teacher(**words(text, return_tensors="pt")).logits.argmax()) for text in TEXTS])
    teacher.train()
    labels = np.array([row["labels"] for row in rows])
    assert scored[0]["scores"] == pytest.approx(
        {"f1": 100 * f1_score(labels, said), "accuracy": 100 * np.mean(labels == said)}
    )
    assert scored[1]["scores"] == scored[0]["scores"]
    assert scored[1]["retained"] == pytest.approx(100.0)
    assert scored[1]["retained_ci95"] is None  # the same predictions show no width
    ours, theirs = (np.mean(list(scored[at]["scores"].values())) for at in (2, 0))
    assert scored[2]["retained"] == pytest.approx(100 * ours / theirs)
    low, high = scored[0]["ci95"]["accuracy"]
    assert low < scored[0]["scores"]["accuracy"] < high
    assert "retained" in str(scored)
    assert teacher.training  # it was scored without dropout, and is trained with it
    teacher.eval()
    assert scored._repr_html_().startswith("<table><tr><th>model</th>")

    answers = distill.load(int8.folder, backend="onnxruntime").predict(TEXTS[:5])
    assert {answer["label"] for answer in answers} <= {"LABEL_0", "LABEL_1"}


def test_batches_and_rows_score_alike(
    teacher: Any, rows: list[dict[str, Any]], batches: list[dict[str, Tensor]]
) -> None:
    assert distill.evaluate({"teacher": teacher}, rows) == distill.evaluate({"teacher": teacher}, batches)
    some = [row if number % 3 else row | {"labels": -100} for number, row in enumerate(rows)]
    left = [row for row in some if row["labels"] != -100]
    assert distill.evaluate({"teacher": teacher}, some) == distill.evaluate({"teacher": teacher}, left)


@pytest.mark.parametrize(
    ("head", "settings", "labels"),
    [
        ("SequenceClassification", {"num_labels": 1}, [0.5, 2.0, -1.0, 0.0, 3.0, 1.0]),
        (
            "SequenceClassification",
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]],
        ),
        ("TokenClassification", {"num_labels": 3, "id2label": {0: "O", 1: "B-x", 2: "I-x"}}, None),
    ],
)
def test_models_of_other_tasks_are_evaluated(head: str, settings: dict[str, Any], labels: Any, words: Any) -> None:
    model = tiny.model("bert", head, std=0.4, vocab_size=len(words), **settings)
    rows = [dict(words(text)) for text in TEXTS[:6]]
    for number, row in enumerate(rows):
        row["labels"] = (
            [-100, *np.arange(number, number + len(row["input_ids"]) - 2) % 3, -100]
            if labels is None
            else labels[number]
        )
    (row,) = distill.evaluate({"model": model}, rows)
    given = [{name: torch.tensor([value]) for name, value in row.items()} for row in rows]
    with torch.no_grad():
        outputs = [model(**{n: v for n, v in each.items() if n != "labels"}).logits[0].numpy() for each in given]
    if head == "TokenClassification":
        (accuracy,) = distill.evaluate({"model": model}, rows, metrics=["accuracy"])
        said = np.concatenate([each[1:-1].argmax(-1) for each in outputs])
        assert accuracy["scores"]["accuracy"] == pytest.approx(
            100 * np.mean(said == np.concatenate([each["labels"][1:-1] for each in rows]))
        )
    elif settings["num_labels"] == 1:
        expected = 100 * np.corrcoef([each[0] for each in outputs], labels)[0, 1]
        assert row["scores"]["pearson"] == pytest.approx(expected, rel=1e-3)
    else:
        said = np.array(outputs) > 0
        assert row["scores"]["f1_micro"] == pytest.approx(100 * f1_score(labels, said, average="micro"))


def test_what_cannot_be_measured_is_refused(
    teacher: Any, rows: list[dict[str, Any]], words: Any, tmp_path: Path
) -> None:
    answers = tiny.model("bert", "QuestionAnswering")
    three = tiny.model("bert", "SequenceClassification", num_labels=3)
    named, swapped = (tiny.model("bert", "SequenceClassification", id2label=dict(enumerate(ab))) for ab in ("ab", "ba"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    bare = [{"input_ids": row["input_ids"]} for row in rows]
    lines = {
        refused(ConfigError, lambda: distill.quantize(teacher, "int3", out=tmp_path / "a")): "scheme: got int3; must",
        refused(
            ConfigError, lambda: distill.quantize(teacher, "onnxruntime_static", out=tmp_path / "a")
        ): "calibration: got none; must be batches for onnxruntime_static",
        refused(
            UserError, lambda: distill.quantize(teacher, "onnxruntime", out=tmp_path / "full")
        ): f"{tmp_path / 'full'}: got a folder with files",
        refused(ConfigError, lambda: distill.benchmark({})): "benchmark: got nothing to time",
        refused(ConfigError, lambda: distill.benchmark({"a": teacher}, texts=["b"])): "tokenizer: got None; must be",
        refused(ConfigError, lambda: distill.evaluate({}, rows)): "models: got none; must be at least one",
        refused(ConfigError, lambda: distill.evaluate({"a": answers}, rows)): "models: got a BertForQuestionAnswering",
        refused(
            ConfigError, lambda: distill.evaluate({"a": teacher, "b": three}, rows)
        ): "models: got b for classification with 3 labels; must be for classification with 2, as a is",
        refused(
            ConfigError, lambda: distill.evaluate({"a": named, "b": swapped}, rows)
        ): "models: got b with the labels b, a; must be in the order of the other model, a, b",
        refused(
            ConfigError, lambda: distill.evaluate({"a": teacher}, rows, metrics=["bleu"])
        ): "metrics: got bleu; must be one of",
        refused(DataError, lambda: distill.evaluate({"a": named}, rows)): "dataset: got token 11",
        refused(DataError, lambda: distill.evaluate({"a": teacher}, bare)): "dataset: got rows without labels",
        refused(DataError, lambda: distill.evaluate({"a": teacher}, [])): "dataset: got no rows",
        refused(DataError, lambda: distill.evaluate({"a": teacher}, [{"text": "b"}])): "dataset: got a row or batch",
        refused(
            DataError, lambda: distill.evaluate({"a": teacher}, [row | {"labels": 2} for row in rows])
        ): "dataset: got the label 2; must be a whole number from 0 to 1",
    }
    assert {line: line.startswith(start) for line, start in lines.items()} == dict.fromkeys(lines, True)
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "a").exists()


def test_every_public_name_is_found_late() -> None:
    assert {name: hasattr(distill, name) for name in distill.__all__} == dict.fromkeys(distill.__all__, True)
    assert set(distill.__all__) <= set(dir(distill))


def test_every_public_name_has_a_type() -> None:
    """What an editor and mypy import is what is found late."""
    tree = ast.parse(Path(str(distill.__file__)).read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: getattr(distill, name) for name in distill.__all__ if name != "__version__"}
