"""What names the models of a stage in the cache: another name for every part that changes their weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from distill import config
from distill.config.plan import resolve
from distill.pipeline.artefacts import Artefact, Cost, Record, Trained
from distill.pipeline.context import Context
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.train_steps import cache_key
from distill.runtime import outside
from distill.runtime.storage import atomic, run_folder, structs

FILES = ("teacher.name=given", "student.name=small", "tasks.train=rows.csv")


def stage(tmp_path: Path, name: str, *settings: str) -> tuple[Any, Any]:
    """(stand-in for the context of a run, one of its steps)."""
    loaded = config.load_config(["recipe=task", "teacher=hub", *FILES, *settings])
    machine = SimpleNamespace(
        device=SimpleNamespace(type="cpu"), precision="fp32", fast_float32=False, threads=2,
        accelerator=SimpleNamespace(num_processes=1),
    )  # fmt: skip
    ctx = SimpleNamespace(
        config=loaded, machine=machine, folder=RunFolder(tmp_path), epochs={}, corpus_tokens=None, given={"tasks": "t"}
    )
    ctx.plan = resolve(loaded)
    ctx.fingerprints = lambda step: ctx.given
    ctx.fingerprint = lambda name: f"{name} {ctx.given.get(name)}"
    ctx.identity = functools.partial(Context.identity, ctx)
    return ctx, next(step for step in ctx.plan.steps if step.stage == name)


RECORD = Record(inputs={}, given={}, versions={}, cost=Cost(seconds=1.0, peak_memory_mib=None))


def finished(folder: Path, made_from: str) -> None:
    structs.write(folder / run_folder.MANIFEST, Trained(record=replace(RECORD, made_from=made_from)))


def _precision(ctx: Any) -> None:
    ctx.machine.precision = "bf16"


def _device(ctx: Any) -> None:
    ctx.machine.device = SimpleNamespace(type="cuda")


def _processes(ctx: Any) -> None:
    ctx.machine.accelerator = SimpleNamespace(num_processes=2)


def _epochs(ctx: Any) -> None:
    ctx.epochs = {"": 0.5}


def _rows(ctx: Any) -> None:
    ctx.given = ctx.given | {"tasks": "others"}


def _teacher(ctx: Any) -> None:
    ctx.given = ctx.given | {"teacher": "another"}


def _given_student(ctx: Any) -> None:
    """A stage besides starts from one, so that the student is not the teacher's layers."""
    ctx.plan = dataclasses.replace(ctx.plan, given_student=not ctx.plan.given_student)


def _teachers_stage(ctx: Any) -> None:
    finished(ctx.folder.path / "finetune_teacher", made_from="another")


@pytest.mark.parametrize(
    "change", [_precision, _device, _processes, _epochs, _rows, _teacher, _given_student, _teachers_stage]
)
def test_each_part_changes_the_name(change: Callable[[Any], None], tmp_path: Path) -> None:
    ctx, step = stage(tmp_path, "finetune")
    finished(tmp_path / "finetune_teacher", made_from="one")
    before = cache_key.of_step(ctx, step)
    assert cache_key.of_step(ctx, step) == before
    change(ctx)
    assert cache_key.of_step(ctx, step) != before


