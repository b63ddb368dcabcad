"""A run that was killed, interrupted and resumed ends with the same weights as an undisturbed one, bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.forked import PYTHON
from tests.small import content

pytestmark = pytest.mark.slow
TRAINING = [
    "recipe=distilbert", "limit=smoke", "limit.steps=14", "tasks.names=[order]",
    "pipeline=[adapt,pretrain,finetune_teacher,finetune]", "corpus.max_length=32",
    "stages.pretrain.batch.tokens=512", "stages.pretrain.batch.device_tokens=256", "stages.pretrain.epochs=3",
    "stages.pretrain.dropout=0.1", "stages.pretrain.checkpoint_seconds=1e-9",
    "stages.finetune_teacher.epochs=2", "stages.finetune.epochs=2", "stages.finetune.batch.examples=8",
    "stages.finetune_teacher.min_steps=0", "stages.finetune.min_steps=0",
    "stages.finetune.dropout=0.1", "stages.finetune.checkpoint_seconds=1e-9",
]  # fmt: skip
MODELS = ["pretrain", "finetune_teacher/order", "finetune/order"]

DISTURBED = """
import os, sys
from distill.__main__ import main
from distill.training import state
from distill.pipeline.train_steps import corpus, tasks

stage, at, number = sys.argv.pop(1), int(sys.argv.pop(1)), int(sys.argv.pop(1))
save, forget = state.save, corpus.forget_training

def disturbed(folder, step, *rest):
    here = str(folder).endswith(stage + ".state")
    if here and step == at:
        os.kill(os.getpid(), number)
    if not here or step <= at - 4 or step > at:  # the work of a few steps is lost
        save(folder, step, *rest)

def at_the_end(name, runtime):
    if name == stage and at < 0:
        os.kill(os.getpid(), number)
    forget(name, runtime)

state.save, corpus.forget_training, tasks.forget_training = disturbed, at_the_end, at_the_end
main()
"""


def distill(
    cwd: Path, *settings: str, launch: tuple[str, ...] = ("-m", "distill"), python: str = PYTHON
) -> subprocess.CompletedProcess[str]:
    command = [python, *launch, *TRAINING, *settings]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250)


def disturbed(cwd: Path, stage: str, step: int, number: int) -> subprocess.CompletedProcess[str]:
    """The same run, which sends itself a signal when it is about to save its state at this step; at -1, when the model
    is written and its states are about to be removed."""
    return distill(cwd, "output=broken", launch=("-c", DISTURBED, stage, str(step), str(number)))


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def whole(cwd: Path) -> Path:
    run = distill(cwd, "output=whole")
    assert run.returncode == 0, run.stderr
    return cwd / "whole"


def test_killed_and_interrupted_runs_resume_exactly(cwd: Path, whole: Path) -> None:
    broken = cwd / "broken"
    killed = disturbed(cwd, "pretrain", 9, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert {p.name for p in (broken / "pretrain.state").iterdir()} == {"4", "5"}
    assert not (broken / "pretrain").exists()

    # What is finished is not trained again, and its states are removed then.
    trained = {}
    for model in ("pretrain", "finetune_teacher/order"):
        assert disturbed(cwd, model, -1, signal.SIGKILL).returncode == -signal.SIGKILL
        assert (broken / f"{model}.state").is_dir() == (model == "pretrain")  # the other made no checkpoint so soon
        trained[model] = (broken / model / "model.safetensors").stat().st_mtime_ns

    # Ctrl-C, in a stage of tasks, lets the step finish.
    interrupted = disturbed(cwd, "finetune/order", 7, signal.SIGINT)
    assert interrupted.returncode == 130
    line, command = interrupted.stderr.splitlines()
    assert line == "finetune/order: stopped at step 8 of 12; run the same command to resume"
    assert command.startswith("stopped; to go on, run: python -m distill recipe=distilbert limit=smoke limit.steps=14 ")
    assert {p.name for p in (broken / "finetune" / "order.state").iterdir()} == {"3", "8"}
    assert "adapt: finished earlier, skipped" in interrupted.stdout
    assert trained == {model: (broken / model / "model.safetensors").stat().st_mtime_ns for model in trained}

    last = distill(cwd, "output=broken", python=sys.executable)  # with another hash seed than the runs before
    assert last.returncode == 0, last.stderr
    assert "pretrain: finished earlier, skipped" in last.stdout
    assert "finetune_teacher: finished earlier, skipped" in last.stdout
    for model in MODELS:
        ours, theirs = ((folder / model / "model.safetensors").read_bytes() for folder in (broken, whole))
        assert ours == theirs, model
        did, should = (json.loads((folder / model / "manifest.json").read_text()) for folder in (broken, whole))
        assert [did[key] for key in ("steps", "tokens")] == [should[key] for key in ("steps", "tokens")]
    steps = {model: json.loads((whole / model / "manifest.json").read_text())["steps"] for model in MODELS}
    assert steps == {"pretrain": 14, "finetune_teacher/order": 4, "finetune/order": 12}
    # Files that only a resumed run needs are removed.
    assert content(broken).keys() == content(whole).keys()


def test_a_finished_run_is_skipped(cwd: Path, whole: Path) -> None:
    before = content(whole)
    again = distill(cwd, "output=whole")
    assert again.returncode == 0, again.stderr
    for stage in ("adapt", "pretrain", "finetune_teacher", "finetune"):
        assert f"{stage}: finished earlier, skipped" in again.stdout
    assert content(whole) == before


def test_a_damaged_model_is_named_and_made_again(cwd: Path, whole: Path) -> None:
    damaged = cwd / "damaged"
    shutil.copytree(whole, damaged)
    weights = damaged / "finetune_teacher" / "order" / "model.safetensors"
    before = bytearray(weights.read_bytes())
    before[len(before) // 2] ^= 1
    weights.write_bytes(before)
    again = distill(cwd, "output=damaged")
    assert again.returncode == 0, again.stderr
    named = "finetune_teacher/order/model.safetensors: not as it was written; "
    assert named in again.stdout
    assert "pretrain: finished earlier, skipped" in again.stdout
    for model in MODELS:
        ours, theirs = ((folder / model / "model.safetensors").read_bytes() for folder in (damaged, whole))
        assert ours == theirs, model
    settings = damaged / "config.json"
    settings.write_text(settings.read_text().replace('"seed": 0', '"seed": 7'))
    changed = distill(cwd, "output=damaged")
    assert changed.returncode == 2
    assert changed.stderr.startswith("damaged/config.json: got another content than the run wrote; must be unchanged")


def test_other_settings_in_the_same_folder_are_refused(cwd: Path, whole: Path) -> None:
    before = content(whole)
    other = distill(cwd, "output=whole", "seed=1", "stages.finetune_teacher.clip=2")
    assert other.returncode == 2
    said = "must be {} as when whole was begun; set output=NEW_FOLDER\n"
    assert other.stderr == f"seed: got 1; {said.format(0)}stages.finetune_teacher.clip: got 2.0; {said.format(1.0)}"
    assert content(whole) == before


def test_a_folder_is_used_by_one_run_at_a_time(cwd: Path, whole: Path) -> None:
    with FileLock(whole / ".lock"):
        second = distill(cwd, "output=whole")
    assert second.returncode == 2
    assert second.stderr.startswith("output: got whole; must be used by one run at a time")
