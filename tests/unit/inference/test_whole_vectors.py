"""Vectors of texts that are longer than an embedder reads at once, against sentence-transformers on their windows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli import predict
from distill.cli.compare import models
from distill.cli.compare.comparison import IN_WINDOWS, compare
from distill.data.encode import Encoded
from distill.data.task_types import TASK_TYPES
from distill.data.windows import new_tokens, split, windows
from distill.deploy.export import record
from distill.errors import ConfigError, UserError
from distill.inference import latency
from distill.inference.mixture import mean_vector
from distill.models.families import vectors
from distill.models.families.embedding import EncoderForVectors
from tests import tiny

SIZE = 24
ROOM, STEP = 22, 17  # without the two special tokens; consecutive windows share a quarter
LENGTHS = (3, 22, 23, 60, 200)
WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split()]
TEXTS = [" ".join(np.random.default_rng(count).choice(WORDS, count)) for count in LENGTHS]
"""Each word is one token."""


def embedder(folder: Path, settings: vectors.Vectors) -> Path:
    tiny.save(folder, "bert", "", initializer_range=0.5, length=40)
    model = EncoderForVectors.from_pretrained(folder)
    model.vectors = settings
    vectors.into_config(model.config, model.vectors)
    model.save_pretrained(folder)
    return folder


def expected(folder: Path, texts: list[str]) -> list[np.ndarray]:
    """Of each text, the mean of what sentence-transformers makes of its windows, weighted by their new words."""
    from sentence_transformers import SentenceTransformer

    model, found = SentenceTransformer(str(folder), device="cpu"), []
    for text in texts:
        count = len(text.split())
        starts = [*range(0, count - ROOM, STEP), max(0, count - ROOM)]
        ends = [min(count, start + ROOM) for start in starts]
        own = np.asarray(model.encode([" ".join(text.split()[s:e]) for s, e in zip(starts, ends, strict=True)]))
        found.append(np.average(own, axis=0, weights=np.diff([0, *ends])))
    return found


@pytest.mark.parametrize("normalized", [True, False])
def test_a_vector_is_the_mean_of_those_of_the_windows(normalized: bool, tmp_path: Path) -> None:
    folder = embedder(tmp_path / "model", vectors.Vectors(normalized=normalized))
    whole: Any = distill.load(folder, max_length=SIZE, windows=True)
    cut: Any = distill.load(folder, max_length=SIZE)
    found, truncated, mean = whole.outputs(TEXTS, batch_size=3), cut.outputs(TEXTS), expected(folder, TEXTS)
    for own, other in zip(found, mean, strict=True):
        np.testing.assert_allclose(own / np.linalg.norm(own), other / np.linalg.norm(other), atol=1e-5)
    if normalized:
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[:2], truncated[:2], atol=1e-5)
    assert (np.abs(found - truncated).max(axis=1)[3:] > 1e-3).all()
    assert [answer["vector"] for answer in whole.predict(TEXTS[:1])] == [pytest.approx(found[0].tolist(), abs=1e-5)]


def test_a_separator_in_a_text_divides_no_pair(tmp_path: Path) -> None:
    folder = embedder(tmp_path / "model", vectors.Vectors())
    model: Any = distill.load(folder, max_length=SIZE, windows=True)
    text = f"goats [SEP] {TEXTS[-1]}"
    np.testing.assert_allclose(
        model.outputs([text]), [own / np.linalg.norm(own) for own in expected(folder, [text])], atol=1e-5
    )


def test_new_tokens_are_all_tokens_once() -> None:
    lengths = np.array([2, *(count + 2 for count in LENGTHS)])
    layout = windows(tiny.tokenizer(), SIZE)
    ids, offsets = np.full(lengths.sum(), 9, np.int32), np.cumsum([0, *lengths])
    _, owner = split(Encoded(ids, offsets, None, None), replace(layout, between=layout.between[:0]))
    assert new_tokens(lengths, owner, layout).tolist() == [1, 3, 22, 22, 1, 22, 17, 17, 4, 22, *[17] * 10, 8]


def test_opposite_windows_have_no_direction() -> None:
    unit = np.array([[1, 0], [-1, 0], [0, 2]], np.float32)
    found = mean_vector(unit, np.array([0, 0, 1]), np.array([1, 1, 5]))
    assert np.isfinite(found).all()
    assert found[1].tolist() == [0, 2]


def test_models_are_compared_on_whole_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models, "ROUNDS", 2)
    monkeypatch.setattr(latency, "LEAST_MS", 0.1)
    folder, file = embedder(tmp_path / "model", vectors.Vectors()), tmp_path / "rows.jsonl"
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))[:-1]
    rows = [{"sentence1": one, "sentence2": two, "score": n} for n, (one, two) in enumerate(pairs)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entries = (record.Entry("torch", "fp32", "."),)
    record.write(folder, record.Record("own", TASK_TYPES["embedding"], (), ("sentence1",), SIZE, entries))
    found = {windows: compare(folder, folder, str(file), windows=windows) for windows in (True, False)}
    assert [found[windows]["models"]["a"]["truncated_rows"] for windows in (True, False)] == [0, 4]
    assert [IN_WINDOWS in found[windows]["notes"] for windows in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("SequenceClassification", "windows: got true; must be false for classification, whose long texts are trunc"),
        ("TokenClassification", "windows: got true; must be false for token_classification, whose long texts are read"),
    ],
)
def test_other_kinds_are_refused(head: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.save(tmp_path / "model", "bert", head, num_labels=3)
    with pytest.raises(ConfigError, match=message):
        distill.load(folder, windows=True)
    with pytest.raises(UserError, match=message.replace("windows:", "--windows, A:")):
        models.loaded([folder], [None], True, print)
    assert predict.main([str(folder), "a text", "--windows"]) == 2
    assert message.replace("windows:", "--windows:") in " ".join(capsys.readouterr().err.split())
