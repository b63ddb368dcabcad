"""Tiny models of every family.

All parameters are random, so that a test fails if one of them is left out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch import Tensor

from tests import tiny

classifier, sentences = tiny.classifier, tiny.sentences


def _tiny_model(name: str, head: str = "MaskedLM", layers: int = 3, seed: int = 0, **settings: Any) -> Any:
    settings = {"num_labels": 3} | settings
    return tiny.model(name, head, num_hidden_layers=layers, seed=seed, std=0.3, **settings)


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


@pytest.fixture
def no_accelerator_remains() -> Iterator[None]:
    """All accelerators of a process share one precision: other tests need another."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)
