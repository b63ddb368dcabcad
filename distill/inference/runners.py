"""One kind of callable for every variant of a model, so that the same code scores and times all of them."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from distill.config.backends import BACKENDS, Backend
from distill.config.schemes import COMPILED, SCHEMES
from distill.errors import ConfigError
from distill.inference.mixture import average
from distill.runtime import outside

Batch = dict[str, np.ndarray]
"""int64 input_ids, attention_mask and token_type_ids, each [B, L]. A runner uses those that its model has."""
Run = Callable[[Batch], np.ndarray]
"""Batch -> logits float32 [B, C], or [B, L, C] of a model with outputs for each token, as `family.logits`."""


@dataclass(frozen=True)
class Runner:
    """A variant of a model, loaded by its backend."""

    name: str
    backend: str
    """Its runtime: torch, openvino, or onnxruntime, possibly with its provider."""
    scheme: str
    """fp32, bf16, int8, ..."""
    run: Run


FLOATS = ("fp32", "tf32", "bf16", "fp16")
LOGITS = "logits_"
"""Prefix of the outputs of an ONNX file with several heads, before the name of the task."""
PROVIDERS = {
    "onnxruntime": "CPUExecutionProvider",
    "onnxruntime_cuda": "CUDAExecutionProvider",
    "onnxruntime_tensorrt": "TensorrtExecutionProvider",
}
"""Backend -> the part of ONNX Runtime that runs it."""


def quantized_folders() -> tuple[str, ...]:
    """Schemes of folders that transformers loads with their quantizer."""
    schemes = (scheme.scheme for scheme in SCHEMES.values() if BACKENDS[scheme.backend].loads == "transformers")
    return tuple(dict.fromkeys(schemes))


def check_device(device: str) -> None:
    """Raise ConfigError for a device of torch that this machine does not have."""
    import torch

    wanted = "must be a device that this machine has; choose cpu"
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device: got {device}; {wanted}") from error
    if found.type == "cuda" and not (torch.cuda.is_available() and (found.index or 0) < torch.cuda.device_count()):
        raise ConfigError(f"device: got {device}; {wanted}")


def torch_runner(name: str, folder: Path | str, *, scheme: str, device: str, threads: int) -> Runner:
    """A sequence classifier, loaded by `load_whole`.

    scheme: fp32 (strict float32), tf32 (matrix products of a GPU in TF32), bf16 and fp16 (weights too), int8 or nf4 (a
    folder of a quantizer that transformers supports: bitsandbytes, torchao). Any of them with the suffix `COMPILED` is
    compiled by torch.compile when it is first called, for any batch size and length.

    ConfigError for a device that this machine does not have.
    """
    check_device(device)
    # bitsandbytes logs, for every layer and call, that it casts the input.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

    plain, known = scheme.removesuffix(COMPILED), FLOATS + quantized_folders()
    if plain not in known:
        raise ValueError(
            f"scheme: got {scheme}; must be {', '.join(known)}, or one of these with the suffix {COMPILED}"
        )
    return _in_torch(name, _loaded(folder, plain, device), scheme, device, threads)


def _in_torch(name: str, model: Any, scheme: str, device: str, threads: int) -> Runner:
    """A loaded model, whose forward pass is compiled in place when it is first called if the scheme says so."""
    import torch

    if scheme.endswith(COMPILED):
        # torchao's tensors have no stable key for torch's compile cache: torch warns and compiles without the cache.
        warnings.filterwarnings("ignore", ".*_stable_hash_for_caching", UserWarning)
        model.forward = torch.compile(model.forward, dynamic=True)
    return Runner(name, "torch", scheme, torch_run(model, scheme=scheme, device=device, threads=threads))


def _loaded(folder: Path | str, scheme: str, device: str) -> Any:
    """The model of a folder on its device, in eval mode. DataError as from `load_whole`."""
    import torch

    from distill.models.families import auto_class
    from distill.models.teacher.load import pad_as_tokenizer, read_config
    from distill.models.teacher.whole import load_whole
    from distill.runtime.precision import HALVES

    config, quantized = read_config(folder, "folder"), scheme in quantized_folders()
    model, _, _ = load_whole(
        auto_class(config, folder),
        folder,
        claimed=True,
        dtype=HALVES.get(scheme, torch.float32),
        device_map={"": device} if quantized else None,
    )
    pad_as_tokenizer(model, folder)
    return model if quantized else model.to(device)


def one_pass(name: str, folders: Sequence[Path], *, scheme: str, device: str, threads: int) -> Runner:
    """Models of several tasks with one encoder, in float, possibly compiled: its logits are those of all of them.

    The encoder of the first folder runs once, and every head on its output; the others must have the same.
    """
    from distill.losses.shared_encoder import OnePass

    plain = scheme.removesuffix(COMPILED)
    model = OnePass([_loaded(folder, plain, device) for folder in folders])
    runner, one_at_a_time = _in_torch(name, model, scheme, device, threads), threading.Lock()

    def run(batch: Batch) -> np.ndarray:
        with one_at_a_time:  # the heads read what the encoder computed last
            return runner.run(batch)

    return replace(runner, run=run)


def in_turn(name: str, runners: Sequence[Runner]) -> Runner:
    """Models of several tasks that have nothing in common: each runs on the same batch, one after the other."""

    def run(batch: Batch) -> np.ndarray:
        return np.concatenate([runner.run(batch) for runner in runners], axis=-1)

    return Runner(name, runners[0].backend, runners[0].scheme, run)


def torch_run(model: Any, *, scheme: str, device: str, threads: int) -> Run:
    """A sequence classifier in eval mode as a callable."""
    import torch

    from distill.models.families import logits
    from distill.runtime.machine import arithmetic

    precision = "high" if scheme.startswith("tf32") else "highest"

    def run(batch: Batch) -> np.ndarray:
        with torch.inference_mode(), arithmetic(precision, threads):
            tensors = {key: torch.from_numpy(value).to(device) for key, value in batch.items()}
            # Copying the logits to the CPU waits for the device, so that a timing covers the whole call.
            outputs: np.ndarray = logits(model, tensors).float().cpu().numpy()
        return outputs

    return run


def ensemble(name: str, runners: Sequence[Runner], weights: Sequence[float]) -> Runner:
    """The weighted mean of the runners' probabilities. Each gets its own part of a `joined` batch. A single runner is
    returned unchanged.

    Of outputs of different shapes, which are those of windows by different tokenizers, or of embedders, there is no
    mean: the first are returned. Only timings, which read no outputs, have such batches.
    """
    if len(runners) == 1:
        return runners[0]

    def run(batch: Batch) -> np.ndarray:
        own = [{k.removeprefix(start): v for k, v in batch.items() if k.startswith(start)} for start in starts]
        outputs = [runner.run(part) for runner, part in zip(runners, own, strict=True)]
        return average(outputs, weights) if len({each.shape for each in outputs}) == 1 else outputs[0]

    starts = [f"{number}." for number in range(len(runners))]
    return Runner(name, runners[0].backend, runners[0].scheme, run)


def joined(parts: Sequence[Batch]) -> Batch:
    """One batch from those of several runners: `0.input_ids` is the input of the first runner. A single batch is
    returned unchanged."""
    if len(parts) == 1:
        return parts[0]
    return {f"{number}.{key}": value for number, part in enumerate(parts) for key, value in part.items()}


def by_row(run: Run, threads: int = 1) -> Run:
    """`run`, called for each row of a batch alone, without its padding: for models of which a batch's activations share
    one scale, so that other rows and padding would change a row's logits. `[B, L, C]` has zeros at padding.

    `threads`: number of rows that are run at the same time. `run` must allow that."""

    def one_by_one(batch: Batch) -> np.ndarray:
        masks = batch["attention_mask"] == 1
        rows = [{k: v[row : row + 1, mask] for k, v in batch.items()} for row, mask in enumerate(masks)]
        if threads == 1:
            parts = [run(row) for row in rows]
        else:
            with ThreadPoolExecutor(threads) as pool:
                parts = [*pool.map(run, rows)]
        if parts[0].ndim == 2:
            return np.concatenate(parts)
        result = np.zeros((*masks.shape, parts[0].shape[2]), parts[0].dtype)
        for row, (mask, part) in enumerate(zip(masks, parts, strict=True)):
            result[row, mask] = part[0]
        return result

    return one_by_one


def runs_here(backend: Backend, gpu: bool) -> bool:
    """Whether a backend is installed for the processors of this machine. `gpu`: whether there is a GPU."""
    if any(find_spec(package) is None for package in backend.packages) or (backend.gpu_only and not gpu):
        return False
    if backend.name not in PROVIDERS:
        return True
    import onnxruntime

    return PROVIDERS[backend.name] in onnxruntime.get_available_providers()


def onnx_runner(
    name: str, path: Path | str, *, scheme: str, threads: int, backend: str = "onnxruntime", device: str = "cpu"
) -> Runner:
    """An ONNX file, run by ONNX Runtime on the CPU, or on a GPU by the provider of another `backend`.

    `scheme` names the contents of the file (fp32, int8, ...). `device` changes nothing. ValueError if the provider does
    not start.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Its threads would go on spinning after a call and slow down the next timing.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    own: dict[str, Any] = {}
    if backend != "onnxruntime":
        import torch

        own = {"device_id": torch.cuda.current_device()}  # each of several processes has a GPU of its own
        if not BACKENDS[backend].tf32:
            own["use_tf32"] = 0  # by default it multiplies float32 in TF32
    session = onnxruntime.InferenceSession(str(path), options, providers=[(PROVIDERS[backend], own)])
    if PROVIDERS[backend] not in session.get_providers():  # it falls back to the CPU without an error
        raise ValueError(f"ONNX Runtime does not start its {PROVIDERS[backend]}")
    inputs = {entry.name: len(entry.shape) for entry in session.get_inputs()}
    outputs = _wanted([entry.name for entry in session.get_outputs()])

    def run(batch: Batch) -> np.ndarray:
        return _combined(session.run(outputs, shaped(batch, inputs)), outputs)

    return Runner(name, backend, scheme, run)


