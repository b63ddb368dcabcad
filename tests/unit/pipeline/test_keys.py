"""What names the models of a stage in the cache: another name for every part that changes their weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from distill import config
from distill.config.plan import resolve
from distill.pipeline.artefacts import Artefact, Cost, Key, Record, Trained
from distill.pipeline.context import keys
from distill.pipeline.context.folder import CORPUS, TRANSFER, RunFolder
from distill.pipeline.context.keys import Keys
from distill.runtime import outside
from distill.runtime.storage import atomic, run_folder, structs
from distill.training import Row

FILES = ("teacher.name=given", "student.name=small", "tasks.train=rows.csv")


def stage(tmp_path: Path, name: str, *settings: str) -> tuple[Any, Any]:
    """(the keys of a run, which has a stand-in for the machine; one of its steps)."""
    loaded = config.load_config(["recipe=task", "teacher=hub", *FILES, *settings])
    machine: Any = SimpleNamespace(
        device=SimpleNamespace(type="cpu"), precision="fp32", fast_float32=False, threads=2,
        accelerator=SimpleNamespace(num_processes=1),
    )  # fmt: skip
    made = Keys(loaded, resolve(loaded), machine, RunFolder(tmp_path), {}, None, "fingerprint of {}".format)
    return made, next(step for step in made.plan.steps if step.stage == name)


KEY = Key(inputs={}, given={}, versions={}, packages="")


def finished(folder: Path, **key: Any) -> None:
    record = Record(key=replace(KEY, **key), cost=Cost(seconds=1.0, peak_memory_mib=None))
    structs.write(folder / run_folder.MANIFEST, Trained(record=record))


def _precision(run: Keys) -> Keys:
    return _with_machine(run, precision="bf16")


def _device(run: Keys) -> Keys:
    return _with_machine(run, device=SimpleNamespace(type="cuda"))


def _processes(run: Keys) -> Keys:
    return _with_machine(run, accelerator=SimpleNamespace(num_processes=2))


def _with_machine(run: Keys, **changed: Any) -> Keys:
    machine: Any = SimpleNamespace(**vars(run.machine) | changed)
    return dataclasses.replace(run, machine=machine)


def _epochs(run: Keys) -> Keys:
    return dataclasses.replace(run, epochs={"": 0.5})


def _rows(run: Keys) -> Keys:
    return _with_given(run, "tasks")


def _teacher(run: Keys) -> Keys:
    return _with_given(run, "teacher")


def _with_given(run: Keys, changed: str) -> Keys:
    return dataclasses.replace(run, fingerprint=lambda name: "another" if name == changed else run.fingerprint(name))


def _given_student(run: Keys) -> Keys:
    """A stage besides starts from one, so that the student is not the teacher's layers."""
    return dataclasses.replace(run, plan=dataclasses.replace(run.plan, given_student=not run.plan.given_student))


def _teachers_stage(run: Keys) -> Keys:
    finished(run.folder.path / "finetune_teacher", settings="another")
    return run


@pytest.mark.parametrize(
    "change", [_precision, _device, _processes, _epochs, _rows, _teacher, _given_student, _teachers_stage]
)
def test_each_part_changes_the_name(change: Callable[[Keys], Keys], tmp_path: Path) -> None:
    run, step = stage(tmp_path, "finetune")
    finished(tmp_path / "finetune_teacher", settings="one")
    before = run.of(step).name
    assert before is not None
    assert run.of(step).name == before
    assert change(run).of(step).name != before


