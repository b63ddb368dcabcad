"""Transfers a teacher's token embeddings to the vocabulary of another tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.models import families
from distill.models.families.record import position_table_after_padding

_SPECIAL = (
    "pad_token_id",
    "unk_token_id",
    "cls_token_id",
    "sep_token_id",
    "mask_token_id",
    "bos_token_id",
    "eos_token_id",
)
_KEPT = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")


def pieces(new: Any, old: Any) -> list[list[int]]:
    """For every token of the tokenizer `new`: the same token of `old`, or the tokens into which `old` splits its text.

    Special tokens are matched by role (padding, mask, ...). Text that `old` cannot encode becomes its unknown token.
    Whether a token begins a word is respected.
    """
    tokens = [token or "" for token in new.convert_ids_to_tokens(list(range(rows_of(new))))]
    vocabulary, wordpiece = old.get_vocab(), [_is_wordpiece(tokenizer) for tokenizer in (new, old)]
    same = wordpiece[0] == wordpiece[1]
    texts = []
    for token in tokens:
        text = token.removeprefix("##") if wordpiece[0] else new.convert_tokens_to_string([token])
        # Decoders of SentencePiece drop the space before the first token.
        spaced = token.startswith("\u2581") or text != text.lstrip()
        begins = not token.startswith("##") if wordpiece[0] else spaced
        texts.append(f" {text.strip()}" if begins else text.strip())
    encoded = old(texts, add_special_tokens=False)["input_ids"]
    unknown = old.unk_token_id if old.unk_token_id is not None else old.pad_token_id
    rows = []
    for token, text, ids in zip(tokens, texts, encoded, strict=True):
        exact = token if same else None if text.startswith(" ") else f"##{text}" if wordpiece[1] else text
        # A letter in the vocabulary of a tokenizer of bytes stands for a byte, which may be one of another text.
        found = exact in vocabulary and (wordpiece[1] or old.convert_tokens_to_string([exact]).strip() == text.strip())
        rows.append([vocabulary[exact]] if found else ids or [unknown])
    for name in reversed(_SPECIAL):
        if (new_id := getattr(new, name)) is not None:
            old_id = getattr(old, name)
            rows[new_id] = [unknown if old_id is None else old_id]
    return rows


def rows_of(tokenizer: Any) -> int:
    """Number of rows of a token embedding. It exceeds the number of tokens where a tokenizer leaves out ids."""
    return 1 + max(tokenizer.get_vocab().values())


def _is_wordpiece(tokenizer: Any) -> bool:
    """Whether the vocabulary marks tokens inside a word (`##`) rather than tokens that begin one."""
    return any(token.startswith("##") for token in tokenizer.get_vocab())


@torch.no_grad()
def with_vocabulary(model: Any, tokenizer: Any, rows: Sequence[Sequence[int]]) -> Any:
    """A copy of a language model for another tokenizer. The embedding of token i is the mean of the embeddings of
    `rows[i]`.

    The vocabulary transfer of Gee et al. 2022, arXiv 2402.09977, section 3. Deviation: also for the output bias.
    """
    config = copy.deepcopy(model.config)
    config_for(config, tokenizer)
    flat = torch.tensor([token for row in rows for token in row], device=model.device)
    starts = torch.tensor([0, *(len(row) for row in rows[:-1])], device=model.device).cumsum(0)

    def mean(values: Any) -> Tensor:
        return F.embedding_bag(flat, values.reshape(len(values), -1), starts, mode="mean").reshape(
            -1, *values.shape[1:]
        )

    state, larger = model.state_dict(), copy.deepcopy(model.config)
    larger.vocab_size += 1
    with torch.device("meta"):
        grown = type(model)(larger).state_dict()
    # Tensors with a row per token grow with the vocabulary. A head that is not tied has a tensor of its own.
    state = {key: value if value.shape == grown[key].shape else mean(value) for key, value in state.items()}
    record = families.family_of(model)
    if record.max_length is position_table_after_padding:
        key = f"{record.encoder}.embeddings.position_embeddings.weight"
        state[key] = state[key].roll(config.pad_token_id - model.config.pad_token_id, 0)
    converted = type(model)(config)
    converted.load_state_dict(state)
    return converted.to(model.device).train(model.training)


def config_for(config: Any, tokenizer: Any) -> None:
    """Set, in place, a config's vocabulary size and special token ids to the tokenizer's."""
    config.vocab_size = rows_of(tokenizer)
    for name in _KEPT:
        if hasattr(config, name) and getattr(tokenizer, name) is not None:
            setattr(config, name, getattr(tokenizer, name))
