"""Files as their writers meant them: lists as text, rejected rows, rows without a label, codes, numbers and names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from distill import config
from distill.cli.compare.rows import read_rows
from distill.data.files import read
from distill.data.labelled import Labelled, labelled_rows
from distill.data.listed import listed, of_answers, of_choices, parsed
from distill.data.splits import targets_of
from distill.errors import UserError
from distill.models.families.head import Head
from distill.models.families.record import TOKENS
from tests.parcels import cycles, splits_of, texts

pytestmark = pytest.mark.usefixtures("own_cache")

COUNT = 60
TEXTS, cycle = texts(COUNT), cycles(COUNT)


def load(folder: Path, head: Head | None = None, suffix: str = "csv", /, **columns: Any) -> Labelled:
    """The rows of a file that pandas writes. Columns that are no lists are settings."""
    settings = {name: columns.pop(name) for name in [*columns] if name in Settings and not is_column(columns[name])}
    frame = pd.DataFrame({"text": TEXTS, **columns})
    path = folder / f"parcels.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    table = read(str(path), "tasks.train")
    return labelled_rows("parcels", config.Task(**settings), {"train": table}, head, "tasks")


Settings = set(config.Task.__dataclass_fields__)


def is_column(value: Any) -> bool:
    return isinstance(value, list | np.ndarray | pd.Series) and len(value) == COUNT


def counts(rows: Labelled) -> Counter[str]:
    """Label -> rows of all splits."""
    found: Counter[str] = Counter()
    for part in splits_of(rows).values():
        for target in targets_of(part):
            numbers = np.flatnonzero(target == 1) if np.ndim(target) else [target] if target >= 0 else []
            found.update(rows.task.labels[int(number)] for number in numbers)
    return found


def refusal(folder: Path, head: Head | None = None, suffix: str = "csv", /, **columns: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, head, suffix, **columns)
    (line,) = caught.value.messages
    return line


SETS: list[list[str]] = [["late", "wet"], ["lost"], [], ["late"], ["lost", "late", "wet"], ['O\'Neil, "ground"']]
WRITTEN = {
    "python": [str(labels) for labels in SETS],
    "numpy": [str(np.array(labels, object)) for labels in SETS],
    "array": [repr(np.array(labels, object)) for labels in SETS],
    "json": [json.dumps(labels) for labels in SETS],
    "tuple": [str(tuple(labels)) for labels in SETS],
    "set": [str({*labels}) for labels in SETS],
    "label studio": [json.dumps({"choices": labels}) for labels in SETS],
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("kind", [None, "multi_label"])
def test_lists_as_text_are_lists(form: str, kind: str | None, tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle(*WRITTEN[form]), kind=kind)
    assert rows.task.kind.name == "multi_label"
    assert counts(rows) == Counter(label for labels in cycle(*SETS) for label in labels)
    assert "parcels: the lists in label are written as text" in rows.notes


@pytest.mark.parametrize(
    ("cell", "items"),
    [
        ("[billing, urgent]", ["billing", "urgent"]),
        ("[New York]", ["New York"]),
        ("[1 0 1]", [1, 0, 1]),
        ("[1. 0.5]", [1.0, 0.5]),
        ("['a'\n 'b']", ["a", "b"]),
        ("[]", []),
        ("set()", []),
        ("['it\\'s', None]", ["it's", None]),
        ("[007]", ["007"]),
        ("('a',)", ["a"]),
        ("array(['a', 'b'], dtype='<U1')", ["a", "b"]),
        ("array(['a, dtype=object', 'b'],\n      dtype=object)", ["a, dtype=object", "b"]),
        ("array([], dtype=float64)", []),
        ("[[0, 4, 'PER']]", [{"start": 0, "end": 4, "label": "PER"}]),
        ("word", ["word"]),
    ],
)
def test_forms_of_a_list(cell: str, items: list[Any]) -> None:
    assert parsed(cell) == items


@pytest.mark.parametrize(
    "cell", ["['a' ... 'b']", "[1 2 ... 9]", '{"rating": 4}', "['a", "[[1], [2]]", "[" * 9999, "array()"]
)
def test_what_is_no_list(cell: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(cell)


LONG: dict[str, tuple[str, list[list[str]] | None]] = {
    "an object": ("{'text':" + " " * 2000 + "}", None),
    "an array": ("array([" + " " * 60_000 + "])", [[]]),
    "a broken array": ("array([" + " " * 60_000 + "x", None),
    "digits": ("[" + "1" * 60_000 + "x]", [["1" * 60_000 + "x"]]),
}


@pytest.mark.parametrize("case", LONG)
def test_the_time_for_a_long_cell_does_not_grow_faster_than_the_cell(case: str) -> None:
    cell, expected = LONG[case]
    column = pa.chunked_array([[cell]])  # with cubic time it takes hours
    found = listed(column)
    assert (None if found is None else found.to_pylist()) == expected
    assert of_answers(column) is None
    assert of_choices(column) is None


def test_label_studio_writes_one_choice_as_a_word(tmp_path: Path) -> None:
    cells = cycle('{"choices": ["late", "wet"]}', "lost", "late", "")
    rows = load(tmp_path, damage=cells, annotator=cycle(1, 2), label="damage")
    assert rows.task.labels == ("late", "lost", "wet")
    assert counts(rows) == {"late": 30, "wet": 15, "lost": 15}


def test_cells_that_are_partly_json_are_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, label=cycle("['late', 'wet']", "lost", "late"))
    assert "got \"['late', 'wet']\" as a label in label; must be names of labels" in line
    assert "got '{\"rating\": 4}'" in refusal(tmp_path, label=cycle('{"rating": 4}', '{"rating": 5}'))


@pytest.mark.parametrize(
    "cells",
    [
        ['[["late","wet"]]', '[["lost"]]'],  # taxonomies of Label Studio
        ["{'late': 0, 'wet': 1}", "{'late': 1, 'wet': 0}"],
        ["['late', 'wet']", "lost", "late"],
        ["{late,wet}", "lost", "late"],
        ["[late, wet], [lost, torn]", "lost"],
    ],
)
def test_pieces_of_lists_and_objects_are_no_labels(cells: Sequence[str], tmp_path: Path) -> None:
    line = refusal(tmp_path, label=cycle(*cells), kind="multi_label")
    assert f"got {cells[0]!r} as a label in label; must be names of labels" in line


def test_names_in_brackets_may_be_joined(tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle("[late], [wet]", "[lost]", "{x}, {y}"), kind="multi_label")
    assert rows.task.labels == ("[late]", "[lost]", "[wet]", "{x}", "{y}")


@pytest.mark.parametrize("kind", [None, "multi_label"])
def test_arrays_of_postgresql_are_lists(kind: str | None, tmp_path: Path) -> None:
    """As `array_out` writes them: with quotes around items that have spaces, braces, commas, quotes or backslashes."""
    quoted = r"""{"a \"b\" \\ {c}, d",o'neil}"""
    cells = cycle("{late,wet}", "{lost}", "{}", '{"New York",NULL}', quoted)
    rows = load(tmp_path, label=cells, kind=kind)
    assert rows.task.kind.name == "multi_label"
    assert counts(rows) == Counter(dict.fromkeys(("late", "wet", "lost", "New York", 'a "b" \\ {c}, d', "o'neil"), 12))
    truths = load(tmp_path, label=cycle("{t,f,t}", "{f,f,f}", "{f,t,f}"), labels=["late", "lost", "wet"], kind=kind)
    assert counts(truths) == {"late": 20, "lost": 20, "wet": 20}
    numbers = load(tmp_path, label=cycle("{1,0,1}", "{0,0,0}", "{0,1,0}"), labels=["late", "lost", "wet"], kind=kind)
    assert counts(numbers) == {"late": 20, "lost": 20, "wet": 20}


def test_single_names_in_braces_are_classes(tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle("{late}", "{lost}"))
    assert (rows.task.kind.name, rows.task.labels) == ("classification", ("{late}", "{lost}"))


@pytest.mark.parametrize("kind", [None, "multi_label"])
def test_tags_of_stack_overflow_are_lists(kind: str | None, tmp_path: Path) -> None:
    rows = load(tmp_path, Tags=cycle("<late><c++>", "<late>", "<c++><lost-card>"), kind=kind)
    assert rows.task.kind.name == "multi_label"
    assert counts(rows) == {"late": 40, "c++": 40, "lost-card": 20}
    single = load(tmp_path, label=cycle("<late>", "<lost>"))
    assert (single.task.kind.name, single.task.labels) == ("classification", ("<late>", "<lost>"))


def test_lists_of_one_label_are_those_of_a_classifier(tmp_path: Path) -> None:
    cells = cycle("['late']", "['lost']")
    assert load(tmp_path, label=cells).task.kind.name == "multi_label"
    for head, kind in ((Head(2, ("late", "lost"), None), None), (None, "classification")):
        rows = load(tmp_path, head, label=cells, kind=kind)
        assert rows.task.kind.name == "classification"
        assert counts(rows) == {"late": 30, "lost": 30}
    assert "set tasks.kind=multi_label" in refusal(tmp_path, label=cycle("['a', 'b']", "['c']"), kind="classification")


def test_words_and_tags_as_text(tmp_path: Path) -> None:
    words = [str(["Ada", f"rang {i}"]) if i % 2 else json.dumps(["in", f"Rome{i}"]) for i in range(COUNT)]
    rows = load(tmp_path, tokens=words, ner_tags=cycle("['O' 'B-LOC']", "['B-PER' 'O']"))
    assert rows.task.kind.name == "token_classification"
    assert rows.task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.mark.parametrize("column", ["text", "sentence", "content"])
@pytest.mark.parametrize("kind", [None, "token_classification"])
def test_words_in_a_column_that_is_named_as_a_text(column: str, kind: str | None, tmp_path: Path) -> None:
    words = [["in", f"Rome{i}", "too"][: 2 + i % 2] for i in range(COUNT)]
    tags = [["O", "B-LOC", "O"][: 2 + i % 2] for i in range(COUNT)]
    frame = pd.DataFrame({column: words, "ner_tags": tags})
    frame.to_csv(tmp_path / "words.csv", index=False)
    table = read(str(tmp_path / "words.csv"), "tasks.train")
    rows = labelled_rows("words", config.Task(kind=kind), {"train": table}, None, "tasks")
    assert (rows.task.kind.name, rows.task.labels) == ("token_classification", ("O", "B-LOC", "I-LOC"))
    compared = read_rows(str(tmp_path / "words.csv"), config.Task(), (column,), architecture=TOKENS)
    assert compared.texts(np.arange(COUNT)) == words


def test_texts_in_brackets_beside_lists_of_labels_stay_texts(tmp_path: Path) -> None:
    texts = [f"[{i} parcels, late]" for i in range(COUNT)]
    rows = load(tmp_path, text=texts, label=cycle("['a', 'b', 'c']", "['a']", "['b', 'c', 'd', 'e']"))
    assert rows.task.kind.name == "multi_label"
    assert {text for part in splits_of(rows).values() for text in part.table["text"].to_pylist()} == {*texts}


def test_texts_in_brackets_beside_other_lists_stay_texts(tmp_path: Path) -> None:
    texts = [f"['{i} parcels', 'late']" for i in range(COUNT)]
    rows = load(tmp_path, text=texts, label=cycle("a", "b"), keywords=cycle("['x', 'y']", "['z', 'x']"))
    assert rows.task.columns == ("text",)
    assert {text for part in splits_of(rows).values() for text in part.table["text"].to_pylist()} == {*texts}


def test_a_decision_that_is_the_label_is_no_mark(tmp_path: Path) -> None:
    rows = load(tmp_path, final_decision=cycle("accept", "reject"))
    assert counts(rows) == Counter(accept=COUNT // 2, reject=COUNT // 2)
    rows = load(tmp_path, label=cycle("a", "b"), real_estate=cycle("open", "skip", "done"))
    assert not [note for note in rows.notes if "are used although" in note or "are left out" in note]


def test_spans_as_text(tmp_path: Path) -> None:
    spans = [json.dumps([{"start": 0, "end": 6, "text": "Parcel", "labels": ["ITEM"]}])] * COUNT
    rows = load(tmp_path, label=spans)
    assert rows.task.kind.name == "token_classification"
    assert rows.task.labels == ("O", "B-ITEM", "I-ITEM")


def test_a_0_or_1_for_each_label(tmp_path: Path) -> None:
    for suffix, cells in (
        ("csv", cycle("[1, 0, 1]", "[0 0 0]", "[0, 1, 0]")),
        ("jsonl", cycle([1, 0, 1], [0, 0, 0], [0, 1, 0])),
    ):
        rows = load(tmp_path, None, suffix, label=cells, labels=["late", "lost", "wet"])
        assert counts(rows) == {"late": 20, "lost": 20, "wet": 20}
        assert any("has a 0 or 1 for each of 3 labels" in note for note in rows.notes)


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("Y", "N"), ("TRUE", "FALSE"), ("t", "f"), (1.0, 0.0)])
def test_columns_that_say_whether_a_text_has_a_label(yes: Any, no: Any, tmp_path: Path) -> None:
    rows = load(tmp_path, late=cycle(yes, no), wet=cycle(yes, no, no), label=["late", "wet"])
    assert rows.task.kind.name == "multi_label"
    assert counts(rows) == {"late": 30, "wet": 20}
    line = refusal(tmp_path, late=cycle(yes, no), wet=cycle(yes, "perhaps"), label=["late", "wet"])
    assert "got 'perhaps' in wet; must be 0 or 1" in line


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("column", ["labels", "cats"])
def test_objects_with_a_0_or_1_for_each_label(column: str, suffix: str, tmp_path: Path) -> None:
    names, sets = ("late", "lost", "wet"), [("late", "wet"), ("lost",), ()]
    for yes, no in ((1, 0), (1.0, 0.0), (True, False)):
        cells = cycle(*({name: yes if name in each else no for name in names} for each in sets))
        rows = load(tmp_path, None, suffix, **{column: cells})
        assert rows.task.kind.name == "multi_label"
        assert counts(rows) == {"late": 20, "lost": 20, "wet": 20}
    line = refusal(tmp_path, None, suffix, label=cycle({"late": 0.5, "lost": 0.5}, {"late": 1.0, "lost": 0.0}))
    assert "got struct<" in line


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_several_numbers_for_a_text_are_no_set(suffix: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, None, suffix, label=cycle([3, 5, 4], [3, 4, 3], [5, 1, 5]))
    assert "got lists of 3 numbers, such as [3, 4, 3] in column label" in line
    assert "write one number for each text, such as their mean, or each label once" in line
    rows = load(tmp_path, None, suffix, label=cycle([3, 5], [3, 4], [1, 5]))
    assert counts(rows) == {"1": 20, "3": 40, "4": 20, "5": 40}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("between", ["", " "])
