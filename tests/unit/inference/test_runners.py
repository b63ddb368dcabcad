"""Runners against the transformers model that they run; global settings of torch are restored."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from distill.config.backends import BACKENDS
from distill.inference import cost
from distill.inference.latency import synthetic
from distill.inference.runners import (
    PROVIDERS,
    by_row,
    in_turn,
    one_pass,
    onnx_runner,
    openvino_runner,
    runs_here,
    torch_runner,
)
from distill.losses.shared_encoder import _Passed
from distill.models import families
from tests import tiny

Make = Callable[..., Path]


def _model_logits(folder: Path, batch: dict[str, np.ndarray]) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**{key: torch.from_numpy(value) for key, value in batch.items()}).logits.numpy()


@pytest.mark.parametrize(
    ("family", "scheme", "tolerance"),
    [
        ("bert", "fp32", 1e-6),
        ("distilbert", "fp32", 1e-6),
        ("bert", "bf16", 0.15),
        ("distilbert", "bf16", 0.15),
        pytest.param("bert", "fp32_compiled", 1e-5, marks=pytest.mark.slow),
    ],
)
def test_a_torch_engine_outputs_the_logits_of_the_model(
    classifier: Make, family: str, scheme: str, tolerance: float
) -> None:
    folder = classifier(family, 3)
    batch = synthetic((4, 24), 100)
    batch["attention_mask"][1, 10:] = 0
    runner = torch_runner("x", folder, scheme=scheme, device="cpu", threads=1)
    logits = runner.run(batch)
    expected = _model_logits(folder, batch)
    assert (runner.name, runner.backend, runner.scheme) == ("x", "torch", scheme)
    assert logits.dtype == np.float32
    assert logits.shape == (4, 3)
    assert np.abs(logits - expected).max() <= tolerance
    # The outputs vary by more than the tolerance.
    assert np.ptp(expected, axis=0).min() > 0.2


def test_an_engine_restores_threads_and_precision(classifier: Make) -> None:
    runner = torch_runner("x", classifier(), scheme="tf32", device="cpu", threads=1)
    seen: list[tuple[int, str]] = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda *_: seen.append((torch.get_num_threads(), torch.get_float32_matmul_precision()))
    )
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    try:
        runner.run(synthetic((1, 8), 50))
        after = (torch.get_num_threads(), torch.get_float32_matmul_precision())
    finally:
        hook.remove()
        torch.set_num_threads(threads)
    assert set(seen) == {(1, "high")}
    assert after == (2, precision)


def test_an_unknown_scheme_is_refused(classifier: Make) -> None:
    with pytest.raises(ValueError, match="scheme: got fp8"):
        torch_runner("x", classifier(), scheme="fp8", device="cpu", threads=1)


def test_backends_of_a_gpu_run_where_there_is_one_and_their_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    named = ["onnxruntime", "onnxruntime_cuda", "onnxruntime_tensorrt"]
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    assert [runs_here(BACKENDS[name], gpu=True) for name in named] == [True, True, False]
    assert [runs_here(BACKENDS[name], gpu=False) for name in named] == [True, False, False]
    assert not runs_here(replace(BACKENDS["openvino"], packages=("not_a_package",)), gpu=False)


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("onnxruntime", {}),
        ("onnxruntime_cuda", {"device_id": 3, "use_tf32": 0}),
        ("onnxruntime_tensorrt", {"device_id": 3}),  # it has no such option, and its scheme is named tf32
    ],
)
def test_float32_of_onnx_runtime_is_float32_on_a_gpu(
    backend: str, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    class Session:
        def __init__(self, path: str, settings: object, providers: list[tuple[str, dict[str, int]]]) -> None:
            self.providers = providers

        def get_providers(self) -> list[str]:
            given.extend(self.providers)
            return [name for name, _ in self.providers]

        def get_inputs(self) -> list[object]:
            return []

        def get_outputs(self) -> list[object]:
            return [SimpleNamespace(name="logits")]

    given: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    onnx_runner("x", "model.onnx", scheme="fp32", threads=1, backend=backend)
    assert given == [(PROVIDERS[backend], options)]


@pytest.fixture
def heads(classifier: Make, tmp_path: Path) -> list[Path]:
    """Two classifiers with the same encoder and different heads."""
    first = classifier("bert", 3)
    model = AutoModelForSequenceClassification.from_pretrained(classifier("bert", 2))
    model.bert.load_state_dict(AutoModelForSequenceClassification.from_pretrained(first).bert.state_dict())
    model.save_pretrained(tmp_path / "other")
    return [first, tmp_path / "other"]


@pytest.mark.parametrize("scheme", ["fp32", "tf32", "bf16"])
def test_one_pass_equals_separate_runs(scheme: str, heads: list[Path]) -> None:
    batch = synthetic((4, 24), 100)
    batch["attention_mask"][1, 10:] = 0
    separate = [torch_runner(folder.name, folder, scheme=scheme, device="cpu", threads=1) for folder in heads]
    expected = np.concatenate([runner.run(batch) for runner in separate], axis=1)
    one, both = one_pass("x", heads, scheme=scheme, device="cpu", threads=1), in_turn("x", separate)
    assert (one.name, one.backend, one.scheme) == (both.name, both.backend, both.scheme) == ("x", "torch", scheme)
    np.testing.assert_array_equal(both.run(batch), expected)
    np.testing.assert_allclose(one.run(batch), expected, rtol=0, atol=1e-6)
    assert expected.shape == (4, 5)
    assert np.ptp(expected, axis=0).min() > 0.1


def test_threads_do_not_get_the_outputs_of_each_other(heads: list[Path]) -> None:
    """Two threads meet where a head reads what the encoder computed, unless one waits for the other."""
    runner = one_pass("x", heads, scheme="fp32", device="cpu", threads=1)
    batches = [synthetic((2, 16), 100, seed=seed) for seed in (0, 1)]
    expected = [runner.run(batch) for batch in batches]
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    met = threading.Barrier(2, timeout=2)

    def meet(module: torch.nn.Module, inputs: object) -> None:
        if isinstance(module, _Passed):
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait()

    hook = torch.nn.modules.module.register_module_forward_pre_hook(meet)
    try:
        with ThreadPoolExecutor(2) as pool:
            found = [*pool.map(runner.run, batches)]
    finally:
        hook.remove()
    for ours, alone in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-6)


def test_an_encoder_counts_once(heads: list[Path]) -> None:
    """Against the parameters and the multiply-accumulates of torch's modules."""
    models = [AutoModelForSequenceClassification.from_pretrained(folder) for folder in heads]
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    head = sum(p.numel() for p in models[1].classifier.parameters())
    assert cost.total(cost.parameters, heads, False) == sum(sizes)
    assert cost.total(cost.parameters, heads, True) == sizes[0] + head
    weights = models[1].classifier.weight.numel()
    assert cost.total(cost.gmacs, heads, True) == pytest.approx(cost.gmacs(heads[0]) + weights / 1e9)
    mib = [(folder / "model.safetensors").stat().st_size / 2**20 for folder in heads]
    assert cost.total(cost.size_mib, heads, False) == pytest.approx(sum(mib))
    assert cost.total(cost.size_mib, heads, True) == pytest.approx(mib[0] + 4 * head / 2**20, rel=0.05)


