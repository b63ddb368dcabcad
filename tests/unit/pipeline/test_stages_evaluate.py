"""What an evaluate step states of a variant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Prune
from distill.pipeline.stages.evaluate import _lacks_zeros


@pytest.mark.parametrize(
    ("pruner", "backend", "lacks"),
    [
        (Prune(uniform=False), "onnxruntime", True),
        (Prune(uniform=False), "openvino", True),
        (Prune(uniform=False), "torch", False),
        (Prune(uniform=False), "torchao", False),
        (Prune(), "onnxruntime", False),
        (None, "onnxruntime", False),
    ],
)
def test_files_without_the_zeros_of_their_checkpoint_are_known(pruner: Prune | None, backend: str, lacks: bool) -> None:
    """Parameters and multiplications are counted by the checkpoint, and left out for them."""
    step = SimpleNamespace(pruner=None if pruner is None else SimpleNamespace(settings=pruner))
    variant: Any = SimpleNamespace(step=step, backend=backend)
    assert _lacks_zeros(variant) == lacks