def test_digits_for_each_label_are_no_classes_in_silence(between: str, suffix: str, tmp_path: Path) -> None:
    cells = cycle(*map(between.join, ("0110", "1000", "0011", "0000", "1101", "0101")))
    line = refusal(tmp_path, None, suffix, label=cells)
    assert f"got '{between.join('0011')}' in column label" in line
    assert "it may have a 0 or 1 for each of 4 labels" in line
    assert line.endswith("set tasks.kind=multi_label, or tasks.kind=classification")
    rows = load(tmp_path, None, suffix, label=cells, kind="multi_label", labels=["late", "lost", "wet", "torn"])
    assert counts(rows) == {"late": 20, "lost": 30, "wet": 20, "torn": 30}
    assert len(load(tmp_path, None, suffix, label=cells, kind="classification").task.labels) == 6


@pytest.mark.parametrize(
    "codes",
    [
        ("100", "010", "001"),
        ("000", "100", "010", "001"),
        ("000", "111"),
        ("10001", "10010", "10011", "10100", "10110", "10111", "11001"),
    ],
)
def test_codes_of_0_and_1_are_classes(codes: Sequence[str], tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle(*codes))
    assert (rows.task.kind.name, {*rows.task.labels}) == ("classification", {*codes})


@pytest.mark.parametrize("mark", ["|", ";", "#"])
def test_joined_labels(mark: str, tmp_path: Path) -> None:
    rows = load(tmp_path, topic=cycle(f"late{mark}wet", "late", f"lost{mark}late, at night", "wet"))
    assert rows.task.labels == ("late", "late, at night", "lost", "wet")
    assert f"parcels: the labels in topic are separated by {mark}" in rows.notes


