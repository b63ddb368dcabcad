"""Whole runs on a user's own files, from a CSV to exported folders, and a given teacher that is used as it is."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill import config
from distill.data.task_types import TASK_TYPES
from distill.errors import UserError
from distill.models.families.head import stored_head
from distill.pipeline import validation
from distill.pipeline.stages import quantize
from distill.runtime.storage import atomic, run_folder
from tests import tiny

COUNT = 64
SUBJECTS = [f"{tiny.SENTENCES[i % 8]} on day {i}" for i in range(COUNT)]
QUEUES = ("billing", "fraud", "other")

LABELS: dict[str, Sequence[Any]] = {
    "classification": [QUEUES[i % 3] for i in range(COUNT)],
    "multi_label": ["|".join(QUEUES[: i % 4]) for i in range(COUNT)],
    "regression": [f"{i % 7 / 2:g}" for i in range(COUNT)],
    "reranking": [i % 3 for i in range(COUNT)],
}
"""Kind -> values of the label column."""
NAMES = {"classification": QUEUES, "multi_label": QUEUES}
SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "output=out",
    "target.speedup=1.05", "target.shape=[1,16]", "stages.quantize.schemes=[onnxruntime]",
    "stages.quantize.max_drop=null", "stages.evaluate.shapes=[[1,16]]", "stages.evaluate.baseline=null",
    "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]",
)  # fmt: skip


def write(file: Path, columns: dict[str, Sequence[Any]]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as to:
        writer = csv.writer(to)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return file


def test_every_kind_has_labels() -> None:
    assert LABELS.keys() == {name for name, kind in TASK_TYPES.items() if kind.prepare is None and not kind.separate}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LABELS)
def test_a_csv_becomes_exported_models(kind: str, run: Any, tmp_path: Path) -> None:
    columns: dict[str, Sequence[Any]] = {"body": SUBJECTS, "label": LABELS[kind]}
    if kind == "reranking":
        columns = {"query": [tiny.SENTENCES[i // 8] for i in range(COUNT)], "document": SUBJECTS} | columns
        del columns["body"]
    margins = ["stages.recover.terms.margins.weight=0.5"] * TASK_TYPES[kind].grouped
    file = write(tmp_path / "tickets.csv", columns)
    # Of these rows without labels, the copies are of training rows or of rows that are set aside.
    texts = {
        name: [*values, *(" ".join(f"{value}".split()[::-1]) for value in values)] for name, values in columns.items()
    }
    unlabelled = write(tmp_path / "more.csv", {name: texts[name] for name in columns if name != "label"})
    more = [f"transfer.files={unlabelled}", "limit.steps=8", "stages.prune.dimensions=[layers]", "target.scheme=fp32"]
    results = run(tmp_path, "prune", *SMALL, *margins, *more, f"tasks.train={file}")
    settings = json.loads((tmp_path / "out" / "export" / "tickets" / "config.json").read_text())
    assert settings["problem_type"] == TASK_TYPES[kind].problem
    names = NAMES.get(kind)
    if names is not None:
        assert settings["id2label"] == {str(number): name for number, name in enumerate(names)}
        assert settings["label2id"] == {name: number for number, name in enumerate(names)}
    rows = {row["split"]: row["rows"] for row in results["coverage"] if row["task"] == "tickets"}
    # A tenth of eight queries may be none.
    assert {"train", "validation"} <= rows.keys() <= {"train", "development", "validation"}
    assert kind == "reranking" or "development" in rows
    assert 32 <= rows["train"] <= 48
    assert 2 <= rows["validation"] <= 24
    assert any(note.startswith("tickets: text from ") and kind in note for note in results["notes"])
    assert any("set aside for validation, by a hash of their text" in note for note in results["notes"])
    manifest = atomic.read_json(tmp_path / "out" / "recover" / "tickets" / run_folder.MANIFEST)
    assert ("margins" in manifest["log"][-1]["terms"]) == TASK_TYPES[kind].grouped
    made = manifest["transfer"]
    assert made["sources"].keys() == {"files", "edits", *(["pairs"] if kind == "reranking" else [])}
    assert made["held_out"] >= rows["validation"]
    assert 0 < made["used"] <= sum(made["sources"].values()) <= 5 * rows["train"]
    (note,) = (note for note in results["notes"] if "rows without labels" in note)
    assert f"{made['sources']['files']:,} of transfer.files" in note
    scores = [model["scores"]["tickets"] for model in results["models"] if model["scores"].get("tickets")]
    assert len(scores) >= 4  # teacher and student, each in float32 and int8
    assert all(score.keys() == {*TASK_TYPES[kind].metrics} for score in scores)
    beside = [model.get("beside", {}).get("tickets") for model in results["models"] if model["scores"].get("tickets")]
    assert all(each.keys() == {"map"} if kind == "reranking" else each is None for each in beside)
    model = distill.load(tmp_path / "out" / "export" / "tickets")
    assert model.labels == (names or ())
    assert model.thresholds.keys() == ({*QUEUES} if kind == "multi_label" else set())
    given = [("a query", "a document")] if kind == "reranking" else ["the small boat"]
    assert model.predict(given)[0].keys() >= (
        {"label", "scores"} if kind == "classification" else {"score"} if names is None else {"labels"}
    )
    if kind == "reranking":
        scores_as_in_sentence_transformers(tmp_path / "out" / "export" / "tickets")


def scores_as_in_sentence_transformers(folder: Path) -> None:
    """By the code of the model card: sigmoids of the raw outputs, because the teacher sets no activation."""
    from sentence_transformers import CrossEncoder

    usage = (folder / "README.md").read_text().split("## Usage\n")[1].split("\n## ")[0]
    code = "".join(re.findall(r"^```\w*\n(.*?)^```$", usage, re.DOTALL | re.MULTILINE))
    found: dict[str, Any] = {}
    exec(code.replace("FOLDER_OF_THIS_FILE", str(folder)), found)
    model, pairs = distill.load(folder, backend="torch"), [("a query", "a document"), ("a query", "another document")]
    np.testing.assert_allclose([row["score"] for row in model.predict(pairs)], found["scores"], atol=1e-5)
    np.testing.assert_allclose(1 / (1 + np.exp(-model.outputs(pairs)[:, 0])), found["scores"], atol=1e-5)
    assert {row["corpus_id"] for row in found["ranked"]} == {0, 1}
    long, reader = [("a query", "a long document " * 99)], CrossEncoder(str(folder), device="cpu")
    np.testing.assert_allclose(model.predict(long)[0]["score"], reader.predict(long)[0], atol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_a_given_teacher_with_the_tasks_head_is_used_as_it_is(kind: str, run: Any, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    order = ["Other", "billing", "FRAUD"]
    names = {"id2label": dict(enumerate(order)), "label2id": {name: number for number, name in enumerate(order)}}
    problem = {} if kind == "multi_label" else {"problem_type": TASK_TYPES[kind].problem}  # which many teachers lack
    given = tiny.save(
        tmp_path / "given", "bert", "SequenceClassification", length=64, num_labels=3, std=0.3, **names, **problem
    )
    file = write(tmp_path / "tickets.csv", {"body": SUBJECTS, "queue": LABELS[kind]})
    listed = "tasks.labels=[fraud,other,billing]"  # without it the teacher's order is the task's
    settings = [
        "limit=smoke",
        "pipeline=[finetune_teacher]",
        "target.speedup=null",
        f"teacher.name={given}",
        f"tasks.train={file}",
    ]
    settings += ["tasks.max_length=32", f"tasks.kind={kind}"]
    run(tmp_path, "prune", *settings, listed, "output=out")
    run(tmp_path, "prune", *settings, "output=as_it_is")
    taken, same = (tmp_path / name / "finetune_teacher" / "tickets" for name in ("out", "as_it_is"))
    for folder in (taken, same):
        manifest = atomic.read_json(folder / run_folder.MANIFEST)
        assert (manifest["steps"], manifest["tokens"]) == (0, 0)
    tokens = AutoTokenizer.from_pretrained(given)(tiny.SENTENCES, return_tensors="pt", padding=True)

    def logits(folder: Path) -> np.ndarray:
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            return np.asarray(model(**tokens).logits)

    np.testing.assert_array_equal(logits(taken), logits(given)[:, [2, 0, 1]])
    np.testing.assert_array_equal(logits(same), logits(given))
    heads = [stored_head(folder) for folder in (taken, same)]
    assert [head.labels for head in heads if head] == [("fraud", "other", "billing"), ("Other", "billing", "FRAUD")]
    assert [head.problem for head in heads if head] == [TASK_TYPES[kind].problem] * 2


@pytest.mark.slow
def test_a_student_learns_from_soft_labels(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher's outputs are computed only if a row has no soft label. With a term on hidden states it also runs."""
    from distill.pipeline.train_steps import teacher_logits

    asked, whole = [], teacher_logits.teacher_logits
    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *a: asked.append(a[1].task.name) or whole(*a))
    soft = [json.dumps({queue: 0.9, QUEUES[(i + 1) % 3]: 0.1}) for i, queue in enumerate(LABELS["classification"])]
    most = [value if i % 4 else "" for i, value in enumerate(soft)]
    columns = {"body": SUBJECTS, "queue": LABELS["classification"], "all": soft, "most": most}
    few = [*SMALL, "pipeline=[finetune_teacher,prune,recover]", "transfer=none"]
    file = write(tmp_path / "tickets.csv", columns)
    hidden = ["+term@stages.recover.terms.hidden=hidden", "stages.recover.terms.hidden.layers=last"]
    for column, more in (("all", hidden), ("most", [])):
        settings = [*few, *more, f"tasks.train={file}", "tasks.label=queue", f"tasks.soft_label={column}"]
        run(tmp_path, "prune", *settings, f"output={column}")
        manifest = atomic.read_json(tmp_path / column / "recover" / "tickets" / run_folder.MANIFEST)
        terms = manifest["log"][-1]["terms"]
        assert terms["soft_targets"] > 0
        assert ("hidden" in terms) == (column == "all")
        assert asked == (["tickets"] if column == "most" else [])