@pytest.mark.parametrize("threads", [1, 2])
def test_alone_runs_each_row_without_the_others_and_without_padding(threads: int) -> None:
    """With two threads both rows are under way before one of them ends."""
    seen: list[tuple[list[int], list[int]]] = []
    together = threading.Barrier(threads, timeout=60)

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        together.wait()
        seen.append((batch["input_ids"].tolist(), batch["attention_mask"].tolist()))
        return batch["input_ids"][:, :, None].astype(np.float32) if per_token else batch["input_ids"].sum(1)[:, None]

    batch = {
        "input_ids": np.array([[7, 8, 9], [0, 5, 6]]),
        "attention_mask": np.array([[1, 1, 0], [0, 1, 1]]),  # padded on the right and on the left
    }
    per_token = False
    assert by_row(run, threads)(batch).tolist() == [[15], [11]]
    assert sorted(seen) == [([[5, 6]], [[1, 1]]), ([[7, 8]], [[1, 1]])]
    per_token = True
    assert by_row(run, threads)(batch)[:, :, 0].tolist() == [[7, 8, 0], [0, 5, 6]]


@pytest.mark.parametrize("scheme", ["fp32", "bf16"])
def test_openvino_computes_in_the_arithmetic_that_the_scheme_names(
    classifier: Make, export_once: Make, tmp_path: Path, scheme: str
) -> None:
    openvino = pytest.importorskip("openvino")
    if scheme == "bf16" and "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bfloat16")
    folder, batch = classifier(), synthetic((4, 24), 100)
    export_once(folder, tmp_path / "model.onnx")
    runner = openvino_runner("x", tmp_path / "model.onnx", scheme=scheme, threads=1)
    away = np.abs(runner.run(batch) - _model_logits(folder, batch)).max()
    assert away < 1e-5 if scheme == "fp32" else 1e-5 < away < 0.2


