"""Retrieval: vectors of queries and of documents, whose cosines order all documents of the rows for each query.

Labels train with the other documents of the batch as negatives: Henderson et al. 2017, arXiv 1705.00652, section 4.4,
the MultipleNegativesRankingLoss of sentence-transformers. Deviations: documents that are labelled as not relevant are
negatives too. Copies of a query's own document, and other documents that are relevant for the same query, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distill.data.task_types import ranks
from distill.data.task_types.embedding import EMBEDDING, SCALE, halves
from distill.data.task_types.reranking import accepts, read_scores
from distill.data.task_types.task_type import MISSING, Texts, group_numbers

JUDGED = np.dtype([("label", np.float32), ("group", np.int64), ("document", np.int64)])
"""The dtype in which metrics take rows: a label, and the numbers of the query and the document."""

_AT_ONCE = 256
"""Rows whose cosines with all documents are in memory at once."""


def scores(outputs: Any) -> Any:
    """[n, n] cosine, times `SCALE`, of each query with the documents of all rows."""
    queries, documents = halves(outputs)
    if isinstance(queries, np.ndarray):
        return SCALE * queries @ documents.T
    import torch

    with torch.autocast(queries.device.type, enabled=False):
        return SCALE * queries @ documents.T


def _loss_targets(targets: np.ndarray) -> np.ndarray:
    """[n] class of each row: the column of its own document if that is relevant, else `MISSING`."""
    return np.where(targets > 0, np.arange(len(targets)), MISSING)  # NaN is not above 0


def relevant_pairs(queries: np.ndarray, documents: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """[m] a number, ascending, for each pair of a query and a document that is relevant for it.

    queries, documents: [n] numbers of those of each row, equal for equal texts; targets: [n] labels.
    """
    return np.unique(_pairs(queries, documents)[targets > 0])


def _pairs(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    return (queries << 32) + documents


def no_negatives(
    queries: np.ndarray, documents: np.ndarray, relevant: np.ndarray, made: np.ndarray | bool = False
) -> np.ndarray:
    """[n, n] whether document j (column) must not be a negative for query i (row).

    It must not if it is a copy of the query's own document, or relevant for the same query, also by a row of another
    batch, or only in a transfer set: it may be an edited copy, or relevant for a query that has no row with it. The
    diagonal, each query's own document, is False.

    queries, documents: [n] numbers, equal for equal texts; relevant: of all rows, as from `relevant_pairs`; made: [n]
    whether a document is in no row of the task itself.
    """
    pairs = _pairs(queries[:, None], documents)
    same = (documents[:, None] == documents) | made
    same |= np.append(relevant, -1)[np.searchsorted(relevant, pairs)] == pairs
    np.fill_diagonal(same, False)
    return same


def _truth(targets: np.ndarray, texts: Texts, labels: Sequence[str]) -> np.ndarray:
    """[n] of `JUDGED`: rows with the same query share the query's number, and rows with the same document the
    document's."""
    result = np.empty(len(targets), JUDGED)
    result["label"], (result["group"], result["document"]) = targets, map(group_numbers, texts)
    return result


def grades(outputs: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """[n, 3] nDCG@10, reciprocal rank@10 and recall@10 of each row's query, 0 to 1; NaN without a relevant document.

    The documents of all rows are ranked for each query by their cosines with it. Where cosines are equal, values are
    means over all orders of these documents. A document is relevant if its label is above 0, which is then its gain
    (Järvelin and Kekäläinen 2002), and not relevant for the queries with which it has no row.

    Args:
        outputs: [n, 2 D] vectors of queries and documents.
        truth: [n] of `JUDGED`.
    """
    queries, documents = halves(outputs)
    first, number = np.unique(truth["document"], return_index=True)[1], truth["document"]
    documents = documents[first]  # one vector for each document, in the order of the numbers
    gains, judged = _relevant(truth)
    before, tied = np.zeros((2, len(judged)), np.int64)
    for start in range(0, len(judged), _AT_ONCE):
        part = judged[start : start + _AT_ONCE]
        cosines = queries[part] @ documents.T
        own = cosines[np.arange(len(part)), number[part]][:, None]
        before[start : start + len(part)] = (cosines > own).sum(axis=1)
        tied[start : start + len(part)] = (cosines == own).sum(axis=1)
    group = truth["group"][judged]
    count = int(truth["group"].max(initial=-1)) + 1
    ideal = np.zeros(len(judged), np.int64)
    by_gain = np.lexsort((-gains, group))
    ideal[by_gain] = np.arange(len(judged)) - np.searchsorted(group[by_gain], group[by_gain])
    total = np.bincount(group, minlength=count)
    best = np.bincount(group, gains * ranks.discount(ideal, np.ones_like(ideal)), count)
    reached = np.bincount(group, gains * ranks.discount(before, tied), count)
    recalled = np.bincount(group, ranks.found(before, tied), count)
    first_found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_found, group, before)
    leading = np.flatnonzero(before == first_found[group])
    tied_first = np.bincount(group[leading], minlength=count)[group[leading]]
    reciprocal = np.zeros(count)
    reciprocal[group[leading]] = ranks.reciprocal(before[leading], tied[leading], tied_first)
    with np.errstate(invalid="ignore"):
        values = np.stack([reached / best, reciprocal, recalled / total], axis=1)
    values[total == 0] = np.nan
    return values[truth["group"]]


def _relevant(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gains and rows of the relevant documents of each query, each of them once, with its largest label."""
    order = np.lexsort((-truth["label"], truth["document"], truth["group"]))
    pairs = truth[["group", "document"]][order]
    once = order[np.concatenate([np.ones(min(1, len(pairs)), np.bool_), pairs[1:] != pairs[:-1]])]
    rows = once[truth["label"][once] > 0]
    return truth["label"][rows].astype(np.float64), rows


RETRIEVAL = replace(
    EMBEDDING,
    name="retrieval",
    summary="outputs a vector for each query and document",
    metrics=("ndcg_at_10", "mrr_at_10", "recall_at_10"),
    all_metrics=("ndcg_at_10", "mrr_at_10", "recall_at_10"),
    settings=("prompts", "soft_label"),
    accepts=accepts,
    read=read_scores,
    grouped=True,
    scaled=False,
    truth=_truth,
    decode=lambda outputs, labels, threshold: outputs,
    grade=grades,
    label_rows=scores,
    loss_targets=_loss_targets,
)
