"""One callable for every form a model can be run in, so that all are scored and timed by the same
code.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill.backends import BACKENDS
from distill.evaluate.mixture import average
from distill.family import input_names
from distill.machine import arithmetic

Batch = dict[str, np.ndarray]
"""int64 input_ids, attention_mask and token_type_ids, each [B, L]. An engine takes those that its model has."""
Run = Callable[[Batch], np.ndarray]
"""Batch -> logits float32 [B, C]."""


@dataclass(frozen=True)
class Engine:
    name: str
    backend: str
    """torch, onnxruntime or openvino."""
    scheme: str
    """fp32, fp32_medium, bf16, int8, ..."""
    run: Run


FLOATS = ("fp32", "fp32_medium", "bf16", "fp16")
QUANTIZED = ("int8", "nf4")
COMPILED = "_compiled"
"""Ending of a scheme that torch compiles."""


def torch_engine(name: str, folder: Path | str, *, scheme: str, device: str, threads: int) -> Engine:
    """A sequence classifier as plain `from_pretrained` loads it.

    scheme: fp32 (torch's default), fp32_medium (float32 products by the fastest path the hardware
    has: real float32 through oneDNN on most CPUs, perhaps bf16 or TF32 on others), bf16 and fp16 (weights
    too), int8 or nf4 (a folder of a quantizer that transformers knows: bitsandbytes, torchao), int8_compiled.
    """
    # bitsandbytes tells of every layer, in every call, that it casts its input.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import torch
    from transformers import AutoModelForSequenceClassification

    plain = scheme.removesuffix(COMPILED)
    if plain not in FLOATS + QUANTIZED:
        raise ValueError(f"scheme: got {scheme}; must be {', '.join(FLOATS + QUANTIZED)}, or such with {COMPILED}")
    model = AutoModelForSequenceClassification.from_pretrained(
        folder,
        dtype={"bf16": torch.bfloat16, "fp16": torch.float16}.get(plain, torch.float32),
        use_safetensors=True,
        device_map={"": device} if plain in QUANTIZED else None,
        trust_remote_code=False,
    ).eval()
    if plain not in QUANTIZED:
        model.to(device)
    if plain != scheme:
        # torchao's tensors have no key for torch's cache of what it compiled, which then does without them.
        warnings.filterwarnings("ignore", ".*_stable_hash_for_caching", UserWarning)
        model.forward = torch.compile(model.forward, dynamic=True)
    return Engine(name, "torch", scheme, torch_run(model, scheme=scheme, device=device, threads=threads))


def torch_run(model: Any, *, scheme: str, device: str, threads: int) -> Run:
    """A sequence classifier in eval mode as a callable."""
    import torch

    precision = "medium" if scheme == "fp32_medium" else "highest"
    names = input_names(model.config)

    def run(batch: Batch) -> np.ndarray:
        with torch.inference_mode(), arithmetic(precision, threads):
            tensors = {key: torch.from_numpy(value).to(device) for key, value in batch.items() if key in names}
            # Bringing the logits to the CPU waits for the device: a timing covers the whole call.
            logits: np.ndarray = model(**tensors).logits.float().cpu().numpy()
        return logits

    return run


def together(name: str, engines: Sequence[Engine], weights: Sequence[float]) -> Engine:
    """Several as one: the weighted mean of their probabilities. Each reads its own part of what `joined` makes."""

    def run(batch: Batch) -> np.ndarray:
        own = [{k.removeprefix(start): v for k, v in batch.items() if k.startswith(start)} for start in starts]
        return average([engine.run(part) for engine, part in zip(engines, own, strict=True)], weights)

    starts = [f"{number}." for number in range(len(engines))]
    return Engine(name, engines[0].backend, engines[0].scheme, run)


def joined(parts: Sequence[Batch]) -> Batch:
    """The batches of several engines, one for each, as one: `0.input_ids` is what the first reads."""
    return {f"{number}.{key}": value for number, part in enumerate(parts) for key, value in part.items()}


def onnx_engine(name: str, path: Path | str, *, scheme: str, threads: int) -> Engine:
    """An ONNX file on the CPU by ONNX Runtime. `scheme` is what the file holds (fp32 or int8)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Its threads would spin on after a call and slow whatever is timed next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = [entry.name for entry in session.get_inputs()]

    def run(batch: Batch) -> np.ndarray:
        logits: np.ndarray = session.run(["logits"], {key: batch[key] for key in inputs})[0]
        return logits

    return Engine(name, "onnxruntime", scheme, run)


def openvino_engine(name: str, path: Path | str, *, scheme: str, threads: int) -> Engine:
    """An ONNX file, or a folder with OpenVINO's two files, on the CPU by OpenVINO. fp32 is real float32: left to itself
    OpenVINO multiplies in bfloat16 where the CPU can.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # reports, unasked, over the network
    import openvino

    path = Path(path)
    file = next(path.glob("*.xml")) if path.is_dir() else path
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    settings |= {"INFERENCE_PRECISION_HINT": "f32"} if scheme == "fp32" else {}
    model = openvino.Core().compile_model(file, "CPU", settings)
    inputs = [entry.get_any_name() for entry in model.inputs]
    request = model.create_infer_request()

    def run(batch: Batch) -> np.ndarray:
        logits: np.ndarray = request.infer({key: batch[key] for key in inputs})[0].copy()
        return logits

    return Engine(name, "openvino", scheme, run)


def load(name: str, path: Path | str, *, backend: str, scheme: str, device: str, threads: int) -> Engine:
    """The model at `path`, on the runtime of its backend. device: torch's."""
    runtime = BACKENDS[backend].runtime
    if runtime == "torch":
        return torch_engine(name, path, scheme=scheme, device=device, threads=threads)
    return {"onnxruntime": onnx_engine, "openvino": openvino_engine}[runtime](
        name, path, scheme=scheme, threads=threads
    )
