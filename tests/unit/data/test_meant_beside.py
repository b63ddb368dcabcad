"""What a file states in a second column, or in a form of its own: names of numbers, texts that are done, words in rows,
choices as objects, splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from distill import config
from distill.data.decisions import checked
from distill.data.files import read
from distill.data.folders import of_training
from distill.data.labelled import Labelled, labelled_rows
from distill.data.splits import targets_of
from distill.errors import UserError
from distill.models.families.head import Head
from distill.models.families.record import TOKENS
from tests.parcels import cycles, others, texts, values_of

pytestmark = pytest.mark.usefixtures("own_cache")

COUNT = 48
TEXTS, OTHERS, cycle = texts(COUNT), others(COUNT), cycles(COUNT)


def of_file(path: Path, head: Head | None = None, **settings: Any) -> Labelled:
    return labelled_rows("parcels", config.Task(**settings), {"train": read(str(path), "tasks.train")}, head, "tasks")


def load(folder: Path, head: Head | None = None, suffix: str = "csv", /, **columns: Sequence[Any]) -> Labelled:
    """The rows of a file that pandas writes."""
    path, frame = folder / f"parcels.{suffix}", pd.DataFrame(columns)
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    return of_file(path, head)


# ---- pairs of texts, and texts that are not used


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sentence_A", "sentence_B"),  # SICK
        ("#1 String", "#2 String"),  # MRPC
        ("Question", "Answer"),  # WikiQA
        ("claim", "evidence"),  # FEVER
        ("context", "hypothesis"),  # ANLI
        ("query", "context"),  # FEVER as NLI
        ("query", "product_title"),  # ESCI
        ("search_term", "product_title"),  # Home Depot
        ("text", "text2"),
        ("q1", "q2"),
        ("sentA", "sentB"),
        ("left_text", "right_text"),
    ],
)
def test_both_texts_of_a_pair_are_used(first: str, second: str, tmp_path: Path) -> None:
    beside = {"#1 ID": range(COUNT), "#2 ID": range(1000, 1000 + COUNT)}
    for columns in ({first: TEXTS, second: OTHERS}, {**beside, first: TEXTS, second: OTHERS}):
        rows = load(tmp_path, **columns, label=cycle("yes", "no"))
        assert rows.task.columns == (first, second)
        assert not any("not used" in note for note in rows.notes)


@pytest.mark.parametrize(
    ("columns", "text", "left"),
    [
        ({"question": TEXTS, "answer": OTHERS, "label": cycle(*"abcdef")}, "question", "answer"),
        ({"remark": [2 * text for text in TEXTS], "line1": TEXTS, "line2": OTHERS}, "remark", "line1 and line2"),
        ({"v1": TEXTS, "v2": OTHERS, "v3": [2 * text for text in TEXTS]}, "v3", "v1 and v2"),
        ({"title": [f"Parcel {i}" for i in range(COUNT)], "abstract": TEXTS}, "abstract", ""),
    ],
)
def test_texts_that_are_not_used_are_said(columns: dict[str, Any], text: str, left: str, tmp_path: Path) -> None:
    rows = load(tmp_path, **{"label": cycle("yes", "no"), **columns})
    assert rows.task.columns == (text,)
    said = [note for note in rows.notes if "not used" in note]
    assert len(said) == bool(left)
    assert not left or f"the texts in {left} are not used" in said[0]


def test_a_premise_and_a_question_come_before_each_choice(tmp_path: Path) -> None:
    asked = {"premise": TEXTS, "choice1": OTHERS, "choice2": TEXTS[::-1], "question": cycle("cause", "effect")}
    rows = load(tmp_path, **asked, label=cycle(0, 1))  # COPA
    assert (rows.task.kind.name, rows.task.columns) == ("multiple_choice", ("premise", "question"))


# ---- choices


CHOICES = [{"text": [f"by hand {i}", "by post, or not"], "label": ["A", "B"]} for i in range(COUNT)]


@pytest.mark.parametrize("form", ["objects", "lists", "pandas", "json text"])
def test_choices_with_labels_of_their_own(form: str, tmp_path: Path) -> None:
    objects = [[{"label": a, "text": t} for t, a in zip(c["text"], c["label"], strict=True)] for c in CHOICES]
    arrays = [{key: np.array(each, object) for key, each in row.items()} for row in CHOICES]
    given = {"objects": objects, "lists": CHOICES, "pandas": arrays, "json text": [json.dumps(o) for o in objects]}
    suffix = "csv" if form in ("pandas", "json text") else "jsonl"
    rows = load(tmp_path, None, suffix, question=TEXTS, choices=given[form], answerKey=cycle("A", "B"))
    assert rows.task.kind.name == "multiple_choice"
    assert values_of(rows, "second_texts") == {text: CHOICES[n]["text"] for n, text in enumerate(TEXTS)}
    assert values_of(rows) == {text: n % 2 for n, text in enumerate(TEXTS)}


@pytest.mark.parametrize("form", ["letters", "letters as text", "ids", "numbers", "lists of ids", "stems"])
def test_choices_as_objects(form: str, tmp_path: Path) -> None:
    """As in MedQA, and as in the files of ARC and CommonsenseQA that their authors published."""
    texts = [row["text"] + ["not at all"] * (n % 3 == 0) for n, row in enumerate(CHOICES)]
    names = ["1", "2", "3"] if form == "numbers" else ["A", "B", "C"]
    pairs = [list(zip(names, row, strict=False)) for row in texts]
    own, kind = ("label", str) if form == "stems" else ("id", int if form == "numbers" else str)
    objects = [[{own: kind(name), "text": text} for name, text in row] for row in pairs]
    asked: dict[str, Sequence[Any]] = {"question": TEXTS, "options": objects}
    if form.startswith("letters"):
        asked["options"] = [dict(reversed(row)) for row in pairs]
    elif form == "lists of ids":
        asked["options"] = [{"id": names[: len(row)], "text": row} for row in texts]
    elif form == "stems":
        asked = {"question": [{"stem": t, "choices": each} for t, each in zip(TEXTS, objects, strict=True)]}
    suffix = "csv" if form == "letters as text" else "jsonl"
    rows = load(tmp_path, None, suffix, id=[f"q{n}" for n in range(COUNT)], **asked, answerKey=cycle(*names[:2]))
    assert (rows.task.kind.name, rows.task.columns) == ("multiple_choice", ("question",))
    assert rows.task.choices == (("choices",) if form == "stems" else ("options",))
    assert values_of(rows, "second_texts") == dict(zip(TEXTS, texts, strict=True))
    assert values_of(rows) == {text: n % 2 for n, text in enumerate(TEXTS)}


def test_numbers_that_call_some_choices_and_count_others_are_refused(tmp_path: Path) -> None:
    choices = [[{"id": n + 1, "text": text} for n, text in enumerate(row["text"])] for row in CHOICES]
    with pytest.raises(UserError, match=r"row 1: got '0' in answer, where the choices are called 1 and 2; must be one"):
        load(tmp_path, None, "jsonl", question=TEXTS, choices=choices, answer=cycle(0, 1))


def test_one_and_several_choices_of_label_studio(tmp_path: Path) -> None:
    """JSON-MIN writes a single choice as a word."""
    topics = cycle("other", {"choices": ["billing", "urgent"]}, "billing")
    path = tmp_path / "project.json"
    path.write_text(json.dumps([{"id": n, "text": t, "topic": topics[n]} for n, t in enumerate(TEXTS)]))
    rows = of_file(path)
    assert (rows.task.kind.name, rows.task.labels) == ("multi_label", ("billing", "other", "urgent"))
    expected = {"other": [0, 1, 0], "billing": [1, 0, 0]}
    found = values_of(rows)
    assert all(
        found[t] == (expected[topic] if isinstance(topic, str) else [1, 0, 1])
        for t, topic in zip(TEXTS, topics, strict=True)
    )


# ---- names beside numbers


def test_names_beside_numbers_are_the_labels(tmp_path: Path) -> None:
    """As SetFit's files have them. The teacher has its outputs in another order."""
    columns = {"text": TEXTS, "label": cycle(0, 1), "label_text": cycle("negative", "positive")}
    assert load(tmp_path, **columns).task.labels == ("negative", "positive")
    rows = load(tmp_path, Head(2, ("positive", "negative"), None), **columns)
    assert rows.task.labels == ("positive", "negative")
    assert values_of(rows) == {text: 1 - n % 2 for n, text in enumerate(TEXTS)}
    assert any("0 is negative, 1 is positive" in note for note in rows.notes)
    unnamed = load(tmp_path, Head(2, (), None), **columns)
    assert unnamed.task.labels == ("negative", "positive")
    with pytest.raises(UserError, match="must be labels of the teacher"):
        load(tmp_path, Head(2, ("spam", "ham"), None), **columns)


