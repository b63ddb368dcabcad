"""A process that loads an artifact and predicts once."""

from __future__ import annotations

import gc
import io
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from distill.deploy.serve.cold_start import answered
from distill.deploy.serve.fresh import READY
from distill.deploy.serve.model import Model


@pytest.mark.slow
def test_it_has_a_time_and_the_memory_of_the_process(folders: dict[str, Path]) -> None:
    found = answered([str(folders["bert"]), "torch", "fp32", "cpu", "1"])
    assert not isinstance(found, str), found
    milliseconds, mib = found
    assert 100 < milliseconds
    assert 100 < mib < 4000  # of torch and transformers alone, hundreds


@pytest.mark.slow
def test_the_model_is_in_memory_when_it_is_looked_at(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fresh", str(folders["bert"]), "torch", "fp32", "cpu", "1"])
    alive = list[Any]()

    class Looking(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            alive.extend(each for each in gc.get_objects() if type(each) is Model and each.folder == folders["bert"])
            return ""

    monkeypatch.setattr(sys, "stdin", Looking())
    monkeypatch.delitem(sys.modules, "distill.deploy.serve.fresh")
    runpy.run_module("distill.deploy.serve.fresh", run_name="__main__")
    assert READY in capsys.readouterr().out
    assert len(alive) == 1


def test_what_does_not_load_is_an_error(tmp_path: Path) -> None:
    found = answered([str(tmp_path / "absent"), "torch", "fp32", "cpu", "1"])
    assert isinstance(found, str)
    assert "absent; must be a local folder" in found
