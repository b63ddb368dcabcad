"""A run that is disturbed at random ends as one that is not. `make chaos` does it to every recipe."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import chaos
from distill import config
from tests.forked import PYTHON

SHORT = (
    "tasks.names=[order]",
    "limit.steps=4",
    "pipeline=[finetune_teacher,quantize]",
    "stages.quantize.start=finetune_teacher",
)


@pytest.mark.slow
def test_a_disturbed_run_ends_as_an_undisturbed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", PYTHON)
    more = (*SHORT, "stages.quantize.schemes=[bitsandbytes]")
    # This seed disturbs the run early, so that it is not over before the second time on a machine of another speed.
    row = chaos.disturbed("minilmv2", 1, 4, 1, random.Random(39), *more)
    assert (row["lost"], row["different"]) == ([], [])
    assert len(row["disturbances"]) >= 2
    assert len(row["damages"]) == 1


UNLIKE = ("distilbert", "prune", "cofi", "factorized", "task")
"""Recipes each of which gets other settings than the rest."""


@pytest.mark.parametrize(
    "recipe", [pytest.param(name, marks=[pytest.mark.slow] * (name not in UNLIKE)) for name in config.recipes()]
)
def test_every_recipe_can_be_disturbed(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.pipeline import validation

    monkeypatch.setattr(chaos, "student", Path.mkdir)
    settings = chaos.prepared(recipe, [tmp_path / "home"])
    monkeypatch.chdir(tmp_path / "home")
    assert validation.settings(config.load_config(settings), recipe) == []


def folders(tmp_path: Path, change: dict[str, bytes | None]) -> list[Path]:
    files = {"model.safetensors": b"weights", "a/manifest.json": b'{"seconds": 1.5, "steps": 3, "log": [{"x_ms": 1}]}'}
    files |= {
        "latency.json": b"{}",
        "prune.measured/losses.json": b"1",
        "m.xml": b'<layer name="Constant_12" x="1_2"/>',
    }
    for folder, content in (("one", files), ("two", {**files, **change})):
        for name, data in content.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            if data is not None:
                (tmp_path / folder / name).write_bytes(data)
    return [tmp_path / "one", tmp_path / "two"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model.safetensors": b"weighty"}, ["model.safetensors"]),
        ({"model.safetensors": None}, ["model.safetensors"]),
        ({"new": b""}, ["new"]),
        ({"a/manifest.json": b'{"seconds": 1.5, "steps": 4}'}, ["a/manifest.json .log: [{}] | None"]),
        ({"a/manifest.json": b'{"seconds": 9, "steps": 3, "log": [{"x_ms": 7}]}'}, []),
        ({"latency.json": b"[]", "prune.measured/losses.json": None}, []),
        ({"m.xml": b'<layer name="Constant_7" x="1_3"/>'}, []),
        ({"m.xml": b'<layer name="Constant_12" y="1_2"/>'}, ["m.xml"]),
    ],
)
def test_what_counts_as_different(change: dict[str, bytes | None], expected: list[str], tmp_path: Path) -> None:
    assert chaos.differences(*folders(tmp_path, change)) == expected


FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("how", "code", "stderr", "well"),
    [
        ("killed", -9, "", True),
        ("killed", 1, "Traceback (most recent call last)", False),
        ("stopped", 143, "stopped", True),
        ("stopped", 1, "x", False),
        ("full", 2, f"run/x: got {FULL}; must be on\naccesses of 0: 3", True),
        ("full", 2, "tasks: got x\naccesses of 0: 3", False),
        ("full", 1, f"Traceback\nOSError: {FULL}\naccesses of 0: 3", False),
        ("full", 0, "accesses of 0: 3", True),
    ],
)
def test_how_a_disturbed_command_must_end(how: str, code: int, stderr: str, well: bool) -> None:
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess([], code, "", stderr)
    assert (chaos.badly_ended(how, 1, done) is None) == well


def test_a_damaged_file_differs(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(bytes(100))
    (tmp_path / "config.json").write_text("{}")
    for seed in range(20):
        before = (tmp_path / "model").read_bytes()
        assert chaos.damage(tmp_path, random.Random(seed)).startswith("model: ")
        assert (tmp_path / "model").read_bytes() != before or not before
    assert json.loads((tmp_path / "config.json").read_text()) == {}
