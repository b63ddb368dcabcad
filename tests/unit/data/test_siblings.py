"""Files that differ from usual ones by a mark: a fraction of zero, a separator at the end of a row, NA among numbers,
commas among numbers of labels, tags in other schemes, ids of documents, one object around the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distill import config
from distill.data.files import read
from distill.data.labelled import Labelled, labelled_rows
from distill.data.splits import targets_of
from distill.data.task_types import MISSING
from distill.errors import ConfigError, UserError
from distill.models.families.head import Head
from distill.models.families.record import CHOICES, TOKENS, VECTORS
from tests.parcels import values_of

pytestmark = pytest.mark.usefixtures("own_cache")

COUNT = 60
TEXTS = [f"The kettle {i} boils in room {i * 7 % 61}" for i in range(COUNT)]
OTHERS = [f"Somebody has filled number {i} on day {i * 5}" for i in range(COUNT)]
NAMES = ("Sports", "Tech", "World")
OF_TEACHER = Head(3, NAMES, None)


def cycle(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(COUNT)]


def of_file(path: Path, head: Head | None = None, **settings: Any) -> Labelled:
    return labelled_rows("kettles", config.Task(**settings), {"train": read(str(path), "tasks.train")}, head, "tasks")


def load(folder: Path, head: Head | None = None, settings: dict[str, Any] | None = None, /, **columns: Any) -> Labelled:
    """The rows of a CSV that pandas writes."""
    pd.DataFrame(columns).to_csv(folder / "kettles.csv", index=False)
    return of_file(folder / "kettles.csv", head, **settings or {})


# ---- numbers of classes with a fraction


def test_names_beside_numbers_that_pandas_wrote_with_a_fraction(tmp_path: Path) -> None:
    """It does so where a label is missing."""
    label, names = cycle(0.0, 1.0, 2.0, None), cycle("Tech", "World", "Sports", None)
    found = load(tmp_path, OF_TEACHER, text=TEXTS, label=label, label_text=names)
    expected = {text: MISSING if name is None else NAMES.index(name) for text, name in zip(TEXTS, names, strict=True)}
    assert values_of(found) == expected
    with pytest.raises(UserError, match=r"0 is beside 'Tech' in class_name, .* set tasks\.label=class_name"):
        load(tmp_path, OF_TEACHER, text=TEXTS, label=label, class_name=names)


def test_a_flag_that_pandas_wrote_with_a_fraction(tmp_path: Path) -> None:
    """An empty cell says nothing about the row."""
    one = Head(1, ("toxic",), "multi_label_classification")
    found = values_of(load(tmp_path, one, text=TEXTS, toxic=cycle(1.0, 0.0, 0.0, None)))
    assert [found[text] for text in TEXTS] == cycle([1], [0], [0], [MISSING])
    several = Head(2, ("rude", "loud"), "multi_label_classification")
    found = values_of(load(tmp_path, several, text=TEXTS, rude=cycle("1.0", "0.0"), loud=cycle("0.0", "0.0", "1.0")))
    assert [found[text] for text in TEXTS] == [[int(i % 2 == 0), int(i % 3 == 2)] for i in range(COUNT)]
    with pytest.raises(UserError, match="got '' in rude; must be 0 or 1"):
        load(tmp_path, several, text=TEXTS, rude=cycle(1.0, None), loud=cycle(0.0, 1.0))


# ---- choices


@pytest.mark.parametrize("form", ["list", "columns"])
def test_the_right_choice_may_be_a_number_with_a_fraction(form: str, tmp_path: Path) -> None:
    texts, answers = ["2.5", "3.0", "3.5", "4.00"], cycle("3.0", "2.5", "4.00", "3.5")
    frame = pd.DataFrame({"question": TEXTS, "answer": answers})
    if form == "list":
        frame["choices"] = [texts] * COUNT
    else:
        frame = frame.assign(**{f"choice{n}": text for n, text in enumerate(texts)})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    found = values_of(of_file(tmp_path / "a.jsonl", kind="multiple_choice"))
    assert found == {text: texts.index(answer) for text, answer in zip(TEXTS, answers, strict=True)}


def test_composed_and_decomposed_letters_are_one_choice(tmp_path: Path) -> None:
    frame = pd.DataFrame({"question": TEXTS, "choices": [["the cafe\u0301", "the bar"]] * COUNT})
    frame.assign(answer=cycle("the cafe\u0301", "the bar")).to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    found = values_of(of_file(tmp_path / "a.jsonl", kind="multiple_choice"))
    assert [found[text] for text in TEXTS] == cycle(0, 1)


def test_two_columns_a_and_b_are_a_pair(tmp_path: Path) -> None:
    """Choices need a question beside them."""
    found = load(tmp_path, a=TEXTS, b=OTHERS, label=cycle(1, 0))
    assert (found.task.kind.name, found.task.columns) == ("classification", ("a", "b"))
    asked = load(tmp_path, question=TEXTS, a=OTHERS, b=OTHERS[::-1], label=cycle("a", "b"))
    assert asked.task.kind.architecture == CHOICES
    named = load(tmp_path, None, {"text": "question"}, question=TEXTS, a=OTHERS, b=OTHERS[::-1], label=cycle("a", "b"))
    assert named.task.kind.architecture == CHOICES


# ---- columns


def test_a_text_beside_the_same_with_marks(tmp_path: Path) -> None:
    """As in MASSIVE, whose marks state what the intent is about."""
    marked = [text.replace("room", "[place : room]") for text in TEXTS]
    found = load(
        tmp_path, partition=cycle("train", "train", "dev", "test"), utt=TEXTS, annot_utt=marked, intent=cycle(*"abc")
    )
    assert found.task.columns == ("utt",)


def test_a_separator_at_the_end_of_each_row_names_no_column(tmp_path: Path) -> None:
    """As `pandas.read_csv(..., index_col=False)` reads such a file."""
    lines = [f"{i},{text},{other},{i % 2}," for i, (text, other) in enumerate(zip(TEXTS, OTHERS, strict=True))]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["id,question1,question2,label", *lines]) + "\n")
    expected = pd.read_csv(path, index_col=False, dtype=str)
    assert read(str(path), "tasks.train").rows.to_pydict() == expected.to_dict("list")
    assert values_of(of_file(path)) == {text: i % 2 for i, text in enumerate(TEXTS)}
    # R's names of rows, also where a last value is empty.
    lines = [f"{i + 1},{text},{'' if i % 5 else 'x'}" for i, text in enumerate(TEXTS)]
    path.write_text("\n".join(["text,note", *lines]) + "\n")
    assert read(str(path), "tasks.train").rows["text"].to_pylist() == TEXTS


# ---- numbers


@pytest.mark.parametrize("missing", ["NA", "nan", r"\N", "#N/A", "-", None])
@pytest.mark.parametrize("share", [4, 30])
def test_scores_without_a_number_have_no_label(share: int, missing: str | None, tmp_path: Path) -> None:
    """However many they are, the others are numbers."""
    scores = [missing if i % share == 0 else str(i % 11 / 2) for i in range(COUNT)]
    found = load(tmp_path, text=TEXTS, score=scores)
    assert found.task.kind.name == "regression"
    for text, score in zip(TEXTS, scores, strict=True):
        value = values_of(found)[text]
        assert np.isnan(value) if score is missing else value == pytest.approx(float(str(score)))


def test_numbers_of_labels_with_commas_are_no_decimal_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it may be one number, or the labels .* and .*, which other"):
        load(tmp_path, text=TEXTS, labels=cycle("14,25", "27", "2,14", "2", "14", "25"))
    found = load(
        tmp_path, None, {"kind": "multi_label"}, text=TEXTS, labels=cycle("14,25", "27", "2,14", "2", "14", "25")
    )
    assert found.task.labels == ("2", "14", "25", "27")
    with pytest.raises(ConfigError, match=r"multi_label"):
        load(tmp_path, text=TEXTS, labels=cycle("3,5,7", "3", "5", "7", "3,5"))
    halves = load(tmp_path, text=TEXTS, labels=cycle("3,5", "3", "4,5", "5", "4", "2,5"))
    assert halves.task.kind.name == "regression"
    assert values_of(halves)[TEXTS[0]] == pytest.approx(3.5)


def test_an_empty_cell_has_no_label_and_a_missing_one_is_unknown(tmp_path: Path) -> None:
    settings = {"kind": "multi_label", "label": "topics"}
    found = load(tmp_path, None, settings, text=TEXTS, topics=cycle("late|wet", "", "late", "#N/A"))
    known = values_of(found)
    assert [known[text] for text in TEXTS] == cycle([1, 1], [0, 0], [1, 0], [MISSING, MISSING])


# ---- words in rows

WORDS = ["Kim", "Minsu", "sleeps", "here"]
SCHEMES = {
    "suffixes": ["PER-B", "PER-I", "O", "O"],
    "underscores": ["B_PER", "I_PER", "O", "O"],
    "lower case": ["b-per", "i-per", "O", "O"],
}


def words(folder: Path, tags: Sequence[str], **ids: Sequence[Any]) -> Path:
    rows = {name: [each for each in values for _ in WORDS] for name, values in ids.items()}
    texts = [word if place < 3 else f"here{n}" for n in range(COUNT) for place, word in enumerate(WORDS)]
    pd.DataFrame({**rows, "words": texts, "labels": [*tags] * COUNT}).to_csv(folder / "w.csv", index=False)
    return folder / "w.csv"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_in_rows_may_have_tags_of_any_scheme(scheme: str, tmp_path: Path) -> None:
    found = of_file(words(tmp_path, SCHEMES[scheme], sentence_id=range(COUNT)))
    assert found.task.kind.name == "token_classification"
    assert len(values_of(found)) == COUNT


def test_words_with_classes_or_tags_are_refused_with_both_readings(tmp_path: Path) -> None:
    path = words(tmp_path, ["NOUN", "NOUN", "VERB", "ADV"], sentence_id=range(COUNT))
    with pytest.raises(ConfigError, match=r"set tasks\.kind=token_classification, or tasks\.kind=classification"):
        of_file(path)
    tagger = Head(3, ("ADV", "NOUN", "VERB"), None, TOKENS)
    for found in (of_file(path, kind="token_classification"), of_file(path, tagger)):
        assert len(values_of(found)) == COUNT
        assert {"ADV", "NOUN", "VERB"} <= {*found.task.labels}
    assert of_file(path, kind="classification").task.columns == ("words",)
    classifier = of_file(path, Head(3, ("ADV", "NOUN", "VERB"), None))  # the teacher settles it
    assert (classifier.task.kind.name, classifier.task.columns) == ("classification", ("words",))


def test_sentences_that_are_numbered_in_each_document_anew(tmp_path: Path) -> None:
    documents, sentences = [n // 3 for n in range(COUNT)], [n % 3 for n in range(COUNT)]
    path = words(tmp_path, ["B-PER", "I-PER", "O", "O"], doc_id=documents, sentence_id=sentences)
    assert len(values_of(of_file(path))) == COUNT
    ones = words(tmp_path, ["B-PER", "I-PER", "O", "O"], doc_id=range(COUNT), sentence_id=[0] * COUNT)
    assert len(values_of(of_file(ones))) == COUNT


# ---- one object


OBJECTS: dict[str, Any] = {
    "NER Annotator": {"classes": ["PER"], "annotations": [["Anna sleeps.", {"entities": [[0, 4, "PER"]]}]] * 2},
    "the server of datasets": {
        "features": [{"name": "text"}],
        "rows": [{"row_idx": i, "row": {"text": text}, "truncated_cells": []} for i, text in enumerate(TEXTS)],
        "num_rows_total": COUNT,
    },
    "a page of a service": {"count": COUNT, "next": None, "results": [{"text": text, "label": "in"} for text in TEXTS]},
    "LUIS": {
        "name": "kettles",
        "intents": [{"name": "boil"}, {"name": "fill"}],
        "utterances": [{"text": text, "intent": "boil", "entities": []} for text in TEXTS],
    },
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_rows_may_be_a_list_in_an_object(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(OBJECTS[name]))
    table = read(str(tmp_path / "a.json"), "tasks.train")
    expected = ["Anna sleeps."] * 2 if name == "NER Annotator" else TEXTS
    assert table.rows["text"].to_pylist() == expected
    assert "its rows are the list" in table.notes[0]


def test_a_single_row_with_annotations_is_a_row(tmp_path: Path) -> None:
    row = {"text": "Anna sleeps.", "annotations": [{"start": 0, "end": 4, "label": "PER"}]}
    (tmp_path / "a.json").write_text(json.dumps(row))
    assert read(str(tmp_path / "a.json"), "tasks.train").rows.to_pylist() == [row]


def test_tags_of_entities_are_found_beside_parts_of_speech(tmp_path: Path) -> None:
    columns = {
        "sentence_id": [n // 3 for n in range(COUNT)],
        "word": [f"word{n}" for n in range(COUNT)],
        "pos_tags": cycle("NNP", "VBZ", "JJ"),
        "ner_tags": cycle("B-LOC", "O", "O"),
    }
    for head in (None, Head(3, ("O", "B-LOC", "I-LOC"), None, TOKENS)):
        read = load(tmp_path, head, {} if head else {"kind": "token_classification"}, **columns)
        assert read.task.labels == ("O", "B-LOC", "I-LOC")


def test_texts_that_are_numbered_in_documents(tmp_path: Path) -> None:
    rows = [(n // 6, n // 3, f"word{n}", ("B-LOC", "O", "O")[n % 3]) for n in range(60)]
    columns = dict(zip(("doc_id", "text_id", "word", "tag"), map(list, zip(*rows, strict=True)), strict=True))
    assert len(values_of(load(tmp_path, **columns))) == 20


def test_texts_without_blanks_that_the_settings_name_are_no_words(tmp_path: Path) -> None:
    columns = {"doc_id": [n // 2 for n in range(COUNT)], "text": [f"\u670d\u52a1\u5f88\u597d{n}" for n in range(COUNT)]}
    assert load(tmp_path, None, {"text": "text"}, **columns, label=cycle("pos", "neg")).task.columns == ("text",)


def test_columns_of_one_object_are_no_list_of_rows(tmp_path: Path) -> None:
    fields = {"text": TEXTS, "label": cycle("in", "out"), "items": [{"n": i} for i in range(COUNT)]}
    (tmp_path / "kettles.json").write_text(json.dumps(fields))
    assert {*values_of(of_file(tmp_path / "kettles.json"))} == {*TEXTS}


def test_a_column_of_several_types_is_refused_where_it_is_used(tmp_path: Path) -> None:
    rows = [{"id": i if i % 2 else f"k{i}", "meta": {"n": i if i % 3 else "many"}} for i in range(COUNT)]
    rows = [row | {"text": TEXTS[i], "label": ("in", "out")[i % 2]} for i, row in enumerate(rows)]

    def written(**change: Any) -> Path:
        lines = [json.dumps(row | (change if i == 1 else {})) for i, row in enumerate(rows)]
        (tmp_path / "kettles.jsonl").write_text("\n".join(lines))
        return tmp_path / "kettles.jsonl"

    assert {*values_of(of_file(written()))} == {*TEXTS}
    for column, value in (("label", 1), ("text", 5)):
        with pytest.raises(UserError, match=rf"row 2: got {value} in column '{column}'; must be text, as in the rows"):
            of_file(written(**{column: value}))
    with pytest.raises(UserError, match="row 2: got 1 in column 'id'; must be text"):
        of_file(written(), label="id")


def test_row_names_of_r_beside_an_empty_last_column(tmp_path: Path) -> None:
    lines = ["text,label,note", *(f"{i + 1},{text},{'in' if i % 2 else 'out'}," for i, text in enumerate(TEXTS))]
    (tmp_path / "kettles.csv").write_text("\n".join(lines) + "\n")
    read = of_file(tmp_path / "kettles.csv")
    assert {*values_of(read)} == {*TEXTS}
    assert read.task.labels == ("in", "out")


def test_numbers_beside_pairs_without_labels_that_the_other_file_has_too(tmp_path: Path) -> None:
    """They are no labels under another name."""
    head = Head(16, (), None, VECTORS)
    rows = [{"query": f"which {i}", "document": TEXTS[i], "length": len(TEXTS[i])} for i in range(COUNT)]
    judged = [row | {"query": f"what {n}", "label": n % 2} for n, row in enumerate(rows)]
    for name, lines in (("train", rows), ("test", judged)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tables = {name: read(str(tmp_path / f"{name}.jsonl"), f"tasks.{name}") for name in ("train", "test")}
    found = labelled_rows("kettles", config.Task(), tables, head, "tasks")
    assert found.train is not None
    assert {*targets_of(found.train)} == {1.0}
