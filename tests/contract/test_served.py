"""Models of any size, in every form that a target may be about."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from distill.config import Prune, Target, load_config
from distill.config.backends import BACKENDS
from distill.config.plan import Compared, resolve
from distill.config.schemes import FLOAT, FLOAT_ONNX, SCHEMES, Form, file_of
from distill.data.asked import Asked
from distill.deploy.export import untrained
from distill.inference import runners, variants
from distill.inference.timing import TASK_ROWS
from distill.models.families.record import TEXTS
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import shape_search
from tests import tiny

FLOATS = [Form("torch", "fp32"), Form("torch", "bf16")]
ONNX = [Form("onnxruntime", "fp32"), Form("openvino", "fp32")]
EVERY = [*FLOATS, *ONNX, *(Form(scheme.backend, scheme.scheme, name) for name, scheme in SCHEMES.items())]
TOGETHER = [FLOATS[0], ONNX[0], *(form for form in EVERY if form.key == "onnxruntime")]
QUICK = {"openvino", "onnxruntime", None}


TOKENIZER = tiny.tokenizer()


def context(*given: str, device: str = "cpu") -> Any:
    settings = load_config(["recipe=prune", *given])
    machine = SimpleNamespace(device=torch.device(device), threads=1, precision="bf16")
    teacher = SimpleNamespace(teachers=[""], tokenizer=TOKENIZER, tokenizers=[TOKENIZER])
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", [param(form) for form in EVERY])
def test_a_model_is_built_in_every_form(form: Form) -> None:
    config = tiny.config("bert", hidden_size=32, num_attention_heads=2, num_labels=3)
    (runner,) = untrained.runners(config, [form], device="cpu", threads=1).values()
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    batch = {"input_ids": np.full((2, 7), 900), "attention_mask": mask, "token_type_ids": np.zeros((2, 7), np.int64)}
    found = runner.run(batch)
    runtime = BACKENDS[form.backend].runtime
    assert (runner.name, runner.backend, runner.scheme, found.shape) == (form.name, runtime, form.scheme, (2, 3))
    assert np.isfinite(found).all()


@pytest.mark.slow
def test_forms_of_one_model_answer_alike_and_its_graph_is_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[Path] = []
    export = untrained.export_onnx
    monkeypatch.setattr(untrained, "export_onnx", lambda *paths: exported.append(paths[1]) or export(*paths))
    config = tiny.config("bert", hidden_size=32, num_attention_heads=2, num_labels=3)
    found = untrained.runners(config, TOGETHER, device="cpu", threads=1)
    ids = np.full((2, 7), 900)
    logits = [
        found[form].run({"input_ids": ids, "attention_mask": 0 * ids + 1, "token_type_ids": 0 * ids}) for form in found
    ]
    assert [*found] == TOGETHER
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-5)
    np.testing.assert_allclose(logits[2], logits[0], atol=0.1)
    assert len(exported) == 1


@pytest.mark.parametrize(
    ("given", "device", "form"),
    [
        (["stages.quantize.schemes=[onnxruntime]"], "cuda", Form("torch", "bf16")),
        (["stages.quantize.schemes=[bitsandbytes]", "target.scheme=bitsandbytes"], "cpu", EVERY[4]),
        (["target.scheme=bf16"], "cpu", Form("torch", "bf16")),
        (["pipeline=[finetune_teacher,prune]"], "cpu", Form("torch", "fp32")),
        (["target.speedup=null", "target.size_mib=20"], "cpu", Form("torch", "fp32")),
    ],
)
def test_a_form_that_is_not_searched(given: list[str], device: str, form: Form) -> None:
    ctx = context(*given, device=device)
    assert shape_search.forms_of(ctx, next(iter(ctx.plan.targets.values()))) == [form]


@pytest.mark.parametrize("bf16", [True, False])
@pytest.mark.parametrize("schemes", [["openvino", "onnxruntime", "onnxruntime_static"], ["torchao"], ["bitsandbytes"]])
def test_the_forms_of_a_search_are_those_that_are_timed_and_exported(schemes: list[str], bf16: bool) -> None:
    """Against the student's variants that an evaluate step times, without those that no exported folder has."""
    schemes = [name for name in schemes if runners.runs_here(BACKENDS[SCHEMES[name].backend], gpu=False)]
    backends = [name for name in ("onnxruntime", "openvino") if find_spec(name)]
    supported = variants.supported(bf16=bf16, cuda=False, compiled=True, runtimes=backends)
    student: Any = Compared("", *["step"] * 3, {"baseline": "step"})  # type: ignore[list-item, dict-item]
    timed = variants.variants("teacher", [student], lambda step: schemes, members=1, supported=supported)  # type: ignore[arg-type]
    onnx = any(SCHEMES[name].onnx for name in schemes)
    files = {FLOAT, *([FLOAT_ONNX] if onnx else []), *((SCHEMES[n].backend, SCHEMES[n].scheme) for n in schemes)}
    expected = {(v.backend, v.scheme) for v in timed if v.role == "student" and file_of(v.backend, v.scheme) in files}
    found = untrained.forms_of(Target(speedup=2.0), schemes, cuda=False, half="bf16" if bf16 else None)
    assert len({*found}) == len(found)
    assert {(form.backend, form.scheme) for form in found} == (expected if schemes else {FLOAT})


def test_speedups_of_forms_that_are_searched_are_over_the_fastest_in_float32() -> None:
    for forms in (EVERY, EVERY[-1:]):
        found = untrained.references(forms)
        assert {form.scheme for form in found} == {"fp32"}
        assert {"torch", "onnxruntime"} <= {form.backend for form in found} <= {"torch", "onnxruntime", "openvino"}
    assert untrained.references([FLOATS[1]]) == [FLOATS[1]]


def test_speedups_are_over_all_teachers_of_an_ensemble(tmp_path: Path) -> None:
    student, *teachers = (tiny.config("bert", num_hidden_layers=layers, num_labels=3) for layers in (1, 2, 3))
    search = untrained.search_in(
        *(Target(), FLOATS[:1], student, [], None, lambda: teachers),
        **{"device": "cpu", "threads": 1, "folder": tmp_path, "log": print},
    )
    for runner, form in zip(search.references(), FLOATS[:1], strict=True):
        ids = np.ones((2, 5), np.int64)
        found = runner.run({"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids})
        assert (runner.name, found.shape) == (f"{form.backend} {form.scheme}", (2, 2 * 3))


@pytest.mark.parametrize(
    ("target", "most"),
    [(["target.speedup=2"], 8), (["target.latency_ms=3"], 1), (["target.speedup=2", "target.load=single"], 1)],
)
def test_inputs_are_as_long_as_the_texts_of_the_tasks(
    target: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["snow", "the small boat", "the small boat crossed the harbour"]
    monkeypatch.setattr(shape_search, "_sample", lambda data: [Asked(TEXTS, (text,)) for text in texts])
    found = batches("target.speedup=null", *target)
    rows = np.concatenate([batch["attention_mask"].sum(1) for batch in found])
    assert len(rows) == TASK_ROWS
    assert {*rows} == {3, 5, 8}  # with [CLS] and [SEP]
    assert max(len(batch["input_ids"]) for batch in found) == most
    assert all(batch["input_ids"].max() < untrained.VOCABULARY for batch in found)


def test_inputs_of_a_given_shape() -> None:
    (batch,) = batches("target.shape=[2,16]")
    assert batch["input_ids"].shape == (2, 16)
