"""A target that no shape meets is refused before training, where that is known."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig

from distill.cli import advise
from distill.compression.pruning.goal import Excess
from distill.compression.pruning.prune import Kept as KeptParts
from distill.compression.pruning.prune import pruned
from distill.compression.pruning.search import Losses, Shape, Table, Tables, distance, estimated, evenness
from distill.compression.pruning.stored_times import Kept
from distill.compression.pruning.target import CHECKS, NEAR, Search, config_of
from distill.config import Prune, Target, load_config
from distill.config.plan import resolve
from distill.config.schemes import Form
from distill.errors import ConfigError
from distill.inference.cost import size_mib_of
from distill.inference.runners import Runner
from distill.models.families import vectors
from distill.models.families.embedding import EncoderForVectors
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import shape_search
from distill.runtime.storage import cache
from tests import tiny

SIZES = {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`check(recipe, *overrides)` of a tiny BERT, on a machine where every layer takes a millisecond."""

    def call(recipe: str, *overrides: str) -> None:
        overridden = ["target.speedup=null", "target.shape=[8,128]", "target.scheme=fp32", *overrides]
        settings = load_config([f"recipe={recipe}", *overridden])
        machine = SimpleNamespace(device=torch.device("cpu"), threads=1, log=print)
        given = SimpleNamespace(teachers=[""], tokenizer=None, tokenizers=[None], student_tokenizer=None)
        ctx: Any = SimpleNamespace(
            config=settings, plan=resolve(settings), machine=machine, folder=RunFolder(tmp_path), given=given
        )
        runtime: Any = SimpleNamespace(machine=machine, limit=settings.limit, longest=settings.tasks.max_length)
        config = BertConfig(**SIZES, num_hidden_layers=4)
        for step in ctx.plan.of(Prune):
            inputs = shape_search.search_inputs(ctx, step)
            search = shape_search.search_of(inputs, runtime, config)
            widths = [(shape.hidden, shape.ffn) for shape in search.shapes]
            table = Table(dict.fromkeys(widths, 0.5), dict.fromkeys(widths, 1.0))
            monkeypatch.setattr(Search, "times", Tables({FORM: table}, 4.5))
            shape_search.check_reach(inputs, runtime, config)

    return call


