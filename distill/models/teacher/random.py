"""A tiny random model, for smoke runs and tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from distill.models.teacher.files import quiet
from distill.runtime.storage import atomic

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def random_teacher(
    folder: str | Path,
    layers: int,
    texts: Iterable[str],
    hidden_size: int = 32,
    intermediate_size: int = 72,
    heads: int | None = None,
) -> str:
    """Write a tiny random BERT with a tokenizer of the words of `texts`. Returns the folder. Without a number of heads,
    each has 16 channels.

    The same arguments always give the same files.
    """
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    tokenizer = BertTokenizer(vocab=_vocabulary(texts), model_max_length=512)
    tiny = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads or hidden_size // 16,
        intermediate_size=intermediate_size,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForMaskedLM(tiny)
    with atomic.writing(Path(folder)) as temporary, quiet():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return str(folder)


def _vocabulary(texts: Iterable[str], words: int = 500) -> dict[str, int]:
    """Token -> id: special tokens, every character alone and as a continuation, and the most frequent words.

    The trainer in `tokenizers` is not used, because it gives another order in every process.
    """
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:words]
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    continued = [f"##{character}" for character in characters]
    pieces = [*SPECIAL_TOKENS, *characters, *continued, *frequent]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
