"""A stage with `best_of`, from the command to the model that is stored."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import config
from distill.data import tasks
from distill.data.development_split import aside
from distill.deploy.export.proof import plain_logits
from distill.runtime.storage import atomic, run_folder
from tests import tiny

WORDS = sorted({word for sentence in tiny.SENTENCES for word in sentence.split()})
FILES = ["tasks.train=a.csv", "tasks.development=b.csv", "tasks.test=c.csv"]
FEW = ["limit=smoke", "limit.steps=8", *FILES, "tasks.metrics=[accuracy]"]


def write(path: Path, words: list[str], count: int, seed: int) -> None:
    """Rows of four random words, with the label 1 where the first word comes before the second."""
    drawn = [list(np.random.default_rng([seed, row]).choice(words, 4)) for row in range(count)]
    lines = [f"{' '.join(row)},{'yes' if row[0] < row[1] else 'no'}" for row in drawn]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


@pytest.mark.slow
def test_the_stored_model_scores_what_its_manifest_has(run: Any, tmp_path: Path) -> None:
    """Scored again by plain transformers. No token of the development rows is in a training row."""
    half = len(WORDS) // 2
    for name, words, count in (("a", WORDS[:half], 48), ("b", WORDS[half:], 24), ("c", WORDS, 24)):
        write(tmp_path / f"{name}.csv", words, count, seed=count)
    given = tiny.save(tmp_path / "teacher", "bert", "", length=130)
    learned = ["stages.finetune.best_of=3", "stages.finetune.optimizer.lr=0.03", "transfer=none"]
    pipeline = "pipeline=[finetune_teacher,finetune]"
    run(tmp_path, "task", f"teacher.name={given}", f"student.name={given}", *FEW, *learned, pipeline, "output=out")
    folder = tmp_path / "out" / "finetune" / "a"
    found = atomic.read_json(folder / run_folder.MANIFEST)["best"]
    assert found["step"] in (5, 7, 8)
    assert found["score"] >= found["score_at_end"]

    with contextlib.chdir(tmp_path):
        settings = config.load_config(["recipe=task", *FEW])
        data = tasks.load_tasks(settings.tasks, settings.limit, settings.seed).tasks["a"]
    ((_, rows),) = aside(data).items()
    assert len(rows) == 24
    logits = plain_logits(folder, [[text] for text in rows["text"]], settings.tasks.max_length)
    assert found["score"] == pytest.approx(100 * np.mean(logits.argmax(1) == np.asarray(rows["label"])))
