"""Wrong settings of a baseline stage are reported under the keys that the user wrote."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from distill.config import Config, Term, load_config
from distill.pipeline import validation

KEY = "stages.finetune_baseline"
COSINE = {"_target_": "distill.losses.cosine", "_partial_": True}


@pytest.fixture(scope="module")
def settings() -> Config:
    return load_config(["recipe=distilbert"])


@pytest.mark.parametrize(
    ("stage", "changes", "expected"),
    [
        (
            "finetune_baseline",
            {"baseline_of": "finetun"},
            f"{KEY}.baseline_of: got finetun; must be a train stage of role student; did you mean finetune?",
        ),
        (
            "finetune_baseline",
            {"baseline_of": "finetune_teacher"},
            f"{KEY}.baseline_of: got finetune_teacher; must be a train stage of role student; choose from pretrain, "
            "finetune",
        ),
        (
            "finetune_baseline",
            {"terms": {"more": Term(1.0, "hidden", positions="all", loss=COSINE)}},
            f"{KEY}.terms.more.compare_with: got teacher; must be labels, because a baseline has no teacher; drop the "
            f"term with ~{KEY}.terms.more",
        ),
        (
            "finetune_baseline",
            {"terms": {"more": Term(1.0, "hidden", compare_with="labels", positions="all", loss=COSINE)}},
            f"{KEY}.terms.more.features: got hidden; must be logits in a baseline; drop the term with "
            f"~{KEY}.terms.more",
        ),
        (
            "finetune_baseline",
            {"terms": {}},
            f"{KEY}.terms: got none with a weight; must be at least one; e.g. +term@{KEY}.terms.mlm=mlm",
        ),
        (
            "finetune_baseline",
            {"epochs": 5},  # as `+stages.finetune_baseline.epochs=5` adds it
            f"{KEY}.epochs: got 5; must be a setting that exists; set stages.finetune.epochs, which the baseline is "
            "trained with too",
        ),
        (
            "evaluate",
            {"self_trained": "finetune_baseline"},
            "stages.evaluate.self_trained: got finetune_baseline; must be a stage of kind baseline with a teacher; "
            "name it in stages.evaluate.baseline",
        ),
        (
            "finetune_baseline",
            {"start": "finetuned"},
            f"{KEY}.start: got finetuned; must be an earlier stage of the pipeline; did you mean finetune?",
        ),
        # What is wrong with settings of the student is reported of the student alone.
        ("finetune", {"clip": 0.0}, "stages.finetune.clip: got 0.0; must be > 0; 1 is usual"),
        (
            "pretrain",
            {"batch.tokens": 64},
            "stages.pretrain.batch.tokens: got 64; must be >= 128 (max_length); set it higher",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value[:20],
)
def test_a_problem_is_reported_once_under_the_key_the_user_wrote(
    stage: str, changes: dict[str, Any], expected: str, settings: Config
) -> None:
    changed = copy.deepcopy(settings)
    for key, value in changes.items():
        group, _, name = key.rpartition(".")
        node = changed.stages[stage]
        setattr(getattr(node, group) if group else node, name, value)
    assert validation.settings(changed, "distilbert") == [expected]


def test_a_self_trained_student_is_no_baseline(settings: Config) -> None:
    changed = copy.deepcopy(settings)
    changed.pipeline.insert(changed.pipeline.index("finetune_baseline") + 1, "finetune_self_trained")
    changed.stages["evaluate"].self_trained = "finetune_self_trained"  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == []
    changed.stages["finetune_self_trained"].teacher = "finetune_teacher"  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == [
        "stages.finetune_self_trained.teacher: got finetune_teacher; must be a stage of kind baseline without a "
        "teacher of its own; a student of the teacher is a stage of kind train"
    ]
    changed.stages["finetune_self_trained"].teacher = "finetune_baseline"  # type: ignore[attr-defined]
    changed.stages["evaluate"].baseline = "finetune_self_trained"  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == [
        "stages.evaluate.baseline: got finetune_self_trained; must be a stage without a teacher; name it in "
        "stages.evaluate.self_trained"
    ]


def test_a_term_of_weight_0_needs_no_teacher(settings: Config) -> None:
    changed = copy.deepcopy(settings)
    changed.stages["finetune_baseline"].terms["more"] = Term(0.0, "hidden", positions="all", loss=COSINE)  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == []
