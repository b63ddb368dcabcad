"""Terms that compare the rows of a step with each other: their rows, their weight, and steps of several processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from distill import losses
from distill.data.task_types import TASK_TYPES
from distill.losses import objective as module
from distill.losses import terms
from distill.losses.distillation_loss import DistillationLoss
from distill.losses.objective import Objective, counts
from distill.losses.shared_encoder import tokens_in
from distill.losses.terms import Term
from distill.models import families
from distill.models.families.embedding import pooled
from tests import tiny

INTRA = partial(losses.intra_class, temperature=2.0)
EVERY = {
    "intra_class": Term(1.0, "logits", "teacher", "masked", INTRA),
    "distances": Term(1.0, "pooled", "teacher", "all", losses.distances),
    "angles": Term(1.0, "first", "teacher", "all", losses.angles, layers="uniform"),
}
TEXTS = 6


def texts(length: int = 8) -> dict[str, Tensor]:
    """Texts of 3 to 8 tokens, padded to a length."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.tensor([8, 3, 5, 4, 7, 6])
    mask = (torch.arange(length) < lengths[:, None]).long()
    ids = torch.randint(5, 60, (TEXTS, 8), generator=generator)
    ids = torch.cat([ids, torch.zeros(TEXTS, length - 8, dtype=torch.long)], dim=1)
    batch = {"input_ids": ids.masked_fill(mask == 0, tiny.PADDING), "attention_mask": mask}
    return batch | {"labels": torch.tensor([0, 1, 2, 0, 1, 2]), "real": mask.flatten().nonzero().squeeze(1)}


def part(batch: dict[str, Tensor], own: list[int], count: int = TEXTS) -> dict[str, Tensor]:
    """What one of several processes gets: the texts `own`, or the first where it has none, and the labels of all."""
    rows = torch.tensor(own or [0])
    inputs = {name: batch[name][rows] for name in ("input_ids", "attention_mask")}
    real = inputs["attention_mask"].flatten().nonzero().squeeze(1)[: None if own else 0]
    places = {"own": torch.tensor(own, dtype=torch.long), "step": torch.arange(count)}
    return inputs | places | {"labels": batch["labels"], "real": real}


@pytest.fixture
def pair(tiny_model: Any) -> Callable[..., tuple[Any, Any]]:
    def make(head: str = "SequenceClassification", outputs: int = 3) -> tuple[Any, Any]:
        """A narrower student, and its teacher."""
        sizes: dict[str, Any] = {} if head == "MaskedLM" else {"num_labels": outputs}
        student = tiny_model("bert", head, layers=2, hidden_size=8, **sizes)
        return student.double().eval(), tiny_model("bert", head, layers=4, seed=1, **sizes).double().eval()

    return make


