"""Settings of a sentence embedder in the layout of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distill.errors import ConfigError
from distill.models import families
from distill.models.families import sentence
from distill.models.families.head import stored_head
from distill.models.families.record import VECTORS
from distill.models.families.vectors import Vectors, read

_CAPITALS = "AÄЯ"
"""Letters by which a tokenizer that lower-cases texts itself is known."""


def pooling(path: str | Path) -> str:
    """Pooling of a sentence embedder from its settings, as for `families.embedding.pooled`; mean for any other model.

    Raises:
        DataError: for modules that are not supported, and for settings that cannot be read.
    """
    head = stored_head(path)
    return (read(path) or Vectors()).pooling if head is not None and head.architecture == VECTORS else "mean"


def check_exported(path: str | Path) -> None:
    """Raise ConfigError for a teacher whose student cannot be exported as an embedder, because it has a linear
    layer."""
    if (read(path) or Vectors()).width is not None:
        raise ConfigError(
            "teacher.name: got a sentence embedder with Dense after its pooling; must have only Normalize after it for "
            "its student to be exported as an embedder; choose another, or leave the stage that exports it out of "
            "pipeline"
        )


def longest(path: str | Path, tokenizer: Any, config: Any) -> int:
    """Number of tokens at which the texts of a model are cut by default.

    sentence-transformers states it for its folders; otherwise the tokenizer does. It never exceeds the model's maximum.
    """
    own = tokenizer.model_max_length
    stated = sentence.longest(path, own, config)
    return int(min(own if stated is None else stated, families.max_length(config)))


def lower_cased(path: str | Path, tokenizer: Any) -> Any:
    """The tokenizer of a folder, changed to lower-case texts first if sentence-transformers does so for that folder."""
    from tokenizers.normalizers import Lowercase, Sequence

    backend = tokenizer.backend_tokenizer
    own = backend.normalizer
    same = own is not None and all(own.normalize_str(c) == own.normalize_str(c.lower()) for c in _CAPITALS)
    if not same and sentence.reading(path).lower:
        backend.normalizer = Sequence([Lowercase(), *([] if own is None else [own])])
        tokenizer.lower_cased_first = True
    return tokenizer


def is_lower_cased(tokenizer: Any) -> bool:
    """Whether `lower_cased` changed a tokenizer. Its own files do not state the change."""
    return bool(getattr(tokenizer, "lower_cased_first", False))
