"""Records of the kinds of loss terms: what each compares, over which rows, and which features it needs.

`distill.objective` computes terms and `distill.check` validates their settings by these records. Importing this needs
no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """A kind of term: one value of the setting `features`.

    The rows that a term sums over are identified by the name of the tensor in a batch that has one entry per row.
    """

    name: str
    compares: str
    """Description of what is compared."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Setting `positions` -> rows on a corpus. Other values of `positions` are not allowed for this kind."""
    task_rows: str = "real"
    """Rows on a task."""
    own_tokens: str | None = None
    """Rows on a corpus where student and teacher have different tokenizers; None if that is not possible."""
    fields: tuple[str, ...] = ()
    """Fields of `features.Features` that it needs of each compared layer; empty for logits."""
    head: bool = False
    """Whether it needs the model's head, which is then trained."""
    layers: bool = False
    """Whether it can compare layers other than the last: `layers: uniform`, or pairs of layers."""
    projected: bool = False
    """Whether a linear map from the student's width to the teacher's is trained where the widths differ."""
    equal_heads: bool = False
    """Whether it compares head with head, so that both models must have the same number of heads."""
    splits_heads: bool = False
    """Whether it splits what it compares into a configurable number of heads, so that the models' own may differ."""

    @property
    def inside(self) -> bool:
        """Whether it compares features of layers, for which a single teacher must run along with the student."""
        return bool(self.fields)

    @property
    def by_head(self) -> bool:
        """Whether it has a row per head; losses are then averaged over heads."""
        return self.equal_heads or self.splits_heads


LOGITS = Kind(
    "logits",
    "logits, over the vocabulary on a corpus and over the classes on a task",
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
    "one pooled vector per text, as a sentence embedder computes it",
    rows={"all": "input_ids"},
    task_rows="input_ids",
    own_tokens="input_ids",
    fields=("hidden",),
    projected=True,
)
RELATIONS = Kind(
    "relations",
    "scaled dot products between tokens, of their queries, of their keys and of their values",
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
"""Values of the setting `features` of a term."""

GATES = Kind("gates", "nothing: the penalty of gates, one number per batch")
"""The term that gates add to the loss. It cannot be set."""


def choices() -> str:
    """The names of the kinds for a message: "a, b or c"."""
    *names, last = KINDS
    return f"{', '.join(names)} or {last}"