def openvino_runner(name: str, path: Path | str, *, scheme: str, threads: int, device: str = "cpu") -> Runner:
    """An ONNX file, or a folder with OpenVINO's two files, run by OpenVINO on the CPU. `device` changes nothing.

    By default OpenVINO computes in bfloat16 what is not quantized, if the CPU supports it. That is done only for the
    schemes that are named so: bf16, and int8_bf16.
    """
    path = Path(path)
    file = next(path.glob("*.xml")) if path.is_dir() else path
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    settings |= {"INFERENCE_PRECISION_HINT": "bf16" if scheme.endswith("bf16") else "f32"}
    model = _openvino_core().compile_model(file, "CPU", settings)
    inputs = {entry.get_any_name(): len(entry.partial_shape) for entry in model.inputs}
    request, one_at_a_time = model.create_infer_request(), threading.Lock()  # a request has one set of outputs
    outputs = _wanted([entry.get_any_name() for entry in model.outputs])

    def run(batch: Batch) -> np.ndarray:
        with one_at_a_time:
            # Without copies of inputs, and one of outputs below: they cost up to a third of a short call.
            found = request.infer(shaped(batch, inputs), share_inputs=True, share_outputs=True)
            return _combined([found[number].copy() for number in range(len(outputs))], outputs)

    return Runner(name, "openvino", scheme, run)


