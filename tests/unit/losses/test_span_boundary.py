"""The term of SpanBERT: borders of spans against a search token by token, the function against its formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from distill import losses
from distill.errors import ConfigError
from distill.losses.objective import Objective
from distill.losses.span_boundary import PLACES, WIDTH, SpanBoundary, borders
from distill.losses.terms import Term
from distill.models import families

TERM = Term(1.0, "span_boundary", "labels", "masked", losses.mlm)


@pytest.mark.parametrize("seed", range(5))
def test_borders_equal_a_search_token_by_token(seed: int) -> None:
    torch.manual_seed(seed)
    flags = torch.rand(6, 40) < 0.6
    flags[0] = True  # a span as long as its row, whose borders are its own tokens
    masked = flags.flatten().nonzero().squeeze(1)
    before, after, place = borders(masked, 40)
    for number, position in enumerate(masked.tolist()):
        row, column = divmod(position, 40)
        first = last = column
        while first > 0 and flags[row, first - 1]:
            first -= 1
        while last < 39 and flags[row, last + 1]:
            last += 1
        wanted = row * 40 + max(first - 1, 0), row * 40 + min(last + 1, 39), min(column - first, PLACES - 1)
        assert (int(before[number]), int(after[number]), int(place[number])) == wanted


def written_out(head: SpanBoundary, x: Tensor, before: int, after: int, place: int) -> Tensor:
    """Equations of section 3.2 for one token, from the weights of the head."""
    weights = dict(head.named_parameters())
    h = torch.cat([x[before], x[after], weights["places.weight"][place]])
    for linear, norm in (("layers.0", "layers.2"), ("layers.3", "layers.5")):
        h = weights[f"{linear}.weight"] @ h + weights[f"{linear}.bias"]
        h = h * (1 + torch.erf(h / 2**0.5)) / 2
        h = (h - h.mean()) / (h.var(unbiased=False) + 1e-5).sqrt()
        h = h * weights[f"{norm}.weight"] + weights[f"{norm}.bias"]
    return h


@pytest.fixture
def batch(tiny_batch: dict[str, Tensor]) -> dict[str, Tensor]:
    masked = torch.tensor([1, 2, 3, 5])
    real = tiny_batch["attention_mask"].flatten().nonzero().squeeze(1)
    return tiny_batch | {"masked": masked, "real": real, "labels": torch.tensor([11, 7, 30, 9])}


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_term_equals_the_formula(tiny_model: Any, batch: dict[str, Tensor], family: str) -> None:
    student = tiny_model(family, "MaskedLM", layers=2).double()
    torch.manual_seed(0)
    objective = Objective(student, {"mlm": Term(1.0, "logits", "labels", "masked", losses.mlm), "spans": TERM})
    head = objective.projections["spans"]
    assert isinstance(head, SpanBoundary)
    assert head.places.weight.shape == (20, 200) == (PLACES, WIDTH)
    out = student(**families.inputs(student, batch), output_hidden_states=True)
    x = out.hidden_states[-1].flatten(0, 1)
    made = torch.stack([written_out(head, x, *where) for where in ((0, 4, 0), (0, 4, 1), (0, 4, 2), (4, 6, 0))])
    wanted = F.cross_entropy(families.mlm_logits(student, made), batch["labels"], reduction="sum")
    plain = F.cross_entropy(out.logits.flatten(0, 1)[batch["masked"]], batch["labels"], reduction="sum")
    sums = objective(batch)
    torch.testing.assert_close(sums, torch.stack([plain, wanted]).float())
    assert objective.counts(batch).tolist() == [4, 4]
    sums[1].backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert next(student.parameters()).grad is not None
    assert not any("spans" in name for name in student.state_dict())


def test_a_task_has_no_masked_spans(tiny_model: Any, tiny_batch: dict[str, Tensor]) -> None:
    objective = Objective(tiny_model("bert", "SequenceClassification", layers=2), {"spans": TERM})
    with pytest.raises(ConfigError, match=r"terms\.spans\.features: got span_boundary; must be for masked language"):
        objective(tiny_batch)
