"""Notes of a report on how its models were made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from distill.config import load_config
from distill.pipeline import notes


def of_teacher(*settings: str) -> str:
    config = load_config(["recipe=prune", *settings])
    given: Any = SimpleNamespace(config=config, teachers=["a"])
    return " ".join(notes.of_teacher(given, config.stages["finetune_teacher"], {}, vectors=False))


def test_an_interval_over_seeds_is_for_one_teacher_where_it_has_a_seed_of_its_own() -> None:
    assert "with the seed 3 (teacher.seed)" in of_teacher("teacher.seed=3")
    assert "none of the teacher's" in of_teacher("teacher.seed=3")
    assert of_teacher("seed=3") == ""
