"""Comparisons of tiny models: labels in another order, files without labels, every kind, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, recall_score
from transformers import AutoModelForSequenceClassification

from distill.cli.compare import command as command
from distill.cli.compare import models, page
from distill.cli.compare.comparison import compare
from distill.config import Task
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import record
from distill.errors import UserError
from distill.runtime.storage.outputs import MARK
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick")
LABELS = ("harbour", "village", "street")
Save = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """`model(name, seed, labels, **settings)`: the folder of a tiny BERT."""

    def save(name: str, seed: int = 0, labels: Sequence[str] = LABELS, **settings: Any) -> Path:
        folder = tmp_path_factory.getbasetemp() / "models" / name
        if not folder.exists():
            names = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
            settings = {"std": 0.3, "problem_type": "single_label_classification"} | names | settings
            tiny.save(folder, "bert", "SequenceClassification", seed=seed, **settings)
        return folder

    return save


def rows(tmp_path: Path, count: int = 12, **columns: Callable[[int], Any]) -> str:
    """A CSV of sentences of several lengths; `columns` have a value for each row number."""
    file, words = tmp_path / "rows.csv", " ".join(tiny.SENTENCES).split()
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["body", *columns])
        for row in range(count):
            text = " ".join(words[row * 3 : row * 3 + 1 + row])
            writer.writerow([text, *(value(row) for value in columns.values())])
    return str(file)


def label(row: int) -> str:
    return LABELS[row % 3]


def test_the_command_writes_a_table_a_page_and_json(
    model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = rows(tmp_path, label=label)
    assert command.main([str(model("a")), str(model("b", 1)), file, "--rows", "5"]) == 0
    out = capsys.readouterr().out
    assert "on 12 labelled rows" in out
    assert "McNemar's exact test" in out
    folder = tmp_path / "outputs" / "compare" / "a-vs-b"
    comparison = json.loads((folder / "compare.json").read_text())
    assert sorted(path.name for path in folder.iterdir()) == [MARK, "compare.html", "compare.json"]
    html = (folder / "compare.html").read_text()
    assert all(sentence.partition("'")[0] in html for sentence in comparison["result"])
    assert "http" not in html
    assert "<script" not in html
    assert [row["batch"] for row in comparison["latency"]] == [1, 4]  # all four rows
    assert (comparison["columns"], comparison["label"], len(comparison["differences"])) == (["body"], ["label"], 5)
    distances = [row["difference"] for row in comparison["differences"]]
    assert distances == sorted(distances, reverse=True)
    assert str(comparison["models"]["a"]["folder"]) == str(model("a"))


def test_numbers_are_those_of_scikit_learn_and_of_the_probabilities(model: Save, tmp_path: Path) -> None:
    import distill

    folders, file = (model("a"), model("b", 1)), rows(tmp_path, label=label)
    comparison = compare(*folders, file, top=12)
    texts = [row["body"] for row in csv.DictReader(Path(file).read_text(encoding="utf-8").splitlines())]
    outputs = [distill.load(folder).outputs(texts) for folder in folders]
    wanted, (a, b) = [row % 3 for row in range(12)], [each.argmax(axis=1) for each in outputs]
    assert comparison["agreement"]["percent"] == pytest.approx(100 * (a == b).mean())
    for name, predicted in (("a", a), ("b", b)):
        recalls = [100 * each for each in recall_score(wanted, predicted, average=None)]
        assert [row[name]["recall"] for row in comparison["classes"]] == pytest.approx(recalls)
        score = 100 * f1_score(
            wanted, predicted, average="macro", labels=sorted({*wanted, *predicted}), zero_division=0
        )
        assert comparison["scores"]["f1_macro"][name] == pytest.approx(score)
        assert [row["predicted"][name] for row in comparison["classes"]] == np.bincount(predicted, minlength=3).tolist()
    p, q = (torch.softmax(torch.tensor(each, dtype=torch.float64), 1).numpy() for each in outputs)
    expected = sorted(np.abs(p - q).sum(axis=1) / 2, reverse=True)
    assert [row["difference"] for row in comparison["differences"]] == pytest.approx(expected)
    assert sum(group["rows"] for group in comparison["lengths"]) == 12


def test_labels_in_another_order_are_matched_by_name(model: Save, tmp_path: Path) -> None:
    order = [2, 0, 1]
    first, folder = model("a"), model("reordered", labels=[LABELS[n].upper() for n in order])
    reordered = AutoModelForSequenceClassification.from_pretrained(first)
    with torch.no_grad():
        reordered.classifier.weight.copy_(reordered.classifier.weight[order])
        reordered.classifier.bias.copy_(reordered.classifier.bias[order])
    reordered.config.id2label = {number: LABELS[n].upper() for number, n in enumerate(order)}
    reordered.save_pretrained(folder)
    comparison = compare(first, folder, rows(tmp_path, label=label))
    assert comparison["agreement"]["percent"] == 100
    assert comparison["differences"][0]["difference"] == pytest.approx(0, abs=1e-6)
    assert comparison["labels"] == list(LABELS)
    assert comparison["result"][0].startswith("No difference in accuracy was detected")
    assert comparison["scores"]["accuracy"]["ci95"] is None
    assert "cannot detect a difference" in comparison["result"][1]
    assert "equal" not in " ".join(comparison["result"])


def test_a_file_without_labels_has_no_scores(model: Save, tmp_path: Path) -> None:
    comparison = compare(model("a"), model("b", 1), rows(tmp_path, source=lambda row: "mail" if row % 2 else "chat"))
    assert comparison["scores"] is comparison["mcnemar"] is None
    assert (comparison["labelled_rows"], comparison["differences"][0]["label"]) == (0, None)
    assert "does not show which model is better" in comparison["result"][0]
    assert comparison["notes"] == ["source is not used as the label, because its values are not labels of the models."]
    assert page.scores(comparison) is None
    assert page.blocks(comparison)


def test_rows_without_a_label_count_for_agreement_alone(model: Save, tmp_path: Path) -> None:
    file = rows(tmp_path, queue=lambda row: label(row) if row < 9 else "")
    comparison = compare(model("a"), model("b", 1), file)
    assert (comparison["rows"], comparison["labelled_rows"], comparison["label"]) == (12, 9, ["queue"])
    assert sum(row["rows"] for row in comparison["classes"]) == 9


def test_rows_that_share_a_text_are_drawn_together(model: Save, tmp_path: Path) -> None:
    """So that a file with each row twice does not seem to know twice as much."""
    found = []
    for copies in (1, 2):
        file = tmp_path / f"{copies}.csv"
        lines = (f"{tiny.SENTENCES[0]} {row // copies},{label(row // copies)}" for row in range(24))
        file.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
        found.append(compare(model("a"), model("b", 1), str(file)))
    first, second = found
    assert (first["mcnemar"] is None, second["mcnemar"] is None) == (False, True)
    assert [note for note in second["notes"] if "24 rows as 12 parts" in note]
    assert not [note for note in first["notes"] if "parts" in note]


def test_regression_is_compared_by_correlations(model: Save, tmp_path: Path) -> None:
    numbers = {"num_labels": 1, "id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}, "problem_type": "regression"}
    folders = [model(f"number{seed}", seed, **numbers) for seed in (0, 1)]
    comparison = compare(*folders, rows(tmp_path, score=lambda row: row / 4))
    assert comparison["kind"] == "regression"
    named = rows(tmp_path, label=lambda row: row % 3, label_text=lambda row: "bad so-so good".split()[row % 3])
    assert set(compare(*folders, named)["scores"]) == {"pearson", "spearman"}
    assert comparison["classes"] == []
    assert comparison["mcnemar"] is None
    assert set(comparison["scores"]) == {"pearson", "spearman"}
    assert set(comparison["agreement"]) == {"pearson", "spearman", "mean_absolute_difference"}
    assert page.classes(comparison, True) is None
    assert page.blocks(comparison)


def test_several_labels_are_compared_as_sets(model: Save, tmp_path: Path) -> None:
    folders = [model(f"several{seed}", seed, problem_type="multi_label_classification") for seed in (0, 1)]
    flags: dict[str, Callable[[int], Any]] = {name: lambda row, n=n: row >> n & 1 for n, name in enumerate(LABELS)}  # type: ignore[misc]
    comparison = compare(*folders, rows(tmp_path, **flags), Task(label=[*LABELS]))
    assert comparison["kind"] == "multi_label"
    assert list(comparison["scores"]) == ["accuracy", "f1_micro", "f1_macro"]
    assert [row["rows"] for row in comparison["classes"]] == [6, 6, 4]
    assert page.blocks(comparison, whole=False)


def test_labels_without_names_are_matched_by_number() -> None:
    kind = TASK_TYPES["classification"]

    def order(a: Sequence[str], b: Sequence[str]) -> tuple[Sequence[str], tuple[int, ...]]:
        head, numbers = models.common((kind, kind), (a, b))
        return head.labels, numbers

    assert order(["0", "1"], ["LABEL_0", "LABEL_1"]) == ((), (0, 1))
    assert order(["0", "1"], ["no", "yes"]) == (("no", "yes"), (0, 1))
    assert order(["no", "yes"], ["0", "1"]) == (("no", "yes"), (0, 1))
    assert order(["no", "yes"], ["Yes", "no"]) == (("no", "yes"), (1, 0))
    assert order(["0", "1"], ["1", "0"]) == (("0", "1"), (1, 0))


REFUSED: dict[str, tuple[list[str], str]] = {
    "no file": (["missing.csv"], "FILE: got missing.csv, which does not exist"),
    "a text column that is absent": (["rows.csv", "--text", "title"], "--text: got title; must be a column of"),
    "a label column that is absent": (["rows.csv", "--label", "topic"], "--label: got topic; must be a column of"),
    "a label of neither model": (["rows.csv", "--label", "source"], "--label: got chat, mail in column source"),
    "no rows to list": (["rows.csv", "--rows", "0"], "--rows: got 0; must be a whole number from 1"),
    "an unknown backend": (["rows.csv", "--backend", "tensorrt"], "--backend: invalid choice"),
    "three backends": (["rows.csv", "--backend", "torch", "torch", "torch"], "--backend: got 3 values"),
    "a backend that A does not have": (["rows.csv", "--backend", "onnxruntime"], "--backend, A: got onnxruntime"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_in_one_line(
    case: str, model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path, label=label, source=lambda row: "mail" if row % 2 else "chat")
    arguments, message = REFUSED[case]
    assert command.main([str(model("a")), str(model("b", 1)), *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(message)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_a_plain_teacher_is_of_the_kind_of_its_export(model: Save, tmp_path: Path) -> None:
    """A reranker's config states a regression; only the export's record states that it ranks."""
    teacher = model("ranker", num_labels=1, problem_type="regression", id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0})
    exported = tmp_path / "export"
    shutil.copytree(teacher, exported)
    artifacts = (record.Entry("torch", "fp32", "."),)
    record.write(exported, record.Record("judged", TASK_TYPES["reranking"], (), ("query", "passage"), 32, artifacts))
    file = tmp_path / "judged.csv"
    lines = [f"{tiny.SENTENCES[n // 4]},{tiny.SENTENCES[n % 8]},{int(n % 4 == 1)}" for n in range(16)]
    file.write_text("\n".join(["query,passage,relevance", *lines]))
    for a, b in ((teacher, exported), (exported, teacher)):
        found = compare(a, b, str(file), Task(label="relevance"))
        assert found["kind"] == "reranking"
        assert found["scores"].keys() == {"ndcg_at_10", "mrr_at_10"}
        assert found["scores"]["ndcg_at_10"]["difference"] == 0
    plain = compare(teacher, teacher, str(file), Task(label="relevance"))
    assert plain["kind"] == "regression"
    with pytest.raises(UserError, match=r"^B: got a model that scores a document.*must be of A's kind"):
        compare(model("a"), exported, str(file), Task(label="relevance"))


def test_models_of_different_kinds_or_labels_are_refused(model: Save, tmp_path: Path) -> None:
    file = rows(tmp_path, label=label)
    several = model("several0", problem_type="multi_label_classification")
    with pytest.raises(UserError, match=r"^B: got a model that chooses any number of labels.*A's kind"):
        compare(model("a"), several, file)
    with pytest.raises(
        UserError, match=r"^B: got labels harbour, mill, street; must be A's.* harbour, village, street"
    ):
        compare(model("a"), model("other", labels=["harbour", "mill", "street"]), file)
    with pytest.raises(UserError, match=r"^B: got .*missing; must be a local folder"):
        compare(model("a"), tmp_path / "missing", file)


def test_ctrl_c_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distill.cli.compare.comparison.compare", stop)
    assert command.main(["a", "b", "rows.csv", "--output", str(tmp_path / "out")]) == 130
    assert not (tmp_path / "out").exists()


def test_what_may_be_a_secret_in_an_address_is_in_no_output(
    model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(rows(tmp_path, label=label)).rename(tmp_path / "rows.csv?sig=thesignature")
    address = f"file://{tmp_path}/rows.csv?sig=thesignature"
    assert command.main([str(model("a")), str(model("b", 1)), address]) == 0
    written = {file.name: file.read_text() for file in (tmp_path / "outputs/compare/a-vs-b").iterdir()}
    shown = ["".join(capsys.readouterr()), *written.values()]
    assert not [text for text in shown if "thesignature" in text]
    comparison = json.loads(written["compare.json"])
    assert comparison["file"].endswith("/rows.csv?...")
    assert all(each["row"].startswith(f"{comparison['file']}, row ") for each in comparison["differences"])


def test_a_comparison_that_cannot_be_written_is_shown(
    model: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any, **settings: Any) -> None:
        raise UserError("--output: got out; must be on a disk with more free space; free some")

    monkeypatch.setattr("distill.cli.compare.write.write", full)
    assert command.main([str(model("a")), str(model("b", 1)), rows(tmp_path, label=label)]) == 2
    out, err = capsys.readouterr()
    assert "on 12 labelled rows" in out
    assert err.endswith("--output: got out; must be on a disk with more free space; free some\n")
