"""Two hosts, as two network namespaces with a shared folder, train as one process does. Needs root on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.forked import PYTHON

pytestmark = pytest.mark.slow
NAMES, ADDRESSES, PORT = ("distill-a", "distill-b"), ("10.213.77.1", "10.213.77.2"), 29_577


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[None]:
    """Two namespaces with a link between them."""
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs ip, and to be root")
    try:
        try:
            for name in NAMES:
                ip("netns", "add", name)
            ip("link", "add", "link-a", "netns", NAMES[0], "type", "veth", "peer", "name", "link-b", "netns", NAMES[1])
            for name, address, link in zip(NAMES, ADDRESSES, ("link-a", "link-b"), strict=True):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
                for device in ("lo", link):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs network namespaces: {error.stderr.decode().strip()}")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_two_hosts_train_as_one_process_does(hosts: None, tmp_path: Path) -> None:
    settings = [
        "recipe=distilbert", "limit=smoke", "precision=fp32", "threads=1", "pipeline=[adapt,pretrain]",
        "stages.pretrain.batch.tokens=512",
    ]  # fmt: skip
    one = [PYTHON, "-m", "distill", *settings, "output=one"]
    subprocess.run(one, cwd=tmp_path, check=True, capture_output=True, timeout=250)
    running = []
    for number, name in enumerate(NAMES):
        launch = [
            "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1", "--node_rank", str(number),
            "--master_addr", ADDRESSES[0], "--master_port", str(PORT),
        ]  # fmt: skip
        command = ["ip", "netns", "exec", name, sys.executable, *launch, "-m", "distill", *settings, "output=two"]
        environment = os.environ | {"PYTHON_EXEC": sys.executable}
        running.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    outputs = [process.communicate(timeout=280) for process in running]
    assert [process.returncode for process in running] == [0, 0], [error[-2000:] for _, error in outputs]
    assert ", in 2 processes\n" in outputs[0][0]
    assert "threads" not in outputs[1][0]  # only the first process prints
    given, found = (load_file(tmp_path / run / "pretrain" / "model.safetensors") for run in ("one", "two"))
    assert all(abs(given[name] - found[name]).max() < 1e-4 for name in given)
