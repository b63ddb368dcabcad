"""Runs of distill inside the test process, which leave torch as they found it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    import torch
    from transformers.utils import logging

    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@pytest.fixture(scope="session")
def run() -> Run:
    """`run(folder, recipe, *overrides)`: what `python -m distill` does in `folder`, checks included."""

    def call(folder: Path, recipe: str, *overrides: str) -> Any:
        from distill import check, config
        from distill import run as walk

        settings = config.load_config([f"recipe={recipe}", *overrides])
        assert check.settings(settings, recipe) == []
        with contextlib.chdir(folder), _restored():
            return walk.run(settings, recipe, list(overrides))

    return call
