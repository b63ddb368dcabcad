"""Students against their teachers: what is copied, what is drawn, and what plain transformers reads back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from distill.config import Student
from distill.errors import ConfigError
from distill.models import families, student
from tests.tiny import SHAPES

HEADS = ["MaskedLM", "SequenceClassification"]
ATTENTION = ("self.dropout", "attention.dropout", "attn.dropout", "attention.attention_dropout")
"""How the dropouts of attention weights are named."""


def states(module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def assert_equal(left, right) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(1, [0]), (2, [0]), (3, [0]), (4, [0, 3]), (5, [0, 4]), (6, [0, 2, 5]), (7, [0, 3, 6]), (12, [0, 2, 4, 7, 9, 11])],
)
def test_half_depth(depth: int, expected: list[int]) -> None:
    assert student.half_depth(depth) == expected


@pytest.mark.parametrize(
    ("layers", "count", "expected"),
    [(None, None, [0, 2, 4, 7, 9, 11]), (None, 3, [0, 6, 11]), (None, 12, [*range(12)]), ([1, 3], 2, [1, 3])],
)
def test_a_student_starts_from_the_layers_or_the_number_that_is_set(
    layers: list[int] | None, count: int | None, expected: list[int]
) -> None:
    assert student.initial_layers(Student(layers=layers, num_hidden_layers=count), 12) == expected


def test_half_depth_is_always_a_valid_choice() -> None:
    for depth in range(1, 49):
        layers = student.half_depth(depth)
        student.check_layers(layers, SimpleNamespace(model_type="modernbert", num_hidden_layers=depth))
        assert len(layers) == max(depth // 2, 1)


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", [name for name in SHAPES if not families.FAMILIES[name].shared_layers])
@pytest.mark.parametrize("head", HEADS)
def test_layers_embeddings_and_head_are_copied(name: str, head: str, tiny_model, tiny_batch) -> None:
    teacher = tiny_model(name, head, layers=6)
    before = states(teacher)
    built = student.from_teacher(teacher, [0, 2, 5], init="teacher_layers", seed=1)
    assert type(built) is type(teacher)
    assert built.config.num_hidden_layers == 3
    for new, old in enumerate([0, 2, 5]):
        assert_equal(states(families.layers(built)[new]), states(families.layers(teacher)[old]))
    prefix = f"{families.family_of(teacher).encoder}.{families.family_of(teacher).layers}."
    rest = {key: value for key, value in before.items() if not key.startswith(prefix)}
    assert_equal({key: built.state_dict()[key] for key in rest}, rest)
    # The teacher is left as it was, and shares no memory with the student.
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
    assert_equal(states(teacher), before)
    assert teacher.config.num_hidden_layers == 6


def test_shared_layers_stay_shared(tiny_model, tiny_batch) -> None:
    """A student of two layers is the teacher stopped after its second layer, with all of its parameters."""
    teacher = tiny_model("albert", layers=4)
    built = student.from_teacher(teacher, [0, 3], init="teacher_layers", seed=0).eval()
    assert built.config.num_hidden_layers == len(families.layers(built)) == 2
    assert built.num_parameters() == teacher.num_parameters()
    out = teacher(**families.inputs(teacher, tiny_batch), output_hidden_states=True)
    assert_equal(families.encode(built, tiny_batch), out.hidden_states[2])


def test_kinds_of_layers_go_with_their_layers(tiny_model, tiny_batch, tmp_path) -> None:
    """ModernBERT: which layers look far is a list in the config, an entry a layer."""
    teacher = tiny_model("modernbert", layers=5)
    kinds = teacher.config.layer_types
    assert len(set(kinds)) == 2
    built = student.from_teacher(teacher, [0, 1, 4], init="teacher_layers", seed=0)
    assert built.config.layer_types == [kinds[0], kinds[1], kinds[4]]
    with pytest.raises(ConfigError, match=r"student\.layers: got \[1,2\]; must begin with 0"):
        student.from_teacher(teacher, [1, 2], init="teacher_layers", seed=0)


@pytest.mark.parametrize("name", SHAPES)
def test_all_layers_give_the_teacher_itself(name: str, tiny_model, tiny_batch) -> None:
    teacher = tiny_model(name)
    built = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=0).eval()
    assert_equal(families.encode(built, tiny_batch), families.encode(teacher, tiny_batch))


@pytest.mark.parametrize("init", ["teacher_layers", "random"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_decoder_stays_tied(name: str, init: str, tiny_model) -> None:
    built = student.from_teacher(tiny_model(name), [0, 2], init=init, seed=0)
    tied = built.get_output_embeddings().weight is built.get_input_embeddings().weight
    assert tied == (name not in ("eurobert", "ultrabert")), "as published"


def test_random_is_a_function_of_the_seed(tiny_model) -> None:
    teacher = tiny_model("bert")
    state = torch.get_rng_state()
    first, again, other = (states(student.from_teacher(teacher, [0], init="random", seed=s)) for s in (5, 5, 6))
    assert_equal(torch.get_rng_state(), state)
    assert_equal(first, again)
    word = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(first[word], other[word])
    assert not torch.equal(first[word], teacher.state_dict()[word])


def test_random_numbers_of_the_user_stay_as_they_are(tiny_model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of GPUs, which `torch.manual_seed` seeds."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    teacher, before = tiny_model("bert"), torch.get_rng_state()
    seeded.clear()
    for init in ("teacher_layers", "random"):
        student.from_teacher(teacher, [0], init=init, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert not seeded


def test_a_bf16_teacher_gives_a_float32_student(tiny_model) -> None:
    built = student.from_teacher(tiny_model("bert").bfloat16(), [0], init="teacher_layers", seed=0)
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}


@pytest.mark.parametrize("layers", [[], [0, 9], [-1, 0], [2, 1], [1, 1]])
def test_invalid_layers_are_refused(layers: list[int], tiny_model) -> None:
    shown = ",".join(map(str, layers))
    with pytest.raises(ConfigError) as caught:
        student.from_teacher(tiny_model("bert", layers=6), layers, init="teacher_layers", seed=0)
    assert caught.value.messages == [
        f"student.layers: got [{shown}]; must be distinct ascending layer numbers of the teacher, 0 to 5; "
        "leave it out for half of them, or set 'student.layers=[0,2,5]'"
    ]


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head", HEADS)
def test_without_dropout_training_is_deterministic(name: str, head: str, tiny_model, tiny_batch) -> None:
    teacher = tiny_model(name, head)
    inputs = families.inputs(teacher, tiny_batch)
    model = student.from_teacher(teacher, [0, 1, 2], init="teacher_layers", seed=0).train()
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)
    student.set_dropout(model, 0.0)
    assert_equal(model(**inputs).logits, teacher(**inputs).logits)


@pytest.mark.parametrize("name", SHAPES)
def test_attention_dropout_is_set_too(name: str, tiny_model, tiny_batch) -> None:
    """Dropout everywhere but in the attention switched off by hand: what is left must be attention's."""
    built = student.from_teacher(tiny_model(name), [0, 1, 2], init="teacher_layers", seed=0, dropout=0.5).train()
    for path, module in built.named_modules():
        if isinstance(module, torch.nn.Dropout) and not path.endswith(ATTENTION):
            module.p = 0.0
    assert not torch.equal(families.encode(built, tiny_batch), families.encode(built, tiny_batch))


def test_dropout_of_the_checkpoint_stays_the_models_own(tiny_model) -> None:
    built = student.from_teacher(tiny_model("bert"), [0], init="teacher_layers", seed=0, dropout=0.0)
    assert built.config.hidden_dropout_prob == 0.1
    assert {module.p for module in built.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}
