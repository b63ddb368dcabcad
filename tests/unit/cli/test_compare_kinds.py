"""Comparisons of tiny models of choices, of answers and of vectors, against numbers computed from their predictions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

import distill
from distill.cli.compare import command as command
from distill.cli.compare import page
from distill.cli.compare.comparison import compare
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import record
from distill.errors import UserError
from distill.models.families.embedding import EncoderForVectors
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick")
SENTENCES = tiny.SENTENCES
COUNT = 16


def pair_of_models(folder: Path, head: str, **settings: Any) -> tuple[Path, Path]:
    sizes = {"std": 0.3, "num_hidden_layers": 2, "length": 66} | settings
    a, b = (tiny.save(folder / name, "bert", head, seed=seed, **sizes) for seed, name in enumerate("ab"))
    return a, b


def export(folder: Path, kind: str, columns: Sequence[str], choices: Sequence[str] = ()) -> None:
    artifacts = (record.Entry("torch", "fp32", "."),)
    record.write(
        folder, record.Record("own", TASK_TYPES[kind], (), tuple(columns), 64, artifacts, choices=tuple(choices))
    )


def write(folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def shown(comparison: dict[str, Any]) -> str:
    """All that is on the page, and the JSON, which must be possible."""
    return (
        json.dumps(comparison, allow_nan=False) + repr(page.blocks(comparison)) + repr(page.blocks(comparison, False))
    )


def question(row: int) -> tuple[str, list[str]]:
    choices = [SENTENCES[(row + n) % 8] for n in range(2 + row % 3)]
    return f"{SENTENCES[row // 2]} {row}", choices


@pytest.mark.quick(1)
@pytest.mark.parametrize("exported", [True, False])
def test_choices(exported: bool, tmp_path: Path) -> None:
    a, b = pair_of_models(tmp_path, "MultipleChoice")
    rows = [{"question": question(n)[0], "options": question(n)[1], "answer": n % 2} for n in range(COUNT)]
    rows[5]["answer"] = None
    file = write(tmp_path, rows)
    if exported:
        export(b, "multiple_choice", ["question"], ["options"])
    comparison = compare(a, b, file)
    of_a, of_b = (
        [answer["number"] for answer in distill.load(m).predict([*map(question, range(COUNT))])] for m in (a, b)
    )
    assert 0 < np.mean(np.equal(of_a, of_b)) < 1
    assert comparison["agreement"]["percent"] == pytest.approx(100 * np.mean(np.equal(of_a, of_b)))
    labelled = [n for n in range(COUNT) if n != 5]
    right = {m: [found[n] == n % 2 for n in labelled] for m, found in (("a", of_a), ("b", of_b))}
    assert comparison["scores"].keys() == {"accuracy"}
    for name, flags in right.items():
        assert comparison["scores"]["accuracy"][name] == pytest.approx(100 * np.mean(flags))
    assert comparison["mcnemar"]["only_a"] == sum(x and not y for x, y in zip(right["a"], right["b"], strict=True))
    assert comparison["columns"] == ["question", "options"]
    assert (comparison["kind"], comparison["labelled_rows"]) == ("multiple_choice", COUNT - 1)
    worst = comparison["differences"][0]
    assert worst["label"] in worst["texts"][1]
    assert worst["a"]["choice"] in SENTENCES
    assert "Same prediction %" in shown(comparison)


def test_choices_in_columns_that_options_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair_of_models(tmp_path, "MultipleChoice")
    rows = [{"ask": SENTENCES[n], "this": SENTENCES[n - 1], "that": SENTENCES[n - 2], "y": "1"} for n in range(8)]
    options = [
        "--text",
        "ask",
        "--choices",
        "this",
        "--choices",
        "that",
        "--label",
        "y",
        "--output",
        str(tmp_path / "o"),
    ]
    assert command.main([str(a), str(b), write(tmp_path, rows), *options]) == 0
    assert json.loads((tmp_path / "o" / "compare.json").read_text())["columns"] == ["ask", "this", "that"]
    rows[3]["that"] = rows[3]["this"] = ""
    assert command.main([str(a), str(b), write(tmp_path, rows), *options]) == 2
    assert "row 4: got 0 choices in this, that; must be two or more" in capsys.readouterr().err


def passage(row: int) -> tuple[str, str]:
    return f"what {SENTENCES[row % 8].split()[1]}", f"{SENTENCES[row % 8]} {SENTENCES[(3 * row + 1) % 8]} {row}"


def answer_of(row: int) -> str:
    return " ".join(passage(row)[1].split()[1:3])


def words_f1(ours: str, true: str) -> float:
    """Of answers without articles and punctuation."""
    own, other = ([w for w in text.split() if w not in ("a", "the")] for text in (ours, true))
    shared = (Counter(own) & Counter(other)).total()
    return 2 * shared / (len(own) + len(other))


@pytest.mark.quick(1)
@pytest.mark.parametrize("exported", [True, False])
def test_answers(exported: bool, tmp_path: Path) -> None:
    a, b = pair_of_models(tmp_path, "QuestionAnswering")
    rows = [{"question": passage(n)[0], "context": passage(n)[1], "answers": answer_of(n)} for n in range(COUNT)]
    rows[2]["answers"] = None
    if exported:
        export(b, "question_answering", ["question", "context"])
    comparison = compare(a, b, write(tmp_path, rows))
    found = {
        name: [each["answer"] for each in distill.load(model).predict([passage(n) for n in range(COUNT)])]
        for name, model in (("a", a), ("b", b))
    }
    labelled = [n for n in range(COUNT) if n != 2]
    for name, answers in found.items():
        expected = 100 * np.mean([words_f1(answers[n], answer_of(n)) for n in labelled])
        assert comparison["scores"]["answer_f1"][name] == pytest.approx(expected)
    assert comparison["scores"].keys() == {"exact_match", "answer_f1"}
    assert comparison["agreement"]["percent"] <= 100 * np.mean([*map(str.__eq__, found["a"], found["b"])])
    assert comparison["mcnemar"]["only_a"] == 0
    assert comparison["labelled_rows"] == COUNT - 1
    assert comparison["models"]["a"]["truncated_rows"] == 0
    labels = {n: answer_of(n) for n in labelled}
    assert all(each["label"] in (None, *labels.values()) for each in comparison["differences"])
    assert "McNemar's exact test of exact_match" in shown(comparison)


@pytest.mark.parametrize("exported", [0.7, None])
def test_readers_share_the_threshold_of_no_answer(exported: float | None, tmp_path: Path) -> None:
    """A plain folder states none, and would be scored as if every question had an answer."""
    a, b = pair_of_models(tmp_path, "QuestionAnswering")
    rows = [{"question": passage(n)[0], "context": passage(n)[1], "answers": []} for n in range(COUNT)]
    if exported is not None:
        export(b, "question_answering", ["question", "context"])
        tiny.change(b / "distill.json", threshold=exported)
    said: list[str] = []
    comparison = compare(a, b, write(tmp_path, rows), log=said.append)
    for name, folder in (("a", a), ("b", b)):
        none = [each["no_answer"] for each in distill.load(folder).predict([passage(n) for n in range(COUNT)])]
        expected = 100 * np.mean([value > (exported or 0.5) for value in none])
        assert comparison["scores"]["exact_match"][name] == pytest.approx(expected)
    assert sum("gives no answer where that is more probable than" in line for line in said) == (1 if exported else 2)


def test_an_answer_that_is_not_in_its_context_is_refused(tmp_path: Path) -> None:
    a, b = pair_of_models(tmp_path, "QuestionAnswering")
    rows = [{"question": "what", "context": SENTENCES[n], "answers": "boat"} for n in range(3)]
    with pytest.raises(UserError, match=r"row 2: got the answer 'boat', which is not in the context"):
        compare(a, b, write(tmp_path, rows))


def embedders(folder: Path) -> tuple[Path, Path]:
    """Two, the second with a vector of another width, and with prompts."""
    folders = []
    for seed, width in enumerate((16, 32)):
        model = tiny.save(
            folder / "ab"[seed], "bert", "", seed=seed, initializer_range=0.5, hidden_size=width, length=34
        )
        EncoderForVectors.from_pretrained(model).save_pretrained(model)
        folders.append(model)
    (folders[1] / "config_sentence_transformers.json").write_text('{"prompts": {"query": "the ", "document": "a "}}')
    return folders[0], folders[1]


def cosines(model: Path, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    loaded = distill.load(model)
    x, y = (loaded.outputs(list(texts)).astype(np.float64) for texts in (first, second))
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [None, "embedding"])
def test_vectors_of_pairs(kind: str | None, tmp_path: Path) -> None:
    a, b = embedders(tmp_path)
    first = [SENTENCES[n % 8] for n in range(COUNT)]
    second = [SENTENCES[(n + (1, 3)[n // 8]) % 8] for n in range(COUNT)]  # no two pairs are the same
    scores = [float(n % 5) for n in range(COUNT)]
    rows = [{"sentence1": x, "sentence2": y, "score": s} for x, y, s in zip(first, second, scores, strict=True)]
    if kind is not None:
        export(b, kind, ["sentence1"])
    comparison = compare(a, b, write(tmp_path, rows))
    of_a, of_b = cosines(a, first, second), cosines(b, first, second)
    for name, values in (("a", of_a), ("b", of_b)):
        assert comparison["scores"]["spearman"][name] == pytest.approx(
            100 * scipy.stats.spearmanr(values, scores).statistic, abs=1e-3
        )
    assert comparison["agreement"]["pearson"] == pytest.approx(np.corrcoef(of_a, of_b)[0, 1], abs=1e-5)
    assert comparison["differences"][0]["difference"] == pytest.approx(np.abs(of_a - of_b).max(), abs=1e-5)
    assert (comparison["kind"], comparison["mcnemar"]) == ("embedding", None)
    assert "The cosines of the two texts of 16 rows have a Pearson correlation of" in shown(comparison)


@pytest.mark.parametrize("exported", ["retrieval", "embedding", None])
def test_vectors_of_queries_and_documents_follow_the_prompts_of_each_model(
    exported: str | None, tmp_path: Path
) -> None:
    """Also of a model that `distill.quantize` made, whose record names no columns."""
    a, b = embedders(tmp_path)
    pairs = [(f"{SENTENCES[n]} {n}", SENTENCES[m]) for n in range(4) for m in range(4)]
    rows = [{"query": q, "document": d, "relevance": int(n % 4 == n // 4)} for n, (q, d) in enumerate(pairs)]
    if exported is not None:
        export(b, exported, ["query"] if exported == "retrieval" else [])
    comparison = compare(a, b, write(tmp_path, rows))
    queries, documents = zip(*pairs, strict=True)
    with_prompts = cosines(b, [f"the {q}" for q in queries], [f"a {d}" for d in documents])
    for name, values in (("a", cosines(a, queries, documents)), ("b", with_prompts)):
        ranks = [(-row).argsort().argsort()[n] for n, row in enumerate(values.reshape(4, 4))]
        assert comparison["scores"]["mrr_at_10"][name] == pytest.approx(100 * np.mean([1 / (r + 1) for r in ranks]))
    assert comparison["kind"] == "retrieval"


@pytest.mark.parametrize("sources", [[*"abcdefgh"], 4 * ["web", "news"]])
def test_queries_and_documents_without_labels_follow_the_prompts_too(sources: list[str], tmp_path: Path) -> None:
    """Also where another column has as few values as a label."""
    a, b = embedders(tmp_path)
    documents = [*SENTENCES[1:], SENTENCES[0]]
    every = zip(SENTENCES, documents, sources, strict=True)
    rows = [{"query": query, "document": document, "source": source} for query, document, source in every]
    comparison = compare(a, b, write(tmp_path, rows))
    with_prompts = cosines(b, [f"the {q}" for q in SENTENCES], [f"a {d}" for d in documents])
    expected = np.corrcoef(cosines(a, SENTENCES, documents), with_prompts)[0, 1]
    assert comparison["agreement"]["pearson"] == pytest.approx(expected, abs=1e-5)
    assert (comparison["kind"], comparison["scores"]) == ("retrieval", None)


def test_names_beside_the_relevance_change_nothing(tmp_path: Path) -> None:
    a, b = embedders(tmp_path)
    given = [(SENTENCES[n // 4], SENTENCES[n % 8], n % 3 % 2) for n in range(COUNT)]
    rows: list[dict[str, Any]] = [{"query": query, "document": document, "label": n} for query, document, n in given]
    named = [row | {"label_text": ("not relevant", "relevant")[row["label"]]} for row in rows]
    comparison, expected = (compare(a, b, write(tmp_path, each)) for each in (named, rows))
    assert comparison["kind"] == "retrieval"
    assert comparison["scores"] == expected["scores"]


def test_an_export_reads_after_the_prompts_that_it_was_trained_with(tmp_path: Path) -> None:
    """An embedder for pairs that differ, whose files name two prompts and no default."""
    a, b = embedders(tmp_path)
    export(b, "embedding", ["sentence1"])
    stated = record.read(b)
    assert stated is not None
    record.write(b, replace(stated, prompts=("the ", "a ")))
    first, second = SENTENCES, [*SENTENCES[1:], SENTENCES[0]]
    rows = [{"sentence1": x, "sentence2": y, "score": n} for n, (x, y) in enumerate(zip(first, second, strict=True))]
    comparison = compare(a, b, write(tmp_path, rows))
    prompted = cosines(b, [f"the {text}" for text in first], [f"a {text}" for text in second])
    expected = 100 * scipy.stats.spearmanr(prompted, range(len(rows))).statistic
    assert comparison["scores"]["spearman"]["b"] == pytest.approx(expected, abs=1e-3)
    assert "Before its texts, A reads nothing, and B 'the ' and 'a '. If" in " ".join(comparison["notes"])


def test_single_texts_of_embedders_are_paired_with_those_of_the_next_rows(tmp_path: Path) -> None:
    a, b = embedders(tmp_path)
    comparison = compare(a, b, write(tmp_path, [{"text": text} for text in SENTENCES]))
    following = [*SENTENCES[1:], SENTENCES[0]]
    expected = np.corrcoef(cosines(a, SENTENCES, following), cosines(b, SENTENCES, following))[0, 1]
    assert comparison["agreement"]["pearson"] == pytest.approx(expected, abs=1e-5)
    assert comparison["columns"] == ["text", "text of the next row"]
    assert comparison["scores"] is None


def test_models_of_different_architectures_are_refused(tmp_path: Path) -> None:
    reader, _ = pair_of_models(tmp_path / "readers", "QuestionAnswering")
    chooser, _ = pair_of_models(tmp_path / "choosers", "MultipleChoice")
    rows = [{"question": SENTENCES[n], "options": SENTENCES[:2]} for n in range(3)]
    with pytest.raises(
        UserError, match=r"B: got a model that chooses .* \(multiple_choice\); must be of A's kind, which"
    ):
        compare(reader, chooser, write(tmp_path, rows))
