"""The schemes of quantization: facts alone. distill.compress.quantize has the function that makes each."""

from __future__ import annotations

from dataclasses import dataclass

from distill.backends import BACKENDS

ONNX = "model.onnx"
"""The float32 file that schemes with `onnx` are made from."""


@dataclass(frozen=True)
class Scheme:
    """A way to quantize, and the file it results in."""

    name: str
    """What `stages.quantize.schemes` calls it."""
    backend: str
    scheme: str
    """backend and scheme: what results.json calls it."""
    file: str
    """What is written for a task's model: a folder, or a file."""
    weights: str
    activations: str
    """What they are rounded to, and how."""
    onnx: bool = False
    """Whether it is made from the ONNX file; from the checkpoint where not."""
    calibrated: bool = False
    """Whether ranges of activations are measured on training rows."""
    alone: bool = False
    """Whether a row's logits depend on the other rows of a batch, because activations have one scale for all of it."""
    compiled: bool = False
    """Whether it is also timed compiled by torch."""
    rounding: str = "tensor"
    """How linear modules are rounded to find those that hurt, as in distill.compress.fake: inputs by tensor, by token;
    or nf4."""
    tables: bool = False
    """Whether tables of embeddings are rounded too, each by one scale, and can be what hurts."""
    makers: tuple[str, ...] = ()
    """Python packages that making it needs, besides those of its backend."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that making and running it need."""
        return (*BACKENDS[self.backend].packages, *self.makers)

    @property
    def extra(self) -> str | None:
        """Extra of distill that installs them; None where distill itself does."""
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
            alone=True,
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
"""Name in `stages.quantize.schemes` -> scheme."""
