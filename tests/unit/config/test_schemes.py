"""The schemes that models are quantized with unless others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.config.schemes import default


@pytest.mark.parametrize(
    ("file", "gpu"),
    [
        ("dev/nvidiactl", True),
        ("usr/lib/wsl/lib/libcuda.so.1", True),
        ("usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1", True),
        ("usr/lib/wsl/drivers/iigd_dch.inf_amd64_1/igd.bin", False),
        ("dev/dxg", False),
        ("dev/null", False),
    ],
)
def test_a_machine_without_a_gpu_of_nvidia_has_the_schemes_of_a_cpu(file: str, gpu: bool, tmp_path: Path) -> None:
    """Linux on Windows has /dev/dxg on every computer, and got bitsandbytes, which is slow on a CPU, for OpenVINO."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert ("bitsandbytes" in default(tmp_path)) == gpu
