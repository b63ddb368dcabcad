"""A training step with eager attention and with SDPA, by length of the rows.

    python benchmarks/attention.py --output benchmarks/results/attention.json

Weights and tokens are random: only speed has a meaning. Every round times both kinds once, in one process, on the same
batch, forward and backward.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.checkpoint import write_json
from distill.evaluate import latency
from distill.evaluate.runners import Batch, Run, Runner
from distill.machine import cores, detect_precision

TOKENS = 4096
LENGTHS = (16, 32, 64, 128, 256, 512)
KINDS = ("sdpa", "eager")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(cores())
    bf16 = detect_precision("auto", torch.device(arguments.device)) == "bf16"
    config = BertConfig(hidden_size=384, num_attention_heads=12, intermediate_size=1536, num_hidden_layers=2)
    runners = [Runner(kind, "torch", "fp32", _step(config, kind, arguments.device, bf16)) for kind in KINDS]
    rows = []
    for length in LENGTHS:
        times = latency.measure(runners, [_batch(config, length)], repeats=arguments.repeats)
        milliseconds = {name: np.asarray(values) for (name, _), values in times.items()}
        ratio = milliseconds["sdpa"] / milliseconds["eager"]
        row = {"length": length, "rows": TOKENS // length, "plain_over_fused": float(np.median(ratio))}
        row |= {f"{kind}_ms": float(np.median(milliseconds[kind])) for kind in KINDS}
        print(f"{length:4} tokens: eager attention is {row['plain_over_fused']:.2f} times as fast as SDPA", flush=True)
        rows.append(row)
    if arguments.output is not None:
        facts = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "bf16": bf16,
            "device": arguments.device,
        }
        write_json(arguments.output, {"environment": facts, "repeats": arguments.repeats, "rows": rows})


def _step(config: BertConfig, kind: str, device: str, bf16: bool) -> Run:
    model: Any = BertForSequenceClassification(copy.deepcopy(config)).to(device)
    model.set_attn_implementation(kind)

    def run(batch: Batch) -> np.ndarray:
        tensors = {key: torch.from_numpy(value).to(device) for key, value in batch.items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
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
