"""Queries of a student on the index of its teacher."""

from __future__ import annotations

import numpy as np
from datasets import Dataset

from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.retrieval import JUDGED, grades
from distill.data.tasks import TaskData
from distill.evaluation import retained
from distill.evaluation.asymmetric import on_index
from distill.evaluation.measured import Measured, Outputs
from distill.evaluation.model_results import teachers_index
from distill.inference.timing import Timed
from distill.inference.variants import REFERENCE

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


def measured(kind: str, labels: np.ndarray) -> Measured:
    """A teacher whose documents are in another order than its student's."""
    task = Task("judged", TASK_TYPES[kind], ("query", "document"), (), TASK_TYPES[kind].metrics)
    data = TaskData(task, Dataset.from_dict({"query": ["a"], "document": ["b"], "label": [1.0]}), {}, {})
    queries = [[1.0, 0.1], [-1.0, 0.1]]
    every: dict[str, Outputs] = {
        REFERENCE: {KEY: (outputs(queries, DOCUMENTS), labels)},
        "student": {KEY: (outputs(queries, DOCUMENTS[::-1]), labels)},
        "timed": {},
    }
    return Measured({"judged": data}, [], every, Timed({}, {}, 5, {}, "none"), {}, False, "batch", {})


def test_the_index_is_scored_with_the_metrics_of_the_task_in_percent() -> None:
    of_retrieval = measured("retrieval", truth())
    graded = {KEY: (RETRIEVAL.grade(of_retrieval.outputs["student"][KEY][0], truth()), truth())}
    found, own = teachers_index("student", of_retrieval), retained.scores(graded, of_retrieval.names)
    assert {task: each.keys() for task, each in found.items()} == {"judged": own["judged"].keys()}
    assert found["judged"]["mrr_at_10"] == 100.0 > own["judged"]["mrr_at_10"]
    assert teachers_index(REFERENCE, of_retrieval) == {}
    assert teachers_index("timed", of_retrieval) == {}
    assert teachers_index("student", measured("embedding", np.linspace(0, 1, 6, dtype=np.float32))) == {}
