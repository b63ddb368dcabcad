"""Which process trains which tasks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distill import config
from distill.config.plan import resolve
from distill.pipeline.artefacts import Trained
from distill.pipeline.stages import train
from distill.pipeline.stages.train import SLOWEST, divided, one_by_one
from distill.runtime.storage import run_folder, structs


@pytest.mark.parametrize("seed", range(40))
def test_every_task_has_one_process_and_no_process_takes_much_longer(seed: int) -> None:
    random = np.random.default_rng(seed)
    processes, tasks = int(random.integers(2, 9)), int(random.integers(1, 25))
    cost = {f"task{number}": float(random.uniform(1, 100)) for number in range(tasks)}
    shares, even = divided(cost, processes), sum(cost.values()) / processes
    assert sorted(task for share in shares for task in share) == sorted(cost)
    assert len(shares) == processes
    # A process gets its last task when it has the least, which is at most an even share.
    longest = max(sum(cost[task] for task in share) for share in shares)
    assert longest <= even + max(cost.values())
    assert one_by_one(cost, processes) == (longest > SLOWEST * even)


@pytest.mark.parametrize(
    ("cost", "processes", "shares"),
    [
        ({"a": 2.0, "b": 5.0, "c": 4.0}, 2, [["b"], ["c", "a"]]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, 2, [["a", "c"], ["b"]]),
        ({"mnli": 40.0, "rte": 1.0, "mrpc": 1.0}, 2, None),  # both processes are needed for the largest
        ({"a": 1.0}, 2, None),
        ({"a": 1.0, "b": 1.0}, 4, None),
        ({"a": 1.0, "b": 1.0}, 1, None),
    ],
)
def test_tasks_side_by_side(cost: dict[str, float], processes: int, shares: list[list[str]] | None) -> None:
    assert (None if one_by_one(cost, processes) else divided(cost, processes)) == shares


def test_a_training_goes_on_as_it_began_after_others_have_finished() -> None:
    """By one process alone if it began so: together, the processes add in another order."""

    batches, both, runtime = [config.Batch()], {"a": 40.0, "b": 40.0}, two_processes("cpu")
    assert train._divided(both, ["a", "b"], batches, runtime) == ("alone", ["a"])
    assert train._divided(both, ["b"], batches, runtime) == ("alone", ["b"])
    assert train._divided({"b": 40.0}, ["b"], batches, runtime) == (runtime, ["b"])


def two_processes(device: str, longest: int = 128) -> Any:
    machine = SimpleNamespace(
        accelerator=SimpleNamespace(num_processes=2, process_index=0),
        device=SimpleNamespace(type=device),
        wait=lambda: None,
        log=lambda line: None,
    )
    return SimpleNamespace(machine=machine, single_process=lambda: "alone", longest=longest)


@pytest.mark.parametrize(
    ("batch", "longest", "together"),
    [
        (config.Batch(examples=32), 128, False),
        (config.Batch(tokens=65536, examples=32), 128, False),
        (config.Batch(tokens=65536, examples=32), 512, True),
        (config.Batch(tokens=16383), 128, False),
        (config.Batch(tokens=16384), 128, True),
    ],
)
def test_gpus_share_only_steps_that_keep_them_busy(batch: config.Batch, longest: int, together: bool) -> None:
    """The one task is trained by the first process alone, as a single process trains it, or by both."""
    runtime = two_processes("cuda", longest)
    assert train._divided({"a": 40.0}, ["a"], [batch], runtime) == (runtime if together else "alone", ["a"])
    assert train._divided({"a": 40.0}, ["a"], [batch], two_processes("cpu"))[0] != "alone"


def test_the_states_of_a_shared_encoder_stay_until_its_manifest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed before has no finished stage, and would train it again."""
    run_folder.claim(tmp_path)
    (tmp_path / "finetune.state" / "5").mkdir(parents=True)
    machine = SimpleNamespace(main=True, wait=lambda: None)
    runtime: Any = SimpleNamespace(machine=machine, folder=tmp_path)
    inputs: Any = SimpleNamespace(name="finetune", shared=True)
    settings = config.Train(data="tasks")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "on_all_tasks", lambda *_: Trained(steps=5, seconds=1.0))
    with monkeypatch.context() as patched:
        patched.setattr(structs, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            train._trained(inputs, settings, runtime)
    assert (tmp_path / "finetune.state" / "5").is_dir()
    manifest = train._trained(inputs, settings, runtime)
    assert not (tmp_path / "finetune.state").exists()
    monkeypatch.setattr(train, "on_all_tasks", killed)
    assert train._trained(inputs, settings, runtime) == manifest


@pytest.mark.parametrize("init", ["teacher_layers", "random", "static"])
def test_a_teacher_keeps_its_pooler_whatever_its_students_start_from(init: str) -> None:
    """A language model, from which the teacher starts here, is stored without one."""
    loaded = config.load_config(["recipe=adapt", f"student.init={init}"])
    kept = {step.stage: train.keeps_pooler(step, loaded.student) for step in resolve(loaded).of(config.Train)}
    assert kept["finetune_teacher"]
    assert kept["finetune"] == kept["finetune_baseline"] == (init == "teacher_layers")


def test_a_given_student_has_no_pooler_of_its_teacher() -> None:
    loaded = config.load_config(["recipe=task", "student.name=small"])
    kept = {step.stage: train.keeps_pooler(step, loaded.student) for step in resolve(loaded).of(config.Train)}
    assert (kept["finetune_teacher"], kept["finetune"]) == (True, False)
