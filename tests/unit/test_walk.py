"""Which stages of a run are to be made, and which again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from distill import checkpoint, environment, walk
from distill.config import load_config
from distill.context import fingerprints
from distill.context.folder import RunFolder
from distill.plan import Step, resolve

PIPELINE = ["adapt", "pretrain", "finetune_teacher", "finetune"]
VERSIONS = {"distill": "1", "torch": "2", "transformers": "3"}


class Run:
    """A run of four stages: its steps, what it was given, and what it printed."""

    def __init__(self, folder: Path) -> None:
        config = load_config(["recipe=distilbert", f"pipeline=[{','.join(PIPELINE)}]"])
        self.plan, self.folder, self.said = resolve(config), RunFolder(folder), list[str]()
        self.given = {"teacher": "t", "tasks": "r", "corpus": "c"}
        self.machine = SimpleNamespace(wait=lambda: None, main=True, say=self.said.append)

    def fingerprints(self, step: Step) -> dict[str, str]:
        return {name: self.given[name] for name in fingerprints.needed(step, own_tokenizer=False)}

    def step(self, name: str) -> Step:
        return next(step for step in self.plan.steps if step.stage == name)

    def finish(self, name: str, seconds: float = 1.0) -> None:
        step = self.step(name)
        manifest = {"seconds": seconds, "given": self.fingerprints(step), "versions": VERSIONS}
        manifest |= {"inputs": self.folder.inputs(step)}
        checkpoint.write_json(self.folder.of(step) / checkpoint.MANIFEST, manifest)

    def pending(self) -> list[str]:
        return [step.stage for step in walk._pending(self)]  # type: ignore[arg-type]


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose stages are all finished."""
    monkeypatch.setattr(environment, "versions", lambda: VERSIONS)
    checkpoint.claim(tmp_path / "run")
    made = Run(tmp_path / "run")
    for name in PIPELINE:
        made.finish(name)
    return made


def test_nothing_is_made_again_when_all_is_finished(ctx: Run) -> None:
    assert ctx.pending() == []
    assert ctx.said == []


def test_what_was_made_from_a_stage_that_is_gone_is_made_again(ctx: Run) -> None:
    (ctx.folder.path / "pretrain" / checkpoint.MANIFEST).unlink()
    assert ctx.pending() == ["pretrain", "finetune"]
    assert ctx.said == ["finetune: made again, because pretrain changed"]
    assert not (ctx.folder.path / "finetune").exists()
    assert (ctx.folder.path / "finetune_teacher").exists()


def test_what_was_made_from_another_making_of_a_stage_is_made_again(ctx: Run) -> None:
    ctx.finish("finetune_teacher", seconds=2.0)
    assert ctx.pending() == ["finetune"]


def test_a_stopped_stage_goes_on_unless_what_it_is_made_from_is_made_again(ctx: Run) -> None:
    (ctx.folder.path / "finetune" / checkpoint.MANIFEST).unlink()
    (ctx.folder.path / "finetune" / "order").mkdir()
    assert ctx.pending() == ["finetune"]
    assert (ctx.folder.path / "finetune" / "order").exists()
    (ctx.folder.path / "adapt" / checkpoint.MANIFEST).unlink()
    assert ctx.pending() == ["adapt", "pretrain", "finetune"]
    assert not (ctx.folder.path / "finetune").exists()


def test_a_manifest_that_was_not_completed_is_not_finished(ctx: Run) -> None:
    checkpoint.write_json(ctx.folder.path / "finetune" / checkpoint.MANIFEST, {"seconds": 1.0})
    assert ctx.pending() == ["finetune"]


@pytest.mark.parametrize(
    ("replaced", "again", "said"),
    [
        (
            "tasks",
            ["finetune_teacher", "finetune"],
            "finetune_teacher: made again, because the rows of the tasks changed",
        ),
        ("corpus", ["adapt", "pretrain", "finetune"], "adapt: made again, because the corpus changed"),
        ("teacher", PIPELINE, "adapt: made again, because the teacher changed"),
    ],
)
def test_what_reads_something_that_was_replaced_is_made_again(
    replaced: str, again: list[str], said: str, ctx: Run
) -> None:
    ctx.given[replaced] = "another"
    assert ctx.pending() == again
    assert ctx.said[0] == said


def test_a_stopped_stage_begins_again_when_what_it_reads_was_replaced(ctx: Run) -> None:
    step, folder = ctx.step("pretrain"), ctx.folder.path
    (folder / "pretrain" / checkpoint.MANIFEST).unlink()
    begun = [
        folder / "pretrain.state" / "5",
        folder / "corpus.tokens" / "teacher",
        folder / "teacher.targets" / "order",
    ]
    for path in begun:
        path.mkdir(parents=True)
    assert ctx.pending() == ["pretrain", "finetune"]
    assert all(path.exists() for path in begun), "it goes on"
    ctx.folder.begin({"pretrain": ctx.fingerprints(step), "finetune": ctx.fingerprints(ctx.step("finetune"))})
    assert ctx.pending() == ["pretrain", "finetune"]
    assert all(path.exists() for path in begun), "nothing was replaced"
    ctx.given["tasks"] = "another"
    ctx.said.clear()
    assert ctx.pending() == ["pretrain", "finetune_teacher", "finetune"]
    assert ctx.said[0] == "finetune_teacher: made again, because the rows of the tasks changed"
    assert [path.exists() for path in begun] == [True, False, False]
    begun[1].mkdir(parents=True)
    ctx.given["corpus"] = "another"
    ctx.said.clear()
    assert ctx.pending() == PIPELINE
    assert "pretrain: begins again, because the corpus changed" in ctx.said
    assert not any(path.exists() for path in begun)
    ctx.folder.finish()
    assert ctx.folder.begun(step) is None


@pytest.mark.parametrize("package", VERSIONS)
def test_other_versions_are_said_and_what_they_made_is_kept(
    package: str, ctx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "versions", lambda: VERSIONS | {package: "4"})
    assert ctx.pending() == []
    assert ctx.said == [
        f"{', '.join(PIPELINE)}: made with {package} {VERSIONS[package]}, now 4; kept (set output=NEW_FOLDER to make "
        "everything again)"
    ]
