"""Every scheme: its files load on their backend, the head stays float, size is smaller and logits are similar."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import distill
from distill.compression.quantization import quantize
from distill.compression.quantization.quantize import MAKE, always_float, linears
from distill.config.schemes import ONNX, SCHEMES
from distill.inference import runners
from distill.inference.cost import size_mib
from distill.inference.latency import synthetic
from distill.models.families import STUDENTS
from distill.runtime.storage.run_folder import MANIFEST

Make = Callable[..., Path]
THERE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            any(find_spec(package) is None for package in SCHEMES[name].packages),
            reason="an extra, absent",
        ),
    )
    for name in SCHEMES
]


def _model(folder: Path) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(folder).eval()


def _agree(ours: np.ndarray, wanted: np.ndarray) -> float:
    return float((ours.argmax(axis=1) == wanted.argmax(axis=1)).mean())


@pytest.fixture
def make(export_once: Callable[[Path, Path], None]) -> Make:
    """Scheme, folder of the float model, where to, modules left in float -> what it made."""

    def made(name: str, folder: Path, out: Path, keep: list[str]) -> Path:
        scheme = SCHEMES[name]
        if scheme.onnx:
            export_once(folder, out / ONNX)
        batch = synthetic((32, 16), 100, seed=1)
        lengths = [8 + i % 8 for i in range(32)]
        rows = [{key: value[i : i + 1, : lengths[i]] for key, value in batch.items()} for i in range(32)]
        MAKE[name](out / ONNX if scheme.onnx else folder, out / scheme.file, keep, rows)
        return out / scheme.file

    return made


def _load(name: str, path: Path) -> runners.Runner:
    scheme = SCHEMES[name]
    return runners.load("x", path, backend=scheme.backend, scheme=scheme.scheme, device="cpu", threads=1)


def test_names_and_files_of_schemes_are_unique() -> None:
    names = [(scheme.backend, scheme.scheme) for scheme in SCHEMES.values()]
    assert len(set(names)) == len({scheme.file for scheme in SCHEMES.values()}) == len(names)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", THERE)
def test_it_is_smaller_has_similar_logits_and_prints_nothing(
    classifier: Make, make: Make, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = classifier("bert")
    keep, batch = always_float(_model(folder)), synthetic((64, 16), 100)
    capfd.readouterr()
    made = make(name, folder, tmp_path, keep)
    runner = _load(name, made)
    assert (runner.scheme, np.isfinite(runner.run(batch)).all()) == (SCHEMES[name].scheme, True)
    shown = capfd.readouterr()
    # transformers' own progress bars are switched off for a whole run, not here.
    lines = [line for line in (shown.out + shown.err).splitlines() if line.strip() and "it/s" not in line]
    assert [line for line in lines if "Loading weights" not in line and "Writing model shards" not in line] == []
    wanted = runners.torch_runner("x", folder, scheme="fp32", device="cpu", threads=1).run(batch)
    ours = np.concatenate([runner.run({k: v[i : i + 1] for k, v in batch.items()}) for i in range(64)])
    assert _agree(ours, wanted) >= 0.9
    assert not np.array_equal(ours, wanted)
    whole = size_mib(tmp_path / ONNX) if SCHEMES[name].onnx else size_mib(folder)
    assert 0 < size_mib(made) < (1.0 if name == "bitsandbytes_nf4" else 0.8) * whole
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {made.name} | ({ONNX} if SCHEMES[name].onnx else set())
    again = _load(name, made)
    assert np.array_equal(again.run(batch), runner.run(batch))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [one for one in THERE if one.values != ("openvino",)])
def test_modules_to_keep_stay_float(classifier: Make, make: Make, name: str, tmp_path: Path) -> None:
    """With every module left in float only embeddings are quantized, if anything. OpenVINO's files, which are slow to
    make, are looked into: tests/contract/test_compression.py.
    """
    folder = classifier("bert")
    model, batch = _model(folder), synthetic((64, 16), 100)
    every = [*always_float(model), *linears(model)]
    wanted = runners.torch_runner("x", folder, scheme="fp32", device="cpu", threads=1).run(batch)
    apart = [np.abs(_load(name, make(name, folder, tmp_path, keep)).run(batch) - wanted).max() for keep in ([], every)]
    assert apart[1] < apart[0]
    if not SCHEMES[name].onnx:
        assert apart[1] < 1e-5


def test_head_and_pooler_are_float_in_every_family(tiny_model: Callable[..., Any]) -> None:
    for family in STUDENTS:
        model = tiny_model(family, "SequenceClassification")
        floats = always_float(model)
        assert any(name in ("classifier", "score") for name in floats), family
        inside = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
        assert set(linears(model)) == {name for name in inside if not name.startswith(tuple(floats))}


@pytest.mark.parametrize("family", ["bert", "deberta", "modernbert"])
@pytest.mark.parametrize("name", ["bitsandbytes", pytest.param("torchao", marks=THERE[2].marks)])
def test_a_checkpoint_loads_with_plain_transformers_and_its_tokenizer(
    classifier: Make, make: Make, name: str, family: str, tmp_path: Path, sentences: list[str]
) -> None:
    folder = shutil.copytree(classifier(family), tmp_path / "model")
    for left in (MANIFEST, "scores.safetensors"):  # by a stage that trained it
        (folder / left).write_text("{}")
    out = make(name, folder, tmp_path, always_float(_model(folder)))
    assert not {MANIFEST, "scores.safetensors"} & {path.name for path in out.iterdir()}
    stored, before = load_file(out / "model.safetensors"), load_file(folder / "model.safetensors")
    head = {key for key in before if "classifier" in key or key.startswith("head")}
    assert head
    assert all(torch.equal(stored[key], before[key]) for key in head)
    assert sum(value.dtype == torch.int8 for value in stored.values()) >= 8
    assert np.isfinite(_load(name, out).run(synthetic((2, 8), 100))).all()
    tokens = AutoTokenizer.from_pretrained(out)(sentences[0])
    assert tokens == AutoTokenizer.from_pretrained(folder)(sentences[0])


def test_calibrated_ranges_are_those_of_the_rows(classifier: Make, make: Make, tmp_path: Path) -> None:
    """Static ranges are in the file; dynamic ones are not."""
    folder = classifier("bert")
    keep = always_float(_model(folder))
    for name, there in (("onnxruntime_static", True), ("onnxruntime", False)):
        graph = onnx.load(make(name, folder, tmp_path, keep)).graph
        kinds = {node.op_type for node in graph.node}
        assert ("QuantizeLinear" in kinds) is there
        assert ("DynamicQuantizeLinear" in kinds) is not there


TOLD = """
import sys
from pathlib import Path

