"""Tokenizers as their tokenizer.json says.

From version 5 on, transformers takes only the vocabulary and the merges from this file where a tokenizer has a class of
its own (`BertTokenizer`, `DebertaV2Tokenizer`, ...), and builds the rest anew. A folder that version 4 wrote may say
otherwise: another kind of model, other normalizers, one separator in place of two between texts. The model was trained
with the file.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from distill.models.teacher import tokenizer_settings
from distill.models.token_types import typed

FILE = "tokenizer.json"
ENDS = ("add_bos_token", "add_eos_token")
"""Settings of Gemma's tokenizers. Version 4 obeys them whatever the file says; version 5 neither reads nor writes them
beside a file."""
PROBES = (
    "",  # first: transformers takes a pair with an empty second text for a single text
    *("Hello w\u00f6rld, don't re-do it: 3.50 \u20ac!", " two  blanks\u00a0here ", "a\tb\nc \u200b \u2026"),
    *("na\u00efve Caf\u00e9 e\u0301 \ufb01x", "\uff26\uff55\uff4c\uff4c \uff01", "\u4e2d\u6587\u5206\u8bcd"),
    *("\u65e5\u672c\u306e", "\u041f\u0440\u0438\u0432\u0435\u0442", "STRASSE stra\u00dfe \u0130"),
)
"""Texts in which normalizers and parts of words differ."""


def as_written(path: str | Path, tokenizer: Any) -> Any:
    """The tokenizer of a folder, or another one if it gives other tokens than the folder's tokenizer.json, as
    transformers 4 reads that: with the settings of tokenizer_config.json that it applies to it."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Path(path) / FILE
    if not file.is_file() or type(tokenizer) is PreTrainedTokenizerFast:
        return tokenizer
    written = Tokenizer.from_file(str(file))
    written.no_truncation()
    written.no_padding()
    settings = tokenizer_settings.read(Path(path) / tokenizer_settings.FILES[0])
    _set(written, settings, tokenizer)
    if (around := _around(tokenizer, settings)) is not None:
        written.post_processor = around
    if _same(written, tokenizer):
        return tokenizer
    names = list(dict.fromkeys([*tokenizer.model_input_names, "token_type_ids"]))
    # The class may have special tokens that no file states.
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if _has(written, token)}
    own = PreTrainedTokenizerFast.from_pretrained(
        str(path),
        trust_remote_code=False,
        local_files_only=True,
        model_input_names=names if typed(tokenizer) else tokenizer.model_input_names,
        **special,
    )
    own.backend_tokenizer.normalizer = written.normalizer
    own.backend_tokenizer.pre_tokenizer = written.pre_tokenizer
    if around is not None:
        own.backend_tokenizer.post_processor = around
    return own


def with_stated_names(path: str | Path, tokenizer: Any) -> Any:
    """The tokenizer of a folder. If transformers 5 saved it without names of its inputs, it states those that it has
    there: another version may output others (`typed`)."""
    settings = tokenizer_settings.read(Path(path) / tokenizer_settings.FILES[0])
    if "backend" in settings and "model_input_names" not in settings:  # no earlier version writes the backend
        tokenizer.init_kwargs["model_input_names"] = list(tokenizer.model_input_names)
    return tokenizer


def _has(written: Any, token: Any) -> bool:
    return isinstance(token, str) and written.token_to_id(token) is not None


def _same(written: Any, tokenizer: Any) -> bool:
    """Whether a tokenizer has the tokens of the one that is written, and gives the same of the probes, alone and in
    pairs."""
    known = tokenizer.get_vocab()
    if any(known.get(token) != number for token, number in written.get_vocab().items()):
        return False  # the class takes added tokens from another file
    probes = [*((text,) for text in PROBES), *itertools.pairwise(PROBES)]
    return all(written.encode(*texts).ids == tokenizer(*texts)["input_ids"] for texts in probes)


def _set(written: Any, settings: dict[str, Any], tokenizer: Any) -> None:
    """Apply what transformers 4 applies to a tokenizer.json: settings of BERT's normalizer where a class has them, as
    HerBERT's has not, and the blank that is put before a text of bytes."""
    from tokenizers import normalizers, pre_tokenizers

    if isinstance(written.normalizer, normalizers.BertNormalizer) and hasattr(tokenizer, "do_lower_case"):
        written.normalizer.lowercase = settings.get("do_lower_case", True)
        written.normalizer.strip_accents = settings.get("strip_accents")
        written.normalizer.handle_chinese_chars = settings.get("tokenize_chinese_chars", True)
    if isinstance(written.pre_tokenizer, pre_tokenizers.ByteLevel):
        written.pre_tokenizer.add_prefix_space = settings.get("add_prefix_space", False)


def _around(tokenizer: Any, settings: dict[str, Any]) -> Any:
    """What transformers 4 puts around texts by the settings of `ENDS`; None where they do not count."""
    from tokenizers import processors

    named = str(settings.get("tokenizer_class") or type(tokenizer).__name__).removesuffix("Fast")
    if named != "GemmaTokenizer" or "backend" in settings or not settings.keys() & {*ENDS}:
        return None
    first = tokenizer.bos_token if settings.get(ENDS[0], True) else None
    last = tokenizer.eos_token if settings.get(ENDS[1]) else None

    def part(name: str, number: int) -> str:
        return " ".join(f"{each}:{number}" for each in (first, name, last) if each)

    return processors.TemplateProcessing(
        single=part("$A", 0),
        pair=f"{part('$A', 0)} {part('$B', 1)}",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in (first, last) if token],
    )