@pytest.mark.slow
def test_without_a_teacher_soft_labels_train_the_given_model_and_the_student(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference is the given model at full size. No model labels a row."""
    from distill.pipeline.train_steps import teacher_logits

    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *_: pytest.fail("a teacher labelled rows"))
    labels = LABELS["classification"]
    soft = [json.dumps({queue: 0.9, QUEUES[(i + 1) % 3]: 0.1}) for i, queue in enumerate(labels)]
    file = write(tmp_path / "tickets.csv", {"body": SUBJECTS, "queue": labels, "soft": soft})
    given = tiny.save(tmp_path / "given", "bert", "SequenceClassification", num_labels=3, num_hidden_layers=4)
    settings = ["teacher=none", f"student.name={given}", f"tasks.train={file}", "tasks.label=queue"]
    pipeline = "pipeline=[finetune_teacher,prune,recover,evaluate]"
    more = ["tasks.soft_label=soft", "stages.evaluate.quantized=null", pipeline, "tasks.labels=[billing,fraud,other]"]
    results = run(tmp_path, "prune", *SMALL[:-1], *settings, *more, onnx=False)
    for stage, terms in (("finetune_teacher", {"soft_targets", "supervised"}), ("recover", {"soft_targets"})):
        manifest = atomic.read_json(tmp_path / "out" / stage / "tickets" / run_folder.MANIFEST)
        assert manifest["log"][-1]["terms"].keys() == terms
    assert results["teacher_name"] == "given"
    assert any(note.startswith("No teacher is given: soft labels stand in") for note in results["notes"])
    assert {model["role"] for model in results["models"]} >= {"teacher", "student"}


def problems(*settings: str, recipe: str = "prune") -> list[str]:
    return validation.settings(config.load_config([f"recipe={recipe}", *SMALL[:-1], "teacher=none", *settings]), recipe)


@pytest.mark.slow
def test_what_a_run_without_a_teacher_needs(run: Any, tmp_path: Path) -> None:
    labels = LABELS["classification"]
    soft = [json.dumps({queue: 1.0}) if i != 5 else "" for i, queue in enumerate(labels)]
    file = write(tmp_path / "tickets.csv", {"body": SUBJECTS, "queue": labels, "soft": soft})
    given, own = tiny.save(tmp_path / "given", "bert", ""), f"tasks.train={file}"
    [message] = problems(own, f"student.name={given}")
    assert message.startswith("tasks.soft_label: got nothing for tickets; must be a column of soft labels with teacher")
    [message] = problems(own, "tasks.soft_label=soft", "limit=none")
    assert message.startswith("student.name: got nothing; must be the model that is trained on the soft labels with te")
    settings = [own, f"student.name={given}", "tasks.label=queue", "tasks.soft_label=soft"]
    on_corpus = "teacher.kind: got none; must be another in a recipe that trains on a corpus ("
    assert any(message.startswith(on_corpus) for message in problems(*settings, recipe="minilmv2"))
    assert problems(*settings) == []
    with pytest.raises(
        UserError, match=r"tasks\.soft_label: got 1 of \d+ training rows of tickets without one; must be"
    ):
        run(tmp_path, "prune", *SMALL, "teacher=none", *settings)


@pytest.mark.slow
def test_a_stage_that_reads_reported_rows_before_they_are_reported_fails(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.compression.quantization import quality_limits

    def leaking(folder: Path, tokenizer: Any, data: Any, *rest: Any) -> Any:
        return source_of(folder, tokenizer, replace(data, development=dict(data.reported)), *rest)

    source_of = quality_limits.source_of
    monkeypatch.setattr(quantize, "source_of", leaking)
    file = write(tmp_path / "tickets.csv", {"body": SUBJECTS, "label": LABELS["classification"]})
    settings = ["target.speedup=null", "pipeline=[finetune_teacher,quantize]", "stages.quantize.start=finetune_teacher"]
    with pytest.raises(AssertionError, match="quantize reads reported rows"):
        run(tmp_path, "prune", *SMALL[:-1], f"tasks.train={file}", *settings)
