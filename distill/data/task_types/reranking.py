"""Reranking: a score for a query and a document, by which the documents of a query are ordered.

The model is a cross-encoder with one output, as sentence-transformers trains it. The raw output, a logit, is distilled
by squared error; its sigmoid is the probability that the document is relevant, which labels train.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distill.data import arrow as pa
from distill.data.task_types.multi_label import MULTI_LABEL
from distill.data.task_types.numerals import read_numbers, verdicts_as_numbers
from distill.data.task_types.regression import REGRESSION
from distill.data.task_types.task_type import MISSING, Given, Stated, grouped


def _loss_targets(targets: np.ndarray) -> np.ndarray:
    """1 for a document with a score above 0, else 0."""
    relevant = np.where(np.isnan(targets), MISSING, targets > 0)
    return relevant.astype(np.int64)


def accepts(data_type: pa.DataType) -> bool:
    """Whether a column of this type may hold scores of documents: numbers, or true and false."""
    return pa.types.is_boolean(data_type) or REGRESSION.accepts(data_type)


def read_scores(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """As `read_numbers`, with 1 and 0 in place of true and false.

    Of judgements, -1 is a usual grade for documents that are worse than not relevant. It never stands for no label.
    """
    verdicts = {split: verdicts_as_numbers(column) for split, column in columns.items()}
    return read_numbers(verdicts, replace(stated, ranged=True))


RERANKING = replace(
    REGRESSION,
    name="reranking",
    summary="scores a document for a query",
    metrics=("ndcg_at_10", "mrr_at_10"),
    all_metrics=("ndcg_at_10", "mrr_at_10", "map"),
    beside=("ndcg_at_10", "mrr_at_10", "map"),
    accepts=accepts,
    read=read_scores,
    grouped=True,
    layout=replace(REGRESSION.layout, columns=(2,)),
    truth=grouped,
    label_rows=MULTI_LABEL.rows,  # the logit of one label: is the document relevant?
    loss_targets=_loss_targets,
    pipeline="text-ranking",
)
