"""Records of the quantization schemes. The function that applies each is in distill.compress.quantize."""

from __future__ import annotations

from dataclasses import dataclass

from distill.backends import BACKENDS

ONNX = "model.onnx"
"""The float32 file that schemes with `onnx` quantize."""


@dataclass(frozen=True)
class Scheme:
    """A method of quantization, for one backend."""

    name: str
    """Value in `stages.quantize.schemes`."""
    backend: str
    """Value of `backend` in results.json."""
    scheme: str
    """Value of `scheme` in results.json."""
    file: str
    """Name of the file or folder that is written for a task's model."""
    weights: str
    """Number format and granularity of weights, in words."""
    activations: str
    """Number format and granularity of activations, in words."""
    onnx: bool = False
    """Whether it quantizes the ONNX file rather than the checkpoint."""
    calibrated: bool = False
    """Whether the ranges of activations are measured on training rows."""
    row_by_row: bool = False
    """Whether scores are measured one row at a time: activations have one scale for the whole batch, so that in larger
    batches a row's logits depend on the other rows."""
    compiled: bool = False
    """Whether it is also timed with torch.compile."""
    rounding: str = "tensor"
    """Key of distill.compress.fake.ROUNDING: how the rounding is simulated to find the most sensitive modules."""
    tables: bool = False
    """Whether embeddings are also quantized, each with one scale."""
    quantizer_packages: tuple[str, ...] = ()
    """Python packages that quantizing needs, in addition to those of the backend."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages needed to quantize and to run the model."""
        return (*BACKENDS[self.backend].packages, *self.quantizer_packages)

    @property
    def extra(self) -> str | None:
        """Extra of distill that installs them; None if distill always installs them."""
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
            quantizer_packages=("nncf",),
        ),
    )
}
"""Name in `stages.quantize.schemes` -> scheme."""
