"""Whole runs record each time that they read the rows they report, before any of these is scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distill.pipeline.stages import evaluate
from distill.runtime.storage import run_folder
from tests import tiny

SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "tasks.train=rows.csv",
    "cache.dir=cache", "target.speedup=1.05", "target.shape=[1,16]", "stages.evaluate.shapes=[[1,16]]",
    "stages.evaluate.baseline=null", "stages.evaluate.quantized=null", "target.scheme=fp32",
    "pipeline=[finetune_teacher,prune,recover,evaluate]",
)  # fmt: skip


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_a_resumed_run_has_a_second_line_and_another_run_is_told(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{tiny.SENTENCES[n % 8]} on day {n},{('good', 'bad')[n % 2]}" for n in range(64)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    one, other = tmp_path / "one", tmp_path / "other"

    def stopped(*arguments: Any) -> Any:
        raise RuntimeError("stopped before a score")

    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "predictions", stopped)
        with pytest.raises(RuntimeError, match="stopped before a score"):
            run(tmp_path, "prune", *SMALL, "output=one", onnx=False)
    begun = (one / run_folder.OPENINGS).read_bytes()
    assert [line["purpose"] for line in lines(one / run_folder.OPENINGS)] == ["report"]
    trained = {file: file.stat().st_mtime_ns for file in one.glob("[fr]*/rows/model.safetensors")}
    assert len(trained) == 2, trained

    results = run(tmp_path, "prune", *SMALL, "output=one", "report.purpose=once more", onnx=False)
    assert (one / run_folder.OPENINGS).read_bytes().startswith(begun)
    assert [line["purpose"] for line in lines(one / run_folder.OPENINGS)] == ["report", "once more"]
    assert trained == {file: file.stat().st_mtime_ns for file in trained}, "made again because of the record"
    assert results["openings"] == lines(one / run_folder.OPENINGS)
    reported = {(row["task"], row["split"]): row["rows"] for row in results["coverage"]}
    for line in results["openings"]:
        assert line["rows"] == reported[line["task"], line["split"]]
        assert line["others"] == 0
    assert "runs that share its cache" not in (one / "report.md").read_text()

    finished = (one / run_folder.OPENINGS).read_bytes(), (one / "results.json").read_bytes()
    assert run(tmp_path, "prune", *SMALL, "output=one", onnx=False) == results
    assert finished == ((one / run_folder.OPENINGS).read_bytes(), (one / "results.json").read_bytes())

    results = run(tmp_path, "prune", *SMALL, "output=other", "seed=1", onnx=False)
    assert [line["others"] for line in results["openings"]] == [1]
    assert "read 1 time by this run and, with 1 other setting, by runs that share" in (other / "report.md").read_text()
    (known,) = (tmp_path / "cache" / "openings").iterdir()
    assert len(lines(known)) == 3
