"""Records of the kinds of training-loss terms: what each compares, over which rows, and what it needs. Without torch.

`distill.losses.objective`, which computes the terms, uses these records, and so does
`distill.pipeline.validation`, which refuses invalid ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distill.runtime import outside


@dataclass(frozen=True)
class FeatureKind:
    """A value of the setting `features` of a term. Rows are given as the batch tensor that has one entry per row."""

    name: str
    compares: str
    """Description of what is compared."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Setting `positions` -> rows on a corpus, where other values of that setting are refused for this kind. None for
    kinds that are compared on tasks alone."""
    task_rows: str = "real"
    """Rows on a task. Empty for kinds that are compared on a corpus alone."""
    targets: str = "labels"
    """Batch tensor with the labels of its rows on a corpus."""
    own_tokens: str | None = None
    """Rows on a corpus if student and teacher have different tokenizers. None if this kind then cannot be compared."""
    fields: tuple[str, ...] = ()
    """Fields of `hooks.Features` that it needs of each compared layer; empty for logits."""
    labels: bool = False
    """Whether it can be compared with labels in place of a teacher."""
    taught: bool = True
    """Whether it can be compared with a teacher."""
    segments: bool = False
    """Whether its labels are of two segments, of which texts of a corpus are then made."""
    head: bool = False
    """Whether it needs the output of the model's head, which is then trained."""
    layers: bool = False
    """Whether it can compare layers other than the last: `layers: uniform`, or pairs of layers."""
    embeddings: bool = False
    """Whether it can compare the embeddings too, as layer -1."""
    projected: bool = False
    """Whether a linear map from the student's width to the teacher's is trained if these differ."""
    equal_heads: bool = False
    """Whether it compares head with head, so that both models must have the same number of heads."""
    splits_heads: bool = False
    """Whether it splits features into a set number of heads, so that the models' numbers of heads may differ."""

    @property
    def inside(self) -> bool:
        """Whether it compares layers. A single teacher then runs on the same texts in each training step."""
        return bool(self.fields)

    @property
    def paired(self) -> bool:
        """Whether its rows are pairs of rows of the same group, so that a batch must have whole groups."""
        return self.task_rows == "pairs"

    @property
    def by_head(self) -> bool:
        """Whether its rows belong to single heads. Their losses are averaged over heads."""
        return self.equal_heads or self.splits_heads


LOGITS = FeatureKind(
    "logits",
    "logits: of the vocabulary on a corpus, of the classes on a task",
    rows={"masked": "masked", "all": "real"},
    task_rows="labels",
    labels=True,
    head=True,
)
REPLACED = FeatureKind(
    "replaced",
    "of each token on a corpus, the log-odds that a generator replaced it",
    rows={"all": "real"},
    task_rows="",
    targets="replaced",
    labels=True,
    head=True,
)
MARGINS = FeatureKind(
    "margins",
    "on a reranking task, differences of the outputs for two documents of the same query",
    task_rows="pairs",
    head=True,
)
SPAN_BOUNDARY = FeatureKind(
    "span_boundary",
    "on a corpus, logits of masked tokens that are predicted from the tokens before and after their span",
    rows={"masked": "masked"},
    task_rows="",
    labels=True,
    taught=False,
    head=True,
)
HIDDEN = FeatureKind(
    "hidden",
    "hidden states",
    rows={"masked": "masked", "all": "real"},
    own_tokens="aligned",
    fields=("hidden",),
    layers=True,
    embeddings=True,
    projected=True,
)
POOLED = FeatureKind(
    "pooled",
    "one vector per text, as a sentence embedder computes it",
    rows={"all": "input_ids"},
    task_rows="input_ids",
    own_tokens="input_ids",
    fields=("hidden",),
    projected=True,
)
RELATIONS = FeatureKind(
    "relations",
    "scaled dot products of tokens among queries, among keys and among values",
    rows={"all": "real"},
    fields=("queries", "keys", "values"),
    layers=True,
    splits_heads=True,
)
FIRST = FeatureKind(
    "first",
    "hidden states of each text's first token",
    rows={"all": "input_ids"},
    task_rows="input_ids",
    own_tokens="input_ids",
    fields=("hidden",),
    layers=True,
    projected=True,
)
QUERIES, KEYS, VALUES = (
    FeatureKind(
        f"{name}_relations",
        f"scaled dot products of tokens among {fields}",
        rows={"all": "real"},
        fields=(fields,),
        layers=True,
        splits_heads=True,
    )
    for name, fields in (("query", "queries"), ("key", "keys"), ("value", "values"))
)
SCORES = FeatureKind(
    "scores",
    "attention scores before the softmax",
    rows={"all": "real"},
    fields=("scores",),
    layers=True,
    equal_heads=True,
)

NEXT_SENTENCE, SENTENCE_ORDER = (
    FeatureKind(name, compares, rows={"all": "pair_labels"}, task_rows="", labels=True, taught=False, segments=True)
    for name, compares in (
        ("next_sentence", "on a corpus, whether the second of two segments is of another document"),
        ("sentence_order", "on a corpus, whether two consecutive segments are swapped"),
    )
)

VECTORS = FeatureKind(
    "vectors",
    "what an embedder outputs for a pair of texts: both vectors, side by side; on tasks only",
    task_rows="labels",
    head=True,
)

FEATURE_KINDS: dict[str, FeatureKind] = {
    kind.name: kind
    for kind in (
        *(LOGITS, REPLACED, SPAN_BOUNDARY, MARGINS, VECTORS, HIDDEN, FIRST, POOLED, RELATIONS, QUERIES, KEYS, VALUES),
        *(SCORES, NEXT_SENTENCE, SENTENCE_ORDER),
    )
}
"""Values of the setting `features` of a term."""
outside.registry("kinds of features", FEATURE_KINDS)


def kinds_of(terms: Mapping[str, Any]) -> dict[str, FeatureKind]:
    """Label -> kind of the terms with a weight, without those of a kind that does not exist, which a rule refuses."""
    found = {label: FEATURE_KINDS.get(term.features) for label, term in terms.items() if term.weight > 0}
    return {label: kind for label, kind in found.items() if kind is not None}


BATCH_LOSSES: dict[str, tuple[FeatureKind, ...]] = {
    "distill.losses.intra_class": (LOGITS,),
    "distill.losses.distances": (FIRST, POOLED),
    "distill.losses.angles": (FIRST, POOLED),
}
"""Loss that compares all rows of a step with each other, as a setting names it -> the kinds whose rows it compares."""

GATES = FeatureKind("gates", "nothing: the cost of gates, one number per batch")
"""The term that gates add to the loss. It cannot be chosen by a setting."""
