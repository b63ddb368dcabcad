"""Turns every error about the files of a model into one message."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distill.errors import DataError, UserError

SAVED = "a folder that transformers loads; save model and tokenizer into it with save_pretrained"
"""Rule and advice of the errors on files that cannot be loaded."""

LARGEST = 2**28
"""Bytes of a file of settings, or of a vocabulary. A file with holes may be large without space on a disk."""
_POINTER = b"version https://git-lfs"
"""With which a file begins that Git LFS puts into the place of a large one."""

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
        check_pointer(path)
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path}: got files that cannot be loaded ({reason}); must be {needed}") from error


@contextmanager
def encodable(path: str | Path) -> Iterator[None]:
    """Raise a DataError for an error of the Rust code of tokenizers in the block, such as of a pattern that backtracks
    too often in a text."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"{path}: got a tokenizer that fails on one of the texts ({reason}); must encode every text; correct the "
            "patterns in tokenizer.json, or leave the text out"
        ) from error


def check_size(file: Path) -> None:
    """Raise DataError for a file of more than `LARGEST` bytes, which would be read into memory as a whole, and for a
    device or a pipe, which would be waited for."""
    with suppress(OSError):
        status = file.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise DataError(f"{file}: got a device or a pipe; must be a file; copy the folder again")
        if (size := status.st_size) > LARGEST:
            raise DataError(
                f"{file}: got {size >> 20:,} MiB; must be at most {LARGEST >> 20} MiB, as every file of settings and "
                "every vocabulary is; copy or download the folder again"
            )


def check_pointer(path: str | Path) -> None:
    """Raise DataError for a file of Git LFS in the place of a model's, also in a folder."""
    files = [path] if Path(path).is_file() else [*Path(path).glob("*.safetensors"), *Path(path).glob("*.json")]
    for file in map(Path, files):
        with suppress(OSError), file.open("rb") as content:
            if content.read(len(_POINTER)) == _POINTER:
                raise DataError(
                    f"{file}: got a pointer of Git LFS; must be the file itself; run git lfs pull in its clone"
                )
