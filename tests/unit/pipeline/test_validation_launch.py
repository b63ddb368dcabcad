"""Launches that would train nothing, or not what was asked for, are refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distill.pipeline.validation.launch import alone, launch

TORCHRUN = {"WORLD_SIZE": "8", "RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_a_plain_start_and_torchrun_are_accepted() -> None:
    assert list(launch({})) == []
    assert list(launch({}, sweep=True)) == []
    assert list(launch(TORCHRUN)) == []
    assert list(launch(TORCHRUN | {"ACCELERATE_MIXED_PRECISION": "no"})) == []  # accelerate launch --multi_gpu
    assert list(launch({"ACCELERATE_MIXED_PRECISION": "no"})) == []  # accelerate launch --num_processes 1
    assert list(launch({"WORLD_SIZE": "1"}, sweep=True)) == []


@pytest.mark.parametrize("way", ["FSDP", "DeepSpeed", "Megatron-LM"])
def test_divided_models_are_refused(way: str) -> None:
    variable = f"ACCELERATE_USE_{way.upper().replace('-', '_')}"
    (problem,) = launch(TORCHRUN | {variable: "true"})
    assert problem.startswith(f"accelerate launch: got {way}; must be data parallel")
    assert list(launch(TORCHRUN | {variable: "false"})) == []


def test_processes_of_which_each_runs_by_itself_are_refused() -> None:
    """As in a PyTorchJob of Kubeflow with GPUs: `WORLD_SIZE` and `RANK` are set, and `LOCAL_RANK` is not."""
    (problem,) = alone(TORCHRUN, 1)
    assert problem.startswith("WORLD_SIZE: got 8 processes, each of which would train by itself; must have LOCAL_RANK")
    assert problem.endswith("unset WORLD_SIZE where this is the only one")
    assert list(alone(TORCHRUN, 8)) == []
    assert list(alone({}, 1)) == list(alone({"WORLD_SIZE": "1"}, 1)) == []


def distill(folder: Path, *command: str, **environment: str) -> str:
    """What the command prints to standard error."""
    words, given = [sys.executable, "-m", *command, "recipe=distilbert"], os.environ | environment
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert not (folder / "outputs" / "distilbert").exists()
    return done.stderr


@pytest.mark.slow
def test_a_single_process_that_was_to_be_two_is_refused(tmp_path: Path) -> None:
    launcher = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--mixed_precision", "no"]
    problem = "accelerate launch: got several processes, of which it starts one; must start all of them; use torchrun "
    assert problem in distill(tmp_path, *launcher, "-m", "distill")


def test_a_sweep_of_several_processes_is_refused(tmp_path: Path) -> None:
    said = distill(tmp_path, "distill", "-m", "seed=0,1", WORLD_SIZE="2", RANK="0")
    assert said.startswith("-m: got a sweep in each of 2 processes; must be one run for all of them")
