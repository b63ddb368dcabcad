"""Scoring: rows side by side have the logits of rows alone, and each model answers each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from distill.compression.quantization.quality_limits import source_of
from distill.config import Limit, Quantize, Train
from distill.config.plan import Step
from distill.data.development_split import CHOICE_ROWS, aside
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.deploy.export import quantized as exported
from distill.inference import runners
from distill.inference.variants import Variant
from distill.models import teacher
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import quantize
from distill.pipeline.stages.load_variants import Loader, Models
from distill.pipeline.stages.predictions import predictions, score_share, scoring
from distill.runtime.storage import run_folder

Make = Callable[..., Path]
SCHEME = "onnxruntime"
OWN = ("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))


def rows(count: int, first: int) -> Dataset:
    texts = [" ".join("abcdefgh"[(first + i * k) % 8] for k in range(1, 3 + i % 9)) for i in range(count)]
    return Dataset.from_dict({"text": texts, "label": [i % 2 for i in range(count)]})


@pytest.fixture
def loader(classifier: Make, export_once: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """Of a student, which a quantize step quantized with limits, and its float and quantized variants."""
    monkeypatch.setattr(exported, "export_onnx", export_once)
    folder = classifier("bert")
    one = SimpleNamespace(num_processes=1, process_index=0)
    machine: Any = SimpleNamespace(
        device=torch.device("cpu"), threads=2, shared_threads=1, main=True, log=lambda text: None, accelerator=one
    )
    task = Task(*OWN)
    tasks = {"own": TaskData(task, rows(20, 0), {"development": rows(30, 1)}, {"test": rows(40, 2)})}
    run_folder.claim(tmp_path / "run")
    runtime = Runtime(machine, tmp_path / "run", 0, Limit(), 64)
    student, step = Step("recover", Train()), Step("quantize", Quantize(schemes=[SCHEME], max_drop=100.0))
    models = Checkpoints("recover", {"own": [folder]}, {"own": [1.0]}, [teacher.load_tokenizer(folder)])
    inputs = quantize.QuantizeInputs("quantize", models, tasks, one_encoder=False)
    made = quantize.run(inputs, step.settings, runtime)
    assert made.failed == {}
    checkpoints = {student: models, step: Checkpoints("quantize", {"own": [tmp_path / "run/quantize/own"]}, {}, [])}
    compared = Models(student, 1, [], checkpoints, {step: made}, frozenset(), shared=False, columns={}, window=None)
    plain = Variant("student", "torch", "fp32", student)
    int8 = Variant("student", SCHEME, "int8", student, step, file="model_int8.onnx", key=SCHEME, row_by_row=True)
    return Loader("evaluate", compared, tasks, [plain, int8], runtime)


def scored(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, *, process: int = 0, of: int = 1, main: bool = True
) -> tuple[dict[Any, np.ndarray], Counter[str]]:
    """(variant, split) -> logits, of the main process; and how many rows each variant ran."""
    ran, load = Counter[str](), runners.load

    def counting(name: str, path: Path, **settings: Any) -> runners.Runner:
        runner = load(name, path, **settings)

        def run(batch: runners.Batch) -> np.ndarray:
            ran[name] += len(batch["input_ids"])
            return runner.run(batch)

        return runners.Runner(name, runner.backend, runner.scheme, run)

    data, failed = loader.tasks["own"], dict[str, str]()
    tokenizers = loader.tokenizers(loader.variants[0])
    with monkeypatch.context() as patched:
        patched.setattr(runners, "load", counting)
        patched.setattr(loader.runtime.machine, "accelerator", SimpleNamespace(num_processes=of, process_index=process))
        of_task = scoring(loader, tokenizers, data, data.reported | data.development)
        score_share(loader, [of_task], failed)
        every = predictions(loader, of_task, failed) if main else ()
        logits = {(name, split): outputs for name, split, outputs, _ in every}
    assert failed == {}
    return logits, ran


def test_development_rows_that_decided_on_a_quantization_are_not_run_again(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_stored, few = scored(loader, monkeypatch)
    for file in (loader.runtime.folder / "quantize/own").glob(".development-*"):
        file.unlink()
    for file in (loader.folder / "own").iterdir():
        file.unlink()
    without, all_rows = scored(loader, monkeypatch)
    names = [variant.name for variant in loader.variants]
    assert few == dict.fromkeys(names, 40)
    assert all_rows == dict.fromkeys(names, 70)
    assert with_stored.keys() == without.keys()
    assert all(np.array_equal(with_stored[key], without[key]) for key in without)
    assert scored(loader, monkeypatch)[1] == {}


def test_a_teacher_that_a_quantize_step_scored_is_not_run_again_on_those_rows(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget. Before, each form of it was. What reads windows outputs something else than the scored model."""
    whole = replace(loader, variants=[replace(variant, role="teacher") for variant in loader.variants])
    found, ran = scored(whole, monkeypatch)
    assert set(ran.values()) == {40}
    assert {split for _, split in found} == {"development", "test"}
    windows = replace(whole, name="windows", models=replace(whole.models, window=32))
    assert set(scored(windows, monkeypatch)[1].values()) == {70}


