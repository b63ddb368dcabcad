"""Settings that were typed for a stage which the pipeline leaves out are named, and no others."""

from __future__ import annotations

import pytest

from distill.config import load_config
from distill.pipeline.validation.unused import unused

END = ": this has no effect, because the pipeline is finetune_teacher, quantize, evaluate, export"


def line(*words: str) -> str | None:
    return unused(load_config([*words]), words)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["stages.recover.epochs=9"], "stages.recover.epochs"),
        (["stages.finetune_teacher.epochs=1", "seed=1"], None),
        (["stages.recover.epochs=9", "++stages.prune.uniform=false"], "stages.recover.epochs, stages.prune.uniform"),
        (["+term@stages.recover.terms.x=cosine"], "stages.recover.terms.x"),
        (["~stages.recover.terms.supervised"], None),
        (["stages.quantize.schemes=[onnxruntime]"], None),
    ],
)
def test_settings_of_stages_that_are_left_out_are_named(words: list[str], keys: str | None) -> None:
    assert line("recipe=quantize", *words) == (None if keys is None else keys + END)


def test_a_baseline_takes_some_settings_of_a_stage_that_is_left_out() -> None:
    words = ["recipe=prune", "pipeline=[finetune_teacher,prune,recover_baseline]", "stages.recover.epochs=9"]
    end = ": this has no effect, because the pipeline is finetune_teacher, prune, recover_baseline"
    assert line(*words, "stages.recover.folds=3") == f"stages.recover.folds{end}"


def test_the_stage_in_place_of_a_teacher_takes_terms_of_a_stage_that_is_left_out() -> None:
    words = ["recipe=quantize", "teacher=none", "stages.recover.terms.soft_targets.weight=0.3"]
    assert line(*words) is None
    assert line(*words, "stages.recover.epochs=9") == f"stages.recover.epochs{END}"


def test_a_value_that_the_recipe_takes_over_is_not_named() -> None:
    words = ["recipe=auto", "pipeline=[finetune_teacher,quantize_teacher]", "stages.quantize.schemes=[onnxruntime]"]
    assert line(*words) is None
    assert line(*words, "stages.quantize_teacher.schemes=[openvino]") == (
        "stages.quantize.schemes: this has no effect, because the pipeline is finetune_teacher, quantize_teacher"
    )
