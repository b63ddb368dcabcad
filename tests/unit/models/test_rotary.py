"""Encoders with rotary positions whose heads share keys and values, or have another size than the width gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from distill.errors import ConfigError, DataError
from distill.models import families, student, teacher
from distill.models.hooks import capture
from distill.models.student.training import quick_on_cpu

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


@pytest.mark.parametrize("name", ["eurobert", "nomic_bert"])
def test_a_stated_size_of_heads_follows_the_width(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, "SequenceClassification")
    assert model.config.head_dim == 8
    sizes = {"hidden_size": 16, "num_attention_heads": 4}
    made = student.from_teacher(model, [0, 2], init="random", seed=0, sizes=sizes)
    assert made.config.head_dim == 4
    assert made(**families.inputs(made, tiny_batch)).logits.shape == (2, made.config.num_labels)


def test_heads_of_another_size_than_the_width_gives_are_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("eurobert", "SequenceClassification", head_dim=4).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"^teacher\.name: got .*, with head_dim 4; must be 8, its width over its 2 "):
        teacher.read_config(tmp_path)


def test_old_settings_that_transformers_does_not_read_are_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("nomic_bert", "SequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    # As in the first published files, whose sizes are transformers' defaults.
    old = {"n_head": 12, "rotary_emb_base": 1000, "activation_function": "swiglu"}
    (tmp_path / "config.json").write_text(json.dumps(config | old))
    assert teacher.read_config(tmp_path).num_attention_heads == 2
    for name, value in (("rotary_emb_base", 10000), ("activation_function", "gelu"), ("n_head", 16)):
        left = {key: stated for key, stated in config.items() if key not in ("rope_parameters", "num_attention_heads")}
        (tmp_path / "config.json").write_text(json.dumps(left | old | {name: value}))
        with pytest.raises(DataError, match=rf"config\.json: got {name} {value}; must be {old[name]}, with which tran"):
            teacher.read_config(tmp_path)


@pytest.mark.parametrize("code", [{}, {"auto_map": {"AutoModel": "modeling.NewModel"}}])
def test_a_type_without_a_class_is_refused_with_what_has_one(code: dict[str, str], tiny_model, tmp_path: Path) -> None:
    tiny_model("gte", "SequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | code))
    assert teacher.read_config(tmp_path).model_type == "gte", "code beside a type that has a class is not run"
    (tmp_path / "config.json").write_text(json.dumps(config | code | {"model_type": "new"}))
    wanted = r"^teacher\.name: got .*, a model of type new, for which transformers has no class"
    wanted += r" but the folder's own code \(modeling\.NewModel\), which is never run; " if code else "; "
    with pytest.raises(ConfigError, match=wanted + "must be of one of the types bert, "):
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
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"position_embedding_type": "sans_pos"}))
    assert teacher.read_config(tmp_path).layer_types == [model.config.layer_types[number] for number in (0, 2)]
    auto = getattr(transformers, f"AutoModelFor{head}")
    loaded, told = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = families.inputs(made, tiny_batch)
    torch.testing.assert_close(loaded(**given).logits, made(**given).logits, rtol=0, atol=0)


def test_only_rotary_models_may_name_rotary_positions(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert", "SequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"position_embedding_type": "rope"}))
    with pytest.raises(DataError, match=r"config\.json: got position_embedding_type rope; must be absolute, "):
        teacher.read_config(tmp_path)
