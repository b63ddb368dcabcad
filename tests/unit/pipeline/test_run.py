"""Which steps of a run are pending, and which of them run again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Config, load_config
from distill.config.plan import Step, resolve
from distill.errors import ConfigError, UserError
from distill.pipeline import run as pipeline
from distill.pipeline.artefacts import Cost, Record, Trained
from distill.pipeline.context import keys, pending
from distill.pipeline.context.folder import BEGUN, RunFolder
from distill.pipeline.context.keys import Keys
from distill.runtime import outside, versions
from distill.runtime.messages import console_for
from distill.runtime.storage import atomic, run_folder, structs

PIPELINE = ["adapt", "pretrain", "finetune_teacher", "finetune"]
VERSIONS = {"distill": "1", "torch": "2", "transformers": "3"}


class Run:
    """A run of four stages: its steps, the fingerprints of its given inputs, and the lines it printed."""

    def __init__(self, folder: Path) -> None:
        config = load_config(["recipe=distilbert", f"pipeline=[{','.join(PIPELINE)}]"])
        self.plan, self.folder, self.printed = resolve(config), RunFolder(folder), list[str]()
        self.given = {"teacher": "t", "tasks": "r", "corpus": "c"}
        machine: Any = SimpleNamespace(
            wait=lambda: None,
            main=True,
            log=self.printed.append,
            device=SimpleNamespace(type="cpu"),
            precision="fp32",
            fast_float32=True,
            accelerator=SimpleNamespace(num_processes=1),
        )
        self.keys = Keys(Config(), self.plan, machine, self.folder, {}, None, lambda name: self.given[name])

    def step(self, name: str) -> Step:
        return next(step for step in self.plan.steps if step.stage == name)

    def finish(self, name: str, seconds: float = 1.0) -> None:
        step, cost = self.step(name), Cost(seconds=seconds, peak_memory_mib=None)
        self.folder.complete(step, Trained(seconds=seconds), Record(key=self.keys.without_settings(step), cost=cost))

    def begin(self, name: str) -> None:
        """Record what the step begins with, as a run does."""
        self.folder.begin({name: self.keys.without_settings(self.step(name))}, self.plan.steps)

    def pending(self) -> list[str]:
        return [step.stage for step in pending.pending_steps(self.keys, self.plan.steps)]


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose stages are all finished."""
    for module in (versions, keys):
        monkeypatch.setattr(module, "versions", lambda: VERSIONS)
    run_folder.claim(tmp_path / "run")
    run = Run(tmp_path / "run")
    for name in PIPELINE:
        run.finish(name)
    return run


def test_no_step_runs_again_when_all_are_finished(ctx: Run) -> None:
    assert ctx.pending() == []
    assert ctx.printed == []


@pytest.mark.parametrize("weights", ["the same", "others"])
def test_a_step_runs_again_when_its_input_is_missing_and_is_made_otherwise(weights: str, ctx: Run) -> None:
    file, step = ctx.folder.path / "pretrain" / "model.safetensors", ctx.step("finetune")
    atomic.write_text(file, "the same")
    for name in ("pretrain", "finetune"):
        ctx.finish(name)
    (ctx.folder.path / "pretrain" / run_folder.MANIFEST).unlink()
    ctx.begin("pretrain")
    assert ctx.pending() == ["pretrain", "finetune"]
    assert ctx.printed == ["finetune: runs again if pretrain changed"]
    atomic.write_text(file, weights)
    ctx.finish("pretrain", seconds=2.0)
    assert pending.still_finished(ctx.keys, step) == (weights == "the same")
    assert (ctx.folder.path / "finetune").exists() == (weights == "the same")
    assert (ctx.folder.path / "finetune_teacher").exists()


def test_a_step_runs_again_when_its_input_was_made_again_from_the_same_with_another_result(ctx: Run) -> None:
    ctx.finish("finetune_teacher", seconds=2.0)
    assert ctx.pending() == []
    atomic.write_text(ctx.folder.path / "finetune_teacher" / "order" / "model.safetensors", "other weights")
    ctx.finish("finetune_teacher")
    assert ctx.pending() == ["finetune"]