@pytest.mark.parametrize("package", ["torch", "transformers", "tokenizers", "accelerate", "distill", "outside"])
def test_so_does_each_version(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, step = stage(tmp_path, "finetune")
    before = run.of(step).name
    if package == "distill":
        monkeypatch.setattr(keys, "source_hash", lambda: "another")
    elif package == "outside":
        monkeypatch.setattr(outside, "code", lambda: "another")
    elif package in (now := keys.versions()):
        monkeypatch.setattr(keys, "versions", lambda: now | {package: "0"})
    else:
        monkeypatch.setattr(keys, "installed", lambda names: dict.fromkeys(names, "0"))
    assert run.of(step).name != before


def test_the_revision_of_a_corpus_is_a_part_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_hub = ["corpus.kind=hub", "corpus.name=[owner/name]", "transfer=none"]
    found = {}
    for sources in ("", "+transfer.sources.corpus=1"):
        run, step = stage(tmp_path, "finetune", *of_hub, *filter(None, [sources and "transfer.times=1", sources]))
        for revision in "ab":
            monkeypatch.setattr("distill.data.corpus.newest", lambda name, revision=revision: revision)
            found[sources, revision] = run.of(step).name
    assert len({*found.values()}) == 3, "it is no part where no transfer set is made of the corpus"
    assert found["", "a"] == found["", "b"]


@pytest.mark.parametrize(
    ("reads", "changed"),
    [
        ("stages.finetune.gates.kind=movement", "target.retained=90"),
        ("stages.finetune.gates.kind=movement", "limit.repeats=2"),
        ("transfer.times=1", "transfer.sources.pairs=2"),
        ("transfer.sources={corpus: 1}", "corpus.max_length=64"),
    ],
)
def test_settings_are_a_part_of_the_stages_that_read_them(reads: str, changed: str, tmp_path: Path) -> None:
    """A control is then shared by runs whose students differ."""

    def name(*settings: str) -> str | None:
        run, step = stage(tmp_path, "finetune", *settings)
        return run.of(step).name

    without = () if "gates" in reads else ("stages.finetune.transfer=false",)
    assert name(*without) == name(*without, changed)
    assert name(reads) != name(reads, changed)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("student.heads=shared", ["finetune_teacher"]),
        ("student.name=moved teacher.name=moved tasks.train=moved/rows.csv", ["finetune_teacher", "finetune"]),
        ("tasks.about=x limit.repeats=2 limit.documents=9", ["finetune_teacher", "finetune"]),
        ("tasks.threshold=0.3", []),
        ("limit.examples=9", []),
        ("threads=1 output=other", ["finetune_teacher", "finetune"]),
        ("stages.finetune_teacher.clip=0.5", ["finetune"]),  # unless its teacher is another then
        ("seed=1", []),
        ("tasks.max_length=16", []),
        ("limit.steps=5", []),
    ],
)
def test_stages_whose_models_a_setting_may_change_have_another_name(
    changed: str, same: list[str], tmp_path: Path
) -> None:
    def names(*settings: str) -> list[str | None]:
        run, _ = stage(tmp_path, "finetune", *settings)
        return [run.of(step).name for step in run.plan.steps if step.stage in ("finetune_teacher", "finetune")]

    before, after = names(), names(*changed.split())
    kept = [old == new for old, new in zip(before, after, strict=True)]
    assert kept == [name in same for name in ("finetune_teacher", "finetune")]


def test_a_stage_on_the_corpus_is_shared_by_runs_on_other_tasks(tmp_path: Path) -> None:
    def names(*settings: str) -> dict[str, str | None]:
        loaded = config.load_config(["recipe=distilbert", *settings])
        run = dataclasses.replace(stage(tmp_path, "finetune")[0], config=loaded, plan=resolve(loaded))
        return {step.stage: run.of(step).name for step in run.plan.of(config.Train)}

    before, after = names(), names("tasks.train=rows.csv", "tasks.max_length=64", "limit.examples=9")
    assert {name for name in before if before[name] == after[name]} == {"adapt", "pretrain", "pretrain_baseline"}
    for changed in ("limit.documents=9", "corpus.max_length=64", "limit.steps=9", "seed=1"):
        assert names(changed)["pretrain"] != before["pretrain"], changed


