"""Runs and predictions that use one cache at once lose nothing, mix nothing, and print no traceback."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest

from tests.forked import PYTHON

pytestmark = pytest.mark.slow
TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
SETTINGS = (
    "recipe=task", "teacher.kind=hub", "teacher.name=given", "student.name=small", "tasks=own",
    "tasks.train=rows.jsonl", "tasks.name=own", "tasks.max_length=32", "limit.steps=6", "precision=fp32", "threads=1",
    "transfer=none", "pipeline=[finetune_teacher,finetune]",
)  # fmt: skip
STAGES = ("finetune_teacher", "finetune")


def outputs(folder: Path, commands: list[list[str]]) -> list[str]:
    """What commands print that run at once, each second one of a user who hides new files from others."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "caches")}
    processes = [
        subprocess.Popen(
            [PYTHON, "-m", *command], cwd=folder, env=environment, umask=(0o022, 0o077)[number % 2], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number, command in enumerate(commands)
    ]  # fmt: skip
    said = [process.communicate(timeout=500) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(commands), said
    assert not any("Traceback" in out + error for out, error in said)
    return [out for out, _ in said]


def test_two_runs_and_four_predictions_at_once_share_a_cache(tmp_path: Path) -> None:
    TINY["save"](tmp_path / "given", "bert", "", num_hidden_layers=4)
    TINY["save"](tmp_path / "small", "bert", "", num_hidden_layers=2)
    rows = [{"text": f"{TINY['SENTENCES'][n % 8]} on day {n}", "label": "ab"[n % 2]} for n in range(64)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    outputs(tmp_path, [["distill", *SETTINGS, f"output={name}"] for name in "ab"])
    for stage in STAGES:
        a, b = (tmp_path / name / stage for name in "ab")
        records = [json.loads((folder / "manifest.json").read_text())["record"] for folder in (a, b)]
        assert sorted(record.get("reused", False) for record in records) == [False, True]
        assert records[0]["key"] == records[1]["key"]
        assert (a / "own" / "model.safetensors").read_bytes() == (b / "own" / "model.safetensors").read_bytes()

    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"{row['text']}\n" for row in rows))
    predict = ["distill.predict", "a/finetune/own", "--file", "texts.csv"]
    lines = outputs(tmp_path, [predict] * 4)
    assert len(lines[0].splitlines()) == 64
    assert lines == [lines[0]] * 4
    kept = tmp_path / "caches" / "distill"
    assert [len(list((kept / part).iterdir())) for part in ("models", "tables")] == [2, 2]
    assert not list(kept.rglob("*.distill-tmp"))
