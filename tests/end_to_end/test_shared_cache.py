"""Two runs and two predictions use one cache at once, where it can be tried as two users, and nothing is mixed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distill
from tests import tiny

SETTINGS = (
    "recipe=task", "teacher=hub", "teacher.name=given", "student.name=small", "tasks.train=rows.jsonl",
    "precision=fp32", "tasks.max_length=32", "limit.steps=6", "transfer=none", "threads=1",
    "pipeline=[finetune_teacher,finetune]",
)  # fmt: skip
MODELS = ("finetune_teacher/rows", "finetune/rows")
GROUP, USERS = 23456, (23457, 23458)
READS = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search --bounding-set=-all,+dac_read_search"
"""A user who may read the Python of the tests, wherever it is, and write nothing that others may not."""


def as_user(number: int) -> list[str]:
    """The words before a command that another user gives; none where nobody may act as another."""
    words = ["setpriv", f"--reuid={USERS[number]}", f"--regid={GROUP}", "--clear-groups", *READS.split()]
    able = shutil.which("setpriv") and os.geteuid() == 0
    return words if able and subprocess.run([*words, "true"], capture_output=True).returncode == 0 else []


def started(folder: Path, number: int, *words: str) -> subprocess.Popen[str]:
    command = [*as_user(number), sys.executable, "-m", *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=0o002,
        env=environment(folder),
    )


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}


def ended(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return out


@pytest.mark.slow
def test_two_users_two_runs_and_two_predictions_share_a_cache(run: Any, tmp_path: Path) -> None:
    tiny.save(tmp_path / "given", "bert", "", num_hidden_layers=4)
    tiny.save(tmp_path / "small", "bert", "", num_hidden_layers=2)
    texts = [f"{tiny.SENTENCES[i % 8]} on day {i}" for i in range(64)]
    lines = "".join(f"{json.dumps({'text': text, 'label': 'ab'[i % 2]})}\n" for i, text in enumerate(texts))
    (tmp_path / "rows.jsonl").write_text(lines)
    temperatures = {"first": "temperature=2", "second": "temperature=4"}
    for name, temperature in temperatures.items():
        run(tmp_path, "task", *SETTINGS[1:], "cache.max_gib=0", temperature, f"output=alone-{name}")
    for path in [tmp_path, *tmp_path.rglob("*")] if as_user(0) else []:
        os.chown(path, -1, GROUP)
        path.chmod(0o2775 if path.is_dir() else 0o664)

    models = [tmp_path / "alone-first" / MODELS[1], tmp_path / "alone-second" / MODELS[1]]
    runs = [
        started(tmp_path, number, "distill", *SETTINGS, temperature, f"output=shared-{name}")
        for number, (name, temperature) in enumerate(temperatures.items())
    ]
    predictions = [
        started(tmp_path, number, "distill.predict", str(model), "--file", "rows.jsonl")
        for number, model in enumerate(models)
    ]
    printed = [ended(process) for process in runs]
    predicted = [ended(process) for process in predictions]

    for name in temperatures:
        for model in MODELS:
            weights = [tmp_path / f"{way}-{name}" / model / "model.safetensors" for way in ("alone", "shared")]
            assert weights[1].read_bytes() == weights[0].read_bytes(), (name, model)
    # One of them trained the teacher, and the other waited for it.
    assert sum("finetune_teacher: made by an earlier run" in text for text in printed) == 1
    assert predicted[0] != predicted[1]
    for model, written in zip(models, predicted, strict=True):
        answers = [json.loads(line)["predicted_label"] for line in written.splitlines()]
        assert answers == [answer["label"] for answer in distill.load(model, threads=1).predict(texts)]
    parts = {path.name: len([*path.iterdir()]) for path in (tmp_path / "cache" / "distill").iterdir() if path.is_dir()}
    assert (parts["models"], parts["logits"], parts["tables"]) == (3, 1, 1)
    assert not list(tmp_path.rglob("*.distill-tmp"))
