"""What stages hand over is read back as it was written, or refused in one line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import fields, replace

from distill.compression.pruning.search import Choice, Shape, Speed
from distill.config import Train
from distill.config.plan import Step
from distill.deploy.export.artifacts import Proof
from distill.deploy.export.quantized import Files
from distill.errors import ConfigError
from distill.evaluation.results import Statistics
from distill.evaluation.similarity import Similarity
from distill.evaluation.tried import Tried, Try
from distill.pipeline import artefacts as made
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import STAGES
from distill.report.read import read_one
from distill.runtime.storage import run_folder, structs
from distill.runtime.storage.structs import Stored
from distill.training import Row

COMMITTED = read_one(Path(__file__).parents[3] / "docs" / "results" / "docstrings-distilbert" / "results.json")
RECORD = made.Record(
    key=made.Key(inputs={"adapt": "1"}, given={"tasks": "2"}, versions={"torch": None}, packages="3", settings="4"),
    cost=made.Cost(seconds=1.5, peak_memory_mib=None),
    reused=True,
)
LOG = [Row(step=2, loss=0.5, terms={"mlm": 0.5}, skipped=1, tokens_per_second=9.0)]
SPEED = Speed(predicted_ms=2.0, predicted_speedup=3.0, conditions={"threads": 1, "key": None, "inputs": [[3]]})
CHOICE = Choice(shape=Shape(2, 16, 32), tried=7, speed=SPEED)

STEPS: dict[str, list[made.Artefact]] = {
    "train": [
        made.Trained(skipped="nothing to do", record=RECORD),
        made.Trained(
            steps=4,
            tokens=9,
            seconds=0.0,
            tokens_per_second=0.0,
            members=["1"],
            tasks=["a"],
            log=LOG,
            weights={"a": [0.25, 0.75]},
            choice=CHOICE,
            expected={"a": {"layers": 1.5}},
            corpus=made.EncodedCorpus(sequences=1, tokens=9),
        ),
    ],
    "prune": [
        made.Pruned(
            shape=CHOICE.shape,
            seconds=1.0,
            tasks={"a": made.Cut(layers=[0, 2], hidden=[1])},
            largest_difference={"a": 0.0},
            tried=7,
            speed=SPEED,
        )
    ],
    "vocabulary": [made.SmallVocabulary(tokens_before=9, tokens=3, share_of_texts=0.5, largest_difference={"a": 0.0})],
    "quantize": [
        made.Quantized(
            schemes=["onnxruntime"],
            failed={"onnxruntime": "a: too slow"},
            kept={"a": {"openvino": ["head"]}},
            development={"a": {"float32": 50.0}},
        )
    ],
    "export": [
        made.Exported(
            proofs={"a": {"torch": Proof(agreement=None, rows=2, largest_difference=0.0, from_float=0.5)}},
            largest_difference=0.0,
            similarity=Similarity(texts=2, cosine=None, spearman={"sts": [80.0, 70.0]}),
        )
    ],
    "evaluate": [
        made.Evaluated(
            environment={"gpu": None},
            command="distill",
            version="0",
            models=COMMITTED.models,
            coverage=COMMITTED.coverage,
            statistics=Statistics(chance=COMMITTED.chance),
            load="batch",
        )
    ],
}
"""Kind of a step -> what it may hand over, with a value in every field."""
PARTS: list[Stored] = [
    made.TaskModel(
        steps=0,
        tokens=0,
        seconds=0.0,
        log=LOG,
        best=made.Moment(step=1, score=2.0, score_at_end=1.0),
        transfer=made.TransferSet(own=1, sources={"edits": 2}, held_out=3, used=2),
        expected={"layers": 1.5},
        tried=Tried(task="a", chance=50.0, tries=[Try(lr=1e-4, seed=0, score=None, kept=True, failed="loss: got nan")]),
    ),
    made.Fold(tokens=1, seconds=2.0),
    made.Logits(teachers="4"),
    Files(failed={}, kept={"openvino": ["head"]}, development={}, onnx_difference=0.0),
    CHOICE,
]
EVERY = [*(each for of_kind in STEPS.values() for each in of_kind), *PARTS]


def test_every_kind_of_step_hands_something_over() -> None:
    assert STEPS.keys() == STAGES.keys()
    for value in (*(of_kind[-1] for of_kind in STEPS.values()), *PARTS):
        unset = {name for name in value.__struct_fields__ if getattr(value, name) is None} - {"record", "skipped"}
        assert not unset, "a field is not tested"


@pytest.mark.parametrize("value", EVERY, ids=lambda value: type(value).__name__)
def test_what_is_written_is_read(value: Stored, tmp_path: Path) -> None:
    structs.write(tmp_path / "x.json", value)
    assert structs.read(tmp_path / "x.json", type(value)) == value


def refused(file: Path, kind: type[Stored], content: Any) -> str:
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError) as error:
        structs.read(file, kind)
    (line,) = error.value.messages
    end = f"; must be {kind.__name__} as this version of distill writes it; set output=NEW_FOLDER"
    assert line.startswith(f"{file}: got ")
    assert line.endswith(end)
    return line.removeprefix(f"{file}: got ").removesuffix(end)


@pytest.mark.parametrize("value", EVERY, ids=lambda value: type(value).__name__)
def test_a_missing_an_unknown_and_another_field_are_refused_in_one_line(value: Stored, tmp_path: Path) -> None:
    whole, kind, file = structs.plain(value), type(value), tmp_path / "x.json"
    for field in fields(kind):
        rest = {name: part for name, part in whole.items() if name != field.encode_name}
        if field.required:
            assert refused(file, kind, rest) == f"Object missing required field `{field.encode_name}`"
        assert refused(file, kind, rest | {field.encode_name: True}).startswith("Expected ")
    assert refused(file, kind, whole | {"renamed": 1}) == "Object contains unknown field `renamed`"
    assert "line 1 column" in refused(file, kind, json.dumps(whole)[:-1])


def test_parts_of_parts_are_as_strict(tmp_path: Path) -> None:
    whole: dict[str, Any] = structs.plain(STEPS["prune"][0])
    whole["tasks"]["a"]["renamed"] = 1
    said = refused(tmp_path / "x.json", made.Pruned, whole)
    assert said == "Object contains unknown field `renamed` - at `$.tasks[...]`"
    del whole["tasks"]["a"]["renamed"], whole["shape"]["ffn"]
    assert refused(tmp_path / "x.json", made.Pruned, whole) == "Object missing required field `ffn` - at `$.shape`"


def test_numbers_of_numpy_are_written_as_plain_ones_and_nothing_else_passes(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    structs.write(file, made.Fold(tokens=np.int64(3), seconds=np.float32(0.5)))  # type: ignore[arg-type]
    assert structs.read(file, made.Fold) == made.Fold(tokens=3, seconds=0.5)
    before = file.read_bytes()
    for seconds in (math.nan, math.inf, "1", None, np.zeros(2)):
        with pytest.raises((ValueError, TypeError)):
            structs.write(file, made.Fold(tokens=3, seconds=seconds))  # type: ignore[arg-type]
    assert file.read_bytes() == before


def test_a_step_is_finished_by_its_record(tmp_path: Path) -> None:
    folder, step = RunFolder(tmp_path), Step("finetune", Train())
    assert folder.record(step) is None
    trained = made.Trained(steps=3, seconds=2.0)
    structs.write(folder.of(step) / run_folder.MANIFEST, trained)
    assert folder.record(step) is None
    folder.complete(step, trained, RECORD)
    record = folder.record(step)
    assert record is not None
    assert record.files
    assert replace(record, files=RECORD.files) == RECORD
    assert folder.result(step, made.Trained) == replace(trained, record=record)
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(folder.of(step)))}.*got Object contains unknown field"):
        folder.result(step, made.Pruned)
