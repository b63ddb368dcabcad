"""Loss curves in results.json: taken from what trainings handed over, in order, and thinned."""

from __future__ import annotations

import itertools
from pathlib import Path

from distill.pipeline.artefacts import TaskModel, Trained
from distill.pipeline.train_steps.loss_log import losses, thinned
from distill.runtime.storage.run_folder import MANIFEST
from distill.runtime.storage.structs import write
from distill.training import Row


def rows(*points: tuple[int, float]) -> list[Row]:
    return [Row(step=step, loss=loss, terms={"labels": loss}, tokens_per_second=1.0) for step, loss in points]


def test_losses_of_one_training(tmp_path: Path) -> None:
    write(tmp_path / MANIFEST, Trained(steps=20, log=rows((10, 2.0), (20, 1.5))))
    assert losses(tmp_path) == [(10, 2.0), (20, 1.5)]


def test_steps_of_several_tasks_and_members_are_counted_on(tmp_path: Path) -> None:
    for number, member in enumerate("12"):
        for task, steps, points in (("b", 5, [(4, 9.0 + number)]), ("a", 3, [])):
            made = TaskModel(steps=steps, tokens=1, seconds=1.0, log=rows(*points))
            write(tmp_path / member / task / MANIFEST, made)
        write(tmp_path / member / MANIFEST, Trained(tasks=["b", "a"], steps=8))
    write(tmp_path / MANIFEST, Trained(members=["1", "2"], steps=16))
    assert losses(tmp_path) == [(4, 9.0), (12, 10.0)]


def test_a_long_log_keeps_its_ends() -> None:
    log = [(float(i), 1000.0 - i) for i in range(201)]
    kept = thinned(log)
    assert len(kept) == 50
    assert (kept[0], kept[-1]) == (log[0], log[-1])
    gaps = {int(b[0] - a[0]) for a, b in itertools.pairwise(kept)}
    assert gaps == {4, 5}
    assert thinned(log[:50]) == log[:50]
