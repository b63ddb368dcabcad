"""Steps whose gradients are not finite change nothing, whether the host or the device decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from distill.errors import UserError
from distill.training.nonfinite import Guard, restore


@pytest.mark.parametrize("on_device", [False, True])
def test_only_finite_gradients_change_weights(on_device: bool, tmp_path: Path) -> None:
    weight, plain = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
    optimizer, other = (torch.optim.AdamW([each], lr=0.1, fused=True) for each in (weight, plain))
    guard = Guard(optimizer, torch.device("cpu"))
    guard._host, guard._on_device = not on_device, on_device  # a fused optimizer takes the flag on a CPU too
    for value in (1.0, float("nan"), 2.0, float("inf"), float("nan"), -3.0):
        weight.grad = torch.full((4,), value)
        skipped = guard.step([weight.grad.norm()])
        assert bool(skipped) == (not np.isfinite(value))
        guard.check(3, 1, [], tmp_path / "batch.npz", wait=True)
        if not skipped:
            plain.grad = torch.full((4,), value)
            other.step()
        assert torch.equal(weight, plain)
    assert not any(tmp_path.iterdir())
    for number in range(3):
        weight.grad = torch.full((4,), float("nan"))
        guard.step([torch.tensor(1.0), weight.grad.norm()])
        if number < 2:
            guard.check(3, 1, [], tmp_path / "batch.npz", wait=True)
    if on_device:
        guard.check(3, 9, [], tmp_path / "batch.npz", wait=False)  # the device is not asked
    with pytest.raises(UserError):
        guard.check(3, 9, [], tmp_path / "batch.npz", wait=True)


def test_the_batch_is_written(tmp_path: Path) -> None:
    guard = Guard(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), torch.device("cpu"))
    for _ in range(3):
        guard.step([torch.tensor(float("inf"))])
    batch = {"input_ids": np.arange(6).reshape(2, 3)}
    with pytest.raises(UserError, match="in 3 steps in a row, until step 9; must be finite; lower ") as error:
        guard.check(3, 9, [batch, batch], tmp_path / "batch.npz", wait=False)
    assert str(tmp_path / "batch.npz") in str(error.value)
    with np.load(tmp_path / "batch.npz") as saved:
        assert saved["1.input_ids"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_losses_that_are_scaled_down_end_a_training_in_float16(scale: float, tmp_path: Path) -> None:
    """Steps that were skipped here and there halved the scale until small gradients would be 0."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    guard = Guard(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), torch.device("cpu"), scaler)
    if scale < 1:
        with pytest.raises(UserError, match="in many steps until step 9, so that losses are no longer scaled up"):
            guard.check(99, 9, [], tmp_path / "batch.npz", wait=True)
    else:
        guard.check(99, 9, [], tmp_path / "batch.npz", wait=True)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_training_goes_on_in_another_precision(enabled: bool) -> None:
    """The checkpoint of one without float16 has no scale, and one without float16 needs none."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=enabled)
    restore(scaler, {})
    restore(scaler, torch.amp.GradScaler("cpu", init_scale=2.0).state_dict())
    assert scaler.get_scale() == (2.0 if enabled else 1.0)
