"""The training loop on tiny models: its gradients are those of the plain mean loss, and it resumes exactly."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from distill import losses
from distill.compression.pruning.gates import L0
from distill.compression.pruning.goal import Goal
from distill.compression.pruning.search import Shape
from distill.compression.pruning.target import shape_of
from distill.config import Batch, Train
from distill.errors import Interrupted, Stopped, UserError
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.training import feed, interruption, nonfinite, schedule, state, train
from distill.training.train import check_weights, clip

LENGTHS = np.array([9, 4, 7, 12, 5, 9, 3, 8, 6, 10, 11, 4])
MLM = Term(2.0, "logits", "labels", "masked", losses.mlm)
SOFT = Term(5.0, "logits", "teacher", "masked", partial(losses.soft_targets, temperature=2.0))
COSINE = Term(1.0, "hidden", "teacher", "all", losses.cosine)
TERMS = {"soft_targets": SOFT, "mlm": MLM, "cosine": COSINE}


def collate(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
    """Invented tokens that depend on the row, masked at places that depend on row and epoch."""
    width = int(LENGTHS[rows].max())
    real = np.arange(width) < LENGTHS[rows][:, None]
    ids = np.where(real, 5 + (rows[:, None] * 7 + np.arange(width) * 3) % 50, 0)
    chosen = real & ((rows[:, None] + np.arange(width) + epoch) % (2 + rows[:, None] % 4) == 0)
    batch = {"input_ids": np.where(chosen, 3, ids), "attention_mask": real.astype(np.int64)}
    return batch | {"masked": np.flatnonzero(chosen), "real": np.flatnonzero(real), "labels": ids[chosen]}


def run(objective: Objective, folder: Path, *, collate: Any = collate, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"batch": Batch(tokens=48), "steps": 8, "epochs": 9, "checkpoint_seconds": 1e9}
    optimizer: Callable[..., torch.optim.Optimizer] = partial(torch.optim.AdamW, lr=0.02, fused=True)
    optimizer, fp16 = settings.pop("optimizer", optimizer), settings.pop("fp16", False)
    return train(
        objective,
        LENGTHS,
        collate,
        name="pretrain",
        settings=Train(**(defaults | settings)),
        total=(defaults | settings)["steps"],
        seed=3,
        optimizer=optimizer(objective.parameters()),
        schedule=partial(schedule.linear, warmup=0.1),
        accelerator=Accelerator(cpu=True),
        state_folder=folder / "state",
        console=None,
        fp16=fp16,
    )


@pytest.fixture
def models(tiny_model) -> Callable[..., Objective]:
    def make(terms: dict[str, Term] = TERMS, dropout: float = 0.0, double: bool = False) -> Objective:
        student, teacher = tiny_model("bert", layers=1, seed=0), tiny_model("bert", layers=2, seed=1)
        for module in student.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
        if double:
            student, teacher = student.double(), teacher.double()
        return Objective(student, terms, [teacher])

    return make


def weights(objective: Objective) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in objective.named_parameters()}


def mean_loss(objective: Objective) -> torch.Tensor:
    """The weighted loss of all rows at once, written from the models' own full outputs."""
    batch = {k: torch.from_numpy(v) for k, v in collate(np.arange(len(LENGTHS)), 0).items()}
    given = {k: batch[k] for k in ("input_ids", "attention_mask")}
    ours = objective.student(**given, output_hidden_states=True)
    with torch.no_grad():
        theirs = objective.teachers[0](**given, output_hidden_states=True)
    z, t = (out.logits.flatten(0, 1)[batch["masked"]] for out in (ours, theirs))
    h, g = (out.hidden_states[-1].flatten(0, 1)[batch["real"]] for out in (ours, theirs))
    p, log_q = torch.softmax(t / 2, -1), torch.log_softmax(z / 2, -1)
    soft = 4 * (p * (p.log() - log_q)).sum(-1).mean()
    mlm = torch.nn.functional.cross_entropy(z, batch["labels"])
    cosine = 1 - torch.cosine_similarity(h, g, dim=-1).mean()
    return 5 * soft + 2 * mlm + cosine


