"""A static student of an embedding task: the folder for model2vec is that of the trained student."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.deploy.export.static import FOLDER, static_vectors
from distill.runtime.storage import run_folder

SENTENCES = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))["SENTENCES"]
COUNT = 64
UNFINISHED = ["stages.export.quantized=null", "stages.export.evaluated=null"]
STAGES = ["pretrain", "finetune_teacher", "finetune", "export"]


@pytest.mark.slow
def test_the_exported_student_of_an_embedding_task_is_in_both_forms(run: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text1", "text2", "score"])
        for number in range(COUNT):
            first, second = random.choice(SENTENCES, 2)
            rows.writerow([f"{first} {number}", f"{second} {number * 7}", round(float(random.random()), 3)])
    few = ["limit=smoke", "limit.steps=2", "limit.documents=60", "output=out", "tasks.kind=embedding"]
    run(tmp_path, "static", "tasks.train=pairs.csv", *few, *UNFINISHED, f"pipeline=[{','.join(STAGES)}]")
    (folder,) = (path.parent for path in (tmp_path / "out" / "export").glob(f"*/{FOLDER}"))
    assert run_folder.finished(tmp_path / "out" / "finetune" / folder.name)
    texts = [*SENTENCES, "goats", "a word 12 % zyx"]
    found = static_vectors(folder / FOLDER, texts)
    assert np.ptp(found, axis=0).max() > 0
    from sentence_transformers import SentenceTransformer

    for path in (folder, folder / FOLDER):
        embedded = SentenceTransformer(str(path), device="cpu").encode(texts, show_progress_bar=False)
        np.testing.assert_allclose(embedded, found, atol=1e-5)