def test_a_target_that_no_shape_meets_is_refused(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50, which 1 layers, "):
        check("prune", "target.latency_ms=1")
    with pytest.raises(ConfigError, match=r"target\.speedup: got 5; must be <= 3\.00, which 1 layers, "):
        check("prune", "target.speedup=[2,5]")
    check("prune", "target.latency_ms=2")


@pytest.mark.slow
def test_size_targets_are_not_checked_before_the_vocabulary_is_pruned(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.size_mib: got 0\.01; must be >= "):
        check("prune", "target.size_mib=0.01")
    check("distil_prune_int8", "target.size_mib=0.01")
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50"):
        check("distil_prune_int8", "target.size_mib=0.01", "target.latency_ms=1")


WIDTHS = [(h, f) for h in (8, 16, 24, 32) for f in (16, 32, 48, 64)]
KNOWN = Losses(
    0.0,
    {4: 0.0, 3: 0.1, 2: 0.3, 1: 0.6},
    {h: 0.5 - h / 64 for h in (8, 16, 24, 32)},
    {f: 0.3 - f / 214 for f in (16, 32, 48, 64)},
    1.0,
)


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[None]:
    with cache.using(tmp_path / "cache"):
        yield


FORM = Form("openvino", "int8", "openvino")
BROKEN = Form("broken", "int8", "broken")
FORMS = [Form("slow", "fp32"), Form("calls", "int8"), Form("layers", "bf16")]


@dataclass(frozen=True)
class Known(Runner):
    """A runner whose shape is known."""

    shape: Shape


UNEVEN = Form("uneven", "int8", "uneven")


def real(shape: Shape, backend: str = "openvino") -> float:
    """What a model takes: in OpenVINO more than the table has it where it is narrow; in `uneven` far less where it is
    small, and a little more elsewhere."""
    whole = table_of(shape)
    if backend == "uneven":
        return whole * (0.4 if whole < 1.5 else 1.1)
    by_backend = {"slow": 3 * whole, "calls": 0.9 + whole / 4, "layers": 0.2 + 0.6 * whole, "reference": whole}
    return by_backend.get(backend, whole * (1.4 if shape.hidden < 32 else 1.0))


def table_of(shape: Shape) -> float:
    return 0.1 + shape.layers * shape.hidden * (shape.hidden + shape.ffn) / 3072


class Times:
    """Times that are known, of runners that are (name, form, shape), and how often each was timed."""

    def __init__(self, *, busy: bool = False) -> None:
        self.busy, self.timed = busy, list[tuple[str, Shape]]()

    def __call__(self, runners: Any, *, few: bool = False) -> dict[str, float]:
        self.timed += [(runner.backend, runner.shape) for runner in runners]
        return {runner.name: real(runner.shape, runner.backend) for runner in runners}


def search_in(folder: Path, told: list[str], target: Target, *, checked: bool = True) -> Search:
    """A search in one form of which all times are known; the reference takes as long as the unpruned model."""
    search = over_forms(folder, told, target, [FORM], checked=checked)
    widths = {(h, f): table_of(Shape(1, h, f)) - 0.1 for h, f in WIDTHS}
    search.__dict__["times"] = Tables({FORM: Table(dict.fromkeys(widths, 0.1), widths)}, table_of(Shape(4, 32, 64)))
    return search


def over_forms(
    folder: Path, told: list[str], target: Target, forms: list[Form], *, checked: bool = True, times: Any = None
) -> Search:
    """A search whose models take what `real` says."""

    def build(shape: Shape, forms: Sequence[Form]) -> Any:
        if BROKEN in forms:
            raise ValueError("it has no such operator")
        return {form: Known("", form.backend, form.scheme, lambda batch: np.zeros(1), shape) for form in forms}

    return Search(
        target,
        BertConfig(**SIZES, num_hidden_layers=4),
        [Shape(layers, h, f) for layers in range(1, 5) for h, f in WIDTHS],
        ({h for h, _ in WIDTHS}, {f for _, f in WIDTHS}),
        forms,
        build,
        lambda: [Known("whole", "reference", "fp32", lambda batch: np.zeros(1), Shape(4, 32, 64))],
        times or Times(),
        {"threads": 1},
        Kept(folder, lambda: ["this machine"], told.append),
        checked,
        told.append,
        (4, 4),
    )


@pytest.mark.usefixtures("own_cache")
def test_the_form_is_found_near_the_target(tmp_path: Path) -> None:
    """At small speedups the one with the shorter layers is faster, at large ones the one with the shorter calls."""
    found = {}
    for speedup in (1.3, 3.5):
        told: list[str] = []
        search = over_forms(tmp_path / "run", told, Target(speedup=speedup), FORMS)
        choice = search.choice(estimated([KNOWN]))
        found[speedup] = choice.speed.form
        assert choice.speed.predicted_ms == min(real(choice.shape, form.backend) for form in FORMS)
        assert choice.speed.predicted_speedup >= speedup * (1 - NEAR)
        assert "slow" not in {form.backend for form in search.carried}
        assert any(choice.speed.form.name in line for line in told)
    assert [form.backend for form in found.values()] == ["calls", "layers"]


@pytest.mark.usefixtures("own_cache")
def test_a_form_that_cannot_be_made_is_left_out(tmp_path: Path) -> None:
    told: list[str] = []
    search = over_forms(tmp_path, told, Target(speedup=3.5), [BROKEN, *FORMS])
    assert search.choice(estimated([KNOWN])).speed.form == FORMS[2]
    assert "broken int8 is left out of the search: ValueError: it has no such operator" in "\n".join(told)
    alone = over_forms(tmp_path / "alone", told, Target(speedup=3.5), [BROKEN])
    with pytest.raises(ValueError, match="no such operator"):
        alone.choice(estimated([KNOWN]))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("speedup", [1.3, 3.5])
def test_the_unpruned_model_is_timed_in_its_own_fastest_form(speedup: float, tmp_path: Path) -> None:
    """Whatever form is the best near the target."""
    whole = Shape(4, 32, 64)
    form, faster = over_forms(tmp_path, [], Target(speedup=speedup), FORMS).whole()
    assert form == min(FORMS, key=lambda form: real(whole, form.backend))
    assert faster == pytest.approx(real(whole, "reference") / real(whole, form.backend))


@pytest.mark.parametrize("wrong", [0.8, 1.0, 1.3])
def test_advice_has_a_model_on_either_side_of_a_speedup(wrong: float, tmp_path: Path) -> None:
    """The nearest ones, also where the estimates are wrong by a fifth or more."""
    search = over_forms(tmp_path, [], Target(), [FORMS[1]])
    wide = Shape(4, 32, 64)
    layer = {(h, f): wrong * (table_of(Shape(1, h, f)) - 0.1) / 4 for h, f in WIDTHS}
    estimated = Tables({FORMS[1]: Table(dict.fromkeys(layer, 0.9 * wrong), layer)}, table_of(wide))
    reference, whole, *rows = advise._timed(search, estimated, [2.5, 3.5])
    assert (reference.milliseconds, reference.speedup) == (table_of(wide), 1.0)
    assert whole.speedup == pytest.approx(table_of(wide) / real(wide, "calls"))
    offered = [row.speedup for row in (whole, *rows)]
    every = [table_of(wide) / real(shape, "calls") for shape in search.shapes if shape.ffn == 2 * shape.hidden]
    for speedup in (2.5, 3.5):
        nearest = max(each for each in every if each < speedup), min(each for each in every if each >= speedup)
        assert nearest == pytest.approx(
            (max(f for f in offered if f < speedup), min(f for f in offered if f >= speedup))
        )


@pytest.mark.usefixtures("own_cache")
def test_times_are_measured_once_for_all_runs_unless_the_machine_was_busy(tmp_path: Path) -> None:
    def timed(run: str, *, busy: bool = False, **changed: Any) -> int:
        """Number of models that a run times before it chooses."""
        times = Times(busy=busy)
        search = over_forms(tmp_path / run, [], Target(speedup=2.0), FORMS, times=times)
        assert replace(search, **changed).times.speedup(Shape(4, 32, 64)) > 0
        return len(times.timed)

    every = timed("busy", busy=True)
    assert timed("first") == every > 50
    assert timed("first") == timed("second") == 0
    assert timed("third", conditions={"threads": 2}) == every
    with cache.using(max_gib=0):
        assert timed("fourth") == every
        assert timed("fourth") == 0
    assert timed("fifth", kept=Kept(tmp_path / "fifth", None, print)) == every, "as under limit=smoke"


@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
def test_a_chosen_shape_is_timed_and_another_is_chosen_if_it_is_too_slow(speedup: float, tmp_path: Path) -> None:
    told: list[str] = []
    found = search_in(tmp_path, told, Target(speedup=speedup)).choice(estimated([KNOWN]))
    shape = found.shape
    assert found.speed.predicted_ms == pytest.approx(real(shape))
    assert found.speed.predicted_speedup == pytest.approx(table_of(Shape(4, 32, 64)) / real(shape))
    assert found.speed.predicted_speedup >= speedup * (1 - NEAR)
    assert 1 <= len(told) <= CHECKS
    unchecked = search_in(tmp_path, [], Target(speedup=speedup), checked=False).choice(estimated([KNOWN]))
    assert unchecked.speed.predicted_speedup >= speedup, "as the table has it"
    assert KNOWN.margin_kept(unchecked.shape) >= KNOWN.margin_kept(shape)


@pytest.mark.parametrize("speedup", [3.0, 3.5, 4.0])
def test_a_shape_that_is_far_faster_than_the_target_is_not_the_last_word(speedup: float, tmp_path: Path) -> None:
    """Times that are wrong in both directions: the correction by one shape overshoots for the next."""
    widths, whole = {(h, f): table_of(Shape(1, h, f)) - 0.1 for h, f in WIDTHS}, table_of(Shape(4, 32, 64))
    search = over_forms(tmp_path, [], Target(speedup=speedup), [UNEVEN])
    search.__dict__["times"] = Tables({UNEVEN: Table(dict.fromkeys(widths, 0.1), widths)}, whole)
    found = search.choice(estimated([KNOWN])).speed.predicted_speedup
    fits = [fast for shape in search.shapes if (fast := whole / real(shape, "uneven")) >= speedup * (1 - NEAR)]
    assert min(fits) <= found <= 1.05 * min(fits)


def test_the_finalist_that_recovers_best_is_chosen(tmp_path: Path) -> None:
    tried: list[Shape] = []

    def trials(shapes: Sequence[Shape]) -> dict[Shape, float]:
        tried.extend(shapes)
        return {shape: -float(shape.layers) for shape in shapes}

    target = Target(speedup=2.0)
    found = search_in(tmp_path, [], target, checked=False).choice(estimated([KNOWN]), 5, trials)
    assert found.shape.layers == max(shape.layers for shape in tried)
    assert len({*tried}) == len({shape.layers for shape in tried}) > 1
    assert all(table_of(Shape(4, 32, 64)) / table_of(shape) >= 2.0 for shape in tried)
    untried = search_in(tmp_path, [], target, checked=False).choice(estimated([KNOWN]))
    assert untried.shape in tried


def test_the_whole_model_is_not_tried(tmp_path: Path) -> None:
    def trials(shapes: Sequence[Shape]) -> dict[Shape, float]:
        raise AssertionError(f"{shapes} were tried")

    found = search_in(tmp_path, [], Target(speedup=1.0), checked=False).choice(estimated([KNOWN]), 4, trials)
    assert found.shape == Shape(4, 32, 64)


def test_a_latency_is_met_by_the_model_that_was_timed(tmp_path: Path) -> None:
    found = search_in(tmp_path, [], Target(latency_ms=1.5)).choice(estimated([KNOWN]))
    assert real(found.shape) == found.speed.predicted_ms <= 1.5 * (1 + NEAR)


def test_a_single_layer_is_chosen_only_where_nothing_else_is_fast_enough(tmp_path: Path) -> None:
    """Its estimate is the best here, as it is at high speedups, but such models recover less."""
    shallow = replace(KNOWN, layers={4: 0.0, 3: 0.0, 2: 0.0, 1: 0.0})
    search = search_in(tmp_path, [], Target(), checked=False)
    fastest = {
        depth: max(map(search.times.speedup, [s for s in search.shapes if s.layers >= depth])) for depth in (1, 2)
    }
    for speedup, layers in ((0.8 * fastest[2], 2), (0.9 * fastest[1], 1)):
        search = search_in(tmp_path, [], Target(speedup=speedup), checked=False)
        assert search.choice(estimated([shallow])).shape.layers == layers


def test_a_goal_has_the_costs_that_the_target_limits(tmp_path: Path) -> None:
    whole, half = Shape(4, 32, 64), Shape(2, 16, 32)
    for target, cost, most in (
        (Target(speedup=2.0), table_of, table_of(whole) / 2.0),
        (Target(latency_ms=1.5), table_of, 1.5),
        (Target(size_mib=0.05), search_in(tmp_path, [], Target()).size, 0.05),
    ):
        excess = Excess(search_in(tmp_path, [], target).goal())
        for shape in (whole, half):
            sizes = torch.tensor([shape.layers, shape.hidden, shape.ffn], dtype=torch.float32)
            assert excess(sizes).tolist() == pytest.approx([cost(shape) / most], rel=1e-5)
    assert len(search_in(tmp_path, [], Target(speedup=2.0, size_mib=0.05)).goal().limits) == 2
    assert search_in(tmp_path, [], Target(speedup=2.0)).goal().least == Shape(1, 8, 16)


def test_gated_models_get_the_nearest_shape_that_meets_the_target(tmp_path: Path) -> None:
    expected = [{"layers": 2.9, "hidden": 17.0, "ffn": 60.0}, {"layers": 3.3, "hidden": 15.0, "ffn": 66.0}]
    search = search_in(tmp_path, [], Target(speedup=2.0), checked=False)
    assert search.choice(distance(expected)).shape == Shape(3, 16, 64)
    search = search_in(tmp_path, [], Target(speedup=6.0), checked=False)
    fast = search.choice(distance(expected))
    meets = [shape for shape in search.shapes if search.times.speedup(shape) >= 6.0]
    assert fast.speed.predicted_speedup >= 6.0

    def off(shape: Shape) -> float:
        of_models = [(shape.layers / e["layers"], shape.hidden / e["hidden"], shape.ffn / e["ffn"]) for e in expected]
        return float(np.square(np.log(of_models)).sum())

    assert off(fast.shape) == pytest.approx(min(map(off, meets)))


def test_even_scaling_reduces_all_sizes_alike(tmp_path: Path) -> None:
    search = search_in(tmp_path, [], Target(speedup=6.5), checked=False)
    assert search.choice(evenness(search.full)).shape == Shape(2, 16, 32)


@pytest.mark.parametrize("hidden", [8, 16])
def test_an_embedder_is_as_large_as_it_is_after_pruning(hidden: int) -> None:
    """With the linear layer by which vectors keep their width."""
    model = EncoderForVectors.from_config(tiny.config("bert"))
    kept = KeptParts([0, 1], torch.arange(hidden), [torch.arange(hidden // 8)] * 2, [torch.arange(24)] * 2)
    count = sum(parameter.numel() for parameter in pruned(model, kept).parameters())
    made = config_of(model.config, Shape(2, hidden, 24))
    assert size_mib_of(made) == pytest.approx(4 * count / 2**20)
    assert vectors.of_config(made).width == (16 if hidden == 8 else None)
    assert vectors.of_config(model.config).width is None
    # The setting stays in the config of a classifier that was made from an embedder.
    classifier = copy.deepcopy(model.config)
    classifier.architectures = ["BertForSequenceClassification"]
    assert vectors.of_config(config_of(classifier, Shape(2, hidden, 24))).width is None
