"""Labels that are predicted from their own thresholds on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.data.task_types import TASK_TYPES
from distill.deploy import serve
from distill.deploy.export.record import Entry, Heads, read, read_any, write
from distill.errors import ConfigError, DataError
from tests import tiny
from tests.unit.deploy.conftest import recorded

Folders = dict[str, Path]
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.2}


def halfway(odds: np.ndarray) -> float:
    """Log-odds that half of the rows reach, and that none is close to."""
    middle = np.sort(odds)[[len(odds) // 2 - 1, len(odds) // 2]]
    assert np.ptp(middle) > 1e-5
    return float(middle.mean())


def share(odds: float) -> float:
    return float(1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("temperature", [None, 0.2, 3.0])
def test_a_detected_label_has_its_own_threshold(
    temperature: float | None, folders: Folders, sentences: list[str], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(folders["multi_label"], tmp_path / "copy"))
    kind, labels = TASK_TYPES["multi_label"], ("a", "b", "c")
    odds = serve.load(recorded(folder, kind=kind, labels=labels)).outputs(sentences).astype(np.float64)
    middle = {name: share(halfway(column)) for name, column in zip(labels, odds.T, strict=True)}
    entry = Entry("torch", "fp32", ".", temperature=temperature, thresholds={"a": middle["a"], "c": middle["c"]})
    model: Any = serve.load(recorded(folder, entry, kind=kind, labels=labels))
    assert model.thresholds == entry.thresholds
    above = odds > [halfway(column) for column in odds.T]
    plain = model.predict(sentences)
    for name in ("a", "c"):
        for detect in (name, [name], ("a", "c")):
            found = [name in answer["labels"] for answer in model.predict(sentences, detect=detect)]
            assert found == above[:, labels.index(name)].tolist()
    assert [name in answer["labels"] for answer in plain for name in "ac"] != above[:, [0, 2]].ravel().tolist()
    detected = model.predict(sentences, detect=["a", "c"])
    assert [("b" in one["labels"], one["scores"]) for one in detected] == [
        ("b" in one["labels"], one["scores"]) for one in plain
    ]
    with pytest.raises(ConfigError, match="detect: got b; must be of a, c; "):
        model.predict(sentences, detect=["a", "b"])
    assert model.predict(sentences, detect=None) == model.predict(sentences, detect=()) == plain
    with pytest.raises(ConfigError, match=r"must be left out, as this artifact has no thresholds; .* development rows"):
        serve.load(recorded(folder, kind=kind, labels=labels)).predict(sentences, detect="a")


def test_one_of_two_classes_is_detected(tmp_path: Path, sentences: list[str]) -> None:
    folder = tiny.save(tmp_path / "two", "bert", "SequenceClassification", num_labels=2, **SIZES)
    two: dict[str, Any] = {"labels": ("fine", "bad")}
    outputs = serve.load(recorded(folder, **two)).outputs(sentences).astype(np.float64)
    odds = outputs[:, 1] - outputs[:, 0]
    middle = halfway(odds)
    thresholds = {"fine": share(-middle), "bad": share(middle)}
    entry = Entry("torch", "fp32", ".", temperature=2.0, thresholds=thresholds)
    model: Any = serve.load(recorded(folder, entry, **two))
    for answer, own in zip(model.predict(sentences, detect="bad"), odds, strict=True):
        assert answer["label"] == ("bad" if own > middle else "fine")
        assert answer["score"] == answer["scores"][answer["label"]]
    with pytest.raises(ConfigError, match="detect: got fine, bad; must be one of two classes"):
        model.predict(sentences, detect=["fine", "bad"])


def test_a_kind_that_detects_nothing_says_so(copy: Path, sentences: list[str]) -> None:
    with pytest.raises(ConfigError, match="detect: got storm; must be left out, as only one of two classes, or"):
        serve.load(recorded(copy)).predict(sentences, detect="storm")


def test_several_heads_name_the_folders_of_single_ones(copy: Path, sentences: list[str], tmp_path: Path) -> None:
    shutil.copytree(recorded(copy), tmp_path / "both" / "weather")
    write(tmp_path / "both", Heads(("weather",), (Entry("torch", "fp32", "."),)))
    model = serve.load(tmp_path / "both")
    assert model.predict(sentences, detect=None) == model.predict(sentences)
    with pytest.raises(ConfigError, match=r"detect: got storm; must be left out for several heads; .*both/weather$"):
        model.predict(sentences, detect="storm")


@pytest.mark.parametrize(
    "wrong",
    [[0.5], {"bad": 1.0}, {"bad": 0}, {"bad": "0.5"}, {"bad": True}, {"other": 0.5}, {"bad": 0.5, "other": 0.5}],
)
def test_thresholds_that_are_no_probabilities_of_labels_are_refused(wrong: Any, copy: Path) -> None:
    recorded(copy, Entry("torch", "fp32", ".", thresholds={"bad": 0.5}), labels=("fine", "bad"))
    assert read(copy) is not None
    recorded(copy, Entry("torch", "fp32", ".", thresholds=wrong), labels=("fine", "bad"))
    with pytest.raises(DataError, match="thresholds"):
        read(copy)


def test_thresholds_of_kinds_and_folders_that_detect_nothing_are_refused(copy: Path) -> None:
    entry = Entry("torch", "fp32", ".", thresholds={"storm": 0.5})
    for task in ({}, {"kind": TASK_TYPES["regression"], "labels": ()}):  # three classes, and a number
        recorded(copy, entry, **task)
        with pytest.raises(DataError, match="thresholds"):
            read(copy)
    write(copy, Heads(("weather",), (entry,)))
    with pytest.raises(DataError, match="thresholds"):
        read_any(copy)
