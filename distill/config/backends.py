"""Records of the backends that run models. None of the backends' packages is imported."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Backend:
    """Library that runs a model, or that runs it in quantized form."""

    name: str
    """Its name in results.json."""
    runtime: str
    """Backend that executes the model: torch for quantizers whose models transformers loads, else itself."""
    packages: tuple[str, ...]
    """Python packages that it needs."""
    loads: str
    """Format that it loads: transformers (a folder for `from_pretrained`), onnx (a file), or openvino (an ONNX file, or
    a folder with OpenVINO's two files)."""
    extra: str | None = None
    """Extra of distill that installs its packages; None if distill itself installs them."""
    cpu_only: bool = False
    """Whether it runs on the CPU even on a machine with a GPU."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("torch", "torch", ("torch",), "transformers"),
        Backend("bitsandbytes", "torch", ("bitsandbytes",), "transformers"),
        Backend("torchao", "torch", ("torchao",), "transformers", extra="torchao"),
        Backend("onnxruntime", "onnxruntime", ("onnxruntime",), "onnx", cpu_only=True),
        Backend("onnxruntime_cuda", "onnxruntime_cuda", ("onnxruntime",), "onnx"),
        Backend("onnxruntime_tensorrt", "onnxruntime_tensorrt", ("onnxruntime",), "onnx"),
        Backend("openvino", "openvino", ("openvino",), "openvino", extra="openvino", cpu_only=True),
    )
}
"""Name -> backend."""


@functools.cache
def compiles() -> bool:
    """Whether torch.compile can make code for a GPU: it needs Triton, which needs a C compiler."""
    compilers = filter(None, (os.environ.get("CC"), "gcc", "clang"))
    return find_spec("triton") is not None and any(map(shutil.which, compilers))