def test_logits_of_more_rows_than_decide_are_not_taken(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version stored those of all development rows, of which a report compares some."""
    stored = Loader.development

    def longer(self: Loader, variant: Variant, task: str) -> dict[str, np.ndarray]:
        return {split: np.concatenate([each, each[:1]]) for split, each in stored(self, variant, task).items()}

    monkeypatch.setattr(Loader, "development", longer)
    assert set(scored(loader, monkeypatch)[1].values()) == {70}


def test_a_quantization_is_decided_on_the_rows_that_a_report_compares(classifier: Make) -> None:
    """Before, a budget could stop by the score on all development rows, while the report chose by that on some."""
    tokenizer, task = teacher.load_tokenizer(classifier("bert")), Task(*OWN)
    many = rows(CHOICE_ROWS + 500, 1)
    data = TaskData(task, rows(20, 0), {"development": many}, {"test": rows(4, 2)})
    source = source_of(Path("unused"), tokenizer, data, 8, 64, 0)
    (compared,) = aside(data).values()
    assert len(source.development["development"]) == len(compared) == CHOICE_ROWS
    assert [*source.data.development["development"]["text"]] == [*compared["text"]]
    alone = TaskData(task, rows(20, 0), {"validation": rows(30, 1)}, {"validation": rows(30, 1)})
    assert len(source_of(Path("unused"), tokenizer, alone, 8, 64, 0).development["validation"]) == 30


def test_other_threads_score_the_development_rows_themselves(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    loader.runtime.machine.__dict__["threads"] = 1
    assert set(scored(loader, monkeypatch)[1].values()) == {70}


def test_each_of_two_processes_scores_some_of_the_variants(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the main process has the logits of both, without a row of its own."""
    alone, _ = scored(loader, monkeypatch)
    for file in (loader.folder / "own").iterdir():
        file.unlink()
    parts = [scored(loader, monkeypatch, process=number, of=2, main=False)[1] for number in (1, 0)]
    assert [len(part) for part in parts] == [1, 1]
    assert {*parts[0], *parts[1]} == {variant.name for variant in loader.variants}
    found, ran = scored(loader, monkeypatch, of=2)
    assert not ran
    assert found.keys() == alone.keys()
    for key, logits in found.items():
        np.testing.assert_allclose(logits, alone[key], rtol=1e-5, atol=1e-6)


def test_what_fails_in_a_share_is_tried_again_by_the_main_process(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = loader.parts

    def failing(self: Loader, variant: Variant, task: str, *, many: bool = False) -> list[runners.Runner]:
        if self.threads is not None:
            raise RuntimeError("no memory")
        return parts(variant, task, many=many)

    monkeypatch.setattr(Loader, "parts", failing)
    assert scored(loader, monkeypatch, process=1, of=2, main=False) == ({}, {})
    _, ran = scored(loader, monkeypatch, of=2)
    assert len(ran) == 2


def test_rows_side_by_side_have_the_logits_of_rows_alone(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    int8 = loader.variants[1]
    found, _ = scored(loader, monkeypatch)
    (alone,) = loader.parts(int8, "own")
    encoded = loader.tasks["own"].encoded(rows(40, 2), loader.tokenizers(int8)[0], 64)
    for row in range(40):
        ids = encoded.ids[encoded.offsets[row] : encoded.offsets[row + 1]][None].astype(np.int64)
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        assert np.array_equal(alone.run(batch)[0], found[int8.name, "test"][row])
