"""Records of the quantization schemes, without torch. `distill.compression.quantization.quantize` has the functions."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from distill.config.backends import BACKENDS
from distill.runtime import outside

COMPILED = "_compiled"
"""Suffix of the scheme of a model that is compiled by torch."""
BF16 = "_bf16"
"""Suffix of the scheme of a quantized model whose other parts OpenVINO computes in bfloat16."""
ONNX = "model.onnx"
"""Name of the float32 ONNX file, which schemes with `onnx` quantize."""
FLOAT, FLOAT_ONNX = ("torch", "fp32"), ("onnxruntime", "fp32")
"""(backend, scheme) by which results.json and exported folders name the checkpoint, and the float32 ONNX file."""


@dataclass(frozen=True)
class Form:
    """A form of a model: its backend and scheme, as in results.json."""

    backend: str
    scheme: str
    key: str | None = None
    """Its name in `SCHEMES`; None for a float form."""

    @property
    def name(self) -> str:
        return f"{self.backend} {self.scheme}"


@dataclass(frozen=True)
class Scheme:
    """A quantization scheme for a backend, and the file or folder that it writes."""

    name: str
    """Its name in `stages.quantize.schemes`."""
    backend: str
    scheme: str
    """`backend` and `scheme` are its names in results.json."""
    file: str
    """Name of the file or folder that is written for a task's model."""
    weights: str
    activations: str
    """Number format of weights and activations, and which of them share a scale."""
    onnx: bool = False
    """Whether it quantizes the float32 ONNX file; if false, the checkpoint."""
    calibrated: bool = False
    """Whether ranges of activations are measured on training rows."""
    row_by_row: bool = False
    """Whether rows are scored one at a time, because a batch's activations share one scale, so that a row's logits
    depend on the other rows of its batch."""
    compiled: bool = False
    """Whether a variant compiled by torch is timed too."""
    rounding: str = "tensor"
    """Simulated quantization that finds the linear modules which cost most: tensor or token (one scale for each input
    tensor, or for each token of it), or nf4."""
    tables: bool = False
    """Whether embedding tables are quantized too, with one scale each, and are among the modules that may cost most."""
    makers: tuple[str, ...] = ()
    """Python packages that quantizing needs besides those of its backend."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that quantizing and running need."""
        return (*BACKENDS[self.backend].packages, *self.makers)

    @property
    def extra(self) -> str | None:
        """Extra of distill that installs them; None if distill itself installs them."""
        return BACKENDS[self.backend].extra


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="bitsandbytes",
            backend="bitsandbytes",
            scheme="int8",
            file="bitsandbytes",
            weights="int8 by row",
            activations="int8 by token, columns with outliers in float",
            rounding="token",
        ),
        Scheme(
            name="bitsandbytes_nf4",
            backend="bitsandbytes",
            scheme="nf4",
            file="bitsandbytes_nf4",
            weights="4 bits by block of 64",
            activations="float",
            rounding="nf4",
        ),
        Scheme(
            name="torchao",
            backend="torchao",
            scheme="int8",
            file="torchao",
            weights="int8 by row",
            activations="int8 by token",
            compiled=True,
            rounding="token",
        ),
        Scheme(
            name="onnxruntime",
            backend="onnxruntime",
            scheme="int8",
            file="model_int8.onnx",
            weights="int8 by column, embeddings by table",
            activations="8 bits by batch",
            onnx=True,
            row_by_row=True,
            tables=True,
        ),
        Scheme(
            name="onnxruntime_static",
            backend="onnxruntime",
            scheme="int8_static",
            file="model_int8_static.onnx",
            weights="int8 by column, embeddings by table",
            activations="8 bits, static",
            onnx=True,
            calibrated=True,
            tables=True,
        ),
        Scheme(
            name="openvino",
            backend="openvino",
            scheme="int8",
            file="openvino",
            weights="int8 by row",
            activations="8 bits, static, SmoothQuant",
            onnx=True,
            calibrated=True,
            makers=("nncf",),
        ),
    )
}
"""Name in `stages.quantize.schemes` -> scheme. Code outside of the package may add its own, and the function that makes
it to `MAKE` of `distill.compression.quantization.quantize`."""
outside.registry("schemes", SCHEMES)


def file_of(backend: str, scheme: str) -> tuple[str, str] | None:
    """(backend, scheme) of the artifact from whose file a form is run: its own if it is an artifact, else that of
    another. None if no artifact of an exported folder has its file, or if it runs on a GPU alone."""
    record = BACKENDS[backend]
    plain = "fp32" if record.bf16 and scheme == "bf16" else scheme.removesuffix(BF16 if record.bf16 else "")
    if plain == "fp32" and record.float32 and not record.gpu_only:
        return FLOAT if record.loads == "transformers" else FLOAT_ONNX
    made = {(one.backend, one.scheme) for one in SCHEMES.values()}
    return (backend, plain) if (backend, plain) in made else None


def packages() -> tuple[str, ...]:
    """Python packages that make or run quantized models, of all backends and schemes."""
    of_backends = (name for backend in BACKENDS.values() for name in backend.packages)
    return tuple(dict.fromkeys([*of_backends, *(name for scheme in SCHEMES.values() for name in scheme.makers)]))


DRIVERS = ("dev/nvidiactl", "usr/lib/wsl/lib/libcuda.so*", "usr/lib/wsl/drivers/nv*/libcuda.so*")
"""Files of the drivers of an NVIDIA GPU, on Linux and in its subsystem on Windows. The latter has /dev/dxg on computers
without such a GPU too."""


def default(root: Path = Path("/")) -> list[str]:
    """The schemes that models are quantized with unless others are named: on a CPU those that are fastest in our
    measurements, OpenVINO where it is installed; on a machine with a GPU bitsandbytes and ONNX Runtime."""
    if any(any(root.glob(pattern)) for pattern in DRIVERS):
        return ["bitsandbytes", "onnxruntime"]
    openvino = all(find_spec(package) is not None for package in SCHEMES["openvino"].packages)
    return ["openvino", "onnxruntime"] if openvino else ["onnxruntime"]
