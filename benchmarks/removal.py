"""BERT-base without each of its layers in turn: a pruned copy for each layer, or a single model that skips it.

    python benchmarks/removal.py --output benchmarks/results/removal.json

Weights and tokens are random: only times have a meaning. Both ways are run in turn and return the same losses. The
search for a shape does this once for each layer that it removes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.compression.pruning.importance import Batch, Loss
from distill.compression.pruning.prune import everything, pruned
from distill.compression.pruning.select_kept import mean_loss, without_each
from distill.compression.pruning.sensitivity import in_precision
from distill.data.task_types import TASK_TYPES
from distill.runtime.machine import cores, detect_precision
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64, help="number of texts, each of 55 tokens")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; each runs both ways once")
    parser.add_argument("--threads", type=int, help="number of CPU threads; default: all cores")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    measured = benchmark(BertConfig(), arguments.rows, 55, arguments.threads or cores(), arguments.repeats)
    print(f"copies {measured['copies_s']:.1f} s, skipping {measured['skipping_s']:.1f} s: {measured['ratio']:.2f}x")
    if arguments.output is not None:
        write_json(arguments.output, measured)


def copies(model: Any, batches: Sequence[Batch], loss: Loss, kept: Sequence[int]) -> dict[int, float]:
    """Layer -> the mean loss of a copy of the model without it."""
    rest = {gone: [number for number in kept if number != gone] for gone in kept}
    return {gone: mean_loss(pruned(model, everything(model, left)), batches, loss) for gone, left in rest.items()}


def benchmark(config: BertConfig, rows: int, length: int, threads: int, repeats: int) -> dict[str, Any]:
    """Medians of both ways in seconds, and the median of their ratios."""
    torch.set_num_threads(threads)
    model, everyone = BertForSequenceClassification(config).eval(), range(config.num_hidden_layers)
    ids = torch.randint(config.vocab_size, (rows, length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.arange(rows) % 2}
    loss = in_precision(detect_precision("auto", torch.device("cpu")), TASK_TYPES["classification"])
    ways: dict[str, Callable[..., dict[int, float]]] = {
        "copies": copies,
        "skipping": partial(without_each, removable=everyone),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, dict[int, float]] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            found[name] = way(model, [batch], loss, everyone)
            seconds[name].append(time.perf_counter() - began)
    ratios = np.array(seconds["copies"]) / np.array(seconds["skipping"])
    return {
        "environment": hardware(threads),
        **{"layers": config.num_hidden_layers, "hidden": config.hidden_size, "rows": rows, "length": length},
        **{f"{name}_s": float(np.median(values)) for name, values in seconds.items()},
        "ratio": float(np.median(ratios)),
        "largest_difference": max(abs(found["copies"][n] - found["skipping"][n]) for n in everyone),
    }


if __name__ == "__main__":
    main()
