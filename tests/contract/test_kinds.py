"""Every kind of task on every family: labels and soft targets train it, and a saved model is loaded and predicts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import distill
from distill.data.collate import task_batch
from distill.data.encode import alternating, encode_choices, encode_texts
from distill.data.encode_words import encode_words
from distill.data.questions import encode_questions
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.task_types import ABSENT, TASK_TYPES
from distill.data.task_types.words import words_of
from distill.inference.predict import predict
from distill.inference.runners import torch_run
from distill.losses import soft_targets, supervised
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import families, teacher
from distill.models.hooks import outputs_of
from distill.models.write import write_model
from tests import tiny

FAMILIES = [name for name in families.FAMILIES if name not in tiny.SAME]
LABELS = {
    "classification": ("boat", "goat", "clock"),
    "multi_label": ("sea", "roof", "old"),
    "token_classification": ("O", "B-THING", "I-THING"),
}
"""Kind -> labels; kinds of numbers have none."""
TARGETS: dict[str, np.ndarray] = {
    "classification": np.array([0, 1, 2, 0, -100, 1, 2, 0]),
    "multi_label": np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]] * 2),
    "regression": np.linspace(-3, 9, 8, dtype=np.float32),
    "reranking": np.array([0, 1, 0, 2, 0, 0, np.nan, 1], np.float32),
    "token_classification": np.concatenate([np.arange(len(words_of(text))) % 3 for text in tiny.SENTENCES]),
    "multiple_choice": np.array([0, 1, 2, 0, -100, 1, 0, 1]),
    "question_answering": np.array([(1, 2), (5, 6), (0, 0), (4, 4), (-100, -100), (2, 5), (0, 0), (3, 3)]),
    "embedding": np.linspace(0, 1, 8, dtype=np.float32),
    "retrieval": np.array([0, 1, 1, 2, 0, 0, np.nan, 1], np.float32),
}


def test_every_kind_has_targets() -> None:
    assert TARGETS.keys() == TASK_TYPES.keys()
    assert LABELS.keys() == {name for name, kind in TASK_TYPES.items() if kind.named}


QUICK = ("bert", "modernbert")
"""Families on which every kind is tried. Others are tried with one kind of each architecture, in turn: what kinds of
one architecture differ in, their targets and losses, is behind the model's outputs."""
ALIKE = {
    architecture: [kind for kind, record in TASK_TYPES.items() if record.architecture == architecture]
    for architecture in dict.fromkeys(record.architecture for record in TASK_TYPES.values())
}
HAVE = {
    architecture: [name for name in FAMILIES if architecture not in families.FAMILIES[name].without]
    for architecture in ALIKE
}
"""Architecture -> families for which transformers has a class of it."""
TRIED = [
    each
    for architecture, kinds in ALIKE.items()
    for each in [
        *itertools.product(kinds, (name for name in HAVE[architecture] if name in QUICK)),
        *zip(itertools.cycle(kinds), (name for name in HAVE[architecture] if name not in QUICK), strict=False),
    ]
]


def test_every_kind_is_tried_and_every_family_with_each_of_its_architectures() -> None:
    assert {kind for kind, name in TRIED if name not in QUICK} == TASK_TYPES.keys()
    tried = {(TASK_TYPES[kind].architecture, name) for kind, name in TRIED}
    assert tried == {(architecture, name) for architecture, names in HAVE.items() for name in names}


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*each, marks=[pytest.mark.slow] * (each[1] not in QUICK)) for each in TRIED]
)
def test_a_kind_trains_saves_loads_and_predicts(kind: str, name: str, tmp_path: Path) -> None:
    record, labels = TASK_TYPES[kind], LABELS.get(kind, ())
    task = Task("own", record, ("text", "other")[: record.layout.columns[-1]], labels, record.metrics)
    tiny.save(tmp_path / "given", name, "" if name in tiny.TEACHERS else "MaskedLM")
    tokenizer = teacher.load_tokenizer(tmp_path / "given")
    tokenizer.padding_side = "left" if families.FAMILIES[name].pads_left else "right"
    torch.manual_seed(0)
    model = load_for(task, tmp_path / "given", pad_id=tokenizer.pad_token_id)
    assert model.config.problem_type == record.problem
    assert record.separate or model.config.num_labels == task.outputs
    texts = tiny.SENTENCES, tiny.SENTENCES[::-1]
    pairs: Any = list(zip(*texts, strict=True))
    encoded = encode_texts(texts, tokenizer, 24)
    if record.per_token:
        pairs = texts[0]
        encoded = encode_words(pairs, [np.array(words_of(text)) for text in pairs], tokenizer, 24)
    if record.choices:  # the last questions have one choice fewer
        pairs = [(text, texts[1][n : n + 3] if n < 6 else texts[1][:2]) for n, text in enumerate(texts[0])]
        encoded = encode_choices([record.layout.divide(pair) for pair in pairs], tokenizer, 24)
    if record.extractive:
        encoded = encode_questions([text[:12] for text in texts[0]], texts[1], tokenizer, 24)
        pairs = [(text[:12], context) for text, context in pairs]
    if record.separate:
        encoded = alternating(*(encode_texts([column], tokenizer, 24) for column in texts))
        pairs = [text for pair in pairs for text in pair]  # an embedder takes single texts
    batch: dict[str, Any]
    numbers = range(len(encoded) if record.per_token else 8)  # of all windows of words
    batch, rows = task_batch(encoded, numbers, tokenizer.pad_token_id, tokenizer.padding_side == "left")
    assert len(rows) > len(TARGETS[kind]) / 3  # a tokenizer without the words truncates pairs
    batch["labels"] = record.loss_targets(TARGETS[kind][rows])
    places = batch["input_ids"].shape[1] if record.extractive else 1
    outputs = encoded.most * places * (model.width if record.separate else task.outputs)
    batch["teacher_logits"] = np.random.default_rng(0).normal(size=(len(rows), outputs)).astype(np.float32)
    if record.choices:
        batch["teacher_logits"][batch["groups"] < 0] = ABSENT
    tensors = {key: torch.from_numpy(value) for key, value in batch.items()}
    terms = {
        "supervised": Term(1.0, "logits", "labels", "all", supervised),
        "soft": Term(1.0, "logits", "teacher", "all", lambda s, t: soft_targets(s, t, temperature=2.0)),
    }
    objective = Objective(model.train(), terms, rows=record.rows, label_rows=record.label_rows)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(12):
        loss = objective(tensors).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert min(losses[-3:]) < losses[0]
    with write_model(tmp_path / "saved", model, tokenizer):
        pass
    loaded = distill.load(tmp_path / "saved", max_length=24)
    assert loaded.labels == labels
    answers = loaded.predict(pairs)
    assert len(answers) == len(pairs)
    with torch.no_grad():
        expected = outputs_of(model.eval(), tensors).numpy()
    if record.extractive:
        expected = predict(
            torch_run(model, scheme="fp32", device="cpu", threads=1), encoded, pad_id=tokenizer.pad_token_id
        )
    given = loaded.outputs(pairs)
    given = given.reshape(8, -1) if record.separate else given
    np.testing.assert_allclose(given[rows], expected, atol=1e-4)
    words = list(map(record.layout.divide, pairs))
    assert record.answer(loaded.outputs(pairs), labels, 0.5, words)[0].keys() == answers[0].keys()
