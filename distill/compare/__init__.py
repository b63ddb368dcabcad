"""Compares two models on the rows of a file. `compare` is imported late, so that `--help` is instant."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["compare"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("distill.compare.comparison"), name)
    raise AttributeError(f"module 'distill.compare' has no attribute {name!r}")