def test_a_file_without_the_names_has_those_of_the_training_rows(tmp_path: Path) -> None:
    pd.DataFrame({"text": TEXTS, "label": cycle(0, 1), "label_text": cycle("no", "yes")}).to_csv(tmp_path / "a.csv")
    pd.DataFrame({"text": OTHERS, "label": cycle(1, 0)}).to_csv(tmp_path / "b.csv")
    tables = {
        split: read(str(tmp_path / file), "tasks.train") for split, file in (("train", "a.csv"), ("test", "b.csv"))
    }
    rows = labelled_rows("parcels", config.Task(), tables, Head(2, ("yes", "no"), None), "tasks")
    assert targets_of(rows.reported["test"])[:4].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("names", [cycle("a", "b", "b"), cycle("x", "x"), cycle("1", "0"), TEXTS])
def test_a_column_that_names_no_numbers_is_left_alone(names: list[str], tmp_path: Path) -> None:
    assert load(tmp_path, text=OTHERS, label=cycle(0, 1), label_text=names).task.labels == ("0", "1")


MANY = "multi_label_classification"


def test_names_in_the_manifests_of_sagemaker_are_the_labels(tmp_path: Path) -> None:
    names = ("billing", "fraud")
    about = [{"class-name": names[n % 2], "confidence": 0.5, "human-annotated": "yes"} for n in range(COUNT)]
    rows = load(
        tmp_path, Head(2, names[::-1], None), "jsonl", source=TEXTS, intent=cycle(0, 1), **{"intent-metadata": about}
    )
    assert values_of(rows) == {text: 1 - n % 2 for n, text in enumerate(TEXTS)}
    assert any("the numbers in intent have the names in intent-metadata: 0 is billing, 1 is" in n for n in rows.notes)
    several = cycle([0, 1], [1], [0])
    about = [{"class-map": {str(number): names[number] for number in row}, "type": "text"} for row in several]
    beside = {"labels": several, "labels-metadata": about}
    rows = load(tmp_path, Head(2, names[::-1], MANY), "jsonl", source=TEXTS, **beside)
    assert values_of(rows) == dict(zip(TEXTS, cycle([1, 1], [1, 0], [0, 1]), strict=True))


