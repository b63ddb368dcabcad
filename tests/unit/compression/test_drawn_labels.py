"""Labels for rows of embedders that have none, where a model is measured before it is pruned."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from distill.compression.pruning import sensitivity
from distill.compression.pruning.select_kept import mean_loss
from distill.compression.pruning.sensitivity import Subject, row_loss
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.models import teacher
from tests import tiny


def test_drawn_labels_of_queries_are_documents_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny.save(tmp_path, "bert", "", std=0.3)
    texts = [f"{tiny.SENTENCES[n % 8]} {n}" for n in range(64)]
    rows = Dataset.from_dict({"a": texts, "b": texts, "label": np.full(64, np.nan, np.float32)})
    data = TaskData(Task("own", TASK_TYPES["retrieval"], ("a", "b"), (), ()), rows, {}, {})
    model = load_for(data.task, folder)
    subject = Subject("own", model, teacher.load_tokenizer(folder), data, folder, 24, 0)
    parts = subject.sample(32)
    drawn = torch.cat([part["labels"] for part in parts])
    assert drawn.dtype == torch.int64
    assert len(drawn) == 32
    assert all(((part["labels"] >= 0) & (part["labels"] < len(part["labels"]))).all() for part in parts)
    assert torch.equal(drawn, torch.cat([part["labels"] for part in subject.sample(32)]))
    assert np.isfinite(mean_loss(model, parts, partial(row_loss, data.task.kind)))
    # Vectors of which each query's equals that of one document, elsewhere in the batch.
    unit, order = torch.eye(8), torch.randperm(8, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(sensitivity, "outputs_of", lambda *_: torch.cat([unit, unit[order]], dim=1))
    assert torch.equal(sensitivity.drawn_labels(subject, {}, torch.Generator()), order.argsort())