@pytest.mark.parametrize(
    "names", [("C#", "C", "F#"), ("C#-Kurs", "Rückfrage", "Übersicht"), ("a, b", "c"), ("R&D", "A/B")]
)
def test_names_with_separators_are_names(names: Sequence[str], tmp_path: Path) -> None:
    rows = load(tmp_path, topic=cycle(*names))
    assert rows.task.kind.name == "classification"
    assert {*rows.task.labels} == {normalize("NFC", name) for name in names}


def test_listed_names_with_separators_are_names(tmp_path: Path) -> None:
    names = ["late|wet", "late", "wet"]
    assert load(tmp_path, topic=cycle(*names)).task.kind.name == "multi_label"
    assert load(tmp_path, topic=cycle(*names), labels=names).task.kind.name == "classification"
    rows = load(tmp_path, topic=cycle("a, b|c", "c"), kind="multi_label", labels=["a, b", "c"])
    assert counts(rows) == {"a, b": 30, "c": 60}


ANSWERS = {
    "prodigy": ("answer", cycle("accept", "reject", "accept", "ignore")),
    "argilla": ("status", cycle("submitted", "discarded", "submitted")),
    "label studio": ("was_cancelled", cycle(False, False, True)),
    "a flag": ("skipped", cycle(0, 0, 1)),
    "a copy of PostgreSQL": ("was_cancelled", cycle("f", "f", "t")),
    "words": ("is_rejected", cycle("no", "No", "YES")),
    "letters": ("ignored", cycle("n", "N ", "y")),
    "mechanical turk": ("AssignmentStatus", cycle("Approved", "Rejected", "Approved")),
    "toloka": ("ASSIGNMENT:status", cycle("APPROVED", "REJECTED", "APPROVED")),
    "toloka, not in time": ("ASSIGNMENT:status", cycle("APPROVED", "REJECTED", "EXPIRED", "ACTIVE")),
    "toloka, a reviewer": ("ACCEPT:verdict", cycle("+", "-", "+")),
    "argilla 1": ("status", cycle("Validated", "Discarded", "Default", "Edited")),
    "a review": ("review_status", cycle("fixed_and_accepted", "rejected", "annotated", "Labeled", "reviewed")),
    "a validation": ("validation_status", cycle("approved", "rejected", "approved")),
    "a response": ("label.responses.0.status", cycle("submitted", "discarded", "submitted")),
}


