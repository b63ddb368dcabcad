"""Gates against their distributions and schedules, explicit gradients, and the models that are cut by their scores."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from distill import family
from distill.compress.choose import most_important
from distill.compress.gates import L0, Movement, fold, parameter_groups, ramp
from distill.compress.importance import masked
from distill.compress.prune import pruned
from distill.errors import ConfigError

NAMES = list(family.STUDENTS)
SHARED = [name for name in NAMES if family.STUDENTS[name].shared_layers or family.STUDENTS[name].shared_heads]
SOME = ["bert", "modernbert", "albert"]
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24}
HALF = {"heads": 0.5, "ffn": 0.5, "hidden": 0.5}


def model_of(tiny_model: Any, name: str, **settings: Any) -> Any:
    return tiny_model(name, "SequenceClassification", **SIZES | settings)


def logits(model: Any, batch: dict[str, Tensor]) -> Tensor:
    return model(**family.inputs(model, batch)).logits


def drawn(gates: Any, std: float = 2.0) -> Any:
    """The gates with random parameters."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in gates.parameters():
            parameter.normal_(std=std, generator=generator)
    return gates


def opened(log_alpha: np.ndarray) -> np.ndarray:
    """Equation 12 of Louizos et al. 2018, with its constants."""
    return 1 / (1 + np.exp(-(log_alpha - 2 / 3 * np.log(0.1 / 1.1))))


def test_random_gates_are_hard_concrete(tiny_model) -> None:
    gates = drawn(L0(model_of(tiny_model, "bert"), HALF)).train()
    torch.manual_seed(0)
    draws = [gates.sample() for _ in range(3000)]
    uniform = np.linspace(0, 1, 20001)[1:-1]
    for kind, log_alpha in gates.log_alpha.items():
        alpha = log_alpha.detach().double().numpy()
        found = torch.stack([draw[kind] for draw in draws]).detach().double().numpy()
        assert (found.min(), found.max()) == (0, 1)
        np.testing.assert_allclose((found > 0).mean(0), opened(alpha), atol=0.04)
        np.testing.assert_allclose(gates.expected()[kind].detach(), opened(alpha).mean(1), rtol=1e-5)
        # Their mean, by integrating over the uniform numbers they are made of.
        stretched = 1.2 / (1 + np.exp(-(np.log(uniform / (1 - uniform)) + alpha[..., None]) * 1.5)) - 0.1
        np.testing.assert_allclose(found.mean(0), np.clip(stretched, 0, 1).mean(-1), atol=0.04)


def test_gates_are_fixed_in_eval_mode(tiny_model) -> None:
    gates = drawn(L0(model_of(tiny_model, "bert"), HALF)).eval()
    first, again = gates.sample(), gates.sample()
    for kind, log_alpha in gates.log_alpha.items():
        wanted = np.clip(1.2 / (1 + np.exp(-log_alpha.detach().double().numpy())) - 0.1, 0, 1)
        np.testing.assert_allclose(first[kind].detach(), wanted, atol=1e-6)
        assert torch.equal(first[kind], again[kind])
        assert not torch.equal(gates.train().sample()[kind], first[kind])
        gates.eval()
    assert (first["ffn"] == 0).any()
    assert (first["ffn"] == 1).any()


