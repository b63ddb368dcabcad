"""Batches with few shapes have the loss and the gradients of those that they are made from, and most steps replay."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from distill import losses
from distill.config import Batch
from distill.config.feature_kinds import FEATURE_KINDS, MARGINS, VECTORS
from distill.data.collate import pairs
from distill.losses import objective as objectives
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models.segment_head import SegmentHead
from distill.training import batching
from distill.training.fixed_shapes import VALID, fixed
from distill.training.graphs import AFTER, MOST, shapes_of
from tests.tiny import SHAPES

SOFT = partial(losses.soft_targets, temperature=2.0)
LENGTHS = [7, 4, 7, 5, 6]
WIDTH = 8
SEGMENTS = SegmentHead(16, 0.02).double()


def corpus(lengths: list[int] = LENGTHS, seed: int = 0) -> dict[str, Tensor]:
    """A batch of masked texts, of which three are pairs of segments, as other tokens for the teacher too."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(WIDTH) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 60, mask.shape, generator=generator).masked_fill(mask == 0, 1)
    masked = torch.tensor([row * WIDTH + column for row, n in enumerate(lengths) for column in range(1, n - 1, 2)])
    return {
        "input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids), "masked": masked,
        "labels": ids.flatten()[masked], "real": mask.flatten().nonzero().squeeze(1),
        "drawn": torch.rand(len(masked), generator=generator),
        "pairs": torch.tensor([0, 2, 3]), "pair_labels": torch.tensor([1, 0, 1]),
    }  # fmt: skip


def term(kind: str, positions: str) -> Term:
    """A term of this kind, with a teacher where it can have one."""
    record = FEATURE_KINDS[kind]
    soft = record.name == "logits" or record.splits_heads or record.name == "replaced"
    loss: Any = SOFT if soft and record.taught else losses.mse if record.taught else losses.supervised
    layers = "uniform" if record.layers else "last"
    return Term(1.0, kind, "teacher" if record.taught else "labels", positions, loss, layers)


