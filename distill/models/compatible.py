"""Whether two models can get the same token ids, and their outputs can be compared one by one."""

from __future__ import annotations

from typing import Any

from distill.models.families.head import without_defaults

PADDED = 128
"""Rows by which the embedding tables of two models of one tokenizer may differ, as tables are padded to multiples."""


MULTILINGUAL = 200_000
"""Tokens of vocabularies for many languages, which models of several classes have."""


def misfit(config: Any, other: Any) -> str | None:
    """What of a model contradicts another one of this `other` config, to stand after `got`; None if nothing does.

    Vocabularies of different sizes are those of different tokenizers, whose token ids mean other tokens. So are
    vocabularies of almost one size with other padding tokens, such as those of BERT and MPNet; not the largest ones:
    a BERT with the tokens of XLM-RoBERTa keeps the padding token of its class. The same names of labels in another
    order would compare each output with that of another label.
    """
    sizes = int(config.vocab_size), int(other.vocab_size)
    if abs(sizes[0] - sizes[1]) >= PADDED:
        return f"a vocabulary of {sizes[0]} tokens; must be the {sizes[1]} of the other model, as both get the same ids"
    pads = getattr(config, "pad_token_id", None), getattr(other, "pad_token_id", None)
    if None not in pads and pads[0] != pads[1] and sizes[0] != sizes[1] and max(sizes) < MULTILINGUAL:
        return f"the padding token {pads[0]}; must be {pads[1]} as of the other model, as both get the same ids"
    names, others = label_names(config), label_names(other)
    if names != others and sorted(names) == sorted(others):
        return f"the labels {', '.join(names)}; must be in the order of the other model, {', '.join(others)}"
    return None


def label_names(config: Any) -> tuple[str, ...]:
    """Names of the outputs, in their order, as from `without_defaults`."""
    stored = getattr(config, "id2label", None) or {}
    return without_defaults(tuple(str(stored[number]) for number in sorted(stored)))
