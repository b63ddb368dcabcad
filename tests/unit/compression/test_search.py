"""The search against trying everything by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from distill.compression.pruning.search import (
    LEAST,
    Losses,
    Shape,
    Table,
    Tables,
    estimated,
    falling,
    fits_target,
    grid,
    leading,
    margin_lost,
    out_of_reach,
    spaced,
)
from distill.config import Target
from distill.config.schemes import Form

FULL, FORM = Shape(6, 384, 1536), Form("onnxruntime", "int8", "onnxruntime")
EVERY = grid(FULL, 32, 8, layers=True, hidden=True, ffn=True)
RANDOM = np.random.default_rng(0)


def table() -> Tables:
    """Times of one form that grow with sizes, but not evenly."""
    widths = {(shape.hidden, shape.ffn) for shape in EVERY}
    layer = {(h, f): 1e-4 * h * (h + f) * (1 + 0.1 * RANDOM.random()) for h, f in widths}
    fixed = {widths: 2.0 + 0.01 * widths[0] for widths in layer}
    return Tables({FORM: Table(fixed, layer)}, fixed[384, 1536] + 6 * layer[384, 1536])


def losses(seed: int) -> Losses:
    random = np.random.default_rng(seed)

    def falling(sizes: list[int]) -> dict[int, float]:
        values = np.sort(random.random(len(sizes)))[::-1] + 0.3
        return {size: float(value) for size, value in zip(sorted(sizes), values, strict=True)}

    axes = [
        sorted({shape.layers for shape in EVERY}),
        sorted({shape.hidden for shape in EVERY}),
        sorted({shape.ffn for shape in EVERY}),
    ]
    layers, hidden, ffn = (falling(sizes) for sizes in axes)
    for sizes in (layers, hidden, ffn):
        sizes[max(sizes)] = 0.3
    return Losses(0.3, layers, hidden, ffn, 0.7)


def share_left(by_size: dict[int, float], size: int) -> float:
    """Of losses from 0.3, which is to know all, to 0.7, which is to know nothing."""
    sizes = sorted(by_size, reverse=True)
    shares = [min(1 - (by_size[one] - 0.3) / 0.4, 1.0) for one in sizes]
    seen = next((n for n, share in enumerate(shares) if share < LEAST), len(sizes))
    if sizes.index(size) < seen:
        return shares[sizes.index(size)]
    return float(LEAST ** (((sizes[0] - size) / (sizes[0] - sizes[seen])) ** 2))


def test_between_measured_sizes_the_share_is_interpolated() -> None:
    one = Losses(0.0, {6: 0.0}, {384: 0.0, 320: 0.2, 256: 0.6, 128: 0.99}, {16: 0.0}, 1.0)
    found = [one.margin_kept(Shape(6, size, 16)) for size in (384, 352, 320, 288, 256, 224, 128)]
    assert found[:5] == pytest.approx([1.0, 0.9, 0.8, 0.6, 0.4])
    assert found[5] == pytest.approx(LEAST ** ((160 / 256) ** 2))
    assert found == sorted(found, reverse=True)
    near = Losses(0.0, {6: 0.0}, {384: 0.0, 320: 0.94, 256: 0.99}, {16: 0.0}, 1.0)
    assert near.margin_kept(Shape(6, 288, 16)) == pytest.approx(0.06), "no smaller size keeps more"


def test_of_many_sizes_some_are_measured_the_least_and_the_largest_among_them() -> None:
    assert spaced(range(96, 1537, 96)) == [96, 480, 864, 1152, 1536]
    assert spaced([3, 1, 2, 2]) == [1, 2, 3]
    assert spaced([5], 3) == [5]


def test_the_grid_has_every_size_that_a_config_expresses() -> None:
    assert FULL in EVERY
    assert len(EVERY) == len(set(EVERY)) == 6 * 8 * 8
    assert all(shape.hidden % 32 == 0 and shape.ffn % 8 == 0 for shape in EVERY)
    assert {shape.layers for shape in EVERY} == {1, 2, 3, 4, 5, 6}
    alone = grid(FULL, 32, 8, layers=False, hidden=False, ffn=True)
    assert {(shape.layers, shape.hidden) for shape in alone} == {(6, 384)}
    assert [shape.ffn for shape in alone] == [192 * part for part in range(1, 9)]
    finer = grid(FULL, 32, 16, layers=False, hidden=True, ffn=True)
    assert {shape.hidden for shape in finer} == {32 * heads for heads in range(2, 13)}, "not a single head"
    assert {shape.ffn for shape in finer} == {96 * part for part in range(1, 17)}
    # Few heads, or few channels, give fewer sizes.
    assert {shape.hidden for shape in grid(Shape(2, 32, 64), 16, 8, layers=False, hidden=True, ffn=False)} == {16, 32}
    assert {shape.ffn for shape in grid(Shape(2, 32, 20), 16, 8, layers=False, hidden=False, ffn=True)} == {8, 16, 20}


@pytest.mark.parametrize("speedup", [1.2, 2.0, 4.0, 9.0])
def test_no_other_shape_that_fits_costs_less(speedup: float) -> None:
    times, cost = table(), margin_lost([losses(1), losses(2)])
    (measured,) = times.of.values()
    found = min(filter(fits_target(Target(speedup=speedup), times, lambda shape: 1.0), EVERY), key=cost)
    whole = measured.fixed[384, 1536] + 6 * measured.layer[384, 1536]
    best = float("inf")
    for layers, hidden, ffn in itertools.product(range(1, 7), range(32, 385, 32), range(192, 1537, 192)):
        if (hidden, ffn) not in measured.layer:
            continue
        time = measured.fixed[hidden, ffn] + layers * measured.layer[hidden, ffn]
        if whole / time >= speedup:
            left = 1.0
            for one in (losses(1), losses(2)):
                for by_size, size in ((one.layers, layers), (one.hidden, hidden), (one.ffn, ffn)):
                    left *= share_left(by_size, size)
            best = min(best, 1 - left**0.5)
    assert cost(found) == pytest.approx(best)
    assert whole / times.milliseconds(found) >= speedup


def test_the_best_forms_at_a_time_are_those_of_the_largest_models() -> None:
    """`calls` takes 20 ms a call and is the fastest for each layer. `layers` is twice as slow for each layer, and
    `slow` four times."""
    (one,) = table().of.values()
    of = {
        name: Table({pair: call for pair in one.fixed}, {pair: times * ms for pair, ms in one.layer.items()})
        for name, call, times in (("slow", 0.0, 4.0), ("calls", 20.0, 1.0), ("layers", 0.0, 2.0))
    }
    forms = {Form(name, "fp32"): times for name, times in of.items()}

    def best(milliseconds: float, count: int) -> list[str]:
        return [form.backend for form in leading(forms, EVERY, milliseconds, count)]

    whole = of["calls"].milliseconds(FULL)
    assert best(0.9 * whole, 2) == ["calls", "layers"]
    assert best(25.0, 3) == ["layers", "slow", "calls"], "20 of 25 ms are lost"
    assert best(15.0, 2) == ["layers", "slow"], "no call of the other is as short"
    assert best(9.0 * whole, 1) == ["calls"], "of forms in which the whole model is fast enough the fastest"


def test_a_shape_serves_in_its_fastest_form() -> None:
    (one,) = table().of.values()
    calls = Table({pair: ms + 100.0 for pair, ms in one.fixed.items()}, one.layer)
    slower = Table(one.fixed, {pair: 3 * ms for pair, ms in one.layer.items()})
    times = Tables({Form("a", "int8"): calls, Form("b", "int8"): slower}, 500.0)
    for shape in EVERY:
        found = {form.backend: each.milliseconds(shape) for form, each in times.of.items()}
        assert times.form(shape).backend == min(found, key=found.__getitem__)
        assert times.speedup(shape) == pytest.approx(500.0 / min(found.values()))
    assert {times.form(shape).backend for shape in EVERY} == {"a", "b"}


def test_a_loss_below_that_of_the_unpruned_model_costs_nothing() -> None:
    one = Losses(0.5, {2: 0.5, 1: 0.4}, {16: 0.5}, {16: 0.5, 8: 0.8}, 2.0)
    assert one.margin_kept(Shape(1, 16, 8)) == pytest.approx(0.8)


def test_two_moderate_cuts_beat_one_that_loses_the_whole_margin() -> None:
    """Where a sum of rises would be the same."""
    one = Losses(0.0, {1: 1.0, 2: 0.0}, {16: 0.0, 8: 0.5}, {8: 0.5, 16: 0.0}, 1.0)
    assert one.margin_kept(Shape(2, 8, 8)) == pytest.approx(0.25)
    assert one.margin_kept(Shape(1, 16, 16)) == pytest.approx(LEAST)
    assert one.margin_kept(Shape(1, 8, 16)) == pytest.approx(LEAST / 2)


def test_extrapolated_shares_keep_falling() -> None:
    """Without a third layer the loss is that of knowing nothing, and without a fourth by chance less."""
    layers = {6: 0.0, 5: 0.4, 4: 0.64, 3: 1.1, 2: 0.9}
    one = Losses(0.0, layers, {16: 0.0}, {8: 0.0}, 1.0)
    found = {count: one.margin_kept(Shape(count, 16, 8)) for count in layers}
    assert found == pytest.approx({6: 1.0, 5: 0.6, 4: 0.36, 3: 0.05, 2: 0.05 ** (16 / 9)})


def test_below_the_first_extrapolated_size_every_size_costs_more() -> None:
    """Without one layer the loss falls a little, by chance; without two all is lost."""
    one = Losses(0.6, {5: 0.6, 4: 0.59, 3: 0.75, 2: 0.9, 1: 0.9}, {16: 0.6}, {8: 0.6}, 0.69)
    found = [one.margin_kept(Shape(count, 16, 8)) for count in (5, 4, 3, 2, 1)]
    assert found == pytest.approx([1.0, 1.0, 0.05, 0.05**2.25, 0.05**4])


def test_extrapolated_shapes_come_last() -> None:
    """Two layers are past the cliff in one of two tasks: a product that is less all the same is preferred to it."""
    one = Losses(0.0, {4: 0.0, 3: 0.8, 2: 0.99}, {16: 0.0, 8: 0.8}, {8: 0.0}, 1.0)
    other = Losses(0.0, {4: 0.0, 3: 0.8, 2: 0.5}, {16: 0.0, 8: 0.8}, {8: 0.0}, 1.0)
    price, cost = estimated([one, other]), margin_lost([one, other])
    deep, narrow = Shape(3, 8, 8), Shape(2, 16, 8)
    assert [[one.extrapolated(shape), other.extrapolated(shape)] for shape in (deep, narrow)] == [[0, 0], [1, 0]]
    assert cost(narrow) < cost(deep)
    assert price(deep) < price(narrow)


def test_a_model_without_a_margin_has_nothing_to_lose() -> None:
    one = Losses(0.7, {2: 0.7, 1: 0.65}, {16: 0.7}, {16: 0.7}, 0.6)
    assert one.margin_kept(Shape(2, 16, 16)) == one.margin_kept(Shape(1, 16, 16)) == 1
    hardly = Losses(0.59, {2: 0.59, 1: 0.65}, {16: 0.59}, {16: 0.59}, 0.6)
    assert hardly.margin_kept(Shape(1, 16, 16)) == 1


def test_all_targets_together() -> None:
    times = table()
    target = Target(speedup=2.0, latency_ms=40.0, size_mib=10.0)
    fits = fits_target(target, times, lambda shape: shape.ffn / 100)
    for shape in EVERY:
        time = times.milliseconds(shape)
        assert fits(shape) == (times.milliseconds(FULL) / time >= 2 and time <= 40 and shape.ffn <= 1000)


def test_a_target_out_of_reach_names_the_nearest_and_its_cost() -> None:
    times = table()
    fastest = min(EVERY, key=times.milliseconds)
    target = Target(speedup=1000.0, latency_ms=0.1, size_mib=0.5)
    cost = margin_lost([losses(1)])

    def size(shape: Shape) -> float:
        return float(shape.layers)

    found = out_of_reach(target, EVERY, times, FULL, size, cost).messages
    most = times.milliseconds(FULL) / times.milliseconds(fastest)
    where = f"which {fastest.layers} layers, {fastest.hidden} hidden and {fastest.ffn} FFN channels reach"
    assert found[0].startswith(f"target.speedup: got 1000.0; must be <= {most:.2f}, {where}, at the cost of ")
    assert found[1].startswith(f"target.latency_ms: got 0.1; must be >= {times.milliseconds(fastest):.2f}, {where}")
    assert found[2].startswith("target.size_mib: got 0.5; must be >= 1.0, which 1 layers, ")
    share = 100 - 100 * fastest.layers / FULL.layers
    assert (
        f"an estimated {100 * cost(fastest):.0f}% of the loss margin over a constant prediction, and "
        f"{share:.0f}% of the weights, " in found[0]
    )
    (before,) = out_of_reach(Target(speedup=1000.0), EVERY, times, FULL, size).messages
    assert f"{where}, at the cost of {share:.0f}% of the weights, before recovery; " in before
    # Targets that can be met are not mentioned; targets that can only be met separately have a message of their own.
    (alone,) = out_of_reach(Target(speedup=1.1, size_mib=0.5), EVERY, times, FULL, size, cost).messages
    assert alone.startswith("target.size_mib")
    (together,) = out_of_reach(Target(speedup=1.1, size_mib=2), EVERY, times, FULL, size, cost).messages
    assert together.startswith(
        "target: got speedup, size_mib; must be met by a single shape, but each is met by another; "
    )


@pytest.mark.parametrize("seed", range(8))
def test_sizes_below_the_first_extrapolated_one_are_not_measured(seed: int) -> None:
    whole = losses(seed)
    asked: list[int] = []

    def short(by_size: dict[int, float]) -> dict[int, float]:
        def loss_of(size: int) -> float:
            asked.append(size)
            return by_size[size]

        return falling(max(by_size), whole.full, whole.scale, by_size, loss_of)

    parts = [short(dict(part)) for part in (whole.layers, whole.hidden, whole.ffn)]
    brief = Losses(whole.full, *parts, whole.scale)
    assert len(asked) == sum(map(len, parts)) - 3 < len(whole.layers) + len(whole.hidden) + len(whole.ffn) - 3
    for shape in EVERY:
        assert brief.margin_kept(shape) == whole.margin_kept(shape)
        assert brief.extrapolated(shape) == whole.extrapolated(shape)


def test_every_size_of_a_model_without_a_margin_is_measured() -> None:
    assert falling(4, 0.7, 0.7, [1, 2, 3, 4], lambda size: 0.7) == dict.fromkeys([4, 3, 2, 1], 0.7)


def test_noise_does_not_make_a_smaller_size_look_better() -> None:
    measured = {5: 0.3, 4: 0.1, 3: 0.2, 2: 0.6, 1: 0.5}
    losses = falling(6, 0.15, 1.0, measured, measured.__getitem__)
    assert losses == pytest.approx({6: 0.15, 5: 0.2, 4: 0.2, 3: 0.2, 2: 0.55, 1: 0.55})
    assert falling(2, 0.4, 1.0, [1], lambda size: 0.3) == {2: 0.4, 1: 0.4}
