"""A data format, a kind of task and a kind of stage are added from outside of the package, in one file each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hydra.core.config_store import ConfigStore

import distill
from distill import config
from distill.cli.compare import models
from distill.cli.compare.comparison import compare
from distill.config import Limit, Stage, Tasks
from distill.config.plan import Step
from distill.data import formats
from distill.data.task_types import TASK_TYPES, Columns
from distill.data.tasks import load_tasks
from distill.deploy.serve import Model
from distill.pipeline import stages
from distill.pipeline.artefacts import Artefact
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.runtime.storage import structs
from tests import tiny

TEXTS = [f"{first} {second}" for first in tiny.SENTENCES for second in tiny.SENTENCES]


def in_blocks(file: formats.Text) -> Iterator[pa.RecordBatch]:
    """Rows of the form `label: text`."""
    rows = [line.rstrip("\n").partition(": ") for line in file.stream if line.strip()]
    yield pa.record_batch({"label": [row[0] for row in rows], "text": [row[2] for row in rows]})


def test_a_data_format_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(formats.TEXT, ".blocks", in_blocks)
    file = tmp_path / "mine.blocks"
    file.write_text("".join(f"{'ab'[number % 2]}: {text}\n" for number, text in enumerate(TEXTS)))
    data = load_tasks(Tasks(train=str(file)), Limit(), 0).tasks["mine"]
    assert (data.task.labels, data.task.columns) == (("a", "b"), ("text",))
    assert {*data.train["text"]} < {*TEXTS}


@dataclass
class Stamp(Stage):
    """Writes how many models a stage has."""

    writes_models = False
    kind: str = "stamp"
    start: str = ""
    word: str = "seen"


class Stamped(Artefact, frozen=True, kw_only=True):
    models: int
    word: str


def inputs(ctx: Context, step: Step) -> Checkpoints:
    return ctx.models(step.start)


def stamp(models: Checkpoints, settings: Stamp, runtime: Runtime) -> Stamped:
    runtime.machine.log(f"{models.name} is stamped")
    return Stamped(models=len(models.folders) - 1, word=settings.word)


@pytest.mark.slow
def test_a_kind_of_task_and_a_kind_of_stage_of_ones_own(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Cautious classification outputs the first label unless another one has more than 60%. Its layout puts a question
    before each text, in training and where a user asks the exported model."""
    question = "Is it so?"

    def prepare(rows: pa.Table, columns: Columns, where: Any) -> pa.Table:
        (text,), (label,) = columns.text, columns.label
        asked = [f"{question} {each}" for each in rows[text].to_pylist()]
        return pa.table({text: pa.array(asked), label: rows[label]})

    def cautious(outputs: np.ndarray, labels: Any, threshold: float) -> np.ndarray:
        shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        scores = shifted / shifted.sum(axis=1, keepdims=True)
        return np.where(scores.max(axis=1) > 0.6, scores.argmax(axis=1), 0)

    plain = TASK_TYPES["classification"]
    layout = replace(plain.layout, columns=(1,), divide=lambda row: (f"{question} {''.join(row)}",))
    kind = replace(plain, name="cautious", decode=cautious, prepare=prepare, layout=layout)
    monkeypatch.setitem(TASK_TYPES, kind.name, kind)
    monkeypatch.setitem(config.STAGES, "stamp", Stamp)
    monkeypatch.setitem(stages.STAGES, "stamp", stages.Stage(inputs, stamp))
    repo = ConfigStore.instance().repo  # what is put into a copy is gone after the test
    monkeypatch.setattr(ConfigStore.instance(), "repo", {**repo, "stage": {**repo["stage"]}})
    config.register()
    ConfigStore.instance().store(group="stage", name="stamp", node=Stamp)
    file = tmp_path / "mine.jsonl"
    rows = ({"text": text, "label": "abc"[number % 3]} for number, text in enumerate(TEXTS))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    results = run(
        tmp_path,
        "distilbert",
        *("limit=smoke", "limit.documents=60", "limit.steps=3", "limit.repeats=1", "corpus.max_length=32"),
        f"tasks.train={file}",
        *("tasks.kind=cautious", "tasks.max_length=32", "stages.evaluate.shapes=[[1,16]]"),
        "+stage@stages.stamp=stamp",
        "stages.stamp.start=finetune",
        "pipeline=[adapt,pretrain,finetune_teacher,finetune,stamp,evaluate,export]",
        "stages.evaluate.baseline=null",
        "stages.evaluate.quantized=null",
        "stages.export.quantized=null",
        "output=run",
        onnx=False,
    )
    made = structs.read(tmp_path / "run" / "stamp" / "manifest.json", Stamped)
    assert (made.models, made.word) == (1, "seen")
    assert made.record is not None
    assert list(made.record.key.inputs) == ["finetune"]
    assert [stage["kind"] for stage in results["stages"]][-3:] == ["stamp", "evaluate", "export"]
    assert results["models"][0]["scores"]["mine"].keys() == {*kind.metrics}

    model = distill.load(tmp_path / "run" / "export" / "mine")
    assert isinstance(model, Model)
    assert model.kind is kind
    as_texts = replace(model, kind=plain).predict([f"{question} {text}" for text in TEXTS[:4]])
    assert model.predict(TEXTS[:4]) == as_texts
    monkeypatch.setattr(models, "ROUNDS", 2)
    monkeypatch.setattr(models, "TIMED_ROWS", 4)
    compared = compare(model.folder, model.folder, str(file))
    assert (compared["kind"], compared["labelled_rows"]) == ("cautious", len(TEXTS))
    assert compared["agreement"]["percent"] == 100.0
    lengths = model.tokenizer([f"{question} {text}" for text in TEXTS])["input_ids"]
    assert compared["lengths"][-1]["to"] == max(map(len, lengths))