@pytest.mark.parametrize("package", ["torch", "transformers", "tokenizers", "accelerate", "distill", "outside"])
def test_so_does_each_version(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, step = stage(tmp_path, "finetune")
    before = cache_key.of_step(ctx, step)
    if package == "distill":
        monkeypatch.setattr(cache_key, "source_hash", lambda: "another")
    elif package == "outside":
        monkeypatch.setattr(outside, "code", lambda: "another")
    elif package in (now := cache_key.versions()):
        monkeypatch.setattr(cache_key, "versions", lambda: now | {package: "0"})
    else:
        monkeypatch.setattr(cache_key, "installed", lambda names: dict.fromkeys(names, "0"))
    assert cache_key.of_step(ctx, step) != before


def test_the_revision_of_a_corpus_is_a_part_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, step = stage(tmp_path, "finetune", "corpus.kind=hub", "corpus.name=[owner/name]")
    found = {}
    for given in ({}, {"corpus": "c"}):
        ctx.given = given
        for revision in "ab":
            monkeypatch.setattr("distill.data.corpus.newest", lambda name, revision=revision: revision)
            found[len(given), revision] = cache_key.of_step(ctx, step)
    assert found[0, "a"] == found[0, "b"]
    assert found[1, "a"] != found[1, "b"]


@pytest.mark.parametrize("gates", ["none", "movement"])
def test_the_processor_is_a_part_where_gates_are_trained_to_reach_a_time(
    gates: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, step = stage(tmp_path, "finetune", f"stages.finetune.gates.kind={gates}")
    names = []
    for processor in ("one", "another"):
        monkeypatch.setattr(cache_key, "processor", lambda machine, processor=processor: {"cpu": processor})
        names.append(cache_key.of_step(ctx, step))
    assert (names[0] != names[1]) is (gates != "none")


@pytest.mark.parametrize("changed", ["stages.prune.dimensions=[layers,ffn]", "stages.quantize.schemes=[torchao]"])
def test_gates_are_trained_for_the_stages_that_prune_by_them_and_make_the_forms(changed: str, tmp_path: Path) -> None:
    loaded = [config.load_config(["recipe=cofi", *FILES[:1], *FILES[2:], *more]) for more in ([], [changed])]
    names = {"gated": set[str | None](), "finetune_teacher": set[str | None]()}
    for each in loaded:
        ctx, _ = stage(tmp_path, "finetune")
        ctx.config, ctx.plan = each, resolve(each)
        for name in names:
            names[name].add(cache_key.of_step(ctx, next(step for step in ctx.plan.steps if step.stage == name)))
    assert (len(names["gated"]), len(names["finetune_teacher"])) == (2, 1)


def test_steps_that_are_no_training_are_known_by_their_files(tmp_path: Path) -> None:
    """The settings of a vocabulary or prune stage are in no manifest."""
    run_folder.claim(tmp_path)
    step: Any = SimpleNamespace(folder="vocabulary", inputs=[], kind="vocabulary")
    ctx: Any = SimpleNamespace(folder=RunFolder(tmp_path))

    def identity(token: str, made: Artefact, **record: Any) -> str:
        atomic.write_text(tmp_path / "vocabulary" / "own" / "tokenizer.json", f"[{token}]")
        ctx.folder.complete(step, made, replace(RECORD, **record))
        return Context.identity(ctx, step)

    before = identity("1", Trained(tokens=3, seconds=1.0))
    again = identity("1", Trained(tokens=3, seconds=2.0), cost=Cost(seconds=9.0, peak_memory_mib=7.0), reused=True)
    assert again == before
    assert identity("2", Trained(tokens=3, seconds=1.0)) != before
    assert identity("1", Trained(tokens=4, seconds=1.0)) != before
    assert identity("1", Trained(tokens=3, seconds=1.0), made_from="0f") == "0f"


def test_the_scores_that_a_prune_step_measured_are_a_part_of_it(tmp_path: Path) -> None:
    """A model is cut by their mean over the tasks, which the models of single tasks need not show."""
    run_folder.claim(tmp_path)
    ctx, _ = stage(tmp_path, "finetune")
    parts: dict[str, Any] = {"folder": "prune", "stage": "prune", "kind": "prune", "inputs": [], "cutter": None}
    pruner: Any = SimpleNamespace(**parts, source=lambda name: None)
    names = []
    for scores in ("1", "1", "2"):
        atomic.write_text(tmp_path / "prune.measured" / "own" / "scores.safetensors", scores)
        atomic.write_text(tmp_path / "prune.measured" / "seconds.json", str(len(names)))
        ctx.folder.complete(pruner, Trained(), RECORD)
        names.append(ctx.identity(pruner))
    assert names[0] == names[1] != names[2]
