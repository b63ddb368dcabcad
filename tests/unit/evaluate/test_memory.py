"""Peak memory of a stretch of work."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from distill.evaluate import memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_large_array_that_is_gone_is_still_in_the_peak() -> None:
    with memory.peak("cpu") as used:
        before = used()
        np.ones(2**25)  # 256 MiB of float64
        after = used()
    if before is None or not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel does not reset the high-water mark")
    assert after is not None
    assert 200 < after - before < 400