@pytest.mark.parametrize("gates", ["none", "movement"])
def test_the_processor_is_a_part_where_gates_are_trained_to_reach_a_time(
    gates: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, step = stage(tmp_path, "finetune", f"stages.finetune.gates.kind={gates}")
    names = []
    for processor in ("one", "another"):
        monkeypatch.setattr(keys, "processor", lambda machine, processor=processor: {"cpu": processor})
        names.append(run.of(step).name)
    assert (names[0] != names[1]) is (gates != "none")


@pytest.mark.parametrize("changed", ["stages.prune.dimensions=[layers,ffn]", "stages.quantize.schemes=[torchao]"])
def test_gates_are_trained_for_the_stages_that_prune_by_them_and_make_the_forms(changed: str, tmp_path: Path) -> None:
    loaded = [config.load_config(["recipe=cofi", *FILES[:1], *FILES[2:], *more]) for more in ([], [changed])]
    names = {"gated": set[str | None](), "finetune_teacher": set[str | None]()}
    for each in loaded:
        run = dataclasses.replace(stage(tmp_path, "finetune")[0], config=each, plan=resolve(each))
        for name in names:
            names[name].add(run.of(next(step for step in run.plan.steps if step.stage == name)).name)
    assert (len(names["gated"]), len(names["finetune_teacher"])) == (2, 1)


def test_steps_are_known_by_their_files_and_what_they_were_made_from(tmp_path: Path) -> None:
    """The settings of a vocabulary or prune stage are in no manifest."""
    run_folder.claim(tmp_path)
    step: Any = SimpleNamespace(folder="vocabulary", inputs=[], kind="vocabulary")

    def identity(token: str, made: Artefact, key: Key = KEY, seconds: float = 1.0, reused: bool = False) -> str:
        atomic.write_text(tmp_path / "vocabulary" / "own" / "tokenizer.json", f"[{token}]")
        cost = Cost(seconds=seconds, peak_memory_mib=seconds)
        RunFolder(tmp_path).complete(step, made, Record(key=key, cost=cost, reused=reused))
        return RunFolder(tmp_path).identity(step)

    before = identity("1", Trained(tokens=3, seconds=1.0))
    again = identity(
        "1",
        Trained(tokens=3, seconds=2.0, log=[Row(step=1, loss=0.5, terms={}, tokens_per_second=9.0)]),
        replace(KEY, packages="others", versions={"distill": "2"}),
        seconds=9.0,
        reused=True,
    )
    assert again == before
    assert identity("2", Trained(tokens=3, seconds=1.0)) != before
    assert identity("1", Trained(tokens=4, seconds=1.0)) != before
    assert identity("1", Trained(tokens=3, seconds=1.0), replace(KEY, settings="0f")) != before


def a_step(folder: str, *, on_corpus: bool = False, transfer: bool = False) -> Any:
    settings = SimpleNamespace(transfer=transfer)
    return SimpleNamespace(folder=folder, inputs=[], kind="train", on_corpus=on_corpus, settings=settings)


def test_models_that_other_code_began_are_not_kept_for_other_runs(tmp_path: Path) -> None:
    run_folder.claim(tmp_path)
    folder, own = RunFolder(tmp_path), a_step("finetune")
    began, now = replace(KEY, packages="before"), replace(KEY, packages="now")
    for key, parts, mixed in ((began, False, False), (now, False, False), (now, True, False), (began, True, True)):
        if parts:
            (tmp_path / "finetune.state").mkdir(exist_ok=True)
        folder.begin({"finetune": key}, [own])
        assert folder.mixed(own) == mixed
    folder.begin({"finetune": began}, [own])
    assert folder.mixed(own), "in a later start too"
    (tmp_path / "finetune.state").rmdir()  # it starts again
    assert not folder.mixed(own)


@pytest.mark.parametrize("change", [_precision, _processes])
def test_models_that_another_number_of_processes_began_are_not_kept(
    change: Callable[[Keys], Keys], tmp_path: Path
) -> None:
    run_folder.claim(tmp_path)
    run, step = stage(tmp_path, "finetune")
    run.folder.begin({step.folder: run.without_settings(step)}, [step])
    (tmp_path / "finetune.state").mkdir()
    run.folder.begin({step.folder: run.without_settings(step)}, [step])
    assert not run.folder.mixed(step)
    run.folder.begin({step.folder: change(run).without_settings(step)}, [step])
    assert run.folder.mixed(step)


def test_models_of_a_corpus_or_transfer_set_that_other_code_made_are_not_kept_for_other_runs(tmp_path: Path) -> None:
    """They are made before the first checkpoint of a training."""
    run_folder.claim(tmp_path)
    folder = RunFolder(tmp_path)
    reads = {"none": a_step("none"), CORPUS: a_step("one", on_corpus=True), TRANSFER: a_step("two", transfer=True)}
    folder.begin({step.folder: replace(KEY, packages="before") for step in reads.values()}, [*reads.values()])
    (tmp_path / CORPUS / "teacher").mkdir(parents=True)
    (tmp_path / TRANSFER / "task").mkdir(parents=True)
    folder.begin({step.folder: replace(KEY, packages="now") for step in reads.values()}, [*reads.values()])
    assert {name: folder.mixed(step) for name, step in reads.items()} == {"none": False, CORPUS: True, TRANSFER: True}
    folder.forget_given()
    assert not any(map(folder.mixed, reads.values()))


def test_the_scores_that_a_prune_step_measured_are_a_part_of_it(tmp_path: Path) -> None:
    """A model is cut by their mean over the tasks, which the models of single tasks need not show."""
    run_folder.claim(tmp_path)
    parts: dict[str, Any] = {"folder": "prune", "stage": "prune", "kind": "prune", "inputs": [], "cutter": None}
    pruner: Any = SimpleNamespace(**parts, source=lambda name: None)
    folder, names = RunFolder(tmp_path), []
    for scores in ("1", "1", "2"):
        atomic.write_text(tmp_path / "prune.measured" / "own" / "scores.safetensors", scores)
        atomic.write_text(tmp_path / "prune.measured" / "seconds.json", str(len(names)))
        folder.complete(pruner, Trained(), Record(key=KEY, cost=Cost(seconds=1.0, peak_memory_mib=None)))
        names.append(folder.identity(pruner))
    assert names[0] == names[1] != names[2]


def test_runs_with_other_seeds_share_a_teacher_that_has_a_seed_of_its_own(tmp_path: Path) -> None:
    def names(step: str, *own: str) -> set[str | None]:
        every = (stage(tmp_path, step, f"seed={seed}", *own) for seed in (0, 1))
        return {run.of(of_run).name for run, of_run in every}

    assert len(names("finetune_teacher")) == 2
    assert len(names("finetune_teacher", "teacher.seed=3")) == 1
    assert len(names("finetune", "teacher.seed=3")) == 2
    assert names("finetune_teacher", "teacher.seed=3").isdisjoint(names("finetune_teacher", "teacher.seed=4"))