def test_openvino_answers_the_same_after_its_file_is_overwritten_in_place(
    classifier: Make, export_once: Make, tmp_path: Path
) -> None:
    openvino = pytest.importorskip("openvino")
    export_once(classifier(), tmp_path / "model.onnx")
    (tmp_path / "openvino").mkdir()
    openvino.save_model(openvino.convert_model(tmp_path / "model.onnx"), tmp_path / "openvino" / "model.xml")
    runner, batch = openvino_runner("x", tmp_path / "openvino", scheme="fp32", threads=1), synthetic((4, 24), 100)
    before = runner.run(batch)
    weights = tmp_path / "openvino" / "model.bin"
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert (runner.run(batch) == before).all()
    with weights.open("r+b") as file:
        file.truncate(0)
    assert (runner.run(batch) == before).all()


ENDED = """
import os, signal, sys
import numpy
from distill.inference.runners import openvino_runner
batch = {name: numpy.ones((1, 8), numpy.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
runners = [openvino_runner("x", sys.argv[1], scheme="fp32", threads=1) for _ in range(3)]
while runners:
    runners.pop(0).run(batch)
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    os.kill(os.getpid(), signal.SIGINT)
    os.read(os.open("/dev/zero", os.O_RDONLY), 1)
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.slow
def test_ctrl_c_stops_a_process_whose_openvino_models_are_freed(
    classifier: Make, export_once: Make, tmp_path: Path
) -> None:
    """With a Core for each model it ended with a segmentation fault."""
    pytest.importorskip("openvino")
    export_once(classifier(), tmp_path / "model.onnx")
    command = [sys.executable, "-c", ENDED, str(tmp_path / "model.onnx")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n"), ended.stderr


def test_multiplications_are_counted_whatever_ends_a_text(tmp_path: Path) -> None:
    """Gemma and Qwen name several end tokens; BART and T5 read the state of theirs."""
    sizes = [
        cost.gmacs(tiny.save(tmp_path / str(number), "gemma3_text", "SequenceClassification", eos_token_id=ends))
        for number, ends in enumerate([2, [2, 3]])
    ]
    assert sizes[0] == sizes[1] > 0
    for name in ("bart", "t5"):
        assert cost.gmacs(tiny.save(tmp_path / name, name, "SequenceClassification")) > 0


@pytest.mark.parametrize("name", ["bert", "gte", "ultrabert"])
def test_the_encoder_counts_under_the_names_of_its_file(name: str, tmp_path: Path) -> None:
    model = tiny.model(name, "SequenceClassification")
    model.save_pretrained(tmp_path)
    count = sum(parameter.numel() for parameter in families.encoder(model).parameters())
    assert cost.parameters(tmp_path, encoder=True) == count
    assert cost.size_mib(tmp_path, encoder=True) == pytest.approx(4 * count / 2**20)
