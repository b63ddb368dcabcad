"""The timing protocol, with a clock that only the runners advance."""

from __future__ import annotations

import numpy as np
import pytest

from distill.inference import latency
from distill.inference.latency import measure, speedup, summary, synthetic
from distill.inference.runners import Batch, Runner


class Clock:
    """A clock that only the runners advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def runner(self, name: str, seconds: float) -> Runner:
        def run(batch: Batch) -> np.ndarray:
            self.now += seconds
            self.calls.append((name, batch["input_ids"].shape))
            return np.zeros((len(batch["input_ids"]), 2), np.float32)

        return Runner(name, "torch", "fp32", run)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(latency.time, "perf_counter", lambda: clock.now)
    return clock


def test_every_round_times_every_engine_in_random_order_after_an_untimed_call(clock: Clock) -> None:
    runners = [clock.runner("a", 1.0), clock.runner("b", 2.0), clock.runner("c", 3.0)]
    batches = [synthetic((3, 8), 50), synthetic((2, 4), 50)]
    times = measure(runners, batches, repeats=7, warmup=1)
    # two calls for each timing: one row, not timed, then the batch
    assert [shape for _, shape in clock.calls[:12]] == [(1, 8), (3, 8)] * 3 + [(1, 4), (2, 4)] * 3
    pairs = np.array([name for name, _ in clock.calls]).reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    turns = ["".join(turn) for turn in pairs[:, 0].reshape(-1, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len({turn for turn in turns}) > 3
    assert times == {
        (name, shape): [pytest.approx(1000.0 * seconds)] * 7
        for shape in ((3, 8), (2, 4))
        for name, seconds in (("a", 1), ("b", 2), ("c", 3))
    }


def test_short_calls_are_repeated_and_long_ones_are_not(clock: Clock) -> None:
    runners = [clock.runner("short", 0.004), clock.runner("long", 0.2)]
    times = measure(runners, [synthetic((2, 4), 50)], repeats=1, warmup=1, least_ms=40.0)
    counted = [name for name, shape in clock.calls if shape == (2, 4)]
    assert (counted.count("short"), counted.count("long")) == (1 + 10, 1 + 1)
    assert times == {("short", (2, 4)): [pytest.approx(4.0)], ("long", (2, 4)): [pytest.approx(200.0)]}


@pytest.mark.parametrize(("seconds", "rounds"), [(100.0, 8), (36.0, 6), (35.9, 5), (1.0, 4)])
def test_long_rounds_are_fewer(clock: Clock, seconds: float, rounds: int) -> None:
    """A round takes 6 s: the untimed and the timed calls of 1 and 2 s. Of 4 rounds at least, none begins too late."""
    runners = [clock.runner("a", 1.0), clock.runner("b", 2.0)]
    times = measure(runners, [synthetic((2, 4), 50)], repeats=8, seconds=seconds)
    assert {len(values) for values in times.values()} == {rounds}
    assert {len(v) for v in measure(runners, [synthetic((2, 4), 50)], repeats=3, seconds=1.0).values()} == {3}


def test_named_batches_are_timed_together(clock: Clock) -> None:
    parts = [synthetic((1, length), 50) for length in (3, 5, 9)]
    times = measure([clock.runner("a", 0.5)], {"task lengths": {"a": parts}}, repeats=2, warmup=0)
    assert times == {("a", "task lengths"): [1500.0, 1500.0]}


def test_two_runners_of_one_name_are_refused(clock: Clock) -> None:
    runners = [clock.runner("a", 1.0), clock.runner("a", 1.0)]
    with pytest.raises(ValueError, match="different names"):
        measure(runners, [synthetic((1, 1), 50)], repeats=1)


def test_a_synthetic_batch_is_int64_without_padding_and_fits_the_vocabulary() -> None:
    batch = synthetic((3, 40), 12)
    assert {key: (value.shape, value.dtype.name) for key, value in batch.items()} == {
        key: ((3, 40), "int64") for key in ("input_ids", "attention_mask", "token_type_ids")
    }
    assert batch["input_ids"].min() >= 5
    assert batch["input_ids"].max() < 12
    assert batch["attention_mask"].all()


def test_summary() -> None:
    assert summary([1.0, 2.0, 3.0, 4.0, 100.0]) == {"median": 3.0, "p90": pytest.approx(61.6), "repeats": 5}


def test_a_temporary_slowdown_does_not_change_the_speedup() -> None:
    slowdown = np.where(np.arange(20) < 8, 5.0, 1.0)
    result = speedup(list(6.0 * slowdown), list(2.0 * slowdown))
    assert result == {"median": pytest.approx(3.0), "ci95": [pytest.approx(3.0), pytest.approx(3.0)]}


def test_the_interval_of_a_speedup_contains_the_median() -> None:
    random = np.random.default_rng(0)
    reference, times = random.uniform(3, 5, 30), random.uniform(1, 2, 30)
    result = speedup(list(reference), list(times))
    assert result["median"] == pytest.approx(np.median(reference / times))
    assert result["ci95"][0] < result["median"] < result["ci95"][1]
    assert speedup([6.0], [2.0]) == {"median": 3.0, "ci95": [3.0, 3.0]}


@pytest.mark.parametrize("rounds", [2, 4, 6, 8])
@pytest.mark.parametrize("slow", [0.0, 0.1])
def test_the_interval_of_a_speedup_includes_the_truth_in_95_percent_of_the_simulations(
    rounds: int, slow: float
) -> None:
    """With noise of each time, and rounds in which one of the two models is disturbed, either of them as often."""
    random, inside, count = np.random.default_rng(rounds), 0, 2000
    for _ in range(count):
        noise = np.exp(random.normal(0, 0.05, (2, rounds))) * np.where(random.random((2, rounds)) < slow, 1.5, 1.0)
        low, high = speedup(list(4 * noise[0]), list(noise[1]))["ci95"]
        inside += low <= 4 <= high
    assert 0.94 <= inside / count <= (0.998 if slow else 0.985)


def test_different_numbers_of_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        speedup([1.0, 2.0], [1.0])


def test_single_requests_are_timed_one_by_one_in_rounds(clock: Clock) -> None:
    runners = [clock.runner("a", 1.0), clock.runner("b", 2.0)]
    rows = [synthetic((1, length), 50) for length in range(4, 14)]
    times = latency.requests(runners, {"a": rows, "b": rows}, rounds=3)
    assert times == {"a": [1000.0] * 10, "b": [2000.0] * 10}
    # In each round, a runner is called untimed on the row before its share, and then on each row of it, in order.
    lengths = [shape[1] for name, shape in clock.calls if name == "a"]
    assert lengths == [13, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 13]
    names = "".join(name for name, _ in clock.calls)
    assert sorted(names[:8]) == list("aaaabbbb")
    assert names[:4] in ("aaaa", "bbbb")


def test_percentiles_are_numpys() -> None:
    times = list(np.random.default_rng(0).gamma(2, 3, 200))
    assert latency.percentiles(times) == {
        "count": 200, "p50": np.median(times), "p95": np.percentile(times, 95), "p99": np.percentile(times, 99),
    }  # fmt: skip


def test_a_text_that_is_timed_several_times_is_one_text() -> None:
    """Of 40 texts, each timed five times without noise, the interval is that of 40 texts."""
    random = np.random.default_rng(0)
    reference, own = random.gamma(2, 3, 40), random.gamma(2, 1, 40)
    once = latency.ratio_of_medians(list(reference), list(own))
    several = latency.ratio_of_medians(list(np.tile(reference, 5)), list(np.tile(own, 5)), 40)
    assert several["ci95"] == pytest.approx(once["ci95"])
    taken_for_different = latency.ratio_of_medians(list(np.tile(reference, 5)), list(np.tile(own, 5)))
    assert np.ptp(taken_for_different["ci95"]) < 0.7 * np.ptp(once["ci95"])


def test_the_ratio_of_medians_is_paired_by_text() -> None:
    """All texts twice as fast: whatever texts are drawn, the ratio is 2. Of unpaired draws it would vary."""
    reference = np.random.default_rng(0).gamma(2, 3, 200)
    exact = latency.ratio_of_medians(list(reference), list(reference / 2))
    assert exact == {"median": pytest.approx(2.0), "ci95": [pytest.approx(2.0), pytest.approx(2.0)]}
    own = np.random.default_rng(1).gamma(2, 1, 200)
    found = latency.ratio_of_medians(list(reference), list(own))
    assert found["median"] == np.median(reference) / np.median(own)
    assert found["ci95"][0] < found["median"] < found["ci95"][1]
