"""Where a report advises a form of the teacher, the run exports it in the files that were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import distill
from distill.deploy.export import record
from distill.errors import ConfigError
from distill.inference import variants
from distill.report import decision
from distill.report.variants import Run
from distill.runtime.storage import run_folder
from tests import tiny

pytestmark = pytest.mark.slow
SETTINGS = (
    "teacher.kind=hub", "teacher.name=given", "student.name=small", "tasks=own", "tasks.train=rows.jsonl",
    "tasks.name=own", "tasks.max_length=32", "limit.steps=4", "limit.repeats=1", "transfer=none", "precision=fp32",
    "pipeline=[finetune_teacher,finetune,quantize,evaluate,export]", "stages.evaluate.baseline=null",
    "stages.quantize.schemes=[onnxruntime,bitsandbytes]", "stages.evaluate.shapes=[[1,16]]", "output=out",
)  # fmt: skip
ADVISED = ("teacher", "onnxruntime", "int8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.save(tmp_path / "given", "bert", "", num_hidden_layers=4)
    tiny.save(tmp_path / "small", "bert", "", num_hidden_layers=2)
    rows = [{"text": f"{tiny.SENTENCES[i % 8]} on day {i}", "label": "ab"[i % 2]} for i in range(64)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models are not faster in int8, so that no run of them advises it. Nothing is compiled, which takes long."""
    found, supported = decision.decided, variants.supported

    def decided(run: Run) -> decision.Decision:
        form = next(m for m in run.results.models if (m.role, m.backend, m.scheme) == ADVISED)
        return replace(found(run), chosen=form)

    monkeypatch.setattr(decision, "decided", decided)
    monkeypatch.setattr(variants, "supported", lambda **asked: supported(**asked | {"compiled": False}))


def test_the_advised_form_of_the_teacher_is_exported(
    run: Any, folder: Path, advised: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(folder, "task", *SETTINGS)
    exported = folder / "out" / "export_teacher" / "own"
    assert ("export_teacher", None, "export") in [(s["name"], s["target"], s["kind"]) for s in results["stages"]]
    made, copied = folder / "out" / "evaluate" / "teacher" / "own" / "model_int8.onnx", exported / "onnx"
    assert (copied / "model_int8.onnx").read_bytes() == made.read_bytes()
    described = record.read(exported)
    assert described is not None
    times = {(entry.backend, entry.scheme): entry.ms for entry in described.artifacts}
    measured = {
        (model["backend"], model["scheme"]): [row["median"] for row in model["latency_ms"]]
        for model in results["models"]
        if model["role"] == "teacher"
    }
    # The other forms were not chosen, and the fastest form of a folder answers.
    assert {form for form in times if form[1] != "fp32"} == {ADVISED[1:]}
    assert all(time in measured[form] for form, time in times.items())
    texts = [tiny.SENTENCES[0], tiny.SENTENCES[1]]
    model = distill.load(exported, backend="onnxruntime", scheme="int8", threads=1)
    whole = distill.load(folder / "out" / "finetune_teacher" / "own", threads=1)
    assert abs(model.outputs(texts) - whole.outputs(texts)).max() < 0.1
    with pytest.raises(ConfigError, match=r"several exported folders; .*export/own or .*export_teacher/own$"):
        distill.load(folder / "out")
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert "and forms of it in other number formats" in card
    assert "Stages: finetune_teacher, export_teacher." in card
    assert "knowledge-distillation" not in card
    assert "trained on its teacher's outputs" not in card
    # The end of the run says how it is used, and the same command again makes nothing.
    text = (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert "which the run does not export" not in text
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob(run_folder.MANIFEST)}
    capsys.readouterr()
    assert run(folder, "task", *SETTINGS) == results
    assert "export_teacher: finished earlier, skipped" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (folder / "out").rglob(run_folder.MANIFEST)} == before
    # If it is no longer advised, it does not stay beside newer models.
    found = decision.decided
    monkeypatch.setattr(decision, "decided", lambda run: replace(found(run), chosen=None))
    run(folder, "task", *SETTINGS)
    assert not (folder / "out" / "export_teacher").exists()