def means(student: Any, teacher: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The mean of each term, from the outputs of whole models."""
    (z, h), (t, g) = ((m(**families.inputs(m, batch), output_hidden_states=True)[:2]) for m in (student, teacher))
    first = [losses.angles(h[n + 1][:, 0], g[2 * n + 2][:, 0]).mean() for n in (0, 1)]
    vectors = [pooled(hidden[-1], batch["attention_mask"], "mean") for hidden in (h, g)]
    return {
        "intra_class": INTRA(z, t).mean(),
        "distances": losses.distances(*vectors).mean(),
        "angles": torch.stack(first).sum(),
    }


def test_terms_are_means_over_the_rows_of_the_batch_without_a_trained_map(pair) -> None:
    student, teacher = pair()
    module, batch = Objective(student, EVERY, [teacher]), texts()
    assert module.counts(batch).tolist() == [TEXTS] * 3
    assert len(module.projections) == 0
    sums = module(batch)
    expected = torch.stack([means(student, teacher, batch)[name] for name in EVERY])
    torch.testing.assert_close(sums.double(), expected * TEXTS, rtol=1e-6, atol=0)
    torch.testing.assert_close(module(texts(16)), sums, rtol=1e-6, atol=1e-6)


def test_a_single_text_is_0(pair) -> None:
    student, teacher = pair()
    single = {name: values[:1] for name, values in texts().items() if name != "real"} | {"real": torch.arange(8)}
    sums = Objective(student, EVERY, [teacher])(single)
    sums.sum().backward()
    assert sums.tolist() == [0, 0, 0]
    assert all(p.grad is None or p.grad.isfinite().all() for p in student.parameters())


@pytest.mark.parametrize("positions", ["masked", "all"])
def test_on_a_corpus_all_positions_and_texts_are_compared_at_once(positions: str, pair, monkeypatch) -> None:
    """Logits are else computed in parts."""
    monkeypatch.setattr(module, "CHUNK", 4)
    student, teacher = pair("MaskedLM")
    batch = texts() | {"masked": torch.tensor([1, 9, 17, 18, 34]), "labels": torch.tensor([7, 8, 9, 10, 11])}
    chosen = {
        "intra_class": Term(1.0, "logits", "teacher", positions, INTRA),
        "distances": EVERY["distances"],
    }
    sums, rows = Objective(student, chosen, [teacher])(batch), batch["masked" if positions == "masked" else "real"]
    z, t = (model(**families.inputs(model, batch)).logits.flatten(0, 1)[rows] for model in (student, teacher))
    assert counts(chosen, batch).tolist() == [len(rows), TEXTS]
    torch.testing.assert_close(sums[0].double(), INTRA(z, t).mean() * len(rows), rtol=1e-6, atol=0)
    assert 0 < sums[1] < TEXTS


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shares", [([0, 2, 4], [1, 3, 5]), ([0, 1, 2, 3, 4, 5], [])], ids=["both", "one"])
def test_processes_compute_the_value_and_the_gradient_of_the_whole_step(
    name: str, shares: tuple[list[int], ...], pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each computes the value of all rows, with gradients of its own. The exchange is replaced by one with the rows of
    a pass over the whole batch."""
    student, teacher = pair()
    batch, chosen = texts(), {name: EVERY[name]}
    whole = Objective(student, chosen, [teacher])
    passed: list[Tensor] = []

    def noting(outputs: Tensor, own: Tensor, rows: int) -> Tensor:
        passed.append(outputs.detach())
        return outputs

    def exchanged(outputs: Tensor, own: Tensor, rows: int) -> Tensor:
        every = passed[len(calls)]
        calls.append(rows)
        assert len(every) == rows
        return every.clone().index_copy(0, own, outputs[: len(own)])

    monkeypatch.setattr(module, "of_all_processes", noting)
    expected = whole(part(batch, list(range(TEXTS))))
    torch.testing.assert_close(whole(batch), expected)
    reference = torch.autograd.grad(expected.sum(), list(student.parameters()), allow_unused=True)
    monkeypatch.setattr(module, "of_all_processes", exchanged)
    total = [torch.zeros_like(p) for p in student.parameters()]
    for own in shares:
        calls: list[int] = []
        given = part(batch, own)
        value = whole(given)
        torch.testing.assert_close(value, expected)
        assert whole.counts(given).tolist() == [TEXTS]
        found = torch.autograd.grad(value.sum(), list(student.parameters()), allow_unused=True)
        total = [t if g is None else t + g for t, g in zip(total, found, strict=True)]
    for got, its in zip(total, reference, strict=True):
        torch.testing.assert_close(got, torch.zeros_like(got) if its is None else its, rtol=1e-5, atol=1e-8)


def test_a_process_without_rows_adds_nothing_to_terms_of_single_rows(pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has encoded another's text."""
    monkeypatch.setattr(module, "of_all_processes", lambda outputs, own, rows: outputs[:1].expand(rows, -1))
    student, teacher = pair()
    soft = partial(losses.soft_targets, temperature=1.0)
    chosen = {
        **{kind: Term(1.0, kind, "teacher", "all", losses.cosine) for kind in ("pooled", "first", "hidden")},
        "relations": Term(1.0, "relations", "teacher", "all", soft, heads=2),
    }
    batch = part(texts(), [])
    objective = Objective(student, chosen, [teacher])
    assert objective(batch).tolist() == [0.0] * 4
    assert objective.counts(batch).tolist() == [0.0] * 4
    assert tokens_in({name: values.numpy() for name, values in batch.items()}) == 0
    joined = {f"0.{name}": values.numpy() for name, values in batch.items()}
    assert tokens_in(joined | {"1.attention_mask": texts()["attention_mask"].numpy()}) == 33


@pytest.mark.parametrize("given", ["teacher", "stored"])
def test_terms_of_the_package_in_a_loop_of_ones_own(given: str, pair) -> None:
    student, teacher = pair()
    batch = texts()
    del batch["real"]
    chosen = [terms.InterClass(2.0), terms.IntraClass(3.0, 4.0)]
    expected = [losses.inter_class, partial(losses.intra_class, temperature=4.0)]
    z, t = (model(**families.inputs(model, batch)).logits.detach() for model in (student, teacher))
    wanted = [expected[0](z, t, temperature=1.0).mean(), expected[1](z, t).mean()]
    if given == "stored":
        loss, parts = DistillationLoss(student, None, chosen)(batch | {"teacher_logits": t})
    else:
        inside = [terms.Distances(5.0), terms.Angles(6.0)]
        loss, parts = DistillationLoss(student, teacher, [*chosen, *inside])(batch)
        sides = (model(**families.inputs(model, batch), output_hidden_states=True).hidden_states[-1] for model in
                 (student, teacher))  # fmt: skip
        vectors = [pooled(hidden, batch["attention_mask"], "mean").detach() for hidden in sides]
        wanted += [losses.distances(*vectors).mean(), losses.angles(*vectors).mean()]
    torch.testing.assert_close(torch.stack([*parts.values()]).double(), torch.stack(wanted), rtol=1e-5, atol=1e-7)
    weighted = sum(weight * value for weight, value in zip((2, 3, 5, 6), wanted, strict=False))
    assert loss.item() == pytest.approx(float(weighted), rel=1e-5)


@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_the_rows_of_each_kind_are_compared(kind: str, pair) -> None:
    """Of a regression the outputs; of several labels the rows are pairs of a text and a label."""
    outputs = 1 if kind == "regression" else 3
    student, teacher = pair(outputs=outputs)
    rows, batch = TASK_TYPES[kind].rows, texts() | {"labels": torch.zeros(TEXTS * outputs, dtype=torch.long)}
    objective = Objective(student, {"intra_class": EVERY["intra_class"]}, [teacher], rows=rows)
    z, t = (model(**families.inputs(model, batch)).logits for model in (student, teacher))
    expected = INTRA(rows(z), rows(t)).mean() * TEXTS * outputs
    torch.testing.assert_close(objective(batch)[0].double(), expected, rtol=1e-6, atol=0)
