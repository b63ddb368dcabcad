"""distill: makes encoders smaller and faster by distillation, pruning and quantization, and measures the result."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the types of what `__getattr__` finds, for editors and mypy
    from distill import losses
    from distill.api import benchmark, evaluate, prune, quantize, student
    from distill.config import Config, load_config
    from distill.deploy.serve import load
    from distill.losses import terms
    from distill.losses.distillation_loss import DistillationLoss
    from distill.losses.embedding_loss import EmbeddingLoss
    from distill.pipeline.run import run
    from distill.training.trainer import DistillationTrainer

__version__ = "0.1.0"

_PUBLIC = {
    "Config": "distill.config",
    "DistillationLoss": "distill.losses.distillation_loss",
    "DistillationTrainer": "distill.training.trainer",
    "EmbeddingLoss": "distill.losses.embedding_loss",
    "benchmark": "distill.api",
    "evaluate": "distill.api",
    "load": "distill.deploy.serve",
    "load_config": "distill.config",
    "prune": "distill.api",
    "quantize": "distill.api",
    "run": "distill.pipeline.run",
    "student": "distill.api",
}
"""Name -> the module that it is imported from when it is first used."""
_MODULES = {"losses": "distill.losses", "terms": "distill.losses.terms"}

# From version 1.29 on, ONNX Runtime reports its use to its makers unless this is set before its import. The processes
# that a run starts inherit it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "Config",
    "DistillationLoss",
    "DistillationTrainer",
    "EmbeddingLoss",
    "__version__",
    "benchmark",
    "evaluate",
    "load",
    "load_config",
    "losses",
    "prune",
    "quantize",
    "run",
    "student",
    "terms",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `python -m distill --help` does not wait for torch.
    if (module := _MODULES.get(name) or _PUBLIC.get(name)) is not None:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] == __name__:
                raise
            from distill.runtime import quoting

            raise ImportError(
                f"distill.{name}: got no package {error.name}; must be installed, unless distill only serves models; "
                f"run {quoting.install()}"
            ) from error
        return found if name in _MODULES else getattr(found, name)
    raise AttributeError(f"module 'distill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
