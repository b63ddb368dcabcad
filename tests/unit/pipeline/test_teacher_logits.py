"""What names the outputs of teachers in the cache: everything that changes one of them."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import config
from distill.config.plan import TEACHER, Step, resolve
from distill.errors import UserError
from distill.models.families.record import ABSENT
from distill.pipeline.artefacts import Cost, Key, Record, Trained
from distill.pipeline.context import Context
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import train
from distill.pipeline.train_steps import teacher_logits
from distill.pipeline.train_steps.time_estimate import _labelled
from distill.runtime.storage import cache, run_folder, structs
from tests import tiny


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fine-tuned classifier of labels a and b, 16 rows, and a cache with the outputs of a first run."""
    home = tmp_path_factory.mktemp("given")
    names = {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    tiny.save(home / "given", "bert", "SequenceClassification", initializer_range=0.5, **names)
    texts = tiny.SENTENCES * 2
    rows = [{"text": text, "other": text[::-1], "label": "ab"[n % 2]} for n, text in enumerate(texts)]
    (home / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with contextlib.chdir(home):
        logits(context(home, "first"))
    return home


@pytest.fixture
def home(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is the current one."""
    shutil.copytree(given, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def context(home: Path, output: str, *settings: str, precision: str = "fp32") -> Any:
    own = ["teacher=hub", "teacher.name=given", "student.name=given", "tasks.train=rows.jsonl", "tasks.text=text"]
    loaded = config.load_config(["recipe=task", *own, "tasks.label=label", "tasks.max_length=8", *settings])
    run_folder.claim(home / output)
    return Context(loaded, resolve(loaded), "task", "", tiny.machine(precision), RunFolder(home / output))


STUDENT = Step(
    "finetune", config.Train(data="tasks", optimizer={}), sources=dict.fromkeys(("start", "teacher"), (TEACHER,))
)
"""A stage in which the given teacher labels the rows."""


def labelled(ctx: Context, student: Step = STUDENT) -> np.ndarray:
    (data,) = ctx.tasks.values()
    (inputs,) = train.inputs(ctx, student).members
    assert inputs.teacher is not None
    return np.array(teacher_logits.teacher_logits(inputs.teacher, data, ctx.runtime))


def logits(ctx: Context) -> np.ndarray:
    """As a run gets them, with a cache."""
    with cache.using("shared"):
        return labelled(ctx)


def computed(ctx: Context) -> np.ndarray:
    """As they are without one."""
    (data,) = ctx.tasks.values()
    folder, window = ctx.checkpoint(TEACHER), ctx.config.teacher.window
    return teacher_logits._logits(folder, ctx.given.tokenizer, data, data.train, window, ctx.runtime)


def of_first_run(home: Path) -> np.ndarray:
    (file,) = (home / "first").rglob(teacher_logits.LOGITS)
    stored: np.ndarray = np.load(file)
    return stored


def weights(home: Path) -> None:
    path = home / "given" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3:-1] = b"\x40\x40"
    path.write_bytes(content)


def truncation_side(home: Path) -> None:
    tiny.change(home / "given" / "tokenizer_config.json", truncation_side="left")


CHANGES: dict[str, tuple[Any, ...]] = {
    "order of the labels": ("tasks.labels=[b,a]",),
    "length": ("tasks.max_length=16",),
    "window": ("teacher.window=6",),
    "column": ("tasks.text=other",),
    "precision": ("bf16",),
    "weights": (weights,),
    "side on which texts are cut": (truncation_side,),
}


def test_an_equal_run_takes_the_outputs_of_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_logits, "_logits", lambda *settings: pytest.fail("is computed again"))
    assert (logits(context(home, "second")) == of_first_run(home)).all()


def test_outputs_of_a_teacher_with_the_same_files_are_taken_however_it_was_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given model that is used as it is has the same in runs with other seeds, and for a task of another name."""
    ctx = context(home, "second", "tasks.name=other")
    made = next(step for step in ctx.plan.steps if step.stage == "finetune_teacher")
    key = Key(inputs={}, given={"tasks": "other rows"}, versions={}, packages="", settings="of another seed")
    record = Record(key=key, cost=Cost(seconds=1.0, peak_memory_mib=None))
    shutil.copytree(home / "given", ctx.folder.of(made) / "other")
    structs.write(ctx.folder.of(made) / run_folder.MANIFEST, Trained(tasks=["other"], record=record))
    monkeypatch.setattr(teacher_logits, "_logits", lambda *settings: pytest.fail("is computed again"))
    taught = replace(STUDENT, sources=STUDENT.sources | {"teacher": (made,)})
    with cache.using("shared"):
        assert (labelled(ctx, taught) == of_first_run(home)).all()


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_that_differs_in_one_part_gets_its_own(change: str, home: Path) -> None:
    settings = [part for part in CHANGES[change] if isinstance(part, str) and part != "bf16"]
    for part in CHANGES[change]:
        if not isinstance(part, str):
            part(home)
    ctx = context(home, "second", *settings, precision="bf16" if "bf16" in CHANGES[change] else "fp32")
    found = logits(ctx)
    assert (found == computed(ctx)).all()
    assert not np.array_equal(found, of_first_run(home))  # of another column, other rows repeat
    assert len(list((home / "shared" / "logits").iterdir())) == 2


def test_outputs_in_a_run_folder_are_used_for_the_same_order_of_labels_alone(home: Path) -> None:
    before = of_first_run(home)
    found = logits(context(home, "first", "tasks.labels=[b,a]"))
    np.testing.assert_allclose(found, before[:, ::-1], rtol=1e-5)
    assert (before[:, 0] != before[:, 1]).all()


def test_outputs_in_a_run_folder_are_used_by_the_same_code_and_arithmetic_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may go on with another version. What it made before is then not kept for other runs as made by this one."""
    label, times = teacher_logits._logits, list[int]()

    def counted(*arguments: Any) -> np.ndarray:
        times.append(1)
        return label(*arguments)

    monkeypatch.setattr(teacher_logits, "_logits", counted)
    with cache.using("none"):
        labelled(context(home, "first"))
        assert not times
        monkeypatch.setattr(teacher_logits, "arithmetic", lambda machine: "another version")
        labelled(context(home, "first"))
        labelled(context(home, "first"))
    assert len(times) == 1


def test_outputs_that_are_not_finite_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    label = teacher_logits._logits
    monkeypatch.setattr(teacher_logits, "_logits", lambda *given: label(*given) * np.array([1, np.inf], np.float32))
    with pytest.raises(UserError, match=r"outputs of the teacher that are not finite for .* set precision=fp32"):
        logits(context(home, "second", "tasks.max_length=12"))


def test_rows_are_labelled_by_one_of_two_jobs_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one waits, and takes what the first one stored."""
    times, label = list[int](), teacher_logits._logits
    began = threading.Event()

    def slowly(*arguments: Any) -> np.ndarray:
        times.append(1)
        began.set()
        time.sleep(0.3)
        return label(*arguments)

    monkeypatch.setattr(teacher_logits, "_logits", slowly)
    jobs = [context(home, output, "tasks.max_length=12") for output in ("one", "two")]
    for ctx in jobs:
        assert ctx.tasks
    with cache.using("shared"), ThreadPoolExecutor(2) as pool:
        first = pool.submit(labelled, jobs[0])
        assert began.wait(30)
        second = pool.submit(labelled, jobs[1])
        assert (first.result() == second.result()).all()
    assert len(times) == 1


def test_files_that_change_while_they_are_read_are_refused_and_stored_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label, stored = teacher_logits._logits, set((home / "shared" / "logits").iterdir())

    def edited(*arguments: Any) -> np.ndarray:
        weights(home)
        return label(*arguments)

    monkeypatch.setattr(teacher_logits, "_logits", edited)
    with pytest.raises(UserError, match=r"the teacher: got other files while the run read them; must not change"):
        logits(context(home, "second", "tasks.max_length=12"))
    assert {*(home / "shared" / "logits").iterdir()} == stored
    assert not list((home / "second").rglob(teacher_logits.LOGITS))


def test_outputs_of_fewer_choices_and_of_shorter_windows_are_widened() -> None:
    one, two = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0, 5.0, 6.0]])
    found = teacher_logits._joined([one, two], halves=False)
    np.testing.assert_array_equal(found, [[1, 2, ABSENT, ABSENT], [3, 4, 5, 6]])
    found = teacher_logits._joined([one, two], halves=True)
    np.testing.assert_array_equal(found, [[1, ABSENT, 2, ABSENT], [3, 4, 5, 6]])


def test_the_estimate_leaves_out_rows_that_are_labelled() -> None:
    settings = config.Transfer(times=2.0)
    assert [_labelled(settings, 100, 30, 10, known) for known in (0, 100, 250, 300)] == [30, 20, 5, 0]
    assert _labelled(None, 100, 30, 10, 0) == 10
