"""Whole runs that train on pairs of segments."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from tests.end_to_end.test_processes import check_equal, trained
from tests.end_to_end.test_resume import DISTURBED, distill
from tests.small import content

pytestmark = pytest.mark.slow
PIPELINE = ["pipeline=[adapt,pretrain]", "corpus.max_length=48", "stages.pretrain.dropout=0.1"]


def term(name: str) -> str:
    return f"+term@stages.pretrain.terms.pairs={name}"


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    settings = ["recipe=distilbert", "limit=smoke", "limit.steps=8", "precision=fp32", "threads=1", *PIPELINE]
    settings += ["stages.pretrain.dropout=0", "stages.pretrain.batch.tokens=512", "stages.pretrain.epochs=2"]
    runs = trained(tmp_path, [*settings, "stages.pretrain.batch.device_tokens=128", term("sentence_order")])
    check_equal(runs, "pretrain", 8)


def test_a_killed_run_resumes_exactly_and_its_student_loads(tmp_path: Path) -> None:
    settings = [*PIPELINE, term("next_sentence")]
    whole = distill(tmp_path, *settings, "output=whole")
    assert whole.returncode == 0, whole.stderr
    assert "sequences are pairs for next_sentence" in whole.stdout
    killed = (DISTURBED, "pretrain", "9", str(int(signal.SIGKILL)))
    assert distill(tmp_path, *settings, "output=broken", launch=("-c", *killed)).returncode == -signal.SIGKILL
    again = distill(tmp_path, *settings, "output=broken")
    assert again.returncode == 0, again.stderr
    folders = [tmp_path / run / "pretrain" for run in ("whole", "broken")]
    first, other = (content(folder) for folder in folders)
    assert first["model.safetensors"] == other["model.safetensors"]
    log = json.loads((folders[0] / "manifest.json").read_text())["log"]
    values = [row["terms"]["pairs"] for row in log]
    assert 0.3 < max(values) < 3  # a step of single sentences alone has 0

    weights = load_file(folders[0] / "model.safetensors")
    assert np.abs(weights["cls.seq_relationship.weight"]).max() > 0
    _, info = transformers.AutoModelForPreTraining.from_pretrained(folders[0], output_loading_info=True)
    assert not info["missing_keys"]
    _, info = transformers.AutoModelForMaskedLM.from_pretrained(folders[0], output_loading_info=True)
    assert not info["missing_keys"]
