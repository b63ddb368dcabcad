"""Peak memory of a block of code."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from distill.inference import memory


@pytest.mark.skipif(sys.platform != "linux", reason="measured on Linux only")
def test_the_peak_includes_a_large_array_that_was_freed() -> None:
    with memory.peak("cpu") as used:
        before = used()
        np.ones(2**25)  # 256 MiB of float64
        after = used()
    if before is None or not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel does not reset the high-water mark")
    assert after is not None
    assert 200 < after - before < 400
