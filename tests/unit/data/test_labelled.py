"""Rows of own files become splits: what is set aside, what leaks, what has no label, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distill import config
from distill.data.files import Table
from distill.data.labelled import Labelled, labelled_rows
from distill.data.splits import MOST_ASIDE, Split, hashes, targets_of
from distill.data.task_types import MISSING, TASK_TYPES
from distill.errors import ConfigError, DataError, UserError
from distill.models.families.head import Head
from distill.pipeline.validation.tasks import tasks

COUNT = 200
TEXTS = [f"Customer {i} writes about order {i * 31 % 97}." for i in range(COUNT)]
CLASSES = [("billing", "fraud", "other")[i * 7 % 3] for i in range(COUNT)]

Rows = dict[str, Sequence[Any]]
TICKETS: Rows = {"text": TEXTS, "label": CLASSES}


def table(*parts: Rows, name: str = "train") -> Table:
    tables = [pa.table({column: pa.array(list(values)) for column, values in part.items()}) for part in parts]
    files = tuple(f"{name}{number or ''}.csv" for number in range(len(parts)))
    return Table(pa.concat_tables(tables), files, (0, *accumulate(map(len, tables)))[:-1])


def load(splits: dict[str, Rows], head: Head | None = None, **settings: Any) -> Labelled:
    tables = {name: table(rows, name=name) for name, rows in splits.items()}
    return labelled_rows("tickets", config.Task(**settings), tables, head, "tasks")


def texts(split: Split | None) -> list[str]:
    assert split is not None
    return split.table["text"].take(split.rows).to_pylist()


def learned(rows: Labelled) -> list[str]:
    """Texts of the training rows and of those of them on which choices are made."""
    return texts(rows.train) + texts(rows.development["development"])


def refused(splits: dict[str, Rows], **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(splits, **settings)
    (line,) = caught.value.messages
    return line


def test_a_kind_of_ones_own_has_the_settings_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in (("stars", "regression"), ("queue", "classification")):
        monkeypatch.setitem(TASK_TYPES, name, replace(TASK_TYPES[other], name=name))
    rows = {"train": {"text": TEXTS, "label": [i % 5 for i in range(COUNT)]}}
    assert load(rows, kind="stars", range=[-1.0, 7.0]).task.range == (-1.0, 7.0)
    assert load(rows, kind="queue", labels=list("43210")).task.labels == tuple("43210")
    wrong: list[tuple[str, dict[str, Any], str]]
    wrong = [("queue", {"range": [0, 5]}, "regression"), ("stars", {"labels": ["a"]}, "classification")]
    for name, setting, other in wrong:
        assert f"must be left out for {name}; leave it out, or set tasks.kind={other}" in refused(
            rows, kind=name, **setting
        )


def test_settings_name_a_metric_of_ones_own_that_the_kind_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config.Tasks(train="train.csv", metrics=["accuracy", "mine"])
    assert "metrics: got mine" in refused({"train": TICKETS}, metrics=["mine"])
    assert any("metrics: got mine" in str(line) for line in tasks(settings))
    kind = TASK_TYPES["classification"]
    monkeypatch.setitem(TASK_TYPES, kind.name, replace(kind, all_metrics=(*kind.all_metrics, "mine")))
    assert load({"train": TICKETS}, metrics=["accuracy", "mine"]).task.metrics == ("accuracy", "mine")
    assert not list(tasks(settings))


def test_rows_have_the_targets_of_their_labels() -> None:
    rows = load({"train": TICKETS})
    assert rows.task.labels == ("billing", "fraud", "other")
    assert (rows.task.name, rows.task.columns, rows.task.outputs) == ("tickets", ("text",), 3)
    for split in (rows.train, rows.reported["validation"]):
        assert split is not None
        expected = [rows.task.labels.index(CLASSES[TEXTS.index(text)]) for text in texts(split)]
        assert targets_of(split).tolist() == expected
    assert rows.notes[0] == (
        "tickets: text from text, label from label: classification with 3 labels (billing, fraud, other)"
    )


def test_about_a_fifth_is_set_aside() -> None:
    rows = load({"train": TICKETS})
    aside = texts(rows.reported["validation"])
    assert sorted(learned(rows) + aside) == sorted(TEXTS)
    assert 0.12 < len(aside) / COUNT < 0.28  # three standard deviations
    assert rows.notes[1] == (
        f"tickets: {len(aside)} of {COUNT} labelled training rows are set aside for validation, by a hash of their text"
    )


def test_a_given_model_may_have_seen_the_rows_that_are_set_aside() -> None:
    head = Head(3, ("billing", "fraud", "other"), None)
    (said,) = [note for note in load({"train": TICKETS}, head).notes if "has seen" in note]
    assert "if the given model was trained on rows of this file" in said
    assert said.endswith("set tasks.test=FILE to rows that it has not seen")
    tested = load({"train": TICKETS, "test": {"text": ["x", "y", "z"] * 4, "label": CLASSES[:12]}}, head)
    (said,) = [note for note in tested.notes if "has seen" in note]
    assert "it has seen the rows on which choices are made" in said
    assert said.endswith("set tasks.development=FILE to rows that it has not seen")
    assert not any("has seen" in note for note in load({"train": TICKETS}).notes)


@pytest.mark.slow
def test_no_more_than_a_number_of_rows_is_set_aside() -> None:
    count = 20 * MOST_ASIDE
    rows = load({"train": {"text": [str(i) for i in range(count)], "label": np.arange(count) % 2}})
    assert len(rows.reported["validation"].rows) == pytest.approx(MOST_ASIDE, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_does_not_change_which_texts_validate(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(COUNT)
    before = load({"train": TICKETS})
    after = load({"train": {name: [values[i] for i in order] for name, values in TICKETS.items()}})
    assert set(texts(after.reported["validation"])) == set(texts(before.reported["validation"]))
    of = [dict(zip(texts(r.train), targets_of(r.train), strict=True)) for r in (before, after) if r.train is not None]
    assert of[0] == of[1]


def test_more_rows_keep_the_others_in_their_split() -> None:
    before = load({"train": {name: values[:120] for name, values in TICKETS.items()}})
    after = load({"train": TICKETS})
    assert set(texts(before.reported["validation"])) <= set(texts(after.reported["validation"]))
    assert set(texts(before.train)) <= set(texts(after.train))


def test_copies_of_a_text_are_in_one_split() -> None:
    copies = {"text": [*TEXTS, *(f" {text}\n" for text in TEXTS), *TEXTS], "label": CLASSES * 3}
    rows = load({"train": copies})
    splits = (rows.train, rows.development["development"], rows.reported["validation"])
    parts = [{text.strip() for text in texts(split)} for split in splits]
    assert sum(map(len, parts)) == COUNT
    assert set().union(*parts) == set(TEXTS)
    assert not any("are copies of" in note for note in rows.notes)


def test_a_pair_is_one_text() -> None:
    settings = {"text": "text", "text_pair": "other"}
    rows = load({"train": {"text": ["same"] * COUNT, "other": TEXTS, "label": CLASSES}}, **settings)
    assert 0 < len(rows.reported["validation"].rows) < COUNT
    first, second = (pa.table({"text": [a], "other": [b]}) for a, b in (("ab", "c"), ("a", "bc")))
    row = np.zeros(1, np.int64)
    assert hashes(Split(first, row), ("text", "other")) != hashes(Split(second, row), ("text", "other"))


def test_a_given_validation_file_is_used_whole() -> None:
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": TICKETS, "validation": given})
    assert texts(rows.reported["validation"]) == given["text"]
    assert sorted(learned(rows)) == sorted(TEXTS)


def test_choices_are_made_on_a_tenth_of_the_training_rows() -> None:
    """Rows that are reported choose nothing, whichever files are given."""
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    for splits in ({}, {"validation": given}, {"test": given}):
        rows = load({"train": TICKETS} | splits)
        assert list(rows.development) == ["development"]
        chosen = texts(rows.development["development"])
        assert 0.03 < len(chosen) / COUNT < 0.17  # three standard deviations
        assert not {*chosen} & {*texts(rows.train)}
        assert all(not {*chosen} & {*texts(split)} for split in rows.reported.values())
        assert f"tickets: choices are made on {len(chosen)} of " in rows.notes[-1]
    own = {"text": [f"Own text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": TICKETS, "validation": given, "development": own})
    assert texts(rows.development["development"]) == own["text"]
    assert texts(rows.train) == TEXTS
    assert list(rows.reported) == ["validation"]


def test_training_rows_with_too_few_labels_choose_nothing() -> None:
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    few = {name: values[:9] for name, values in TICKETS.items()}
    rows = load({"train": few, "validation": given})
    assert rows.development == rows.reported
    assert "so choices are made on the rows that are reported" in rows.notes[-1]


def test_with_a_test_file_choices_are_made_on_the_validation_rows() -> None:
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": TICKETS, "validation": {name: values[:2] for name, values in given.items()}, "test": given})
    assert len(rows.development["validation"].rows) == 2
    assert list(rows.reported) == ["test"]
    assert texts(rows.reported["test"]) == given["text"]
    assert texts(rows.train) == TEXTS


@pytest.mark.parametrize("split", ["validation", "test"])
def test_leaked_rows_are_left_out_of_training(split: str) -> None:
    leaked = {"text": [*(f"{text}  " for text in TEXTS[:10]), "Another."], "label": CLASSES[:11]}
    rows = load({"train": TICKETS, split: leaked})
    assert not {text.strip() for text in leaked["text"]} & set(texts(rows.train))
    assert rows.notes[1] == (
        "tickets: 10 training rows are copies of development, validation or test rows and are left out of training, "
        f"e.g. {TEXTS[0]!r}"
    )
    kept = load({"train": TICKETS, split: leaked}, drop_leaked=False)
    assert set(TEXTS[:10]) <= set(learned(kept))
    assert "kept in training, because drop_leaked is false" in kept.notes[1]


@pytest.mark.parametrize("counts", [{}, {"train": 200, "validation": 5}], ids=["own", "published"])
def test_rows_that_differ_in_case_and_spaces_beside_punctuation_are_copies(counts: dict[str, int]) -> None:
    held = [TEXTS[0].upper(), TEXTS[1].replace(".", " ."), TEXTS[2].replace(" ", "  "), ":-)", "5 + 3"]
    train = {"text": [*TEXTS, ":-)", ":-(", "5 - 3", "C++", "C#"], "label": [*CLASSES, *CLASSES[:5]]}
    rows = load({"train": train, "validation": {"text": held, "label": CLASSES[:5]}}, rows=counts)
    kept = set(learned(rows)) | set(texts(rows.development["development"]))
    assert {*TEXTS, ":-)", ":-(", "5 - 3", "C++", "C#"} - kept == {*TEXTS[:3], ":-)"}
    assert any("tickets: 4 training rows are copies of" in note for note in rows.notes)


def test_a_copy_of_a_row_that_is_set_aside_is_not_trained_on() -> None:
    copies = [text.upper() for text in TEXTS]
    rows = load({"train": {"text": [*TEXTS, *copies], "label": CLASSES * 2}})
    parts = [rows.train, rows.development["development"], rows.reported["validation"]]
    train, *aside = ({text.casefold() for text in texts(split)} for split in parts)
    assert train
    assert not any(train & part for part in aside)
    assert sum(len(texts(split)) for split in parts) == 2 * COUNT, "no labelled row is lost"


def test_a_test_text_chooses_nothing() -> None:
    """The part that is set aside has no text of the test file, on which scores are reported."""
    leaked = {name: values[:60] for name, values in TICKETS.items()}
    rows = load({"train": TICKETS, "test": leaked})
    assert not set(texts(rows.development["development"])) & set(leaked["text"])


def test_unlabelled_rows_train_and_do_not_validate() -> None:
    blank = [i % 2 == 0 for i in range(COUNT)]
    rows: Rows = TICKETS | {"label": ["" if b else label for b, label in zip(blank, CLASSES, strict=True)]}
    got = load({"train": rows})
    assert got.train is not None
    assert (targets_of(got.train) == MISSING).sum() == sum(blank)
    assert (targets_of(got.reported["validation"]) != MISSING).all()
    given = load({"train": TICKETS, "validation": rows | {"text": [f"Other {i}." for i in range(COUNT)]}})
    assert len(given.reported["validation"].rows) == COUNT // 2
    assert f"tickets validation: {COUNT // 2} rows without a label are left out" in given.notes


def test_an_unlabelled_validation_row_is_no_leak() -> None:
    unlabelled = {"text": [*TEXTS[:5], "x", "y"], "label": [None] * 5 + ["billing", "fraud"]}
    assert len(learned(load({"train": TICKETS, "validation": unlabelled}))) == COUNT


def test_an_unlabelled_copy_of_a_validation_text_does_not_train() -> None:
    rows: Rows = {"text": TEXTS * 2, "label": [*CLASSES, *[""] * COUNT]}
    got = load({"train": rows})
    assert not set(texts(got.train)) & set(texts(got.reported["validation"]))


def test_columns_of_0_and_1_are_labels_in_their_order() -> None:
    flags: Rows = {
        "text": TEXTS,
        "urgent": ["1", "0"] * 100,
        "never": [0] * COUNT,
        "angry": [True, False, False, True] * 50,
    }
    rows = load({"train": flags}, label=["urgent", "never", "angry"])
    assert rows.task.labels == ("urgent", "never", "angry")
    for split in (rows.train, rows.reported["validation"]):
        assert split is not None
        expected = [[TEXTS.index(t) % 2 == 0, False, TEXTS.index(t) % 4 in (0, 3)] for t in texts(split)]
        np.testing.assert_array_equal(targets_of(split), expected)


def test_a_head_orders_the_columns() -> None:
    flags: Rows = {"text": TEXTS, "Urgent": [1, 0] * 100, "angry": [1, 1, 0, 0] * 50}
    rows = load({"train": flags}, Head(2, ("angry", "urgent"), None), label=["Urgent", "angry"])
    assert rows.task.labels == ("angry", "urgent")
    assert targets_of(Split(rows.train.table, np.arange(4))).tolist() == [[1, 1], [1, 0], [0, 1], [0, 0]]  # type: ignore


def test_the_range_of_numbers() -> None:
    rows: Rows = {"text": TEXTS, "score": [None, *(i / 8 for i in range(1, COUNT))]}
    task = load({"train": rows}, label="score").task
    assert task.range is not None
    assert task.outputs == 1
    assert 0.1 < task.range[0] < 1 < 20 < task.range[1] <= 24.875
    assert load({"train": rows}, label="score", range=[0, 30]).task.range == (0, 30)
    assert refused({"train": rows}, label="score", range=[0, 20]).startswith(
        "train.csv, row 162: got label 20.125; must "
    )


def test_rows_of_several_files_keep_their_place() -> None:
    part = {name: values[:20] for name, values in TICKETS.items()}
    other = part | {"label": [*CLASSES[:5], "sales", *CLASSES[6:20]]}
    tables = {"train": table(TICKETS), "validation": table(part, other, name="val")}
    with pytest.raises(
        DataError, match=r"^val1\.csv, row 6: got label 'sales'; must be one of billing, fraud, other; "
    ):
        labelled_rows("tickets", config.Task(), tables, None, "tasks")


def test_metrics_are_those_of_the_kind_unless_they_are_set() -> None:
    assert load({"train": TICKETS}).task.metrics == ("accuracy", "f1_macro")
    assert load({"train": TICKETS}, metrics=["matthews"]).task.metrics == ("matthews",)
    with pytest.raises(
        ConfigError, match=r"^tasks.metrics: got pearson, spearman; must be of accuracy, .* for classif"
    ):
        load({"train": TICKETS}, metrics=["pearson", "spearman", "accuracy"])


SHORT: Rows = {name: values[:7] for name, values in TICKETS.items()}
REFUSED: dict[str, tuple[dict[str, Rows], dict[str, Any], str]] = {
    "too few rows": (
        {"train": SHORT, "validation": TICKETS | {"text": TEXTS[::-1]}}, {"drop_leaked": False, "label": "label"},
        "train.csv: got 7 labelled train rows; must have 8 or more; add rows",
    ),
    "too few to validate": (
        {"train": TICKETS, "validation": {"text": ["x"], "label": ["fraud"]}}, {},
        "validation.csv: got 1 labelled validation rows; must have 2 or more; add rows",
    ),
    "no label in the test file": (
        {"train": TICKETS, "test": {"text": ["x", "y"], "label": ["", ""]}}, {"test": "test.csv"},
        "test.csv: got 0 labelled test rows; must have 2 or more; add rows",
    ),
    "one class": (
        {"train": TICKETS | {"label": ["a"] * COUNT}}, {},
        "train.csv: got only the label 'a' in label; must be two labels or more; add rows, or set tasks.label=COLUMN",
    ),
    "one class of two listed": (
        {"train": TICKETS | {"label": ["a"] * COUNT}}, {"labels": ["a", "b"]},
        "train.csv: got the same label in all rows; must be two labels or more; add rows",
    ),
    "no label": (
        {"train": TICKETS | {"label": [None] * COUNT}}, {},
        "train.csv: got no label in label; must be two labels or more; add rows, or set tasks.label=COLUMN",
    ),
    "no list with a label": (
        {"train": TICKETS | {"label": [[]] * COUNT}}, {},
        "train.csv: got no label in label; must be two labels or more; add rows, or set tasks.label=COLUMN",
    ),
    "one number": (
        {"train": TICKETS | {"label": [0.5] * COUNT}}, {},
        "train.csv: got the same label in all rows; must be two labels or more; add rows",
    ),
    "no label is a number": (
        {"train": TICKETS | {"label": [None] * COUNT}}, {"kind": "regression"},
        "train.csv: got 0 labelled train rows; must have 8 or more; add rows",
    ),
    "other columns": (
        {"train": TICKETS, "test": {"body": ["x"], "label": ["fraud"]}}, {},
        "test.csv: got columns body, label; must have text, as the training rows do; add or rename it",
    ),
    "numbers as texts": (
        {"train": TICKETS, "test": {"text": [1], "label": ["fraud"]}}, {},
        "test.csv: got int64 in column text; must be text; convert it",
    ),
    "lists as classes": (
        {"train": TICKETS, "test": {"text": ["x"], "label": [["fraud", "other"]]}}, {},
        "tasks.label: got lists of several labels in 1 rows in column label of train.csv; must be one label for "
        "classification; set tasks.kind=multi_label",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_cannot_be_used_are_refused(name: str) -> None:
    splits, settings, message = REFUSED[name]
    assert refused(splits, **settings) == message


@pytest.mark.parametrize(
    ("kind", "by", "groups"),
    [("question_answering", "context", 50), ("question_answering", "context", 1), ("reranking", "query", 50)],
)
def test_questions_of_a_context_and_documents_of_a_query_are_in_one_split(kind: str, by: str, groups: int) -> None:
    """Unless there are too few contexts: then questions are set aside."""
    text, other = (TEXTS[n % groups] for n in range(COUNT)), (f"what {n}" for n in range(COUNT))
    columns: Rows = {by: list(text), "question" if by == "context" else "document": list(other)}
    label = [each.split()[0] for each in columns[by]] if by == "context" else [n % 2 for n in range(COUNT)]
    pair = ("question", "context") if by == "context" else ("query", "document")
    rows = load({"train": columns | {"answers": label}}, kind=kind, text=pair[0], text_pair=pair[1], label="answers")
    assert rows.train is not None
    splits = (rows.train, rows.development["development"], rows.reported["validation"])
    kept, chosen, aside = (part.table[by].take(part.rows).to_pylist() for part in splits)
    assert len(kept) + len(chosen) + len(aside) == COUNT
    assert 0 < len(aside) < COUNT / 2
    assert bool({*kept} & {*aside}) == bool({*kept} & {*chosen}) == (groups == 1)


@pytest.mark.parametrize("labels", [("toxic",), ()])
@pytest.mark.parametrize("values", [(0, 1), ("0", "1"), (False, True), (0.0, 1.0)])
def test_a_column_of_0_and_1_tells_who_has_the_only_label_of_a_head(
    labels: tuple[str, ...], values: tuple[Any, Any]
) -> None:
    flags = [i % 3 == 0 for i in range(COUNT)]
    rows = {"text": TEXTS, "toxic": [values[flag] for flag in flags]}
    found = load({"train": rows}, Head(1, labels, "multi_label_classification"), label="toxic")
    assert (found.task.kind.name, found.task.labels) == ("multi_label", labels or ("0",))
    assert found.train is not None
    given = {text: int(flag) for text, flag in zip(TEXTS, flags, strict=True)}
    assert targets_of(found.train).ravel().tolist() == [given[text] for text in texts(found.train)]


def test_training_rows_that_are_all_copies_are_named_as_such() -> None:
    message = refused({"train": TICKETS, "test": {"text": [text.upper() for text in TEXTS], "label": CLASSES}})
    assert message == (
        f"tickets: got {COUNT} training rows, which are all copies of development, validation or test rows; must be "
        "others; give other files, or keep the copies with tasks.drop_leaked=false"
    )
    test = {"text": [text.upper() for text in TEXTS[4:]], "label": CLASSES[4:]}
    assert refused({"train": TICKETS, "test": test}).endswith(
        f"labelled train rows, besides {COUNT - 4} copies of rows of other splits; must have 8 or more; add rows, or "
        "keep the copies with tasks.drop_leaked=false"
    )


@pytest.mark.parametrize("other", ["validation", "test"])
def test_training_rows_whose_labels_are_made_up_choose_nothing(other: str) -> None:
    """A temperature would be fitted to the teacher's own answers."""
    taught = {"text": TEXTS, "soft": [{label: 1.0} for label in CLASSES]}
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": taught, other: given}, soft_label="soft")
    assert (texts(rows.train), list(rows.reported)) == (TEXTS, [other])
    assert rows.development == rows.reported
    said = "tickets: the training rows have no labels of their own, so choices are made on the rows that are reported"
    assert said in rows.notes
    own = {"text": [f"Own text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": taught, other: given, "development": own}, soft_label="soft")
    assert texts(rows.development["development"]) == own["text"]
    assert said not in rows.notes


def test_models_are_not_scored_by_labels_that_are_made_up() -> None:
    taught = {"text": TEXTS, "soft": [{label: 1.0} for label in CLASSES]}
    own = {"text": [f"Own text {i}." for i in range(9)], "label": CLASSES[:9]}
    line = refused({"train": taught, "development": own}, soft_label="soft")
    assert line.startswith("tasks.test: got nothing, and soft alone in the training rows, which cannot score a model;")


def test_labels_that_are_made_up_have_the_spelling_of_the_other_files() -> None:
    taught = {"text": TEXTS, "soft": [{label.upper(): 1.0} for label in CLASSES]}
    given = {"text": [f"Other text {i}." for i in range(9)], "label": CLASSES[:9]}
    rows = load({"train": taught, "validation": given}, soft_label="soft")
    assert rows.task.labels == ("billing", "fraud", "other")
    assert rows.train is not None
    assert [rows.task.labels[number] for number in targets_of(rows.train)] == CLASSES
