"""A user's own files on the command line: each mistake is one line with file and row, before any model is loaded."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra._internal.hydra import Hydra
from hydra.types import RunMode

COUNT = 24
WORDS = ("card", "transfer", "refund", "limit", "address", "password")
SUBJECTS = [f"The {WORDS[i % 6]} of customer {i} does not work since {i + 2} days." for i in range(COUNT)]
QUEUES = ("billing", "fraud", "other")

Rows = dict[str, Sequence[Any]]
Files = dict[str, bytes]
"""Name of a file -> its content."""

TICKETS: Rows = {"body": SUBJECTS, "queue": [QUEUES[i % 3] for i in range(COUNT)]}
REVIEWS: Rows = {"review": SUBJECTS, "stars": [1 + i % 5 for i in range(COUNT)]}
SCORES: Rows = {"text1": SUBJECTS, "text2": SUBJECTS[1:] + SUBJECTS[:1], "score": [i / COUNT for i in range(COUNT)]}
QUERIES: Rows = {"query": SUBJECTS[:4] * 6, "document": SUBJECTS, "score": [i % 3 for i in range(COUNT)]}
MIXED = [json.dumps({QUEUES[i % 3]: 0.8, QUEUES[(i + 1) % 3]: 0.2}) for i in range(COUNT)]
SOFT: Rows = TICKETS | {"soft": MIXED}
TAGS: Rows = {"text": SUBJECTS, "labels": [[QUEUES[i % 3]] + ["urgent"] * (i % 2) for i in range(COUNT)]}
NAMES: Rows = {
    "tokens": [subject.split()[:9] for subject in SUBJECTS],
    "ner_tags": [["O"] * (7 - i % 2) + ["B-DAY"] + ["I-DAY"] * (1 + i % 2) for i in range(COUNT)],
}
SPANS: Rows = {"text": SUBJECTS, "spans": [[{"start": 4, "end": s.index(" of"), "label": "ITEM"}] for s in SUBJECTS]}
FACTS: Rows = {
    "question": [f"Which item is number {i}?" for i in range(COUNT)],
    "context": SUBJECTS,
    "answers": [{"text": [s[: s.index(" of")]], "answer_start": [0]} for s in SUBJECTS],
}
QUIZ: Rows = {"question": SUBJECTS, "choices": [["no", "yes"]] * COUNT, "answer": ["AB"[i % 2] for i in range(COUNT)]}
FLAGS: Rows = {"text": SUBJECTS, "urgent": [i % 2 for i in range(COUNT)], "angry": [i // 2 % 2 for i in range(COUNT)]}


EMBEDDING = "tasks.kind=embedding"


def cell(rows: Rows, column: str, row: int, value: Any) -> Rows:
    """The rows with another value in one row, counted from 1."""
    values = list(rows[column])
    values[row - 1] = value
    return rows | {column: values}


def first(rows: Rows, count: int) -> Rows:
    return {name: values[:count] for name, values in rows.items()}


def to_csv(rows: Rows, separator: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return text.getvalue().encode()


def to_jsonl(rows: Rows) -> bytes:
    return b"".join(
        json.dumps(dict(zip(rows, row, strict=True))).encode() + b"\n" for row in zip(*rows.values(), strict=True)
    )


def to_parquet(rows: Rows, **settings: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array(list(values)) for name, values in rows.items()}), sink, **settings)
    return sink.getvalue().to_pybytes()


def tickets(rows: Rows = TICKETS, **others: bytes) -> Files:
    return {"tickets.csv": to_csv(rows)} | {f"{name}.csv": content for name, content in others.items()}


Case = tuple[Callable[[], Files], list[str], str]
"""(files, settings besides `tasks.train`, which is the first file, what the message is)."""

BODY = "tickets.csv, row {}: "
NO_TABLE: dict[str, Case] = {
    "empty": (lambda: {"t.csv": b""}, [], "t.csv: got an empty file"),
    "header only": (lambda: {"t.csv": b"body,queue\n"}, [], "t.csv: got no rows"),
    "blank lines": (lambda: {"t.csv": b"\n\n\n"}, [], "t.csv: got only blank lines"),
    "ragged": (lambda: {"t.csv": to_csv(TICKETS) + b"x,y,z\n"}, [], "t.csv, row 25: got 3 values; must be 2"),
    "short row": (lambda: {"t.csv": to_csv(TICKETS) + b"x\n"}, [], "t.csv, row 25: got 1 values; must be 2"),
    "open quote": (lambda: {"t.csv": to_csv(TICKETS) + b'"x,billing\n'}, [], "t.csv, row 25: got a quote that is not"),
    "a wrong separator": (tickets, ["tasks.separator=';'"], "tasks.label: got nothing, and no column of tickets.csv i"),
    "a separator of two": (tickets, ["tasks.separator=ab"], "tasks.separator: got 'ab'; must be comma, semicolon"),
    "two columns of a name": (lambda: {"t.csv": b"body,body\nx,y\n"}, [], "t.csv, header: got two columns 'body'"),
    "no name": (lambda: {"t.csv": b"body,,queue\nx,0,y\n"}, [], "t.csv, header: got no name for column 2 of 3"),
    "Latin-1": (lambda: {"t.csv": to_csv(TICKETS) + b"caf\xe9,billing\n"}, [], "t.csv, row 25: got byte 0xe9"),
    "UTF-16": (lambda: {"t.csv": to_csv(TICKETS).decode().encode("utf-16")}, [], "t.csv: got UTF-16 text"),
    "a NUL byte": (lambda: {"t.csv": to_csv(TICKETS) + b"a\0b,billing\n"}, [], "t.csv, row 25: got a NUL byte"),
    "a workbook": (lambda: {"t.csv": b"PK\x03\x04\x14\0"}, [], "t.csv: got a zip file or an Excel workbook"),
    "an .xlsx": (lambda: {"t.xlsx": b"PK\x03\x04\x14\0"}, [], "tasks.train: got t.xlsx; must end with"),
    "a cut gzip": (lambda: {"t.csv.gz": gzip.compress(to_csv(TICKETS))[:-9]}, [], "t.csv.gz: got .* whole gzip"),
    "a broken line": (lambda: {"t.jsonl": to_jsonl(TICKETS) + b'{"body": \n'}, [], "t.jsonl, row 25: got broken JSON"),
    "a line that is a list": (lambda: {"t.jsonl": to_jsonl(TICKETS) + b"[1]\n"}, [], r"t.jsonl, row 25: got \[1\]"),
    "NaN in JSON": (lambda: {"t.jsonl": to_jsonl(SCORES) + b'{"score": NaN}\n'}, [], "t.jsonl, row 25: got NaN"),
    "mixed types": (lambda: {"t.jsonl": to_jsonl(TICKETS) + b'{"queue": 3}\n'}, [], "t.jsonl, row 25: got 3 in column"),
    "a cut parquet": (lambda: {"t.parquet": to_parquet(TICKETS)[:-30]}, [], "t.parquet: got .* whole parquet"),
    "an encrypted parquet": (
        lambda: {"t.parquet": b"PARE" + to_parquet(TICKETS)[4:]}, [], "t.parquet: got an encrypted file",
    ),
    "a CSV named .parquet": (lambda: {"t.parquet": to_csv(TICKETS)}, [], "t.parquet: got .*must be a parquet file"),
}  # fmt: skip
"""Files that are no tables. Of these, `tests/unit/data/test_files.py` has more."""

MALFORMED: dict[str, Case] = {
    # settings of files
    "no such file": (tickets, ["tasks.train=tickts.csv"], "tasks.train: got tickts.csv, which does not exist"),
    "a folder": (lambda: {"data/t.csv": b""}, ["tasks.train=data"], "tasks.train: got the folder data"),
    "no file in the list": (tickets, ["tasks.train=[]"], r"tasks.train: got \[\]; must be a file"),
    "no such test file": (tickets, ["tasks.test=no.csv"], "tasks.test: got no.csv, which does not exist"),
    "no such validation file": (tickets, ["tasks.validation=v*.csv"], r"tasks.validation: got v\*.csv, which matches"),
    "validation without train": (
        tickets, ["tasks.train=null", "tasks.validation=tickets.csv"], "tasks.train: got nothing; .* with tasks.valid",
    ),
    "a mapping as train": (tickets, ["tasks.train={a:b.csv}"], "tasks.train: got {'a': 'b.csv'}; must be a file or"),
    "a split named train": (
        tickets, ["tasks.validation={train:tickets.csv}"], "tasks.validation: got a split train; must have another",
    ),
    "train and hub": (tickets, ["tasks.hub=imdb"], "tasks.hub: got imdb; must be left out with tasks.train"),
    "a name that leaves the folder": (tickets, ["tasks.name=../up"], "tasks.name: got '../up' as the name of a task"),
    "a name that is too long": (tickets, [f"tasks.name={'a' * 201}"], ".*, at most 200 bytes, and not the name"),
    "files of other columns": (
        lambda: tickets(more=b"text,queue\nx,billing\n"),
        ["tasks.train=[tickets.csv,more.csv]"],
        r"more.csv: got columns \['text', 'queue'\]; must be",
    ),
    # columns
    "no such label column": (tickets, ["tasks.label=nope"], "tasks.label: got nope; must be a column of tickets.csv, "),
    "no such text column": (tickets, ["tasks.text=nope"], "tasks.text: got nope; must be a column of tickets.csv"),
    "no such second text": (
        tickets, ["tasks.text=body", "tasks.text_pair=nope"], "tasks.text_pair: got nope; must be a column of ti",
    ),
    "only the second text": (tickets, ["tasks.text_pair=body"], "tasks.text: got nothing; must be set where"),
    "text and label are one": (
        tickets, ["tasks.text=body", "tasks.label=body"], "tasks.label: got body, .* must be different columns of tick",
    ),
    "text and pair are one": (
        tickets, ["tasks.text=body", "tasks.text_pair=body"], "tasks.label: got .* must be different columns of ticket",
    ),
    "no label among the columns": (
        lambda: tickets({"body": SUBJECTS, "id": range(COUNT)}), [], "tasks.label: got nothing, and no column of tick",
    ),
    "two likely labels": (
        lambda: tickets(TICKETS | {"lang": ["en", "de"] * 12}), [], "tasks.label: got nothing, and no column of ticket",
    ),
    "only a label": (
        lambda: tickets({"label": ["a", "b"] * 12}), [], "tasks.text: got nothing, and no column of tickets.csv but th",
    ),
    "numbers as text": (
        lambda: {"t.jsonl": to_jsonl({"body": range(COUNT), "label": ["a", "b"] * 12})},
        ["tasks.text=body"],
        "t.jsonl: got int64 in column body; must be text",
    ),
    "objects as labels": (
        lambda: {"t.jsonl": to_jsonl(TICKETS | {"queue": [{"a": i} for i in range(COUNT)]})},
        ["tasks.label=queue"],
        "t.jsonl: got struct<a: int64> in column queue; must be text, whole numbers or booleans for classification",
    ),
    "free text as a label": (
        lambda: tickets({"text": SUBJECTS, "label": SUBJECTS[::-1]}), [], "tasks.label: got label, with 24 different l",
    ),
    "validation with other columns": (
        lambda: tickets(val=b"text,queue\nx,billing\n"), ["tasks.validation=val.csv"], "val.csv: got columns text, que",
    ),
    "test without labels": (
        lambda: tickets(test=b"body\nx\n"), ["tasks.test=test.csv"], "test.csv: got columns body; must have queue",
    ),
    "validation of another type": (
        lambda: {"t.jsonl": to_jsonl(TICKETS), "v.jsonl": to_jsonl(TICKETS | {"queue": [["billing", "x"]] * COUNT})},
        ["tasks.validation=v.jsonl"],
        "tasks.label: got lists of several labels in .* must be one label for classification",
    ),
    # rows
    "an empty text": (lambda: tickets(cell(TICKETS, "body", 7, " ")), [], BODY.format(7) + "got no text in body"),
    "a null text": (
        lambda: {"t.jsonl": to_jsonl(cell(TICKETS, "body", 7, None))}, [], "t.jsonl, row 7: got null in body",
    ),
    "a text that is too long": (
        lambda: tickets(cell(TICKETS, "body", 7, "x" * 1_000_001)), [], BODY.format(7) + "got a text of 1,000,001 char",
    ),
    "two rows": (lambda: tickets(first(TICKETS, 6)), ["tasks.label=queue"], "tickets.csv: got . labelled train rows"),
    "one row to validate": (
        lambda: tickets(val=to_csv(first(TICKETS, 1))),
        ["tasks.validation=val.csv"],
        "val.csv: got 1 labelled validation rows; must have 2 or more",
    ),
    "no label in any row": (
        lambda: tickets(TICKETS | {"queue": [""] * COUNT}), ["tasks.label=queue"], "tickets.csv: got no label in queue",
    ),
    "no label in validation": (
        lambda: tickets(val=to_csv(TICKETS | {"queue": [""] * COUNT})),
        ["tasks.validation=val.csv"],
        "val.csv: got 0 labelled validation rows",
    ),
    "every text leaks": (
        lambda: tickets(val=to_csv(TICKETS)), ["tasks.validation=val.csv"],
        "tickets: got 24 training rows, which are all copies of development, validation or test rows",
    ),
    # classification
    "one class": (
        lambda: tickets(TICKETS | {"queue": ["billing"] * COUNT}), ["tasks.label=queue"], "tickets.csv: got only the l",
    ),
    "an unknown label": (
        lambda: tickets(val=to_csv(cell(TICKETS, "queue", 5, "sales"))),
        ["tasks.validation=val.csv"],
        "val.csv, row 5: got label 'sales'; must be one of billing, fraud, other",
    ),
    "a label that is not listed": (
        tickets, ["tasks.labels=[billing,fraud]"], BODY.format(3) + "got label 'other'; must be one of billing, fraud",
    ),
    "labels that do not match": (tickets, ["tasks.labels=[a,b,c]"], BODY.format(1) + "got label 'billing'; must be on"),
    "labels listed twice": (tickets, ["tasks.labels=[a,A]"], r"tasks.labels: got \['a', 'A'\]; must be two different"),
    "lists as classes": (
        lambda: {"t.jsonl": to_jsonl(TAGS)}, ["tasks.kind=classification"], "tasks.label: got lists of several labels",
    ),
    "an infinite class": (
        lambda: {"t.parquet": to_parquet(cell(REVIEWS | {"stars": [1.0, 2.0] * 12}, "stars", 2, float("inf")))},
        ["tasks.kind=classification", "tasks.labels=[1,2]"],
        "t.parquet, row 2: got label 'inf'; must be one of 1, 2",
    ),
    "too many classes": (
        lambda: tickets(SCORES), ["tasks.kind=classification"], "tasks.label: got score, with 24 different labels in 2",
    ),
    "a range of classes": (tickets, ["tasks.range=[0,5]"], r"tasks.range: got \[0.0, 5.0\]; must be left out for"),
    "a threshold of classes": (tickets, ["tasks.threshold=0.3"], "tasks.threshold: got 0.3; must be left out for"),
    "a metric of numbers": (tickets, ["tasks.metrics=[pearson]"], "tasks.metrics: got pearson; must be of accuracy"),
    "no such kind": (tickets, ["tasks.kind=tagging"], "tasks.kind: got tagging; must be classification or"),
    "no such metric": (tickets, ["tasks.metrics=[f2]"], "tasks.metrics: got f2; must be of accuracy"),
    # regression
    "a word among scores": (
        lambda: tickets(cell(SCORES, "score", 9, "high")), ["tasks.kind=regression"], BODY.format(9) + "got label 'hig",
    ),
    "a decimal comma": (
        lambda: tickets(cell(SCORES, "score", 9, "0,5")), ["tasks.kind=regression"], BODY.format(9) + "got label '0,5'",
    ),
    "an infinite score": (
        lambda: {"t.parquet": to_parquet(cell(SCORES, "score", 9, np.inf))}, [], "t.parquet, row 9: got label inf",
    ),
    "a score too large": (lambda: tickets(cell(SCORES, "score", 9, "1e999")), [], BODY.format(9) + "got label '1e999'"),
    "a score out of range": (
        lambda: tickets(cell(SCORES, "score", 9, 1.5)), ["tasks.range=[0,1]"], BODY.format(9) + "got label 1.5; must",
    ),
    "a range upside down": (lambda: tickets(SCORES), ["tasks.range=[1,0]"], r"tasks.range: got \[1.0, 0.0\]; must be"),
    "one score": (lambda: tickets(SCORES | {"score": [0.5] * COUNT}), [], "tickets.csv: got the same label in all row"),
    "names of scores": (lambda: tickets(SCORES), ["tasks.labels=[a,b]"], BODY.format(1) + "got label '\\d"),
    "words as scores": (tickets, ["tasks.kind=regression"], BODY.format(1) + "got label 'billing'; must be a finite n"),
    # reranking
    "a word as relevance": (
        lambda: tickets(cell(QUERIES, "score", 9, "high")), [], BODY.format(9) + "got label 'high'; must be a",
    ),
    "one query": (
        lambda: tickets(QUERIES | {"query": ["where is my card"] * COUNT}), [], "tickets.csv: got 0 labelled ",
    ),
    "accuracy of scores": (lambda: tickets(QUERIES), ["tasks.metrics=[accuracy]"], "tasks.metrics: got accuracy; must"),
    # embedding and retrieval
    "one text to embed": (
        tickets, ["tasks.kind=embedding"], "tasks.text: got body; must be two columns for embedding; set tasks.text=CO",
    ),
    "a similarity in words": (
        lambda: tickets(cell(SCORES, "score", 9, "alike")), [EMBEDDING], BODY.format(9) + "got label 'alike'; must be",
    ),
    "a similarity outside of the range": (
        lambda: tickets(SCORES), [EMBEDDING, "tasks.range=[0,0.5]"], BODY.format(14) + "got label 0.54.*; must be a nu",
    ),
    "one similarity": (
        lambda: tickets(SCORES | {"score": [0.5] * COUNT}), [EMBEDDING], "tickets.csv: got the same label in all rows",
    ),
    "a missing text to embed": (
        lambda: {"t.jsonl": to_jsonl(cell(SCORES, "text2", 7, None))}, [EMBEDDING], "t.jsonl, row 7: got null in text2",
    ),
    "numbers to embed": (
        lambda: {"t.jsonl": to_jsonl(SCORES | {"text2": [*range(COUNT)]})},
        [EMBEDDING, "tasks.text=text1", "tasks.text_pair=text2"],
        "t.jsonl: got int64 in column text2; must be text",
    ),
    "one prompt": (
        lambda: tickets(SCORES), [EMBEDDING, "tasks.prompts=[a]"], r"tasks.prompts: got \['a'\]; must be two texts",
    ),
    "prompts of another kind": (
        tickets, ["tasks.prompts=[a,b]"], r"tasks.prompts: got \['a', 'b'\]; must be left out for classification",
    ),
    "accuracy of cosines": (
        lambda: tickets(QUERIES), ["tasks.kind=retrieval", "tasks.metrics=[accuracy]"], "tasks.metrics: got accuracy; ",
    ),
    # token_classification
    "words without a tag": (
        lambda: {"t.jsonl": to_jsonl(cell(NAMES, "ner_tags", 7, ["O"]))},
        [],
        "t.jsonl, row 7: got 9 words in tokens and 1 tags in ner_tags; must be a tag",
    ),
    "spans that have not begun": (
        lambda: {"t.jsonl": to_jsonl(cell(NAMES, "ner_tags", 7, ["O", *["I-DAY", "I-PER"] * 4]))},
        [],
        "t.jsonl, row 7: got I-DAY at word 2 in ner_tags without B-DAY before it, and so 7 more; must be tags",
    ),
    "a null among tags": (
        lambda: {"t.jsonl": to_jsonl(cell(NAMES, "ner_tags", 7, [None, *["O"] * 8]))},
        [],
        "t.jsonl, row 7: got null or -100 among the tags in ner_tags",
    ),
    "a null among words": (
        lambda: {"t.jsonl": to_jsonl(cell(NAMES, "tokens", 7, [None, *["a"] * 8]))},
        [],
        "t.jsonl, row 7: got null in tokens; must be text",
    ),
    "no words": (
        lambda: {"t.jsonl": to_jsonl(cell(cell(NAMES, "tokens", 7, []), "ner_tags", 7, []))},
        [],
        "t.jsonl, row 7: got no text in tokens",
    ),
    "an unknown tag": (
        lambda: {"t.jsonl": to_jsonl(NAMES), "v.jsonl": to_jsonl(cell(NAMES, "ner_tags", 4, ["B-CITY", *["O"] * 8]))},
        ["tasks.validation=v.jsonl"],
        "v.jsonl, row 4: got tag 'B-CITY'; must be one of O, B-DAY",
    ),
    "tags that are numbers": (
        lambda: {"t.parquet": to_parquet(NAMES | {"ner_tags": [[0] * 8 + [i % 2] for i in range(COUNT)]})},
        [],
        "tasks.labels: got the numbers 0, 1 as tags; must have names",
    ),
    "no tag but O": (
        lambda: {"t.jsonl": to_jsonl(NAMES | {"ner_tags": [["O"] * 9] * COUNT})}, [], "t.jsonl: got only the label 'O'",
    ),
    "a span inside a word": (
        lambda: {"t.jsonl": to_jsonl(cell(SPANS, "spans", 7, [{"start": 5, "end": 9, "label": "X"}]))},
        [],
        "t.jsonl, row 7: got the span .*, from 5 to 8; must begin and end with a word",
    ),
    "a span outside of the text": (
        lambda: {"t.jsonl": to_jsonl(cell(SPANS, "spans", 7, [{"start": 0, "end": 999, "label": "X"}]))},
        [],
        "t.jsonl, row 7: got a span from 0 to 999; must lie in the text's",
    ),
    "a span without a label": (
        lambda: {"t.jsonl": to_jsonl(cell(SPANS, "spans", 7, [{"start": 0, "end": 3}]))},
        [],
        "t.jsonl, row 7: got span {.*}; must have start, end and label",
    ),
    "spans that overlap": (
        lambda: {"t.jsonl": to_jsonl(cell(SPANS, "spans", 7, [{"start": 0, "end": 3, "label": "X"}] * 2))},
        [],
        "t.jsonl, row 7: got spans that overlap at 'The'",
    ),
    "words and spans": (
        lambda: {"t.jsonl": to_jsonl({"tokens": NAMES["tokens"], "spans": SPANS["spans"]})},
        ["tasks.text=tokens"],
        "t.jsonl, row 1: got list<.* in spans; must be a list of tags, one for each word in tokens",
    ),
    "a class for each text": (
        tickets, ["tasks.kind=token_classification"], "tickets.csv: got string in column .*; must be a list of tags",
    ),
    "pairs": (
        lambda: {"t.jsonl": to_jsonl(SPANS | {"text_pair": SUBJECTS})}, [], "tasks.text: got text and text_pair; must",
    ),
    "a second text with tags": (
        lambda: {"t.jsonl": to_jsonl(SPANS)},
        ["tasks.kind=token_classification", "tasks.text=text", "tasks.text_pair=other"],
        "tasks.text_pair: got other; must be left out for token_classification",
    ),
    "a metric of texts": (
        lambda: {"t.jsonl": to_jsonl(NAMES)}, ["tasks.metrics=[f1_macro]"], "tasks.metrics: got f1_macro; must be of",
    ),
    # multiple_choice
    "one choice": (
        lambda: {"t.jsonl": to_jsonl(cell(QUIZ, "choices", 7, ["no"]))}, [], "t.jsonl, row 7: got 1 choices in choices",
    ),
    "a blank choice": (
        lambda: {"t.jsonl": to_jsonl(cell(QUIZ, "choices", 7, ["no", ""]))},
        [],
        "t.jsonl, row 7: got no text as choice 2 in choices",
    ),
    "an answer that is no choice": (
        lambda: {"t.jsonl": to_jsonl(cell(QUIZ, "answer", 7, "E"))}, [], "t.jsonl, row 7: got 'E' in answer and 2 choi",
    ),
    "an answer in other words": (
        lambda: {"t.jsonl": to_jsonl(cell(QUIZ, "answer", 7, "maybe"))}, [], "t.jsonl, row 7: got 'maybe' in answer; m",
    ),
    "choices without a column": (
        tickets, ["tasks.kind=multiple_choice"], "tasks.choices: got nothing, and no column of tickets.csv is named as",
    ),
    "choices of another kind": (
        tickets, ["tasks.choices=body"], "tickets.csv: got string in column body; must be a list of texts",
    ),
    "choices twice": (
        tickets, ["tasks.choices=[body,body]"], r"tasks.choices: got \['body', 'body'\]; must be one column of lists",
    ),
    "names of choices": (
        lambda: {"t.jsonl": to_jsonl(QUIZ)}, ["tasks.labels=[no,yes]"], r"tasks.labels: got \['no', 'yes'\]; must be l",
    ),
    # question_answering
    "an answer outside of the context": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "answers", 7, {"text": ["ship"], "answer_start": []}))},
        [],
        "t.jsonl, row 7: got the answer 'ship', which is not in the context; must be a part of it",
    ),
    "an answer in another place": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "answers", 7, {"text": ["The"], "answer_start": [3]}))},
        [],
        "t.jsonl, row 7: got the answer 'The' with answer_start 3, where the context has ' ",
    ),
    "a negative start": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "answers", 7, {"text": ["The"], "answer_start": [-3]}))},
        [],
        "t.jsonl, row 7: got the answer 'The' with answer_start -3, below 0",
    ),
    "a start without a text": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "answers", 7, {"text": [], "answer_start": [3]}))},
        [],
        "t.jsonl, row 7: got 0 answers and 1 answer_start; must be one for each answer",
    ),
    "a null answer in a list": (
        lambda: {"t.jsonl": to_jsonl(FACTS | {"answers": [["The"]] * 6 + [[None]] + [["The"]] * (COUNT - 7)})},
        [],
        "t.jsonl, row 7: got null as an answer; must be text",
    ),
    "a start that is no number": (
        lambda: {
            "t.csv": to_csv({**FACTS, "answers": ["The"] * COUNT, "answer_start": [*"000000x", *"0" * (COUNT - 7)]})
        },
        [],
        "t.csv, row 7: got answer_start 'x'; must be a whole number",
    ),
    "an empty question": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "question", 7, " "))}, [], "t.jsonl, row 7: got no text in question; ",
    ),
    "no context": (
        lambda: {"t.jsonl": to_jsonl(cell(FACTS, "context", 7, None))}, [], "t.jsonl, row 7: got no text in context; m",
    ),
    "numbers as answers": (
        lambda: {"t.jsonl": to_jsonl(FACTS | {"answers": [*range(COUNT)]})},
        ["tasks.kind=question_answering"],
        "t.jsonl: got int64 in column answers; must be answers",
    ),
    "no question has an answer": (
        lambda: {"t.jsonl": to_jsonl(FACTS | {"answers": [[]] * COUNT})},
        ["tasks.kind=question_answering"],
        "t.jsonl: got the same label in all rows",
    ),
    "questions without contexts": (
        tickets, ["tasks.kind=question_answering"], "tasks.text: got nothing; must be a column of tickets.csv for que",
    ),
    "names of answers": (
        lambda: {"t.jsonl": to_jsonl(FACTS)}, ["tasks.labels=[a,b]"], r"tasks.labels: got \['a', 'b'\]; must be left",
    ),
    # multi_label
    "an unknown label in a list": (
        lambda: {"t.jsonl": to_jsonl(TAGS), "v.jsonl": to_jsonl(cell(TAGS, "labels", 4, ["billing", "sales"]))},
        ["tasks.validation=v.jsonl"],
        "v.jsonl, row 4: got label 'sales'; must be of billing, fraud, other, urgent",
    ),
    "an unknown label between bars": (
        lambda: tickets(cell(TICKETS, "queue", 4, "billing|sales")),
        ["tasks.kind=multi_label", "tasks.labels=[billing,fraud,other]"],
        BODY.format(4) + "got label 'sales'; must be of billing",
    ),
    "multi_label on fractions": (
        lambda: tickets(SCORES), ["tasks.kind=multi_label"], "tasks.kind: got multi_label, and 0.* in score of tickets",
    ),
    "multi_label on numbers": (
        lambda: {"t.jsonl": to_jsonl(REVIEWS)}, ["tasks.kind=multi_label"], "t.jsonl: got int64 in column stars; must ",
    ),
    "lists of lists": (
        lambda: {"t.jsonl": to_jsonl(TAGS | {"labels": [[["a"]], [["b"]]] * 12})}, [], "t.jsonl: got list<.* in column",
    ),
    "empty lists only": (
        lambda: {"t.jsonl": to_jsonl(TAGS | {"labels": [[]] * COUNT})}, [], "t.jsonl: got no label in labels",
    ),
    "one label in lists": (
        lambda: {"t.jsonl": to_jsonl(TAGS | {"labels": [["a"], []] * 12})}, [], "t.jsonl: got only the label 'a'",
    ),
    "the same labels in all lists": (
        lambda: {"t.jsonl": to_jsonl(TAGS | {"labels": [["a", "b"]] * COUNT})}, [], "t.jsonl: got the same label in al",
    ),
    "a column that is not 0 or 1": (
        lambda: tickets(cell(FLAGS, "angry", 3, 2)), ["tasks.label=[urgent,angry]"], BODY.format(3) + "got '2' in angr",
    ),
    "a blank among 0 and 1": (
        lambda: tickets(cell(FLAGS, "angry", 3, "")), ["tasks.label=[urgent,angry]"], BODY.format(3) + "got '' in angr",
    ),
    "lists among 0 and 1": (
        lambda: {"t.jsonl": to_jsonl(FLAGS | {"angry": [[1]] * COUNT})},
        ["tasks.label=[urgent,angry]"],
        "t.jsonl: got list<.* in column angry",
    ),
    "one of several columns is missing": (
        lambda: tickets(FLAGS), ["tasks.label=[urgent,rude]"], "tasks.label: got rude; must be a column of tickets.csv",
    ),
    "a column twice": (
        lambda: tickets(FLAGS), ["tasks.label=[urgent,urgent]"], r"tasks.label: got \['urgent', 'urgent'\]; must be di",
    ),
    "columns as classes": (
        lambda: tickets(FLAGS),
        ["tasks.label=[urgent,angry]", "tasks.kind=classification"],
        r"tasks.label: got \['urgent', 'angry'\]; must be one column",
    ),
    "a threshold of 1": (
        lambda: tickets(FLAGS), ["tasks.label=[urgent,angry]", "tasks.threshold=1"], "tasks.threshold: got 1; must be ",
    ),
    "matthews of several labels": (
        lambda: tickets(FLAGS),
        ["tasks.label=[urgent,angry]", "tasks.metrics=[matthews]"],
        "tasks.metrics: got matthews; must be of f1_micro",
    ),
    # soft labels
    "soft labels of no column": (
        tickets, ["tasks.soft_label=soft"], "tasks.soft_label: got soft; must be a column of tickets.csv, of body, que",
    ),
    "soft labels that are the label": (
        tickets, ["tasks.label=queue", "tasks.soft_label=queue"], "tasks.soft_label: got queue; must be another column",
    ),
    "soft labels of tags": (
        lambda: {"t.jsonl": to_jsonl(NAMES | {"soft": [0.5] * COUNT})}, ["tasks.soft_label=soft"],
        r"t\.jsonl, row 1: got '0.5' in soft; must be a list with an entry for each word; correct the row",
    ),
    "a list of soft labels without labels": (
        lambda: tickets(SOFT | {"soft": ["[0.5, 0.25, 0.25]"] * COUNT}), ["tasks.soft_label=soft"],
        "tasks.labels: got nothing; must be the labels in the order of the probabilities in soft; set, in that order, ",
    ),
    "a soft label of another sum": (
        lambda: tickets(cell(SOFT, "soft", 3, '{"other": 0.9}')), ["tasks.soft_label=soft"],
        BODY.format(3) + "got probabilities in soft that sum to 0.9; must sum to 1; correct the row",
    ),
    "a soft label that is negative": (
        lambda: tickets(cell(SOFT, "soft", 5, '{"other": -0.1, "fraud": 1.1}')), ["tasks.soft_label=soft"],
        BODY.format(5) + "got probability -0.1 in soft; must be a number from 0 to 1",
    ),
    "a soft label that is NaN": (
        lambda: tickets(cell(SOFT, "soft", 5, '{"other": NaN}')), ["tasks.soft_label=soft"],
        BODY.format(5) + "got probability nan in soft; must be a number from 0 to 1",
    ),
    "a soft label of another name": (
        lambda: tickets(cell(SOFT, "soft", 24, '{"spam": 1}')), ["tasks.soft_label=soft"],
        BODY.format(24) + "got label 'spam' in soft; must be of billing, fraud, other",
    ),
    "a soft label of another length": (
        lambda: {"t.jsonl": to_jsonl(cell(SOFT | {"soft": [[1, 0, 0]] * COUNT}, "soft", 7, [1, 0]))},
        ["tasks.soft_label=soft", "tasks.labels=[billing,fraud,other]"],
        "t.jsonl, row 7: got 2 probabilities in soft; must be 3, one for each label",
    ),
    "a soft label that is a word": (
        lambda: tickets(cell(SOFT, "soft", 2, "billing")), ["tasks.soft_label=soft"],
        BODY.format(2) + "got 'billing' in soft; must be a list of probabilities, or an object",
    ),
    "a soft label that is no number": (
        lambda: tickets(cell(SCORES | {"soft": [0.5] * COUNT}, "soft", 9, "high")),
        ["tasks.kind=regression", "tasks.soft_label=soft"], BODY.format(9) + "got 'high' in soft; must be a finite",
    ),
}  # fmt: skip

HEADS: dict[str, tuple[dict[str, Any], int, Callable[[], Files], list[str], str]] = {
    "other labels": (
        {"id2label": {"0": "spam", "1": "ham", "2": "eggs"}}, 3, tickets, [],
        "tasks.label: got billing, fraud, other; must be labels of the teacher, which are spam, ham, eggs",
    ),
    "fewer labels": (
        {"id2label": {"0": "billing", "1": "fraud"}}, 2, tickets, [],
        "tasks.label: got billing, fraud, other; must be labels of the teacher, which are billing, fraud",
    ),
    "labels without names": ({}, 3, tickets, [], "tasks.labels: got nothing, and the teacher's 3 outputs have no name"),
    "a number for classes": (
        {}, 1, tickets, ["tasks.kind=classification"],
        "tasks.labels: got nothing, and the teacher's 1 outputs have no names|teacher.name: got a classifier of 1 outp",
    ),
    "classes for a number": (
        {"id2label": {"0": "bad", "1": "good"}}, 2, lambda: tickets(SCORES), ["tasks.kind=regression"],
        r"teacher.name: got a classifier of 2 outputs \(bad, good\); must have a head for the labels of tickets: a num",
    ),
    "one label for several": (
        {"id2label": {"0": "angry", "1": "urgent"}, "problem_type": "single_label_classification"}, 2,
        lambda: tickets(FLAGS), ["tasks.label=[urgent,angry]"],
        "teacher.name: got a classifier of 2 outputs .* must have a head for the labels of tickets: ",
    ),
    "labels set that are others": (
        {"id2label": {"0": "billing", "1": "fraud", "2": "misc"}}, 3, tickets, ["tasks.labels=[other,fraud,billing]"],
        "teacher.name: got a classifier of 3 outputs .* must have a head for the labels of tickets: other, fraud, bill",
    ),
}  # fmt: skip
"""Case -> (config of the teacher, number of its outputs, files, settings, message)."""

TUNE = """# @package _global_
defaults:
  - /stage@stages.finetune_teacher: finetune_teacher
  - override /tasks: own
  - _self_
