"""Every family record against the transformers model it describes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.record import UNBOUNDED

LONGEST = {
    "bert": 512,
    "ernie": 512,
    "roberta": 512,
    "xlm-roberta": 512,
    "camembert": 512,
    "data2vec-text": 512,
    "distilbert": 512,
    "electra": 512,
    "albert": 512,
    "mpnet": 512,
    "deberta": UNBOUNDED,
    "deberta-v2": UNBOUNDED,
    "modernbert": 8192,
    "eurobert": 8192,
    "ultrabert": 32768,
    "nomic_bert": 2048,
    "gte": 8192,
    "jina_embeddings_v3": 8194,
}
"""Contract table: family -> maximum length of its published models, in tokens."""

ROTARY = ("modernbert", "eurobert", "ultrabert", "nomic_bert", "gte", "jina_embeddings_v3")
"""Families without a table of positions."""

TYPED = ("bert", "ernie", "electra", "albert", "nomic_bert")
"""Contract table: families whose published models have token types."""

PUBLISHED = {
    **{
        name: {"max_position_embeddings": 514}
        for name in ("roberta", "xlm-roberta", "camembert", "data2vec-text", "mpnet")
    },
}
"""Settings in which published models of a family differ from transformers' default config."""


def test_every_family_has_a_row() -> None:
    assert set(LONGEST) == set(families.STUDENTS)
    assert all(record.name == name for name, record in families.FAMILIES.items())
    for record in families.FAMILIES.values():
        assert (record.layer is None) == (not record.mlm_head), "a corpus needs both"


def test_unknown_family_is_refused_with_the_list() -> None:
    with pytest.raises(ConfigError) as caught:
        families.family_of(SimpleNamespace(model_type="gpt2"))
    assert caught.value.messages == [
        f"teacher.name: got a model of type gpt2; must be one of {', '.join(families.FAMILIES)}; choose such a model"
    ]


@pytest.mark.parametrize("name", ["big_bird", "longformer"])
def test_long_encoders_with_their_own_attention_are_refused_with_the_reason(name: str) -> None:
    from transformers import AutoConfig

    wanted = rf"^teacher\.name: got a model of type {name}, which attends .*; must be .*; choose .* type modernbert, "
    with pytest.raises(ConfigError, match=wanted):
        families.family_of(AutoConfig.for_model(name))


def test_a_model_and_its_config_have_one_record(tiny_model) -> None:
    model = tiny_model("roberta")
    assert families.family_of(model) is families.family_of(model.config) is families.FAMILIES["roberta"]


@pytest.mark.parametrize("name", LONGEST)
def test_max_length(name: str, tiny_model) -> None:
    from transformers import AutoConfig

    assert (
        families.max_length(AutoConfig.for_model(name, **families.FAMILIES[name].published, **PUBLISHED.get(name, {})))
        == LONGEST[name]
    )
    model = tiny_model(name)
    longest = families.max_length(model.config)
    if longest == UNBOUNDED:
        longest = 100
    else:
        assert longest == 32
    batch = {"input_ids": torch.full((1, longest), 7), "attention_mask": torch.ones(1, longest, dtype=torch.long)}
    assert families.encode(model, batch).shape == (1, longest, 16)
    if families.max_length(model.config) != 32 or name in ROTARY:
        return  # no table of positions: longer texts work too
    with pytest.raises((IndexError, RuntimeError)):
        families.encode(model, {key: torch.cat([value, value[:, :1]], 1) for key, value in batch.items()})


@pytest.mark.parametrize("name", LONGEST)
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_encoder_and_layers(name: str, head: str, tiny_model) -> None:
    model = tiny_model(name, head, layers=4)
    assert families.encoder(model) is model.base_model
    assert families.encoder(model).get_submodule(families.FAMILIES[name].embeddings) is model.get_input_embeddings()
    assert len(families.layers(model)) == 4
    assert families.has_mlm_head(model) == (head == "MaskedLM")
    if (pooler := families.FAMILIES[name].pooler) is not None and head != "MaskedLM":
        assert list(model.get_submodule(pooler).parameters())


@pytest.mark.parametrize("name", LONGEST)
def test_encode_is_the_last_hidden_state(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    taken = families.inputs(model, tiny_batch)
    assert ("token_type_ids" in taken) == (name in TYPED)
    assert "labels" not in taken
    expected = model(**taken, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(families.encode(model, tiny_batch), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", TYPED)
def test_token_types_reach_the_model_that_has_them(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    other = tiny_batch | {"token_type_ids": 1 - tiny_batch["token_type_ids"]}
    assert not torch.allclose(families.encode(model, tiny_batch), families.encode(model, other))


@pytest.mark.parametrize("name", LONGEST)
def test_head_at_chosen_positions_equals_the_whole_model(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    whole = model(**families.inputs(model, tiny_batch)).logits
    chosen = torch.tensor([1, 3, 8, 9])
    hidden = families.encode(model, tiny_batch).flatten(0, 1)[chosen]
    torch.testing.assert_close(families.mlm_logits(model, hidden), whole.flatten(0, 1)[chosen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LONGEST)
def test_mlm_head_holds_every_parameter_outside_the_encoder(name: str, tiny_model) -> None:
    model = tiny_model(name)
    record = families.FAMILIES[name]
    prefixes = tuple(f"{path}." for path in (record.encoder, *record.mlm_head))
    assert all(key.startswith(prefixes) for key, _ in model.named_parameters())


@pytest.mark.parametrize("name", LONGEST)
def test_garbage_in_padding_changes_nothing(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    real = tiny_batch["attention_mask"].bool()
    # 1 is padding for RoBERTa, which counts its positions by it: garbage must be another token.
    garbage = tiny_batch | {"input_ids": torch.where(real, tiny_batch["input_ids"], 9)}
    expected, actual = (families.encode(model, batch)[real] for batch in (tiny_batch, garbage))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
