"""What an embedder is given before it learns vectors, so that it can stand beside the model that made them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset

from distill.data.soft_labels import soft_column
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.task_type import SOFT
from distill.data.tasks import TaskData
from distill.models import teacher
from distill.models.families import vectors
from distill.models.families.embedding import EncoderForVectors
from distill.pipeline.train_steps.learned_vectors import to_learned_form
from tests import tiny


def embedder(folder: Path, *, normalized: bool) -> Path:
    tiny.save(folder, "bert", "", std=0.3)
    model = EncoderForVectors.from_pretrained(folder)
    model.vectors = vectors.Vectors(normalized=normalized)
    model.save_pretrained(folder)
    return folder


def pairs(soft: np.ndarray | None = None) -> TaskData:
    columns = {"a": pa.array(tiny.SENTENCES), "b": pa.array(tiny.SENTENCES[::-1])}
    stored = {} if soft is None else {SOFT: soft_column(soft)}
    task = Task("t", TASK_TYPES["embedding"], ("a", "b"), (), ("spearman",))
    return TaskData(task, Dataset(pa.table(columns | stored), fingerprint="train"), {}, {})


@pytest.mark.parametrize(("of_teacher", "stored"), [(True, False), (False, False), (False, True)])
def test_a_student_has_vectors_of_length_1_if_those_that_it_learns_have(
    of_teacher: bool, stored: bool, tmp_path: Path
) -> None:
    """In an index that compares dot products, its documents would else have other scores than the teacher's."""
    from sentence_transformers import SentenceTransformer

    given = embedder(tmp_path / "given", normalized=of_teacher)
    folder = embedder(tmp_path / "student", normalized=False)
    soft = np.random.default_rng(0).normal(size=(len(tiny.SENTENCES), 2 * 24)).astype(np.float32) if stored else None
    model, inputs = EncoderForVectors.from_pretrained(folder), SimpleNamespace(given=str(given), own_width=False)
    arguments: Any = (model, inputs, pairs(soft))
    to_learned_form(*arguments)
    model.save_pretrained(tmp_path / "made")
    teacher.load_tokenizer(folder).save_pretrained(tmp_path / "made")
    found = SentenceTransformer(str(tmp_path / "made"), device="cpu").encode(tiny.SENTENCES, show_progress_bar=False)
    assert found.shape == (len(tiny.SENTENCES), 24 if stored else 16)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5) == (of_teacher or stored)
