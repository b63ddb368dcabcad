"""Whole runs on soft labels of words, choices and spans, with a teacher for the rows without one. That a run needs none
if every row has one is in test_own_runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distill.runtime.storage import atomic, run_folder
from tests import tiny

COUNT = 64
TAGS = ("O", "B-PER", "I-PER")
KINDS = ("token_classification", "multiple_choice", "question_answering")
SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "target.speedup=1.05",
    "target.shape=[1,16]", "stages.prune.dimensions=[layers]", "tasks.soft_label=soft",
    "pipeline=[finetune_teacher,prune,recover]",
)  # fmt: skip


def row(kind: str, number: int) -> dict[str, Any]:
    words = [*tiny.SENTENCES[number % 8].split(), f"day{number}"]
    if kind == "token_classification":
        tags = [TAGS[number % 2], *["O"] * (len(words) - 1)]
        return {"tokens": words, "ner_tags": tags, "soft": [{tag: 0.75, "I-PER": 0.25} for tag in tags]}
    if kind == "multiple_choice":
        choices = words[: 2 + number % 3]
        shares = [0.75, 0.25, *[0.0] * (len(choices) - 2)]
        return {"question": f"what {number}", "choices": choices, "answer": "A", "soft": shares}
    context, end = " ".join(words), len(words[0])
    soft = [{"start": 0, "end": end, "score": 0.875}, {"start": None, "end": None, "score": 0.125}]
    return {"question": f"what {number}", "context": context, "answers": [words[0]], "soft": soft}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_student_learns_from_soft_labels(
    kind: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.pipeline.train_steps import teacher_logits

    asked, whole = list[str](), teacher_logits.teacher_logits
    monkeypatch.setattr(teacher_logits, "teacher_logits", lambda *a: asked.append(a[1].task.name) or whole(*a))
    file = tmp_path / "rows.jsonl"
    rows = [row(kind, number) for number in range(COUNT)]
    rows = [each | {"soft": None} if number % 4 == 3 else each for number, each in enumerate(rows)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    # With a transfer set too, whose rows have no soft label.
    run(tmp_path, "prune", *SMALL, f"tasks.train={file}", f"tasks.kind={kind}", "output=out")
    manifest = atomic.read_json(tmp_path / "out" / "recover" / "rows" / run_folder.MANIFEST)
    assert 0 < manifest["log"][-1]["terms"]["soft_targets"] < 20
    assert asked == ["rows"]
