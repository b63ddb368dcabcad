"""A process that loads an artifact and predicts once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distill.deploy.serve import fresh


@pytest.mark.slow
def test_it_prints_the_memory_of_the_process(folders: dict[str, Path]) -> None:
    arguments = [str(folders["bert"]), "torch", "fp32", "cpu", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "distill.deploy.serve.fresh", *arguments], capture_output=True, text=True, check=True
    )
    mib = json.loads(done.stdout.splitlines()[-1])["memory_mib"]
    assert 100 < mib < 4000  # of torch and transformers alone, hundreds


def test_what_does_not_load_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="absent"):
        fresh.main(str(tmp_path / "absent"), "torch", "fp32", "cpu", "1")
