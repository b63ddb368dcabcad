"""A hash of everything on which the tokens of a text depend. Everything that is stored in tokens has it in its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distill.models.token_types import typed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TEXTS = [
    "Zo\u00eb isn't na\u00efve: 42% of THIS\tcosts 3.50 \u20ac. ",
    "\u4e2d\u6587 \U0001f600\n<s> [MASK] don't \ufb01x  it",
    "",
]
_LENGTHS = (8, 16, None)
"""Maximum lengths, in tokens, to which these texts and their pairs are cut."""
_PATHS = ("name_or_path", "_file")
"""Endings of the settings of a tokenizer that say where its files are."""


@contextmanager
def cutting(tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
    """A block in which a tokenizer may truncate texts. A fast tokenizer keeps its last setting of truncation, which
    would be saved with the model; after the block it has none."""
    try:
        yield
    finally:
        tokenizer.backend_tokenizer.no_truncation()


def identity(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of everything in a tokenizer on which the tokens of a text depend.

    These are its `tokenizer.json`, its class and settings, such as the side on which texts are cut, the libraries, and
    the tokens of some texts.
    """
    import tokenizers
    import transformers

    from distill.runtime.storage.checksums import fingerprint

    settings = {key: value for key, value in tokenizer.init_kwargs.items() if not key.endswith(_PATHS)}
    attributes = (
        *(tokenizer.truncation_side, tokenizer.padding_side, tokenizer.model_input_names),
        *(tokenizer.all_special_tokens, tokenizer.all_special_ids),
    )
    return fingerprint(
        [
            tokenizer.backend_tokenizer.to_str(),
            type(tokenizer).__qualname__,
            _plain(settings),
            _plain(attributes),
            [transformers.__version__, tokenizers.__version__],
            [_tokens(tokenizer, texts, length) for texts in ([_TEXTS], [_TEXTS, _TEXTS[::-1]]) for length in _LENGTHS],
        ]
    )


def _plain(value: Any) -> Any:
    """A value as JSON can represent it, the same in every process."""
    if isinstance(value, dict):
        return sorted([str(key), _plain(inner)] for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    content = getattr(value, "__getstate__", lambda: None)()  # of a token that was added to a vocabulary
    return [type(value).__qualname__, _plain(content) if isinstance(content, dict) else None]


def types_of(tokenizer: PreTrainedTokenizerBase, ids: Any, types: Any) -> Any:
    """The token types of encoded texts, as their model gets them: all 0 where the tokenizer outputs none by itself.

    Args:
        ids, types: token ids and types of one text, or of several.
    """
    if typed(tokenizer):
        return types
    return [[0] * len(own) for own in ids] if ids and isinstance(ids[0], list) else [0] * len(ids)


def _tokens(tokenizer: PreTrainedTokenizerBase, texts: list[list[str]], length: int | None) -> Any:
    with cutting(tokenizer):
        out = tokenizer(*texts, truncation=length is not None, max_length=length, return_token_type_ids=True)
    return [out["input_ids"], types_of(tokenizer, out["input_ids"], out["token_type_ids"])]
