"""Whole runs of a teacher whose training rows are labelled by models that were not trained on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.errors import Stopped
from distill.pipeline.train_steps import tasks
from distill.pipeline.train_steps.prepare import Training

FEW = (
    "limit=smoke", "limit.steps=2", "tasks.names=[order]", "target.speedup=null", "student.num_hidden_layers=1",
    "pipeline=[finetune_teacher,prune,recover]",
)  # fmt: skip
INSIDE = "+term@stages.recover.terms.hidden=hidden"


@pytest.mark.slow
def test_folds_are_trained_with_the_rate_that_is_kept(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, rates = tasks.trained, dict[str, float]()

    def recorded(training: Training, *others: Any) -> Any:
        rates[training.name] = training.lr
        return trained(training, *others)

    monkeypatch.setattr(tasks, "trained", recorded)
    own = [f"stages.finetune_teacher.{setting}" for setting in ("folds=2", "lr_factors=[1e30,0.5]")]
    run(tmp_path, "prune", *FEW, *own, "output=rates")
    model = "finetune_teacher/order"
    broken, kept, *folds = (rates[f"{model}.{name}"] for name in ("tries/1", "tries/2", "folds/1", "folds/2"))
    assert folds == [kept, kept]
    assert kept < broken
    assert (tmp_path / "rates" / model / "cross_fitted.npy").is_file()


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_a_student_learns_the_logits(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the teacher runs in each step, for its hidden states."""
    trained, learned = tasks.trained, tasks.learned_outputs
    names: list[str] = []
    outputs: list[np.ndarray] = []

    def stopping(training: Training, *others: Any) -> Any:
        if names[-1:] != ["stopped"] and len(names) == 2:
            names.append("stopped")
            raise Stopped("stopped")
        names.append(training.name)
        return trained(training, *others)

    def recorded(*args: Any) -> Any:
        outputs.append(learned(*args))
        return outputs[-1]

    monkeypatch.setattr(tasks, "trained", stopping)
    monkeypatch.setattr(tasks, "learned_outputs", recorded)
    settings = [*FEW, "stages.finetune_teacher.folds=3", INSIDE]
    with pytest.raises(Stopped):
        run(tmp_path, "prune", *settings, "output=folds")
    run(tmp_path, "prune", *settings, "output=folds")
    model = "finetune_teacher/order"
    folds = [f"{model}.folds/{number}" for number in (1, 2, 3)]
    assert names == [*folds[:2], "stopped", folds[2], model, "recover/order"]
    assert [path.name for path in (tmp_path / "folds/finetune_teacher").iterdir() if path.is_dir()] == ["order"]
    stored = np.load(tmp_path / "folds" / model / "cross_fitted.npy")
    assert len(outputs) == 1
    np.testing.assert_array_equal(outputs[0][: len(stored)], stored)
    # The model of all rows is the one of a run without folds, but for its own rows it outputs something else.
    run(tmp_path, "prune", *FEW, "output=whole")
    weights = [(tmp_path / name / model / "model.safetensors").read_bytes() for name in ("folds", "whole")]
    assert weights[0] == weights[1]
    assert np.abs(outputs[1][: len(stored)] - stored).min(axis=1).max() > 0