@pytest.mark.parametrize("tool", ANSWERS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_rejected_rows_are_left_out(tool: str, suffix: str, tmp_path: Path) -> None:
    column, values = ANSWERS[tool]
    good = "accept submitted false f no n 0 approved active + validated default edited fixed_and_accepted annotated"
    good += " labeled reviewed"
    kept = [i for i, value in enumerate(values) if str(value).strip().lower() in good.split()]
    rows = load(tmp_path, None, suffix, label=cycle("late", "lost", "wet", "torn", "lost"), **{column: values})
    found = {text for part in splits_of(rows).values() for text in part.table["text"].take(part.rows).to_pylist()}
    assert found == {TEXTS[i] for i in kept}
    assert 0 < len(kept) < COUNT
    (note,) = [note for note in rows.notes if "are left out, because their" in note]
    assert note.startswith(
        f"parcels train: {COUNT - len(kept)} of {COUNT} rows are left out, because their {column} is "
    )


def test_rejected_rows_beside_the_labels_of_a_teacher_are_left_out(tmp_path: Path) -> None:
    """Their names are those of no usual column."""
    several = Head(2, ("late", "wet"), "multi_label_classification")
    columns = {"late": cycle(1, 0, 0), "wet": cycle(0, 1, 1, 0, 1)}
    rows = load(tmp_path, several, **columns, answer=cycle("accept", "reject", "accept", "ignore"))
    found = {text for part in splits_of(rows).values() for text in part.table["text"].take(part.rows).to_pylist()}
    assert found == {TEXTS[i] for i in range(0, COUNT, 2)}


def test_a_mark_that_can_be_no_label_needs_no_usual_label(tmp_path: Path) -> None:
    rows = load(tmp_path, mood=cycle("calm", "loud"), _status=cycle("submitted", "discarded", "submitted"))
    assert sum(counts(rows).values()) == 40
    assert any("20 of 60 rows are left out, because their _status is discarded" in note for note in rows.notes)


def test_the_place_of_rows_after_rejected_ones(tmp_path: Path) -> None:
    labels = cycle("1", "2.5")
    labels[40] = labels[41] = "high"
    line = refusal(tmp_path, label=labels, answer=cycle("reject", "accept"), kind="regression")
    assert ", row 42: got label 'high'" in line


def test_a_label_is_no_decision(tmp_path: Path) -> None:
    values = cycle("accept", "reject", "ignore")
    for columns in ({"answer": values}, {"answer": values, "topic": cycle("a", "b"), "label": "answer"}):
        rows = load(tmp_path, **columns)
        assert counts(rows) == {"accept": 20, "reject": 20, "ignore": 20}


@pytest.mark.parametrize("values", [("active", "cancelled", "expired"), ("shipped", "cancelled", "done")])
def test_the_status_of_a_customer_is_said(values: tuple[str, ...], tmp_path: Path) -> None:
    rows = load(tmp_path, status=cycle(*values), label=cycle("a", "b"))
    assert sum(counts(rows).values()) == COUNT
    assert "parcels train: 20 of 60 rows are used although their status is cancelled" in rows.notes


@pytest.mark.parametrize(("column", "yes", "no"), [("cancelled", "Yes", "No"), ("Rejected", "y", "n")])
def test_yes_of_the_subject_is_said(column: str, yes: str, no: str, tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle("a", "b"), **{column: cycle(no, yes, no)})
    assert sum(counts(rows).values()) == COUNT
    assert f"parcels train: 20 of 60 rows are used although their {column} is {yes.lower()}" in rows.notes


def test_a_row_that_one_annotator_of_toloka_approves_is_used(tmp_path: Path) -> None:
    column, values = "ASSIGNMENT:status", cycle(["EXPIRED", "APPROVED"], ["APPROVED"], ["EXPIRED", "REJECTED"])
    rows = load(tmp_path, None, "jsonl", label=cycle("a", "b"), **{column: values})
    assert sum(counts(rows).values()) == COUNT * 2 // 3
    assert f"parcels train: 20 of 60 rows are used although some annotators reject them by {column}" in rows.notes
    signs = cycle(["+", "-"], ["+"], ["-"])
    rows = load(tmp_path, None, "jsonl", label=cycle("a", "b"), **{"ACCEPT:verdict": signs})
    assert sum(counts(rows).values()) == COUNT * 2 // 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_rows_that_all_annotators_reject_are_left_out(suffix: str, tmp_path: Path) -> None:
    """As in the records of Argilla 2."""
    column, both = "label.responses.status", ["submitted", "submitted"]
    values = cycle(both, ["discarded", "discarded"], ["submitted", "discarded"], ["discarded"])
    rows = load(tmp_path, None, suffix, label=cycle("a", "b", "c"), **{column: values})
    assert sum(counts(rows).values()) == COUNT // 2
    assert f"parcels train: 15 of 60 rows are used although some annotators reject them by {column}" in rows.notes
    assert any(f"30 of 60 rows are left out, because their {column} is discarded" in note for note in rows.notes)


def test_columns_that_say_something_else_than_true_or_false_are_said(tmp_path: Path) -> None:
    beside = {"is_rejected": cycle("yes", "no", "perhaps"), "is_test": cycle("x", "no"), "is_valid": cycle("1", "", "")}
    rows = load(tmp_path, label=cycle("a", "b"), **beside)
    assert sum(counts(rows).values()) == COUNT
    for line in (
        "parcels train: no row is left out by is_rejected, as it is 'perhaps' in some rows, and not true or false",
        "column is_test divides no rows, as it is 'x' in some rows, and not true or false",
        "column is_valid divides no rows, as it is empty in some rows, and not true or false",
    ):
        assert line in rows.notes
    quiet = load(tmp_path, label=cycle("a", "b"), skipped=cycle("no", ""), is_test=cycle(""))
    assert not [note for note in quiet.notes if "in some rows" in note]


def test_unapproved_rows_are_used_and_said(tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle("a", "b"), is_approved=cycle(True, False, True))
    assert sum(counts(rows).values()) == COUNT
    assert "parcels train: 20 of 60 rows are used although their is_approved is false" in rows.notes


SNLI = [*[0, 1, 2] * 18, *[-1] * 6]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_minus_1_beside_classes_is_no_label(suffix: str, tmp_path: Path) -> None:
    rows = load(tmp_path, None, suffix, label=SNLI)
    assert rows.task.labels == ("0", "1", "2")
    assert counts(rows) == {"0": 18, "1": 18, "2": 18}
    assert "parcels: 6 rows whose label is -1 have no label" in rows.notes
    assert len(load(tmp_path, None, suffix, label=SNLI, labels=["-1", "0", "1", "2"]).task.labels) == 4
    named = load(tmp_path, Head(3, ("entailment", "neutral", "contradiction"), None), suffix, label=SNLI)
    assert counts(named) == {"entailment": 18, "neutral": 18, "contradiction": 18}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_minus_1_beside_classes_from_1_is_no_label(suffix: str, tmp_path: Path) -> None:
    stars = [*[1, 2, 3] * 18, *[-1] * 6]
    rows = load(tmp_path, None, suffix, stars=stars, label="stars")
    assert counts(rows) == {"1": 18, "2": 18, "3": 18}
    assert "parcels: 6 rows whose stars is -1 have no label" in rows.notes
    assert "-1 may be a label" in refusal(tmp_path, None, suffix, stars=cycle(-1, 1, 2), label="stars")


@pytest.mark.parametrize("values", [(-1, 0, 1), (-1, 0, 1, 2), (-1, 1, 2)])
def test_minus_1_that_may_be_a_class_is_refused(values: Sequence[int], tmp_path: Path) -> None:
    line = refusal(tmp_path, label=cycle(*values))
    listed = ",".join(f'"{value}"' for value in values)
    assert f"set 'tasks.labels=[{listed}]', or 'tasks.labels=[{listed.partition(',')[2]}]'" in line
    assert len(load(tmp_path, label=cycle(*values), labels=[str(v) for v in values]).task.labels) == len(values)
    rest = load(tmp_path, label=cycle(*values), labels=[str(v) for v in values[1:]])
    assert sum(counts(rest).values()) == COUNT * (len(values) - 1) // len(values)
    names = ("negative", "neutral", "positive", "mixed")[: len(values)]
    assert "-1 may be a label" in refusal(tmp_path, Head(len(names), names, None), label=cycle(*values))


@pytest.mark.parametrize("values", [(-1, 1), (-2, -1, 0, 1, 2), ("+", "-")])
def test_minus_1_that_must_be_a_class(values: Sequence[Any], tmp_path: Path) -> None:
    assert {*load(tmp_path, label=cycle(*values)).task.labels} == {*map(str, values)}


@pytest.mark.parametrize("mark", ["-", "no gold label", "No Gold Label"])
def test_no_gold_label(mark: str, tmp_path: Path) -> None:
    labels = cycle("entailment", "neutral", "contradiction", "neutral", mark)
    rows = load(tmp_path, gold_label=labels, label="gold_label")
    assert rows.task.labels == ("contradiction", "entailment", "neutral")
    assert sum(counts(rows).values()) == 48
    assert f"parcels: 12 rows whose gold_label is {mark} have no label" in rows.notes


def test_names_that_pandas_takes_for_missing_are_names(tmp_path: Path) -> None:
    assert load(tmp_path, label=cycle("NA", "None", "null", "EU")).task.labels == ("EU", "NA", "None", "null")


def test_codes_are_no_numbers(tmp_path: Path) -> None:
    codes = ["401", "401.0", "005.74", "007", "7", "1.10", "1.1"]
    rows = load(tmp_path, label=cycle(*codes))
    assert rows.task.kind.name == "classification"
    assert {*rows.task.labels} == {*codes}
    assert any("401 and 401.0 are different labels" in note for note in rows.notes)
    assert (
        load(tmp_path, icd_code=cycle("401.1", "250.3", "486.2"), label="icd_code").task.kind.name == "classification"
    )
    assert load(tmp_path, label=[f"0{i % 30 + 100}" for i in range(COUNT)]).task.kind.name == "classification"


def test_whole_numbers_of_one_length_may_be_codes(tmp_path: Path) -> None:
    line = refusal(tmp_path, label=[10115 + i % 25 * 7 for i in range(COUNT)])
    assert line.endswith("set tasks.kind=regression, or tasks.kind=classification")


def test_whole_numbers_that_pandas_wrote_with_a_fraction(tmp_path: Path) -> None:
    values = cycle(1.0, 2.0, 3.0, None, 1.0)
    for suffix in ("csv", "jsonl", "parquet"):
        rows = load(tmp_path, Head(3, ("1", "2", "3"), None), suffix, label=values)
        assert counts(rows)["1"] > 0
        assert set(counts(rows)) == {"1", "2", "3"}
        assert any("1.0 is 1" in note for note in rows.notes)
    assert load(tmp_path, label=cycle(1.0, 2.0, None), labels=["1.0", "2.0"]).task.labels == ("1.0", "2.0")


def test_decimal_commas(tmp_path: Path) -> None:
    numbers = cycle("3,5", "4", "2,75", "-0,5", "")
    rows = load(tmp_path, score=numbers)
    assert rows.task.kind.name == "regression"
    assert rows.task.range == (-0.5, 4.0)
    assert any(note.startswith("parcels: the numbers in score have decimal commas: ") for note in rows.notes)


@pytest.mark.parametrize("number", ["1.234,5", "1,234.5", "1,234"])
def test_thousands_are_refused(number: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, score=cycle(number, "12"), kind="regression")
    assert f"got the number {number!r}" in line
    assert "it may be 1" in line


def test_columns_about_rows_are_neither_text_nor_label(tmp_path: Path) -> None:
    frame = {
        "Unnamed: 0": [*range(COUNT)],
        "Unnamed: 0.1": cycle(0, 1),
        "user_id": cycle("u1", "u2"),
        "created_at": cycle("2024-01-01", "2024-01-02"),
    }
    frame |= {"uuid": [f"{i:040x}{i:040x}" for i in range(COUNT)], "очередь": cycle("счета", "кража")}
    rows = load(tmp_path, **frame)
    assert (rows.task.columns, rows.task.labels) == (("text",), ("кража", "счета"))


def test_columns_that_differ_by_case_are_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, label=cycle("a", "b"), Label=cycle("c", "d"))
    assert line.endswith("set tasks.label=label or tasks.label=Label")