def test_names_beside_lists_of_numbers_are_the_labels(tmp_path: Path) -> None:
    """The teachers have their outputs in another order."""
    names = cycle(["billing", "fraud"], ["urgent"], ["billing", "urgent"])
    head = Head(3, ("fraud", "billing", "urgent"), MANY)
    rows = load(tmp_path, head, "jsonl", text=TEXTS, labels=cycle([0, 2], [1], [0, 1]), labels_text=names)
    assert values_of(rows) == dict(zip(TEXTS, cycle([1, 1, 0], [0, 0, 1], [0, 1, 1]), strict=True))
    tags = [TAGS, ["O", "O", "B-PER", "I-PER", "O"]]
    numbers = [[("O", "B-PER", "I-PER").index(tag) for tag in row] for row in tags]
    beside = {"ner_tags": cycle(*numbers), "ner_tags_text": cycle(*tags)}
    order = ("I-PER", "B-PER", "O")
    expected = {" ".join(words): [order.index(tag) for tag in tags[n % 2]] for n, words in enumerate(WORDS)}
    rows = load(tmp_path, Head(3, order, None, TOKENS), "jsonl", tokens=WORDS, **beside)
    assert values_of(rows) == expected
    assert load(tmp_path, None, "jsonl", tokens=WORDS, **beside).task.labels == ("O", "B-PER", "I-PER")


