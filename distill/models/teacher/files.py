"""Opens the files of a model, with transformers silent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from distill.models.families.weights import opened, weight_files


def stored(path: str | Path, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor [...] of these names in the safetensors files of a folder. Raises DataError for a damaged
    file."""
    for file in weight_files(path):
        with opened(file, "pt") as tensors:
            for name in sorted(set(tensors.keys()) & set(names)):
                yield name, tensors.get_tensor(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its warnings about missing heads, which the callers handle, and its
    question whether to run code of a folder, which is answered with no."""
    from transformers import dynamic_module_utils
    from transformers.utils import logging

    level, bars, wait = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        dynamic_module_utils.TIME_OUT_REMOTE_CODE,
    )
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    finally:
        dynamic_module_utils.TIME_OUT_REMOTE_CODE = wait
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