@pytest.mark.parametrize("name", NAMES)
def test_new_gates_change_nothing(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    before = logits(model, tiny_batch)
    for gates in (L0(model, HALF).eval(), Movement(model, HALF), L0(model, {"ffn": 0.5}).eval()):
        heads, ffn, hidden = gates.masks(0.0)
        shapes = [[tuple(mask.shape) for mask in masks] for masks in (heads, ffn, [hidden])]
        assert shapes == [[(1, 4)] * 3, [(1, 24)] * 3, [(1, 32)]]
        with masked(model, heads, ffn, hidden):
            torch.testing.assert_close(logits(model, tiny_batch), before)


@pytest.mark.parametrize("name", NAMES)
def test_every_open_gate_gets_a_gradient_of_the_task(name: str, tiny_model, tiny_batch) -> None:
    """And a closed one none, but of the penalty."""
    model = model_of(tiny_model, name, layers=2)
    # Near the middle, so that gates of all three kinds are neither 0 nor 1.
    gates = drawn(L0(model, HALF), std=0.5).train()
    torch.manual_seed(1)
    heads, ffn, hidden = gates.masks(0.5)
    with masked(model, heads, ffn, hidden):
        logits(model, tiny_batch).square().sum().backward()
    masks = {"heads": torch.cat(heads), "ffn": torch.cat(ffn), "hidden": hidden}
    for kind, log_alpha in gates.log_alpha.items():
        mask = masks[kind][: len(log_alpha)]
        between = (mask > 0) & (mask < 1)
        assert 0 < between.sum() < between.numel() or kind == "heads"
        assert log_alpha.grad is not None
        assert torch.equal(log_alpha.grad != 0, between)
        log_alpha.grad = None
    gates.penalty(0.5).backward()
    assert all((parameter.grad != 0).all() for parameter in gates.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_parts_that_share_weights_share_a_gate(name: str, tiny_model) -> None:
    gates = drawn(L0(model_of(tiny_model, name), HALF)).eval()
    heads, ffn, _ = gates.masks(1.0)
    assert torch.equal(heads[0], heads[2]) == (name in SHARED)
    assert torch.equal(ffn[0], ffn[2]) == family.STUDENTS[name].shared_layers


@pytest.mark.parametrize("name", ["bert", "modernbert", "albert", "mpnet"])
def test_sparsity_is_that_of_a_pruned_model(name: str, tiny_model) -> None:
    """By counting the matrices of its layers, with gates that are all but certainly open or closed."""
    model = model_of(tiny_model, name)
    gates, each = L0(model, HALF), L0(model, HALF, uniform=True)
    generator = torch.Generator().manual_seed(3)
    for kind, log_alpha in gates.log_alpha.items():
        count = {"heads": 2, "ffn": 9, "hidden": 16}[kind]
        order = torch.rand(log_alpha.shape, generator=generator).argsort(1)
        for one in (gates, each):
            one.log_alpha[kind].data = torch.where(order < count, 30.0, -30.0)
    small = pruned(model, most_important(model, range(3), gates.scores(), 16, 9))

    def weights(model: Any) -> int:
        matrices = [p for layer in family.layers(model) for n, p in layer.named_parameters() if p.ndim == 2]
        return sum(matrix.numel() for matrix in matrices)

    assert gates.sparsity(gates.expected()).item() == pytest.approx(1 - weights(small) / weights(model), abs=1e-5)
    shares = {"heads": 1 / 2, "ffn": 15 / 24, "hidden": 1 / 2}
    wanted = torch.cat([torch.full((len(value),), shares[kind]) for kind, value in each.log_alpha.items()])
    torch.testing.assert_close(each.sparsity(each.expected()), wanted)


def test_the_penalty_is_a_lagrangian_that_the_lambdas_maximize(tiny_model) -> None:
    gates = drawn(L0(model_of(tiny_model, "bert"), {"ffn": 0.25}), std=1.0)
    # Of a layer, 4 * 32 * 32 weights of the attention and 2 * 32 * 24 of the FFN.
    ffn = 1536 / (4096 + 1536)
    alpha = gates.log_alpha["ffn"].detach().numpy()
    over = ffn * (1 - opened(alpha).mean()) - 0.4 * ffn * 0.75
    first, second = gates.lambdas.detach().flatten().tolist()
    value = gates.penalty(0.4)
    assert value.item() == pytest.approx(first * over + second * over**2, rel=1e-4)
    value.backward()
    assert gates.lambdas.grad.flatten().tolist() == pytest.approx([-over, -(over**2)], rel=1e-3)
    before = gates.sparsity(gates.expected()).item()
    slope = first + 2 * second * over
    with torch.no_grad():
        gates.log_alpha["ffn"] -= 0.1 * gates.log_alpha["ffn"].grad
    # Gates descend: what is gone changes against the slope.
    assert (gates.sparsity(gates.expected()).item() - before) * slope < 0


@pytest.mark.parametrize("start", [-3.0, 3.0])
@pytest.mark.parametrize(
    ("name", "uniform", "method", "rate"),
    [
        ("bert", False, torch.optim.Adam, 0.05),
        ("bert", True, torch.optim.Adam, 0.05),
        ("albert", False, torch.optim.Adam, 0.05),
        ("modernbert", True, torch.optim.SGD, 1.0),
    ],
)
def test_the_penalty_alone_reaches_the_target(
    name: str, uniform: bool, method: Any, rate: float, start: float, tiny_model
) -> None:
    gates = L0(model_of(tiny_model, name), {"heads": 0.5, "ffn": 0.4, "hidden": 0.5}, uniform=uniform, start=start)
    optimizer = method(parameter_groups(gates, rate))
    assert ((gates.sparsity(gates.expected()) - gates.target).abs() > 0.15).all()
    for step in range(700):
        optimizer.zero_grad()
        gates.penalty(min(step / 150, 1)).backward()
        optimizer.step()
    if uniform:
        shares = {"heads": 0.5, "ffn": 0.6, "hidden": 0.5}
        wanted = torch.tensor([shares[kind] for kind, value in gates.log_alpha.items() for _ in value])
    else:
        wanted = torch.tensor([1 - 0.5 * (4096 * 0.5 + 1536 * 0.4) / (4096 + 1536)])
    torch.testing.assert_close(gates.sparsity(gates.expected()), wanted, rtol=0, atol=0.02)


def test_the_highest_scores_are_kept_by_a_cubic_schedule(tiny_model) -> None:
    gates = drawn(Movement(model_of(tiny_model, "bert"), {"heads": 0.5, "ffn": 0.25, "hidden": 0.5}))
    # Half way 7/8 of what goes is gone: 24 - 0.875 * 18 = 8.25, 4 - 0.875 * 2 = 2.25, 32 - 0.875 * 16 = 18.
    for progress, heads, ffn, hidden in ((0.0, 4, 24, 32), (0.5, 2, 8, 18), (1.0, 2, 6, 16)):
        masks = gates.masks(progress)
        for mask, score, count in (
            *((mask, score, heads) for mask, score in zip(masks[0], gates.score["heads"], strict=True)),
            *((mask, score, ffn) for mask, score in zip(masks[1], gates.score["ffn"], strict=True)),
            (masks[2], gates.score["hidden"][0], hidden),
        ):
            best = {number for _, number in sorted(zip(score.tolist(), range(len(score)), strict=True))[-count:]}
            assert {number for number, value in enumerate(mask[0].tolist()) if value == 1} == best
            assert mask.sum() == count
    assert gates.penalty(0.5) == 0


@pytest.mark.parametrize("name", NAMES)
def test_scores_move_by_weights_times_their_gradients(name: str, tiny_model, tiny_batch) -> None:
    """Of the weights in use, which are 0 where a mask is: parts that are out get a gradient too."""
    model = model_of(tiny_model, name)
    gates = drawn(Movement(model, {"heads": 0.5, "ffn": 0.5}))
    heads, ffn, hidden = gates.masks(0.3)
    assert 0 < sum(mask.sum() for mask in ffn) < 3 * 24
    with masked(model, heads, ffn, hidden):
        logits(model, tiny_batch).square().sum().backward()
    used = copy.deepcopy(model)
    used.zero_grad()
    fold(used, heads, ffn)
    logits(used, tiny_batch).square().sum().backward()
    record = family.STUDENTS[name].layer
    assert record is not None
    pairs = dict(zip(family.layers(model), family.layers(used), strict=True))

    def product(path: str) -> Tensor:
        """[layers, columns], each layer once."""
        sides = [[layer.get_submodule(path).weight for layer in pair] for pair in pairs.items()]
        return torch.stack([(whole.detach() * used.grad).sum(0) for whole, used in sides])

    explicit = {
        "heads": product(record.attention_output).unflatten(1, (4, 8)).sum(2),
        "ffn": product(record.ffn_out),
    }
    for kind, score in gates.score.items():
        wanted = explicit[kind].sum(0, keepdim=True) if len(score) == 1 else explicit[kind]
        assert (wanted != 0).all()
        torch.testing.assert_close(score.grad, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_folded_masks_equal_masks(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    heads, ffn, _ = drawn(L0(model, HALF)).eval().masks(1.0)
    before = logits(model, tiny_batch)
    with masked(model, heads, ffn):
        wanted = logits(model, tiny_batch)
    fold(model, heads, ffn)
    torch.testing.assert_close(logits(model, tiny_batch), wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(wanted, before, rtol=1e-2)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("kind", ["l0", "movement"])
def test_dead_channels_score_lowest(kind: str, name: str, tiny_model) -> None:
    """Half of the FFN channels have no effect: the model must imitate itself without as many channels."""
    model = tiny_model(name, layers=2, **SIZES).requires_grad_(False)
    record, generator = family.STUDENTS[name].layer, torch.Generator().manual_seed(1)
    assert record is not None
    dead = torch.arange(24) < 12  # the first, which ties would keep
    for layer in dict.fromkeys(family.layers(model)):
        layer.get_submodule(record.ffn_out).weight.normal_(std=2.0, generator=generator)[:, dead] = 0
        if (bias := layer.get_submodule(record.ffn_in).bias) is not None:
            bias.fill_(1.0)  # no channel is idle by chance
    gates = L0(model, {"ffn": 0.5}) if kind == "l0" else Movement(model, {"ffn": 0.5})
    assert (gates.scores().ffn == gates.scores().ffn[0, 0]).all()
    optimizer = torch.optim.Adam(parameter_groups(gates, 0.05))
    torch.manual_seed(1)
    steps = 150 if kind == "l0" else 300  # rounding differs between processors: far enough to be no close call
    for step in range(steps):
        ids = torch.randint(5, 60, (4, 12), generator=generator)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        wanted, progress = family.encode(model, batch), ramp(step, steps, 0.0, 0.6)
        with masked(model, *gates.masks(progress)):
            loss = (family.encode(model, batch) - wanted).square().sum(-1).mean()
        optimizer.zero_grad()
        (loss + gates.penalty(progress)).backward()
        optimizer.step()
    kept = most_important(model, range(2), gates.scores(), 32, 12)
    alive = [int((some >= 12).sum()) for some in kept.ffn]
    assert alive == [12] * len(alive)
    if kind == "movement":  # without a gradient a score stays 0
        assert (gates.scores().ffn[:, dead] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_pruning_by_scores_keeps_what_training_kept(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    movement = drawn(Movement(model, {"ffn": 1 / 3}))
    small = pruned(model, most_important(model, range(3), movement.scores(), 32, 8))
    with masked(model, *movement.masks(1.0)):
        torch.testing.assert_close(logits(small, tiny_batch), logits(model, tiny_batch), rtol=1e-4, atol=1e-5)
    # Gates of L0 that are left half open are in the weights.
    gates = drawn(L0(model, {"ffn": 1 / 3})).eval()
    heads, ffn, hidden = gates.masks(1.0)
    kept = most_important(model, range(3), gates.scores(), 32, 8)
    hard = [mask * torch.zeros(1, 24).index_fill(1, some, 1.0) for mask, some in zip(ffn, kept.ffn, strict=True)]
    with masked(model, heads, hard, hidden):
        wanted = logits(model, tiny_batch)
    fold(model, heads, ffn)
    torch.testing.assert_close(logits(pruned(model, kept), tiny_batch), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_pruning_all_kinds_by_scores_keeps_what_training_kept(name: str, tiny_model) -> None:
    model = model_of(tiny_model, name)
    gates = drawn(Movement(model, HALF))
    kept = most_important(model, range(3), gates.scores(), 16, 12)
    heads, ffn, hidden = ([mask[0].nonzero()[:, 0].tolist() for mask in part] for part in _listed(gates.masks(1.0)))
    assert [some.tolist() for some in kept.heads] == heads
    assert [some.tolist() for some in kept.ffn] == ffn
    assert [kept.hidden.tolist()] == hidden
    assert pruned(model, kept).config.hidden_size == 16


def _listed(masks: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    return masks[0], masks[1], [masks[2]]


@pytest.mark.parametrize("kind", [L0, Movement])
@pytest.mark.parametrize("name", ["bert", "albert"])
def test_scores_are_a_copy_that_can_be_saved(name: str, kind: Any, tiny_model, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    gates = drawn(kind(model_of(tiny_model, name), {"ffn": 0.5, "hidden": 0.5}))
    scores = gates.scores()
    tensors = {"heads": scores.heads, "ffn": scores.ffn, "hidden": scores.hidden}
    assert [tuple(value.shape) for value in tensors.values()] == [(3, 4), (3, 24), (32,)]
    before = {key: value.clone() for key, value in tensors.items()}
    save_file(tensors, tmp_path / "scores.safetensors")
    with torch.no_grad():
        for parameter in gates.parameters():
            parameter += 1
    for key, value in load_file(tmp_path / "scores.safetensors").items():
        assert torch.equal(tensors[key], before[key])
        assert torch.equal(value, before[key])
    assert (scores.heads == 0).all()
    assert not scores.ffn.requires_grad


@pytest.mark.parametrize("kind", [L0, Movement])
def test_gates_resume_from_their_state(kind: Any, tiny_model) -> None:
    model = model_of(tiny_model, "bert")
    gates, fresh = drawn(kind(model, HALF)).eval(), kind(model, HALF).eval()
    fresh.load_state_dict(gates.state_dict())
    assert fresh.penalty(0.3) == gates.penalty(0.3)
    for mine, theirs in zip(_listed(fresh.masks(0.3)), _listed(gates.masks(0.3)), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("keep", [{}, {"layers": 0.5}, {"ffn": 0.0}, {"ffn": 0.5, "hidden": 1.5}])
@pytest.mark.parametrize("kind", [L0, Movement])
def test_invalid_shares_are_refused(kind: Any, keep: dict[str, float], tiny_model) -> None:
    with pytest.raises(ConfigError, match=r"gates\.keep: got .*; must be shares in \(0, 1\]"):
        kind(model_of(tiny_model, "bert"), keep)


def test_progress_ramps_between_two_shares_of_the_steps() -> None:
    assert [ramp(step, 100, 0.2, 0.6) for step in (0, 20, 30, 40, 60, 99)] == pytest.approx([0, 0, 0.25, 0.5, 1, 1])
    assert ramp(10, 100) == 0
    assert ramp(70, 100) == pytest.approx(1)


def test_gates_have_a_learning_rate_of_their_own_and_no_decay(tiny_model) -> None:
    gates = L0(model_of(tiny_model, "bert"), HALF)
    optimizer = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.ones(1))]}, *parameter_groups(gates, 0.05)])
    groups = optimizer.param_groups[1:]
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in gates.parameters()}
    assert all((group["lr"], group["weight_decay"]) == (0.05, 0) for group in groups)
