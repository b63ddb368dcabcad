"""The one training loop: every stage that trains anything runs through `train`.

Plain PyTorch on accelerate (devices, processes, precision). The loop synchronizes with the device only to log and to
write checkpoints. Random numbers depend only on seed, step and rank, so that an interrupted run resumes exactly.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from rich.console import Console

from distill.config import Train
from distill.errors import Stopped, printable_lines
from distill.losses.shared_encoder import Trainable, tokens_in
from distill.runtime.progress import Bar
from distill.runtime.storage.structs import Stored, plain
from distill.runtime.tracker import Tracker
from distill.training import batching, state
from distill.training import nonfinite as guards
from distill.training.arithmetic import in_arithmetic
from distill.training.feed import Arrays, Collate, Fed, Feed, out_of_memory
from distill.training.graphs import Graphs, graphs_of, sent
from distill.training.interruption import interruptible

LOG_SECONDS, ROWS = 2.0, 200
"""Seconds between two rows of the log, and number of its rows."""
AGREE_STEPS = 10
"""With several processes: steps between their votes on whether to write a checkpoint or to stop."""


class Row(Stored, frozen=True, kw_only=True):
    """A row of the log of a training: means over the steps since the row before."""

    step: int
    """Number of steps at its end."""
    loss: float
    """Weighted sum of the terms."""
    terms: dict[str, float]
    """Each term without its weight."""
    skipped: int = 0
    """Number of steps that were skipped because their gradients are not finite."""
    tokens_per_second: float


@dataclass
class Trained:
    """Result of a training, over all runs that it took."""

    steps: int
    """Optimizer steps."""
    tokens: int
    """Tokens without padding, over all processes."""
    seconds: float
    """Seconds in the training loop."""
    log: list[Row] = field(default_factory=list)


def train(
    objective: Trainable,
    lengths: np.ndarray,
    collate: Collate,
    *,
    name: str,
    settings: Train,
    seed: int,
    total: int,
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int, int], float],
    accelerator: Accelerator,
    state_folder: Path,
    console: Console | None,
    groups: np.ndarray | None = None,
    global_batch: bool = False,
    tracker: Tracker | None = None,
    after_step: Callable[[int], None] = lambda step: None,
    fp16: bool = False,
) -> Trained:
    """Train `objective.student` in place.

    Args:
        objective: student and terms; its gates and projections are trained along with the student.
        lengths: `[rows]` number of tokens of each row.
        collate: collates row numbers into the arrays of a batch; must be thread-safe.
        name: the stage, in messages.
        total: number of optimizer steps.
        optimizer: over the parameters of `objective`; its learning rates are multiplied by `schedule(step, total)`.
        state_folder: where checkpoints are written; training resumes from the one in it.
        console: for progress; None for no progress.
        groups: `[rows]` number of the group of each row, whose rows are batched together; None without groups.
        tracker: of the run; gets every row of the log, with the learning rate.
        global_batch: whether `collate` gets the rows of all processes, and encodes the rows of its own process.
        after_step: called in each process with the number of steps done; it must leave the student as it finds it.
        fp16: whether to train in float16 with scaled losses; else in the precision of `accelerator`.

    Raises:
        Stopped: on Ctrl-C, SIGTERM, SIGHUP or SIGUSR1, after a checkpoint was written.
        NotFinite: the loss or a weight is not finite, or gradients in several steps in a row. Checkpoints in
            `state_folder` have finite weights.
    """
    rank = accelerator.process_index
    rates = [group["lr"] for group in optimizer.param_groups]
    done = Trained(0, 0, 0.0)
    main = console if accelerator.is_main_process else None
    log = partial(_print, main, name)
    scaler = guards.scaler_of(accelerator.device, fp16=fp16)
    if (saved := state.load(state_folder, objective, optimizer)) is not None:
        guards.restore(scaler, saved.get("scaler", {}))
        done = Trained(saved["step"], saved["tokens"], saved["seconds"], msgspec.convert(saved["log"], list[Row]))
    before = done.seconds
    meter, tracked = _Meter(objective, accelerator), tracker or Tracker(accelerator)
    # Without a term on logits, parameters above the hidden states have no gradient; data parallelism must not wait.
    unused = not any(term.kind.head for term in objective.terms.values())
    # Buffers are constants of the models, such as position numbers. Gradients are views, which saves a copy of each.
    accelerator.ddp_handler = DistributedDataParallelKwargs(
        find_unused_parameters=unused, broadcast_buffers=False, gradient_as_bucket_view=True
    )
    module = accelerator.prepare_model(in_arithmetic(objective, settings, accelerator, scaler))
    module.train()
    graphs = graphs_of(partial(backward, module, meter.weights, accelerator), objective, accelerator, log)
    guard, began = guards.Guard(optimizer, accelerator.device, scaler), time.monotonic()
    written = began

    at_once, whole = (saved or {}).get("device_tokens"), any(term.of_batch for term in objective.terms.values())
    feed = Feed(collate, lengths, settings.batch, groups, accelerator, global_batch, at_once, whole)

    def write_checkpoint() -> None:
        if accelerator.is_main_process:
            extra = {"tokens": done.tokens, "seconds": done.seconds, "log": [plain(row) for row in done.log]}
            extra |= {} if feed.device_tokens is None else {"device_tokens": feed.device_tokens}
            extra |= {"scaler": scaler.state_dict()}
            state.save(state_folder, done.steps, objective, optimizer, extra)
        accelerator.wait_for_everyone()

    plan = batching.steps(lengths, settings.batch, seed=seed, total=total, start=done.steps, groups=groups)
    compute = partial(gradients, module, objective, weights=meter.weights, accelerator=accelerator, graphs=graphs)
    with Bar(main, name, total, done.steps, training=True) as bar, interruptible() as stop:
        for planned in feed.ahead(plan):
            step, objective.progress = planned.step, planned.step / total
            fed, values = _in_memory(feed, planned, compute, _step_seed(seed, step, rank), optimizer, graphs, log)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step, total)
            guard.unscale()
            meter.add(*values, guard.step(clip(objective, settings.clip)))
            optimizer.zero_grad(set_to_none=True)
            after_step(step + 1)
            done.steps, done.seconds = step + 1, before + time.monotonic() - began
            due, stopping = _agree(
                accelerator, [time.monotonic() - written >= settings.checkpoint_seconds, stop.asked], step
            )
            last, checked = done.steps == total, due or stopping
            wait = last or checked or meter.due(step)
            guard.check(total, done.steps, fed.parts, state_folder / f"not_finite.{rank}.npz", wait=wait)
            if wait:
                _log(done, meter, bar, partial(tracked.log, name), optimizer)
            if last or checked:
                check_weights(objective, accelerator, done.steps)
            if (due and not last) or stopping:
                write_checkpoint()
                written = time.monotonic()
            if stopping:
                text = f"{name}: stopped at step {done.steps} of {total}; run the same command to resume"
                raise Stopped(text, stop.number)
    # accelerate keeps a reference to every model it has prepared, and a run trains dozens.
    accelerator.free_memory()
    tracked.finished(done.steps)
    return done


def _print(console: Console | None, name: str, text: str) -> None:
    if console is not None:
        console.print(printable_lines(f"{name}: {text}"), highlight=False, markup=False, soft_wrap=True)


def clip(objective: Trainable, max_norm: float) -> list[torch.Tensor]:
    """Clip the gradient norm of the student with its projections to `max_norm`, and separately the norm of the gates.
    Returns the norms before, one or two scalars [].

    The two are separate because large gradients of the gates must not shrink the student's update.
    """
    gates = [] if objective.gates is None else list(objective.gates.parameters())
    gate_ids = {id(parameter) for parameter in gates}
    student = [parameter for parameter in objective.parameters() if id(parameter) not in gate_ids]
    return [torch.nn.utils.clip_grad_norm_(parameters, max_norm) for parameters in filter(None, (student, gates))]


def check_weights(objective: Trainable, accelerator: Accelerator, step: int) -> None:
    """Raise UserError, in every process, if a weight is not finite in any process."""
    finite = torch.stack([parameter.detach().isfinite().all() for parameter in objective.parameters()]).all()
    if accelerator.num_processes > 1:
        finite = accelerator.reduce(finite.float(), "sum") == accelerator.num_processes
    if not finite:
        raise _not_finite("weights: got a number that is not finite", step)


def _not_finite(got: str, step: int) -> guards.NotFinite:
    return guards.NotFinite(f"{got} at step {step}; {guards.ADVICE}")


def _in_memory(
    feed: Feed,
    fed: Fed,
    compute: Callable[[list[Arrays], float], tuple[torch.Tensor, int]],
    seed: int,
    optimizer: torch.optim.Optimizer,
    graphs: Graphs | None,
    log: Callable[[str], None],
) -> tuple[Fed, tuple[torch.Tensor, int]]:
    """Accumulate the gradients of a step, in smaller parts if the memory of the device is not enough, once that of the
    `graphs` is freed. Returns what was computed, and the result of `compute`."""
    while True:
        torch.manual_seed(seed)
        try:
            return fed, compute(fed.parts, fed.scale)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # This comes after the block, because the error keeps what the step had computed.
        optimizer.zero_grad(set_to_none=True)
        had = graphs is not None and graphs.freed()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if had:
            log(f"too little memory at step {fed.step + 1}: goes on without CUDA graphs")
            continue
        fed = feed.smaller(fed)
        log(f"too little memory at step {fed.step + 1}: goes on with batch.device_tokens={feed.device_tokens}")


def gradients(
    module: torch.nn.Module,
    objective: Trainable,
    parts: list[Arrays],
    scale: float,
    weights: torch.Tensor,
    accelerator: Accelerator,
    graphs: Graphs | None = None,
) -> tuple[torch.Tensor, int]:
    """Accumulate the gradients of one optimizer step over the batches `parts`.

    `weights` [terms] are the weights of the terms; `scale` is 0 for a process without rows of its own, else 1. Returns
    this process's share [terms] of each term's mean over all rows of the step, and its number of tokens. `graphs`: of
    `backward` with this module, which is then used for steps of one part.
    """
    world = accelerator.num_processes
    size = sent(torch.stack([objective.counts(part) for part in parts]).sum(0).mul_(scale), accelerator.device)
    if world > 1:
        size = accelerator.reduce(size, "sum")
    factors, total = scale / size.clamp_(min=1), torch.zeros_like(weights)
    run = partial(backward, module, weights, accelerator) if graphs is None or len(parts) > 1 else graphs
    for index, part in enumerate(parts):
        unsynchronized = world > 1 and index < len(parts) - 1
        with accelerator.no_sync(module) if unsynchronized else contextlib.nullcontext():
            total += run({key: torch.from_numpy(array) for key, array in part.items()}, factors)
    return total, int(scale) * sum(map(tokens_in, parts))


def backward(
    module: torch.nn.Module,
    weights: torch.Tensor,
    accelerator: Accelerator,
    batch: dict[str, torch.Tensor],
    factors: torch.Tensor,
) -> torch.Tensor:
    """Sum of each term over a batch x `factors`, [terms]. Adds the gradients of their sum, weighted by `weights`."""
    on_device = {key: sent(values, accelerator.device) for key, values in batch.items()}
    values: torch.Tensor = module(on_device) * factors
    # x the number of processes: data parallelism averages their gradients, and `factors` are for the rows of all.
    accelerator.backward((weights * values).sum() * accelerator.num_processes)
    return values.detach()


class _Meter:
    """Mean of each term and tokens/s since the last row of the log. Computing a row synchronizes with the device."""

    def __init__(self, objective: Trainable, accelerator: Accelerator) -> None:
        self.names, self.accelerator = list(objective.terms), accelerator
        self.weights = torch.tensor([t.weight for t in objective.terms.values()], device=accelerator.device)
        self._clear()

    def _clear(self) -> None:
        self.sums, self.tokens, self.steps = torch.zeros_like(self.weights), 0, 0
        self.skipped = self.sums.new_zeros(())
        self.since = time.monotonic()

    def add(self, values: torch.Tensor, tokens: int, skipped: torch.Tensor) -> None:
        """Add the values [terms] and tokens of a step; a skipped step, a flag [], counts with its tokens alone."""
        self.sums += values.where(~skipped, 0)
        self.skipped += skipped
        self.steps += 1
        self.tokens += tokens

    def due(self, step: int) -> bool:
        if self.accelerator.num_processes > 1:
            return step % AGREE_STEPS == 0
        return time.monotonic() - self.since >= LOG_SECONDS

    def row(self, step: int) -> tuple[Row | None, int]:
        """The next row of the log, or None if all its steps were skipped, and the number of tokens since the last row.
        Both are over all processes."""
        skipped = int(self.skipped)
        counted = self.steps - skipped
        means = torch.cat([self.sums / max(1, counted), self.sums.new_tensor([self.tokens])])
        if self.accelerator.num_processes > 1:
            means = self.accelerator.reduce(means, "sum")
        *values, tokens = means.tolist()
        total = sum(w * v for w, v in zip(self.weights.tolist(), values, strict=True))
        if not math.isfinite(total):
            raise _not_finite(f"loss: got {total}", step)
        terms = dict(zip(self.names, values, strict=True))
        rate = round(tokens / max(1e-9, time.monotonic() - self.since), 1)
        row = Row(step=step, loss=total, terms=terms, skipped=skipped, tokens_per_second=rate)
        self._clear()
        return row if counted else None, int(tokens)


def _step_seed(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _text(row: Row) -> str:
    terms = " ".join(f"{name} {value:.3f}" for name, value in row.terms.items())
    skipped = f", {row.skipped} steps skipped, whose gradients are not finite" if row.skipped else ""
    return f"{row.tokens_per_second:.0f} tokens/s, loss {row.loss:.3f} ({terms}){skipped}"


def _log(
    done: Trained, meter: _Meter, bar: Bar, track: Callable[[int, dict[str, float]], None], optimizer: Any
) -> None:
    """Add the next row of the log to `done`, and show it. Of more than `ROWS`, only every second and the last stay."""
    row, tokens = meter.row(done.steps)
    done.tokens += tokens
    if row is not None:
        rows = [*done.log, row]
        done.log = rows if len(rows) <= ROWS else [*rows[:-1:2], row]
        bar.update(done.steps, _text(row))
        rates = {"lr": optimizer.param_groups[0]["lr"], "tokens_per_second": row.tokens_per_second}
        track(done.steps, {"loss": row.loss, **row.terms, **rates})


def _agree(accelerator: Accelerator, votes: list[bool], step: int) -> tuple[bool, bool]:
    """Whether any process votes for (a checkpoint, stopping): their clocks differ, and all must do the same."""
    if accelerator.num_processes > 1:
        if step % AGREE_STEPS:
            return False, False
        sums = accelerator.reduce(torch.tensor(votes, dtype=torch.float32, device=accelerator.device), "sum")
        votes = [total > 0 for total in sums.tolist()]
    return votes[0], votes[1]
