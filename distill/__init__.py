"""distill: makes encoders smaller and faster by distillation, pruning and quantization, and measures the result."""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "load_config": "distill.config",
    "Config": "distill.config",
    "load": "distill.deploy.serve",
    "run": "distill.pipeline.run",
}

# From version 1.29 on, ONNX Runtime reports its use to its makers unless this is set before its import. The processes
# that a run starts inherit it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = ["Config", "__version__", "load", "load_config", "losses", "run"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `python -m distill --help` does not wait for torch.
    if name == "losses":
        return importlib.import_module("distill.losses")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'distill' has no attribute {name!r}")
