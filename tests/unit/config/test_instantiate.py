"""`_target_` settings become callables, and only functions that are allowed in their place."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from distill import losses
from distill.config import instantiate
from distill.errors import ConfigError
from distill.training import schedule


def test_a_function_is_bound_to_its_settings() -> None:
    bound: Any = instantiate.bind(
        {"_target_": "distill.training.schedule.linear", "_partial_": True, "warmup": 0.5}, "schedule"
    )
    assert (bound.func, bound.args, bound.keywords) == (schedule.linear, (), {"warmup": 0.5})
    assert bound(0, 10) == schedule.linear(0, 10, warmup=0.5) == 0.2


def test_the_losses_are_those_that_the_package_exports() -> None:
    assert list(instantiate.PLACES["loss"]) == [f"distill.losses.{name}" for name in losses.__all__]
    for target in instantiate.PLACES["loss"]:
        bound: Any = instantiate.bind({"_target_": target}, "loss")
        assert bound.func is getattr(losses, target.rpartition(".")[2])


@pytest.mark.parametrize(
    ("node", "place", "named"),
    [
        ({"_target_": "builtins.print"}, "loss", "loss._target_"),
        ({"_target_": "distill.losses.mlm"}, "schedule", "schedule._target_"),
        ({}, "optimizer", "optimizer._target_"),
        ({"_target_": "torch.optim.SGD", "_args_": [1]}, "optimizer", "optimizer._args_"),
        ({"_target_": "torch.optim.SGD", "lr": {"_target_": "builtins.print"}}, "optimizer", "optimizer.lr._target_"),
        (
            {"_target_": "torch.optim.SGD", "lr": [{"_target_": "builtins.print"}]},
            "optimizer",
            "optimizer.lr.0._target",
        ),
        ({"_target_": "torch.optim.SGD", "lr": print}, "optimizer", "optimizer.lr"),
    ],
)
def test_an_unchecked_setting_runs_no_code(
    node: dict[str, Any], place: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "print", lambda *_: pytest.fail("it was called"))
    with pytest.raises(ConfigError) as refused:
        instantiate.bind(node, place)
    assert refused.value.messages[0].startswith(named)
