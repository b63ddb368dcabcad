"""Students of other sizes and other families: what they start from, against the teacher's own answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from distill import family, student
from distill.config import ConfigError
from distill.student.transfer import evenly

SHAPED = [name for name, record in family.FAMILIES.items() if record.bert_shape]
WIDE = {"embedding_size": 16}
"""Embeddings as wide as the layers: then another family of BERT's shape can compute just the same."""


def wide(tiny_model: Any, name: str, **settings: Any) -> Any:
    settings = {**WIDE, **settings} if name in ("electra", "albert") else settings
    made = tiny_model(name, **settings)
    if name == "albert":  # it has a projection all the same, which no other family has
        torch.nn.init.eye_(made.albert.encoder.embedding_hidden_mapping_in.weight)
        torch.nn.init.zeros_(made.albert.encoder.embedding_hidden_mapping_in.bias)
    return made


def single(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Texts of one part: families without token types cannot tell two apart."""
    return batch | {"token_type_ids": torch.zeros_like(batch["token_type_ids"])}


def assert_close(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("other", [name for name in SHAPED if name != "albert"])
@pytest.mark.parametrize("name", SHAPED)
def test_another_family_of_berts_shape_computes_the_same(name: str, other: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name, hidden_act="gelu"), single(tiny_batch)
    if name == "distilbert":
        teacher = tiny_model(name, activation="gelu")
    for key, value in teacher.named_parameters():
        if key.endswith("relative_attention_bias.weight"):
            value.data.zero_()  # no other family has it
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=3, kind=other).eval()
    assert built.config.model_type == other
    real = batch["attention_mask"].bool()
    theirs, ours = (family.encode(model, batch)[real] for model in (teacher, built))
    if {name, other} & {"distilbert"}:  # its norms add 1e-12 to the variance, whatever the config says
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    else:
        assert_close(ours, theirs)
    assert_close(family.mlm_logits(built, theirs), family.mlm_logits(teacher, theirs))
    assert family.max_length(built.config) == family.max_length(teacher.config)


@pytest.mark.parametrize("name", [name for name in SHAPED if name != "albert"])
def test_a_student_that_shares_its_layers_is_like_the_first_of_them(name: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name), single(tiny_batch)
    built = student.from_teacher(teacher, [1, 2], init="teacher_layers", seed=0, kind="albert").eval()
    same = student.from_teacher(teacher, [1, 2], init="teacher_layers", seed=0)
    first, second = family.layers(same)
    second.load_state_dict(first.state_dict())
    for key, value in same.named_parameters():
        if key.endswith("relative_attention_bias.weight"):
            value.data.zero_()
    assert len({id(layer) for layer in family.layers(built)}) == 1
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(
        family.encode(built, batch)[real], family.encode(same.eval(), batch)[real], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", list(family.FAMILIES))
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_a_narrower_student_has_evenly_spaced_channels(name: str, head: str, tiny_model, tiny_batch, tmp_path) -> None:
    """A teacher whose every second head and channel does nothing loses nothing when these are left out."""
    teacher = tiny_model(name, head, num_attention_heads=4)
    sizes = {"hidden_size": 8, "intermediate_size": 12}
    built = student.from_teacher(teacher, [0, 2], init="teacher_layers", seed=0, sizes=sizes).eval()
    assert (built.config.hidden_size, built.config.num_attention_heads) == (8, 2)
    given, got = family.layers(teacher)[2], family.layers(built)[1]
    parts = family.FAMILIES[name].layer
    hidden, ffn = evenly(16, 8, 4), evenly(24, 12)
    assert hidden.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    output = (module.get_submodule(parts.attention_output).weight for module in (got, given))
    torch.testing.assert_close(next(output), next(output)[hidden][:, hidden], rtol=0, atol=0)
    outer = (module.get_submodule(parts.ffn_out).weight for module in (got, given))
    torch.testing.assert_close(next(outer), next(outer)[hidden][:, ffn], rtol=0, atol=0)
    built.save_pretrained(tmp_path)
    loaded, told = type(built).from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    inputs = family.inputs(built, tiny_batch)
    torch.testing.assert_close(loaded.eval()(**inputs).logits, built(**inputs).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", list(family.FAMILIES))
def test_heads_stay_whole(name: str, tiny_model, tiny_batch) -> None:
    """The queries of a head that is kept are the teacher's, on what is left of the hidden state."""
    from distill.features import capture

    teacher = tiny_model(name, num_attention_heads=4)
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=0, sizes={"hidden_size": 8}).eval()
    kept = evenly(16, 8, 4)
    with torch.no_grad():  # what is left out must not count: channels of the residual stream that are zero
        for model, rows in ((teacher, kept), (built, torch.arange(8))):
            projection = family.layers(model)[0].get_submodule(family.FAMILIES[name].layer.query)
            stream = torch.zeros(2, 7, model.config.hidden_size)
            stream[..., rows] = torch.linspace(-1, 1, 8)
            three = projection(stream)
            record, attention = family.FAMILIES[name], family.layers(model)[0]
            module = attention.get_submodule(record.layer.attention)
            query, _, _ = record.qkv(module, three, three, three, model.config.num_attention_heads)
            if model is teacher:
                expected = query[:, [0, 2]]
    torch.testing.assert_close(query, expected, rtol=1e-5, atol=1e-5)
    assert capture(built, tiny_batch, {"queries": [0]}).queries[0].shape == (2, 2, 7, 4)


