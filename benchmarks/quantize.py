"""BERT-base in every variant that a quantize stage makes, each timed on its own backend.

    python benchmarks/quantize.py --output benchmarks/results/quantize.json

Weights and tokens are random: only speed and size have a meaning. Every round times each variant once, in one process,
on the same batch. Variants whose packages are not installed are skipped. This installs them:

    pip install -c constraints.txt -e '.[openvino,torchao]'
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.tables.speed import quantize_table
from distill.compression.quantization.quantize import MAKE, Arrays, always_float
from distill.config.schemes import ONNX, SCHEMES
from distill.deploy.export.onnx import export_onnx
from distill.inference import latency
from distill.inference.runners import COMPILED, load
from distill.report import terminal
from distill.runtime.machine import cores, detect_precision
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware

SHAPE = (8, 128)
CALIBRATION = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="number of rounds; each times every variant once")
    parser.add_argument("--threads", type=int, help="number of CPU threads; default: all cores")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        measured = benchmark(BertConfig(), SHAPE, Path(folder), arguments.threads or cores(), arguments.repeats)
    shown = quantize_table(measured)
    console = Console()
    console.print(terminal.table(shown, width=console.width))
    for line in shown.notes:
        console.print(line, style="dim", markup=False, highlight=False)
    if arguments.output is not None:
        write_json(arguments.output, measured)


def benchmark(config: BertConfig, shape: tuple[int, int], folder: Path, threads: int, repeats: int) -> dict[str, Any]:
    """Make every variant of a random model below `folder`, then time them all on the CPU."""
    torch.set_num_threads(threads)
    variants = list(make_variants(config, shape, folder))
    runners = [load(name, path, backend=b, scheme=s, device="cpu", threads=threads) for name, b, s, path in variants]
    batch = tokens(shape, config.vocab_size, seed=0)
    times = {name: values for (name, _), values in latency.measure(runners, [batch], repeats=repeats).items()}
    medians = {name: float(np.median(values)) for name, values in times.items()}
    best = min((e for e in runners if e.scheme == "fp32"), key=lambda runner: medians[runner.name])
    stored = {"fp32", *(record.scheme for record in SCHEMES.values())}  # the others are run from the same files
    rows = [
        {
            "backend": backend,
            "scheme": scheme,
            "mib": size(path) / 2**20 if scheme in stored else None,
            "median_ms": medians[name],
            "speedup": latency.speedup(times[best.name], times[name]),
        }
        for name, backend, scheme, path in variants
    ]
    return {
        "environment": hardware(threads),
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "batch": shape[0],
        "length": shape[1],
        "fastest_float32": f"{best.backend} {best.scheme}",
        "repeats": repeats,
        "rows": rows,
    }


def make_variants(config: BertConfig, shape: tuple[int, int], folder: Path) -> Iterator[tuple[str, str, str, Path]]:
    """(name, backend, scheme, path) of each variant, floating-point ones first."""
    source = folder / "float"
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(source)
    export_onnx(source, folder / ONNX)
    floats = ["fp32", *(["bf16"] if detect_precision("auto", torch.device("cpu")) == "bf16" else [])]
    variants = [("torch", scheme, source) for scheme in floats] + [("onnxruntime", "fp32", folder / ONNX)]
    variants += [("openvino", scheme, folder / ONNX) for scheme in floats] if find_spec("openvino") else []
    rows: list[Arrays] = [tokens((1, shape[1]), config.vocab_size, seed) for seed in range(1, CALIBRATION + 1)]
    for name, scheme in SCHEMES.items():
        if all(find_spec(package) for package in scheme.packages):
            out = folder / scheme.file
            MAKE[name](folder / ONNX if scheme.onnx else source, out, always_float(model), rows)
            variants += [(scheme.backend, scheme.scheme, out)]
            variants += [(scheme.backend, f"{scheme.scheme}{COMPILED}", out)] if scheme.compiled else []
    yield from ((f"{backend} {scheme}", backend, scheme, path) for backend, scheme, path in variants)


def tokens(shape: tuple[int, int], vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(min(1000, vocabulary // 2), vocabulary, shape)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.suffix in (".safetensors", ".onnx", ".bin", ".xml"))


if __name__ == "__main__":
    main()
