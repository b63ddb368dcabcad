"""Which columns and kind are chosen for usual files, and which files are ambiguous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from distill import config
from distill.data.columns import columns_of, texts_of
from distill.errors import ConfigError
from distill.models.families.head import Head
from distill.models.families.record import CHOICES, TEXTS, TOKENS

COUNT = 40
SUBJECTS = [f"The order {i} of customer {i * 7} has not arrived yet, and nobody answers." for i in range(COUNT)]
TITLES = [f"Order {i}" for i in range(COUNT)]
QUEUES = ["billing", "fraud", "other", "sales"] * (COUNT // 4)
BITS = ["0", "1"] * (COUNT // 2)
BESIDE = {"id": [str(i) for i in range(COUNT)], "date": [f"2024-05-{i + 1:02}" for i in range(COUNT)]}
CONSTANT = {"lang": ["en"] * COUNT}


def cycle(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(COUNT)]


Expected = tuple[tuple[str, ...], tuple[str, ...], str]
"""(text columns, label columns, kind)."""

FILES: dict[str, tuple[dict[str, Sequence[Any]], Expected]] = {
    "tickets": ({"body": SUBJECTS, "queue": QUEUES}, (("body",), ("queue",), "classification")),
    "tickets with columns beside": (
        {**BESIDE, **CONSTANT, "queue": QUEUES, "body": SUBJECTS}, (("body",), ("queue",), "classification"),
    ),
    "names in capitals": ({"Text": SUBJECTS, "LABEL": QUEUES}, (("Text",), ("LABEL",), "classification")),
    "no usual name": (
        {"title": TITLES, "complaint": SUBJECTS, "queue": QUEUES}, (("title",), ("queue",), "classification"),
    ),
    "the longest text": (
        {"short": TITLES, "long": SUBJECTS, "queue": QUEUES}, (("long",), ("queue",), "classification"),
    ),
    "numbers of classes": ({"text": SUBJECTS, "label": BITS}, (("text",), ("label",), "classification")),
    "booleans": ({"text": SUBJECTS, "spam": cycle(True, False)}, (("text",), ("spam",), "classification")),
    "stars": (
        {"review": SUBJECTS, "stars": cycle("1", "2", "3", "4", "5")}, (("review",), ("stars",), "classification"),
    ),
    "stars that pandas wrote": (
        {"review": SUBJECTS, "stars": cycle("1.0", "2.0", "")}, (("review",), ("stars",), "classification"),
    ),
    "stars of five": ({"review": SUBJECTS, "stars": cycle("1/5", "4/5")}, (("review",), ("stars",), "classification")),
    "half stars": ({"review": SUBJECTS, "stars": cycle(0.5, 1.0, 1.5)}, (("review",), ("stars",), "regression")),
    "many whole numbers": (
        {"text": SUBJECTS, "score": [str(i) for i in range(COUNT)]}, (("text",), ("score",), "regression"),
    ),
    "scores with a mistake": (
        {"text": SUBJECTS, "score": ["high", *(f"0.{i:02}" for i in range(1, COUNT))]},
        (("text",), ("score",), "regression"),
    ),
    "pairs": (
        {"sentence1": SUBJECTS, "sentence2": SUBJECTS, "score": [i / COUNT for i in range(COUNT)]},
        (("sentence1", "sentence2"), ("score",), "regression"),
    ),
    "inference": (
        {"id": BESIDE["id"], "hypothesis": TITLES, "premise": SUBJECTS, "label": cycle("yes", "no", "maybe")},
        (("premise", "hypothesis"), ("label",), "classification"),
    ),
    "lists": (
        {"text": SUBJECTS, "tags": cycle(["a"], ["a", "b"], [])}, (("text",), ("tags",), "multi_label"),
    ),
    "lists that are filled up": (
        {"text": SUBJECTS, "tags": cycle(["a", "", ""], ["a", "b", ""], ["", "", ""])},
        (("text",), ("tags",), "multi_label"),
    ),
    "lists that nulls fill up": (
        {"text": SUBJECTS, "tags": cycle(["a", None, None], ["b", None, None])}, (("text",), ("tags",), "multi_label"),
    ),
    "a 0 or 1 for each label": (
        {"text": SUBJECTS, "tags": cycle([1, 0, 1], [0, 0, 0])}, (("text",), ("tags",), "multi_label"),
    ),
    "a 0 or 1 for each label as text": (
        {"text": SUBJECTS, "tags": cycle(["1", "0", "1"], ["0", "0", "0"])}, (("text",), ("tags",), "multi_label"),
    ),
    "bars": ({"text": SUBJECTS, "topic": cycle("a|b", "a", "b|c", "c")}, (("text",), ("topic",), "multi_label")),
    "more and more bars": (
        {"text": SUBJECTS, "topic": cycle("", "a", "a|b", "a|b|c")}, (("text",), ("topic",), "multi_label"),
    ),
    "bars in all rows": (
        {"text": SUBJECTS, "topic": cycle("a;b", "b;c", "c;d", "a;c", "a;d")}, (("text",), ("topic",), "multi_label"),
    ),
    "levels": ({"text": SUBJECTS, "topic": cycle("x|a", "x|b", "y|c")}, (("text",), ("topic",), "classification")),
    "a query and documents": (
        {"query": cycle("a", "b", "c"), "passage": SUBJECTS, "relevance": BITS},
        (("query", "passage"), ("relevance",), "reranking"),
    ),
    **{
        f"a query and its {name}": (
            {"query": cycle("a", "b", "c"), name: SUBJECTS, "relevance": BITS},
            (("query", name), ("relevance",), "reranking"),
        )
        for name in ("text", "content", "doc", "answer")
    },
    "a query, a text and more about it": (
        {"query": cycle("a", "b", "c"), "text": SUBJECTS, "context": TITLES, "relevance": BITS},
        (("query", "text"), ("relevance",), "reranking"),
    ),
    "a text, and where it is from": (
        {"text": SUBJECTS, "query": cycle("a", "b", "c"), "context": TITLES, "sentiment": BITS},
        (("text",), ("sentiment",), "classification"),
    ),
    "verdicts on a context": (
        {"question": TITLES, "context": [f"{text} we know" for text in SUBJECTS], "answer": cycle("yes", "no")},
        (("question", "context"), ("answer",), "classification"),
    ),
    "letters of choices that the context has": (
        {
            "question": TITLES, "context": [f"A B C {text}" for text in SUBJECTS],
            "options": cycle(["dogs", "cats"], ["one", "two"]), "answer": cycle("A", "B"),
        },
        (("context", "question"), ("answer",), "multiple_choice"),
    ),
    "texts of choices that the context has": (
        {
            "question": TITLES, "context": [f"dogs and cats, {text}" for text in SUBJECTS],
            "choices": cycle(["dogs", "cats"]), "answer": cycle("cats", "dogs"),
        },
        (("context", "question"), ("answer",), "multiple_choice"),
    ),
    "answers under another name": (
        {"question": TITLES, "context": SUBJECTS, "answer_text": [text.split()[-1] for text in SUBJECTS]},
        (("question", "context"), ("answer_text",), "question_answering"),
    ),
    "one mark in each row as the query": (
        {"text": SUBJECTS, "query": cycle("NO_QUERY"), "label": BITS}, (("text",), ("label",), "classification"),
    ),
    "a query and a class of the text": (
        {"text": SUBJECTS, "query": TITLES, "sentiment": BITS}, (("text",), ("sentiment",), "classification"),
    ),
    "a query and its answer, with intents": (
        {"query": SUBJECTS, "answer": TITLES, "label": cycle(*map(str, range(7)))},
        (("query",), ("label",), "classification"),
    ),
    "an answer that is judged": (
        {
            "question": TITLES, "context": SUBJECTS, "answer_text": [text.split()[-1] for text in SUBJECTS],
            "label": cycle("right", "wrong"),
        },
        (("question", "context"), ("label",), "classification"),
    ),
    "the answer beside the accepted ones": (
        {
            "question": TITLES, "context": SUBJECTS, "answers": [[text.split()[-1]] for text in SUBJECTS],
            "answer": [text.split()[-1] for text in SUBJECTS],
        },
        (("question", "context"), ("answers",), "question_answering"),
    ),
    "decimal commas on a scale": (
        {"text": SUBJECTS, "rating": cycle(*"123456789", "7,5", "8,2", "5,5", "6,3")},
        (("text",), ("rating",), "regression"),
    ),
    "a query and classes": (
        {"query": TITLES, "passage": SUBJECTS, "label": cycle("yes", "no")},
        (("query", "passage"), ("label",), "classification"),
    ),
    "a bar in one name": ({"text": SUBJECTS, "topic": cycle("a|b", "c")}, (("text",), ("topic",), "classification")),
    "commas": ({"text": SUBJECTS, "topic": cycle("a, b", "a", "c")}, (("text",), ("topic",), "classification")),
    "words beside parts of speech": (
        {
            "form": [text.split() for text in SUBJECTS], "upos": [["X"] * len(text.split()) for text in SUBJECTS],
            "ner_tags": [["O"] * len(text.split()) for text in SUBJECTS],
        },
        (("form",), ("ner_tags",), "token_classification"),
    ),
    "unlabelled rows": (
        {"text": SUBJECTS, "label": cycle("a", "b", "", "")}, (("text",), ("label",), "classification"),
    ),
    "objects beside": (
        {"text": SUBJECTS, "queue": QUEUES, "meta": cycle({"a": 1}), "none": [None] * COUNT},
        (("text",), ("queue",), "classification"),
    ),
}  # fmt: skip


def chosen(data: dict[str, Sequence[Any]], head: Head | None = None, **settings: Any) -> Expected:
    table = pa.table({name: pa.array(list(values)) for name, values in data.items()})
    columns = columns_of(config.Task(**settings), table, head, "tasks", "rows.csv")
    return columns.text, columns.label, columns.kind.name


def test_documents_without_their_queries_are_no_reranking() -> None:
    data = {"query": cycle("a", "b", "c"), "body": SUBJECTS, "score": BITS}
    assert chosen(data, text="query", text_pair="body", kind="reranking")[0] == ("query", "body")
    with pytest.raises(ConfigError, match=r"tasks.text: got body; must be two columns for reranking; set .*text_pair="):
        chosen(data, kind="reranking")


@pytest.mark.parametrize("name", FILES)
def test_columns_and_kind_of_usual_files(name: str) -> None:
    data, expected = FILES[name]
    assert chosen(data) == chosen(dict(reversed(data.items()))) == expected


FLAGS: dict[str, Sequence[Any]] = {"text": SUBJECTS, "urgent": BITS, "angry": BITS[::-1]}


def test_settings_win() -> None:
    data = {**FILES["tickets with columns beside"][0], "title": TITLES, "score": BITS}
    assert chosen(data) == (("body",), ("score",), "classification")
    assert chosen(data, text="title", label="queue") == (("title",), ("queue",), "classification")
    assert chosen(data, text="title", text_pair="body", label="queue")[0] == ("title", "body")
    assert chosen(data, label="score", kind="regression")[2] == "regression"
    assert chosen(FLAGS, label=["urgent", "angry"]) == (("text",), ("urgent", "angry"), "multi_label")
    assert chosen(FLAGS, label=["angry"]) == (("text",), ("angry",), "classification")


@pytest.mark.parametrize(
    ("label", "head", "kind"),
    [
        ("queue", Head(4, (), None), "classification"),
        ("queue", Head(4, (), "multi_label_classification"), "multi_label"),
        ("stars", Head(1, (), None), "regression"),
        ("stars", Head(5, (), None), "classification"),
        ("intents", Head(77, (), None), "classification"),
        ("intents", None, "regression"),
        ("tags", Head(3, (), None), "multi_label"),
    ],
)
def test_the_kind_is_that_of_the_teachers_head(label: str, head: Head | None, kind: str) -> None:
    columns = {"queue": QUEUES, "stars": cycle("1", "2", "3"), "intents": list(range(COUNT)), "tags": cycle(["a"], [])}
    assert chosen({"text": SUBJECTS, label: columns[label]}, head, label=label)[2] == kind


WRONG: dict[str, tuple[dict[str, Sequence[Any]], dict[str, Any], str]] = {
    "two likely labels": (
        {"body": SUBJECTS, "queue": QUEUES, "country": cycle("de", "fr")}, {},
        "tasks.label: got nothing, and no column of rows.csv is named as a label; must be one of body, queue, country, "
        "or a list of columns of 0 and 1; set tasks.label=queue or tasks.label=country",
    ),
    "several columns of 0 and 1": (FLAGS, {}, "tasks.label: got nothing, "),
    "no label": ({"body": SUBJECTS, **BESIDE}, {}, "tasks.label: got nothing, "),
    "no text": ({"label": QUEUES, "n": range(COUNT)}, {}, "tasks.text: got nothing, and no column of rows.csv but "),
    "no such label": ({"body": SUBJECTS, "queue": QUEUES}, {"label": "Queue"},
        "tasks.label: got Queue; must be a column of rows.csv, which has body, queue; correct it"),
    "no such text": ({"body": SUBJECTS, "queue": QUEUES}, {"text": "x"}, "tasks.text: got x; must be a column of "),
    "no such pair": (
        {"body": SUBJECTS, "queue": QUEUES}, {"text": "body", "text_pair": "x"}, "tasks.text_pair: got x; must be a ",
    ),
    "a tag for each word of a sentence": (
        {
            "sentence": [" ".join(SUBJECTS[i].split()[: 4 + i % 5]) for i in range(COUNT)],
            "tags": [["O", "B-NAME"] * 2 + ["O"] * (i % 5) for i in range(COUNT)],
        }, {},
        "tasks.label: got as many labels as the text has words in column tags of rows.csv; they may be tags of the wo",
    ),
    "a tag and a part of speech for each word of a sentence": (
        {
            "Sentence": [" ".join(SUBJECTS[i].split()[: 4 + i % 5]) for i in range(COUNT)],
            "POS": [["DT", "NN"] * 2 + ["IN"] * (i % 5) for i in range(COUNT)],
            "Tag": [["O", "B-per"] * 2 + ["O"] * (i % 5) for i in range(COUNT)],
        }, {},
        "tasks.label: got as many labels as the text has words in column Tag of rows.csv; they may be tags of the wor",
    ),
    **{
        f"labels twice in {name}": (
            {"text": SUBJECTS, "labels": cycle(*lists)}, {},
            "tasks.label: got lists of which most have a label twice in column labels of rows.csv; they may be tags",
        )
        for name, lists in {
            "lists of one size": (["a", "a", "b"], ["b", "b", "b"], ["a", "b", "c"]),
            "lists of several sizes": (["a", "a", "b"], ["b", "b"], ["c"]),
            "lists of numbers": ([0, 0, 3], [0, 1, 0, 2], [0, 0]),
        }.items()
    },
    **{
        f"numbers such as {values[0]}": (
            {"text": SUBJECTS, "score": cycle(*values)}, {},
            f"tasks.label: got '{values[0]}' in column score of rows.csv; it may be the number {number}, or",
        )
        for number, values in {
            "0": [f"{i}%" for i in range(COUNT)],
            "7.5": ["7.5/10", "8/10", "9/10"],
            "3,5": ["3,5 %", "4%"],
            "4.5": ["4.5 out of 5 stars", "", "3.0 out of 5 stars"],
        }.items()
    },
    "text as label": ({"body": SUBJECTS, "queue": QUEUES}, {"text": "queue", "label": "queue"},
        "tasks.label: got queue, with text from queue; must be different columns of rows.csv; name queue once"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_ambiguous_file_is_refused(name: str) -> None:
    data, settings, message = WRONG[name]
    with pytest.raises(ConfigError) as refused:
        chosen(data, **settings)
    (line,) = refused.value.messages
    assert line.startswith(message)


@pytest.mark.parametrize(
    ("architecture", "made_from", "settings", "expected"),
    [
        (TEXTS, ((), ()), {}, (("text",), (), True)),
        (TEXTS, (("note",), ()), {}, (("note",), (), False)),
        (TEXTS, (("absent",), ()), {}, (("text",), (), True)),
        (TEXTS, (("note",), ()), {"text": "text"}, (("text",), (), False)),
        (TEXTS, ((), ()), {"label": "text"}, (("note",), (), True)),
        (TOKENS, ((), ()), {}, (("tokens",), (), True)),
        (TOKENS, ((), ()), {"text": "note"}, (("note",), (), False)),
        (CHOICES, ((), ()), {}, (("text",), ("options",), True)),
        (CHOICES, (("note",), ("options",)), {}, (("note",), ("options",), False)),
    ],
)
def test_texts_that_a_model_is_asked_about(
    architecture: str, made_from: tuple[Any, Any], settings: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """The columns of the settings go before those that the model was made from, and these before likely ones."""
    table = pa.table({"text": ["a b"], "note": ["a longer b"], "tokens": [["a", "b"]], "options": [["a", "b"]]})
    task = config.Task(**settings)
    assert texts_of(task, table, *made_from, architecture, "tasks", "rows.jsonl") == expected
