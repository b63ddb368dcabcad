"""What the card of an exported embedder says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from scipy.stats import spearmanr

from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.deploy.export.embedder import Embedder, vectors
from distill.models import teacher
from distill.models.families.vectors import Vectors
from distill.pipeline.stages.embedder import _is_rated, _similarity
from tests import tiny

LABELS = np.random.default_rng(0).normal(size=len(tiny.SENTENCES))


def pairs(kind: str, prompts: tuple[str, ...] = ()) -> TaskData:
    following = [*tiny.SENTENCES[1:], tiny.SENTENCES[0]]
    rows = Dataset.from_dict({"a": tiny.SENTENCES, "b": following, "label": LABELS.tolist()})
    task = Task("own", TASK_TYPES[kind], ("a", "b"), (), ("spearman",), prompts=prompts)
    return TaskData(task, rows, {}, {"validation": rows})


@pytest.mark.parametrize(
    ("kind", "prompts"), [("regression", ()), ("embedding", ()), ("embedding", ("the old ", "a small "))]
)
def test_pairs_with_a_similarity_are_scored(kind: str, prompts: tuple[str, ...], tmp_path: Path) -> None:
    """Of a file of such pairs, the kind is embedding where the teacher is an embedder."""
    tiny.save(tmp_path, "bert", "MaskedLM", std=0.3)
    embedder = Embedder(tmp_path, "mean", 32, Vectors(prompts={"text": "the "}, default_prompt="text"))
    data, tokenizer = pairs(kind, prompts), teacher.load_tokenizer(tmp_path)
    assert _is_rated(data)
    rows = data.reported["validation"]
    first, second = (
        vectors(embedder, tokenizer, [prompt + text for text in rows[column]])
        for prompt, column in zip(prompts or ("the ", "the "), "ab", strict=True)
    )
    expected = spearmanr((first * second).sum(1), LABELS).statistic
    assert _similarity(data, embedder, tokenizer) == pytest.approx(100 * expected)


def test_other_tasks_are_not() -> None:
    assert not _is_rated(pairs("retrieval"))
    assert not _is_rated(pairs("reranking"))
    alone = pairs("regression")
    assert not _is_rated(replace(alone, task=replace(alone.task, columns=("a",))))
