"""Runners against the transformers model that they run; global settings of torch are restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from distill.evaluate import cost
from distill.evaluate.latency import synthetic
from distill.evaluate.runners import in_turn, one_pass, torch_runner

Make = Callable[..., Path]


def _model_logits(folder: Path, batch: dict[str, np.ndarray]) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**{key: torch.from_numpy(value) for key, value in batch.items()}).logits.numpy()


@pytest.mark.parametrize(("scheme", "tolerance"), [("fp32", 1e-6), ("fp32_medium", 0.05), ("bf16", 0.15)])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
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
    runner = torch_runner("x", classifier(), scheme="fp32_medium", device="cpu", threads=1)
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
    assert set(seen) == {(1, "medium")}
    assert after == (2, precision)


def test_an_unknown_scheme_is_refused(classifier: Make) -> None:
    with pytest.raises(ValueError, match="scheme: got fp8"):
        torch_runner("x", classifier(), scheme="fp8", device="cpu", threads=1)


@pytest.fixture
def heads(classifier: Make, tmp_path: Path) -> list[Path]:
    """Two classifiers with the same encoder and different heads."""
    first = classifier("bert", 3)
    model = AutoModelForSequenceClassification.from_pretrained(classifier("bert", 2))
    model.bert.load_state_dict(AutoModelForSequenceClassification.from_pretrained(first).bert.state_dict())
    model.save_pretrained(tmp_path / "other")
    return [first, tmp_path / "other"]


@pytest.mark.parametrize("scheme", ["fp32", "fp32_medium", "bf16"])
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
