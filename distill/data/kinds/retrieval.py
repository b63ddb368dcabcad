"""Retrieval: vectors of queries and of documents, whose cosines order the documents of a query.

Labels train by the other documents of the batch as negatives: Henderson et al. 2017, arXiv 1705.00652, section 4.4, the
MultipleNegativesRankingLoss of sentence-transformers. Deviations: documents that are labelled as not relevant are
negatives too, and other documents that are relevant for the same query, and copies of the own one, are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from distill.data.kinds.embedding import EMBEDDING, SCALE, halves
from distill.data.kinds.kind import MISSING, grouped


def scores(outputs: Any) -> Any:
    """[n, n] cosine, times `SCALE`, of each query with the documents of all rows."""
    queries, documents = halves(outputs)
    if isinstance(queries, np.ndarray):
        return SCALE * queries @ documents.T
    import torch

    with torch.autocast(queries.device.type, enabled=False):
        return SCALE * queries @ documents.T


def _loss_targets(targets: np.ndarray) -> np.ndarray:
    """The number in the batch of each row whose document is relevant: the column of its own document."""
    return np.where(targets > 0, np.arange(len(targets)), MISSING)  # NaN is not above 0


def no_negatives(queries: np.ndarray, documents: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """[n, n] whether the document of a row, a column here, is no negative for the query of a row: it is a copy of the
    row's own document, or relevant for the same query. False for the own document itself.

    queries, documents: [n] numbers, equal for equal texts; targets: [n] labels.
    """
    same = documents[:, None] == documents
    same |= (queries[:, None] == queries) & (targets > 0)
    np.fill_diagonal(same, False)
    return same


RETRIEVAL = replace(
    EMBEDDING,
    name="retrieval",
    summary="outputs a vector for each query and document",
    metrics=("ndcg_at_10", "mrr_at_10", "recall_at_10"),
    all_metrics=("ndcg_at_10", "mrr_at_10", "recall_at_10"),
    grouped=True,
    scaled=False,
    truth=grouped,
    label_rows=scores,
    loss_targets=_loss_targets,
)
