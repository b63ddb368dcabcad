"""Gates against their distributions and schedules, explicit gradients, and the models that are cut by their scores."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from distill.compression.pruning.gates import L0, Movement, gates_for, parameter_groups, ramp
from distill.compression.pruning.goal import Goal
from distill.compression.pruning.importance import read, write
from distill.compression.pruning.masks import Masks, gated, merge
from distill.compression.pruning.prune import pruned
from distill.compression.pruning.search import Shape, Table
from distill.compression.pruning.select_kept import most_important, top
from distill.models import families
from tests.cut import SHARED, SIZES, logits
from tests.tiny import SHAPES

SOME = ["bert", "modernbert", "albert"]
FULL, SMALL, HALF = Shape(3, 32, 24), Shape(2, 16, 12), Shape(3, 16, 12)
WIDTHS = [(h, f) for h in (8, 16, 24, 32) for f in (8, 16, 24)]
TIMES = Table(dict.fromkeys(WIDTHS, 0.5), {(h, f): h * (4 * h + 2 * f) / 4096 for h, f in WIDTHS})


def timed(share: float) -> Goal:
    """A share of the time of the whole model."""
    shapes = [Shape(layers, *pair) for layers in (1, 2, 3) for pair in WIDTHS]
    return Goal(shapes, [([TIMES], share * TIMES.milliseconds(FULL))])


def new(kind: Any, model: Any, shape: Shape = SMALL) -> Any:
    """Gates of a kind that close until a shape is left."""
    return L0(model, Goal([shape])) if kind is L0 else Movement(model, shape)


def model_of(tiny_model: Any, name: str, **settings: Any) -> Any:
    return tiny_model(name, "SequenceClassification", **SIZES | settings)


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


def tensors(masks: Masks) -> list[Tensor]:
    return [*masks.heads, *masks.ffn, *(mask for mask in (masks.hidden, masks.layers) if mask is not None)]


def test_random_gates_are_hard_concrete(tiny_model) -> None:
    gates = drawn(new(L0, model_of(tiny_model, "bert"))).train()
    assert {*gates.log_alpha} == {"layers", "heads", "ffn", "hidden"}
    torch.manual_seed(0)
    draws = [gates.sample() for _ in range(3000)]
    uniform = np.linspace(0, 1, 20001)[1:-1]
    for kind, log_alpha in gates.log_alpha.items():
        alpha = log_alpha.detach().double().numpy()
        found = torch.stack([draw[kind] for draw in draws]).detach().double().numpy()
        assert (found.min(), found.max()) == (0, 1)
        np.testing.assert_allclose((found > 0).mean(0), opened(alpha), atol=0.04)
        np.testing.assert_allclose(gates.shares()[kind].detach(), opened(alpha).mean(1), rtol=1e-5)
        # Their mean, by integrating over the uniform numbers they are made of.
        stretched = 1.2 / (1 + np.exp(-(np.log(uniform / (1 - uniform)) + alpha[..., None]) * 1.5)) - 0.1
        np.testing.assert_allclose(found.mean(0), np.clip(stretched, 0, 1).mean(-1), atol=0.04)


def test_gates_are_fixed_in_eval_mode(tiny_model) -> None:
    gates = drawn(new(L0, model_of(tiny_model, "bert"))).eval()
    first, again = gates.sample(), gates.sample()
    for kind, log_alpha in gates.log_alpha.items():
        wanted = np.clip(1.2 / (1 + np.exp(-log_alpha.detach().double().numpy())) - 0.1, 0, 1)
        np.testing.assert_allclose(first[kind].detach(), wanted, atol=1e-6)
        assert torch.equal(first[kind], again[kind])
        assert not torch.equal(gates.train().sample()[kind], first[kind])
        gates.eval()
    assert (first["ffn"] == 0).any()
    assert (first["ffn"] == 1).any()


@pytest.mark.parametrize("name", SHAPES)
def test_new_gates_change_nothing(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    before = logits(model, tiny_batch)
    for gates in (new(L0, model).eval(), new(Movement, model), new(L0, model, Shape(3, 32, 12)).eval()):
        masks = gates.masks(0.0)
        assert [tuple(mask.shape) for mask in masks.heads] == [(1, 4)] * 3
        assert [tuple(mask.shape) for mask in masks.ffn] == [(1, 24)] * 3
        with gated(model, masks):
            torch.testing.assert_close(logits(model, tiny_batch), before)


def test_only_what_the_goal_removes_has_gates(tiny_model) -> None:
    model = model_of(tiny_model, "bert")
    assert {*new(L0, model, Shape(3, 32, 12)).log_alpha} == {"ffn"}
    assert {*new(L0, model, Shape(2, 32, 24)).log_alpha} == {"layers"}
    assert {*L0(model, timed(0.5)).log_alpha} == {"layers", "heads", "hidden", "ffn"}
    assert {*new(Movement, model).score} == {"heads", "hidden", "ffn"}
    assert gates_for("l0", model, Goal([FULL])) is gates_for("movement", model, Goal([Shape(2, 32, 24)])) is None
    assert isinstance(gates_for("l0", model, Goal([SMALL])), L0)
    assert isinstance(gates_for("movement", model, Goal([SMALL])), Movement)


@pytest.mark.parametrize("name", SHAPES)
def test_every_open_gate_gets_a_gradient_of_the_task(name: str, tiny_model, tiny_batch) -> None:
    """And a closed one none, but of the penalty."""
    model = model_of(tiny_model, name)
    # Near the middle, so that gates of all kinds are neither 0 nor 1.
    gates = drawn(new(L0, model), std=0.5).train()
    torch.manual_seed(3)
    masks = gates.masks(0.5)
    with gated(model, masks):
        logits(model, tiny_batch).square().sum().backward()
    by_kind = {"heads": torch.cat(masks.heads), "ffn": torch.cat(masks.ffn)}
    by_kind |= {"hidden": masks.hidden[None], "layers": masks.layers[gates.layout.first :][None]}
    for kind, log_alpha in gates.log_alpha.items():
        mask = by_kind[kind][: len(log_alpha)]
        between = (mask > 0) & (mask < 1)
        if kind in ("heads", "ffn") and len(log_alpha) > 1:  # of layers that are not skipped
            between &= masks.layers[:, None] > 0
        assert log_alpha.grad is not None
        assert torch.equal(log_alpha.grad != 0, between)
        log_alpha.grad = None
    gates.penalty(0.5).backward()
    assert all((value.grad != 0).all() for value in gates.log_alpha.values())


@pytest.mark.parametrize("name", SHAPES)
def test_parts_that_share_weights_share_a_gate(name: str, tiny_model) -> None:
    masks = drawn(new(L0, model_of(tiny_model, name))).eval().masks(1.0)
    assert torch.equal(masks.heads[0], masks.heads[2]) == (name in SHARED)
    assert torch.equal(masks.ffn[0], masks.ffn[2]) == families.STUDENTS[name].shared_layers
    assert len(masks.layers) == 3
    assert not families.STUDENTS[name].first_layer or masks.layers[0] == 1


@pytest.mark.parametrize("name", SHAPES)
def test_expected_sizes_are_those_of_the_model_that_is_left(name: str, tiny_model) -> None:
    """With gates that are all but certainly open or closed."""
    model = model_of(tiny_model, name)
    gates, generator = L0(model, timed(0.5)), torch.Generator().manual_seed(3)
    counts = {"layers": 2 - gates.layout.first, "heads": 2, "ffn": 9, "hidden": 16}
    for kind, log_alpha in gates.log_alpha.items():
        order = torch.rand(log_alpha.shape, generator=generator).argsort(1)
        log_alpha.data = torch.where(order < counts[kind], 30.0, -30.0)
    assert gates.expected() == pytest.approx({"layers": 2, "hidden": 16, "ffn": 9})
    assert gates.constraints(1.0)[1:].abs().max() < 1e-6
    scores = gates.scores()
    small = pruned(model, most_important(model, top(scores.layers, 2).tolist(), scores, 16, 9))
    assert (families.depth(small), families.width(small)) == (2, 16)
    wanted = TIMES.milliseconds(Shape(2, 16, 8)) * 7 / 8 + TIMES.milliseconds(Shape(2, 16, 16)) / 8
    excess = gates.constraints(1.0)[0].item() + 1
    assert excess == pytest.approx(wanted / (0.5 * TIMES.milliseconds(FULL)), rel=1e-4)


def test_the_penalty_is_a_lagrangian_that_the_lambdas_maximize(tiny_model) -> None:
    gates = drawn(L0(model_of(tiny_model, "bert"), timed(0.4)), std=1.0)
    p = {kind: opened(alpha.detach().double().numpy()) for kind, alpha in gates.log_alpha.items()}
    layers, hidden, ffn = 3 * p["layers"].mean(), 32 * p["hidden"].mean(), 24 * p["ffn"].mean()

    def time(layers: float, hidden: float, ffn: float) -> float:
        """Bilinear, in plain loops."""
        total = 0.0
        for h, f in WIDTHS:
            weight = max(0.0, 1 - abs(hidden - h) / 8) * max(0.0, 1 - abs(ffn - f) / 8)
            total += weight * (0.5 + layers * TIMES.layer[h, f])
        return total

    open_at_first = opened(np.array(3.0))
    target = 0.4 * TIMES.milliseconds(FULL)
    first_ratio = time(*(open_at_first * size for size in (3, 32, 24))) / target
    wanted = first_ratio + 0.3 * (1 - first_ratio)
    excess = [time(layers, hidden, ffn) / target - wanted]
    excess += list(p["heads"].mean(1) - p["hidden"].mean())
    excess += list(p["ffn"].mean(1) - p["ffn"].mean())
    first, second = gates.lambdas.detach().double().numpy()
    value = gates.penalty(0.3)
    each = np.array(excess)
    assert value.item() == pytest.approx((first * each + second * each**2).sum(), rel=1e-3)
    value.backward()
    np.testing.assert_allclose(gates.lambdas.grad, [-each, -(each**2)], rtol=1e-3, atol=1e-5)


def test_a_new_penalty_is_zero_until_gates_begin_to_close(tiny_model) -> None:
    gates = L0(model_of(tiny_model, "bert"), timed(0.5))
    gates.penalty(0.0).backward()
    assert all(parameter.grad.abs().max() < 1e-6 for parameter in gates.parameters())


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "goal", "start"),
    [
        ("bert", timed(0.5), 3.0),
        ("bert", Goal([SMALL]), -1.0),
        pytest.param("bert", timed(0.5), -1.0, marks=pytest.mark.slow),
        pytest.param("albert", timed(0.3), 3.0, marks=pytest.mark.slow),
        pytest.param("modernbert", timed(0.6), 3.0, marks=pytest.mark.slow),
    ],
)
def test_the_penalty_alone_reaches_the_goal(name: str, goal: Goal, start: float, tiny_model) -> None:
    """From gates that are open and from gates that are closed."""
    gates = L0(model_of(tiny_model, name), goal, start=start)
    optimizer = torch.optim.Adam(parameter_groups(gates, 0.05))
    assert gates.constraints(1.0).abs().max() > 0.15
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in gates.log_alpha.values():
            value += torch.randn(value.shape, generator=generator)
    for step in range(500):
        optimizer.zero_grad()
        gates.penalty(min(step / 150, 1)).backward()
        optimizer.step()
    reached = gates.constraints(1.0).abs()
    assert reached[0] < 0.03
    assert reached.max() < 0.08


@pytest.mark.slow
def test_what_the_loss_needs_least_is_closed_first(tiny_model) -> None:
    """At the same time a loss that pays for depth gets more layers, and one that pays for width wider ones."""
    found = []
    for depth, width in ((1.0, 0.0), (0.0, 1.0)):
        gates = L0(model_of(tiny_model, "bert"), timed(0.5))
        optimizer = torch.optim.Adam(parameter_groups(gates, 0.05))
        for step in range(500):
            optimizer.zero_grad()
            shares = gates.shares()
            loss = -depth * shares["layers"].mean() - width * shares["hidden"].mean()
            (loss + gates.penalty(min(step / 150, 1))).backward()
            optimizer.step()
        assert abs(gates.constraints(1.0)[0]) < 0.03
        found.append(gates.expected())
    assert found[0]["layers"] > found[1]["layers"] + 0.5
    assert found[0]["hidden"] < found[1]["hidden"] - 4


def test_the_highest_scores_are_kept_by_a_cubic_schedule(tiny_model) -> None:
    gates = drawn(new(Movement, model_of(tiny_model, "bert"), Shape(3, 16, 6)))
    # Half way 7/8 of what goes is gone: 24 - 0.875 * 18 = 8.25, 4 - 0.875 * 2 = 2.25, 32 - 0.875 * 16 = 18.
    for progress, heads, ffn, hidden in ((0.0, 4, 24, 32), (0.5, 2, 8, 18), (1.0, 2, 6, 16)):
        masks = gates.masks(progress)
        for mask, score, count in (
            *((mask[0], score, heads) for mask, score in zip(masks.heads, gates.score["heads"], strict=True)),
            *((mask[0], score, ffn) for mask, score in zip(masks.ffn, gates.score["ffn"], strict=True)),
            (masks.hidden, gates.score["hidden"][0], hidden),
        ):
            best = {number for _, number in sorted(zip(score.tolist(), range(len(score)), strict=True))[-count:]}
            assert {number for number, value in enumerate(mask.tolist()) if value == 1} == best
            assert mask.sum() == count
    assert gates.penalty(0.5) == 0


@pytest.mark.parametrize("name", SHAPES)
def test_scores_move_by_weights_times_their_gradients(name: str, tiny_model, tiny_batch) -> None:
    """Of the weights in use, which are 0 where a mask is: parts that are out get a gradient too."""
    model = model_of(tiny_model, name)
    masks = (gates := drawn(new(Movement, model, HALF))).masks(0.3)
    masks = Masks(masks.heads, masks.ffn)
    assert 0 < sum(mask.sum() for mask in masks.ffn) < 3 * 24
    with gated(model, masks):
        logits(model, tiny_batch).square().sum().backward()
    used = copy.deepcopy(model)
    used.zero_grad()
    merge(used, masks)
    logits(used, tiny_batch).square().sum().backward()
    record = families.STUDENTS[name].layer
    assert record is not None
    pairs = dict(zip(families.layers(model), families.layers(used), strict=True))

    def product(path: str) -> Tensor:
        """[layers, columns], each layer once."""
        sides = [[layer.get_submodule(path).weight for layer in pair] for pair in pairs.items()]
        return torch.stack([(whole.detach() * used.grad).sum(0) for whole, used in sides])

    explicit = {
        "heads": product(record.attention_output).unflatten(1, (4, 8)).sum(2),
        "ffn": product(record.ffn_out),
    }
    for kind, wanted in explicit.items():
        score = gates.score[kind]
        wanted = wanted.sum(0, keepdim=True) if len(score) == 1 else wanted
        assert (wanted != 0).all()
        torch.testing.assert_close(score.grad, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in SOME[1:])])
@pytest.mark.parametrize("kind", [L0, Movement])
def test_dead_channels_score_lowest(kind: Any, name: str, tiny_model) -> None:
    """Half of the FFN channels have no effect: the model must imitate itself without as many channels."""
    model = tiny_model(name, layers=2, **SIZES).requires_grad_(False)
    record, generator = families.STUDENTS[name].layer, torch.Generator().manual_seed(1)
    assert record is not None
    dead = torch.arange(24) < 12  # the first, which ties would keep
    for layer in dict.fromkeys(families.layers(model)):
        layer.get_submodule(record.ffn_out).weight.normal_(std=2.0, generator=generator)[:, dead] = 0
        if (bias := layer.get_submodule(record.ffn_in).bias) is not None:
            bias.fill_(1.0)  # no channel is idle by chance
    gates = new(kind, model, Shape(2, 32, 12))
    assert (gates.scores().ffn == gates.scores().ffn[0, 0]).all()
    optimizer = torch.optim.Adam(parameter_groups(gates, 0.05))
    torch.manual_seed(1)
    steps = 150 if kind is L0 else 300  # rounding differs between processors: far enough to be no close call
    for step in range(steps):
        ids = torch.randint(5, 60, (4, 12), generator=generator)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        wanted, progress = families.encode(model, batch), ramp(step / steps, 0.0, 0.6)
        with gated(model, gates.masks(progress)):
            loss = (families.encode(model, batch) - wanted).square().sum(-1).mean()
        optimizer.zero_grad()
        (loss + gates.penalty(progress)).backward()
        optimizer.step()
    kept = most_important(model, range(2), gates.scores(), 32, 12)
    alive = [int((some >= 12).sum()) for some in kept.ffn]
    assert alive == [12] * len(alive)
    if kind is Movement:  # without a gradient a score stays 0
        assert (gates.scores().ffn[:, dead] == 0).all()


@pytest.mark.parametrize("name", SHAPES)
def test_pruning_by_scores_keeps_what_training_kept(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    movement = drawn(new(Movement, model, HALF))
    small = pruned(model, most_important(model, range(3), movement.scores(), 16, 12))
    with gated(model, movement.masks(1.0)):
        torch.testing.assert_close(logits(small, tiny_batch), logits(model, tiny_batch), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [L0, Movement])
@pytest.mark.parametrize("name", ["bert", "albert", "modernbert"])
def test_scores_are_a_copy_that_can_be_saved(name: str, kind: Any, tiny_model, tmp_path) -> None:
    gates = drawn(new(kind, model_of(tiny_model, name), Shape(2, 32, 12)))
    scores = gates.scores()
    assert [tuple(value.shape) for value in (scores.heads, scores.ffn, scores.hidden)] == [(3, 4), (3, 24), (32,)]
    write(scores, tmp_path / "scores.safetensors")
    with torch.no_grad():
        for parameter in gates.parameters():
            parameter += 1
    stored = read(tmp_path / "scores.safetensors")
    for value in ("heads", "ffn", "hidden"):
        assert torch.equal(getattr(stored, value), getattr(scores, value))
    assert (scores.heads == 0).all()
    assert not scores.ffn.requires_grad
    assert (scores.layers is None) == (kind is Movement)
    if scores.layers is not None:
        assert torch.equal(stored.layers, scores.layers)
        assert len(scores.layers) == 3
        assert (scores.layers[0] == math.inf) == (name == "modernbert")


@pytest.mark.parametrize("kind", [L0, Movement])
def test_gates_resume_from_their_state(kind: Any, tiny_model) -> None:
    model = model_of(tiny_model, "bert")
    gates, fresh = drawn(new(kind, model)).eval(), new(kind, model).eval()
    fresh.load_state_dict(gates.state_dict())
    assert fresh.penalty(0.3) == gates.penalty(0.3)
    for mine, theirs in zip(tensors(fresh.masks(0.3)), tensors(gates.masks(0.3)), strict=True):
        assert torch.equal(mine, theirs)


def test_progress_ramps_between_two_shares_of_the_steps() -> None:
    assert [ramp(step / 100, 0.2, 0.6) for step in (0, 20, 30, 40, 60, 99)] == pytest.approx([0, 0, 0.25, 0.5, 1, 1])
    assert ramp(0.1) == 0
    assert ramp(0.7) == pytest.approx(1)


def test_gates_have_a_learning_rate_of_their_own_and_no_decay(tiny_model) -> None:
    gates = new(L0, model_of(tiny_model, "bert"))
    optimizer = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.ones(1))]}, *parameter_groups(gates, 0.05)])
    groups = optimizer.param_groups[1:]
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in gates.parameters()}
    assert all((group["lr"], group["weight_decay"]) == (0.05, 0) for group in groups)
