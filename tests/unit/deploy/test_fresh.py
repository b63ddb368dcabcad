"""A process that loads an artifact and predicts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.deploy.serve.cold_start import answered


@pytest.mark.slow
def test_it_has_a_time_and_the_memory_of_the_process(folders: dict[str, Path]) -> None:
    found = answered([str(folders["bert"]), "torch", "fp32", "cpu", "1"])
    assert not isinstance(found, str), found
    milliseconds, mib = found
    assert 100 < milliseconds
    assert 100 < mib < 4000  # of torch and transformers alone, hundreds


def test_what_does_not_load_is_an_error(tmp_path: Path) -> None:
    found = answered([str(tmp_path / "absent"), "torch", "fp32", "cpu", "1"])
    assert isinstance(found, str)
    assert "absent; must be a local folder" in found
