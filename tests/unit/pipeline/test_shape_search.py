"""The texts on which a search times the models that it prunes, and the teachers over which speedups are meant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from distill.compression.pruning.target import Search
from distill.compression.pruning.times import OwnBatches
from distill.config import Prune, load_config
from distill.config.plan import resolve
from distill.data.asked import Asked
from distill.deploy.export import untrained
from distill.inference import timing
from distill.inference.runners import Runner
from distill.inference.timing import TASK_ROWS
from distill.models import teacher
from distill.models.families.record import TEXTS
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import shape_search
from distill.runtime.storage import run_folder, structs
from tests import tiny

FLOAT = "target.scheme=fp32"


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`search(recipe, *overrides, teachers=(5,), student=5)`: that of a prune step, with tokenizers that make this
    number of tokens of every text. A model returns the shapes of the tokens that it gets."""

    def tokenized(rows: Any, tokenizer: int, longest: int) -> dict[str, np.ndarray]:
        ids = np.ones((len(rows), tokenizer), np.int64)
        return {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}

    def models(config: Any, forms: Any, **machine: Any) -> dict[Any, Runner]:
        return {
            form: Runner(form.name, form.backend, form.scheme, lambda b: np.ones(b["input_ids"].shape))
            for form in forms
        }

    def call(recipe: str, *overrides: str, teachers: tuple[int, ...] = (5,), student: int = 5) -> Search:
        settings = load_config([f"recipe={recipe}", FLOAT, *overrides])
        machine = SimpleNamespace(device=torch.device("cpu"), threads=1, precision="fp32", log=print)
        given = SimpleNamespace(teachers=[str(n) for n in teachers], tokenizers=[*teachers], tokenizer=teachers[0])
        given.student_tokenizer = student
        ctx: Any = SimpleNamespace(config=settings, plan=resolve(settings), machine=machine, given=given)
        ctx.folder, ctx.tasks = RunFolder(tmp_path), {"own": None}
        runtime: Any = SimpleNamespace(machine=machine, limit=settings.limit, longest=128)
        inputs = shape_search.search_inputs(ctx, ctx.plan.of(Prune)[0])
        return shape_search.search_of(inputs, runtime, tiny.config("bert"))

    monkeypatch.setattr(timing, "tokenized", tokenized)
    monkeypatch.setattr(untrained, "references_of", models)
    monkeypatch.setattr(teacher, "read_config", lambda folder: tiny.config("bert"))
    monkeypatch.setattr(shape_search, "_sample", lambda data: [Asked(TEXTS, (str(n),)) for n in range(TASK_ROWS)])
    return call


def lengths(batches: Any, key: str = "input_ids") -> set[int]:
    return {batch[key].shape[1] for batch in batches}


@pytest.mark.parametrize("load", ["batch", "single"])
@pytest.mark.parametrize("recipe", ["distil_prune_int8", "prune"])
def test_a_teacher_is_timed_on_the_tokens_of_its_own_tokenizer(recipe: str, load: str, search: Any) -> None:
    """Those of `recipe=distil_prune_int8` are of a student with a tokenizer of its own, from which the vocabulary stage
    takes tokens."""
    found = search(recipe, "student.tokenizer=folder", f"target.load={load}", student=9)
    (reference,) = found.references()
    own = recipe == "distil_prune_int8"
    assert lengths(found.times_of.batches) == {9 if own else 5}
    assert isinstance(reference, OwnBatches) == own
    assert ("inputs_of_teachers" in found.conditions) == own
    if own:
        assert lengths(reference.batches) == {5}
        assert len(reference.batches) == len(found.times_of.batches)
        assert reference.run(reference.batches[0]).shape == reference.batches[0]["input_ids"].shape


def test_tokenizers_that_make_as_many_tokens_have_the_same_batches(search: Any) -> None:
    found = search("distil_prune_int8", "student.tokenizer=folder", student=5)
    (reference,) = found.references()
    assert not isinstance(reference, OwnBatches)
    assert "inputs_of_teachers" not in found.conditions


def test_each_teacher_of_an_ensemble_has_its_own_tokens(search: Any) -> None:
    found = search("prune", teachers=(5, 7))
    (reference,) = found.references()
    assert lengths(found.times_of.batches) == lengths(reference.batches, "0.input_ids") == {5}
    assert lengths(reference.batches, "1.input_ids") == {7}
    ids = np.concatenate([batch["1.input_ids"].ravel() for batch in reference.batches])
    assert len({*ids.tolist()}) > 50, "random tokens"
    assert reference.run(reference.batches[0]).shape[1] == 5


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], {"torch fp32", "onnxruntime fp32", "onnxruntime int8"}),
        (["target.scheme=onnxruntime_static"], {"onnxruntime int8_static"}),
        (["budget.minutes=null"], {"torch fp32", "onnxruntime fp32", "onnxruntime int8", "onnxruntime int8_static"}),
    ],
)
def test_no_model_is_searched_in_a_form_in_which_the_teacher_loses_too_much(
    given: list[str], names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget. Before, the whole model was trained again, to be served in the form that had failed."""
    monkeypatch.setattr(shape_search, "detect_precision", lambda setting, device: "fp32")
    settings = load_config(["recipe=auto", "stages.quantize.schemes=[onnxruntime,onnxruntime_static]", *given])
    machine = SimpleNamespace(device=torch.device("cpu"), precision="fp32")
    ctx: Any = SimpleNamespace(config=settings, plan=resolve(settings), machine=machine, folder=RunFolder(tmp_path))
    failed = {"onnxruntime_static": "own: it loses 9.0 points, more than max_drop=2"}
    made = Quantized(schemes=["onnxruntime", "onnxruntime_static"], failed=failed, kept={}, development={})
    run_folder.claim(tmp_path)
    (tmp_path / "quantize_teacher").mkdir()
    structs.write(tmp_path / "quantize_teacher" / run_folder.MANIFEST, made)
    found = shape_search.forms_of(ctx, next(iter(ctx.plan.targets.values())))
    assert {form.name for form in found if form.backend != "openvino"} == names
    assert shape_search.unfit(ctx) == ([] if given else ["onnxruntime_static"])
