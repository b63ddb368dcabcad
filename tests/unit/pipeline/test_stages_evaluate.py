"""What an evaluate step states of a variant."""

from __future__ import annotations

import platform
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distill.config import Prune, Train
from distill.config.plan import Step
from distill.inference import memory
from distill.inference.variants import Variant
from distill.pipeline.stages.evaluate import _check_memory, _lacks_zeros, _order
from distill.runtime import versions


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


@pytest.mark.parametrize(
    ("role", "mib", "left", "fits"),
    [
        ("student", 400, 900, True),
        ("student", 500, 900, False),
        ("student", 500, None, True),
        ("teacher", 500, 900, True),
    ],
)
def test_a_variant_that_does_not_fit_into_memory_is_left_out_of_the_timings(
    role: Any, mib: float, left: int | None, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All variants are in memory at once. Linux killed the run at its end, and each run that went on with it. Without
    the reference, nothing can be reported."""
    monkeypatch.setattr(memory, "left", lambda: None if left is None else left * 2**20)
    with nullcontext() if fits else pytest.raises(MemoryError, match=r"only 0\.9 GiB of memory were left"):
        _check_memory(Variant(role, "torch", "fp32", Step("recover", Train())), mib)


def test_the_reference_and_small_variants_are_loaded_first(tmp_path: Path) -> None:
    """So that those which do not fit any more are the large ones."""
    step, sizes = Step("recover", Train()), {"torch": 9, "openvino": 3, "onnxruntime": 5}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    machine = SimpleNamespace(device=torch.device("cpu"))
    loader: Any = SimpleNamespace(runtime=SimpleNamespace(machine=machine), timed_tasks=lambda variant: ["own"])
    loader.paths = lambda variant, task: [tmp_path / variant.backend]
    forms = [("torch", "fp32"), ("torch", "fp32_compiled"), ("onnxruntime", "fp32"), ("openvino", "int8")]
    every = [Variant("teacher", *form, step) for form in forms] + [Variant("student", *form, step) for form in forms]
    ordered = [variant.name for variant in sorted(every, key=lambda each: _order(loader, each))]
    assert ordered[:4] == [
        "teacher onnxruntime fp32",
        "teacher torch fp32",
        "teacher openvino int8",
        "student openvino int8",
    ]
    assert {name.split()[1] for name in ordered[-3:]} == {"torch"}


@pytest.mark.skipif(platform.system() != "Linux", reason="known on Linux alone")
def test_the_memory_that_is_left_is_less_than_all() -> None:
    left, every = memory.left(), versions.memory()
    assert left is not None
    assert every is not None
    assert left < every
