"""Encoders with rotary positions whose heads share keys and values, or have another size than the width gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.compression.pruning.prune import everything, pruned
from distill.errors import ConfigError, DataError
from distill.models import families, student, teacher
from distill.models.hooks import capture
from distill.models.student.training import quick_on_cpu
from tests import tiny

GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2}


def test_scores_of_heads_in_groups_are_those_of_transformers(tiny_model, tiny_batch) -> None:
    model = tiny_model("eurobert", "SequenceClassification", **GROUPED).eval()
    model.set_attn_implementation("eager")
    given = families.inputs(model, tiny_batch)
    with torch.no_grad():
        wanted = model(**given, output_attentions=True).attentions
        found = capture(model, tiny_batch, {"scores": [0, 2], "keys": [0], "values": [0]})
    mask = torch.where(tiny_batch["attention_mask"].bool(), 0.0, -torch.inf)[:, None, None]
    for number in (0, 2):
        torch.testing.assert_close((found.scores[number] + mask).softmax(-1), wanted[number], rtol=1e-4, atol=1e-5)
    assert found.keys[0].shape == found.values[0].shape == (2, 4, 7, 4)


def test_heads_in_groups_train_on_short_rows(tiny_model, tiny_batch) -> None:
    model = tiny_model("eurobert", "SequenceClassification", **GROUPED).eval()
    wanted = model(**families.inputs(model, tiny_batch)).logits
    with quick_on_cpu(model, [8]):
        torch.testing.assert_close(model(**families.inputs(model, tiny_batch)).logits, wanted, rtol=1e-4, atol=1e-5)


def test_heads_in_groups_stay_together(tiny_model) -> None:
    model = tiny_model("eurobert", "SequenceClassification", **GROUPED)
    made = student.from_teacher(model, [0, 2], init="teacher_layers", seed=0, sizes={"intermediate_size": 12})
    assert (made.config.num_attention_heads, made.config.num_key_value_heads) == (4, 2)
    with pytest.raises(
        ConfigError, match=r"num_attention_heads: got 2; must be 4, the teacher's, because its heads sh"
    ):
        student.from_teacher(model, [0, 2], init="teacher_layers", seed=0, sizes={"hidden_size": 8})
    made = student.from_teacher(model, [0, 2], init="random", seed=0, sizes={"hidden_size": 8})
    assert (made.config.num_attention_heads, made.config.num_key_value_heads) == (2, 1)


def test_the_longer_of_two_stated_lengths_counts(tiny_model) -> None:
    """As sentence-transformers reads such a folder: rotary positions have no table."""
    config = tiny_model("nomic_bert", "SequenceClassification", max_position_embeddings=32).config
    assert families.max_length(config) == 32
    config.n_positions = 128
    assert families.max_length(config) == 128
    config.rotary_scaling_factor, config.max_trained_positions = 2, 64  # which transformers does not compute
    assert families.max_length(config) == 64


@pytest.mark.parametrize("name", ["eurobert", "nomic_bert"])
def test_a_stated_size_of_heads_follows_the_width(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, "SequenceClassification")
    assert model.config.head_dim == 8
    sizes = {"hidden_size": 16, "num_attention_heads": 4}
    made = student.from_teacher(model, [0, 2], init="random", seed=0, sizes=sizes)
    assert made.config.head_dim == 4
    assert made(**families.inputs(made, tiny_batch)).logits.shape == (2, made.config.num_labels)


def test_heads_of_another_size_than_the_width_gives_are_refused(tiny_model, tmp_path: Path) -> None:
    model = tiny_model("eurobert", "SequenceClassification", head_dim=4)
    model.save_pretrained(tmp_path)
    wanted = r"^teacher\.name: got a model with head_dim 4; must be 8, its width over its 2 "
    with pytest.raises(ConfigError, match=wanted):
        teacher.read_config(tmp_path)
    with pytest.raises(ConfigError, match=wanted):
        student.from_teacher(model, [0, 2], init="teacher_layers", seed=0)
    with pytest.raises(ConfigError, match=wanted):
        pruned(model, replace(everything(model), ffn=[torch.arange(12)] * 3))


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("eurobert", {"num_attention_heads": 0, "head_dim": None}),
        ("gte", {"num_attention_heads": 0, "head_dim": 8}),
        ("nomic_bert", {"num_attention_heads": None, "head_dim": 8}),
        ("nomic_bert", {"hidden_size": None, "head_dim": 8}),
    ],
)
def test_numbers_of_heads_that_are_none_are_an_error_of_the_folder(
    name: str, stated: dict[str, Any], tiny_model, tmp_path: Path
) -> None:
    tiny_model(name, "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", **stated)
    with pytest.raises(DataError, match="got files that cannot be loaded"):
        teacher.read_config(tmp_path)


def test_a_stated_size_of_heads_counts_where_layers_read_it(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert", "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", head_dim=64)
    assert teacher.read_config(tmp_path).num_attention_heads == 2


def test_no_number_of_groups_is_a_group_for_each_head(tiny_model, tmp_path: Path) -> None:
    config = tiny_model("gte", num_key_value_heads=None).config
    assert student.student_config(config, [0, 2], None, {"hidden_size": 8}).num_key_value_heads is None
    tiny_model("eurobert").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", num_key_value_heads=None)
    assert teacher.read_config(tmp_path).num_key_value_heads == 2


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_follow_from_the_longest_text_are_not_recorded(kind: str, tiny_model) -> None:
    model = tiny_model("eurobert")
    assert families.recordable(model)
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_type": kind}
    assert not families.recordable(model)
    model = tiny_model("modernbert")
    assert families.recordable(model)
    model.config.rope_parameters = {"full_attention": {"rope_type": kind}, "sliding_attention": {}}
    assert not families.recordable(model)


def test_old_settings_that_transformers_does_not_read_are_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("nomic_bert", "SequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    # As in the first published files, whose sizes are transformers' defaults.
    old = {"n_head": 12, "rotary_emb_base": 1000, "activation_function": "swiglu"}
    (tmp_path / "config.json").write_text(json.dumps(config | old))
    assert teacher.read_config(tmp_path).num_attention_heads == 2
    old |= {"rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "scale_attn_weights": True}
    old |= {"scale_attn_by_inverse_layer_idx": False, "parallel_block": False}
    changed = {"rotary_emb_base": 10000, "activation_function": "gelu", "n_head": 16, "rotary_emb_interleaved": True}
    changed |= {"rotary_emb_scale_base": 512, "scale_attn_weights": False}
    changed |= {"scale_attn_by_inverse_layer_idx": True, "parallel_block": True}
    for name, value in changed.items():
        left = {key: stated for key, stated in config.items() if key not in ("rope_parameters", "num_attention_heads")}
        (tmp_path / "config.json").write_text(json.dumps(left | old | {name: value}))
        with pytest.raises(DataError, match=rf"config\.json: got {name} {value}; must be {old[name]}, with which tran"):
            teacher.read_config(tmp_path)


def test_the_published_name_of_a_pooling_counts(tiny_model, tmp_path: Path) -> None:
    tiny_model("eurobert", "SequenceClassification").save_pretrained(tmp_path)
    for given in (
        {"clf_pooling": "late", "classifier_pooling": ...},
        {"clf_pooling": "mean", "classifier_pooling": "mean"},
    ):
        tiny.change(tmp_path / "config.json", **given)
        assert teacher.read_config(tmp_path).classifier_pooling == given["clf_pooling"]
    tiny.change(tmp_path / "config.json", classifier_pooling=...)
    with pytest.raises(DataError, match=r"got clf_pooling mean; must be late, .*; set classifier_pooling too"):
        teacher.read_config(tmp_path)


@pytest.mark.parametrize("code", [{}, {"auto_map": {"AutoModel": "modeling.NewModel"}}])
def test_a_type_without_a_class_is_refused_with_what_has_one(code: dict[str, str], tiny_model, tmp_path: Path) -> None:
    tiny_model("gte", "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", **code)
    assert teacher.read_config(tmp_path).model_type == "gte", "code beside a type that has a class is not run"
    tiny.change(tmp_path / "config.json", model_type="new")
    wanted = r"^teacher\.name: got .*, a model of type new, for which transformers has no class"
    wanted += r" but the folder's own code \(modeling\.NewModel\), which is never run; " if code else "; "
    with pytest.raises(ConfigError, match=wanted + "must be of one of the types bert, "):
        teacher.read_config(tmp_path)


def test_a_config_without_a_type_is_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert", "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", model_type=...)
    with pytest.raises(DataError, match=r"config\.json: got no model_type; must be "):
        teacher.read_config(tmp_path)


SHAPED = {
    "layers that are listed": {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    "an output embedding of its own": {"tie_word_embeddings": False},
    "biases, and the mean in place of the first token": {
        "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
        "classifier_pooling": "mean",
    },
    "a wide window": {"local_attention": 128},
}  # fmt: skip
"""What differs in the configs of models of ModernBERT's type, such as mmBERT, Ettin and Granite's."""


@pytest.mark.parametrize("case", SHAPED)
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_other_models_of_the_type_of_modernbert(case: str, head: str, tiny_model, tiny_batch, tmp_path: Path) -> None:
    import transformers

    model = tiny_model("modernbert", head, **SHAPED[case])
    made = student.from_teacher(model, [0, 2], init="teacher_layers", seed=0, sizes={"hidden_size": 8}).eval()
    made.save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", position_embedding_type="sans_pos")
    assert teacher.read_config(tmp_path).layer_types == [model.config.layer_types[number] for number in (0, 2)]
    auto = getattr(transformers, f"AutoModelFor{head}")
    loaded, told = auto.from_pretrained(tmp_path, output_loading_info=True)
    if head == "MaskedLM":
        for each in (made, loaded):
            output, token = each.get_output_embeddings().weight, each.get_input_embeddings().weight
            tied = SHAPED[case].get("tie_word_embeddings", True)
            assert tied == (output is token) == torch.equal(output, token)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = families.inputs(made, tiny_batch)
    torch.testing.assert_close(loaded(**given).logits, made(**given).logits, rtol=0, atol=0)


def test_only_rotary_models_may_name_rotary_positions(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert", "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", position_embedding_type="rope")
    wanted = (
        r"config\.json: got position_embedding_type rope; must be absolute, .* files of it in a type that has them, "
    )
    with pytest.raises(DataError, match=wanted):
        teacher.read_config(tmp_path)
    tiny_model("modernbert", "SequenceClassification").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", position_embedding_type="alibi")
    with pytest.raises(DataError, match=r"config\.json: got position_embedding_type alibi; must be rotary, "):
        teacher.read_config(tmp_path)
