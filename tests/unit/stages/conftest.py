"""The tiny classifiers of tests/tiny.py."""

from __future__ import annotations

import runpy
from pathlib import Path

_TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny.py"))
classifier, sentences = _TINY["classifier"], _TINY["sentences"]
