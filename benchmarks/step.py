"""One distillation step from BERT-base to half its layers: in the engine's way, and in the usual way.

    python benchmarks/step.py --output benchmarks/results/step.json

Weights and tokens are random: only speed and memory have a meaning. Every round times each kind of step once, in one
process, on the same batch, with the terms, temperature, dropout and clipping of recipe=distilbert.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from hydra.utils import instantiate
from rich.console import Console
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from benchmarks.tables.speed import step_table
from distill.config import Train, load_config
from distill.data.collate import mask_tokens
from distill.inference import latency
from distill.inference.runners import Batch, Run, Runner
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import student
from distill.report import terminal
from distill.runtime.machine import Machine, cores, detect_precision, fast_path_is_float32
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import environment
from distill.training.train import gradients

SHAPE = (8, 128)
MASK_ID = 103


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(0)
    threads = arguments.threads or cores()
    torch.set_num_threads(threads)
    measured = benchmark(BertConfig(), SHAPE, _machine(arguments.device, threads), arguments.repeats)
    shown = step_table(measured)
    console = Console()
    console.print(terminal.table(shown, width=console.width))
    for line in shown.notes:
        console.print(line, style="dim", markup=False, highlight=False)
    if arguments.output is not None:
        write_json(arguments.output, measured)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed and memory of one distillation step, against the naive one.")
    parser.add_argument("--repeats", type=int, default=7, help="number of rounds; each times every kind of step once")
    parser.add_argument("--threads", type=int, help="number of CPU threads; default: all cores")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    return parser.parse_args()


def _machine(device: str, threads: int) -> Machine:
    cuda = device != "cpu" and torch.cuda.is_available()
    if device == "cuda" and not cuda:
        raise SystemExit("--device: got cuda; must be a device that this machine has; give --device cpu")
    precision = detect_precision("auto", torch.device("cuda" if cuda else "cpu"))
    accelerator = Accelerator(cpu=not cuda, mixed_precision="bf16" if precision == "bf16" else "no")
    return Machine(accelerator, Console(), precision, threads, threads, fast_path_is_float32(accelerator.device.type))


def benchmark(model: BertConfig, shape: tuple[int, int], machine: Machine, repeats: int) -> dict[str, Any]:
    """Time every kind of step, then measure its peak memory separately, so that neither disturbs the other."""
    teacher = BertForMaskedLM(model).eval().requires_grad_(False).to(machine.device)
    batch = random_batch(shape, model.vocab_size)
    kinds = steps(teacher, machine)
    times = latency.measure(kinds, {"step": {kind.name: [batch] for kind in kinds}}, repeats=repeats)
    naive = times[kinds[0].name, "step"]
    rows = []
    for kind in kinds:
        own = times[kind.name, "step"]
        timed = latency.summary(own)
        rows.append(
            {
                "name": kind.name,
                "arithmetic": kind.scheme,
                "median_ms": timed["median"],
                "p90_ms": timed["p90"],
                "tokens_per_second": 1000 * shape[0] * shape[1] / timed["median"],
                "peak_mib": peak_mib(partial(kind.run, batch), machine.device),
                "speedup": latency.speedup(naive, own),
            }
        )
    return {
        "environment": environment(machine),
        "teacher_layers": model.num_hidden_layers,
        "student_layers": len(student.half_depth(model.num_hidden_layers)),
        "hidden": model.hidden_size,
        "vocabulary": model.vocab_size,
        "batch": shape[0],
        "length": shape[1],
        "masked": len(batch["masked"]),
        "dropout": settings().dropout,
        "repeats": repeats,
        "rows": rows,
    }


def settings() -> Train:
    """The stage whose step is measured."""
    stage = load_config(["recipe=distilbert"]).stages["pretrain"]
    assert isinstance(stage, Train)
    return stage


def steps(teacher: BertForMaskedLM, machine: Machine) -> list[Runner]:
    """The naive step, then the engine's; each with its own student. A step returns the mean of each term, float32."""
    stage, accelerator = settings(), machine.accelerator
    fast = "medium" if accelerator.device.type == "cpu" else "high"  # as distill.runtime.machine sets it
    kinds = [
        Runner("all positions, float32 (naive)", "torch", "fp32", naive_step(teacher, _student(teacher, stage), stage)),
        Runner(
            "masked positions, fast float32",
            "torch",
            "fp32_medium",
            engine_step(objective(teacher, _student(teacher, stage), stage), stage, accelerator, fast, prepared=False),
        ),
    ]
    if machine.precision == "bf16":
        halved = copy.deepcopy(teacher).to(torch.bfloat16)
        ours = objective(halved, _student(teacher, stage), stage)
        run = engine_step(ours, stage, accelerator, fast, prepared=True)
        kinds.append(Runner("masked positions, bf16", "torch", "bf16", run))
    return kinds


