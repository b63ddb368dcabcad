"""What jobs of a sweep leave behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.errors import UserError
from distill.evaluation.results import Model
from distill.pipeline import sweep
from tests.decoded import model_of


def test_failures_are_those_of_all_processes_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sweep.failures(["-m", "recipe=task", "seed=1,2"]) as failed:
        for job in (10, 9):
            error = UserError(["seed: got -1", "temperature: got 0"]) if job == 9 else RuntimeError("out of ideas")
            sweep.failed(job, ["recipe=task", f"seed={job}"], error)
        (folder,) = Path("outputs", ".sweep").iterdir()
        (folder / ".3.json.1.distill-tmp").write_text("{")  # of a job that was killed
        assert failed == []
    assert [(each.job, each.overrides) for each in failed] == [(9, ["seed=9"]), (10, ["seed=10"])]
    assert str(failed[0]) == "job 9 (seed=9): seed: got -1\njob 9 (seed=9): temperature: got 0"
    assert str(failed[1]) == "job 10 (seed=10): RuntimeError: out of ideas; the traceback is above"
    assert [(each.code, each.traceback.splitlines()[-1]) for each in failed] == [
        (2, "temperature: got 0"),
        (1, "RuntimeError: out of ideas"),
    ]
    assert not [*folder.glob("*.json")]


def test_without_a_failure_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sweep.failures([]) as failed:
        pass
    assert failed == []
    assert [*tmp_path.iterdir()] == []


def student(target: str | None, development: float | None, reported: float, speedup: float, **more: Any) -> Model:
    known = {"name": "student", "scheme": "int8", "backend": "torch", "role": "student", "step": "finetune"}
    kept = {"macro": None, "headline": 99.0, "mean_of_ratios": None, "worst": None, "ci95": None, "development": 99.0}
    ways = {"retained": kept, "macro": reported, "development_macro": development}
    ways |= {"speedup": {"best_teacher": speedup, "ci95": None, "same_backend": None}}
    return model_of({**known, "target": target, **ways, **more})


def test_optuna_gets_the_own_score_of_the_fastest_student_on_the_development_rows() -> None:
    """And no percentage of its teacher's score, which another trial may have made worse."""
    models = [
        student("2x", 99.0, 98.0, 2.1),
        student("4x", 95.0, 97.0, 4.2),
        student("4x", 96.0, 97.5, 3.9),
        student("4x", 90.0, 90.0, 9.0, failed="it"),
        student("4x", 100.0, 100.0, 9.0, role="baseline"),
    ]
    assert sweep.objectives(SimpleNamespace(models=models, load="batch"), "maximize") == 95.0
    assert sweep.objectives(SimpleNamespace(models=models, load="batch"), ["maximize"] * 2) == [95.0, 4.2]
    scores = {"a": {"accuracy": 97.0}, "b": {"accuracy": 95.0}, "apart": {"accuracy": 20.0}}
    reported = [student(None, None, 70.7, 4.2, scores=scores)]
    coverage = [SimpleNamespace(task=name, in_headline=name != "apart") for name in scores]
    results: Any = SimpleNamespace(models=reported, load="batch", coverage=coverage)
    assert sweep.objectives(results, "maximize") == 96.0


@pytest.mark.parametrize("results", [None, SimpleNamespace(models=[], load="batch")])
def test_optuna_needs_a_scored_student(results: Any) -> None:
    assert sweep.objectives(results, None) is None
    with pytest.raises(UserError, match="pipeline: got no student with a score"):
        sweep.objectives(results, "maximize")
