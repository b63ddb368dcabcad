"""Records of the backends that run models. None of the backends' packages is imported."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec

from distill.runtime import outside


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
    """Format that it loads: transformers (a folder for `from_pretrained`), onnx (a file), openvino (an ONNX file, or a
    folder with OpenVINO's two files), or a format of its own."""
    extra: str | None = None
    """Extra of distill that installs its packages; None if distill itself installs them."""
    cpu_only: bool = False
    """Whether it runs on the CPU even on a machine with a GPU."""
    gpu_only: bool = False
    """Whether it runs on a GPU alone."""
    float32: bool = False
    """Whether it runs models that are not quantized: the checkpoint if it loads what transformers loads, else the
    float32 ONNX file. Speedups of quantized models are over the fastest of these that a CPU runs."""
    bf16: bool = False
    """Whether it computes in bfloat16, from the same file, what is not quantized."""
    tf32: bool = False
    """Whether it multiplies float32 in TF32, which no setting of a session turns off."""
    colour: int | None = None
    """Place of its colour in the palette of figures, from 0. With None it has none of its own: in the picture its place
    among the drawn backends decides, and in the page it is grey."""
    code: str | None = None
    """Python that loads the ONNX file `{file!r}` without distill, and computes in `{hint}`, f32 or bf16, what is not
    quantized; None if no report has to show it."""
    reloader: str | None = None
    """`MODULE:FUNCTION` with which an exported file is loaded in a new process without distill, as by the functions of
    `distill.deploy.export.reload.RUNNERS`; None for that of its runtime there."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("torch", "torch", ("torch",), "transformers", float32=True, bf16=True, colour=0),
        Backend("bitsandbytes", "torch", ("bitsandbytes",), "transformers", colour=3),
        Backend("torchao", "torch", ("torchao",), "transformers", extra="torchao", colour=4),
        Backend("onnxruntime", "onnxruntime", ("onnxruntime",), "onnx", cpu_only=True, float32=True, colour=1),
        Backend("onnxruntime_cuda", "onnxruntime_cuda", ("onnxruntime",), "onnx", gpu_only=True, float32=True),
        Backend(
            *("onnxruntime_tensorrt", "onnxruntime_tensorrt", ("onnxruntime",), "onnx"),
            gpu_only=True,
            float32=True,
            tf32=True,
        ),
        Backend(
            *("openvino", "openvino", ("openvino",), "openvino"),
            extra="openvino",
            cpu_only=True,
            float32=True,
            bf16=True,
            colour=2,
            code="import openvino\n\n"
            'model = openvino.Core().compile_model({file!r}, "CPU", {{"INFERENCE_PRECISION_HINT": "{hint}"}})',
        ),
    )
}
"""Name -> backend. Code outside of the package may add its own, and the function that loads its files to `RUNTIMES` of
`distill.inference.runners`."""
outside.registry("backends", BACKENDS)


@functools.cache
def compiles() -> bool:
    """Whether torch.compile can make code for a GPU: it needs Triton, which needs a C compiler."""
    compilers = filter(None, (os.environ.get("CC"), "gcc", "clang"))
    return find_spec("triton") is not None and any(map(shutil.which, compilers))
