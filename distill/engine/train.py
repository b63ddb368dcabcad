"""The one training loop: every stage that trains anything runs through `train`.

Plain PyTorch on accelerate (devices, processes, precision). The loop waits for the device only to log and to keep its
state, and nothing random depends on what came before it, so that a run which was killed resumes exactly: see `state`.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from rich.console import Console

from distill.config import Train
from distill.engine import batching, state
from distill.engine.progress import Bar
from distill.errors import Stopped, UserError
from distill.objective import Objective, counts

LOG_SECONDS = 2.0
AGREE_STEPS = 10
"""With several processes: every AGREE_STEPS steps they agree on whether to write a checkpoint or to stop."""

Arrays = dict[str, np.ndarray]
Collate = Callable[[np.ndarray, int], Arrays]
"""(rows, epoch) -> arrays of a batch; `attention_mask` among them."""


@dataclass
class Trained:
    """Of a training: optimizer steps, tokens without padding, seconds in the loop, loss by term."""

    steps: int
    tokens: int
    seconds: float
    log: list[dict[str, Any]] = field(default_factory=list)


def train(
    objective: Objective,
    lengths: np.ndarray,
    collate: Collate,
    *,
    name: str,
    settings: Train,
    seed: int,
    most_steps: int | None,
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int, int], float],
    accelerator: Accelerator,
    state_folder: Path,
    console: Console | None,
) -> Trained:
    """Train `objective.student` in place.

    Args:
        lengths: tokens of each row `[rows]`.
        collate: collates rows into a batch of an epoch.
        optimizer: over the parameters of `objective`; its learning rate is multiplied by `schedule(step, total)`.
        state_folder: of resumable state; training resumes from what is in it.

    Raises:
        Stopped: on Ctrl-C, after the state was written.
        UserError: the loss or a weight is not finite. The state in `state_folder` is from before that.
    """
    rank, world = accelerator.process_index, accelerator.num_processes
    most = min((s for s in (settings.steps, most_steps) if s is not None), default=None)
    total = batching.total_steps(
        lengths, settings.batch, seed=seed, epochs=settings.epochs, most=most, least=settings.min_steps
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    done = Trained(0, 0, 0.0)
    if (saved := state.load(state_folder, objective, optimizer)) is not None:
        done = Trained(saved["step"], saved["tokens"], saved["seconds"], saved["log"])
    before = done.seconds
    meter = _Meter(objective, accelerator)
    # Without a term on logits nothing above the hidden states has a gradient; data parallelism would wait for it.
    partial = not any(term.kind.head for term in objective.terms.values())
    accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=partial)
    module = accelerator.prepare_model(objective)
    module.train()
    began = written = time.monotonic()

    def keep() -> None:
        if accelerator.is_main_process:
            extra = {"tokens": done.tokens, "seconds": done.seconds, "log": done.log}
            state.save(state_folder, done.steps, objective, optimizer, extra)
        accelerator.wait_for_everyone()

    plan = batching.steps(lengths, settings.batch, seed=seed, total=total, start=done.steps)
    main = console if accelerator.is_main_process else None
    with Bar(main, name, total, done.steps) as bar, _interruptible() as stop:
        for step, parts, scale in _ahead(plan, collate, rank=rank, world=world, parts=settings.batch.accumulate):
            torch.manual_seed(_step_seed(seed, step, rank))
            objective.progress = step / total
            meter.add(*gradients(module, objective, parts, scale, meter.weights, accelerator))
            clip(objective, settings.clip)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step, total)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done.steps, done.seconds = step + 1, before + time.monotonic() - began
            due, stopping = _agree(
                accelerator, [time.monotonic() - written >= settings.checkpoint_seconds, stop.is_set()], step
            )
            last, keeping = done.steps == total, due or stopping
            if last or keeping or meter.due(step):
                row, tokens = meter.row(done.steps)
                done.tokens, done.log = done.tokens + tokens, _thin([*done.log, row])
                bar.update(done.steps, _text(row))
            if last or keeping:
                check_weights(objective, accelerator, done.steps)
            if (due and not last) or stopping:
                keep()
                written = time.monotonic()
            if stopping:
                raise Stopped(f"{name}: stopped at step {done.steps} of {total}; run the same command to resume")
    # accelerate keeps every model it has prepared; a run trains dozens.
    accelerator.free_memory()
    return done


def clip(objective: Objective, most: float) -> None:
    """Scale the gradients of the student and its projections to a norm of at most `most`, and those of the gates.

    Each apart: large gradients of the gates must not shrink the step of the student.
    """
    gates = [] if objective.gates is None else list(objective.gates.parameters())
    of_gates = {id(parameter) for parameter in gates}
    rest = [parameter for parameter in objective.parameters() if id(parameter) not in of_gates]
    for parameters in filter(None, (rest, gates)):
        torch.nn.utils.clip_grad_norm_(parameters, most)


def check_weights(objective: Objective, accelerator: Accelerator, step: int) -> None:
    """UserError in every process where a weight is not finite in one of them."""
    finite = torch.stack([parameter.detach().isfinite().all() for parameter in objective.parameters()]).all()
    if accelerator.num_processes > 1:
        finite = accelerator.reduce(finite.float(), "sum") == accelerator.num_processes
    if not finite:
        raise _not_finite("weights: got a number that is not finite", step)


def _not_finite(got: str, step: int) -> UserError:
    return UserError(f"{got} at step {step}; must be finite; lower optimizer.lr or set precision=fp32")


def gradients(
    module: torch.nn.Module,
    objective: Objective,
    parts: list[Arrays],
    scale: float,
    weights: torch.Tensor,
    accelerator: Accelerator,
) -> tuple[torch.Tensor, int]:
    """Accumulate the gradients of one step; returns this process's part of each term's mean, and its tokens."""
    device, world = accelerator.device, accelerator.num_processes
    batches = [{k: torch.from_numpy(v).to(device, non_blocking=True) for k, v in part.items()} for part in parts]
    size = torch.stack([counts(objective.terms, batch) for batch in batches]).sum(0).mul_(scale).to(device)
    if world > 1:
        size = accelerator.reduce(size, "sum")
    size = size.clamp_(min=1)
    total = torch.zeros_like(weights)
    for index, batch in enumerate(batches):
        apart = world > 1 and index < len(batches) - 1
        with accelerator.no_sync(module) if apart else contextlib.nullcontext():
            values = module(batch) * scale / size
            # Data parallelism averages gradients over processes, and `size` counts all of them already.
            accelerator.backward((weights * values).sum() * world)
        total += values.detach()
    return total, int(scale) * sum(int(part["attention_mask"].sum()) for part in parts)


class _Meter:
    """Mean loss by term and tokens/s since the last row; a row waits for the device."""

    def __init__(self, objective: Objective, accelerator: Accelerator) -> None:
        self.names, self.accelerator = list(objective.terms), accelerator
        self.weights = torch.tensor([t.weight for t in objective.terms.values()], device=accelerator.device)
        self._clear()

    def _clear(self) -> None:
        self.sums, self.steps, self.tokens = torch.zeros_like(self.weights), 0, 0
        self.since = time.monotonic()

    def add(self, values: torch.Tensor, tokens: int) -> None:
        self.sums += values
        self.steps += 1
        self.tokens += tokens

    def due(self, step: int) -> bool:
        if self.accelerator.num_processes > 1:
            return step % AGREE_STEPS == 0
        return time.monotonic() - self.since >= LOG_SECONDS

    def row(self, step: int) -> tuple[dict[str, Any], int]:
        """A row of the log and the tokens in it, both over all processes."""
        means = torch.cat([self.sums / self.steps, self.sums.new_tensor([self.tokens])])
        if self.accelerator.num_processes > 1:
            means = self.accelerator.reduce(means, "sum")
        *values, tokens = means.tolist()
        total = sum(w * v for w, v in zip(self.weights.tolist(), values, strict=True))
        if not math.isfinite(total):
            raise _not_finite(f"loss: got {total}", step)
        row = {"step": step, "loss": total, "terms": dict(zip(self.names, values, strict=True))}
        row["tokens_per_second"] = round(tokens / max(1e-9, time.monotonic() - self.since), 1)
        self._clear()
        return row, int(tokens)


def _step_seed(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _ahead(
    plan: Iterator[tuple[int, int, np.ndarray]], collate: Collate, *, rank: int, world: int, parts: int
) -> Iterator[tuple[int, list[Arrays], float]]:
    """(step, this process's parts, scale), collated one step ahead in a thread: a GPU must not wait for numpy.

    In a step with fewer rows than processes, a process without a row computes one with scale 0, as each must take part.
    """

    def job(rows: np.ndarray, epoch: int) -> tuple[list[Arrays], float]:
        mine = batching.share(rows, rank=rank, world=world, parts=parts)
        return [collate(part, epoch) for part in mine or [rows[:1]]], float(bool(mine))

    pending: tuple[int, Future[tuple[list[Arrays], float]]] | None = None
    with ThreadPoolExecutor(1) as pool:
        for step, epoch, rows in plan:
            following = (step, pool.submit(job, rows, epoch))
            if pending:
                yield pending[0], *pending[1].result()
            pending = following
        if pending:
            yield pending[0], *pending[1].result()


def _text(row: dict[str, Any]) -> str:
    terms = " ".join(f"{name} {value:.3f}" for name, value in row["terms"].items())
    return f"{row['tokens_per_second']:.0f} tokens/s, loss {row['loss']:.3f} ({terms})"


def _thin(log: list[dict[str, Any]], most: int = 200) -> list[dict[str, Any]]:
    """At most `most` rows: of a longer log every second row is dropped."""
    return log if len(log) <= most else [*log[:-1:2], log[-1]]


def _agree(accelerator: Accelerator, ask: list[bool], step: int) -> tuple[bool, bool]:
    """Whether any process asks for a checkpoint, or to stop. Clocks of processes differ, so that all must agree."""
    if accelerator.num_processes > 1:
        if step % AGREE_STEPS:
            return False, False
        votes = accelerator.reduce(torch.tensor(ask, dtype=torch.float32, device=accelerator.device), "sum")
        ask = [vote > 0 for vote in votes.tolist()]
    return ask[0], ask[1]


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) lets the step finish; a second one ends at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handler(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    for number in before:
        signal.signal(number, handler)
    try:
        yield event
    finally:
        for number, old in before.items():
            signal.signal(number, old)