def naive_step(teacher: nn.Module, model: nn.Module, stage: Train) -> Run:
    """Vocabulary logits and hidden states of every position, torch's default float32, a default optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=stage.optimizer["lr"])
    temperature, device = stage.temperature, next(model.parameters()).device
    model.train()

    def run(batch: Batch) -> np.ndarray:
        with _matmul("highest"):
            whole = {key: torch.from_numpy(value).to(device) for key, value in batch.items()}
            inputs = {key: whole[key] for key in ("input_ids", "attention_mask", "token_type_ids")}
            labels = torch.full_like(whole["input_ids"], -100)
            labels.view(-1)[whole["masked"]] = whole["labels"]
            with torch.no_grad():
                guide = teacher(**inputs, output_hidden_states=True)
            outputs = model(**inputs, labels=labels, output_hidden_states=True)
            real = whole["attention_mask"].bool()
            ours, theirs = outputs.hidden_states[-1][real], guide.hidden_states[-1][real]
            terms = {
                "soft_targets": temperature**2
                * F.kl_div(
                    F.log_softmax(outputs.logits[real] / temperature, dim=-1),
                    F.softmax(guide.logits[real] / temperature, dim=-1),
                    reduction="batchmean",
                ),
                "mlm": outputs.loss,
                "cosine": F.cosine_embedding_loss(ours, theirs, torch.ones(len(ours), device=device)),
            }
            torch.stack([term.weight * terms[name] for name, term in stage.terms.items()]).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), stage.clip)
            optimizer.step()
            optimizer.zero_grad()
            return _fetched(torch.stack([terms[name] for name in stage.terms]))

    return run


def engine_step(objective: Objective, stage: Train, accelerator: Accelerator, matmul: str, *, prepared: bool) -> Run:
    """A step of the engine's training loop; if `prepared`, in the precision of the accelerator."""
    optimizer = instantiate(stage.optimizer)(objective.parameters())
    module = accelerator.prepare_model(objective) if prepared else objective
    weights = torch.tensor([term.weight for term in objective.terms.values()], device=accelerator.device)
    module.train()

    def run(batch: Batch) -> np.ndarray:
        with _matmul(matmul):
            values, _ = gradients(module, objective, [batch], 1.0, weights, accelerator)
            nn.utils.clip_grad_norm_(objective.parameters(), stage.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return _fetched(values)

    return run


def objective(teacher: nn.Module, model: nn.Module, stage: Train) -> Objective:
    terms = {
        name: Term(t.weight, t.features, t.compare_with, t.positions, instantiate(t.loss))
        for name, t in stage.terms.items()
    }
    return Objective(model, terms, [teacher])


def _student(teacher: BertForMaskedLM, stage: Train) -> nn.Module:
    layers = student.half_depth(teacher.config.num_hidden_layers)
    return student.from_teacher(teacher, layers, init="teacher_layers", seed=0, dropout=stage.dropout)


def random_batch(shape: tuple[int, int], vocab_size: int) -> Batch:
    """A batch as the engine's collator makes it: `shape` random tokens without padding, 15% of them masked."""
    batch = latency.synthetic(shape, vocab_size)
    ids, mask_id = batch["input_ids"], min(MASK_ID, vocab_size - 1)
    everything = np.ones(shape, dtype=np.bool_)
    masked, chosen = mask_tokens(
        ids,
        everything,
        np.arange(shape[0]),
        seed=0,
        epoch=0,
        probability=0.15,
        mask_id=mask_id,
        random_ids=np.arange(vocab_size),
        weights=None,
    )
    places = {"masked": np.flatnonzero(chosen), "real": np.flatnonzero(everything)}
    return {**batch, "input_ids": masked, **places, "labels": ids[chosen]}


def peak_mib(action: Callable[[], object], device: torch.device) -> float | None:
    """Peak memory during `action` beyond the memory in use before it; None if the system does not measure it."""
    if device.type == "cuda":
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        action()
        return float(torch.cuda.max_memory_allocated() - held) / 2**20
    # Memory that an earlier action freed and the allocator kept would hide the memory that this one needs.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before, _, after = _high_water(), action(), _high_water()
    return None if before is None or after is None else (after - before) / 1024


def _high_water() -> float | None:
    """Largest resident size of this process since it was last reset, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def _fetched(values: torch.Tensor) -> np.ndarray:
    if values.is_cuda:
        torch.cuda.synchronize()  # the backward pass and the optimizer too
    fetched: np.ndarray = values.detach().float().cpu().numpy()
    return fetched


@contextmanager
def _matmul(precision: str) -> Iterator[None]:
    """Set the precision of torch's float32 matrix products inside the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    main()
