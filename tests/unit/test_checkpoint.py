"""Whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from distill import checkpoint
from distill.errors import UserError


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_takes_the_place_of_the_old_one_only_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    with checkpoint.writing(folder) as temporary:
        (temporary / "old").write_text("1")
    with pytest.raises(FileNotFoundError), checkpoint.writing(folder) as temporary:
        (temporary / "new").write_text((temporary / "missing").read_text())
    assert content(tmp_path) == {"stage/old": b"1"}
    with checkpoint.writing(folder) as temporary:
        (temporary / "new").write_text("2")
    assert content(tmp_path) == {"stage/new": b"2"}
    assert not checkpoint.finished(folder)
    checkpoint.write_json(folder / checkpoint.MANIFEST, {"steps": 3})
    assert checkpoint.finished(folder)
    assert checkpoint.read_json(folder / checkpoint.MANIFEST) == {"steps": 3}


def test_json_that_json_does_not_know_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    checkpoint.write_json(file, {"score": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.write_json(file, {"score": float("nan")})
    assert json.loads(file.read_text()) == {"score": 1.0}
    assert list(tmp_path.iterdir()) == [file]


def test_weights_that_do_not_fit_on_the_disk_are_one_line_and_leave_the_old_ones(
    tmp_path: Path, small_disk: Any
) -> None:
    folder = tmp_path / "stage"
    with checkpoint.writing(folder) as temporary:
        save_file({"weight": torch.ones(4)}, temporary / "model.safetensors")
    before = content(tmp_path)
    with small_disk(1 << 16), pytest.raises(UserError) as refused, checkpoint.writing(folder) as temporary:
        save_file({"weight": torch.zeros(1 << 16)}, temporary / "model.safetensors")
    (line,) = refused.value.messages
    assert line.startswith(f"{folder}: got ")
    assert "must be writable, with room enough; mend it, then run the same command" in line
    assert content(tmp_path) == before
