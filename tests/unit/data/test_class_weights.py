"""Weights of labels against scikit-learn's balanced weights and torch's weighted losses; what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from distill import config, losses
from distill.data.class_weights import checked, described, of_labels, of_rows
from distill.data.files import Table
from distill.data.labelled import labelled_rows
from distill.data.task_types import MISSING, TASK_TYPES
from distill.data.tasks import TaskData, load_tasks
from distill.errors import ConfigError
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.pipeline.train_steps import tasks as steps
from distill.pipeline.validation.tasks import tasks
from tests import tiny

LABELS = ("fine", "odd", "bad", "never")


def classes(seed: int = 0, count: int = 300) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.choice([0, 1, 2, MISSING], count, p=[0.8, 0.1, 0.05, 0.05])


def test_balanced_classes_are_those_of_scikit_learn() -> None:
    targets = classes()
    weights = of_labels("balanced", targets, LABELS)
    assert weights is not None
    expected = compute_class_weight("balanced", classes=np.arange(3), y=targets[targets != MISSING])
    np.testing.assert_allclose(weights, [*expected, 1], rtol=1e-6)
    assert weights.dtype == np.float32
    assert of_rows(weights, targets[targets != MISSING]).mean() == pytest.approx(1)


def test_rows_with_a_balanced_label_of_several_weigh_as_much_as_those_without() -> None:
    targets = (np.random.default_rng(1).random((200, 4)) < [0.5, 0.1, 0.02, 0]).astype(np.int64)
    targets[7] = MISSING
    weights = of_labels("balanced", targets, LABELS)
    assert weights is not None
    known = np.delete(targets, 7, axis=0)
    of_known = of_rows(weights, known).reshape(known.shape)
    np.testing.assert_allclose(
        (of_known * (known == 1)).sum(axis=0)[:3], (of_known * (known == 0)).sum(axis=0)[:3], rtol=1e-5
    )
    assert weights[3] == 1
    always = np.ones((5, 1), np.int64)
    assert of_labels("balanced", always, ("all",)) == pytest.approx(0.2)


def test_weights_by_name_and_no_weights() -> None:
    assert of_labels(None, classes(), LABELS) is None
    found = of_labels(checked({"bad": "10", "odd": 2}, LABELS, LABELS, "tasks.class_weight"), classes(), LABELS)
    assert found is not None
    assert found.tolist() == [1, 2, 10, 1]
    with pytest.raises(
        ConfigError, match=r"tasks.class_weight: got a weight of worse; must be of the labels fine, odd"
    ):
        checked({"worse": 2}, LABELS, LABELS, "tasks.class_weight")


class _Outputs(nn.Module):
    """A model whose outputs are its parameter."""

    def __init__(self, outputs: np.ndarray) -> None:
        super().__init__()
        self.outputs, self.config = nn.Parameter(torch.tensor(outputs)), SimpleNamespace(num_hidden_layers=1)


def value(kind: str, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, patch: Any) -> torch.Tensor:
    """The sum of a term against labels, of a batch as a training collates it, with gradients."""
    task_type, model = TASK_TYPES[kind], _Outputs(outputs)
    patch.setattr("distill.losses.objective.outputs_of", lambda model, batch: model.outputs)
    patch.setattr("distill.losses.objective._arithmetic", lambda model, like: torch.enable_grad())
    labels = task_type.loss_targets(targets)
    batch = {"labels": torch.tensor(labels), "input_ids": torch.zeros(1)}
    if (labels == MISSING).any():
        batch["labelled"] = torch.tensor(np.flatnonzero(labels != MISSING))
    if weights is not None:
        batch["label_weights"] = torch.tensor(of_rows(weights, targets))
    terms = {"supervised": Term(1.0, "logits", "labels", "masked", losses.supervised)}
    return Objective(model, terms, rows=task_type.rows, label_rows=task_type.on_labels)(batch)[0]


@pytest.mark.parametrize("kind", ["classification", "token_classification"])
def test_classes_weigh_as_in_torch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets, weights = classes(count=40), np.array([0.5, 2, 7, 1], np.float32)
    outputs = np.random.default_rng(2).normal(size=(40, 4))
    expected = F.cross_entropy(
        torch.tensor(outputs), torch.tensor(targets), torch.tensor(weights).double(), ignore_index=MISSING,
        reduction="sum",
    )  # fmt: skip
    assert value(kind, outputs, targets, weights, monkeypatch).item() == pytest.approx(expected.item(), rel=1e-5)
    even = value(kind, outputs, targets, np.ones(4, np.float32), monkeypatch)
    assert even.item() == value(kind, outputs, targets, None, monkeypatch).item() != pytest.approx(expected.item())


def test_labels_weigh_as_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    targets, outputs = random.integers(0, 2, (30, 3)), random.normal(size=(30, 3))
    targets[4], weights = MISSING, np.array([4, 0.25, 9], np.float32)
    rows = targets[:, 0] != MISSING
    expected = F.binary_cross_entropy_with_logits(
        torch.tensor(outputs[rows]), torch.tensor(targets[rows]).double(), pos_weight=torch.tensor(weights).double(),
        reduction="sum",
    )  # fmt: skip
    assert value("multi_label", outputs, targets, weights, monkeypatch).item() == pytest.approx(
        expected.item(), rel=1e-5
    )


def load(kind: str, values: list[Any], **settings: Any) -> Any:
    rows = pa.table({"text": [f"Report number {n} of the day" for n in range(len(values))], "label": values})
    made = config.Task(kind=kind, text="text", label="label", **settings)
    return labelled_rows("reports", made, {"train": Table(rows, ("reports.csv",), (0,))}, None, "tasks").task


def test_the_setting_is_of_kinds_with_labels() -> None:
    names = ["fine"] * 30 + ["bad"] * 10
    assert load("classification", names).class_weight is None
    assert load("classification", names, class_weight="balanced").class_weight == "balanced"
    assert load("classification", names, class_weight={"bad": "3"}).class_weight == {"bad": 3.0}
    assert load("multi_label", [["fine", "bad"], ["fine"]] * 20, class_weight={"bad": 3}).class_weight == {"bad": 3.0}
    with pytest.raises(ConfigError, match=r"tasks.class_weight: got balanced; must be left out for regression"):
        load("regression", [n / 7 for n in range(40)], class_weight="balanced")
    with pytest.raises(ConfigError, match="got a weight of worse"):
        load("classification", names, class_weight={"worse": 3})


@pytest.mark.parametrize("given", ["none", "even", 3, [], {}, {"bad": 0}, {"bad": -1}, {"bad": "much"}, {"bad": True}])
def test_other_values_are_refused_before_files_are_read(given: Any) -> None:
    (line,) = map(str, tasks(config.Tasks(train="a.csv", class_weight=given)))
    assert "tasks.class_weight: got" in line
    assert "must be balanced, or finite weights above 0 of labels" in line


@pytest.mark.parametrize("given", [None, "balanced", {"bad": 3}, {"bad": "2.5", "fine": 1}])
def test_weights_are_allowed(given: Any) -> None:
    assert not list(tasks(config.Tasks(train="a.csv", class_weight=given)))


def test_weights_are_told_the_largest_first() -> None:
    assert (
        described(np.array([0.52, 12.5], np.float32), ["safe", "unsafe"]) == "weights of labels: unsafe 12.5, safe 0.52"
    )
    many = described(np.arange(1, 21, dtype=np.float32), [f"l{n}" for n in range(20)])
    assert many == "weights of labels: l19 20, l18 19, l17 18, l16 17, l15 16, l14 15, l13 14, 12 others, l0 1"


def test_labels_may_be_named_as_the_files_spell_them() -> None:
    def found(given: Any, names: tuple[str, ...], spelled: tuple[str, ...]) -> Any:
        return checked(given, names, spelled, "tasks.class_weight")

    assert found({1: 3}, ("fine", "bad"), ("0", "1")) == {"bad": 3.0}
    assert found({"bad": 3, 0: 2}, ("fine", "bad"), ("0", "1")) == {"bad": 3.0, "fine": 2.0}
    assert found({True: 3}, ("false", "true"), ("false", "true")) == {"true": 3.0}
    assert found({"a": 3, "A": 2}, ("a", "A"), ("a", "A")) == {"a": 3.0, "A": 2.0}
    with pytest.raises(ConfigError, match="got two weights of bad"):
        found({"bad": 3, 1: 2}, ("fine", "bad"), ("0", "1"))


def test_a_weight_for_all_tasks_is_left_out_for_kinds_without(tmp_path: Path) -> None:
    lines = [f"Report number {n} of the day,{(n % 2 and 'bad') or 'fine'},{n / 7}" for n in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label,grade", *lines]))
    each = {
        "named": config.Task(train=str(tmp_path / "rows.csv"), label="label", text="text"),
        "graded": config.Task(train=str(tmp_path / "rows.csv"), label="grade", text="text"),
    }
    loaded = load_tasks(config.Tasks(each=each, class_weight="balanced"), config.Limit(), 0)
    assert {name: data.task.class_weight for name, data in loaded.tasks.items()} == {
        "named": "balanced",
        "graded": None,
    }
    assert "graded: tasks.class_weight is not used, as regression has none" in loaded.notes
    each["graded"].class_weight = "balanced"
    with pytest.raises(ConfigError, match=r"tasks.each.graded.class_weight: got balanced; must be left out"):
        load_tasks(config.Tasks(each=each), config.Limit(), 0)


def collated(
    kind: str, columns: dict[str, Any], patch: pytest.MonkeyPatch, *, labels: bool = True, **settings: Any
) -> tuple[Any, list[str]]:
    """A batch of all rows as a training makes it, with a term on `labels` or without one, and what the run says."""
    said: list[str] = []
    made, rows = config.Task(kind=kind, text="text", label="label", **settings), pa.table(columns)
    labelled = labelled_rows("reports", made, {"train": Table(rows, ("reports.csv",), (0,))}, None, "tasks")
    assert labelled.train is not None
    train = Dataset(labelled.train.table)
    data, tokenizer = TaskData(labelled.task, train, {}, {}), tiny.tokenizer()
    encoded = data.encoded(train, tokenizer, 32)
    given = steps.TrainingRows(data, train, encoded, len(train), 1, None)
    patch.setattr(steps, "rows_of", lambda *args: given)
    patch.setattr(steps, "_teachers_or_logits", lambda *args: ([], None))
    accelerator = SimpleNamespace(process_index=0, num_processes=1)
    runtime = SimpleNamespace(machine=SimpleNamespace(accelerator=accelerator, log=said.append))
    on_labels = config.Term(compare_with="labels", loss={"_target_": "distill.losses.supervised", "_partial_": True})
    training: Any = steps.training_data(
        SimpleNamespace(name="finetune", tokenizer=tokenizer, teacher=None, given=None),  # type: ignore[arg-type]
        SimpleNamespace(terms={"supervised": on_labels} if labels else {}),  # type: ignore[arg-type]
        runtime,  # type: ignore[arg-type]
        data,
    )
    return training.collate(np.arange(len(train)), 0), said


def test_batches_of_classes_have_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fine"] * 30 + ["bad"] * 10 + [None]
    columns = {"text": [f"Report number {n} of the day" for n in range(41)], "label": names}
    batch, _ = collated("classification", columns, monkeypatch, class_weight={"bad": 3})
    known = batch["labels"] != MISSING
    assert (~known).sum() == 1
    assert batch["labelled"].tolist() == np.flatnonzero(known).tolist()
    assert len(batch["label_weights"]) == len(batch["labels"])
    bad = sorted(["bad", "fine"]).index("bad")
    np.testing.assert_array_equal(batch["label_weights"][known], np.where(batch["labels"][known] == bad, 3, 1))
    monkeypatch.undo()
    batch, _ = collated("classification", columns, monkeypatch)
    assert "label_weights" not in batch


def test_a_training_without_a_term_on_labels_says_that_weights_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches have neither weights nor the numbers of labelled rows, which change the shapes of a step."""
    columns = {
        "text": [f"Report number {n} of the day" for n in range(41)],
        "label": ["fine"] * 30 + ["bad"] * 10 + [None],
    }
    batch, said = collated("classification", columns, monkeypatch, labels=False, class_weight={"bad": 3})
    assert not {"label_weights", "labelled"} & batch.keys()
    assert said == [
        "finetune/reports: tasks.class_weight has no effect, because no term of this stage compares with labels"
    ]


def test_batches_of_words_have_weights_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [["the", "grey", "heron", "was", "here"][: 3 + n % 3] for n in range(30)]
    tags = [["O", "O", "BIRD", "O", "O"][: len(each)] for each in words]
    columns = {"text": words, "label": tags}
    batch, _ = collated("token_classification", columns, monkeypatch, class_weight="balanced")
    assert len(batch["label_weights"]) == len(batch["labels"]) == len(batch["words"])
    counts = np.bincount(batch["labels"])
    expected = compute_class_weight("balanced", classes=np.arange(len(counts)), y=batch["labels"])
    np.testing.assert_allclose(batch["label_weights"], expected[batch["labels"]], rtol=1e-6)