@pytest.mark.parametrize("kind", ["electra", "albert"])
@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_wider_embeddings_are_closer_to_the_teachers(name: str, kind: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name), single(tiny_batch)
    real = batch["attention_mask"].bool()
    outputs: list[torch.Tensor] = []
    family.layers(teacher)[0].register_forward_pre_hook(lambda module, given: outputs.append(given[0][real]))
    family.encode(teacher, batch)
    distances = []
    for width in (2, 6, 14):
        built = student.from_teacher(
            teacher, [0, 2], init="teacher_layers", seed=0, kind=kind, sizes={"embedding_size": width}
        )
        assert built.get_input_embeddings().weight.shape == (60, width)
        before = len(outputs)
        family.layers(built)[0].register_forward_pre_hook(lambda module, given: outputs.append(given[0][real]))
        family.encode(built.eval(), batch)
        distances.append((outputs[before] - outputs[0]).square().mean().item())
    assert distances[0] > max(distances[1:])
    assert distances[2] < 0.5 * outputs[0].var().item()


def test_what_cannot_be(tiny_model) -> None:
    teacher = tiny_model("bert")

    def refusal(teacher: Any = teacher, **settings: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            student.from_teacher(teacher, [0, 2], **({"init": "teacher_layers", "seed": 0} | settings))
        (line,) = caught.value.messages
        return line

    assert refusal(kind="gpt2").startswith("student.family: got gpt2; must be one of bert, ")
    assert refusal(kind="modernbert").startswith("student.init: got teacher_layers; must be random for a student")
    assert refusal(sizes={"hidden_size": 15}).startswith("student.hidden_size: got 15; must be a multiple of the ")
    assert refusal(sizes={"hidden_size": 32}).startswith("student.hidden_size: got 32; must be <= 16, the teacher's")
    line = refusal(sizes={"embedding_size": 4})
    assert line.startswith("student.embedding_size: got 4; must be null in family bert")
    assert line.endswith("set student.family=electra or albert")
    other = tiny_model("bert", pad_token_id=0)
    assert "mpnet pads with 1" in refusal(teacher=other, kind="mpnet")


@pytest.mark.parametrize("kind", list(family.FAMILIES))
def test_a_student_of_any_family_can_start_at_random(kind: str, tiny_model, tiny_batch, tmp_path) -> None:
    from transformers import AutoModelForMaskedLM

    teacher = tiny_model("bert")
    built = student.from_teacher(teacher, [0, 2], init="random", seed=0, kind=kind, sizes={"hidden_size": 8}).eval()
    assert (built.config.model_type, built.config.num_hidden_layers, built.config.vocab_size) == (kind, 2, 60)
    assert family.max_length(built.config) >= 32
    built.save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    batch = family.inputs(built, tiny_batch)
    assert torch.equal(loaded(**batch).logits, built(**batch).logits)


@pytest.mark.parametrize(
    ("have", "want", "size", "expected"),
    [
        (6, 3, 1, [0, 2, 4]),
        (8, 4, 2, [0, 1, 4, 5]),
        (7, 3, 1, [0, 2, 4]),
        (6, 3, 2, [0, 2, 4]),
        (4, 4, 2, [0, 1, 2, 3]),
    ],
)
def test_evenly(have: int, want: int, size: int, expected: list[int]) -> None:
    assert evenly(have, want, size).tolist() == expected
