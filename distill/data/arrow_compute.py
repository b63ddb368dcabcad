"""pyarrow.compute, imported when one of its names is first used, as in `distill.data.arrow`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
