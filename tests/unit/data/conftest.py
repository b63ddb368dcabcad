"""A cache for a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distill.runtime.storage import cache


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[Path]:
    """The folder of the parsed files in a cache that is used within the test alone."""
    with cache.using(tmp_path / "cache"):
        yield tmp_path / "cache" / "tables"
