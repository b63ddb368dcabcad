"""Whether a tokenizer gives its model token types. Without torch."""

from __future__ import annotations

from typing import Any

UNSTATED = ("PreTrainedTokenizerFast", "TokenizersBackend", "AlbertTokenizer", "AlbertTokenizerFast", "XLNetTokenizer",
            "XLNetTokenizerFast", "HerbertTokenizer", "HerbertTokenizerFast")  # fmt: skip
"""Classes of tokenizers that output token types in transformers 4, and do not in 5 unless their files say so."""


def typed(tokenizer: Any) -> bool:
    """Whether a tokenizer outputs token types by itself, in the version of transformers for which it was made."""
    stated = getattr(tokenizer, "init_kwargs", {}).get("model_input_names")
    names = tokenizer.model_input_names if stated is None else stated
    return "token_type_ids" in names or (stated is None and type(tokenizer).__name__ in UNSTATED)