def test_a_stopped_step_resumes_unless_its_input_runs_again(ctx: Run) -> None:
    (ctx.folder.path / "finetune" / run_folder.MANIFEST).unlink()
    (ctx.folder.path / "finetune" / "order").mkdir()
    ctx.begin("finetune")
    assert ctx.pending() == ["finetune"]
    assert (ctx.folder.path / "finetune" / "order").exists()
    (ctx.folder.path / "adapt" / run_folder.MANIFEST).unlink()
    assert ctx.pending() == ["adapt", "pretrain", "finetune"]
    assert not (ctx.folder.path / "finetune").exists()


def test_a_step_with_an_incomplete_manifest_is_not_finished(ctx: Run) -> None:
    structs.write(ctx.folder.path / "finetune" / run_folder.MANIFEST, Trained(seconds=1.0))
    assert ctx.pending() == ["finetune"]


@pytest.mark.parametrize(
    ("replaced", "again", "line"),
    [
        (
            "tasks",
            ["finetune_teacher", "finetune"],
            "finetune_teacher: runs again, because the rows of the tasks changed",
        ),
        ("corpus", ["adapt", "pretrain", "finetune"], "adapt: runs again, because the corpus changed"),
        ("teacher", PIPELINE, "adapt: runs again, because the teacher changed"),
    ],
)
def test_a_step_runs_again_when_a_given_input_was_replaced(
    replaced: str, again: list[str], line: str, ctx: Run
) -> None:
    ctx.given[replaced] = "another"
    assert ctx.pending() == again
    assert ctx.printed[0] == line


def test_a_stopped_step_starts_again_when_a_given_input_was_replaced(ctx: Run) -> None:
    folder = ctx.folder.path
    (folder / "pretrain" / run_folder.MANIFEST).unlink()
    begun = [
        folder / "pretrain.state" / "5",
        folder / "corpus.tokens" / "teacher",
        folder / "teacher.targets" / "order",
    ]
    for path in begun:
        path.mkdir(parents=True)
    for name in ("pretrain", "finetune"):
        ctx.begin(name)
    assert ctx.pending() == ["pretrain", "finetune"]
    assert all(path.exists() for path in begun), "nothing was replaced"
    ctx.given["tasks"] = "another"
    ctx.printed.clear()
    assert ctx.pending() == ["pretrain", "finetune_teacher", "finetune"]
    assert ctx.printed[0] == "finetune_teacher: runs again, because the rows of the tasks changed"
    assert [path.exists() for path in begun] == [True, False, False]
    begun[1].mkdir(parents=True)
    ctx.given["corpus"] = "another"
    ctx.printed.clear()
    assert ctx.pending() == PIPELINE
    assert "pretrain: starts again, because the corpus changed" in ctx.printed
    assert not any(path.exists() for path in begun)


def test_parts_of_which_no_record_says_what_they_were_made_from_are_made_again(ctx: Run) -> None:
    """A user has removed the manifest of a finished step, and the record."""
    (ctx.folder.path / "finetune" / run_folder.MANIFEST).unlink()
    (ctx.folder.path / "finetune" / "order").mkdir()
    assert ctx.pending() == ["finetune"]
    assert ctx.printed == ["finetune: starts again, because the record of its inputs changed"]
    assert not (ctx.folder.path / "finetune" / "order").exists()


def test_a_record_stays_when_the_run_is_finished(ctx: Run) -> None:
    ctx.begin("finetune")
    ctx.folder.forget_given()
    (ctx.folder.path / "finetune" / run_folder.MANIFEST).unlink()
    (ctx.folder.path / "finetune" / "order").mkdir()
    ctx.given["tasks"] = "another"
    assert "finetune" in ctx.pending()
    assert not (ctx.folder.path / "finetune" / "order").exists()


def test_a_lost_record_is_made_again_from_what_finished_steps_say(ctx: Run) -> None:
    ctx.begin("finetune")
    before = ctx.folder.begun
    assert list(before) == PIPELINE, "those of finished steps were lost"
    (ctx.folder.path / BEGUN).unlink()
    ctx.folder.begin({}, ctx.plan.steps)
    assert ctx.folder.begun == before


