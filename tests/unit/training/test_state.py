"""What is saved comes back bit for bit, and nothing half-written is ever taken for a state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from distill.runtime.storage import atomic
from distill.training import state

MAPPED = Path("/proc/self/maps")
"""Lists the files that are mapped into the memory of this process, on Linux."""


def trained(model: nn.Module, steps: int) -> torch.optim.Optimizer:
    """A fused AdamW over two groups, with moments, after some steps on random gradients."""
    named = list(model.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, fused=True)
    step(model, optimizer, range(steps))
    return optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def test_weights_and_optimizer_come_back_bit_for_bit(tmp_path: Path, tiny_model) -> None:
    model, other = tiny_model("bert", seed=0), tiny_model("bert", seed=1)
    optimizer = trained(model, 3)
    state.save(tmp_path, 3, model, optimizer, {"tokens": 12, "log": [{"loss": 0.5}]})
    again = trained(other, 1)
    assert state.load(tmp_path, other, again) == {"step": 3, "tokens": 12, "log": [{"loss": 0.5}]}

    def same() -> None:
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)
            assert optimizer.state[a].keys() == again.state[b].keys() == {"step", "exp_avg", "exp_avg_sq"}
            assert all(torch.equal(value, again.state[b][key]) for key, value in optimizer.state[a].items())

    same()
    for two in ((model, optimizer), (other, again)):
        step(*two, range(3, 5))
    same()
    assert [g["weight_decay"] for g in again.param_groups] == [0.1, 0.0]
    decoder = other.cls.predictions.decoder.weight
    assert decoder is other.bert.embeddings.word_embeddings.weight  # still tied


def test_a_fresh_optimizer_takes_the_state_too(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, again = trained(model, 2), trained(other, 0)
    state.save(tmp_path, 2, model, optimizer, {})
    state.load(tmp_path, other, again)
    step(model, optimizer, range(9, 10))
    step(other, again, range(9, 10))
    assert torch.equal(model.weight, other.weight)


@pytest.mark.skipif(not MAPPED.is_file(), reason="the system does not list what is mapped into memory")
def test_a_training_that_goes_on_uses_no_file_of_its_state(tmp_path: Path) -> None:
    """It removes them: some file systems keep a removed file that is in use, and with it the folder."""
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    state.save(tmp_path, 2, model, trained(model, 2), {})
    again = trained(other, 0)
    assert state.load(tmp_path, other, again) == {"step": 2}
    assert again.state[other.weight]["exp_avg"].any()
    assert str(tmp_path.resolve()) not in MAPPED.read_text()


def test_there_may_be_no_state(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    assert state.load(tmp_path / "none", model, trained(model, 0)) is None
    (tmp_path / "empty").mkdir()
    assert state.load(tmp_path / "empty", model, trained(model, 0)) is None


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    for number in (8, 9, 10):
        state.save(tmp_path, number, model, trained(model, 1), {})
    assert {p.name for p in tmp_path.iterdir()} == {"9", "10"}


def test_the_newest_whole_state_wins(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    state.save(tmp_path / "a", 9, model, trained(model, 1), {})
    state.save(tmp_path / "b", 10, model, trained(model, 1), {})
    shutil.copytree(tmp_path / "b" / "10", tmp_path / "a" / "10")  # killed before the older one was dropped
    (tmp_path / "a" / "11").mkdir()
    (tmp_path / "a" / "11" / "weights.safetensors").write_bytes(b"half")
    (tmp_path / "a" / ".12.77.distill-tmp").mkdir()
    loaded = state.load(tmp_path / "a", other, trained(other, 0))
    assert loaded == {"step": 10}
    assert torch.equal(other.weight, model.weight)


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = trained(model, 1)
    state.save(tmp_path, 1, model, optimizer, {})
    before = model.weight.detach().clone()
    step(model, optimizer, range(1, 2))

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(atomic, "write_json", full)
    with pytest.raises(OSError, match="no space"):
        state.save(tmp_path, 2, model, optimizer, {})
    assert {p.name for p in tmp_path.iterdir()} == {"1"}
    assert state.load(tmp_path, other, trained(other, 0)) == {"step": 1}
    assert torch.equal(other.weight, before)
