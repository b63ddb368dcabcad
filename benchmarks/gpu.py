"""A training step on a GPU: the usual way, and with what the engine does, one thing after the other.

    python -m benchmarks.gpu --output benchmarks/results/gpu.json

Weights and tokens are random: only speed and memory have a meaning. The ways of a step are timed in turn, in one
process. A step's arithmetic is what torch counts for its matrix products and attention; it is compared with what one
large matrix product reaches on the same GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from hydra.utils import instantiate
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from benchmarks import step
from distill import losses
from distill.config import Train
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import families
from distill.models.student.training import aligned_vocabulary
from distill.runtime.storage.atomic import write_json
from distill.training.arithmetic import in_arithmetic
from distill.training.graphs import Graphs
from distill.training.train import backward, clip, gradients

CORPUS, TASK = "general distillation", "task distillation"
SIZES = ((CORPUS, (256, 128)), (CORPUS, (64, 128)), (TASK, (32, 128)), (TASK, (32, 16)))
WARM, STEPS = 5, 10


@dataclass(frozen=True)
class Way:
    name: str
    bf16_weights: bool = False
    aligned: bool = False
    graphs: bool = False
    compiled: bool = False


WAYS = (
    Way("autocast"),
    Way("copies of the weights in bf16", bf16_weights=True),
    Way("and sizes that suit a GPU", bf16_weights=True, aligned=True),
    Way("and CUDA graphs", bf16_weights=True, aligned=True, graphs=True),
    # The engine does not compile layers: steps of general distillation can then not be recorded as graphs.
    Way("and compiled layers", bf16_weights=True, aligned=True, graphs=True, compiled=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="timings of each way")
    parser.add_argument("--output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu: got a machine without a GPU; must have one; run it there")
    torch.manual_seed(0)
    rows, product = [], matrix_product()
    for kind, shape in SIZES:
        rows += measured(kind, shape, arguments.rounds, product)
        for row in rows[-len(WAYS) :]:
            print({key: row[key] for key in ("kind", "way", "ms", "share")}, flush=True)
        if arguments.output is not None:
            facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            write_json(arguments.output, {"environment": facts, "matrix_flops": product, "rows": rows})


def matrix_product(size: int = 8192) -> float:
    """Floating-point operations per second of a large product of random bf16 matrices."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = [timed(lambda: a @ b, 10) for _ in range(5)]
    return float(2 * size**3 / median(seconds))


def timed(run: Callable[[], Any], times: int) -> float:
    """Seconds of one of `times` runs."""
    run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def measured(kind: str, shape: tuple[int, int], rounds: int, product: float) -> list[dict[str, Any]]:
    """A row for each way of a step."""
    with contextlib.ExitStack() as stack:
        steps = {way.name: stack.enter_context(one_step(kind, shape, way)) for way in WAYS}
        with FlopCounterMode(display=False) as counter:
            steps[WAYS[0].name]()
        flops, peaks, ready = counter.get_total_flops(), {}, {}
        for name, run in steps.items():
            began = time.perf_counter()
            for _ in range(WARM):
                run()
            torch.cuda.synchronize()
            ready[name] = time.perf_counter() - began
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run()
            peaks[name] = (torch.cuda.max_memory_allocated() - held) / 2**20
        seconds = [{name: timed(run, STEPS) for name, run in steps.items()} for _ in range(rounds)]
    own = {way.name: [each[way.name] for each in seconds] for way in WAYS}
    return [
        {
            "kind": kind,
            "rows": shape[0],
            "length": shape[1],
            "way": name,
            "ms": 1000 * median(values),
            "ms_of_rounds": [1000 * value for value in values],
            "tokens_per_second": shape[0] * shape[1] / median(values),
            "speedup": median(a / b for a, b in zip(own[WAYS[0].name], values, strict=True)),
            "flops": flops,
            "share": flops / median(values) / product,
            "peak_mib": peaks[name],
            "first_seconds": ready[name],
        }
        for name, values in own.items()
    ]


@contextlib.contextmanager
def one_step(kind: str, shape: tuple[int, int], way: Way) -> Iterator[Callable[[], None]]:
    """A step of the engine, of a student of its own."""
    settings, objective, batch = (on_corpus if kind == CORPUS else on_task)(shape)
    accelerator = Accelerator(mixed_precision="bf16")
    weights = torch.tensor([term.weight for term in objective.terms.values()], device="cuda")
    optimizer = instantiate(settings.optimizer | {"lr": 1e-5})(objective.parameters())
    chosen = in_arithmetic(objective, settings, accelerator) if way.bf16_weights else objective
    if way.compiled:
        for layer in (layer for model in objective.models for layer in families.layers(model)):
            layer.forward = torch.compile(layer.forward, dynamic=True)
    with aligned_vocabulary(objective.models) if way.aligned else contextlib.nullcontext():
        module: nn.Module = accelerator.prepare_model(chosen).train()
        run = partial(backward, module, weights, accelerator)
        trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        graphs = Graphs(run, trained) if way.graphs else None

        def one() -> None:
            gradients(module, objective, [batch], 1.0, weights, accelerator, graphs)
            clip(objective, settings.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        yield one
    accelerator.free_memory()


def on_corpus(shape: tuple[int, int]) -> tuple[Train, Objective, dict[str, np.ndarray]]:
    """BERT-base to half its layers, with the terms of recipe=distilbert."""
    settings, config = step.settings(), BertConfig()
    with torch.device("cuda"):
        teacher = BertForMaskedLM(config).eval().requires_grad_(False)
    student = step._student(teacher, settings)
    return (
        settings,
        step.objective(copy.deepcopy(teacher).to(torch.bfloat16), student.to("cuda"), settings),
        step.random_batch(shape, config.vocab_size),
    )


def on_task(shape: tuple[int, int]) -> tuple[Train, Objective, dict[str, np.ndarray]]:
    """The six layers of that student on a task, with a teacher's outputs that are stored."""
    with torch.device("cuda"):
        model = BertForSequenceClassification(BertConfig(num_hidden_layers=6, num_labels=3))
    random = np.random.default_rng(0)
    batch = {
        "input_ids": random.integers(1000, 30000, shape),
        "attention_mask": (np.arange(shape[1]) < random.integers(shape[1] // 2, shape[1] + 1, shape[0])[:, None]),
        "token_type_ids": np.zeros(shape, np.int64),
        "labels": random.integers(0, 3, shape[0]),
        "teacher_logits": random.normal(size=(shape[0], 3)).astype(np.float32),
    }
    batch["attention_mask"] = batch["attention_mask"].astype(np.int64)
    soft = Term(1.0, "logits", "teacher", "all", _soft_targets)
    return Train(data="tasks", optimizer=step.settings().optimizer), Objective(model, {"soft_targets": soft}), batch


def _soft_targets(student: Tensor, teacher: Tensor) -> Tensor:
    return losses.soft_targets(student, teacher, temperature=2.0)


if __name__ == "__main__":
    main()