def test_contradictory_copies_are_said(tmp_path: Path) -> None:
    copies = [TEXTS[i // 2] for i in range(COUNT)]
    labels = [("a", "b")[i // 2 % 2] for i in range(COUNT)]
    labels[1] = "c"
    rows = load(tmp_path, **{"message": copies, "label": labels, "text": "message"})
    assert (
        f"parcels: 30 training rows have the text of another training row, and 1 texts have different labels in "
        f"different rows, e.g. {TEXTS[0]!r}"
    ) in rows.notes


def test_a_hash_without_a_label_alone_is_refused(tmp_path: Path) -> None:
    pairs = cycle("a#b", "b#c", "a#c", "d#a", "c#d")
    line = refusal(tmp_path, label=pairs)
    assert line.endswith("set 'tasks.labels=[a,b,c,d]' tasks.kind=multi_label, or tasks.kind=classification")
    assert load(tmp_path, label=pairs, labels=["a", "b", "c", "d"], kind="multi_label").task.labels == (
        "a",
        "b",
        "c",
        "d",
    )
    assert load(tmp_path, label=pairs, kind="classification").task.outputs == 5
    assert "# may separate labels" in refusal(tmp_path, label=cycle("C#-Kurs", "Java"), kind="multi_label")


def test_numbers_of_many_classes_may_be_numbers(tmp_path: Path) -> None:
    classes = [i % 25 for i in range(COUNT)]
    assert refusal(tmp_path, label=classes).endswith("set tasks.kind=regression, or tasks.kind=classification")
    assert load(tmp_path, label=classes, kind="classification").task.outputs == 25


def test_two_separators_are_refused_unless_the_labels_are_listed(tmp_path: Path) -> None:
    cells = cycle("late|wet", "late;lost", "late", "wet")
    line = refusal(tmp_path, label=cells)
    assert line.endswith("set tasks.labels='[late,lost,wet]'") or line.endswith("set 'tasks.labels=[late,lost,wet]'")
    rows = load(tmp_path, label=cells, labels=["late", "lost", "wet"], kind="multi_label")
    assert counts(rows) == {"late": 45, "wet": 30, "lost": 15}


def test_signs_that_are_listed_are_labels(tmp_path: Path) -> None:
    assert counts(load(tmp_path, label=cycle("+", "-"), labels=["+", "-"])) == Counter(
        {"+": COUNT // 2, "-": COUNT // 2}
    )


def test_a_label_is_no_mark_of_an_annotator(tmp_path: Path) -> None:
    line = refusal(tmp_path, source=cycle("arxiv", "acl", "web"), decision=cycle("accept", "reject"))
    assert line.endswith("set tasks.label=source or tasks.label=decision")


@pytest.mark.parametrize("column", ["order_status", "approval_status", "order.status", "task state"])
def test_the_status_of_something_else_is_no_mark(column: str, tmp_path: Path) -> None:
    rows = load(tmp_path, label=cycle("a", "b"), **{column: cycle("completed", "cancelled", "pending")})
    assert counts(rows) == Counter({"a": COUNT // 2, "b": COUNT // 2})
    assert f"parcels train: 20 of 60 rows are used although their {column} is cancelled" in rows.notes


def test_rows_that_are_all_rejected_are_named(tmp_path: Path) -> None:
    assert "got status cancelled in every row" in refusal(tmp_path, label=cycle("a", "b"), status=cycle("cancelled"))


def test_a_text_of_json_stays_a_text(tmp_path: Path) -> None:
    messages = [json.dumps([{"role": "user", "content": text}]) for text in TEXTS]
    rows = load(tmp_path, label=cycle("a", "b"), messages=messages, text=None)
    assert rows.task.columns == ("text",)
    pd.DataFrame({"id": [*map(str, range(COUNT))], "messages": messages, "label": cycle("a", "b")}).to_csv(
        tmp_path / "chats.csv", index=False
    )
    table = read(str(tmp_path / "chats.csv"), "tasks.train")
    rows = labelled_rows("chats", config.Task(), {"train": table}, None, "tasks")
    assert rows.task.columns == ("messages",)


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    lines = [f"{label}\t{text}" for label, text in zip(cycle("ham", "spam", "ham"), TEXTS, strict=True)]
    (tmp_path / "sms.txt").write_text("\n".join(lines) + "\n")
    table = read(str(tmp_path / "sms.txt"), "tasks.train")
    with pytest.raises(UserError, match="'ham' as the name of a column and as a label in it"):
        labelled_rows("sms", config.Task(), {"train": table}, None, "tasks")


def test_a_label_that_is_named_as_its_column_is_used_where_settings_name_it(tmp_path: Path) -> None:
    line = refusal(tmp_path, spam=cycle("spam", "ham"))
    assert line.endswith(
        "if the first line is a row, put a line of names before it; if it has the names, set tasks.label=spam"
    )
    assert counts(load(tmp_path, spam=cycle("spam", "ham"), label="spam"))["spam"] == COUNT // 2


def test_one_number_in_two_forms_is_refused_with_both_readings(tmp_path: Path) -> None:
    scores = [f"{i / 12:.2f}" for i in range(COUNT)]
    assert load(tmp_path, label=scores).task.kind.name == "regression"
    line = refusal(tmp_path, label=["1", "1.0", *scores[2:]])
    assert "they may be one number, or two codes" in line
    assert "set tasks.kind=regression, or tasks.kind=classification" in line


def test_what_to_write_in_place_of_doubtful_thousands(tmp_path: Path) -> None:
    assert "write every number with a decimal point, such as 150.0" in refusal(tmp_path, label=cycle("12.345", "150"))
    assert load(tmp_path, label=cycle("12.345", "150.0", "75.125")).task.kind.name == "regression"


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    scores = cycle(-0.5, -0.0, 0.0, 0.5, 1.0, 0.3, 0.7, -0.1, -0.2, 0.2, 0.1, 0.4)
    assert load(tmp_path, label=scores).task.kind.name == "regression"
    assert load(tmp_path, label=cycle(-0.5, -0.0, 0.0, 0.5, 1.0)).task.range == (-0.5, 1.0)


def test_three_digits_after_a_point_are_a_fraction(tmp_path: Path) -> None:
    assert load(tmp_path, label=cycle("0.125", "1.250", "3.875", "2"), kind="regression").task.range == (0.125, 3.875)


def classes(folder: Path, names: list[str], numbers: list[int], **settings: Any) -> Labelled:
    """Rows that `datasets` writes, with the names of numbered classes."""
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features(text=Value("string"), label=ClassLabel(names=names))
    Dataset.from_dict({"text": TEXTS, "label": numbers}, features=features).to_parquet(folder / "rows.parquet")
    table = read(str(folder / "rows.parquet"), "tasks.train")
    head = settings.pop("head", None)
    return labelled_rows("rows", config.Task(**settings), {"train": table}, head, "tasks")


def test_numbered_classes_are_matched_with_the_teacher_by_name(tmp_path: Path) -> None:
    head = Head(3, ("entailment", "neutral", "contradiction"), None)
    rows = classes(tmp_path, ["neutral", "entailment", "contradiction"], cycle(0, 0, 1, 2), head=head)
    assert rows.task.labels == head.labels
    assert counts(rows) == Counter(neutral=COUNT // 2, entailment=COUNT // 4, contradiction=COUNT // 4)


def test_listed_labels_are_those_of_numbered_classes(tmp_path: Path) -> None:
    rows = classes(tmp_path, ["LABEL_0", "LABEL_1"], cycle(0, 1, 1), labels=["bad", "good"])
    assert counts(rows) == Counter(bad=COUNT // 3, good=2 * COUNT // 3)
    assert "the labels in the files are those of tasks.labels: LABEL_0 is bad, LABEL_1 is good" in rows.notes
    with pytest.raises(UserError, match="got positive, negative, and the files have the classes neg, pos; must"):
        classes(tmp_path, ["neg", "pos"], cycle(0, 1, 1), labels=["positive", "negative"])
    rows = classes(tmp_path, [*"12345"], cycle(0, 1, 2, 3), labels=["vb", "b", "ok", "g", "vg"])
    assert counts(rows) == Counter(dict.fromkeys(("vb", "b", "ok", "g"), COUNT // 4))


def test_classes_with_separators_or_signs_as_names_are_classes(tmp_path: Path) -> None:
    rows = classes(tmp_path, ["news", "news|sport", "sport", "unlabeled", "-"], cycle(0, 1, 2, 3, 4))
    assert rows.task.kind.name == "classification"
    assert counts(rows) == Counter(dict.fromkeys(("news", "news|sport", "sport", "unlabeled", "-"), COUNT // 5))


def test_several_columns_of_two_classes(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    truth = ClassLabel(names=["false", "true"])
    features = Features(text=Value("string"), toxic=truth, obscene=truth)
    content = {"text": TEXTS, "toxic": cycle(0, 1), "obscene": cycle(0, 0, 1)}
    Dataset.from_dict(content, features=features).to_parquet(tmp_path / "rows.parquet")
    table = read(str(tmp_path / "rows.parquet"), "tasks.train")
    settings = config.Task(label=["toxic", "obscene"], labels=["obscene", "toxic"])
    rows = labelled_rows("rows", settings, {"train": table}, None, "tasks")
    assert (rows.task.kind.name, rows.task.labels) == ("multi_label", ("obscene", "toxic"))


def test_classes_with_numbers_as_names_are_classes(tmp_path: Path) -> None:
    rows = classes(tmp_path, ["0.5", "1.0", "1.5"], cycle(0, 1, 2))
    assert (rows.task.kind.name, counts(rows)["1.0"]) == ("classification", COUNT // 3)


def test_listed_labels_may_differ_by_case_alone(tmp_path: Path) -> None:
    assert counts(load(tmp_path, label=cycle("us", "US", "de"), labels=["us", "US", "de"]))["US"] == COUNT // 3


def test_spans_are_no_classes(tmp_path: Path) -> None:
    line = refusal(tmp_path, None, "jsonl", label=cycle([[0, 6, "A"]]), kind="classification")
    assert "in column label; must be text, whole numbers or booleans for classification" in line
