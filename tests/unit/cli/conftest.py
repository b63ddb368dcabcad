"""Comparisons of tiny models that take no time to measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.cli.compare import models
from distill.inference import latency


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models, "ROUNDS", 2)
    monkeypatch.setattr(models, "TIMED_ROWS", 4)
    monkeypatch.setattr(latency, "LEAST_MS", 0.1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
