"""recipe=electra_small: a student that learns which tokens a generator replaced, from its models to its tasks."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, ElectraForPreTraining

from distill import config
from distill.errors import UserError
from distill.models import teacher
from distill.pipeline import validation
from distill.runtime.storage import atomic, run_folder

FAMILIES = runpy.run_path(str(Path(__file__).parent / "test_families.py"))
folder, arguments, whole = (FAMILIES[name] for name in ("folder", "arguments", "whole"))
FEW = ["tasks.names=[order]", "limit.steps=2"]


def terms(home: Path, stage: str) -> set[str]:
    return set(atomic.read_json(home / "out" / stage / run_folder.MANIFEST)["log"][-1]["terms"])


@pytest.mark.slow
def test_a_discriminator_keeps_its_objective_and_its_head(run: Any, tmp_path: Path) -> None:
    given = folder(tmp_path, "electra", "PreTraining")
    pipeline = ["adapt", "pretrain", "pretrain_baseline", "finetune_teacher", "finetune"]
    run(tmp_path, "electra_small", *arguments(given, *pipeline), *FEW)
    assert terms(tmp_path, "pretrain") == {"replaced", "replaced_targets"}
    assert terms(tmp_path, "pretrain_baseline") == {"replaced"}
    made, theirs = (
        whole(tmp_path / "out" / "pretrain", ElectraForPreTraining),
        ElectraForPreTraining.from_pretrained(given),
    )
    assert made.config.num_hidden_layers == 2
    # Two steps of Adam move each weight by about twice the learning rate, 5e-4, at most; a new head would be far away.
    for name, value in theirs.discriminator_predictions.state_dict().items():
        torch.testing.assert_close(made.discriminator_predictions.state_dict()[name], value, rtol=0, atol=1.1e-3)
    tuned = whole(tmp_path / "out" / "finetune" / "order", AutoModelForSequenceClassification)
    assert tuned.config.model_type == "electra"


@pytest.mark.slow
def test_of_another_teacher_the_labels_are_learned_alone(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = folder(tmp_path, "bert", "MaskedLM")
    run(tmp_path, "electra_small", *arguments(given, "adapt", "pretrain"), "limit.steps=2")
    line = "pretrain: left out because the teacher has no head for replaced tokens: replaced_targets"
    assert line in capsys.readouterr().out.splitlines()
    assert terms(tmp_path, "pretrain") == {"replaced"}
    assert whole(tmp_path / "out" / "pretrain", ElectraForPreTraining).config.num_hidden_layers == 2


def test_another_recipe_says_that_a_discriminators_head_is_not_used(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = folder(tmp_path, "electra", "PreTraining")
    run(tmp_path, "distilbert", *arguments(given, "adapt"), "limit.steps=1")
    assert f"teacher.name: the head of {given}, which detects replaced tokens, is not" in capsys.readouterr().out


WRONG = {
    "stages.pretrain.generator=null": "stages.pretrain.generator: got null; must be a stage whose language model ",
    "stages.pretrain.generator=teacher": "stages.pretrain.generator: got teacher; must be an earlier stage of the pipe",
    "stages.pretrain.terms.mlm.weight=1": "stages.pretrain.terms.mlm.features: got logits; must be replaced, as in ter",
    "stages.pretrain.skip_if_mlm_head=true": "stages.pretrain.skip_if_mlm_head: got true; must be false with terms.re",
    "stages.adapt.generator=adapt": "stages.adapt.generator: got adapt; must be ",
    "+term@stages.finetune.terms.more=replaced": "stages.finetune.terms.more.features: got replaced; must be of a sta",
    "stages.pretrain.terms.replaced.positions=masked": "stages.pretrain.terms.replaced.positions: got masked; must be ",
    "student.tokenizer=a/b": "stages.pretrain.generator: got adapt; must be a stage with the tokenizer of this one, ",
}


@pytest.mark.parametrize("change", WRONG)
def test_what_does_not_go_with_it_is_refused(change: str) -> None:
    found = validation.settings(config.load_config(["recipe=electra_small", change]), "electra_small")
    assert any(str(line).startswith(WRONG[change]) for line in found), found


@pytest.mark.slow
def test_a_generator_needs_a_language_model_and_a_term() -> None:
    more = ["recipe=distilbert", "stages.pretrain.generator=adapt"]
    (line,) = validation.settings(config.load_config(more), "distilbert")
    assert line.startswith("stages.pretrain.generator: got adapt; must be left out without a term on replaced")
    own = ["recipe=electra_small", "stages.pretrain_baseline.baseline_of=more", "+stage@stages.more=distil_corpus"]
    own += ["+term@stages.more.terms.replaced=replaced", "stages.more.generator=pretrain", "stages.more.start=pretrain"]
    pipeline = "pipeline=[adapt,pretrain,more]"
    found = validation.settings(config.load_config([*own, pipeline]), "electra_small")
    assert any(
        str(line).startswith("stages.more.generator: got pretrain; must be a stage with a term on logits, which ")
        for line in found
    ), found


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("bert", ["student.family=null"], r"student\.family: got a model of type bert; must be electra, the only type"),
        ("bert", ["stages.pretrain.terms.replaced.weight=0"], r"stages\.pretrain\.terms: got replaced_targets alone; "),
    ],
)
def test_models_without_the_head_are_refused_before_any_training(
    kind: str, settings: list[str], message: str, run: Any, tmp_path: Path
) -> None:
    from distill.errors import ConfigError

    given = folder(tmp_path, kind, "MaskedLM")
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, "electra_small", *arguments(given, "adapt", "pretrain"), *settings)
    assert not (tmp_path / "out" / "adapt").exists()


@pytest.mark.slow
def test_a_teacher_without_a_language_model_head_is_no_teacher_of_logits(run: Any, tmp_path: Path) -> None:
    """Its head would be random, and nothing would say so."""
    given = folder(tmp_path, "bert", "")
    words = ["stages.pretrain.start=teacher", "stages.pretrain.teacher=teacher", "limit.steps=1"]
    with pytest.raises(UserError, match="got a model without such a head; must have a language-model head for terms"):
        run(tmp_path, "distilbert", *arguments(given, "pretrain"), *words)
    run(tmp_path, "minilmv2", *arguments(given, "pretrain"), *words, "output=other")
    student = tmp_path / "other" / "pretrain"
    assert not teacher.load_mlm(student)[1], "a random head is not stored, so that no later stage takes it for trained"
    with torch.random.fork_rng():
        model, found = AutoModel.from_pretrained(student, output_loading_info=True, add_pooling_layer=False)
    assert type(model).__name__ == model.config.architectures[0] == "BertModel"
    assert not found["missing_keys"]
    more = ["+stage@stages.more=distil_corpus", "+term@stages.more.terms.soft_targets=soft_targets"]
    more += ["stages.more.start=pretrain", "stages.more.teacher=pretrain", "stages.more.build_student=false"]
    with pytest.raises(UserError, match=r"stages\.more\.teacher: got a model without such a head"):
        run(tmp_path, "minilmv2", *arguments(given, "pretrain", "more"), *words, *more, "output=third")


@pytest.mark.slow
@pytest.mark.parametrize("init", ["teacher_layers", "random"])
def test_a_head_that_is_not_trained_is_the_teachers_or_none(init: str, run: Any, tmp_path: Path) -> None:
    given = folder(tmp_path, "bert", "MaskedLM")
    words = ["stages.pretrain.start=teacher", "stages.pretrain.teacher=teacher", "limit.steps=1"]
    run(tmp_path, "minilmv2", *arguments(given, "pretrain"), *words, f"student.init={init}")
    model, has_head = teacher.load_mlm(tmp_path / "out" / "pretrain")
    assert has_head is (init != "random")
    if has_head:
        head = teacher.load_mlm(given)[0].cls.predictions.transform.state_dict()
        torch.testing.assert_close(model.cls.predictions.transform.state_dict(), head, rtol=0, atol=0)