def test_names_of_all_labels_beside_a_0_or_1_for_each_are_no_names_of_numbers(tmp_path: Path) -> None:
    flags, names = cycle([1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1]), [["billing", "fraud"]] * COUNT
    frame = pd.DataFrame({"text": TEXTS, "labels": flags, "labels_names": names})
    frame.to_json(tmp_path / "flags.jsonl", orient="records", lines=True)
    rows = of_file(tmp_path / "flags.jsonl", text="text")
    assert values_of(rows) == dict(zip(TEXTS, flags, strict=True))


# ---- texts that are done, and have no spans


@pytest.mark.parametrize("tool", ["Prodigy", "Label Studio"])
def test_a_text_that_is_done_and_has_no_spans_is_outside_of_them(tool: str, tmp_path: Path) -> None:
    objects = []
    for n, text in enumerate(TEXTS):
        span = {"start": 0, "end": 6, "label": "THING"}
        spans = {"spans": [span]} if tool == "Prodigy" else {"label": [span | {"text": "Parcel", "labels": ["THING"]}]}
        done = {"answer": "accept"} if tool == "Prodigy" else {"annotation_id": n + 100}
        objects.append({"text": text, **done, **(spans if n % 2 else {})})
    path = tmp_path / "project.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    rows = of_file(path)
    found = values_of(rows)
    assert all(sum(found[text]) == n % 2 and min(found[text]) == 0 for n, text in enumerate(TEXTS))
    assert any("24 texts have no spans in" in note for note in rows.notes)


def test_a_text_that_is_not_done_has_no_tags(tmp_path: Path) -> None:
    path, span = tmp_path / "project.jsonl", {"start": 0, "end": 6, "label": "THING"}
    rows = [{"text": text, **({"spans": [span]} if n % 2 else {})} for n, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert all(max(values_of(of_file(path))[text]) < 0 for text in TEXTS[::2])


def test_an_empty_cell_is_no_number_of_an_annotation() -> None:
    for values in (["101", "", None], [101.0, float("nan"), None], [101, None, None]):
        done = checked(pa.chunked_array([pa.array(values)]), "annotation_id")
        assert done is not None
        assert done.to_pylist() == [True, False, False]


# ---- words and tags


WORDS = [["Ann", "met", "Bo", "Li", f"{n}"] for n in range(COUNT)]
TAGS = ["B-PER", "O", "B-PER", "I-PER", "O"]


def words_in_rows(form: str, path: Path) -> None:
    """A file with a word in each row."""
    ids = [n for n in range(COUNT) for _ in TAGS]
    words, tags = [word for each in WORDS for word in each], TAGS * COUNT
    if form == "simpletransformers":
        frame = pd.DataFrame({"sentence_id": ids, "words": words, "labels": tags})
    else:
        marks = [f"Sentence: {n}" if place == 0 else None for n in range(COUNT) for place in range(len(TAGS))]
        frame = pd.DataFrame({"Sentence #": marks, "Word": words, "POS": "NN", "Tag": tags})
    frame.to_csv(path, index=False)


@pytest.mark.parametrize("form", ["simpletransformers", "Kaggle"])
def test_words_in_rows_are_texts(form: str, tmp_path: Path) -> None:
    words_in_rows(form, tmp_path / "words.csv")
    rows = of_file(tmp_path / "words.csv")
    assert (rows.task.kind.name, rows.task.labels) == ("token_classification", ("O", "B-PER", "I-PER"))
    assert values_of(rows) == {" ".join(words): [1, 0, 1, 2, 0] for words in WORDS}


def test_words_in_rows_without_their_texts_are_refused(tmp_path: Path) -> None:
    words_in_rows("simpletransformers", tmp_path / "words.csv")
    frame = pd.read_csv(tmp_path / "words.csv")
    frame.drop(columns="sentence_id").to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(UserError, match="must say to which text each word belongs; add a column sentence_id"):
        of_file(tmp_path / "none.csv")
    frame.sort_values("words", kind="stable").to_csv(tmp_path / "apart.csv", index=False)
    with pytest.raises(UserError, match="got words of a text in sentence_id that are apart"):
        of_file(tmp_path / "apart.csv")


def test_tags_with_spaces_between_them(tmp_path: Path) -> None:
    rows = load(tmp_path, text=[" ".join(words) for words in WORDS], labels=[" ".join(TAGS)] * COUNT)
    assert values_of(rows) == {" ".join(words): [1, 0, 1, 2, 0] for words in WORDS}


# ---- splits


def test_other_values_in_a_column_of_splits_are_left_out(tmp_path: Path) -> None:
    splits = [*cycle("train", "test", "train ", "Train")[:-3], "unlabeled", "", "test"]
    rows = load(tmp_path, text=TEXTS, label=cycle("yes", "no", "no"), split=splits)
    assert len(rows.reported["test"].rows) == sum(split == "test" for split in splits)
    assert any("rows in which it is '' or 'unlabeled' are left out (2)" in note for note in rows.notes)


def test_a_split_of_a_folder_without_any_label_is_left_out(tmp_path: Path) -> None:
    """As the test splits of GLUE, which `datasets` has on the hub."""
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
    parts = {"train": (TEXTS, cycle(0, 1)), "validation": (OTHERS, cycle(1, 0)), "test": (OTHERS[::-1], cycle(-1))}
    saved = {
        split: datasets.Dataset.from_dict({"text": texts, "label": labels}, features)
        for split, (texts, labels) in parts.items()
    }
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "saved")
    tables = of_training(str(tmp_path / "saved"), "tasks.train", config.Task())
    rows = labelled_rows("parcels", config.Task(), tables, None, "tasks")
    assert [*rows.reported] == ["validation"]
    assert "parcels: the split test has no labels, and is left out" in rows.notes


