"""Comparisons of tiny models of words: numbers by words and by spans, both forms of files, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

import distill
from distill.cli.compare import command as command
from distill.cli.compare import page
from distill.cli.compare.comparison import compare
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.spans import TAGGED
from distill.data.task_types.words import words_of
from distill.deploy.export import record
from distill.errors import UserError
from distill.evaluation.metrics import METRICS
from distill.evaluation.paired import agreement
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick")
TAGS = ("O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE")
TEXTS = [" ".join(tiny.SENTENCES[n % 8].split()[: 3 + n % 7]) for n in range(15)]
Save = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """`model(name, seed, tags, architecture)`: the folder of a tiny BERT."""

    def save(name: str, seed: int = 0, tags: Sequence[str] = TAGS, head: str = "TokenClassification") -> Path:
        folder = tmp_path_factory.getbasetemp() / "words" / name
        if not folder.exists():
            names = {"id2label": dict(enumerate(tags)), "label2id": {name: n for n, name in enumerate(tags)}}
            # Large weights, so that the words of a text get different tags.
            sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.3}
            tiny.save(folder, "bert", head, seed=seed, **sizes, **names)
        return folder

    return save


def exported(folder: Path, columns: tuple[str, ...]) -> Path:
    artifacts = (record.Entry("torch", "fp32", "."),)
    record.write(folder, record.Record("places", TASK_TYPES["token_classification"], TAGS, columns, 24, artifacts))
    return folder


def tags_of(row: int) -> list[str]:
    """Tags in the scheme BIO."""
    count = len(TEXTS[row].split())
    tags = ["O"] * count
    tags[row % count] = "B-ANIMAL"
    if row % count + 1 < count:
        tags[row % count + 1] = ("I-ANIMAL", "B-PLACE", "O")[row % 3]
    return tags


def write(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def in_words(tmp_path: Path, labelled: int = len(TEXTS)) -> str:
    rows = [{"tokens": t.split(), "ner_tags": tags_of(n) if n < labelled else None} for n, t in enumerate(TEXTS)]
    return write(tmp_path / "words.jsonl", rows)


def in_spans(tmp_path: Path) -> str:
    """The same rows as spans of characters."""
    rows = []
    for number, text in enumerate(TEXTS):
        places = words_of(text)
        marked = [
            {"start": places[first][0], "end": places[last][1], "label": kind}
            for first, last, kind in plain_spans(tags_of(number))
        ]
        rows.append({"text": text, "spans": marked})
    return write(tmp_path / "spans.jsonl", rows)


def plain_spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """First word, last word and type of each span of tags in the scheme BIO, where I also begins a span."""
    found: list[tuple[int, int, str]] = []
    for number, tag in enumerate(tags):
        if tag == "O":
            continue
        prefix, kind = tag.split("-")
        if prefix == "I" and found and found[-1][1:] == (number - 1, kind):
            found[-1] = (found[-1][0], number, kind)
        else:
            found.append((number, number, kind))
    return found


def predicted(folder: Path, texts: Sequence[str] = TEXTS) -> list[list[str]]:
    """The tag of each word of each text, one text at a time."""
    loaded = distill.load(folder)
    return [[TAGS[n] for n in loaded.outputs([text]).argmax(axis=1)] for text in texts]


def f1(ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]], kind: str | None = None) -> float:
    """F1 of spans in percent, of one type or of all."""
    sets = [
        {(row, *span) for row, tags in enumerate(every) for span in plain_spans(tags) if kind in (None, span[2])}
        for every in (ours, theirs)
    ]
    return 200 * len(sets[0] & sets[1]) / max(1, sum(map(len, sets)))


def test_numbers_are_those_of_plain_loops_and_of_scikit_learn(model: Save, tmp_path: Path) -> None:
    folders = model("a"), model("b", 1)
    comparison = compare(*folders, in_words(tmp_path))
    a, b = map(predicted, folders)
    wanted = [tags_of(row) for row in range(len(TEXTS))]
    flat_a, flat_b, flat = ([*chain.from_iterable(tags)] for tags in (a, b, wanted))
    assert min(len({*flat_a}), len({*flat_b})) > 2
    assert flat_a != flat_b
    agreed = comparison["agreement"]
    assert agreed["words"] == len(flat)
    assert agreed["percent"] == pytest.approx(100 * accuracy_score(flat_a, flat_b))
    assert agreed["spans"] == pytest.approx(f1(a, b))
    assert agreed["ci95"][0] <= agreed["percent"] <= agreed["ci95"][1]
    assert list(comparison["scores"]) == ["span_f1", "accuracy"]
    assert comparison["mcnemar"] is None
    for name, tags, own in (("a", a, flat_a), ("b", b, flat_b)):
        assert comparison["scores"]["span_f1"][name] == pytest.approx(f1(tags, wanted))
        assert comparison["scores"]["accuracy"][name] == pytest.approx(100 * accuracy_score(flat, own))
        by_type = {row["label"]: row for row in comparison["classes"]}
        assert by_type.keys() == {"ANIMAL", "PLACE"}
        for kind, row in by_type.items():
            true, found = ([s for each in every for s in plain_spans(each) if s[2] == kind] for every in (wanted, tags))
            assert (row["rows"], row["predicted"][name]) == (len(true), len(found))
            assert row[name]["f1"] == pytest.approx(f1(tags, wanted, kind))
    assert (comparison["rows"], comparison["labelled_rows"], comparison["label"]) == (15, 15, ["ner_tags"])
    assert sum(group["agreement"]["words"] for group in comparison["lengths"]) == len(flat)
    for group in comparison["lengths"]:
        chosen = [n for n, text in enumerate(TEXTS) if group["from"] <= len(text.split()) + 2 <= group["to"]]
        assert group["scores"]["a"]["span_f1"] == pytest.approx(f1([a[n] for n in chosen], [wanted[n] for n in chosen]))


def test_rows_that_differ_most_are_texts(model: Save, tmp_path: Path) -> None:
    folders = model("a"), model("b", 1)
    comparison = compare(*folders, in_words(tmp_path), top=15)
    a, b = (distill.load(folder) for folder in folders)
    expected = []
    for text in TEXTS:
        p, q = (torch.softmax(torch.tensor(each.outputs([text])).double(), 1).numpy() for each in (a, b))
        expected.append(max(np.abs(p - q).sum(axis=1) / 2))
    found = comparison["differences"]
    assert [row["difference"] for row in found] == pytest.approx(sorted(expected, reverse=True), abs=1e-6)
    for row in found:
        (text,) = row["texts"]
        number = next(n for n in range(15) if row["row"].endswith(f"row {n + 1}"))
        assert text == TEXTS[number]
        (alone,) = a.predict([text])
        assert row["a"]["spans"] == [
            span | {"score": pytest.approx(span["score"], abs=1e-4)} for span in alone["spans"]
        ]
        named = [(text.split()[first : last + 1], kind) for first, last, kind in plain_spans(tags_of(number))]
        assert row["label"] == ", ".join(f"{' '.join(part)} ({kind})" for part, kind in named)


def test_both_forms_of_a_file_are_compared_alike(model: Save, tmp_path: Path) -> None:
    a, b = model("a"), exported(model("exported", 1), ("tokens",))
    found = [compare(a, b, in_words(tmp_path)), compare(a, model("b", 1), in_spans(tmp_path))]
    for key in ("agreement", "scores", "classes", "lengths", "labels"):
        assert found[0][key] == found[1][key]
    assert [each["columns"] for each in found] == [["tokens"], ["text"]]


def test_tags_in_another_order_are_matched_by_name(model: Save, tmp_path: Path) -> None:
    from transformers import AutoModelForTokenClassification

    order = [2, 0, 1, 4, 3]
    first, folder = model("a"), model("reordered", tags=[TAGS[n] for n in order])
    reordered = AutoModelForTokenClassification.from_pretrained(first)
    with torch.no_grad():
        reordered.classifier.weight.copy_(reordered.classifier.weight[order])
        reordered.classifier.bias.copy_(reordered.classifier.bias[order])
    reordered.config.id2label = {number: TAGS[n] for number, n in enumerate(order)}
    reordered.save_pretrained(folder)
    comparison = compare(first, folder, in_words(tmp_path))
    assert (comparison["agreement"]["percent"], comparison["agreement"]["spans"]) == (100, pytest.approx(100))
    assert comparison["scores"]["span_f1"]["ci95"] is None
    assert comparison["result"][0].startswith("No difference in span_f1 was detected")


def test_texts_without_tags_count_for_agreement_alone(model: Save, tmp_path: Path) -> None:
    folders = model("a"), model("b", 1)
    comparison = compare(*folders, in_words(tmp_path, 9))
    assert (comparison["rows"], comparison["labelled_rows"]) == (15, 9)
    wanted = [tags_of(row) for row in range(9)]
    assert comparison["scores"]["span_f1"]["b"] == pytest.approx(f1(predicted(folders[1], TEXTS[:9]), wanted))
    without = compare(*folders, write(tmp_path / "plain.jsonl", [{"text": text} for text in TEXTS]))
    assert without["scores"] is None
    assert without["agreement"] == comparison["agreement"]
    assert [row["rows"] for row in without["classes"]] == [None, None]
    assert [row["label"] for row in without["differences"]] == [None] * 10
    assert page.blocks(without)


def test_the_interval_resamples_texts(model: Save) -> None:
    """By a plain loop over other draws: all words of a text are drawn together."""
    random = np.random.default_rng(3)
    sizes = random.integers(1, 9, 30)
    text = np.repeat(np.arange(30), sizes)
    a, b = random.integers(-1, 8, (2, len(text)))
    b = np.where(text < 15, a, b)
    draws, values = np.random.default_rng(0), []
    same = [(a == b)[text == row] for row in range(30)]
    for _ in range(5000):
        rows = draws.integers(0, 30, 30)
        values.append(100 * np.concatenate([same[row] for row in rows]).mean())
    found = agreement(TASK_TYPES["token_classification"], a, b, text)
    assert found["ci95"] == pytest.approx(np.percentile(values, [2.5, 97.5]), abs=0.8)
    assert found["spans"] == pytest.approx(100 * METRICS["span_f1"](a, np.array([*zip(b, text, strict=True)], TAGGED)))


def test_the_command_writes_a_table_a_page_and_json(
    model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main([str(model("a")), str(model("b", 1)), in_spans(tmp_path), "--rows", "5"]) == 0
    out = capsys.readouterr().out
    assert "span_f1" in out
    assert "F1 of the spans of one against the other's" in out
    assert "McNemar" not in out
    folder = tmp_path / "outputs" / "compare" / "a-vs-b"
    comparison = json.loads((folder / "compare.json").read_text())
    html = (folder / "compare.html").read_text()
    assert all(sentence.partition("'")[0] in html for sentence in comparison["result"])
    assert "A class is a type of span" in html
    assert "Same tag %" in html


def test_what_cannot_be_compared_is_refused(model: Save, tmp_path: Path) -> None:
    file, a = in_words(tmp_path), model("a")
    text = model("text", tags=("no", "yes"), head="SequenceClassification")
    with pytest.raises(UserError, match=r"^B: got a model that chooses .*must be of A's kind"):
        compare(a, text, in_spans(tmp_path))
    with pytest.raises(UserError, match=r"^B: got labels O, B-DAY, I-DAY; must be A's"):
        compare(a, model("day", tags=("O", "B-DAY", "I-DAY")), file)
    other = write(tmp_path / "other.jsonl", [{"tokens": t.split(), "tags": ["B-DAY"] * len(t.split())} for t in TEXTS])
    with pytest.raises(UserError, match=r"^--label: got .*B-DAY.*; must be labels of the models: O, B-ANIMAL"):
        compare(a, a, other)
    short = write(tmp_path / "short.jsonl", [{"tokens": ["a", "goat"], "tags": ["O"]}] * 3)
    with pytest.raises(UserError, match=r"short.jsonl, row 1: got 2 words in tokens and 1 tags in tags"):
        compare(a, a, short)
    flat = write(tmp_path / "flat.jsonl", [{"text": text, "label": "O"} for text in TEXTS])
    with pytest.raises(UserError, match=r"^--label: got string in column label; must be a list of tags"):
        compare(a, a, flat)
    null = write(tmp_path / "null.jsonl", [{"tokens": ["a", None]}] * 3)
    with pytest.raises(UserError, match=r"null.jsonl, row 1: got null in tokens; must be words"):
        compare(a, a, null)
