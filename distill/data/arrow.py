"""pyarrow, imported when one of its names is first used: a process that only serves a model reads no tables."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow

    return getattr(pyarrow, name)
