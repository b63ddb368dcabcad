"""Tiny models of every family, and settings that are composed once.

All parameters are random, so that a test fails if one of them is left out.
"""

from __future__ import annotations

import copy
import gc
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from torch import Tensor

from distill.config import folder

_TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
classifier, sentences = _TINY["classifier"], _TINY["sentences"]


def _tiny_model(name: str, head: str = "MaskedLM", layers: int = 3, seed: int = 0, **settings: Any) -> Any:
    settings = {"num_labels": 3} | settings
    return _TINY["model"](name, head, num_hidden_layers=layers, seed=seed, std=0.3, **settings)


@pytest.fixture
def tiny_model() -> Callable[..., Any]:
    """`tiny_model(family, head="MaskedLM", layers=3, seed=0, num_labels=3)`: a model in eval mode."""
    return _tiny_model


@pytest.fixture
def tiny_batch() -> dict[str, Tensor]:
    """Two rows of 7 tokens, of which the second has 3 of padding, with the inputs of BERT."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    ids = torch.randint(5, 60, (2, 7), generator=generator) * mask + (1 - mask)
    types = torch.tensor([[0] * 4 + [1] * 3, [0, 0, 1, 1, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "labels": torch.tensor([0, 2])}


@pytest.fixture(scope="session", autouse=True)
def _imported_is_kept() -> None:
    """Exclude what is imported from later garbage collections: there is a full one in each training."""
    gc.collect()
    gc.freeze()


_VALUE = re.compile(r"(?!hydra\.)[a-z_][\w.]*=")
"""A word of a command line that sets a value or chooses a file of a group, and adds or deletes nothing."""


@pytest.fixture(scope="session", autouse=True)
def composed_once() -> Iterator[Any]:
    """Hydra merges the same files once; the values of a test are then set in a copy, by Hydra's own function.

    Merging takes half a second, and hundreds of tests need the settings of a recipe. A test of the merging itself has
    the fixture `real_compose`.
    """
    compose, groups, merged = hydra.compose, {path.name for path in folder("conf").iterdir()} | {"recipe"}, {}

    def once(name: str, overrides: list[str]) -> Any:
        values = [word for word in overrides if _VALUE.match(word) and word.partition("=")[0] not in groups]
        files = tuple(word for word in overrides if word not in values)
        if any("hydra." in word for word in files):
            return compose(name, overrides)
        if files not in merged:
            merged[files] = compose(name, [*files])
        settings = copy.deepcopy(merged[files])
        try:
            ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), settings)
        except HydraException:
            return compose(name, overrides)  # with the message of a run
        return settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra, "compose", once)
        yield compose


@pytest.fixture
def real_compose(composed_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra reads and merges its files, as in a run."""
    monkeypatch.setattr(hydra, "compose", composed_once)