asked = []
sys.addaudithook(lambda event, given: asked.append(given[0]) if event == "socket.getaddrinfo" else None)
import numpy as np
from distill.compression.quantization.quantize import openvino_int8

row = {name: np.ones((1, 8), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
openvino_int8(Path(sys.argv[1]), Path(sys.argv[2]), [], [row, row])
assert asked == [], asked

import errno, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    openvino_int8(Path(sys.argv[1]), Path(sys.argv[2] + "2"), [], [row, row])
except OSError as error:
    assert error.errno == errno.EIO, error
else:
    raise AssertionError("its files fitted")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nncf") is None, reason="an extra, absent")
def test_openvino_sends_no_telemetry(classifier: Make, export_once: Make, tmp_path: Path) -> None:
    """Its import, and every conversion, would be reported over the network, and a number kept in the home folder.

    The folder is one of a run with two settings.
    """
    file = tmp_path / "seed=1,student.layers=[0,1]" / ONNX
    file.parent.mkdir()
    export_once(classifier("bert"), file)
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-c", TOLD, str(file), str(tmp_path / "openvino")]
    done = subprocess.run(command, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "openvino" / "model_int8.bin").is_file()
    assert list(home.iterdir()) == []


def test_no_module_lets_openvino_send_telemetry() -> None:
    """Before every import of it, in whatever process, its reporter is put out of reach."""
    root = Path(distill.__file__).parent
    found = [re.findall(r"(.*)\n(?: +import nncf\n)? +import openvino\b", p.read_text()) for p in root.rglob("*.py")]
    lines = [line for of_file in found for line in of_file]
    every = [re.findall(r"^ *import openvino\b", p.read_text(), re.MULTILINE) for p in root.rglob("*.py")]
    assert len(lines) == sum(map(len, every)) >= 3
    assert all('sys.modules.setdefault("openvino_telemetry", None)' in line for line in lines)


@pytest.mark.parametrize(("flags", "most"), [(["avx2"], 64), (["avx2", "avx512_vnni"], 127)])
@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime_static"])
def test_weights_have_7_bits_where_8_would_overflow(
    name: str, flags: list[str], most: int, make: Make, classifier: Make, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(quantize, "cpu_flags", lambda: flags)
    file = make(name, classifier("bert"), tmp_path, [])
    arrays = map(onnx.numpy_helper.to_array, onnx.load(file).graph.initializer)
    weights = [array.astype(int) for array in arrays if array.dtype == np.int8 and array.size > 64]
    assert max(np.abs(weight).max() for weight in weights) == most


@pytest.mark.skipif(find_spec("nncf") is None, reason="an extra, absent")
@pytest.mark.parametrize(("flags", "seven"), [(["avx2"], True), (["avx2", "avx512_vnni"], False)])
def test_openvinos_weights_have_7_bits_there_too(
    flags: list[str], seven: bool, make: Make, classifier: Make, tmp_path: Path, monkeypatch: Any
) -> None:
    """By default NNCF gives 7 bits to convolutions alone, of which a BERT has none."""
    import openvino

    monkeypatch.setattr(quantize, "cpu_flags", lambda: flags)
    folder = classifier("bert")
    made = make("openvino", folder, tmp_path, always_float(_model(folder)))
    largest = []
    for one in openvino.Core().read_model(made / "model_int8.xml").get_ops():
        if one.get_type_name() == "MatMul":
            source = one.input_value(1).get_node()
            while source.get_type_name() in ("Convert", "Subtract", "Multiply", "Reshape", "Transpose"):
                source = source.input_value(0).get_node()
            if source.get_type_name() == "Constant" and source.data.dtype == np.int8:
                largest.append(int(np.abs(source.data.astype(int)).max()))
    assert largest
    assert (max(largest) <= 64) is seven