pipeline: [finetune_teacher]
"""
"""A recipe of one stage, which Hydra composes faster than others."""

FORM = re.compile(r"[^:]+: got .+; (.*must|names must) .+; .+")


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`refused(files, *settings)`: the line that the command line prints when it refuses the first of the files."""
    from distill.cli import run as command

    # Hydra composes the config twice, the first time to learn whether this is a sweep.
    monkeypatch.setattr(Hydra, "get_mode", lambda *_, **settings: RunMode.RUN)
    monkeypatch.setattr(command, "_tracebacks", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "tune.yaml").write_text(TUNE)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def refuse(files: Files, *settings: str) -> str:
        for name, content in files.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(content)
        train = [] if any(s.startswith("tasks.train=") for s in settings) else [f"tasks.train={next(iter(files))}"]
        arguments = ["--config-dir", str(tmp_path / "mine"), "recipe=tune", *train, *settings]
        monkeypatch.setattr(sys, "argv", ["distill", *arguments])
        began = time.process_time()
        with pytest.raises(SystemExit) as stopped:
            command.main()
        assert time.process_time() - began < 5, "torch was imported, or the file was read more than once"
        output = capsys.readouterr()
        assert (stopped.value.code, output.out) == (2, "")
        (line,) = output.err.splitlines()
        assert FORM.fullmatch(line), line
        assert not [path for path in Path().rglob("*") if path.suffix == ".safetensors" or path.name == "manifest.json"]
        return line

    return refuse


