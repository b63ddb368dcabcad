"""The table of queries on the teacher's index, from results.json alone."""

from __future__ import annotations

from typing import Any

from distill.report.checked import validate
from distill.report.detail import tables
from distill.report.kind_tables import index_table
from tests.decoded import decoded

TEACHER, INT8 = 1, 8
"""Places of models in the invented results."""


def test_own_documents_stand_beside_the_teachers(results: dict[str, Any]) -> None:
    results["models"][TEACHER]["retained"] = None
    assert index_table(decoded(results)) is None
    results["models"][INT8]["scores"]["rte"] = {"ndcg_at_10": 80.0, "mrr_at_10": 70.0}
    results["models"][INT8]["teachers_index"] = {"rte": {"ndcg_at_10": 82.25, "mrr_at_10": 71.5}}
    assert validate(results) == []
    table = index_table(decoded(results))
    assert table is not None
    assert [(row[0], row[1], row[2].split()[0], *row[3:]) for row in table.rows] == [
        ("rte", "ndcg_at_10", "student", "80.0", "82.2"),
        ("rte", "mrr_at_10", "student", "70.0", "71.5"),
    ]
    assert "Queries on the teacher's index" in [each.title for each in tables(decoded(results))]
