"""Kinds of terms of the training loss: what each compares, over which rows, and what it needs. Without torch.

`distill.objective` computes them, `distill.check` refuses what they cannot do; both ask these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One value of the setting `features` of a term. Rows are named by the tensor of a batch with an entry for each."""

    name: str
    compares: str
    """What is compared, in words."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Setting `positions` -> rows on a corpus. A setting that is not here has no meaning for this kind."""
    task_rows: str = "real"
    """Rows on a task."""
    own_tokens: str | None = None
    """Rows on a corpus where student and teacher have tokenizers of their own; None where that rules it out."""
    fields: tuple[str, ...] = ()
    """Fields of `features.Features` that it needs of each layer it compares; none for what a model outputs."""
    head: bool = False
    """Whether the head of the model runs for it, and learns."""
    layers: bool = False
    """Whether it can compare other layers than the last: `layers: uniform`, or pairs of layers."""
    projected: bool = False
    """Whether a linear map from the student's width to the teacher's is trained where these differ."""
    equal_heads: bool = False
    """Whether it compares heads one by one, so that both models must have the same number of them."""
    splits_heads: bool = False
    """Whether it splits what it compares into a number of heads that can be set, so that the models' own may differ."""

    @property
    def inside(self) -> bool:
        """Whether it compares layers, so that a teacher must run beside the student: one, which reads the same text."""
        return bool(self.fields)

    @property
    def by_head(self) -> bool:
        """Whether its rows are of single heads; their losses are averaged over heads."""
        return self.equal_heads or self.splits_heads


LOGITS = Kind(
    "logits",
    "logits: of the vocabulary on a corpus, of the classes on a task",
    rows={"masked": "masked", "all": "real"},
    task_rows="labels",
    head=True,
)
HIDDEN = Kind(
    "hidden",
    "hidden states",
    rows={"masked": "masked", "all": "real"},
    own_tokens="aligned",
    fields=("hidden",),
    layers=True,
    projected=True,
)
POOLED = Kind(
    "pooled",
    "one vector a text, as a sentence embedder computes it",
    rows={"all": "input_ids"},
    task_rows="input_ids",
    own_tokens="input_ids",
    fields=("hidden",),
    projected=True,
)
RELATIONS = Kind(
    "relations",
    "scaled dot products of tokens among queries, among keys and among values",
    rows={"all": "real"},
    fields=("queries", "keys", "values"),
    layers=True,
    splits_heads=True,
)
SCORES = Kind(
    "scores",
    "attention scores before the softmax",
    rows={"all": "real"},
    fields=("scores",),
    layers=True,
    equal_heads=True,
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in (LOGITS, HIDDEN, POOLED, RELATIONS, SCORES)}
"""What the setting `features` of a term can be."""

GATES = Kind("gates", "nothing: the cost of gates, one number a batch")
"""The term that gates add to a loss. It is no setting."""


def choices() -> str:
    """The names of the kinds, as a sentence lists them."""
    *names, last = KINDS
    return f"{', '.join(names)} or {last}"
