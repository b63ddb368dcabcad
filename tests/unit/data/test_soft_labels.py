"""Soft labels: the outputs that stand for given probabilities, in every form of a file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.special import expit, rel_entr, softmax

from distill import config, losses
from distill.data.files import Table
from distill.data.labels import Labels
from distill.data.likely_labels import with_likely_labels
from distill.data.soft_labels import soft_outputs
from distill.data.task_types import TASK_TYPES, Columns, soft
from distill.data.tasks import load_tasks, soft_outputs_of
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import VECTORS
from distill.pipeline.train_steps import teacher_logits

LABELS = ("billing", "fraud", "other")
NUMBERS = {label: number for number, label in enumerate(LABELS)}
ROWS = [[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.3334, 0.3333, 0.3333], [1e-30, 0.5, 0.5]]


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def outputs(kind: str, values: pa.ChunkedArray) -> np.ndarray:
    soft = TASK_TYPES[kind].soft
    assert soft is not None
    return soft(values, NUMBERS, lambda row: f"t.jsonl, row {row + 1}", "soft")


def test_a_softmax_of_the_outputs_is_the_probabilities() -> None:
    found = outputs("classification", column(ROWS))
    assert found.dtype == np.float32
    np.testing.assert_allclose(softmax(found, axis=1), ROWS, atol=1e-6)
    assert softmax(found, axis=1)[1].tolist() == [1, 0, 0]


def test_sums_within_the_tolerance_are_scaled_to_1() -> None:
    found = outputs("classification", column([[0.6995, 0.2, 0.1]]))
    np.testing.assert_allclose(softmax(found, axis=1), np.array([[0.6995, 0.2, 0.1]]) / 0.9995, atol=1e-6)
    np.testing.assert_allclose(np.exp(found).sum(), 1, atol=1e-6)


def test_a_sigmoid_of_the_outputs_is_the_probabilities() -> None:
    given = [[0.9, 0.8, 0.0], [1.0, 0.5, 1e-3], [0.0, 0.0, 0.0]]
    found = outputs("multi_label", column(given))
    np.testing.assert_allclose(expit(found), given, atol=1e-6)
    assert expit(found)[2].tolist() == [0, 0, 0]
    assert found[1, 1] == 0


@pytest.mark.parametrize("kind", ["regression", "reranking"])
def test_numbers_are_outputs(kind: str) -> None:
    for values in (column([1.5, None, -2.0]), column(["1.5", "", "-2"])):
        np.testing.assert_array_equal(outputs(kind, values), [[1.5], [np.nan], [-2.0]])


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_every_form_is_the_same(kind: str) -> None:
    named = [dict(zip(LABELS, row, strict=True)) for row in ROWS]
    forms = [
        column(ROWS),
        column([np.array(row, np.float32) for row in ROWS]),
        column(ROWS, pa.list_(pa.float64(), 3)),
        column(named),
        column([[*row.items()] for row in named], pa.map_(pa.string(), pa.float64())),
        column([json.dumps(row) for row in ROWS]),
        column([json.dumps({f" {label} ": p for label, p in row.items()}) for row in named]),
        column([json.dumps({label: p for label, p in row.items() if p}) for row in named]),
        column([{label: p for label, p in row.items() if p} for row in named]),
    ]
    first = outputs(kind, forms[0])
    for form in forms[1:]:
        np.testing.assert_allclose(outputs(kind, form), first, rtol=1e-5)


@pytest.mark.parametrize("names", [(".hidden", "a.b", " two words "), ("a", "b", "c"), ("[0]", "é", "a/b")])
def test_objects_are_read_at_once_as_they_are_row_by_row(names: tuple[str, ...]) -> None:
    numbers = {name.strip(): number for number, name in enumerate(reversed(names))}
    values: list[Any] = [dict(zip(names, row, strict=True)) for row in [*ROWS, [0.25, 0.25, 0.5]]]
    values.insert(2, None)
    whole = pa.chunked_array([pa.array(values[:3]), pa.array(values[3:])]).slice(1)
    at_once = soft._at_once(whole, numbers, 3)
    assert at_once is not None
    text = pa.chunked_array([[None if row is None else json.dumps(row) for row in whole.to_pylist()]])
    by_row = soft._probabilities(text, numbers, str, "soft", needed=False)
    np.testing.assert_array_equal(at_once, by_row)
    assert np.isnan(at_once).all(axis=1).tolist() == [False, True, False, False, False]


def test_two_fields_of_one_label_are_read_row_by_row() -> None:
    fields = [pa.array([0.5, 1.0]), pa.array([0.5, 0.0]), pa.array([1.0, 0.0])]
    twice = pa.chunked_array([pa.StructArray.from_arrays(fields, ["billing", "fraud", " billing "])])
    assert soft._at_once(twice, NUMBERS, 3) is None
    null_inside = pa.chunked_array([pa.array([{"billing": 1.0, "fraud": None}, {"billing": 0.5, "fraud": 0.5}])])
    assert soft._at_once(null_inside, NUMBERS, 3) is None
    np.testing.assert_allclose(np.exp(outputs("classification", null_inside)), [[1, 0, 0], [0.5, 0.5, 0]], atol=1e-6)


@pytest.mark.parametrize("form", [column, lambda rows: column([json.dumps(row) for row in rows])])
def test_labels_are_named_as_labels_of_files_are(form: Any) -> None:
    """In another case, with other marks between words, and as transformers' pipelines return them."""
    numbers = {"not_safe": 0, "safe": 1}
    for rows in (
        [{"Not Safe": 0.25, "SAFE": 0.75}, {"Not Safe": 1.0, "SAFE": 0.0}],
        [
            [{"label": "safe", "score": 0.75}, {"label": "not-safe", "score": 0.25}],
            [{"label": "not_safe", "score": 1.0}],
        ],
    ):
        found = soft.log_probabilities(form(rows), numbers, str, "soft")
        np.testing.assert_allclose(np.exp(found), [[0.25, 0.75], [1.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
@pytest.mark.parametrize("empty", [None, "", "  ", "null", "[]", '{"fraud": null}'])
def test_rows_without_a_soft_label_are_unknown(kind: str, empty: str | None) -> None:
    found = outputs(kind, column([json.dumps(ROWS[0]), empty]))
    assert np.isnan(found).tolist() == [[False] * 3, [True] * 3]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_soft_targets_compare_with_the_probabilities(temperature: float) -> None:
    """KL by scipy at temperature 1; for probabilities of 0, value and gradient are finite at any."""
    student = torch.randn(4, 3, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    teacher = torch.from_numpy(outputs("classification", column(ROWS))).double()
    value = losses.soft_targets(student, teacher, temperature=temperature)
    given = np.array(ROWS) ** (1 / temperature)
    given /= given.sum(axis=1, keepdims=True)
    wanted = rel_entr(given, softmax(student.detach().numpy() / temperature, axis=1)).sum(axis=1) * temperature**2
    np.testing.assert_allclose(value.detach().numpy(), wanted, atol=1e-6)
    value.sum().backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()


WRONG: dict[str, tuple[str, list[Any], str]] = {
    "a sum": ("classification", [ROWS[0], [0.7, 0.2, 0.2]], "row 2: got probabilities in soft that sum to 1.1"),
    "one label twice": ("classification", ['{"Fraud": 0.5, "fraud": 0.5}'], "row 1: got 'Fraud', 'fraud' in soft, two"),
    "negative": ("classification", [[1.2, -0.2, 0.0]], "row 1: got probability 1.2 in soft; must be a number from"),
    "below 0": ("multi_label", [[0.2, -0.2, 0.0]], "row 1: got probability -0.2 in soft; must be a number from"),
    "above 1": ("multi_label", [[0.2, 1.01, 0.0]], "row 1: got probability 1.01 in soft; must be a number from"),
    "NaN": ("multi_label", [[0.2, float("nan"), 0.0]], "row 1: got probability nan in soft"),
    "infinity": ("multi_label", ["[0.2, Infinity, 0]"], "row 1: got probability inf in soft"),
    "null": ("multi_label", [[0.2, None, 0.0]], "row 1: got probability None in soft"),
    "text": ("multi_label", ['["0.2", 0, 0]'], "row 1: got probability '0.2' in soft"),
    "true": ("multi_label", ["[true, 0, 0]"], "row 1: got probability True in soft"),
    "too few": ("classification", [[0.5, 0.5]], "row 1: got 2 probabilities in soft; must be 3, one for each label"),
    "too many": ("multi_label", [[0.5] * 4], "row 1: got 4 probabilities in soft; must be 3, one for each label"),
    "another label": ("classification", [{"spam": 1.0}], "row 1: got label 'spam' in soft; must be of billing, fr"),
    "no JSON": ("classification", ["[1, 0, 0]", "[1, 0"], "row 2: got '[1, 0' in soft; must be a list of probabi"),
    "a number": ("multi_label", [0.5], "row 1: got 0.5 in soft; must be a list of probabilities, or an object with"),
    "a word": ("regression", ["1", "high"], "row 2: got 'high' in soft; must be a finite number"),
    "no number": ("reranking", [1.0, float("nan")], "row 2: got nan in soft; must be a finite number"),
    "a list": ("regression", [[1.0]], "row 1: got [1.0] in soft; must be a finite number"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_values_that_are_no_soft_labels_are_refused_with_their_row(case: str) -> None:
    kind, values, message = WRONG[case]
    with pytest.raises(DataError) as caught:
        outputs(kind, column(values))
    assert message in str(caught.value)
    assert str(caught.value).count(";") >= 2


COUNT = 60
TEXTS = [f"Customer {i} writes about order {i * 31 % 97}." for i in range(COUNT)]
SOFT = [None if i % 10 == 3 else {LABELS[i % 3]: 0.75, LABELS[(i + 1) % 3]: 0.25} for i in range(COUNT)]


def load(folder: Path, limit: config.Limit | None = None, soft: list[Any] = SOFT, **settings: Any) -> Any:
    with (folder / "tickets.jsonl").open("w") as file:
        for i in range(COUNT):
            row = {"probabilities": soft[i], "text": TEXTS[i], "label": None if i % 7 == 2 else LABELS[i % 3]}
            file.write(json.dumps(row) + "\n")
    tasks = config.Tasks(**{"train": str(folder / "tickets.jsonl"), "soft_label": "probabilities"} | settings)
    loaded = load_tasks(tasks, limit or config.Limit(), 0)
    return loaded.tasks["tickets"], loaded.notes


@pytest.mark.parametrize("limit", [None, 20])
def test_rows_keep_their_soft_labels(limit: int | None, tmp_path: Path) -> None:
    data, notes = load(tmp_path, config.Limit(examples=limit))
    assert data.task.columns == ("text",)
    assert f"tickets: soft labels from probabilities for {COUNT - 6} of {COUNT} rows of train" in notes
    found = soft_outputs_of(data.train)
    assert found is not None
    for text, row in zip(data.train["text"], found, strict=True):
        given = SOFT[TEXTS.index(text)]
        expected = [np.nan] * 3 if given is None else [given.get(label, 0.0) for label in LABELS]
        np.testing.assert_allclose(softmax(row), expected, atol=1e-6)
    assert soft_outputs_of(load(tmp_path, soft_label=None)[0].train) is None


def test_what_soft_labels_do_not_give_is_the_teachers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = load(tmp_path)
    taught = np.arange(3 * len(data.train), dtype=np.float32).reshape(-1, 3)
    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *_: taught)
    none: Any = None
    given, control = (teacher_logits.Labeller(none, None, {}, none, soft_first=first) for first in (True, False))
    learned, soft = teacher_logits.learned_outputs(given, data, none, none), soft_outputs_of(data.train)
    assert soft is not None
    missing = np.isnan(soft).any(axis=1)
    assert 0 < missing.sum() < len(missing)
    np.testing.assert_array_equal(learned[missing], taught[missing])
    np.testing.assert_array_equal(learned[~missing], soft[~missing])
    # The soft labels are of another teacher than the baseline from which a self-trained student learns.
    np.testing.assert_array_equal(teacher_logits.learned_outputs(control, data, none, none), taught)
    whole, _ = load(tmp_path, soft=[row or {"other": 1.0} for row in SOFT])
    monkeypatch.delattr(teacher_logits, "teacher_logits")  # no teacher is asked
    assert not np.isnan(teacher_logits.learned_outputs(given, whole, none, none)).any()


def test_nan_in_json_is_no_probability_of_0(tmp_path: Path) -> None:
    soft = [{"billing": 0.5, "fraud": float("nan")}, *SOFT[1:]]
    with pytest.raises(DataError, match="row 1: got probability nan in probabilities; must be a number from 0 to 1"):
        load(tmp_path, soft=soft)


def test_an_object_without_a_label_says_that_none_is_true_or_nothing() -> None:
    assert np.isnan(outputs("classification", column(["{}"]))).all()
    np.testing.assert_array_equal(expit(outputs("multi_label", column(["{}"]))), [[0, 0, 0]])
    every = pa.chunked_array([pa.array([{"billing": None, "fraud": None}, {"billing": 1.0, "fraud": 0.0}])])
    with pytest.raises(DataError, match="an object without any probability in soft, which may mean that no label is"):
        outputs("multi_label", every)  # Arrow has the same for {}


@pytest.mark.parametrize("start", [0, 1])
def test_numbers_are_read_as_the_labels_of_the_file_are_or_as_the_teachers(start: int) -> None:
    """The teacher counts its stars from 1, and the file from 0."""
    stars = Labels(("1", "2", "3"), ("0", "1", "2"))
    given = [{str(start + n): p for n, p in enumerate(row)} for row in ROWS]
    settings, kind = config.Task(soft_label="soft"), TASK_TYPES["classification"]
    for values in (given, [json.dumps(row) for row in given], [[*row.items()] for row in given]):
        kinds = pa.map_(pa.string(), pa.float64()) if isinstance(values[0], list) else None
        table = Table(pa.table({"soft": column(values, kinds)}), ("t.jsonl",), (0,))
        found = soft_outputs(settings, Columns(("text",), ("label",), kind), stars, table, table, "tasks")
        np.testing.assert_allclose(softmax(found, axis=1), ROWS, atol=1e-6)
    mixed = Table(pa.table({"soft": [json.dumps({"0": 0.5, "3": 0.5})]}), ("t.jsonl",), (0,))
    with pytest.raises(
        ConfigError, match=r"^tasks.soft_label: got 0, 3 in soft, where 0, 1, 2 of the files are 1, 2, 3"
    ):
        soft_outputs(settings, Columns(("text",), ("label",), kind), stars, mixed, mixed, "tasks")


def test_lists_are_in_the_order_of_the_labels(tmp_path: Path) -> None:
    lists = [[0.5, 0.25, 0.25]] * COUNT
    with pytest.raises(ConfigError, match=r"^tasks.labels: got nothing; must be the labels in the order of the prob"):
        load(tmp_path, soft=lists)
    with pytest.raises(ConfigError, match=r"^tasks.labels: got nothing; .* '?tasks.labels=\[billing,fraud,other\]'"):
        load(tmp_path, soft=[json.dumps(row) for row in lists])
    data, _ = load(tmp_path, soft=lists, labels=["other", "fraud", "billing"])
    found = soft_outputs_of(data.train)
    assert found is not None
    np.testing.assert_allclose(softmax(found, axis=1), [[0.5, 0.25, 0.25]] * len(data.train), atol=1e-6)
    assert data.task.labels == ("other", "fraud", "billing")


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "objects": (lambda p: dict(zip(LABELS, p, strict=True)), {}),
    "objects as text": (lambda p: json.dumps(dict(zip(LABELS, p, strict=True))), {}),
    "a pipeline's": (lambda p: [{"label": x, "score": y} for x, y in zip(LABELS, p, strict=True)], {}),
    "lists": (list, {"labels": [*LABELS]}),
}


@pytest.mark.parametrize("nulls", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_soft_labels_alone_have_the_most_probable_as_their_label(
    form: str, nulls: bool, tmp_path: Path
) -> None:
    """As when a language model labelled the training rows, and people the validation rows."""
    write, settings = FORMS[form]
    given = [np.roll([0.7, 0.2, 0.1], n % 3).tolist() for n in range(30)]
    train = [{"text": f"ticket {n} of today", "soft": write(p)} | ({"queue": None} if nulls else {})
             for n, p in enumerate(given)]  # fmt: skip
    gold = [{"text": f"a later ticket {n}", "queue": LABELS[n % 3]} for n in range(30)]
    for name, rows in (("train", train), ("validation", gold)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "validation")}
    loaded = load_tasks(config.Tasks(**files, label="queue", soft_label="soft", **settings), config.Limit(), 0)
    ((name, data),) = loaded.tasks.items()
    assert data.task.labels == LABELS
    learned = soft_outputs_of(data.train)
    assert learned is not None
    for text, label, found in zip(data.train["text"], data.train["label"], learned, strict=True):
        expected = given[int(text.split()[1])]
        assert label == np.argmax(expected)
        np.testing.assert_allclose(softmax(found), expected, atol=1e-6)
    assert f"{name} train: the rows have no queue; the most probable label in soft stands in for it" in loaded.notes


def test_rows_of_soft_labels_alone_need_labels_in_another_file(tmp_path: Path) -> None:
    """Else scores would be those of labels that nobody gave."""
    file = tmp_path / "train.jsonl"
    rows = [{"text": f"ticket {n} of today", "soft": {LABELS[n % 3]: 1.0}} for n in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match="label: got nothing"):
        load_tasks(config.Tasks(train=str(file), soft_label="soft"), config.Limit(), 0)


@pytest.mark.parametrize("head", [Head(16, (), None, VECTORS), Head(3, (), "multi_label_classification")])
def test_vectors_and_several_labels_are_no_probabilities_of_one(head: Head, tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "document": f"d {n}", "soft": [[0.5] * 3] * 2} for n in range(30)]
    tables = {"train": Table(pa.Table.from_pylist(rows), ("t.jsonl",), (0,))}
    judged = [{"query": f"a {n}", "document": f"b {n}", "label": n % 2} for n in range(30)]
    tables["test"] = Table(pa.Table.from_pylist(judged), ("j.jsonl",), (0,))
    settings = config.Task(soft_label="soft")
    assert with_likely_labels(settings, tables, head, [], "own", "tasks") is tables


def test_lists_alone_that_may_be_probabilities_need_the_names_of_their_order(tmp_path: Path) -> None:
    tables = {"test": Table(pa.table({"text": ["a", "b"], "label": ["in", "out"]}), ("j.jsonl",), (0,))}
    settings = config.Task(soft_label="soft")
    for given, refused in (([0.25, 0.75], True), ([0.5, 0.25, 0.25], False), ([3.0, -1.5], False)):
        tables["train"] = Table(pa.table({"text": ["c"], "soft": [given]}), ("t.jsonl",), (0,))
        if refused:
            with pytest.raises(ConfigError, match=r"^tasks.labels: got nothing; .* '?tasks.labels=\[in,out\]'"):
                with_likely_labels(settings, tables, None, [], "own", "tasks")
        else:
            assert with_likely_labels(settings, tables, None, [], "own", "tasks") is tables


def likely(soft: list[Any], gold: list[Any], head: Head | None = None, **settings: Any) -> list[Any]:
    """The labels of training rows with soft labels alone, beside test rows with labels."""
    tables = {
        "train": Table(pa.table({"text": [f"a {n}" for n in range(len(soft))], "soft": soft}), ("t.jsonl",), (0,)),
        "test": Table(pa.table({"text": [f"b {n}" for n in range(len(gold))], "label": gold}), ("j.jsonl",), (0,)),
    }
    found = with_likely_labels(config.Task(soft_label="soft", **settings), tables, head, [], "own", "tasks")
    return found["train"].rows["label"].to_pylist()


def test_the_most_probable_labels_are_those_of_the_settings_the_teacher_or_the_other_files() -> None:
    rows = [{"a": 0.9, "b": 0.1}, {"c": 1.0}]
    assert likely(rows, ["a", "b"], labels=["a", "b", "c"]) == ["a", "c"]
    assert likely(rows, ["a", "b"], Head(3, ("a", "b", "c"), "single_label_classification")) == ["a", "c"]
    assert likely([{"Card Lost": 1.0}, {"FRAUD": 1.0}], ["card_lost", "fraud"]) == ["card_lost", "fraud"]
    assert likely([{"b": 1.0}, {"a": 1.0}], [0, 1, 1], labels=["a", "b"]) == [1, 0]
    with pytest.raises(ConfigError) as caught:
        likely(rows, ["a", "b"])
    assert str(caught.value).replace("'tasks", "tasks").replace("]'", "]") == (
        "tasks.labels: got 'c' as the most probable label in soft of t.jsonl, row 2; must be one of a, b, as in label "
        "of j.jsonl; write it as there, or set tasks.labels=[a,b,c]"
    )


def test_lists_as_text_need_the_names_of_their_order_too() -> None:
    """As in a CSV."""
    rows = ["", "[0.25, 0.75]", "[1, 0]"]
    with pytest.raises(ConfigError, match=r"^tasks.labels: got nothing; .* '?tasks.labels=\[in,out\]'"):
        likely(rows, ["in", "out"])
    assert likely(rows, ["in", "out"], labels=["out", "in"]) == [None, "in", "out"]
    assert likely(['{"in": 1.0}'], ["in", "out"]) == ["in"]


def test_labels_of_another_column_are_not_replaced() -> None:
    rows = {"text": ["a", "b"], "category": ["in", "out"]}
    tables = {
        "train": Table(pa.table(rows | {"soft": [{"in": 1.0}, {"in": 1.0}]}), ("t.jsonl",), (0,)),
        "test": Table(pa.table(rows | {"label": ["in", "out"]}), ("j.jsonl",), (0,)),
    }
    assert with_likely_labels(config.Task(soft_label="soft"), tables, None, [], "own", "tasks") is tables