@pytest.mark.parametrize("at_once", [None, 48])
def test_a_step_follows_the_gradient_of_the_mean_loss(at_once: int | None, models, tmp_path: Path) -> None:
    """However many parts it is computed in, and though they hold unlike numbers of masked tokens."""
    objective = models(double=True)
    before = weights(objective)
    loss = mean_loss(objective)
    wanted = dict(zip(before, torch.autograd.grad(loss, list(objective.parameters())), strict=True))
    everything = Batch(tokens=10**4, device_tokens=at_once)
    plain = partial(torch.optim.SGD, lr=1.0)
    done = run(objective, tmp_path, batch=everything, steps=1, optimizer=plain, clip=1e9)
    for name, value in weights(objective).items():
        # Weights over counts are float32; the rest is float64.
        torch.testing.assert_close(before[name] - value, wanted[name], rtol=1e-6, atol=1e-7)
    assert (done.steps, done.tokens) == (1, LENGTHS.sum())
    assert done.log[-1].loss == pytest.approx(loss.item(), rel=1e-5)


class Limited(torch.nn.Module):
    """An objective on a device whose memory is enough for some tokens at once."""

    def __init__(self, objective: Objective, most: int, error: type[RuntimeError]) -> None:
        super().__init__()
        self.objective, self.most, self.error, self.refused = objective, most, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(super().__getattr__("objective"), name) if name != "objective" else super().__getattr__(name)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if batch["input_ids"].numel() > self.most:
            self.refused += 1
            raise self.error("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return self.objective(batch)  # type: ignore[no-any-return]


@pytest.mark.quick(1)
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_with_too_little_memory_a_step_is_computed_in_smaller_parts(
    error: type[RuntimeError], models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on it is the training with the smaller `device_tokens`, dropout included."""
    objective, expected, lines = models(dropout=0.1), models(dropout=0.1), list[str]()
    limited: list[Limited] = []

    def with_limit(trained: Any, *_: Any) -> Any:
        limited.append(Limited(trained, 40, error))
        return limited[-1]

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["distill.training.train"], "in_arithmetic", with_limit)
        patch.setattr(sys.modules["distill.training.train"], "_print", lambda console, name, text: lines.append(text))
        run(objective, tmp_path / "limited", batch=Batch(tokens=96))
    assert lines == ["too little memory at step 1: goes on with batch.device_tokens=28"]
    assert limited[0].refused == 1
    run(expected, tmp_path / "expected", batch=Batch(tokens=96, device_tokens=28))
    for name, value in weights(expected).items():
        assert torch.equal(value, weights(objective)[name]), name


def test_the_memory_of_recorded_steps_is_freed_before_steps_are_divided(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, module = list[str](), sys.modules["distill.training.train"]
    eager = module.gradients
    graphs: Any = SimpleNamespace(freed=iter([True, False]).__next__)
    monkeypatch.setattr(module, "in_arithmetic", lambda trained, *_: Limited(trained, 40, torch.OutOfMemoryError))
    monkeypatch.setattr(module, "_print", lambda console, name, text: lines.append(text))
    monkeypatch.setattr(module, "graphs_of", lambda *_: graphs)
    monkeypatch.setattr(module, "gradients", lambda *given, graphs, **named: eager(*given, **named))
    run(models(), tmp_path, batch=Batch(tokens=96))
    assert lines == [
        "too little memory at step 1: goes on without CUDA graphs",
        "too little memory at step 1: goes on with batch.device_tokens=28",
    ]


def test_a_single_row_that_does_not_fit_into_memory_is_refused(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["distill.training.train"], "in_arithmetic", lambda trained, *_: Limited(trained, 2, RuntimeError)
    )
    with pytest.raises(
        UserError, match=r"^memory: got too little for \d+ tokens at once, in texts of up to \d+; must be"
    ):
        run(models(), tmp_path)


def test_a_group_that_does_not_fit_into_memory_is_refused() -> None:
    """Its rows are not divided, so no smaller part can be tried."""
    fed = feed.Feed(collate, LENGTHS, Batch(tokens=10**4), np.zeros(12, np.int64), Accelerator(cpu=True), False)
    (step,) = fed.ahead(iter([(0, 0, np.arange(12))]))
    with pytest.raises(UserError, match=r"^memory: got too little for 192 tokens at once, in texts of up to 12"):
        fed.smaller(step)


def test_a_step_whose_rows_are_compared_with_each_other_is_not_divided() -> None:
    fed = feed.Feed(collate, LENGTHS, Batch(tokens=10**4), None, Accelerator(cpu=True), False, whole=True)
    (step,) = fed.ahead(iter([(0, 0, np.arange(12))]))
    message = r"must be enough for a whole step, whose rows a term compares with each other; lower its batch.tokens"
    with pytest.raises(UserError, match=message):
        fed.smaller(step)


@pytest.mark.slow
def test_a_resumed_training_goes_on_with_smaller_parts(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, module = list[str](), sys.modules["distill.training.train"]
    monkeypatch.setattr(module, "_print", lambda console, name, text: lines.append(text))
    with monkeypatch.context() as patch:
        patch.setattr(module, "in_arithmetic", lambda trained, *_: Limited(trained, 40, RuntimeError))
        run(models(), tmp_path, batch=Batch(tokens=96), checkpoint_seconds=1e-9)
    (state_file,) = sorted((tmp_path / "state").glob("*/state.json"))[-1:]
    assert json.loads(state_file.read_text())["device_tokens"] == 28
    resumed: list[Limited] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            module,
            "in_arithmetic",
            lambda trained, *_: resumed.append(Limited(trained, 40, RuntimeError)) or resumed[-1],
        )
        run(models(), tmp_path, batch=Batch(tokens=96))
    assert resumed[0].refused == 0
    assert len(lines) == 1


def test_other_errors_are_not_taken_for_too_little_memory(models: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as lacking:
        torch.empty(2**60)
    assert feed.out_of_memory(lacking.value)
    assert not feed.out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))

    def broken(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        return collate(rows, epoch) | {"labels": np.zeros(1, np.int64)}

    with pytest.raises((RuntimeError, ValueError)):
        run(models(), tmp_path, collate=broken)


@pytest.mark.slow
def test_the_parts_of_a_step_do_not_matter_over_many_steps(models, tmp_path: Path) -> None:
    found = []
    for at_once in (None, 16):
        objective = models(double=True)
        run(objective, tmp_path / str(at_once), batch=Batch(tokens=64, device_tokens=at_once))
        found.append(weights(objective))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-8, atol=1e-10)


def test_gradients_are_clipped(models, tmp_path: Path) -> None:
    objective = models()
    before = weights(objective)
    run(objective, tmp_path, steps=1, clip=1e-3, optimizer=partial(torch.optim.SGD, lr=1.0))
    moved = torch.cat([(before[n] - w).flatten() for n, w in weights(objective).items()])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_rates_follow_the_schedule_of_all_steps(models, tmp_path: Path) -> None:
    """Also in a run that is gone on with."""
    rates: list[float] = []

    class Noting(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            if len(rates) == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(closure)

    optimizer = partial(Noting, lr=0.5)
    with pytest.raises(Stopped, match="step 5 of 8"):
        run(models({"mlm": MLM}), tmp_path, optimizer=optimizer)
    run(models({"mlm": MLM}), tmp_path, optimizer=optimizer)
    assert rates == [0.5 * schedule.linear(step, 8, warmup=0.1) for step in range(8)]


def test_randomness_depends_only_on_the_step(models, tmp_path: Path) -> None:
    def seeds(folder: str) -> list[int]:
        found = []

        def noting(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            found.append(torch.initial_seed())
            return losses.mlm(logits, labels)

        run(models({"mlm": Term(1.0, "logits", "labels", "masked", noting)}), tmp_path / folder)
        return found

    first = seeds("a")
    torch.manual_seed(77)
    assert seeds("b") == first
    assert len(set(first)) == len(first) == 8


@pytest.mark.slow
def test_loss_goes_down(models, tmp_path: Path) -> None:
    torch.manual_seed(0)
    student = models().student
    objective = Objective(type(student)(student.config), {"mlm": MLM})  # weights of an ordinary size
    batch = {k: torch.from_numpy(v) for k, v in collate(np.arange(len(LENGTHS)), 0).items()}
    before = objective(batch).item()
    done = run(objective, tmp_path, steps=60, epochs=99, collate=lambda rows, _: collate(rows, 0))
    assert objective(batch).item() < 0.5 * before
    assert done.steps == done.log[-1].step == 60
    assert done.log[-1].terms.keys() == {"mlm"}


def test_the_teacher_is_left_alone(models, tmp_path: Path) -> None:
    objective = models(dropout=0.1)
    teacher = objective.teachers[0]
    before = copy.deepcopy(teacher.state_dict())
    run(objective, tmp_path, steps=3)
    assert not any(module.training for module in teacher.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_gradients_that_are_not_finite_end_a_training_after_three_steps(models, tmp_path: Path) -> None:
    exploding, expected = (
        partial(torch.optim.SGD, lr=1e30),
        r"3 steps in a row, until step 4; must be finite; lower opt",
    )
    with pytest.raises(UserError, match=expected) as error:
        run(models({"mlm": MLM}), tmp_path, steps=9, optimizer=exploding)
    (file,) = (tmp_path / "state").iterdir()
    assert str(file) in str(error.value)
    with np.load(file) as saved:
        assert {"0.input_ids", "0.labels"} <= set(saved.files)


def test_a_training_in_float16_follows_that_in_float32(models, tmp_path: Path) -> None:
    """With a loss whose gradients would vanish in float16."""
    small = {"mlm": replace(MLM, loss=lambda z, labels: 1e-6 * losses.mlm(z, labels))}
    optimizer = partial(torch.optim.SGD, lr=1e5)
    found = [models(small) for _ in range(2)]
    before = weights(found[0])
    for objective, fp16 in zip(found, (False, True), strict=True):
        run(objective, tmp_path / str(fp16), clip=1e9, optimizer=optimizer, fp16=fp16)
    exact, halved = (torch.cat([(v - before[n]).flatten() for n, v in weights(each).items()]) for each in found)
    assert torch.cosine_similarity(exact, halved, 0) > 0.99
    assert halved.norm().item() == pytest.approx(exact.norm().item(), rel=0.05)
    assert not torch.equal(exact, halved)


def test_in_float16_a_training_ends_at_the_lowest_scale(models, tmp_path: Path) -> None:
    infinite = {"mlm": replace(MLM, loss=lambda z, labels: losses.mlm(z, labels) * float("inf"))}
    with pytest.raises(UserError, match="15 steps in a row, until step 15; must be finite"):
        run(models(infinite), tmp_path, steps=30, fp16=True)


def test_a_step_whose_gradients_are_not_finite_is_skipped_and_counted(models, tmp_path: Path) -> None:
    """The others go on as if it had not been: with learning rates and random numbers of their own number."""
    weights: list[dict[str, torch.Tensor]] = []
    student = models({"mlm": MLM})

    def broken(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        batch = collate(rows, epoch)
        broken.calls += 1
        return batch | ({"labels": batch["labels"] * 0 - 7} if broken.calls in (3, 4) else {})

    broken.calls = 0
    poisoned = replace(MLM, loss=lambda z, labels: losses.mlm(z, labels.clamp(min=0)) / (labels.min() >= 0))
    student.terms["mlm"] = poisoned
    keep = torch.optim.AdamW.step

    def step(self: Any, closure: Any = None) -> Any:
        weights.append({})
        return keep(self, closure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        done = run(student, tmp_path, collate=broken)
    assert len(weights) == 8 - 2
    assert done.steps == 8
    assert sum(row.skipped for row in done.log) == 2
    assert all(np.isfinite(row.loss) for row in done.log)
    assert all(parameter.isfinite().all() for parameter in student.parameters())


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_state_that_is_not_finite_is_never_written(interrupted: bool, models, tmp_path: Path) -> None:
    """A row of the log, which waits for the device, is due only every few seconds: a state must not wait for it."""

    class Exploding(torch.optim.SGD):
        taken = 0

        def step(self, closure: Any = None) -> Any:
            self.taken += 1
            if self.taken == 3:
                self.param_groups[0]["lr"] = float("inf") if interrupted else 1e30
                if interrupted:
                    os.kill(os.getpid(), signal.SIGINT)
            return super().step(closure)

    seconds = 1e9 if interrupted else 1e-9
    with pytest.raises(
        UserError, match=r"got (a number that is|numbers that are) not finite .*; must be finite; lower"
    ) as error:
        run(
            models({"mlm": MLM}), tmp_path, optimizer=partial(Exploding, lr=1e-3), clip=1e30, checkpoint_seconds=seconds
        )
    assert not isinstance(error.value, Stopped)
    for file in (tmp_path / "state").rglob("weights.safetensors"):
        assert all(value.isfinite().all() for value in load_file(file).values())
    assert (tmp_path / "state").exists() != interrupted


def test_weights_that_are_not_finite_at_the_end_are_refused(models, tmp_path: Path) -> None:
    """The loss of the last step is from before its update."""
    exploding = partial(torch.optim.SGD, lr=float("inf"))
    with pytest.raises(UserError, match="weights: got a number that is not finite at step 1; must be finite; lower "):
        run(models({"mlm": MLM}), tmp_path, steps=1, optimizer=exploding)


def test_processes_agree_on_weights_that_are_not_finite(models) -> None:
    objective = models({"mlm": MLM})
    others: list[tuple[float, Any]] = [
        (1.0, contextlib.nullcontext()),
        (0.0, pytest.raises(UserError, match="weights")),
    ]
    for finite, expected in others:
        accelerator: Any = SimpleNamespace(num_processes=2, reduce=lambda own, _, other=finite: own + other)
        with expected:
            check_weights(objective, accelerator, 1)


def test_gates_are_clipped_apart_from_the_student(tiny_model) -> None:
    student = tiny_model("bert", "SequenceClassification")
    terms = {"supervised": Term(1.0, "logits", "labels", "masked", losses.supervised)}
    whole = shape_of(student.config)
    objective = Objective(student, terms, gates=L0(student, Goal([Shape(whole.layers, whole.hidden, 8)])))
    for parameter in objective.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)
    for parameter in objective.gates.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    clip(objective, 1.0)
    assert all((parameter.grad == 1e-6).all() for parameter in student.parameters())
    norm = torch.cat([parameter.grad.flatten() for parameter in objective.gates.parameters()]).norm()
    assert norm.item() == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("fp16", [False, True])
def test_an_interrupted_run_resumes_exactly(fp16: bool, models, tmp_path: Path, monkeypatch) -> None:
    """With dropout, in parts, over epochs, from a state some steps before the end of the run that died. In float16 its
    first steps are skipped, until the losses are scaled less."""
    monkeypatch.setattr(nonfinite, "HALVINGS", 18)
    settings: dict[str, Any] = {"steps": 12, "batch": Batch(tokens=48, device_tokens=24), "checkpoint_seconds": 1e-9}
    settings |= {"fp16": fp16}
    whole, broken, other = (models(dropout=0.2) for _ in range(3))
    done = run(whole, tmp_path / "whole", **settings)
    calls = 0

    def failing(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        nonlocal calls
        calls += 1
        if calls > 15:
            raise RuntimeError("power cut")
        return collate(rows, epoch)

    with pytest.raises(RuntimeError, match="power cut"):
        run(broken, tmp_path / "broken", collate=failing, **settings)
    at = state.load(tmp_path / "broken" / "state", models(), torch.optim.AdamW(models().parameters(), fused=True))
    assert at is not None
    assert 0 < at["step"] < 12
    assert at["scaler"].get("scale", 0) < 2**18
    assert bool(at["scaler"]) == fp16
    again = run(other, tmp_path / "broken", **settings)
    assert (again.steps, again.tokens) == (done.steps, done.tokens)
    for name, value in weights(whole).items():
        assert torch.equal(weights(other)[name], value), name


def interrupting(*signals: int) -> Any:
    """The collate function, which sends signals to this process with its third batch."""
    calls = 0

    def collated(rows: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        nonlocal calls
        calls += 1
        for number in signals if calls == 3 else ():
            os.kill(os.getpid(), number)
        return collate(rows, epoch)

    return collated


def test_a_second_signal_interrupts_at_once(models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "DEBOUNCE", -1.0)
    with pytest.raises(Interrupted) as error:
        run(models(), tmp_path, steps=12, collate=interrupting(signal.SIGINT, signal.SIGTERM))
    assert error.value.number == signal.SIGTERM


def test_ctrl_c_stops_after_the_step_and_names_how_to_resume(models, tmp_path: Path) -> None:
    """Also if another signal comes with it, as from a scheduler and from a sweep."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=r"pretrain: stopped at step \d of 12; run the same command to resume"):
        run(models(), tmp_path, steps=12, collate=interrupting(signal.SIGINT, signal.SIGTERM))
    assert signal.getsignal(signal.SIGINT) is before
    whole, other = models(), models()
    run(whole, tmp_path / "whole", steps=12)
    run(other, tmp_path, steps=12)
    assert all(torch.equal(weights(other)[name], value) for name, value in weights(whole).items())
