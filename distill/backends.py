"""The backends that models are run on: facts alone, without any of their packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """What runs a model, as `backend` names it in results.json."""

    name: str
    runtime: str
    """Backend that executes it: torch for quantizers whose models transformers loads, else the backend itself."""
    packages: tuple[str, ...]
    """Python packages that it needs."""
    loads: str
    """What it loads: transformers (a folder for `from_pretrained`), onnx (a file), or openvino (an ONNX file, or a
    folder with OpenVINO's two files)."""
    extra: str | None = None
    """Extra of distill that installs its packages; None where distill itself does."""
    cpu_only: bool = False
    """Whether it runs on the CPU even where there is a GPU."""


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