@functools.cache
def _openvino_core() -> Any:
    """OpenVINO's Core, one for the whole process. Each one gives the process another stack for signals, and puts the
    one before it back when it is freed: freed in another order than the reverse, the process uses a stack that is no
    longer there, and Ctrl-C ends it with a segmentation fault (seen with OpenVINO 2026.4.1)."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # it sends usage reports by default
    import openvino

    core = openvino.Core()
    # A file that is mapped into memory and then written in place would change the answers, or kill the process.
    core.set_property({"ENABLE_MMAP": False})
    return core


def shaped(batch: Mapping[str, np.ndarray], inputs: Mapping[str, int]) -> Batch:
    """The tensors of a batch [B, L] that an ONNX file takes. `inputs`: name -> number of dimensions, which are [B,
    choices, L] for multiple choice: each text is then the only choice."""
    return {name: batch[name] if rank == 2 else batch[name][:, None] for name, rank in inputs.items()}


def _wanted(names: list[str]) -> list[str]:
    """Names of a file's outputs that are those of its head. Seq2seq models have hidden states after their logits."""
    return names[:1] if names[0] == "logits" else names


def _combined(outputs: Sequence[np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The only output; logits of several tasks side by side; start and end [B, L] of answers as [B, L, 2]."""
    if len(outputs) == 1:
        return outputs[0]
    return np.concatenate(outputs, axis=-1) if names[0].startswith(LOGITS) else np.stack(outputs, axis=-1)


RUNTIMES: dict[str, Callable[..., Runner]] = {
    "torch": torch_runner,
    **{backend: functools.partial(onnx_runner, backend=backend) for backend in PROVIDERS},
    "openvino": openvino_runner,
}
"""`Backend.runtime` -> the function that loads its files: `f(name, path, *, scheme, device, threads) -> Runner`."""
outside.registry("runtimes", RUNTIMES)
SIDE_BY_SIDE = frozenset(["onnxruntime"])
"""Runtimes whose runners may be called by several threads at the same time."""


def load(
    name: str,
    path: Path | str,
    *,
    backend: str,
    scheme: str,
    device: str,
    threads: int,
    row_by_row: bool = False,
    many: bool = False,
) -> Runner:
    """The model at `path`, loaded by the runtime of its backend.

    Args:
        device: for torch.
        row_by_row: whether it runs `by_row`.
        many: whether it is for many rows, which a runtime of `SIDE_BY_SIDE` then runs at the same time where it runs
            them one by one, each on one thread. Their logits are the same, and sooner there; those of one row later.
    """
    runtime = BACKENDS[backend].runtime
    at_once = threads if row_by_row and many and runtime in SIDE_BY_SIDE else 1
    runner = RUNTIMES[runtime](name, path, scheme=scheme, device=device, threads=1 if at_once > 1 else threads)
    return replace(runner, run=by_row(runner.run, at_once)) if row_by_row else runner