@pytest.mark.quick(32)
@pytest.mark.parametrize("case", MALFORMED)
def test_a_wrong_setting_or_row_is_one_line(case: str, refused: Callable[..., str]) -> None:
    files, settings, expected = MALFORMED[case]
    line = refused(files(), *settings)
    assert re.match(expected, line), line


@pytest.mark.slow
@pytest.mark.parametrize("case", NO_TABLE)
def test_a_file_that_is_no_table_is_one_line(case: str, refused: Callable[..., str]) -> None:
    files, settings, expected = NO_TABLE[case]
    line = refused(files(), *settings)
    assert re.match(expected, line), line


def teacher(folder: Path, outputs: int, **settings: Any) -> Path:
    """A folder with the config of a BERT classifier and its head alone."""
    from safetensors.numpy import save_file

    folder.mkdir()
    architectures = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(architectures | settings))
    save_file({"classifier.weight": np.zeros((outputs, 4), np.float32)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("case", HEADS)
def test_a_teacher_that_does_not_fit_is_one_line(case: str, refused: Callable[..., str], tmp_path: Path) -> None:
    config, outputs, files, settings, expected = HEADS[case]
    folder = teacher(tmp_path / "teacher", outputs, **config)
    line = refused(files(), f"teacher.name={folder}", *settings)
    assert re.match(expected, line), line


NO_TORCH = """
import runpy, sys
try:
    runpy.run_module("distill", run_name="__main__", alter_sys=True)
finally:
    print(*sorted({"torch", "transformers", "datasets"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_wrong_row_is_found_before_torch_is_imported(tmp_path: Path) -> None:
    config = {"id2label": {"0": "fraud", "1": "other", "2": "billing"}}
    folder = teacher(tmp_path / "teacher", 3, **config)
    (tmp_path / "tickets.csv").write_bytes(to_csv(cell(TICKETS, "queue", 20, "")))
    (tmp_path / "val.csv").write_bytes(to_csv(cell(TICKETS, "body", 5, "")))
    settings = [f"teacher.name={folder}", "tasks.train=tickets.csv", "tasks.validation=val.csv"]
    command = [sys.executable, "-c", NO_TORCH, "recipe=prune", *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "\n"), done.stderr
    assert done.stderr == "val.csv, row 5: got no text in body; must be text; remove the row\n"


def test_there_are_many_cases() -> None:
    assert len(MALFORMED) + len(NO_TABLE) + len(HEADS) >= 100
