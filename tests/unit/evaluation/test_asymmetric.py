"""Queries of a student on the index of its teacher."""

from __future__ import annotations

import numpy as np

from distill.data.task_types import TASK_TYPES
from distill.data.task_types.retrieval import JUDGED, grades
from distill.evaluation.asymmetric import on_index

RETRIEVAL = TASK_TYPES["retrieval"]
KEY = ("judged", "validation")


def truth() -> np.ndarray:
    """Two queries and three documents; query 0 wants document 0, query 1 wants document 2."""
    rows = np.zeros(6, JUDGED)
    rows["group"], rows["document"] = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    rows["label"] = [1, 0, 0, 0, 0, 1]
    return rows


def outputs(queries: list[list[float]], documents: list[list[float]]) -> np.ndarray:
    return np.concatenate([np.repeat(queries, 3, axis=0), np.tile(documents, (2, 1))], axis=1).astype(np.float32)


DOCUMENTS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]


def test_queries_find_the_teachers_documents() -> None:
    """The student's own documents are in the wrong order; the teacher's are where its queries point."""
    teacher = outputs([[1.0, 0.1], [-1.0, 0.1]], DOCUMENTS)
    student = outputs([[1.0, 0.2], [-1.0, -0.2]], DOCUMENTS[::-1])
    mixed, labels = on_index({KEY: (student, truth())}, {KEY: (teacher, truth())}, {"judged": RETRIEVAL})[KEY]
    assert mixed[:, :2].tolist() == student[:, :2].tolist()
    assert mixed[:, 2:].tolist() == teacher[:, 2:].tolist()
    np.testing.assert_allclose(grades(mixed, labels)[:, 1], 1.0)
    assert (grades(student, labels)[:, 1] < 1).all()


def test_a_teacher_on_its_own_index_has_its_own_scores() -> None:
    teacher = outputs([[0.4, 0.9], [-1.0, 0.1]], DOCUMENTS)
    mixed, labels = on_index({KEY: (teacher, truth())}, {KEY: (teacher, truth())}, {"judged": RETRIEVAL})[KEY]
    np.testing.assert_array_equal(grades(mixed, labels), grades(teacher, labels))


def test_other_kinds_other_widths_and_missing_rows_have_none() -> None:
    one, wide = np.ones((6, 4), np.float32), np.ones((6, 8), np.float32)
    assert on_index({KEY: (one, truth())}, {KEY: (wide, truth())}, {"judged": RETRIEVAL}) == {}
    assert on_index({KEY: (one, truth())}, {}, {"judged": RETRIEVAL}) == {}
    for kind in ("embedding", "reranking", "classification"):
        assert on_index({KEY: (one, truth())}, {KEY: (one, truth())}, {"judged": TASK_TYPES[kind]}) == {}
