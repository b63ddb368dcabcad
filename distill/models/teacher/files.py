"""Opens the files of a model and turns every error about them into one message."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from distill.errors import DataError, UserError
from distill.models.families.weights import opened, tensors_of, weight_files

SAVED = "a folder that transformers loads; save model and tokenizer into it with save_pretrained"
"""Rule and advice of the errors on files that cannot be loaded."""


def stored(path: str | Path, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor [...] of these names in the safetensors files of a folder. Raises DataError for a damaged
    file."""
    for file in weight_files(path):
        with opened(file, "pt") as tensors:
            for name in sorted(set(tensors.keys()) & set(names)):
                yield name, tensors.get_tensor(name)


def stored_except(path: str | Path, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor [...] of all other names. Raises DataError for a damaged file."""
    for file in weight_files(path):
        with opened(file, "pt") as tensors:
            for name in sorted(set(tensors.keys()) - set(names)):
                yield name, tensors.get_tensor(name)


def check_weights(path: str | Path) -> None:
    """Raise DataError, which names the file, unless the folder contains safetensors and each of them can be opened."""
    tensors_of(path)


PANIC = "PanicException"
"""Name of the class, which is no subclass of Exception, of an error in the Rust code of tokenizers."""


@contextmanager
def readable(path: str | Path, needed: str = SAVED) -> Iterator[None]:
    """Raise a DataError for every error of the block, which reads files of a model.

    transformers and tokenizers have no error class for a file with wrong content, and may raise any exception.

    Args:
        needed: rule and advice of the message.
    """
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path}: got files that cannot be loaded ({reason}); must be {needed}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its warnings about missing heads, which the callers handle."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