def test_code_from_outside_is_an_input_of_every_step(ctx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, again in (("one", PIPELINE), ("one", []), ("two", PIPELINE), ("", PIPELINE)):
        monkeypatch.setattr(outside, "code", lambda code=code: code)
        ctx.given["code"] = code
        assert ctx.pending() == again, code
        for name in PIPELINE:
            ctx.finish(name)


@pytest.mark.parametrize("kind", ["train", "quantize"])
def test_parts_made_by_other_packages_are_made_again_but_a_training_goes_on(
    kind: str, ctx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ctx.step("finetune")
    monkeypatch.setattr(type(step), "kind", kind)
    (ctx.folder.of(step) / run_folder.MANIFEST).unlink()
    (ctx.folder.of(step) / "order").mkdir()
    ctx.begin("finetune")
    assert ctx.pending() == ["finetune"]
    assert (ctx.folder.of(step) / "order").exists()
    monkeypatch.setattr(keys, "installed", lambda names: dict.fromkeys(names, "another"))
    assert ctx.pending() == ["finetune"]
    assert (ctx.folder.of(step) / "order").exists() == (kind == "train")


@pytest.mark.parametrize("package", VERSIONS)
def test_steps_run_with_other_versions_are_reported_and_kept(
    package: str, ctx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "versions", lambda: VERSIONS | {package: "4"})
    assert ctx.pending() == []
    assert ctx.printed == [
        f"{', '.join(PIPELINE)}: run with {package} {VERSIONS[package]}, now 4; kept (set output=NEW_FOLDER to run "
        "everything again)"
    ]


def test_the_command_in_results_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimpleNamespace(check_shared=lambda _: None, accelerator=SimpleNamespace(num_processes=1))
    monkeypatch.setattr("distill.runtime.machine.start", lambda *_: machine)
    words = ["recipe=prune", "tasks.train='https://me:word@host/a.csv?sig=abc'"]
    made = pipeline._context(load_config(words), "prune", words, tmp_path, console_for("quiet"))
    assert shlex.split(made.command)[3:] == ["recipe=prune", "tasks.train='https://...@host/a.csv?...'"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, UserError), (errno.EBADF, OSError)])
def test_a_full_disk_is_an_error_that_the_user_can_correct(
    number: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(number, os.strerror(number), "run/x")

    monkeypatch.setattr(pipeline, "run_pipeline", failing)
    with pytest.raises(kind, match=re.escape(os.strerror(number))):
        pipeline.run("recipe=distilbert", "limit=smoke")


def test_runs_of_several_threads_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the random numbers of torch, the state of accelerate and Hydra's."""
    met, together = threading.Barrier(2, timeout=1), list[int]()

    def at_work(*_: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.append(met.wait())

    monkeypatch.setattr(pipeline, "run_pipeline", at_work)
    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(lambda seed: pipeline.run("recipe=distilbert", "limit=smoke", f"seed={seed}"), range(2))]
    assert done == [None, None]
    assert not together


@pytest.mark.parametrize("form", [None, pipeline.FORMAT + 1])
def test_a_folder_of_another_version_is_refused_in_one_line(form: int | None, tmp_path: Path) -> None:
    settings = load_config(["recipe=task", "tasks.train=x.csv"])
    stored = {} if form is None else {"format": form}
    (tmp_path / pipeline.SETTINGS).write_text(json.dumps({"of another version": 1} | stored))
    with pytest.raises(ConfigError) as refused:
        pipeline._same_settings(tmp_path, settings)
    (line,) = refused.value.messages
    assert line == (
        f"output: got {tmp_path}, which another version of distill began (format {form or 1}); must be of format "
        f"{pipeline.FORMAT}; set output=NEW_FOLDER"
    )
    (tmp_path / pipeline.SETTINGS).write_text(json.dumps({"format": pipeline.FORMAT} | asdict(settings)))
    pipeline._same_settings(tmp_path, settings)
    with pytest.raises(ConfigError, match=r"^seed: got 1; must be 0 as when .* was begun; set output=NEW_FOLDER$"):
        pipeline._same_settings(tmp_path, load_config(["recipe=task", "tasks.train=x.csv", "seed=1"]))


def test_a_run_goes_on_with_the_default_of_a_setting_that_an_older_version_did_not_have(tmp_path: Path) -> None:
    settings = load_config(["recipe=task", "tasks.train=x.csv"])
    stored: dict[str, Any] = {"format": pipeline.FORMAT} | asdict(settings)
    del stored["target"]["chain"], stored["stages"]["finetune"]["clip"], stored["stages"]["evaluate"]["repeats"]
    (tmp_path / pipeline.SETTINGS).write_text(json.dumps(stored))
    pipeline._same_settings(tmp_path, settings)
    with pytest.raises(ConfigError, match=r"^target\.chain: got true; must be false as when .* was begun"):
        pipeline._same_settings(tmp_path, load_config(["recipe=task", "tasks.train=x.csv", "target.chain=true"]))
