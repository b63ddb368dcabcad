"""What files and folders mean to `compare`, `predict` and `quantize`: flags, numbers, no header, pairs, pointers."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

import distill
from distill import config
from distill.cli import predict
from distill.cli.compare.comparison import compare
from distill.data.tasks import load_tasks, targets_of
from distill.deploy.serve import load
from distill.errors import UserError
from distill.models.families.head import stored_head
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick")
COUNT = 40
TEXTS = [f"{tiny.SENTENCES[n % 8]} {tiny.SENTENCES[(3 * n) % 8].split()[n % 3]} {n}" for n in range(COUNT)]
ASPECTS = ("price", "service", "topic", "food")


def save(folder: Path, labels: tuple[str, ...], **settings: Any) -> Path:
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
    return tiny.save(folder, "bert", "SequenceClassification", std=0.5, num_labels=len(labels), **names, **settings)


def write(file: Path, names: tuple[str, ...], rows: list[Any]) -> str:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([*([names] if names else []), *rows])
    return str(file)


def test_flags_that_are_named_as_the_teachers_labels_are_the_labels(tmp_path: Path) -> None:
    model = save(tmp_path / "m", ASPECTS, problem_type="multi_label_classification")
    flags = np.random.default_rng(0).integers(0, 2, (COUNT, 4))
    flags[:, 2] = [n % 2 for n in range(COUNT)]
    order = [2, 0, 3, 1]  # of the file
    file = write(
        tmp_path / "t.csv", ("text", *(ASPECTS[n] for n in order)),
        [[text, *flags[row, order]] for row, text in enumerate(TEXTS)],
    )  # fmt: skip
    (data,) = load_tasks(config.Tasks(train=file), config.Limit(), 0, stored_head(model)).tasks.values()
    assert (data.task.kind.name, data.task.labels) == ("multi_label", ASPECTS)
    wanted = {text: row.tolist() for text, row in zip(TEXTS, flags, strict=True)}
    assert all(
        wanted[text] == row.tolist() for text, row in zip(data.train["text"], targets_of(data.train), strict=True)
    )
    predicted = [answer["labels"] for answer in load(model).predict(TEXTS)]
    ours = np.array([[label in labels for label in ASPECTS] for labels in predicted])
    found = compare(model, model, file)["scores"]["f1_micro"]["a"]
    assert found == pytest.approx(100 * f1_score(flags, ours, average="micro"), abs=0.05)


def test_numbers_that_mean_other_labels_in_the_other_model_are_refused(tmp_path: Path) -> None:
    model = save(tmp_path / "m", ("zebra", "mango", "apple"))
    other = save(tmp_path / "o", ("mango", "apple", "zebra"))
    file = write(tmp_path / "t.csv", ("text", "label"), [[text, n % 3] for n, text in enumerate(TEXTS)])
    with pytest.raises(
        UserError, match=r"--label: got numbers in column label, which A and B have for different labels"
    ):
        compare(model, other, file)
    notes = compare(model, model, file)["notes"]
    assert "the labels in the files are A's outputs: 0 is zebra, 1 is mango, 2 is apple" in notes


def test_a_model_without_names_is_compared_in_order_and_that_is_said(tmp_path: Path) -> None:
    named = save(tmp_path / "m", ("zebra", "mango", "apple"))
    plain = save(tmp_path / "p", ("LABEL_0", "LABEL_1", "LABEL_2"))
    file = write(tmp_path / "t.csv", ("text",), [[text] for text in TEXTS])
    for a, b, without in ((named, plain, "B"), (plain, named, "A")):
        line = f"{without} does not name its outputs: they are compared in the other's order, zebra, mango, apple."
        assert line in compare(a, b, file)["notes"]
    assert not any("does not name" in note for note in compare(named, named, file)["notes"])


def test_a_first_row_is_no_header(tmp_path: Path) -> None:
    labels = ("zebra", "mango")
    model = save(tmp_path / "m", labels)
    file = write(tmp_path / "t.csv", (), [[text, labels[n % 2]] for n, text in enumerate(TEXTS)])
    with pytest.raises(
        UserError, match=r"got 'zebra' as the name of a column and as a label in it; .* set --label zebra"
    ):
        compare(model, model, file)


@pytest.mark.parametrize("activation", [None, "torch.nn.modules.activation.Sigmoid"])
def test_a_quantized_model_takes_texts_and_pairs_as_its_float_model_does(
    activation: str | None, tmp_path: Path
) -> None:
    one = {"num_labels": 1, "problem_type": "regression"}
    kept = {"sentence_transformers": {"activation_fn": activation, "version": "5.0.0"}} if activation else {}
    source = tiny.save(tmp_path / "m", "bert", "SequenceClassification", std=0.5, **one, **kept)
    distill.quantize(source, "bitsandbytes", out=tmp_path / "q")
    pairs = [(TEXTS[n], TEXTS[n + 1]) for n in range(5)]
    floats, small = load(source), load(tmp_path / "q", backend="torch", scheme="fp32")
    wanted, found = ([answer["score"] for answer in each.predict(pairs)] for each in (floats, small))
    assert found == pytest.approx(wanted, abs=1e-5)
    assert all(0 < score < 1 for score in found) == (activation is not None) or activation is None
    if activation is None:
        assert [a["score"] for a in small.predict(TEXTS)] == pytest.approx([a["score"] for a in floats.predict(TEXTS)])


def test_a_cross_encoder_asks_for_two_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}}
    model = tiny.save(tmp_path / "m", "bert", "SequenceClassification", num_labels=1, **kept)
    assert predict.main([str(model), "the boat", "old baker"]) == 2
    assert "TEXT: got single texts; must be pairs for this model (query, document)" in capsys.readouterr().err


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    model = save(tmp_path / "m", ("zebra", "mango"))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 17\n"
    (model / "model.safetensors").write_text(pointer)
    with pytest.raises(UserError, match=r"model.safetensors: got a pointer of Git LFS; .* run git lfs pull"):
        load(model)
    other = save(tmp_path / "o", ("zebra", "mango"))
    shutil.copy(model / "model.safetensors", other / "tokenizer.json")
    with pytest.raises(UserError, match=r"tokenizer.json: got a pointer of Git LFS"):
        load(other)


def test_predictions_are_not_lines_in_a_file_of_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(tmp_path / "m", ("zebra", "mango"))
    assert predict.main([str(model), "a", "--output", str(tmp_path / "o.json")]) == 2
    assert "must end with .jsonl or .csv" in capsys.readouterr().err
