"""The vocabulary stage in a run: its tokenizer reaches every stage after it, and no stage before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from distill import config
from distill.data import tasks
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.deploy.export.proof import plain_logits
from distill.models import teacher
from distill.pipeline import validation
from distill.pipeline.stages import vocabulary
from distill.runtime.storage import atomic, run_folder
from tests import scored, tiny

TASK = ["limit=smoke", "limit.steps=1", "tasks.names=[order]", "output=out", "stages.evaluate.shapes=[[1,16]]"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta"])  # test_recipes.py has a BERT
def test_the_smaller_vocabulary_is_read_by_all_that_comes_of_it(name: str, run: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    given = tiny.save(tmp_path / "teacher", name, "", length=130)
    pipeline = "pipeline=[finetune_teacher,vocabulary,recover,recover_baseline,evaluate]"
    more = ["stages.evaluate.quantized=null", "limit.repeats=1", pipeline]
    found = run(tmp_path, "vocabulary", "teacher=hub", f"teacher.name={given}", *TASK, *more, onnx=False)
    root = tmp_path / "out"
    manifest = atomic.read_json(root / "vocabulary" / run_folder.MANIFEST)
    before, after = manifest["tokens_before"], manifest["tokens"]
    assert after < before
    assert manifest["share_of_texts"] == 1
    for stage, size in (("finetune_teacher", before), ("vocabulary", after), ("recover", after)):
        tokenizer = AutoTokenizer.from_pretrained(root / stage / "order")
        model = AutoModelForSequenceClassification.from_pretrained(root / stage / "order")
        assert len(tokenizer) == size <= model.config.vocab_size
        assert (model.config.vocab_size == size) == (
            stage != "finetune_teacher"
        )  # the tiny teachers have rows to spare
    sizes = {m["role"]: m["parameters"] for m in found["models"]}
    assert sizes["student"] == sizes["baseline"] < sizes["teacher"]
    # What was scored is what plain transformers says by the tokenizer that was cut.
    settings = config.load_config(["recipe=vocabulary", *TASK])
    data = tasks.load_tasks(settings.tasks, settings.limit, settings.seed).tasks["order"]
    ((split, rows),) = data.reported.items()
    texts = [[row[column] for column in data.task.columns] for row in rows]
    said = scored.logits(root, "order", "student torch fp32", split)
    np.testing.assert_allclose(said, plain_logits(root / "recover" / "order", texts, 128), atol=1e-3)
    (note,) = (note for note in found["notes"] if note.startswith("The vocabulary has"))
    assert note.startswith(
        f"The vocabulary has {after:,} of its original {before:,} tokens. They cover 100.00% of the token"
    )


@pytest.mark.slow
def test_a_bound_on_the_tokens_is_kept(run: Any, tmp_path: Path) -> None:
    given = tiny.save(tmp_path / "teacher", "bert", "", length=130)
    few = ["stages.vocabulary.tokens=5", "pipeline=[finetune_teacher,vocabulary]"]
    run(tmp_path, "vocabulary", "teacher=hub", f"teacher.name={given}", *TASK, *few)
    manifest = atomic.read_json(tmp_path / "out" / "vocabulary" / run_folder.MANIFEST)
    whole = teacher.load_tokenizer(given)
    # Five, and what any text can be spelt with.
    spelling = {token for token in whole.get_vocab() if len(token.removeprefix("##")) == 1}
    assert manifest["tokens"] <= 5 + len(spelling | set(whole.all_special_tokens))
    assert 0 < manifest["share_of_texts"] < 1


def test_tokens_of_prompts_are_counted() -> None:
    task = Task("t", TASK_TYPES["embedding"], ("text", "text2"), (), ("spearman",), prompts=("query: ", ""))
    data = TaskData(task, Dataset.from_dict({"text": ["a cat"], "text2": ["a dog"]}), {}, {})
    assert list(vocabulary._texts({"t": data})) == ["query: a cat", "a dog"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["stages.vocabulary.texts=[]"], "stages.vocabulary.texts: got []; must contain at least one of tasks, corpus"),
        (["stages.vocabulary.texts=[web]"], "stages.vocabulary.texts: got web; must be tasks or corpus; "),
        (["stages.vocabulary.min_count=0"], "stages.vocabulary.min_count: got 0; must be >= 1; "),
        (
            ["+term@stages.recover.terms.hidden=hidden"],
            "stages.recover.terms.hidden.features: got hidden; must be logits on tasks where the student has a ",
        ),
    ],
)
def test_settings_that_a_vocabulary_cannot_have(given: list[str], line: str) -> None:
    found = validation.settings(config.load_config(["recipe=vocabulary", *given]), "vocabulary")
    assert any(problem.startswith(line) for problem in found), found
