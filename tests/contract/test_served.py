"""Models of any size, in every form that a target may be about."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from distill.config import Prune, load_config
from distill.config.backends import BACKENDS
from distill.config.plan import resolve
from distill.config.schemes import SCHEMES
from distill.data.encode import Encoded
from distill.deploy.export import untrained
from distill.deploy.export.untrained import Form
from distill.inference.timing import TASK_ROWS
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import shape_search

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
FLOATS = [Form("torch", "fp32"), Form("torch", "bf16")]
ONNX = [Form("onnxruntime", "fp32"), Form("openvino", "fp32")]
EVERY = [*FLOATS, *ONNX, *(Form(scheme.backend, scheme.scheme, name) for name, scheme in SCHEMES.items())]
QUICK = {"openvino", "onnxruntime", None}


TOKENIZER = SimpleNamespace(pad_token_id=0, padding_side="right")


def context(*given: str, device: str = "cpu") -> Any:
    settings = load_config(["recipe=prune", *given])
    machine = SimpleNamespace(device=torch.device(device), threads=1, precision="bf16")
    teacher = SimpleNamespace(teachers=[""], tokenizer=TOKENIZER)
    return SimpleNamespace(
        config=settings,
        plan=resolve(settings),
        machine=machine,
        given=teacher,
        folder=RunFolder(Path()),
        tasks={"a": None},
    )


def batches(*given: str) -> list[Any]:
    """The batches that are timed for the prune step of settings."""
    ctx = context(*given)
    return shape_search.batches(shape_search.search_inputs(ctx, ctx.plan.of(Prune)[0]), 128)


def param(form: Form) -> Any:
    packages = SCHEMES[form.key].packages if form.key else (form.backend,)
    absent = any(find_spec(package) is None for package in packages)
    marks = [pytest.mark.skipif(absent, reason="an extra, absent")]
    return pytest.param(
        form, marks=marks + [pytest.mark.slow] * (form.key not in QUICK), id=form.key or f"{form.backend}-{form.scheme}"
    )


@pytest.mark.parametrize("form", [param(form) for form in EVERY])
def test_a_model_is_built_in_every_form(form: Form) -> None:
    config = TINY["config"]("bert", hidden_size=32, num_attention_heads=2, num_labels=3)
    runner = untrained.runner("a", form, config, device="cpu", threads=1)
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    batch = {"input_ids": np.full((2, 7), 900), "attention_mask": mask, "token_type_ids": np.zeros((2, 7), np.int64)}
    found = runner.run(batch)
    runtime = BACKENDS[form.backend].runtime
    assert (runner.name, runner.backend, runner.scheme, found.shape) == ("a", runtime, form.scheme, (2, 3))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("given", "device", "form"),
    [
        (["stages.quantize.schemes=[bitsandbytes,onnxruntime,openvino]"], "cpu", Form("openvino", "int8", "openvino")),
        (["stages.quantize.schemes=[bitsandbytes,onnxruntime]"], "cpu", Form("onnxruntime", "int8", "onnxruntime")),
        (["stages.quantize.schemes=[onnxruntime]"], "cuda", Form("torch", "bf16")),
        (["stages.quantize.schemes=[bitsandbytes]"], "cpu", Form("torch", "fp32")),
        (["stages.quantize.schemes=[bitsandbytes]", "target.scheme=bitsandbytes"], "cpu", EVERY[4]),
        (["target.scheme=bf16"], "cpu", Form("torch", "bf16")),
        (["pipeline=[finetune_teacher,prune]"], "cpu", Form("torch", "fp32")),
        (["target.speedup=null", "target.size_mib=20"], "cpu", Form("torch", "fp32")),
    ],
)
def test_the_form_that_will_serve(given: list[str], device: str, form: Form) -> None:
    ctx = context(*given, device=device)
    assert shape_search.form_of(ctx.config.target, ctx.plan, ctx.machine) == form


def test_speedups_of_a_quantized_form_are_over_the_fastest_in_float32() -> None:
    found = untrained.references(EVERY[-1])
    assert {form.scheme for form in found} == {"fp32"}
    assert {"torch", "onnxruntime"} <= {form.backend for form in found} <= {"torch", "onnxruntime", "openvino"}
    assert untrained.references(FLOATS[1]) == [FLOATS[1]]


def test_speedups_are_over_all_teachers_of_an_ensemble(tmp_path: Path) -> None:
    student, *teachers = (TINY["config"]("bert", num_hidden_layers=layers, num_labels=3) for layers in (1, 2, 3))
    search = untrained.search_in(
        *(FLOATS[0], student, [], lambda runners: {}, lambda: teachers),
        **{"device": "cpu", "threads": 1, "folder": tmp_path, "log": print},
    )
    for runner, form in zip(search.references(), untrained.references(FLOATS[0]), strict=True):
        ids = np.ones((2, 5), np.int64)
        found = runner.run({"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids})
        assert (runner.name, found.shape) == (f"{form.backend} {form.scheme}", (2, 2 * 3))


@pytest.mark.parametrize(("target", "most"), [("target.speedup=2", 8), ("target.latency_ms=3", 1)])
def test_inputs_are_as_long_as_the_texts_of_the_tasks(target: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([3, 5, 9])
    encoded = Encoded(np.ones(lengths.sum(), np.int64), np.concatenate([[0], lengths.cumsum()]), None, None)
    monkeypatch.setattr(shape_search, "_sample", lambda data, tokenizer, longest: (1, encoded))
    found = batches("target.speedup=null", target)
    rows = np.concatenate([batch["attention_mask"].sum(1) for batch in found])
    assert len(rows) == TASK_ROWS
    assert {*rows} <= {3, 5, 9}
    assert max(len(batch["input_ids"]) for batch in found) == most
    assert all(batch["input_ids"].max() < untrained.VOCABULARY for batch in found)


def test_inputs_of_a_given_shape() -> None:
    (batch,) = batches("target.shape=[2,16]")
    assert batch["input_ids"].shape == (2, 16)
