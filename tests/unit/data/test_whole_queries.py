"""Fewer rows of rankings are all documents of fewer queries: a part of them would be another ranking."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from distill import config
from distill.data.development_split import CHOICE_ROWS, aside
from distill.data.splits import of_queries
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData, load_tasks
from distill.evaluation.metrics import METRICS

DOCUMENTS = 8


def rows(queries: int, first: int = 0) -> list[dict[str, Any]]:
    """The first document of each query, then the second of each, and so on. The first one is relevant."""
    return [
        {"query": f"where is place {query}", "document": f"note {number} on place {query}", "relevance": number == 0}
        for number in range(DOCUMENTS)
        for query in range(first, first + queries)
    ]


def test_as_many_queries_as_fit() -> None:
    numbers = np.array([0, 1, 0, 2, 1, 2, 2])
    assert of_queries(numbers, np.array([2, 0, 1]), 6).tolist() == [0, 2, 3, 5, 6]
    assert of_queries(numbers, np.array([2, 0, 1]), 4).tolist() == [3, 5, 6]
    assert of_queries(numbers, np.array([2, 0, 1]), 2).tolist() == [3, 5]  # of one that is too long


def test_choices_are_made_on_whole_queries() -> None:
    """Rows at even distances had few documents of each query, so that every model ranked most of them perfectly."""
    of = TASK_TYPES["reranking"]
    many = Dataset.from_list([row | {"label": float(row["relevance"])} for row in rows(2 * CHOICE_ROWS // DOCUMENTS)])
    task = Task("places", of, ("query", "document"), (), of.metrics)
    data = TaskData(task, many.select(range(9)), {"development": many}, {"test": many.select(range(9))})
    (chosen,) = aside(data).values()
    assert {*Counter(chosen["query"]).values()} == {DOCUMENTS}
    assert len(chosen) == CHOICE_ROWS
    assert [chosen[place]["query"] for place in (0, -1)] == [many[place]["query"] for place in (0, -1)]
    wrong = -data.truth(chosen)["label"]  # the relevant document is the last one, after seven equal ones
    assert METRICS["ndcg_at_10"](wrong, data.truth(chosen)) == pytest.approx(1 / np.log2(1 + DOCUMENTS))


def test_a_limit_leaves_whole_queries_for_scores(tmp_path: Path) -> None:
    for name, first in (("train", 0), ("held", 100)):
        lines = "".join(json.dumps(row) + "\n" for row in rows(60, first))
        (tmp_path / f"{name}.jsonl").write_text(lines)
    tasks = config.Tasks(train=str(tmp_path / "train.jsonl"), validation=str(tmp_path / "held.jsonl"), kind="reranking")
    loaded = load_tasks(tasks, config.Limit(examples=50, validation=3 * DOCUMENTS + 2), 0)
    (data,) = loaded.tasks.values()
    for split in (*data.reported.values(), *data.development.values()):
        assert 0 < len(split) <= 3 * DOCUMENTS
        assert {*Counter(split["query"]).values()} == {DOCUMENTS}
    assert len(next(iter(data.reported.values()))) == 3 * DOCUMENTS
    assert len(data.train) == 50
    limited = {row["split"]: row["limited"] for row in loaded.coverage}
    assert limited["train"]
    assert limited["validation"]
