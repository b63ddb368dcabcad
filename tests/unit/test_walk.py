"""Which stages of a run are to be made, and which again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill import checkpoint, walk
from distill.config import load_config
from distill.stages.context import Context

PIPELINE = ["adapt", "pretrain", "finetune_teacher", "finetune"]


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    """A run of four stages, all finished."""
    config = load_config(["recipe=distilbert", f"pipeline=[{','.join(PIPELINE)}]"])
    accelerator = SimpleNamespace(wait_for_everyone=lambda: None, is_main_process=True)
    made: Any = SimpleNamespace(config=config, folder=tmp_path, accelerator=accelerator, said=[])
    made.say = made.said.append
    made.inputs = lambda stage: Context.inputs(made, stage)
    for name in PIPELINE:
        finish(made, name)
    return made


def finish(ctx: Any, name: str, seconds: float = 1.0) -> None:
    manifest = {"seconds": seconds, "inputs": ctx.inputs(ctx.config.stages[name])}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)


def test_nothing_is_made_again_when_all_is_finished(ctx: Any) -> None:
    assert walk._pending(ctx) == []
    assert ctx.said == []


def test_what_was_made_from_a_stage_that_is_gone_is_made_again(ctx: Any) -> None:
    (ctx.folder / "pretrain" / checkpoint.MANIFEST).unlink()
    assert walk._pending(ctx) == ["pretrain", "finetune"]
    assert ctx.said == ["finetune: made again, because pretrain has changed"]
    assert not (ctx.folder / "finetune").exists()
    assert (ctx.folder / "finetune_teacher").exists()


def test_what_was_made_from_another_making_of_a_stage_is_made_again(ctx: Any) -> None:
    finish(ctx, "finetune_teacher", seconds=2.0)
    assert walk._pending(ctx) == ["finetune"]


def test_a_stopped_stage_goes_on_unless_what_it_is_made_from_is_made_again(ctx: Any) -> None:
    (ctx.folder / "finetune" / checkpoint.MANIFEST).unlink()
    (ctx.folder / "finetune" / "order").mkdir()
    assert walk._pending(ctx) == ["finetune"]
    assert (ctx.folder / "finetune" / "order").exists()
    (ctx.folder / "adapt" / checkpoint.MANIFEST).unlink()
    assert walk._pending(ctx) == ["adapt", "pretrain", "finetune"]
    assert not (ctx.folder / "finetune").exists()


def test_a_manifest_that_was_not_completed_is_not_finished(ctx: Any) -> None:
    checkpoint.write_json(ctx.folder / "finetune" / checkpoint.MANIFEST, {"seconds": 1.0})
    assert walk._pending(ctx) == ["finetune"]
