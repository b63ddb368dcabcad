"""Each format of docs/data/formats.md, as its tool writes it: the kind of task and the labels that it becomes."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from distill import config
from distill.data.tasks import load_tasks

COUNT = 40
NAMES = ("Anna", "Bela", "Cleo", "Dana")
PLACES = ("Oslo", "Graz", "Lyon")
PAIRS = [(NAMES[n % 4], PLACES[n % 3]) for n in range(COUNT)]
TEXTS = [f"{name} took train {n} to {place} ." for n, (name, place) in enumerate(PAIRS)]
SPANS = [
    [(0, len(name), "PER", name), (text.index(place), text.index(place) + len(place), "LOC", place)]
    for text, (name, place) in zip(TEXTS, PAIRS, strict=True)
]
MOODS = [("calm", "loud", "odd")[n % 3] for n in range(COUNT)]
BIO = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def lines(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def tags(spans: Sequence[tuple[int, int, str, str]], words: Sequence[str]) -> list[str]:
    types = {word: kind for *_, kind, word in spans}
    return [f"B-{types[word]}" if word in types else "O" for word in words]


def conll(columns: Callable[[int, str, str], str], before: str = "") -> str:
    """A text after the other. `columns`: number of a word, the word and its tag -> its line; `before`: each text."""
    texts = []
    for text, spans in zip(TEXTS, SPANS, strict=True):
        words = text.split()
        tagged = enumerate(zip(words, tags(spans, words), strict=True), 1)
        texts.append(before + "".join(columns(number, *both) + "\n" for number, both in tagged))
    return "\n".join(texts)


def prodigy_spans() -> list[dict[str, Any]]:
    rows = []
    for n, (text, spans) in enumerate(zip(TEXTS, SPANS, strict=True)):
        words = enumerate(re.finditer(r"\S+", text))
        tokens = [{"text": at[0], "start": at.start(), "end": at.end(), "id": i, "ws": True} for i, at in words]
        marked = [{"start": s, "end": e, "token_start": 0, "token_end": 0, "label": kind} for s, e, kind, _ in spans]
        ids = {"_input_hash": n, "_task_hash": -n, "_view_id": "ner_manual", "_timestamp": 1700000000 + n}
        answer = "reject" if n % 10 == 9 else "accept"
        rows.append({"text": text, "tokens": tokens, "spans": marked, "answer": answer, **ids})
    return rows


def prodigy_choices() -> list[dict[str, Any]]:
    options = [{"id": each, "text": each} for each in sorted({*MOODS})]
    kept = [n % 10 != 9 for n in range(COUNT)]
    return [
        {
            "text": text,
            "_input_hash": n,
            "_task_hash": -n,
            "options": options,
            "_view_id": "choice",
            "config": {"choice_style": "single"},
            "accept": [mood] if kept[n] else [],
            "answer": "accept" if kept[n] else "ignore",
            "_timestamp": 1700000000 + n,
        }
        for n, (text, mood) in enumerate(zip(TEXTS, MOODS, strict=True))
    ]


def label_studio_spans() -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "text": text,
            "label": [{"start": s, "end": e, "text": word, "labels": [kind]} for s, e, kind, word in spans],
            "annotator": 1,
            "annotation_id": n,
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": "2024-01-01T00:00:00Z",
            "lead_time": 3.5,
        }
        for n, (text, spans) in enumerate(zip(TEXTS, SPANS, strict=True))
    ]


def squad() -> dict[str, Any]:
    paragraphs = [
        {
            "context": text,
            "qas": [
                {"id": str(n), "question": f"Who took train {n}?", "answers": [{"text": name, "answer_start": 0}],
                 "is_impossible": False},
                {"id": f"none {n}", "question": f"Who missed train {n}?", "answers": [], "is_impossible": True},
            ],
        }
        for n, (text, (name, _)) in enumerate(zip(TEXTS, PAIRS, strict=True))
    ]  # fmt: skip
    return {"version": "v2.0", "data": [{"title": "Trains", "paragraphs": paragraphs}]}


def beir(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        lines([{"_id": str(n), "title": "", "text": text, "metadata": {}} for n, text in enumerate(TEXTS)])
    )
    (folder / "queries.jsonl").write_text(
        lines([{"_id": f"q{n}", "text": f"train {n}", "metadata": {str(n): []}} for n in range(COUNT)])
    )
    for split, part in {"train": range(30), "test": range(30, COUNT)}.items():
        rows = ["query-id\tcorpus-id\tscore", *(f"q{n}\t{n}\t1" for n in part)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")


def saved(folder: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["calm", "loud", "odd"])})
    rows = Dataset.from_dict({"text": TEXTS, "label": [n % 3 for n in range(COUNT)]}, features)
    parts = {"train": rows.select(range(COUNT - 6)), "test": rows.select(range(COUNT - 6, COUNT))}
    DatasetDict(parts).save_to_disk(str(folder))


def pairs(spans: Sequence[tuple[int, int, str, str]]) -> list[list[Any]]:
    return [[start, end, kind] for start, end, kind, _ in spans]


FORMATS: dict[str, tuple[str, str | Callable[[Path], None], str, Sequence[str]]] = {
    "CoNLL-2003": (
        "rows.conll",
        "-DOCSTART- -X- -X- O\n\n" + conll(lambda n, word, tag: f"{word} NN B-NP {tag}"),
        "token_classification",
        BIO,
    ),
    "WNUT-17, one word and its tag": (
        "rows.conll",
        conll(lambda n, word, tag: f"{word}\t{tag}"),
        "token_classification",
        BIO,
    ),
    "GermEval-14": (
        "rows.tsv",
        conll(lambda n, word, tag: f"{n}\t{word}\t{tag}\tO", "#\thttp://example.org [2024-01-01]\n"),
        "token_classification",
        BIO,
    ),
    "doccano, spans": (
        "rows.jsonl",
        lines([{"id": n, "text": t, "label": pairs(s)} for n, (t, s) in enumerate(zip(TEXTS, SPANS, strict=True))]),
        "token_classification",
        BIO,
    ),
    "doccano, classes": (
        "rows.jsonl",
        lines([{"id": n, "text": t, "label": [m]} for n, (t, m) in enumerate(zip(TEXTS, MOODS, strict=True))]),
        "multi_label",
        ("calm", "loud", "odd"),
    ),
    "Prodigy, spans": ("rows.jsonl", lines(prodigy_spans()), "token_classification", BIO),
    "Prodigy, classes": (
        "rows.jsonl",
        lines([{"text": t, "label": m, "_input_hash": n, "_task_hash": n, "answer": "accept", "_timestamp": n}
               for n, (t, m) in enumerate(zip(TEXTS, MOODS, strict=True))]),
        "classification",
        ("calm", "loud", "odd"),
    ),
    "Prodigy, choices": ("rows.jsonl", lines(prodigy_choices()), "multi_label", ("calm", "loud", "odd")),
    "Label Studio JSON-MIN, spans": ("rows.json", json.dumps(label_studio_spans()), "token_classification", BIO),
    "Label Studio JSON-MIN, classes": (
        "rows.json",
        json.dumps([{"id": n, "text": t, "sentiment": m, "annotator": 1, "annotation_id": n, "lead_time": 2.5}
                    for n, (t, m) in enumerate(zip(TEXTS, MOODS, strict=True))]),
        "classification",
        ("calm", "loud", "odd"),
    ),
    "Label Studio CSV, spans": (
        "rows.csv",
        table([{**row, "label": json.dumps(row["label"])} for row in label_studio_spans()]),
        "token_classification",
        BIO,
    ),
    "spaCy 2": (
        "rows.json",
        json.dumps([[t, {"entities": pairs(s)}] for t, s in zip(TEXTS, SPANS, strict=True)]),
        "token_classification",
        BIO,
    ),
    "spaCy 2, classes": (
        "rows.json",
        json.dumps([[t, {"cats": {each: float(each == m) for each in ("calm", "loud", "odd")}}]
                    for t, m in zip(TEXTS, MOODS, strict=True)]),
        "multi_label",
        ("calm", "loud", "odd"),
    ),
    "fastText": (
        "rows.txt",
        "".join(f"__label__{m} {t}\n" for t, m in zip(TEXTS, MOODS, strict=True)),
        "classification",
        ("calm", "loud", "odd"),
    ),
    "fastText, several labels": (
        "rows.train",
        "".join(f"__label__{m} {'__label__late ' * (n % 4 == 0)}{t}\n"
                for n, (t, m) in enumerate(zip(TEXTS, MOODS, strict=True))),
        "multi_label",
        ("calm", "late", "loud", "odd"),
    ),
    "SQuAD": ("rows.json", json.dumps(squad()), "question_answering", ()),
    "BEIR and MTEB": ("rows", beir, "reranking", ()),
    "datasets, save_to_disk": ("rows", saved, "classification", ("calm", "loud", "odd")),
}  # fmt: skip
"""Format, as docs/data/formats.md calls it -> name of the file or folder, its content, the kind and the labels."""


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_becomes_a_task(name: str, tmp_path: Path) -> None:
    file, content, kind, labels = FORMATS[name]
    path = tmp_path / file
    if callable(content):
        content(path)
    else:
        path.write_text(content)
    ((_, data),) = load_tasks(config.Tasks(train=str(path)), config.Limit(), 0).tasks.items()
    assert (data.task.kind.name, data.task.labels) == (kind, tuple(labels))
    rows = [data.train, *data.development.values(), *data.reported.values()]
    texts = [text for part in rows for text in part[data.task.columns[-1]]]
    assert {re.sub(r"\W+", " ", text).strip() for text in texts} <= {re.sub(r"\W+", " ", t).strip() for t in TEXTS}
    if data.task.kind.per_token:
        truths = [data.truth(part) for part in rows]
        recalls = [data.task.kind.recalls(truth["label"], truth, data.task.labels) for truth in truths]
        marked = len({*texts})
        assert sum(count["PER"][1] for count in recalls) == sum(count["LOC"][1] for count in recalls) == marked


def test_the_table_of_formats_has_each_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data" / "formats.md").read_text()
    found = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][2:]
    assert found == [*FORMATS]
