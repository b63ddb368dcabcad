"""Tags and spans as their writers meant them: schemes, places that count other units, scripts without spaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from tokenizers.pre_tokenizers import BertPreTokenizer

from distill import config
from distill.data.files import Table
from distill.data.labelled import Labelled, labelled_rows
from distill.data.splits import targets_of
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.offsets import UNITS
from distill.data.task_types.spans import parted, types_of
from distill.data.task_types.words import words_of
from distill.data.tasks import load_tasks
from distill.data.tasks import targets_of as targets_of_rows
from distill.errors import UserError
from distill.models.families.head import Head
from distill.models.families.record import TOKENS
from tests.parcels import splits_of

KIND = TASK_TYPES["token_classification"]
COUNT = 20


def load(head: Head | None = None, **columns: Any) -> Labelled:
    table = Table(pa.table({name: pa.array(values) for name, values in columns.items()}), ("names.jsonl",), (0,))
    return labelled_rows("names", config.Task(), {"train": table}, head, "tasks")


def refusal(**columns: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(**columns)
    (line,) = caught.value.messages
    return line


def tagged(rows: Labelled) -> set[tuple[str, ...]]:
    return {
        tuple(rows.task.labels[tag] for tag in tags) for part in splits_of(rows).values() for tags in targets_of(part)
    }


def types_found(rows: Labelled) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in splits_of(rows).values():
        truth = KIND.truth(targets_of(part), [[""] * len(part.rows)], rows.task.labels)
        for name, (_, count) in KIND.recalls(truth["label"], truth, rows.task.labels).items():
            found[name] = found.get(name, 0) + count
    return found


PLAIN = ["O", "B-PER", "I-PER", "O", "B-LOC", "I-LOC", "I-LOC", "B-PER"]
FORMS = {
    "suffixes": "{type}-{prefix}",
    "suffixes with an underscore": "{type}_{prefix}",
    "an underscore": "{prefix}_{type}",
    "a colon": "{prefix}:{type}",
}


def rewritten(form: str, tags: list[str]) -> list[str]:
    return [tag if tag == "O" else form.format(prefix=tag[0], type=tag[2:]) for tag in tags]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("teacher", [False, True])
def test_schemes_with_the_same_spans(name: str, teacher: bool) -> None:
    tags = rewritten(FORMS[name], PLAIN)
    labels = tuple(dict.fromkeys(tags))
    head = Head(len(labels), labels, None, TOKENS) if teacher else None
    rows = load(head, tokens=[[f"w{n}{i}" for i in range(8)] for n in range(COUNT)], ner_tags=[tags] * COUNT)
    assert types_found(rows) == {"PER": 2 * COUNT, "LOC": COUNT}
    assert any("are read as prefix and type" in note for note in rows.notes)
    assert {*types_of(rows.task.labels)} == {"PER", "LOC"}
    assert tagged(rows) == {tuple(tags)}


def test_schemes_of_chinese_files() -> None:
    assert parted(["O", "B-NAME", "M-NAME", "E-NAME", "S-ORG"]) == [
        ("", ""), ("B", "NAME"), ("M", "NAME"), ("E", "NAME"), ("S", "ORG"),
    ]  # fmt: skip


@pytest.mark.parametrize("tags", [("O", "PER", "LOC"), ("O", "HEPATITIS-B"), ("O", "VITAMIN-B", "DRUG"), ("O", "I-94")])
def test_types_that_look_like_a_scheme(tags: tuple[str, ...]) -> None:
    assert types_of(tags) == [tag.removeprefix("I-") for tag in tags[1:]]


def test_iob1_is_read_and_said() -> None:
    tags = ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "O"]
    rows = load(tokens=[["a", "b", "c", "d", "e", "f"]] * 3 + [["g", f"{n}"] for n in range(COUNT)],
                ner_tags=[tags] * 3 + [["O", "I-PER"]] * COUNT)  # fmt: skip
    assert types_found(rows)["LOC"] == 2 * 3
    assert any("are in the scheme IOB1" in note for note in rows.notes)
    broken = [tags, ["O", "B-PER"]]
    line = refusal(tokens=[["a", "b", "c", "d", "e", "f"], ["g", "h"]] * COUNT, ner_tags=broken * COUNT)
    assert line.startswith("names.jsonl, row 1: got I-PER at word 1 in ner_tags without B-PER before it")


TEXT = "🚀 é in NY, 🎉 or LA"


def place(text: str, word: str, unit: str) -> dict[str, Any]:
    """A span as a tool counts it that encodes the text."""
    start = text.index(word)
    encode = {"characters": lambda part: len(part), "UTF-16 units": lambda part: len(part.encode("utf-16-le")) // 2,
              "bytes of UTF-8": lambda part: len(part.encode())}[unit]  # fmt: skip
    return {"start": encode(text[:start]), "end": encode(text[: start + len(word)]), "label": "LOC"}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("stated", [False, True])
def test_places_in_other_units_are_read_where_all_fit(unit: str, stated: bool) -> None:
    texts = [f"{TEXT}, order {n}" for n in range(COUNT)]
    spans = [[place(text, word, unit) | ({"text": word} if stated else {}) for word in ("NY", "LA")] for text in texts]
    rows = load(text=texts, spans=spans)
    assert types_found(rows) == {"LOC": 2 * COUNT}
    (tags,) = tagged(rows)
    assert [n for n, tag in enumerate(tags) if tag != "O"] == [words(texts[0]).index("NY"), words(texts[0]).index("LA")]
    assert any(f"the places of spans in spans count {unit}" in note for note in rows.notes) is (unit != "characters")


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in words_of(text)]


def test_a_span_with_another_text_is_refused_with_its_row() -> None:
    texts = [f"Send {n} to Oslo today" for n in range(COUNT)]
    spans = [[place(text, "Oslo", "characters") | {"text": "Oslo"}] for text in texts]
    spans[3][0]["text"] = "Rome"
    line = refusal(text=texts, spans=spans)
    assert line.startswith(
        "names.jsonl, row 4: got a span with the text 'Rome', from 10 to 14, where the row has 'Oslo'"
    )


def test_places_that_fit_in_two_units_are_refused() -> None:
    texts = [f"🚀🎉🔥 in NY or so, order {n}" for n in range(COUNT)]
    spans = [[{"start": 10, "end": 12, "label": "LOC"}] for _ in texts]
    assert "whether their places count characters or UTF-16 units" in refusal(text=texts, spans=spans)
    stated = [[span | {"text": "NY"} for span in row] for row in spans]
    (tags,) = tagged(load(text=texts, spans=stated))
    assert tags[words(texts[0]).index("NY")] == "B-LOC"


@pytest.mark.parametrize(
    "span",
    [
        {"start_offset": 5, "end_offset": 9, "label": "LOC"},
        {"start": 5.0, "end": 9.0, "labels": ["LOC"]},
        {"start": 4, "end": 10, "entity": "LOC", "value": "Oslo "},
        {"char_start": 5, "char_end": 9, "label": "LOC"},
        {"startPos": 5, "endPos": 9, "label": "LOC"},
        {"BeginOffset": 5, "EndOffset": 9, "Score": 0.9, "Text": "Oslo", "Type": "LOC"},
    ],
)
def test_names_in_spans_and_spaces_at_their_edges(span: dict[str, Any]) -> None:
    rows = load(text=[f"From Oslo {n} by train" for n in range(COUNT)], entities=[[span]] * COUNT)
    assert tagged(rows) == {("O", "B-LOC", "O", "O", "O")}
    assert any("begin or end with spaces" in note for note in rows.notes) is (span.get("start") == 4)


@pytest.mark.parametrize("names", [("start", "end", "label"), ("begin", "end_offset", "type")])
def test_spans_as_lists_of_their_places_and_types(names: tuple[str, str, str]) -> None:
    texts = [f"From Oslo {n} by train" for n in range(COUNT)]
    spans: list[Any] = [
        dict(zip(names, ([5], [9], ["LOC"]) if n % 4 else ([], [], []), strict=True)) for n in range(COUNT)
    ]
    assert tagged(load(text=texts, entities=spans)) == {("O", "B-LOC", "O", "O", "O"), ("O",) * 5}
    spans[2] = dict(zip(names, ([5], [9, 12], ["LOC"]), strict=True))
    line = refusal(text=texts, entities=spans)
    assert line.startswith(
        f"names.jsonl, row 3: got lists of different lengths in entities, 1 in {names[0]}, 2 in {names[1]}"
    )


def test_spans_that_datasets_writes(tmp_path: Path) -> None:
    """It stores a sequence of objects as an object of lists, and names of classes as numbers."""
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "spans": {
                "start": [datasets.Value("int64")],
                "end": [datasets.Value("int64")],
                "label": [datasets.ClassLabel(names=["PER", "LOC"])],
            },
        }
    )
    texts = [f"From Oslo {n} by train" for n in range(60)]
    rows = {"text": texts, "spans": [{"start": [5], "end": [9], "label": [1]}] * len(texts)}
    datasets.Dataset.from_dict(rows, features).to_parquet(str(tmp_path / "train.parquet"))
    (task,) = load_tasks(config.Tasks(train=str(tmp_path / "train.parquet")), config.Limit(), 0).tasks.values()
    assert {*task.task.labels} == {"O", "B-LOC", "I-LOC"}
    assert {tuple(tags) for tags in targets_of_rows(task.train)} == {(0, 1, 0, 0, 0)}


def test_a_span_with_two_labels_is_refused() -> None:
    spans = [[{"start": 0, "end": 4, "labels": ["LOC", "ORG"]}]] * COUNT
    assert "got a span with the labels LOC, ORG; must be one" in refusal(text=["Oslo"] * COUNT, spans=spans)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我住在北京2024年", ["我", "住", "在", "北", "京", "2024", "年"]),
        ("東京タワー, Inc.", ["東", "京", "タ", "ワ", "ー", ",", "Inc", "."]),
        ("ไปที่นี่", ["ไ", "ป", "ที่", "นี่"]),
        ("서울에서 만나요", ["서울에서", "만나요"]),
        ("snake_case Ünal", ["snake_case", "Ünal"]),
    ],
)
def test_letters_of_scripts_without_spaces_are_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


MARKED = (
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e, \u0b9a\u0bc6\u0ba9\u0bcd\u0ba9\u0bc8; "
    "\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651! \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd"
    " Jose\u0301 re\u0301sume\u0301s."
)
"""Hindi, Tamil, pointed Arabic and Hebrew, and accents that are characters of their own."""


def test_marks_are_of_the_word_of_their_letters() -> None:
    """As where BERT's tokenizers divide texts: at spaces and punctuation."""
    assert words(MARKED) == [word for word, _ in BertPreTokenizer().pre_tokenize_str(MARKED)]


