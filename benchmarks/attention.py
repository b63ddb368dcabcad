"""A training step with SDPA, with eager attention, and with the dropout and attention of training on a CPU, by length.

    python -m benchmarks.attention --output benchmarks/results/attention.json

Weights and tokens are random: only speed has a meaning. Every round times all kinds once, in one process, on the same
batch, forward and backward.
"""

from __future__ import annotations

import argparse
import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.inference import latency
from distill.inference.runners import Batch, Run, Runner
from distill.models.student.training import quick_on_cpu
from distill.runtime.machine import cores, detect_precision
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware

TOKENS = 4096
LENGTHS = (16, 32, 64, 128, 256, 512)
KERNELS = ("sdpa", "eager", "quick")
SIZES = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "num_hidden_layers": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(cores())
    bf16 = detect_precision("auto", torch.device("cpu")) == "bf16"
    rows = []
    for dropout in (0.1, 0.0):
        config = BertConfig(**SIZES, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        runners = [Runner(kind, "torch", "fp32", _step(config, kind, bf16)) for kind in KERNELS]
        for length in LENGTHS:
            times = latency.measure(runners, [_batch(config, length)], repeats=arguments.repeats)
            milliseconds = {name: np.asarray(values) for (name, _), values in times.items()}
            row: dict[str, Any] = {"dropout": dropout, "length": length, "rows": TOKENS // length}
            for kind in KERNELS:
                speedup = float(np.median(milliseconds["sdpa"] / milliseconds[kind]))
                row[kind] = {"ms": float(np.median(milliseconds[kind])), "speedup": speedup}
            print(row, flush=True)
            rows.append(row)
    if arguments.output is not None:
        facts = hardware(torch.get_num_threads()) | {"torch": torch.__version__, "bf16": bf16}
        write_json(arguments.output, {"environment": facts, "repeats": arguments.repeats, "rows": rows})


def _step(config: BertConfig, kind: str, bf16: bool) -> Run:
    model: Any = BertForSequenceClassification(copy.deepcopy(config))
    if kind != "quick":
        model.set_attn_implementation(kind)

    def run(batch: Batch) -> np.ndarray:
        tensors = {key: torch.from_numpy(value) for key, value in batch.items()}
        quick = quick_on_cpu(model, [0]) if kind == "quick" else nullcontext()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), quick:
            loss = model(**tensors).loss
        loss.backward()
        model.zero_grad()
        return loss.detach().float().cpu().numpy()

    return run


def _batch(config: BertConfig, length: int) -> Batch:
    """Rows of `length` tokens, with padding that grows from none in the first row to half of the last."""
    rng, rows = np.random.default_rng(0), TOKENS // length
    real = np.linspace(length, length / 2, rows).astype(int)[:, None]
    mask = (np.arange(length) < real).astype(np.int64)
    ids = rng.integers(1000, config.vocab_size, (rows, length))
    return {"input_ids": ids, "attention_mask": mask, "labels": rng.integers(0, 2, rows)}


if __name__ == "__main__":
    main()
