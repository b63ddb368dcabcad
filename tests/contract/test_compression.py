"""docs/compression.md is correct: every scheme on a tiny model of every family that differs from the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from distill.compression.quantization.quantize import FITS, MAKE, always_float, linears, onnx_modules
from distill.config import Quantize, Train
from distill.config.plan import Step
from distill.config.schemes import ONNX, SCHEMES
from distill.deploy.export.onnx import export_onnx, onnx_parity
from distill.errors import ConfigError, UserError
from distill.inference import runners
from distill.inference.latency import synthetic
from distill.inference.variants import Variant
from distill.models import families as family
from distill.pipeline.artefacts import Quantized
from distill.pipeline.stages import export
from distill.pipeline.stages.load_variants import Loader, Models
from tests import tiny

SAME = tiny.SAME
INSTALLED = [name for name, scheme in SCHEMES.items() if all(map(find_spec, scheme.packages))]
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "length": 64}


@dataclass(frozen=True)
class Given:
    """A family's tiny classifier: its folder and ONNX file, what is to stay float, its answers in float32."""

    family: str
    folder: Path
    onnx: Path
    keep: list[str]
    answers: np.ndarray


BATCH = synthetic((48, 12), 60)
ROWS = [{key: value[i : i + 1, : 6 + i % 6] for key, value in BATCH.items()} for i in range(16)]


QUICK = ("bert",)
"""The others are tried among the slow tests."""
PARAMS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in family.STUDENTS if name not in SAME
]


@pytest.fixture(scope="module", params=PARAMS)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Given:
    from transformers import AutoModelForSequenceClassification

    home = tmp_path_factory.mktemp(request.param)
    layers = 2 if request.param == "modernbert" else 1  # whose layers are not all of one kind
    sizes = SIZES | {"num_hidden_layers": layers}
    folder = tiny.save(home / "model", request.param, "SequenceClassification", num_labels=2, **sizes)
    export_onnx(folder, home / ONNX)
    assert onnx_parity(folder, home / ONNX) < 1e-4
    run = runners.torch_runner("x", folder, scheme="fp32", device="cpu", threads=1).run
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    known = set(onnx_modules(home / ONNX).values())
    assert set(linears(model)) <= known, "every product is known by its module"
    assert any(module.startswith(tuple(always_float(model))) for module in known)
    return Given(request.param, folder, home / ONNX, [*always_float(model), linears(model)[0]], run(BATCH))


