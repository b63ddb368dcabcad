"""Cross-fitted logits: each training row is labelled by a model that was not trained on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from distill.config import Limit, Train
from distill.config.plan import TEACHER, Step
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.errors import Stopped
from distill.models import teacher
from distill.pipeline.artefacts import TaskModel
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages.train import _cross_fitted
from distill.pipeline.train_steps import tasks, teacher_logits
from distill.pipeline.train_steps.folds import CrossFitted, fold_of, in_folds
from distill.pipeline.train_steps.teacher_logits import Labeller
from distill.pipeline.validation.data import undivided
from distill.runtime.storage import run_folder
from tests import tiny
from tests.rounds import made

WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split()]
FINETUNED = Step("finetune_teacher", Train(role="teacher", data="tasks", folds=4), sources={"start": (TEACHER,)})
COUNT, NAME = 4, "finetune_teacher/a"


def rows(texts: list[str]) -> TaskData:
    """A task of pairs, whose second texts are all different."""
    columns = {"text": texts, "other": WORDS[: len(texts)], "label": [number % 2 for number in range(len(texts))]}
    task = Task("a", TASK_TYPES["classification"], ("text", "other"), ("x", "y"), ("accuracy",))
    return TaskData(task, Dataset.from_dict(columns), {}, {})


TEXTS = [f"{one} {other}" for one in "abcdef" for other in "abcde"]
DATA = rows(TEXTS + TEXTS[:10])


def constant(number: float) -> Any:
    """A classifier that outputs [number, -number] for every text."""
    model = tiny.model("bert", "SequenceClassification", num_labels=2, vocab_size=len(tiny.tokenizer()) + 3)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([number, -number]))
    return model


TOKENIZER = tiny.tokenizer()


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Of a run with a teacher that outputs [9, -9] for every text."""
    run_folder.claim(tmp_path)
    constant(9).save_pretrained(tmp_path / NAME)
    return Runtime(tiny.machine(), tmp_path, seed=0, limit=Limit(smoke=True), longest=16)


def labeller(runtime: Runtime) -> Labeller:
    models = Checkpoints("finetune_teacher", {"a": [runtime.folder / NAME]}, {"a": [1.0]}, [TOKENIZER])
    return Labeller(models, None, _cross_fitted(FINETUNED, RunFolder(runtime.folder), ["a"]), lambda: None)


def folded(runtime: Runtime, fit: Recorded) -> CrossFitted:
    return made(in_folds(COUNT, NAME, DATA, TOKENIZER, None, fit, runtime), runtime)


class Recorded:
    """A training that records its rows. The n-th model outputs n, from 1, for every text."""

    def __init__(self, stop: int | None = None) -> None:
        self.rows: dict[str, list[str]] = {}
        self.stop = stop

    def __call__(self, part: TaskData, name: str, runtime: Runtime) -> tuple[Any, TaskModel]:
        if name.endswith(f"/{self.stop}"):
            raise Stopped("stopped")
        self.rows[name] = part.train["text"][:]
        return constant(int(name.rpartition("/")[2])), TaskModel(steps=3, tokens=100, seconds=2.0)


@pytest.mark.parametrize("count", [2, 4, 30])
def test_rows_with_the_same_first_text_are_in_one_fold_and_no_fold_is_empty(count: int) -> None:
    numbers = fold_of(DATA, count)
    assert all(len({*numbers[[t == text for t in DATA.train["text"]]]}) == 1 for text in TEXTS)
    sizes = [
        len({DATA.train["text"][row] for row in np.flatnonzero(numbers == fold).tolist()}) for fold in range(count)
    ]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0
    order = np.random.default_rng(0).permutation(len(numbers))
    assert (fold_of(replace(DATA, train=DATA.train.select(order)), count) == numbers[order]).all()


def test_each_row_is_labelled_by_a_model_that_was_not_trained_on_it(runtime: Runtime) -> None:
    fit = Recorded()
    found = folded(runtime, fit)
    assert len(fit.rows) == COUNT
    labelled_by = found.logits[:, 0].round().astype(int)
    assert {*labelled_by.tolist()} == {1, 2, 3, 4}
    for text, number in zip(DATA.train["text"], labelled_by.tolist(), strict=True):
        trained_on = [name for name, texts in fit.rows.items() if text in texts]
        assert trained_on == [f"{NAME}.folds/{other}" for other in range(1, COUNT + 1) if other != number]
    assert (found.seconds, found.tokens) == (8.0, 400)