# ---- labels


@pytest.mark.parametrize("mark", [",", "\t"])
def test_row_names_of_r_are_no_values(mark: str, tmp_path: Path) -> None:
    """write.table writes no name above its row names."""
    rows = [mark.join(f'"{value}"' for value in (n + 1, text, "ab"[n % 2])) for n, text in enumerate(TEXTS)]
    path = tmp_path / ("rows.csv" if mark == "," else "rows.tsv")
    path.write_text("\n".join([f'"text"{mark}"label"', *rows]) + "\n")
    assert values_of(of_file(path)) == {text: n % 2 for n, text in enumerate(TEXTS)}


def test_a_header_within_the_rows_is_refused(tmp_path: Path) -> None:
    part = pd.DataFrame({"text": TEXTS[:20], "label": cycle("a", "b")[:20]}).to_csv(index=False)
    (tmp_path / "both.csv").write_text(part + "\ufeff" + part, encoding="utf-8")
    with pytest.raises(UserError, match="row 21: got the names of the columns again"):
        of_file(tmp_path / "both.csv")


def test_labels_that_commas_may_join_are_refused_where_none_is_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it may be one label, or the labels Action and Comedy"):
        load(tmp_path, text=TEXTS, genres=cycle("Action, Drama", "Drama", "Comedy, Drama", "Action, Comedy", "Comedy"))
    names = cycle("Smith, Ann", "Smith, Bo", "Lee, Cy", "Paris, FR", "Lyon, FR")
    assert len(load(tmp_path, text=TEXTS, author=names).task.labels) == 5


def test_the_kind_is_that_of_all_rows(tmp_path: Path) -> None:
    """Of a sorted file, the first rows have no joined labels."""
    count = 12_000
    labels = [*("abc"[n % 3] for n in range(count - 60)), *["a|b"] * 60]
    rows = load(tmp_path, text=[f"Parcel {n} of {n * 7}" for n in range(count)], topic=labels)
    assert (rows.task.kind.name, rows.task.labels) == ("multi_label", ("a", "b", "c"))
