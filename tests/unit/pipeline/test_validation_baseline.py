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
    for other in ("finetune_teacher", "teacher", "pretrain_baseline"):
        changed.stages["finetune_self_trained"].teacher = other  # type: ignore[attr-defined]
        assert (
            f"stages.finetune_self_trained.teacher: got {other}; must be a stage of kind baseline, of finetune and "
            "without a teacher of its own; choose from finetune_baseline"
        ) in validation.settings(changed, "distilbert")
    changed.stages["finetune_self_trained"].teacher = "finetune_baseline"  # type: ignore[attr-defined]
    changed.stages["evaluate"].baseline = "finetune_self_trained"  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == [
        "stages.evaluate.baseline: got finetune_self_trained; must be a stage without a teacher; name it in "
        "stages.evaluate.self_trained"
    ]


def test_a_control_is_of_the_student_that_it_is_compared_with() -> None:
    stages = "finetune_teacher,prune,recover,recover_baseline,recover_self_trained,quantize,evaluate,export"
    with_it = [f"pipeline=[{stages}]", "stages.evaluate.self_trained=recover_self_trained"]
    assert validation.settings(load_config(["recipe=prune", *with_it]), "prune") == []
    other = load_config(["recipe=prune", *with_it, "stages.evaluate.student=prune", "stages.quantize.start=prune"])
    (first, *_) = [line for line in validation.settings(other, "prune") if "stages.evaluate.self_trained" in line]
    assert first == (
        "stages.evaluate.self_trained: got recover_self_trained, which is trained as recover; must be a baseline of "
        "prune, the student that it is compared with; name another, or leave it out"
    )
    weights = ["soft_targets.weight=0", "vectors.weight=0", "supervised.weight=1"]
    for recipe, changes, expected in (
        (
            "prune",
            ["stages.recover_self_trained.start=recover"],
            "self_trained.start: got recover; must be left out with",
        ),
        ("prune", [f"stages.recover.terms.{each}" for each in weights], "left out where recover learns no outputs of"),
        ("auto", ["stages.evaluate.baseline=recover_baseline"], "self_trained; must be left out with budget.minutes"),
    ):
        changed = load_config([f"recipe={recipe}", *with_it, *changes])
        assert any(expected in line for line in map(str, validation.settings(changed, recipe)))


def test_a_term_of_weight_0_needs_no_teacher(settings: Config) -> None:
    changed = copy.deepcopy(settings)
    changed.stages["finetune_baseline"].terms["more"] = Term(0.0, "hidden", positions="all", loss=COSINE)  # type: ignore[attr-defined]
    assert validation.settings(changed, "distilbert") == []
