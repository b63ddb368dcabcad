"""Whether the library tokenizers alone encodes texts as transformers does, for folders that are served without it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from distill.data.encode import Encoded, encode_texts
from distill.data.encode_words import encode_words
from distill.data.questions import encode_questions
from distill.data.task_types.words import words_of
from distill.deploy.export.record import Tokens
from distill.deploy.serve import tokens, whole
from distill.errors import UserError
from distill.models.token_types import typed

ODD = (
    *("", " ", "a", "\n\t a\u00a0b \r\n", "\u200b\ufeff", "\x00\x07", "don't re-do it: 3.50 \u20ac, 1e-5%!?"),
    "Zo\u00eb na\u00efve e\u0301 \ufb01x \u0130stanbul stra\u00dfe STRASSE",
    *("\U0001f468\u200d\U0001f469 \U0001f1f3\U0001f1f4", "\U00010348\U0001d54f", "\u4e2d\u6587\u5206\u8bcd"),
    *("\u65e5\u672c\u306e\u30c6", "\ud55c\uad6d\uc5b4", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440"),
    *("\u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e20\u0e32\u0e29\u0e32"),
    *("[CLS] a [SEP] [MASK] [PAD] [UNK]", "<s> a</s><mask> <pad><unk> <|endoftext|>", "[ MASK ] <S>"),
    *("word " * 600, "x" * 400),
)
"""Texts that tokenizers treat in different ways: empty, blank, with control characters, emoji, other scripts, special
tokens as a user may write them, and long. Of a pair of much longer ones the library would make millions of parts."""

SHORT = 16
"""Tokens to which `ODD` is cut too."""
PART = 8
"""Characters of the rows for each token to which they are cut: the library makes parts of what is cut off."""


def proved(folder: Path, rows: Sequence[Sequence[str]], longest: int) -> Tokens | None:
    """The facts with which the library tokenizers encodes texts as transformers does; None if it does not.

    Compared are the tokens of the rows and of `ODD`, alone, in pairs, as words and as questions with contexts. `ODD` is
    also cut to few tokens.

    Args:
        folder: an exported model.
        rows: one or two texts each.
        longest: number of tokens to which texts are truncated.
    """
    reference, most = whole.tokenizer_and_length(folder)
    if not (folder / tokens.FILE).is_file() or reference.pad_token_id is None:
        return None
    stated = Tokens(
        reference.pad_token_id,
        reference.padding_side == "left",
        reference.truncation_side == "left",
        int(most),
        tokens.content(folder),
        typed(reference),
        tokens.own(folder),
    )
    added = sorted({*reference.all_special_tokens, *reference.get_added_vocab()})
    odd = [*ODD, *(f"a {token} b{token}" for token in added)]
    texts = [*odd, *(text[: PART * longest] for row in rows for text in row)]
    try:
        own = tokens.read(folder, stated)
    except UserError:
        return None
    same = all(
        _equal(one, other)
        for some, length in ((ODD, min(SHORT, longest)), (texts, longest))
        for one, other in zip(_encoded(some, own, length), _encoded(some, reference, length), strict=True)
    )
    return stated if same else None


def serving(tokenizer: Any, checkpoint: Path, longest: int) -> Any:
    """The tokenizer that reads texts where a model is served without transformers: the library alone if it encodes
    texts as `tokenizer` does, else `tokenizer`.

    Args:
        checkpoint: folder of the model that it belongs to.
        longest: number of tokens to which texts are truncated.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        shutil.copy(checkpoint / "config.json", folder)
        with suppress(UserError):  # such a folder is not served so
            if (stated := proved(folder, [], longest)) is not None:
                return tokens.read(folder, stated)
    return tokenizer


def _encoded(texts: Sequence[str], tokenizer: Any, length: int) -> list[Encoded]:
    """The texts in every layout in which tasks encode them, cut to a length in tokens."""
    others = [*texts[1:], *texts[:1]]
    places = [np.array(words_of(text), np.int64).reshape(-1, 2) for text in texts]
    beginnings = [text[: PART * length] for text in texts], [text[: PART * length] for text in others]
    return [
        encode_texts([texts], tokenizer, length),
        encode_texts([texts, others], tokenizer, length),
        encode_words(texts, places, tokenizer, length),
        encode_questions(*beginnings, tokenizer, length),
    ]


def _equal(one: Encoded, other: Encoded) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(_arrays(one), _arrays(other), strict=True))


def _arrays(encoded: Encoded) -> list[Any]:
    words, spans = encoded.words, encoded.spans
    return [
        *(encoded.ids, encoded.offsets, encoded.segments),
        *([] if words is None else [words.positions, words.offsets, words.owners]),
        *([] if spans is None else [spans.owners, spans.characters]),
    ]
