"""Records of the backends that run models. Importing this needs none of their packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """A library that loads and runs models."""

    name: str
    """Value of `backend` in results.json."""
    runtime: str
    """Backend that executes the model: torch for quantizers whose models transformers loads, else the same."""
    packages: tuple[str, ...]
    """Python packages that it needs."""
    loads: str
    """Format that it loads: transformers (a folder for `from_pretrained`), onnx (a file), or openvino (an ONNX file, or
    a folder with OpenVINO's two files)."""
    extra: str | None = None
    """Extra of distill that installs its packages; None if distill always installs them."""
    cpu_only: bool = False
    """Whether it runs on the CPU even if there is a GPU."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("torch", "torch", ("torch",), "transformers"),
        Backend("bitsandbytes", "torch", ("bitsandbytes",), "transformers"),
        Backend("torchao", "torch", ("torchao",), "transformers", extra="torchao"),
        Backend("onnxruntime", "onnxruntime", ("onnxruntime",), "onnx", cpu_only=True),
        Backend("openvino", "openvino", ("openvino",), "openvino", extra="openvino", cpu_only=True),
    )
}
"""Name -> backend."""
