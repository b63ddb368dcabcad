"""Files of token classification: from columns of words and tags, or of texts and spans, to tasks and their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.config import Limit, Task, Tasks
from distill.data.task_types import MISSING, WORDS
from distill.data.task_types.spans import codes, spans
from distill.data.tasks import Loaded, load_tasks, targets_of
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import TOKENS

NAMES = ("Anna", "Omar", "Ines", "Kofi", "Yuki")
PLACES = ("Oslo", "New York", "Accra")


def sentence(number: int) -> tuple[list[str], list[str]]:
    """Words and tags."""
    place = PLACES[number % 3].split()
    words = [NAMES[number % 5], "went", "to", *place, f"{number}", "times", "."]
    return words, ["B-PER", "O", "O", "B-LOC", *["I-LOC"] * (len(place) - 1), "O", "O", "O"]


def as_words(number: int) -> dict[str, Any]:
    words, tags = sentence(number)
    return {"id": str(number), "tokens": words, "ner_tags": tags}


def as_spans(number: int) -> dict[str, Any]:
    name, place = NAMES[number % 5], PLACES[number % 3]
    text = f"{name} went to {place} {number} times."
    start = text.index(place)
    spans = [
        {"start": start, "end": start + len(place), "label": "LOC"},
        {"start": 0, "end": len(name), "label": "PER"},
    ]
    return {"text": text, "entities": spans if number % 7 else []}


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("\n".join(map(json.dumps, rows)))
    return file


def load(file: Path, head: Head | None = None, **settings: Any) -> Loaded:
    return load_tasks(Tasks(train=str(file), **settings), Limit(), 0, head)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_of_words_and_tags(tmp_path: Path, suffix: str) -> None:
    loaded = load(write(tmp_path / f"ner.{suffix}", [as_words(n) for n in range(100)]))
    data = loaded.tasks["ner"]
    assert (data.task.kind.name, data.task.columns) == ("token_classification", ("tokens",))
    assert data.task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert data.task.metrics == ("span_f1",)
    rows = data.reported["validation"]
    assert 5 < len(rows) < 40
    for row, targets in zip(rows, targets_of(rows), strict=True):
        number = int(row["tokens"].split()[-3])
        words, tags = sentence(number)
        assert row["tokens"] == " ".join(words)
        places = np.reshape(row[WORDS], (-1, 2))
        assert [row["tokens"][a:b] for a, b in places] == words
        assert [data.task.labels[target] for target in targets] == tags
    truth = data.truth(rows)
    assert len(truth) == sum(map(len, rows["label"]))
    assert truth["group"].max() == len(rows) - 1
    (train,) = (row for row in loaded.coverage if row["split"] == "train")
    assert train["labels"] == {"LOC": len(data.train), "PER": len(data.train)}


def test_a_file_of_texts_and_spans(tmp_path: Path) -> None:
    data = load(write(tmp_path / "ner.jsonl", [as_spans(n) for n in range(100)])).tasks["ner"]
    assert (data.task.kind.name, data.task.columns) == ("token_classification", ("text",))
    assert data.task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    for row, targets in zip(data.train, targets_of(data.train), strict=True):
        number = int(row["text"].split()[-2])
        tags = sentence(number)[1] if number % 7 else ["O"] * len(targets)
        assert [data.task.labels[target] for target in targets] == tags


def test_training_rows_may_lack_tags(tmp_path: Path) -> None:
    rows = [as_words(n) | ({} if n % 2 else {"ner_tags": None}) for n in range(80)]
    loaded = load(write(tmp_path / "ner.jsonl", rows))
    data = loaded.tasks["ner"]
    flags = [bool((targets == MISSING).all()) for targets in targets_of(data.train)]
    assert 5 < sum(flags) < 50
    assert not any((targets == MISSING).any() for targets in targets_of(data.reported["validation"]))


def test_a_teachers_head_orders_the_tags(tmp_path: Path) -> None:
    labels = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-PER", "O")
    file = write(tmp_path / "ner.jsonl", [as_words(n) for n in range(40)])
    assert load(file, Head(6, labels, None, TOKENS)).tasks["ner"].task.labels == labels
    with pytest.raises(ConfigError, match=r"tasks.label: got .*; must be labels of the teacher, which are O, B-X"):
        load(file, Head(2, ("O", "B-X"), None, TOKENS))


def test_numbers_need_names(tmp_path: Path) -> None:
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    rows = [as_words(n) for n in range(40)]
    file = write(tmp_path / "ner.parquet", [r | {"ner_tags": [names.index(t) for t in r["ner_tags"]]} for r in rows])
    with pytest.raises(DataError, match=r"tasks.labels: got the numbers 0, 1, 3, 4 as tags; must have names"):
        load(file)
    data = load(file, labels=names).tasks["ner"]
    assert data.task.labels == tuple(names)
    assert [names[n] for n in targets_of(data.train)[0]] == sentence(int(data.train[0]["tokens"].split()[-3]))[1]


def test_the_same_text_is_not_in_two_splits(tmp_path: Path) -> None:
    train = write(tmp_path / "ner.jsonl", [as_words(n) for n in range(40)])
    test = write(tmp_path / "test.jsonl", [as_words(n) for n in range(36, 44)])
    data = load(train, test=str(test)).tasks["ner"]
    assert len(data.train) + len(data.development["development"]) == 36
    assert len(data.reported["test"]) == 8


def test_a_list_of_labels_is_still_multi_label(tmp_path: Path) -> None:
    rows = [{"text": f"Row {n}", "words": ["a"] * 5, "labels": ["x"] if n % 2 else ["x", "y"]} for n in range(40)]
    data = load(write(tmp_path / "topics.jsonl", rows)).tasks["topics"]
    assert (data.task.kind.name, data.task.columns) == ("multi_label", ("text",))


def test_pairs_are_refused(tmp_path: Path) -> None:
    rows = [as_spans(n) | {"text_pair": "a"} for n in range(40)]
    file = write(tmp_path / "ner.jsonl", rows)
    with pytest.raises(ConfigError, match=r"tasks.text: got text and text_pair; must be one column for token_class"):
        load(file)
    assert load(file, text="text").tasks["ner"].task.columns == ("text",)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "null word": ({"tokens": ["a", None], "ner_tags": ["O", "O"]}, "got null in tokens; must be text"),
    "no words": ({"tokens": [], "ner_tags": []}, "got no text in tokens; must be text"),
    "null words with tags": ({"tokens": None}, "got 0 words in tokens and "),
    "an empty tag": ({"tokens": ["a", "b"], "ner_tags": ["O", " "]}, "got null or -100 among the tags in ner_tags"),
    "null words": ({"tokens": None, "ner_tags": None}, "got null in tokens; must be text"),
}


def test_a_few_spans_without_a_beginning_begin_there_and_many_are_refused(tmp_path: Path) -> None:
    wrong = {"tokens": ["a", "b"], "ner_tags": ["O", "I-PER"]}
    rows = [as_words(n) for n in range(60)]
    data = load(write(tmp_path / "one.jsonl", [*rows, wrong]))
    assert (
        "one: train: a tag in ner_tags continues a span without a beginning, e.g. I-PER at word 2 of text 61; a span "
        "begins there, as in seqeval" in data.notes
    )
    # As start_of_chunk of seqeval and conlleval has it: I after O begins a span.
    assert spans(codes(("O", "B-PER", "I-PER"))[[0, 2]], np.zeros(2)).tolist() == [[1, 1, 0]]
    with pytest.raises(DataError, match=r"row 61: got I-PER at word 2 in ner_tags without B-PER .*, and so 8 more"):
        load(write(tmp_path / "many.jsonl", [*rows, *[wrong] * 9]))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_refused_with_file_and_row(tmp_path: Path, name: str) -> None:
    change, message = BAD[name]
    file = write(tmp_path / "ner.jsonl", [as_words(n) | (change if n == 6 else {}) for n in range(40)])
    with pytest.raises(DataError) as error:
        load(file)
    (line,) = error.value.messages
    assert line.startswith(f"{file}, row 7: got ")
    assert message in line
    assert "; " in line.partition("; must ")[2]


def test_the_kind_refuses_other_columns(tmp_path: Path) -> None:
    rows = [{"text": f"Row {n}", "label": "a" if n % 2 else "b"} for n in range(40)]
    with pytest.raises(DataError, match="got string in column label; must be a list of tags for each word or of "):
        load(write(tmp_path / "a.jsonl", rows), kind="token_classification")
    rows = [as_words(n) | {"ner_tags": "O O"} for n in range(40)]
    with pytest.raises(DataError, match="got string in column ner_tags; must be a list of tags for each word or of sp"):
        load(write(tmp_path / "b.jsonl", rows), text="tokens", label="ner_tags")
    rows = [as_words(n) | {"text": "A text."} for n in range(40)]
    with pytest.raises(DataError, match=r"got list<.*> in ner_tags; must be a list of spans .* is not a list"):
        load(write(tmp_path / "c.jsonl", rows), text="text", kind="token_classification")
    rows = [as_spans(n) | {"words": ["a"]} for n in range(40)]
    with pytest.raises(DataError, match=r"got list<.*struct.* in entities; must be a list of tags, one for"):
        load(write(tmp_path / "d.jsonl", rows), text="words")


def test_a_task_of_words_has_one_text(tmp_path: Path) -> None:
    from distill.pipeline.validation.tasks import tasks

    settings = Tasks(train="a.jsonl", kind="token_classification", text="a", text_pair="b")
    assert [*map(str, tasks(settings))] == [
        "tasks.text_pair: got b; must be left out for token_classification; leave it out"
    ]
    assert isinstance(settings, Task)
