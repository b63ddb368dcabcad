"""Two tasks in one pass: from two files to one exported folder with two heads."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import distill
from distill.cli.compare.comparison import compare
from distill.errors import UserError
from distill.report.checked import validate
from tests import tiny
from tests.forked import PYTHON

pytestmark = pytest.mark.slow
SENTENCES = tiny.SENTENCES
ROWS = {
    "sentiment": [(f"{SENTENCES[i % 8]} on day {i}", ("good", "bad")[i % 2]) for i in range(64)],
    "topic": [(f"{SENTENCES[i % 8]} in year {i}", "|".join(("sea", "food", "art")[: i % 4])) for i in range(48)],
}
TASKS = """
each:
  sentiment:
    train: sentiment.csv
    label: mood
  topic:
    train: topic.csv
    label: mood
    kind: multi_label
"""
COMMAND = (
    "--config-dir", "mine", "recipe=task", "tasks=mine", "tasks.path=.", "student.heads=shared", "limit=smoke",
    "limit.repeats=2", "tasks.max_length=32", "stages.quantize.schemes=[onnxruntime]",
    "stages.evaluate.shapes=[[1,16]]", "stages.finetune.batch.examples=7", "precision=fp32", "threads=1",
    "stages.finetune_teacher.dropout=0", "stages.finetune.dropout=0",
)  # fmt: skip


def run(cwd: Path, *settings: str, launch: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-m", *launch, "distill", *COMMAND, *settings]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole run in `out`."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "mine" / "tasks").mkdir(parents=True)
    (folder / "mine" / "tasks" / "mine.yaml").write_text(TASKS)
    for name, rows in ROWS.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("body", "mood"), *rows])
    done = run(folder, "output=out")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def results(cwd: Path) -> Any:
    return json.loads((cwd / "out" / "results.json").read_text())


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("stage", ["finetune", "finetune_baseline"])
def test_both_models_have_the_same_encoder(stage: str, cwd: Path) -> None:
    one, other = (weights(cwd / "out" / stage / task) for task in ROWS)
    start = weights(next((cwd / "out").glob("random_student_*")))
    assert one.keys() == other.keys()
    for name, value in one.items():
        if name.startswith("bert."):
            np.testing.assert_array_equal(value, other[name], err_msg=name)
        else:
            assert value.shape != other[name].shape or (value != other[name]).any(), name
    moved = [name for name in one if name in start and (one[name] != start[name]).any()]
    assert any(name.endswith("query.weight") for name in moved)


def test_costs_are_those_of_all_tasks(cwd: Path, results: Any) -> None:
    assert validate(results) == []
    assert results["heads"] == "shared"
    models = {(m["role"], m["backend"], m["scheme"]): m for m in results["models"]}
    assert not [m for m in results["models"] if "failed" in m]
    one, other = (weights(cwd / "out" / "finetune" / task) for task in ROWS)
    once = sum(v.size for v in one.values()) + sum(v.size for n, v in other.items() if not n.startswith("bert."))
    student = models["student", "torch", "fp32"]
    assert student["parameters"] == once == models["student", "onnxruntime", "int8"]["parameters"]
    assert models["baseline", "torch", "fp32"]["parameters"] == once
    teachers = [weights(cwd / "out" / "finetune_teacher" / task) for task in ROWS]
    teacher = models["teacher", "torch", "fp32"]
    assert teacher["parameters"] == sum(value.size for model in teachers for value in model.values())
    assert student["size_mib"] == pytest.approx(once * 4 / 2**20, rel=0.2)
    assert models["student", "onnxruntime", "fp32"]["path"] == "quantize/shared/model.onnx"
    assert student["scores"].keys() == {*ROWS}
    assert any("one encoder and 2 heads" in line for line in (cwd / "out" / "report.md").read_text().splitlines())


def test_each_head_loads_with_plain_transformers(cwd: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder, texts = cwd / "out" / "export" / "shared", [*SENTENCES]
    expected = {}
    for task in ROWS:
        model = AutoModelForSequenceClassification.from_pretrained(folder / task).eval()
        tokens = AutoTokenizer.from_pretrained(folder / task)(texts, return_tensors="pt", padding=True)
        expected[task] = model(**tokens).logits.detach().numpy()
    for backend, scheme in (("torch", "fp32"), ("onnxruntime", "fp32")):
        loaded = distill.load(folder, backend=backend, scheme=scheme)
        assert (loaded.backend, loaded.scheme) == (backend, scheme)
        outputs: Any = loaded.outputs(texts)
        for task, logits in expected.items():
            np.testing.assert_allclose(outputs[task], logits, atol=1e-4)
    proofs = json.loads((cwd / "out" / "export" / "manifest.json").read_text())["proofs"]
    assert proofs.keys() == {*ROWS, "shared"}
    assert proofs["shared"].keys() == {"torch float", "onnxruntime fp32", "onnxruntime int8"}
    assert all(proof.get("largest_difference", 0) <= 1e-5 for task in proofs.values() for proof in task.values())


def test_predictions_have_an_entry_for_each_task(cwd: Path) -> None:
    folder = cwd / "out" / "export" / "shared"
    loaded: Any = distill.load(folder)
    predictions = loaded.predict(SENTENCES)
    assert [prediction.keys() for prediction in predictions] == [{*ROWS}] * len(SENTENCES)
    for prediction in predictions:
        assert prediction["sentiment"]["label"] in ("good", "bad")
        assert prediction["topic"].keys() == {"labels", "scores"}
    assert loaded.predict([]) == []
    measured = json.loads((cwd / "out" / "results.json").read_text())["models"]
    rows = {(m["role"], m["backend"], m["scheme"]): m for m in measured}
    own = rows["student", loaded.backend, loaded.scheme]["calibration"]
    for task, head in loaded.heads.items():
        assert head.temperature == pytest.approx(own.get(task, {}).get("temperature") or 1.0)
    one: Any = distill.load(folder / "sentiment")
    scores = [[p["score"] for p in (each, both["sentiment"])] for each, both in zip(
        one.predict(SENTENCES), distill.load(folder, backend="torch").predict(SENTENCES), strict=True
    )]  # fmt: skip
    np.testing.assert_allclose(*zip(*scores, strict=True), atol=1e-5)
    command = [PYTHON, "-m", "distill.predict", str(folder.parent), "--format", "csv", *SENTENCES[:2]]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    lines = [*csv.DictReader(io.StringIO(printed))]
    assert [line["text"] for line in lines] == SENTENCES[:2]
    assert [line["sentiment.label"] for line in lines] == [p["sentiment"]["label"] for p in predictions[:2]]
    with pytest.raises(UserError, match=r"^A: got .*, with several heads; must be the folder of one of them; choose "):
        compare(folder, folder / "topic", str(cwd / "topic.csv"))


def test_two_processes_equal_one(cwd: Path) -> None:
    """Also where a process has no row of a task in a step, so that its head has no gradient there."""
    torchrun = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m")
    done = run(cwd, "pipeline=[finetune_teacher,finetune]", "output=two", launch=torchrun)
    assert done.returncode == 0, done.stderr
    for task in ROWS:
        tiny.check_trained_alike(*(weights(cwd / name / "finetune" / task) for name in ("out", "two")))
