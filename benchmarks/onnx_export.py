"""The export of a model to ONNX: with a graph captured anew, with the graph of a model of the same shape, and with the
graph of a model that has other FFN channels.

    python -m benchmarks.onnx_export --output benchmarks/results/onnx_export.json

Weights are random. The ways are run in turn. The first two write the same file.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.deploy.export import graphs
from distill.deploy.export.onnx import export_onnx
from distill.runtime.machine import cores
from distill.runtime.storage import cache
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware

LAYERS = (2, 6, 12)
WAYS = ("captured", "filled", "resized")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; each exports in every way once")
    parser.add_argument("--threads", type=int, help="number of CPU threads; default: all cores")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    threads = arguments.threads or cores()
    torch.set_num_threads(threads)
    configs = [
        BertConfig(hidden_size=384, num_attention_heads=12, intermediate_size=1536, num_hidden_layers=layers)
        for layers in LAYERS
    ]
    rows = [benchmark(config, arguments.repeats) for config in configs]
    for row in rows:
        ways = ", ".join(f"{name} {row[f'{name}_s']:.2f} s" for name in WAYS)
        print(f"{row['layers']} layers: {ways}: {row['ratio']:.1f}x and {row['resized_ratio']:.1f}x")
    if arguments.output is not None:
        write_json(arguments.output, {"environment": hardware(threads), "rows": rows})


def benchmark(config: Any, repeats: int) -> dict[str, Any]:
    """Medians of all ways in seconds, the medians of the ratios of the first to the others, and whether the files of
    the first two are the same.

    Before each export the process forgets its graphs, so that a kept one is read from the cache.
    """
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as temporary:
        same_shape, other = Path(temporary) / "model", Path(temporary) / "other"
        files = [Path(temporary) / f"{name}.onnx" for name in WAYS]
        BertForSequenceClassification(config).save_pretrained(same_shape)
        resized = copy.deepcopy(config)
        resized.intermediate_size //= 3
        BertForSequenceClassification(resized).save_pretrained(other)
        export_onnx(same_shape, files[0])  # imports what an export needs
        same = True
        for number in range(repeats):
            with cache.using(Path(temporary) / f"cache{number}"):
                for file, folder, times in zip(files, (same_shape, same_shape, other), seconds.values(), strict=True):
                    graphs.remembered.clear()
                    began = time.perf_counter()
                    export_onnx(folder, file)
                    times.append(time.perf_counter() - began)
            same &= files[0].read_bytes() == files[1].read_bytes()
    return {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        **{f"{name}_s": float(np.median(times)) for name, times in seconds.items()},
        "ratio": float(np.median(np.divide(seconds["captured"], seconds["filled"]))),
        "resized_ratio": float(np.median(np.divide(seconds["captured"], seconds["resized"]))),
        "same_file": same,
    }


if __name__ == "__main__":
    main()
