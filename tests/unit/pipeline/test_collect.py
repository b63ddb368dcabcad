"""Loss curves in results.json: taken from the manifests of trainings, in order, and thinned."""

from __future__ import annotations

import itertools
from pathlib import Path

from distill.pipeline.collect import losses, thinned
from distill.runtime.storage.run_folder import MANIFEST, write_json


def trained(folder: Path, rows: list[tuple[int, float]], steps: int) -> None:
    log = [{"step": step, "loss": loss, "terms": {"labels": loss}, "tokens_per_second": 1.0} for step, loss in rows]
    write_json(folder / MANIFEST, {"steps": steps, "tokens": 1, "seconds": 1.0, "log": log})


def test_losses_of_one_training(tmp_path: Path) -> None:
    trained(tmp_path, [(10, 2.0), (20, 1.5)], 20)
    assert losses(tmp_path) == [(10, 2.0), (20, 1.5)]
    assert losses(tmp_path / "nothing") == []


def test_steps_of_several_tasks_and_members_are_counted_on(tmp_path: Path) -> None:
    for number, member in enumerate("12"):
        trained(tmp_path / member / "b", [(4, 9.0 + number)], 5)
        write_json(tmp_path / member / "a" / MANIFEST, {"steps": 3, "given": True})
        write_json(tmp_path / member / MANIFEST, {"tasks": ["b", "a"], "steps": 8})
    write_json(tmp_path / MANIFEST, {"members": ["1", "2"], "steps": 16})
    assert losses(tmp_path) == [(4, 9.0), (12, 10.0)]


def test_a_long_log_keeps_its_ends() -> None:
    log = [(float(i), 1000.0 - i) for i in range(201)]
    kept = thinned(log)
    assert len(kept) == 50
    assert (kept[0], kept[-1]) == (log[0], log[-1])
    gaps = {int(b[0] - a[0]) for a, b in itertools.pairwise(kept)}
    assert gaps == {4, 5}
    assert thinned(log[:50]) == log[:50]
