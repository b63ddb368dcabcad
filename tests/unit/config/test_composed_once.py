"""Settings that tests compose from what Hydra merged before are those that it composes anew."""

from __future__ import annotations

import hydra
import pytest
from hydra.errors import HydraException

from distill.config import load_config

WORDS = [
    "recipe=prune",
    "tasks=glue",
    "target.speedup=[2,4]",
    "seed=7",
    "+stage@stages.vocabulary=vocabulary",
    "stages.vocabulary.start=prune",
    "output=a-${seed}",
    "~stages.recover.terms.soft_targets",
]


def test_they_are_the_same(composed_once, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = load_config(WORDS), load_config(WORDS)
    first.stages.clear()
    with monkeypatch.context() as patch:
        patch.setattr(hydra, "compose", composed_once)
        real = load_config(WORDS)
    assert again == real
    assert (real.target.speedup, real.seed, real.output) == ([2, 4], 7, "a-7")


def test_a_message_is_hydras(composed_once, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    for compose in (hydra.compose, composed_once):
        monkeypatch.setattr(hydra, "compose", compose)
        with pytest.raises(HydraException) as refused:
            load_config(["recipe=prune", "seed=many"])
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_a_single_setting_need_not_be_in_a_list() -> None:
    assert load_config("recipe=prune") == load_config(["recipe=prune"])
