"""Students of other sizes and other families: what they start from, against the teacher's own answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import distill
from distill.errors import ConfigError
from distill.models import families, student
from distill.models.student.transfer import evenly
from tests.tiny import SHAPES

SHAPED = [name for name in SHAPES if families.STUDENTS[name].bert_like]
WIDE = {"embedding_size": 16}
"""Embeddings as wide as the layers: then another family of BERT's shape can compute just the same."""


def wide(tiny_model: Any, name: str, **settings: Any) -> Any:
    settings = {**WIDE, **settings} if name in ("electra", "albert") else settings
    return tiny_model(name, **settings)


def single(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Texts of one part: families without token types cannot tell two apart."""
    return batch | {"token_type_ids": torch.zeros_like(batch["token_type_ids"])}


def assert_close(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("other", [name for name in SHAPED if name != "albert"])
@pytest.mark.parametrize("name", [name for name in SHAPED if name != "albert"])
def test_another_family_of_berts_shape_computes_the_same(name: str, other: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name, hidden_act="gelu"), single(tiny_batch)
    if name == "distilbert":
        teacher = tiny_model(name, activation="gelu")
    for key, value in teacher.named_parameters():
        if key.endswith("relative_attention_bias.weight"):
            value.data.zero_()  # no other family has it
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=3, family=other).eval()
    assert built.config.model_type == other
    real = batch["attention_mask"].bool()
    theirs, ours = (families.encode(model, batch)[real] for model in (teacher, built))
    if {name, other} & {"distilbert"}:  # its norms add 1e-12 to the variance, whatever the config says
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    else:
        assert_close(ours, theirs)
    assert_close(families.mlm_logits(built, theirs), families.mlm_logits(teacher, theirs))
    assert families.max_length(built.config) == families.max_length(teacher.config)


@pytest.mark.parametrize(("name", "other"), [("albert", "electra"), ("electra", "electra"), ("albert", "albert")])
def test_narrow_embeddings_keep_their_projection(name: str, other: str, tiny_model, tiny_batch) -> None:
    teacher, batch = tiny_model(name, hidden_act="gelu"), single(tiny_batch)
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=3, family=other).eval()
    assert built.config.embedding_size == 8
    real = batch["attention_mask"].bool()
    assert_close(*(families.encode(model, batch)[real] for model in (built, teacher)))


def test_ernies_task_embedding_is_added_to_the_positions(tiny_model, tiny_batch) -> None:
    teacher, batch = tiny_model("ernie", use_task_id=True), single(tiny_batch)
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=3, family="bert").eval()
    real = batch["attention_mask"].bool()
    assert_close(*(families.encode(model, batch)[real] for model in (built, teacher)))


def test_layers_of_groups_are_not_cut(tiny_model) -> None:
    """ALBERT's number of layers decides which group's weights each of them has."""
    model = tiny_model("albert", "SequenceClassification", layers=4, num_hidden_groups=2)
    with pytest.raises(ConfigError, match=r"got 2 of 4 layers, whose weights are in 2 groups .* use another model"):
        distill.student(model, layers=[0, 1])
    assert distill.student(model, layers=[0, 1, 2, 3]).config.num_hidden_layers == 4


@pytest.mark.parametrize("name", [name for name in SHAPED if name != "albert"])
def test_a_shared_layer_starts_from_the_first_layer(name: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name), single(tiny_batch)
    built = student.from_teacher(teacher, [1, 2], init="teacher_layers", seed=0, family="albert").eval()
    same = student.from_teacher(teacher, [1, 2], init="teacher_layers", seed=0)
    first, second = families.layers(same)
    second.load_state_dict(first.state_dict())
    for key, value in same.named_parameters():
        if key.endswith("relative_attention_bias.weight"):
            value.data.zero_()
    assert len({id(layer) for layer in families.layers(built)}) == 1
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(
        families.encode(built, batch)[real], families.encode(same.eval(), batch)[real], rtol=1e-3, atol=1e-3
    )


HIDDEN, FFN = [0, 1, 2, 3, 8, 9, 10, 11], list(range(0, 24, 2))
"""What is kept of 16 channels in 4 heads when 8 are wanted, and of 24 in the FFN when 12 are."""


def of_layers(model: Any, number: int, slot: str) -> Any:
    return families.layers(model)[number].get_submodule(getattr(families.family_of(model).layer, slot))


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_a_narrower_student_has_the_same_channels_everywhere(
    name: str, head: str, tiny_model, tiny_batch, tmp_path
) -> None:
    """Each part by channels counted by hand: of the residual stream, of the heads, of the FFN."""
    settings = {"embedding_size": 16} if name == "electra" else {}
    teacher = tiny_model(name, head, num_attention_heads=4, **settings)
    sizes = {"hidden_size": 8, "intermediate_size": 12}
    built = student.from_teacher(teacher, [0, 2], init="teacher_layers", seed=0, sizes=sizes).eval()
    assert (built.config.hidden_size, built.config.num_attention_heads) == (8, 2)

    def same(slot: str, rows: list[int], columns: list[int]) -> None:
        ours, theirs = of_layers(built, 1, slot), of_layers(teacher, 2, slot)
        torch.testing.assert_close(ours.weight, theirs.weight[rows][:, columns], rtol=0, atol=0)
        if ours.bias is not None:
            torch.testing.assert_close(ours.bias, theirs.bias[rows], rtol=0, atol=0)

    if name == "modernbert":
        projections = {"query": [16 * part + row for part in range(3) for row in HIDDEN]}
    elif name == "deberta":  # of each head its queries, keys and values
        projections = {"query": [12 * kept + row for kept in (0, 2) for row in range(12)]}
    else:
        projections = dict.fromkeys(("query", "key", "value"), HIDDEN)  # type: ignore[arg-type]
    for slot, rows in projections.items():
        same(slot, rows, HIDDEN)
    same("attention_output", HIDDEN, HIDDEN)
    same("ffn_in", [24 * part + row for part in range(2) for row in FFN] if name == "modernbert" else FFN, HIDDEN)
    same("ffn_out", HIDDEN, FFN)
    for slot in ("attention_norm", "ffn_norm"):
        ours, theirs = (of_layers(model, number, slot).weight for model, number in ((built, 1), (teacher, 2)))
        torch.testing.assert_close(ours, theirs[HIDDEN], rtol=0, atol=0)
    words, all_words = (model.get_input_embeddings().weight for model in (built, teacher))
    torch.testing.assert_close(words, all_words if name == "albert" else all_words[:, HIDDEN], rtol=0, atol=0)

    built.save_pretrained(tmp_path)
    loaded, told = type(built).from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    inputs = families.inputs(built, tiny_batch)
    torch.testing.assert_close(loaded.eval()(**inputs).logits, built(**inputs).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_heads_stay_whole(name: str, tiny_model, tiny_batch) -> None:
    """Queries, keys and values of a head that is kept are the teacher's, on what is left of the hidden state."""
    settings = {"embedding_size": 16} if name == "electra" else {}
    teacher = tiny_model(name, num_attention_heads=4, **settings)
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=0, sizes={"hidden_size": 8}).eval()
    found = {}
    for model, rows in ((teacher, HIDDEN), (built, list(range(8)))):
        stream = torch.zeros(2, 7, model.config.hidden_size)  # nothing in the channels that are left out
        stream[..., rows] = torch.linspace(-1, 1, 8)
        record, layer = families.FAMILIES[name], families.layers(model)[0]
        three = (
            layer.get_submodule(path)(stream) for path in (record.layer.query, record.layer.key, record.layer.value)
        )
        attention = layer.get_submodule(record.layer.attention)
        found[model] = record.qkv(attention, *three, model.config.num_attention_heads)
    for ours, theirs in zip(found[built], found[teacher], strict=True):
        torch.testing.assert_close(ours, theirs[:, [0, 2]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["electra", "albert"])
@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_wider_embeddings_are_closer_to_the_teachers(name: str, kind: str, tiny_model, tiny_batch) -> None:
    teacher, batch = wide(tiny_model, name), single(tiny_batch)
    real = batch["attention_mask"].bool()
    outputs: list[torch.Tensor] = []
    families.layers(teacher)[0].register_forward_pre_hook(lambda module, given: outputs.append(given[0][real]))
    families.encode(teacher, batch)
    distances = []
    for width in (2, 6, 14):
        built = student.from_teacher(
            teacher, [0, 2], init="teacher_layers", seed=0, family=kind, sizes={"embedding_size": width}
        )
        assert built.get_input_embeddings().weight.shape == (60, width)
        before = len(outputs)
        families.layers(built)[0].register_forward_pre_hook(lambda module, given: outputs.append(given[0][real]))
        families.encode(built.eval(), batch)
        distances.append((outputs[before] - outputs[0]).square().mean().item())
    assert distances[0] > max(distances[1:])
    assert distances[2] < 0.5 * outputs[0].var().item()


def test_impossible_students_are_refused(tiny_model) -> None:
    teacher = tiny_model("bert")

    def refusal(given: Any = teacher, **settings: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            student.from_teacher(given, [0, 2], **({"init": "teacher_layers", "seed": 0} | settings))
        return caught.value.messages[0]

    assert refusal(family="gpt2").startswith("student.family: got gpt2; must be one of bert, ")
    assert refusal(family="modernbert").startswith("student.init: got teacher_layers; must be random for a student")
    assert refusal(sizes={"hidden_size": 15}).startswith("student.hidden_size: got 15; must be a multiple of 8, ")
    assert refusal(sizes={"hidden_size": 32}).startswith("student.hidden_size: got 32; must be <= 16, the teacher's")
    assert refusal(sizes={"intermediate_size": 25}).startswith("student.intermediate_size: got 25; must be <= 24, the ")
    line = refusal(sizes={"num_attention_heads": 3})
    assert line.startswith("student.num_attention_heads: got 3; must divide the student's width, 16; set 2 ")
    line = refusal(sizes={"num_attention_heads": 4})
    assert line == (
        "student.num_attention_heads: got 4, for heads of size 4; must give the teacher's head size, 8; set 2; "
        "or set student.init=random"
    )
    line = refusal(sizes={"embedding_size": 4})
    assert line.startswith("student.embedding_size: got 4; must be left out in family bert")
    assert line.endswith("set student.family=electra")
    wider = refusal(family="electra", sizes={"embedding_size": 17})
    assert wider.startswith("student.embedding_size: got 17; must be <= 16, the width of the layers")
    other = tiny_model("bert", pad_token_id=0)
    assert "mpnet pads with 1" in refusal(other, family="mpnet")
    # A teacher's projection after its embeddings has no place in a student without one.
    wide = "with embeddings as wide as its layers; must have a projection after its embeddings, as the teacher has"
    for kind in ("bert", "distilbert", "mpnet"):
        assert refusal(tiny_model("albert"), family=kind).startswith(f"student.family: got {kind} {wide}")
    assert refusal(tiny_model("electra"), sizes={"hidden_size": 8}).startswith(f"student.family: got electra {wide}")
    line = refusal(tiny_model("electra"), sizes={"embedding_size": 4})
    assert line.startswith("student.embedding_size: got 4; must be 8, as in the teacher")


@pytest.mark.parametrize("kind", SHAPES)
def test_a_student_of_any_family_can_start_at_random(kind: str, tiny_model, tiny_batch, tmp_path) -> None:
    from transformers import AutoModelForMaskedLM

    teacher = tiny_model("bert")
    built = student.from_teacher(teacher, [0, 2], init="random", seed=0, family=kind, sizes={"hidden_size": 8}).eval()
    assert (built.config.model_type, built.config.num_hidden_layers, built.config.vocab_size) == (kind, 2, 60)
    assert families.max_length(built.config) >= 32
    built.save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    batch = families.inputs(built, tiny_batch)
    assert torch.equal(loaded(**batch).logits, built(**batch).logits)


@pytest.mark.parametrize(
    ("total", "count", "block", "expected"),
    [
        (6, 3, 1, [0, 2, 4]),
        (8, 4, 2, [0, 1, 4, 5]),
        (7, 3, 1, [0, 2, 4]),
        (6, 3, 2, [0, 2, 4]),
        (4, 4, 2, [0, 1, 2, 3]),
    ],
)
def test_evenly(total: int, count: int, block: int, expected: list[int]) -> None:
    assert evenly(total, count, block).tolist() == expected