def weight_types(out: Path, onnx_file: Path, modules: list[str]) -> set[str]:
    """In what the weights of modules are stored, of a file that was made from `onnx_file`."""
    if out.is_file():
        graph = onnx.load(out).graph
        stored = [one for one in graph.initializer if one.name.startswith(tuple(f"{m}." for m in modules))]
        # A product without a bias may have a weight of another name, and keeps its own name where it stays float.
        nodes = {node for node, module in onnx_modules(onnx_file).items() if module.startswith(tuple(modules))}
        read = {node.input[1] for node in graph.node if node.op_type == "MatMul" and node.name in nodes}
        stored += [one for one in graph.initializer if one.name in read]
        return {onnx.TensorProto.DataType.Name(one.data_type) for one in stored if len(one.dims) == 2}
    import openvino

    nodes = {node for node, module in onnx_modules(onnx_file).items() if module.startswith(tuple(modules))}
    operations = openvino.Core().read_model(out / "model_int8.xml").get_ops()
    found = set()
    for one in operations:
        if one.get_type_name() == "MatMul" and one.get_friendly_name().split("/")[0] in nodes:
            source = one.input_value(1).get_node()
            while source.get_type_name() != "Constant":
                source = source.input_value(0).get_node()
            found.add({"f32": "FLOAT"}.get(source.get_element_type().get_type_name(), "8 bits"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTALLED)
def test_a_family_is_quantized_and_served(name: str, given: Given, tmp_path: Path) -> None:
    scheme, out = SCHEMES[name], tmp_path / SCHEMES[name].file
    MAKE[name](given.onnx if scheme.onnx else given.folder, out, given.keep, ROWS)
    runner: Any = runners.load("x", out, backend=scheme.backend, scheme=scheme.scheme, device="cpu", threads=1)
    said = np.concatenate([runner.run({key: value[i : i + 1] for key, value in BATCH.items()}) for i in range(48)])
    spread = given.answers.std(axis=0)
    assert not np.array_equal(said, given.answers)
    assert (np.abs(said - given.answers).mean(axis=0) < 0.5 * spread).all(), "what it says is of the text"
    for shape in ((1, 1), (3, 40)):
        assert np.isfinite(runner.run(synthetic(shape, 60))).all()
    if scheme.onnx:  # runtimes take a Gemm apart before they look for the names of what is to stay float
        assert weight_types(out, given.onnx, given.keep) == {"FLOAT"}


@pytest.mark.slow
def test_a_family_is_run_in_bf16_unless_its_code_mixes_float32_into_it(given: Given) -> None:
    runner = runners.load("x", given.folder, backend="torch", scheme="bf16", device="cpu", threads=1)
    if given.family == "deberta":
        with pytest.raises(RuntimeError, match="dtype"):
            runner.run(BATCH)
    else:
        assert (np.abs(runner.run(BATCH) - given.answers).mean(axis=0) < given.answers.std(axis=0)).all()


def test_every_scheme_has_what_makes_it() -> None:
    assert list(MAKE) == list(SCHEMES)
    assert FITS.keys() <= SCHEMES.keys()


def test_no_family_is_left_out() -> None:
    shown = (Path(__file__).parents[2] / "docs" / "compression.md").read_text()
    assert all(f"| `{name}` |" in shown for name in family.STUDENTS)
    assert all(f"`{name}`" in shown for name in SCHEMES)


@pytest.mark.slow
def test_a_student_learns_in_int8_and_is_left_in_float(run: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    found = []
    for aware in ("false", "true"):
        few = ["limit=smoke", "limit.steps=2", "tasks=docstrings", "tasks.names=[order]", f"output=aware_{aware}"]
        stages = ["pipeline=[finetune_teacher,finetune]", f"stages.finetune.quantization_aware={aware}"]
        run(tmp_path, "task", *few, *stages)
        found.append(load_file(tmp_path / f"aware_{aware}" / "finetune" / "order" / "model.safetensors"))
    plain, learned = found
    assert {name: value.dtype for name, value in plain.items()} == {n: v.dtype for n, v in learned.items()}
    moved = [name for name in plain if not plain[name].equal(learned[name])]
    assert any("query.weight" in name for name in moved)
    assert all((plain[name] - learned[name]).abs().max() < 1e-2 for name in moved)


@pytest.mark.slow
def test_too_few_rows_for_ranges_are_refused_first(run: Any, tmp_path: Path) -> None:
    few = ["tasks=docstrings", "tasks.names=[order]", "limit.examples=20", "teacher=embedded", "output=out"]
    stages = ["pipeline=[finetune_teacher,quantize]", "stages.quantize.start=finetune_teacher", "target.speedup=null"]
    with pytest.raises(ConfigError, match=r"got order with 20 training rows; .* without onnxruntime_static$"):
        run(tmp_path, "prune", *few, *stages, "stages.quantize.schemes=[onnxruntime,onnxruntime_static]")
    assert not (tmp_path / "out" / "finetune_teacher").exists()


def test_the_variant_that_is_timed_is_of_the_task_with_most_in_float() -> None:
    kept = {"b": {"onnxruntime": ["x", "y"]}, "c": {"onnxruntime": ["x"], "bitsandbytes": ["z"]}}
    made = Quantized(schemes=[*SCHEMES], failed={}, kept={"a": {}, **kept}, development={})
    student, quantize = Step("recover", Train()), Step("quantize", Quantize())
    models = Models(student, 1, [], {}, {quantize: made}, frozenset(), shared=False, columns={}, window=None)
    data: Any = {"a": 0, "b": 0, "c": 0}
    runtime: Any = None
    loader = Loader("evaluate", models, data, [], runtime)
    shown = {
        key: loader.timed_tasks(Variant("student", one.backend, one.scheme, student, quantize, file=one.file, key=key))
        for key, one in SCHEMES.items()
    }
    assert shown == {key: ["a"] for key in SCHEMES} | {"onnxruntime": ["b"], "bitsandbytes": ["c"]}
    plain = Variant("student", "torch", "fp32", student)
    assert loader.timed_tasks(plain) == ["a"]
    shared = replace(loader, models=replace(models, shared=True))
    assert shared.timed_tasks(plain) == ["a", "b", "c"]


@pytest.mark.slow
def test_an_export_that_is_not_what_was_made_is_removed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of one weight are changed between the copy and its proof."""
    few = ["limit=smoke", "limit.steps=2", "tasks=docstrings", "tasks.names=[order]", "output=out"]
    stages = ["pipeline=[finetune_teacher,finetune,export]", "stages.export.quantized=null"]
    verified = export.verified

    def spoilt(exported: Any, *rest: Any) -> Any:
        with tiny.weights(exported[0].copy.path) as weights:
            weights |= {name: value + 0.5 for name, value in weights.items()}
        return verified(exported, *rest)

    monkeypatch.setattr(export, "verified", spoilt)
    with pytest.raises(UserError, match="in a fresh process that differ from the model's"):
        run(tmp_path, "task", *few, *stages, "stages.export.evaluated=null")
    assert (tmp_path / "out" / "finetune" / "order").is_dir()
    assert not (tmp_path / "out" / "export" / "order").exists()
