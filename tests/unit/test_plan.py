"""One run for several targets: what its stages are called, what each is made from, in which order they run."""

from __future__ import annotations

import pytest

from distill import config
from distill.config import Config, Target
from distill.plan import cut_by, goals, has_target, made_by, of_student, references, taught_start, unrolled


def composed(*overrides: str) -> Config:
    return config.load_config(["recipe=prune", *overrides])


@pytest.mark.parametrize(
    ("override", "labels"),
    [
        ("target.speedup=2.0", [""]),
        ("target.speedup=[1.5,2,10]", ["1.5x", "2x", "10x"]),
        ("target.latency_ms=[5,2.5]", ["5ms", "2.5ms"]),
        ("target.size_mib=[20,10]", ["20MiB", "10MiB"]),
    ],
)
def test_a_list_is_several_goals(override: str, labels: list[str]) -> None:
    settings = composed("target.speedup=null", override)
    assert list(goals(settings)) == labels
    assert has_target(settings)


def test_each_goal_has_its_own_number_and_the_rest_of_the_target() -> None:
    found = goals(composed("target.speedup=[2,4]", "target.size_mib=50", "target.shape=[1,32]"))
    assert found["2x"] == Target(speedup=2, size_mib=50, shape=[1, 32])
    assert found["4x"] == Target(speedup=4, size_mib=50, shape=[1, 32])


def test_one_target_changes_nothing() -> None:
    settings = composed()
    assert unrolled(settings) == settings
    assert made_by(settings, "recover") == ["recover"]


def test_what_goes_on_from_a_pruned_model_is_there_for_each_goal() -> None:
    settings = unrolled(composed("target.speedup=[2,4]"))
    assert settings.pipeline == [
        "finetune_teacher",
        "prune",
        *("recover/2x", "recover/4x"),
        *("recover_baseline/2x", "recover_baseline/4x"),
        *("quantize/2x", "quantize/4x"),
        "evaluate",
        *("export/2x", "export/4x"),
    ]
    stages = settings.stages
    assert stages["recover/4x"].start == "prune/4x"  # type: ignore[attr-defined]
    assert stages["recover/4x"].teacher == "finetune_teacher"  # type: ignore[attr-defined]
    assert stages["quantize/2x"].start == "recover/2x"  # type: ignore[attr-defined]
    assert (stages["export/2x"].quantized, stages["export/2x"].evaluated) == ("quantize/2x", "evaluate")  # type: ignore[attr-defined]


def test_references_are_the_stages_that_were_run() -> None:
    settings = unrolled(composed("target.speedup=[2,4]"))
    compared = references(settings, settings.stages["evaluate"])
    assert compared == [
        "finetune_teacher",
        *("recover/2x", "recover/4x"),
        *("recover_baseline/2x", "recover_baseline/4x"),
        *("quantize/2x", "quantize/4x"),
    ]
    assert references(settings, settings.stages["recover/2x"]) == ["prune/2x", "finetune_teacher"]
    assert references(settings, settings.stages["prune"]) == ["finetune_teacher"]
    single = composed()
    assert references(single, single.stages["recover"]) == ["prune", "finetune_teacher"]


def test_whose_models_a_stage_leaves() -> None:
    settings = config.load_config(["recipe=distil_prune_int8"])
    students = [name for name in settings.pipeline if of_student(settings, name)]
    made = ["vocabulary", "prune", "recover", "recover_baseline", "quantize", "export"]
    assert students == ["pretrain", "finetune", *made]
    assert [name for name in settings.pipeline if cut_by(settings, name) == "vocabulary"] == made
    settings.stages["pretrain"].start = "recover"  # type: ignore[attr-defined]
    assert of_student(settings, "recover")  # a circle ends


@pytest.mark.parametrize(
    ("recipe", "taught"),
    [("distilbert", False), ("prune", False), ("vocabulary", False), ("cofi", True), ("distil_prune_int8", True)],
)
def test_a_baseline_that_starts_from_what_a_teacher_made_is_known(recipe: str, taught: bool) -> None:
    assert taught_start(config.load_config([f"recipe={recipe}"])) == taught
