"""If one process of a run ends, the others end within a minute, with its message; none waits for it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.forked import PYTHON

pytestmark = pytest.mark.slow
SCRIPT = """
import os, signal, sys, threading, time

from distill import __main__, training
from distill.pipeline import stages
from distill.errors import UserError

how, rank = sys.argv.pop(1), os.environ["RANK"]
steps, train = [], sys.modules["distill.training.train"]
gradients = train.gradients


def end():
    open("ended", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)


def step(*arguments, **named):
    steps.append(0)
    if how == "training" and rank == "1" and len(steps) == 5:
        end()
    return gradients(*arguments, **named)


def prune(inputs, settings, runtime):  # of the main process alone
    if how == "error":
        open("ended", "w").close()
        raise UserError("prune: got nothing to cut")
    time.sleep(300)


train.gradients = step
stages.STAGES["prune"] = stages.Stage(stages.STAGES["prune"].inputs, prune)
if how == "waiting" and rank == "1":

    def later():
        while not os.path.exists("one/finetune_teacher/manifest.json"):
            time.sleep(0.2)
        time.sleep(2)
        end()

    threading.Thread(target=later, daemon=True).start()
__main__.main()
"""


APART = """
import os
from pathlib import Path

import torch
from distill.errors import ConfigError
from distill.runtime import machine

own = Path(os.environ["RANK"])
own.mkdir()
started = machine.start("cpu")
try:
    started.check_shared(own, 1)
except ConfigError as error:
    (own / "said").write_text(str(error))
started.check_shared(Path())
started.check_same({"the teacher": "same"})
try:
    started.check_same({"the teacher": "same", "the rows of the tasks": os.environ["RANK"]})
except ConfigError as error:
    (own / "differs").write_text(str(error))
started.wait()
torch.distributed.destroy_process_group()
"""


def test_a_folder_that_processes_do_not_share_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(APART)
    command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    for rank in "01":
        said = (tmp_path / rank / "said").read_text()
        assert said.startswith(f"output: got {rank}, which is not the same folder for all processes; must lie on")
        differs = (tmp_path / rank / "differs").read_text()
        assert differs.startswith("the rows of the tasks: got others on one machine than on another; must be the same")
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith("tmp")]


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("training", 1, "Signal 9 (SIGKILL)"),
        ("waiting", 1, "Signal 9 (SIGKILL)"),
        ("error", 1, "prune: got nothing to cut\n"),
    ],
)
def test_the_others_end_soon(how: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [
        PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "script.py", how,
        "recipe=prune", "limit=smoke", "limit.steps=12", "tasks.names=[order]", "output=one", "threads=1",
        "pipeline=[finetune_teacher,prune]", "target.speedup=null", "student.num_hidden_layers=2",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    seconds = time.time() - (tmp_path / "ended").stat().st_mtime
    assert done.returncode == code
    assert said in done.stderr
    assert seconds < 60
