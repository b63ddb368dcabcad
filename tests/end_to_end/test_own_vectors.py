"""Whole runs of embedders, from a file of pairs, or of queries and documents, to folders that others load."""

from __future__ import annotations

import json
import runpy
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill import checkpoint
from distill.compare import compare
from distill.errors import ConfigError, UserError
from distill.export.reload import vectors as elsewhere
from distill.family.embedding import EncoderForVectors

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
COUNT = 64
SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "output=out",
    "target.speedup=1.05", "target.shape=[1,16]", "stages.quantize.max_drop=100", "stages.evaluate.shapes=[[1,16]]",
)  # fmt: skip
RUN = "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]"


def pair(number: int) -> dict[str, Any]:
    first, second = TINY["SENTENCES"][number % 8], TINY["SENTENCES"][number // 8]
    shared = len({*first.split()} & {*second.split()})
    return {"sentence1": f"{first} {number}", "sentence2": second, "score": None if number == 3 else shared}


def judged(number: int) -> dict[str, Any]:
    query, document = TINY["SENTENCES"][number // 8], TINY["SENTENCES"][number % 8]
    return {"query": f"{query} {number // 8}", "document": document, "relevance": int(query == document)}


def embedder(folder: Path, prompts: bool = False) -> Path:
    """A tiny embedder in the layout of sentence-transformers."""
    TINY["save"](folder, "bert", "", std=0.2, hidden_size=32, intermediate_size=64, num_hidden_layers=4, length=34)
    EncoderForVectors.from_pretrained(folder).save_pretrained(folder)
    if prompts:
        checkpoint.write_json(
            folder / "config_sentence_transformers.json", {"prompts": {"query": "the ", "document": "a "}}
        )
    return folder


def write(file: Path, form: Any, count: int = COUNT) -> Path:
    file.write_text("".join(json.dumps(form(number)) + "\n" for number in range(count)))
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("form", "schemes"), [(pair, "onnxruntime"), (judged, "onnxruntime,bitsandbytes")])
def test_a_file_becomes_an_exported_embedder(form: Any, schemes: str, run: Any, predicted: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", form), embedder(tmp_path / "given", prompts=form is judged)
    settings = [f"stages.quantize.schemes=[{schemes}]", "stages.prune.dimensions=[layers]", RUN]
    settings += ["teacher=hub", f"teacher.name={given}"]
    results = run(tmp_path, "prune", *SMALL, *settings, f"tasks.train={file}", "stages.evaluate.baseline=null")
    kind = "embedding" if form is pair else "retrieval"
    assert any(note.endswith(f": {kind}") for note in results["notes"])
    folder = tmp_path / "out" / "export" / "texts"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertModel"]
    metrics = {"spearman", "pearson"} if form is pair else {"ndcg_at_10", "mrr_at_10", "recall_at_10"}
    scores = {(m["role"], m["scheme"]): m["scores"]["texts"] for m in results["models"] if m["scores"].get("texts")}
    assert {("teacher", "fp32"), ("student", "fp32"), ("student", "int8")} <= {
        (role, scheme.replace("_medium", "")) for role, scheme in scores
    }
    assert all(score.keys() == metrics for score in scores.values())
    manifest = checkpoint.read_json(tmp_path / "out" / "recover" / "texts" / checkpoint.MANIFEST)
    assert manifest["log"][-1]["terms"].keys() == {"soft_targets", "vectors"}
    teacher_manifest = checkpoint.read_json(tmp_path / "out" / "finetune_teacher" / "texts" / checkpoint.MANIFEST)
    assert teacher_manifest["given"] is True
    texts = TINY["SENTENCES"]
    given_vectors = np.array(elsewhere(str(given), [[text] for text in texts], False))
    copied = np.array(elsewhere(str(tmp_path / "out" / "finetune_teacher" / "texts"), [[t] for t in texts], False))
    np.testing.assert_allclose(copied, given_vectors, atol=1e-6)
    expected = np.array(elsewhere(str(folder), [[text] for text in texts], False))
    assert expected.shape == (8, 32)
    model = distill.load(folder, backend="torch", scheme="fp32")  # not the fastest, which may be bf16
    np.testing.assert_allclose([row["vector"] for row in model.predict(texts)], expected, atol=1e-5)
    int8 = distill.load(folder, backend="onnxruntime", scheme="int8").outputs(texts)
    assert (int8 * expected).sum(1).min() > 0.9
    stored = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert stored["prompts"] == ({} if form is pair else {"query": "the ", "document": "a "})
    code = textwrap.dedent((folder / "README.md").read_text().split("## Usage\n")[1].split("\n## ")[0])
    found: dict[str, Any] = {}
    exec(code.replace("FOLDER_OF_THIS_FILE", str(folder)), found)
    assert found["embeddings"].shape == (2, 32)
    compared = compare(given, folder, str(file))
    assert compared["kind"] == kind
    assert compared["scores"].keys() == metrics
    with pytest.raises(UserError, match="texts, number 1: got "):
        model.predict([("one text", "another")])
    lines = predicted(folder, file)
    assert [line["text"] for line in lines] == [form(n)["sentence1" if form is pair else "query"] for n in range(COUNT)]
    assert {len(line["vector"]) for line in lines} == {32}


@pytest.mark.slow
def test_a_narrower_student_outputs_vectors_as_wide_as_its_teachers(run: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", pair), embedder(tmp_path / "given")
    pipeline = "pipeline=[finetune_teacher,finetune,finetune_baseline,quantize,evaluate,export]"
    settings = ["teacher=hub", f"teacher.name={given}", f"tasks.train={file}", "stages.quantize.schemes=[onnxruntime]"]
    small = TINY["save"](tmp_path / "small", "bert", "", std=0.2, length=34)
    results = run(tmp_path, "task", *SMALL[:5], *SMALL[7:], *settings, pipeline, f"student.name={small}")
    folder = tmp_path / "out" / "export" / "texts"
    described = checkpoint.read_json(folder / "2_Dense" / "config.json")
    assert (described["in_features"], described["out_features"]) == (16, 32)
    assert np.array(elsewhere(str(folder), [["a text"]], False)).shape == (1, 32)
    assert {m["role"] for m in results["models"]} == {"teacher", "student", "baseline"}


@pytest.mark.slow
def test_texts_without_labels_prune_and_train_an_embedder(run: Any, tmp_path: Path) -> None:
    given, held = embedder(tmp_path / "given"), write(tmp_path / "held.jsonl", pair)
    texts = write(tmp_path / "texts.jsonl", lambda number: {"text": f"{TINY['SENTENCES'][number % 8]} {number}"}, 96)
    settings = ["teacher=hub", f"teacher.name={given}", f"tasks.train={texts}", f"tasks.validation={held}"]
    rest = ["stages.quantize.schemes=[onnxruntime]", "stages.evaluate.baseline=null"]
    results = run(tmp_path, "prune", *SMALL, *settings, *rest, RUN)
    assert {row["split"]: row["rows"] for row in results["coverage"]} == {"train": 48, "validation": 24}
    assert (tmp_path / "out" / "export" / "texts" / "modules.json").is_file()
    baseline = "pipeline=[finetune_teacher,prune,recover,recover_baseline]"
    with pytest.raises(ConfigError, match=r"stages.recover_baseline.teacher: got null, and training rows of texts wi"):
        run(tmp_path, "prune", *SMALL[:4], "output=other", *SMALL[5:], *settings, baseline)


MARGINS = "stages.recover.terms.margins.weight"


def test_what_embedders_do_not_support_is_refused(run: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", judged), embedder(tmp_path / "given")
    settings = [*SMALL, "teacher=hub", f"tasks.train={file}"]
    pruned = ["pipeline=[finetune_teacher,prune,recover]", f"teacher.name={given}", f"{MARGINS}=0.5"]
    with pytest.raises(ConfigError, match=rf"{MARGINS}: got 0.5; must be 0 for texts, a task of kind retrieval"):
        run(tmp_path, "prune", *settings, *pruned)
    bart = TINY["save"](tmp_path / "bart", "bart", "")
    tuned = ["pipeline=[finetune_teacher]", f"teacher.name={bart}", "tasks.kind=retrieval", "target.speedup=null"]
    with pytest.raises(ConfigError, match=r"teacher.name: got a model of type bart; must be one of bert, .* for retr"):
        run(tmp_path, "prune", *settings, *tuned)