def total_and_gradients(made: Objective, batch: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    sums = made(batch)
    parameters = [parameter for parameter in made.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(sums.double().sum(), parameters, allow_unused=True)
    return sums, [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def same(made: Objective, batch: dict[str, Tensor], flagged: bool = True) -> None:
    """Both batches have the same loss, which has the rows that were added if their flags are dropped, if `flagged`."""
    padded = fixed(batch)
    unflagged = made({name: values for name, values in padded.items() if not name.endswith(VALID)})
    assert flagged != torch.allclose(unflagged, made(padded), rtol=1e-6, atol=0)
    before, after = total_and_gradients(made, batch), total_and_gradients(made, padded)
    torch.testing.assert_close(after[0], before[0], rtol=1e-6, atol=0)
    assert before[0].all()
    for one, other in zip(before[1], after[1], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)


CORPUS = [(kind.name, positions) for kind in FEATURE_KINDS.values() for positions in kind.rows]


@pytest.mark.parametrize(("kind", "positions"), CORPUS)
def test_every_term_on_a_corpus_is_the_same(kind: str, positions: str, tiny_model, monkeypatch) -> None:
    monkeypatch.setattr(objectives, "CHUNK", 16)  # fewer than the positions
    record, heads = FEATURE_KINDS[kind], {}
    family, head = ("electra", "PreTraining") if kind == "replaced" else ("bert", "MaskedLM")
    student, teacher = (tiny_model(family, head, layers=n, seed=n).double() for n in (2, 3))
    if record.segments:
        heads["segment_head"] = SEGMENTS
    if kind == "replaced":
        heads["generator"] = tiny_model("bert", "MaskedLM", seed=2).double()
    terms = {"it": term(kind, positions)}
    if record.labels and record.taught:
        terms["labels"] = Term(1.0, kind, "labels", "masked" if kind == "logits" else "all", losses.supervised)
    others = record.splits_heads or kind in ("pooled", "first", "scores")  # which have rows of tokens or texts alone
    same(Objective(student, terms, [teacher], **heads).double(), corpus(), flagged=not others)


def test_tokens_of_two_tokenizers_are_the_same(tiny_model) -> None:
    batch, own = corpus(), corpus([6, 7, 5, 8, 4], seed=1)
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch |= {f"teacher_{name}": own[name] for name in names}
    batch |= {"aligned": torch.tensor([1, 9, 17, 25, 33]), "teacher_aligned": torch.tensor([2, 10, 18, 26, 34])}
    student, teacher = (tiny_model("bert", layers=n, seed=n).double() for n in (2, 3))
    same(Objective(student, {"hidden": term("hidden", "all")}, [teacher]), batch)


TASKS: dict[str, tuple[str, int, tuple[str, ...], dict[str, Tensor]]] = {
    "texts": ("SequenceClassification", 3, ("soft", "labels", "hidden", "relations"), {
        "labels": torch.tensor([2, -100, 1, -100, 0]), "labelled": torch.tensor([0, 2, 4]),
        "label_weights": torch.tensor([1.0, 9.0, 2.0, 9.0, 0.5]),
    }),
    "numbers": ("SequenceClassification", 1, ("soft", "labels"), {
        "labels": torch.tensor([0.5, torch.nan, 1.0, 2.0, torch.nan]), "labelled": torch.tensor([0, 2, 3]),
    }),
    "words": ("TokenClassification", 3, ("soft", "labels"), {
        "words": torch.tensor([1, 3, 9, 17, 18, 19, 34]), "labels": torch.tensor([0, 1, 2, -100, 1, 0, 2]),
        "labelled": torch.tensor([0, 1, 2, 4, 5, 6]), "teacher_logits": torch.randn(7, 3, dtype=torch.float64),
    }),
    "margins": ("SequenceClassification", 1, ("margins", "soft"), {
        "labels": torch.zeros(5), "pairs": torch.from_numpy(pairs(np.array([3, 0, 3, 3, 0]))),
    }),
}  # fmt: skip
"""Rows -> head, its outputs, the terms, and what a batch has besides texts."""
TERMS = {
    "soft": Term(1.0, "logits", "teacher", "all", SOFT),
    "labels": Term(1.0, "logits", "labels", "all", losses.supervised),
    "hidden": term("hidden", "all"),
    "relations": term("relations", "all"),
    "margins": Term(1.0, "margins", "teacher", "all", losses.mse),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_kind_of_rows_on_a_task_is_the_same(name: str, tiny_model) -> None:
    head, outputs, used, more = TASKS[name]
    student, teacher = (tiny_model("bert", head, layers=n, seed=n, num_labels=outputs).double() for n in (2, 3))
    whole = corpus()
    batch = {key: whole[key] for key in ("input_ids", "attention_mask", "token_type_ids", "real")} | more
    same(Objective(student, {each: TERMS[each] for each in used}, [teacher]), batch)
    assert shapes_of(fixed(batch)) != shapes_of(batch)


def test_the_table_of_terms_has_every_kind() -> None:
    """Vectors have rows of their own on no batch, and margins are tested on a task."""
    assert {kind for kind, _ in CORPUS} == FEATURE_KINDS.keys() - {MARGINS.name, VECTORS.name}


def test_other_numbers_of_tokens_have_the_same_shapes() -> None:
    one, other = corpus(), corpus([8, 8, 5, 4, 6], seed=1)
    assert shapes_of(one) != shapes_of(other)
    assert shapes_of(fixed(one)) == shapes_of(fixed(other))


@pytest.fixture
def valueless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without values, as a step sees those of a GPU that it does not wait for."""
    for name in ("_ignore_bidirectional_mask_sdpa", "_ignore_causal_mask_sdpa"):  # not asked while a graph is recorded
        monkeypatch.setattr(f"transformers.masking_utils.{name}", lambda *a, **k: False)
    monkeypatch.setattr(torch, "autocast", lambda *a, **k: contextlib.nullcontext())  # which has no kind for them


def computed_without_values(made: Objective, batch: dict[str, Tensor]) -> None:
    total = made({name: values.to("meta") for name, values in batch.items()}).sum()
    total.backward()
    assert total.is_meta


@pytest.mark.quick(5)
@pytest.mark.parametrize("family", SHAPES)
def test_a_step_reads_no_value(family: str, tiny_model, valueless: None) -> None:
    """So that it never waits for a GPU, and can be recorded if its code also copies nothing there."""
    student, teacher = (tiny_model(family, layers=n).to("meta") for n in (2, 3))
    used = {"relations": term("relations", "all"), "hidden": term("hidden", "all"), "soft": term("logits", "masked")}
    computed_without_values(Objective(student, used, [teacher]), fixed(corpus()))
    with pytest.raises(NotImplementedError, match="nonzero"):
        computed_without_values(Objective(student, used, [teacher]), corpus())


@pytest.mark.parametrize(("kind", "positions"), CORPUS)
def test_every_term_reads_no_value(kind: str, positions: str, tiny_model, valueless: None) -> None:
    family, head = ("electra", "PreTraining") if kind == "replaced" else ("bert", "MaskedLM")
    student, teacher = (tiny_model(family, head, layers=n).to("meta") for n in (2, 3))
    heads: dict[str, Any] = {"segment_head": SegmentHead(16, 0.02)} if FEATURE_KINDS[kind].segments else {}
    heads |= {"generator": tiny_model("bert", "MaskedLM").to("meta")} if kind == "replaced" else {}
    made = Objective(student, {"it": term(kind, positions)}, [teacher], **heads).to("meta")
    # The rows of scores have as many columns as their text has tokens.
    waits = pytest.raises(NotImplementedError) if kind == "scores" else contextlib.nullcontext()
    with waits:
        computed_without_values(made, fixed(corpus()))


def articles(random: np.random.Generator, count: int) -> np.ndarray:
    return np.where(random.random(count) < 0.8, 128, random.integers(20, 128, count))


def short_texts(random: np.random.Generator, count: int) -> np.ndarray:
    return np.clip(random.gamma(4, 13, count).astype(int) + 5, 5, 128)


def on_corpus(lengths: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
    """As `distill.pipeline.train_steps.corpus` collates these rows, in shapes alone."""
    width, own = batching.padded(int(lengths[rows].max())), lengths[rows]
    masked = int(np.maximum(np.floor(0.15 * (own - 2) + 0.5), 1).sum())
    mask = torch.from_numpy((np.arange(width) < own[:, None]).astype(np.int64))
    numbers = torch.zeros(masked, dtype=torch.int64)
    return {
        "input_ids": mask, "attention_mask": mask, "masked": numbers, "labels": numbers,
        "real": mask.flatten().nonzero().squeeze(1),
    }  # fmt: skip


def on_task(lengths: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
    """As `distill.pipeline.train_steps.tasks` collates these rows, four fifths of which have no label."""
    width, own = batching.padded(int(lengths[rows].max())), lengths[rows]
    mask = torch.from_numpy((np.arange(width) < own[:, None]).astype(np.int64))
    labelled = torch.from_numpy(np.flatnonzero(rows < len(lengths) // 5))
    labels = torch.zeros(len(rows), dtype=torch.int64)
    return {"input_ids": mask, "attention_mask": mask, "labels": labels, "labelled": labelled}


@pytest.mark.parametrize(
    ("lengths", "collate", "batch", "steps"),
    [
        (articles, on_corpus, Batch(tokens=8192), 1500),
        (articles, on_corpus, Batch(tokens=32768), 800),
        (short_texts, on_corpus, Batch(tokens=8192), 1500),
        (short_texts, on_corpus, Batch(tokens=32768), 800),
        (short_texts, on_task, Batch(tokens=4096, examples=32), 1000),
    ],
)
def test_nine_of_ten_steps_are_replayed(
    lengths: Callable[..., np.ndarray], collate: Callable[..., dict[str, Tensor]], batch: Batch, steps: int
) -> None:
    """Counted as `Graphs` does, from the plan of a training, without a GPU."""
    every, seen, recorded, replayed = lengths(np.random.default_rng(0), 40_000), Counter[Any](), set[Any](), 0
    for _, _, rows in batching.steps(every, batch, seed=0, total=steps):
        shapes = shapes_of(fixed(collate(every, rows)))
        seen[shapes] += 1
        if seen[shapes] > AFTER and len(recorded) < MOST:
            recorded.add(shapes)
        replayed += shapes in recorded
    assert replayed / steps > 0.9