def test_a_span_of_one_word_has_one_tag_whatever_marks_it_has() -> None:
    delhi = "\u0926\u093f\u0932\u094d\u0932\u0940"
    texts = [f"{delhi} \u092e\u0947\u0902 {number}" for number in range(COUNT)]
    rows = load(text=texts, spans=[[{"start": 0, "end": len(delhi), "label": "LOC"}]] * COUNT)
    assert tagged(rows) == {("B-LOC", "O", "O")}


def test_spans_in_scripts_without_spaces() -> None:
    texts = [f"我住在北京{number}" for number in range(COUNT)]
    rows = load(text=texts, spans=[[{"start": 3, "end": 5, "label": "LOC"}]] * COUNT)
    assert tagged(rows) == {("O", "O", "O", "B-LOC", "I-LOC", "O")}
    (answer,) = KIND.answer(
        np.eye(3)[[0, 0, 0, 1, 2]] * 9, ("O", "B-LOC", "I-LOC"), 0.5, [("我住在北京", words_of("我住在北京"))]
    )
    assert [span["text"] for span in answer["spans"]] == ["北京"]


@pytest.mark.parametrize(
    "other",
    [{"type": "labels"}, {"entity": "x"}, {"tag": "y"}, {"label": None}, {"note": None}],
    ids=lambda other: next(iter(other)),
)
def test_the_labels_of_a_span_are_its_label_whatever_stands_beside_them(other: dict[str, Any], tmp_path: Path) -> None:
    """Label Studio writes what it labels as `type`, and tools write keys that are always null."""
    spans = [{"start": 0, "end": 3, "labels": ["PER"], **other}, {"start": 8, "end": 11, "labels": ["PER"]}]
    rows = [{"text": f"Ann met Bob {number}", "label": spans} for number in range(60)]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (task,) = load_tasks(config.Tasks(train=str(tmp_path / "train.jsonl")), config.Limit(), 0).tasks.values()
    assert {*task.task.labels} == {"O", "B-PER", "I-PER"}
