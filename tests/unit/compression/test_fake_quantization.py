"""Simulated quantization against numpy and ONNX Runtime, and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from distill.compression.quantization.fake_quantization import ROUNDING, activation, by_token, faked, nf4, table, weight
from distill.compression.quantization.quantize import MAKE, always_float, linears
from distill.config.schemes import SCHEMES
from distill.inference.latency import synthetic
from distill.inference.runners import onnx_runner, torch_run

Make = Callable[..., Path]


def test_weights_have_a_scale_for_each_row() -> None:
    exact = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 10, 0.1, 3, 0])[:, None]
    scale = np.abs(exact.numpy()).max(1, keepdims=True) / 127
    levels = np.round(exact.numpy() / np.maximum(scale, 1e-30))
    assert np.abs(levels).max() == 127
    np.testing.assert_allclose(weight(exact).numpy(), levels * scale, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("low", "high"), [(-3.0, 5.0), (0.5, 2.0), (-2.0, -1.0), (0.0, 0.0)])
def test_activations_have_one_scale_and_keep_zero(low: float, high: float) -> None:
    exact = torch.linspace(low, high, 101)
    got = activation(exact).numpy()
    step = (max(high, 0) - min(low, 0)) / 255
    assert len(np.unique(got)) <= 256
    assert np.abs(got - exact.numpy()).max() <= step / 2 + 1e-6
    assert activation(torch.tensor([low, 0.0, high]))[1] == 0


def test_the_gradient_goes_straight_through() -> None:
    exact = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for rounded in (weight, activation):
        (gradient,) = torch.autograd.grad((rounded(exact) * torch.arange(6)).sum(), exact)
        torch.testing.assert_close(gradient, torch.arange(6.0).expand(4, 6))


def test_the_model_is_restored_on_exit(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "SequenceClassification")
    given = {key: value for key, value in tiny_batch.items() if key != "labels"}
    with torch.no_grad():
        before = model(**given).logits
        with faked(model, linears(model)):
            inside = model(**given).logits
        assert torch.equal(model(**given).logits, before)
    assert not torch.equal(inside, before)
    assert torch.allclose(inside, before, atol=0.5)


@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("distilbert", "roberta"))]
)
def test_logits_approximate_those_of_onnx_runtime(
    classifier: Make, export_once: Make, family: str, tmp_path: Path
) -> None:
    """Far nearer to the int8 file than that is to float32; embeddings, which are not simulated, apart.

    Without the processor's 8-bit instructions (VNNI), ONNX Runtime's sums of products saturate: no model of rounding is
    near to that.
    """
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else "vnni"
    if not any(one in flags for one in ("vnni", "asimddp", "i8mm")):
        pytest.skip("the processor has no exact 8-bit products")
    from transformers import AutoModelForSequenceClassification

    folder = classifier(family)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    export_once(folder, tmp_path / "model.onnx")
    scheme = SCHEMES["onnxruntime"]
    keep = [*always_float(model), f"{model.base_model_prefix}.embeddings"]
    MAKE[scheme.name](tmp_path / "model.onnx", tmp_path / scheme.file, keep, [])
    batch = synthetic((64, 16), 100)
    rows = [{key: value[i : i + 1] for key, value in batch.items()} for i in range(64)]
    run = torch_run(model, scheme="fp32", device="cpu", threads=1)
    exact = np.concatenate([run(row) for row in rows])
    with faked(model, linears(model)):
        simulated = np.concatenate([run(row) for row in rows])
    served = onnx_runner("x", tmp_path / scheme.file, scheme="int8", threads=1)
    real = np.concatenate([served.run(row) for row in rows])
    away = np.sqrt(np.square(real - exact).mean())
    assert away > 0
    assert np.sqrt(np.square(simulated - real).mean()) < 0.6 * away


def test_scales_are_per_token_and_per_table() -> None:
    exact = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    larger = exact.clone()
    larger[1, 4] *= 1000
    one, other = by_token(exact), by_token(larger)
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1, :4], other[1, :4])
    assert ((one - exact).abs().amax(-1) <= exact.abs().amax(-1) / 254 + 1e-6).all()
    assert len(table(exact[0]).unique()) <= 255
    assert ((table(exact[0]) - exact[0]).abs() <= exact[0].abs().max() / 254 + 1e-6).all()


def test_four_bits_have_a_scale_for_each_block() -> None:
    """An outlier coarsens the block of 64 that it is in, and no other; what a row of int8 would lose."""
    exact = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    larger = exact.clone()
    larger[3, 70] = 1000
    one, other = nf4(exact), nf4(larger)
    assert torch.equal(one[:3], other[:3])
    assert torch.equal(one[3, :64], other[3, :64])
    assert not torch.equal(one[3, 64:], other[3, 64:])
    assert max(len(block.unique()) for block in one.view(-1, 64)) <= 16
    given = torch.randn(3, 5)
    assert ROUNDING["nf4"][1](given) is given
    assert {scheme.rounding for scheme in SCHEMES.values()} == set(ROUNDING)


def test_embeddings_are_rounded_in_lookups() -> None:
    model = torch.nn.ModuleDict({"table": torch.nn.Embedding(20, 8)})
    ids = torch.tensor([[3, 0, 19]])
    with faked(model, ["table"]):
        said = model["table"](ids)
    assert torch.equal(said, table(model["table"].weight)[ids])
    assert torch.equal(model["table"](ids), model["table"].weight[ids])
