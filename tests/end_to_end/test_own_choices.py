"""A whole run of multiple choice, from a file of questions with choices to predictions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli.compare.comparison import compare
from tests import tiny
from tests.forked import PYTHON
from tests.small import SMALL, given

COUNT = 64


def row(number: int) -> dict[str, Any]:
    choices = [tiny.SENTENCES[(number + place) % 8].split()[1] for place in range(2 + number % 3)]
    answer = None if number == 5 else "ABCD"[number % len(choices)]
    return {"question": f"the word after the first, on day {number}", "choices": choices, "answer": answer}


@pytest.mark.slow
def test_a_file_becomes_exported_models_that_predict(run: Any, predicted: Any, tmp_path: Path) -> None:
    file = tmp_path / "quiz.jsonl"
    file.write_text("".join(json.dumps(row(number)) + "\n" for number in range(COUNT)))
    results = run(tmp_path, "prune", *SMALL, f"teacher.name={given(tmp_path)}", f"tasks.train={file}")
    folder = tmp_path / "out" / "export" / "quiz"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForMultipleChoice"]
    assert "pipeline_tag: multiple-choice" in (folder / "README.md").read_text()
    scores = [model["scores"]["quiz"] for model in results["models"] if model["scores"].get("quiz")]
    assert len(scores) >= 4  # teacher and student, each in float32 and int8
    assert all(score.keys() == {"accuracy"} for score in scores)
    questions = [(row(number)["question"], row(number)["choices"]) for number in range(8)]
    answers = {}
    for backend, scheme in (("torch", "fp32"), ("onnxruntime", "fp32"), ("onnxruntime", "int8")):
        model = distill.load(folder, backend=backend, scheme=scheme)
        answers[scheme, backend] = model.predict(questions)
        for answer, (_, choices) in zip(answers[scheme, backend], questions, strict=True):
            assert answer["choice"] == choices[answer["number"]]
            assert answer["score"] == max(answer["scores"])
            assert len(answer["scores"]) == len(choices)
            assert sum(answer["scores"]) == pytest.approx(1)
    torch, onnx = ([answer["score"] for answer in answers["fp32", name]] for name in ("torch", "onnxruntime"))
    np.testing.assert_allclose(torch, onnx, atol=1e-4)
    compared = compare(folder, folder, str(file))
    assert compared["agreement"]["percent"] == 100
    lines = predicted(folder, file)
    assert [line["choices"] for line in lines] == [row(number)["choices"] for number in range(COUNT)]
    assert all(line["choice"] in line["choices"] for line in lines)
    command = [PYTHON, "-m", "distill.predict", str(folder)]
    refused = subprocess.run([*command, "a text"], capture_output=True, text=True, timeout=100)
    assert refused.returncode == 2
    assert refused.stderr.startswith("TEXT: got single texts; must be questions with choices for this model; ")