def test_a_stopped_run_does_not_train_a_finished_fold_again(runtime: Runtime) -> None:
    first, again, never = Recorded(stop=3), Recorded(), Recorded()
    with pytest.raises(Stopped):
        folded(runtime, first)
    resumed = folded(runtime, again)
    assert [*first.rows, *again.rows] == [f"{NAME}.folds/{number}" for number in range(1, COUNT + 1)]
    repeated = folded(runtime, never)
    assert never.rows == {}
    np.testing.assert_array_equal(resumed.logits, repeated.logits)


def store(runtime: Runtime) -> np.ndarray:
    found = folded(runtime, Recorded()).logits
    np.save(runtime.folder / NAME / teacher_logits.CROSS_FITTED, found, allow_pickle=False)
    return found


def test_rows_of_a_transfer_set_are_labelled_by_the_whole_model(runtime: Runtime) -> None:
    """And more of them in a later stage, while the task's own rows keep their logits."""
    found = store(runtime)
    for count in (0, 4, 8, 2):
        data = rows([*DATA.train["text"], *TEXTS[:count]])
        logits = teacher_logits.teacher_logits(labeller(runtime), data, runtime)
        np.testing.assert_array_equal(logits[: len(found)], found)
        np.testing.assert_allclose(logits[len(found) :], np.tile([9, -9], (count, 1)), rtol=1e-5)


def test_without_folds_all_rows_are_labelled_by_the_whole_model(runtime: Runtime) -> None:
    logits = teacher_logits.teacher_logits(labeller(runtime), DATA, runtime)
    np.testing.assert_allclose(logits, [[9, -9]] * len(DATA.train), rtol=1e-5)


@pytest.mark.parametrize("folds", [False, True])
def test_a_teacher_that_runs_in_each_step_does_not_replace_cross_fitted_logits(folds: bool, runtime: Runtime) -> None:
    """It runs for its hidden states. Without folds, it outputs the logits too."""
    found = store(runtime) if folds else None
    term: Any = SimpleNamespace(kind=SimpleNamespace(head=True), compare_with="teacher")
    labels, encoded = labeller(runtime), DATA.encoded(DATA.train, TOKENIZER, 16)
    models, logits = tasks._teachers_or_logits(labels, DATA, {"soft": term}, True, encoded, TOKENIZER, runtime)
    assert len(models) == 1
    assert (logits is None) if found is None else (logits == found).all()
    term.kind.head = False  # no term compares logits
    assert tasks._teachers_or_logits(labels, DATA, {"hidden": term}, True, encoded, TOKENIZER, runtime)[1] is None


def test_a_given_head_is_used_without_folds(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "in_folds", lambda *_: pytest.fail("a fold was trained"))
    given = tiny.save(runtime.folder / "given", "bert", "SequenceClassification", num_labels=2)
    lines: list[str] = []
    machine: Any = SimpleNamespace(log=lines.append, main=True, wait=lambda: None)
    inputs: Any = SimpleNamespace(
        name="finetune_teacher", seed=0, start={"a": given}, unpruned=None, pooler=None, tokenizer=TOKENIZER
    )
    runtime = replace(runtime, machine=machine)
    made(tasks.rounds(inputs, replace(FINETUNED.settings, skip_if_head=True), runtime, DATA), runtime)
    assert lines[-1] == f"{NAME}: no model is trained, so there are no folds, and students learn its own outputs"
    assert teacher_logits.cross_fitted(labeller(runtime), "a") is None
    assert _cross_fitted(TEACHER, RunFolder(runtime.folder), ["a"]) == {}
    teacher.load_classifier(runtime.folder / NAME, 2)


@pytest.mark.parametrize("kind", sorted(TASK_TYPES))
def test_only_kinds_whose_rows_are_texts_or_pairs_have_folds(kind: str) -> None:
    tasks = {"a": replace(DATA, task=replace(DATA.task, kind=TASK_TYPES[kind]))}
    folded = kind in ("classification", "multi_label", "regression", "reranking")
    message = f"stages.finetune_teacher.folds: got 4; must be 1 for {kind}, the kind of a; leave it out"
    assert [*map(str, undivided(tasks, [FINETUNED]))] == ([] if folded else [message])


def test_more_folds_than_texts_are_refused() -> None:
    tasks = {"a": rows(["one", "two", "two", "three "]), "b": DATA}
    (line,) = map(str, undivided(tasks, [FINETUNED]))
    assert "folds: got 4; must be <= 3, the number of different first texts" in line
    assert not [*undivided(tasks, [replace(FINETUNED, settings=replace(FINETUNED.settings, folds=3))])]
