"""Embedding: a vector for each text, so that the cosine of two vectors is the similarity of their texts.

Rows are pairs of texts, which are encoded separately: the outputs of a row are the vectors of both, side by side. A
label is a similarity; rows without one are distilled alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distill.data.task_types.layout import Layout, Making
from distill.data.task_types.regression import REGRESSION
from distill.data.task_types.soft_vectors import unit_vectors
from distill.models.families.record import ABSENT, VECTORS

SCALE = 20.0
"""Factor of cosines where they are logits: 1 / 0.05, as in MultipleNegativesRankingLoss of sentence-transformers. A
term between the logits of student and teacher is divided by it, so that its gradients to cosines do not grow with it
and hide the gradients of the term on vectors (docs/explain/embedder-terms.md has the ablation)."""

_SMALLEST = 1e-12


def unit(vectors: Any) -> Any:
    """Vectors [n, D], of torch or numpy, divided by their lengths."""
    return vectors / (vectors * vectors).sum(axis=-1, keepdims=True).clip(_SMALLEST) ** 0.5


def halves(outputs: Any) -> tuple[Any, Any]:
    """Outputs [n, 2 D], of torch or numpy, -> unit vectors [n, D] of the first texts and of the second, as float32."""
    outputs = outputs if isinstance(outputs, np.ndarray) else outputs.float()
    width = outputs.shape[1] // 2
    return unit(outputs[:, :width]), unit(outputs[:, width:])


def cosines(outputs: Any) -> Any:
    """[n] cosine of the vectors of each pair."""
    first, second = halves(outputs)
    return (first * second).sum(axis=-1)


def similarities(outputs: Any) -> Any:
    """[n, 2 n] cosine, times `SCALE`, of each first text with all first texts and then with all second texts; `ABSENT`
    with itself.

    The softmax of a row is how similar the other texts of the batch are to a text: the similarity distribution of Fang
    et al. 2021, arXiv 2101.04731, equation 4, with the batch as the queue.
    """
    first, second = halves(outputs)
    if isinstance(first, np.ndarray):
        inside = np.where(np.eye(len(first), dtype=np.bool_), ABSENT, SCALE * first @ first.T)
        return np.concatenate([inside, SCALE * first @ second.T], axis=1)
    return _in_torch(first, second)


def similarity_rows(columns: Sequence[Any]) -> Any:
    """`similarities` of any number of text columns, each the vectors [n, D] of torch: [n, columns x n]."""
    return _in_torch(*(unit(column.float()) for column in columns))


def _in_torch(first: Any, *others: Any) -> Any:
    import torch

    # Products of rounded vectors would differ from cosines by more than the models' cosines do.
    with torch.autocast(first.device.type, enabled=False):
        itself = torch.eye(len(first), dtype=torch.bool, device=first.device)
        inside = (SCALE * first @ first.T).masked_fill(itself, ABSENT)
        return torch.cat([inside, *(SCALE * first @ other.T for other in others)], dim=1)


def concatenated(outputs: Sequence[np.ndarray], weights: Sequence[float] | None = None) -> np.ndarray:
    """Outputs [n, 2 D] of several embedders as one, where D is the sum of the D_i of their outputs [n, 2 D_i], float32.

    A text's vector is the concatenation of its unit vectors, each times the square root of its weight. It has length 1,
    and the dot product of two of them is the weighted mean of the cosines of all embedders. Weights are normalized to
    sum to 1; None is equal weights. A single element is returned unchanged.
    """
    if len(outputs) == 1:
        return outputs[0]
    share = np.ones(len(outputs)) if weights is None else np.asarray(weights, np.float64)
    ends = np.cumsum([each.shape[1] // 2 for each in outputs])
    result = np.empty((len(outputs[0]), 2, ends[-1]), np.float32)
    for each, factor, end in zip(outputs, (share / share.sum()) ** 0.5, ends, strict=True):
        for side, vectors in enumerate(halves(each)):
            result[:, side, end - vectors.shape[1] : end] = factor * vectors
    return result.reshape(len(result), -1)


def answer(outputs: np.ndarray, labels: Sequence[str], threshold: float, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The vector of each text, of outputs [n, D]."""
    return [{"vector": vector} for vector in outputs.tolist()]


def difference(outputs: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[n] one minus the cosine of the vectors of two models."""
    return 1 - (unit(outputs.astype(np.float64)) * unit(other.astype(np.float64))).sum(axis=1)


EMBEDDING = replace(
    REGRESSION,
    name="embedding",
    summary="outputs a vector for each text",
    problem=None,
    metrics=("spearman", "pearson"),
    all_metrics=("spearman", "pearson"),
    rows=similarities,
    label_rows=lambda outputs: cosines(outputs)[:, None],
    decode=lambda outputs, labels, threshold: cosines(outputs),
    answer=answer,
    difference=difference,
    measure="absolute, of the cosines of the two texts",
    brief=lambda answer: f"{len(answer['vector'])} numbers",
    settings=("range", "prompts", "soft_label"),
    soft=unit_vectors,
    soft_fits=None,
    soft_column=None,
    averaged=False,
    mixed=concatenated,
    teacher_weight=1 / SCALE,
    scaled=True,
    layout=Layout(
        VECTORS,
        columns=(2,),
        asked=1,
        sequences=lambda parts: [(text,) for text in parts],
        several="texts",
        width=None,
        making=Making(("files", "tasks", "corpus", "pairs", "edits"), any_texts=True),
    ),
    pipeline="sentence-similarity",
)
