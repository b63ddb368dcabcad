"""Runners against the transformers model that they run; global settings of torch are restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from distill.evaluate.latency import synthetic
from distill.evaluate.runners import torch_runner

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
