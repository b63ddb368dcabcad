"""A teacher's embeddings for the tokens of another tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill import family
from distill.family.record import position_table_after_padding

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
    """For every token of the tokenizer `new`, the same token of `old`, or those that it makes of the characters.

    Special tokens stand for each other by their role; what `old` has no token for is its unknown token. A token that
    begins a word is looked for at the beginning of one.
    """
    tokens = [token or "" for token in new.convert_ids_to_tokens(list(range(len(new))))]
    known, wordpiece = old.get_vocab(), [_is_wordpiece(tokenizer) for tokenizer in (new, old)]
    same = wordpiece[0] == wordpiece[1]
    texts = []
    for token in tokens:
        text = token.removeprefix("##") if wordpiece[0] else new.convert_tokens_to_string([token])
        begins = not token.startswith("##") if wordpiece[0] else text != text.lstrip()
        texts.append(f" {text.strip()}" if begins else text.strip())
    made = old(texts, add_special_tokens=False)["input_ids"]
    unknown = old.unk_token_id if old.unk_token_id is not None else old.pad_token_id
    found = []
    for token, text, ids in zip(tokens, texts, made, strict=True):
        inside = f"##{text}" if wordpiece[1] and not text.startswith(" ") else None
        exact = token if same else inside
        found.append([known[exact]] if exact in known else ids or [unknown])
    for name in reversed(_SPECIAL):
        if (number := getattr(new, name)) is not None:
            other = getattr(old, name)
            found[number] = [unknown if other is None else other]
    return found


def _is_wordpiece(tokenizer: Any) -> bool:
    """Whether tokens inside a word are marked, and not those that begin one."""
    return any(token.startswith("##") for token in tokenizer.get_vocab())


@torch.no_grad()
def with_vocabulary(model: Any, tokenizer: Any, rows: Sequence[Sequence[int]]) -> Any:
    """A copy of a language model for another tokenizer: token i is the mean of the tokens `rows[i]`.

    The vocabulary transfer of Gee et al. 2022, arXiv 2402.09977, section 3, for embeddings and output bias alike.
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
        wanted = type(model)(larger).state_dict()
    # What has a row for each token: a head that is not tied to the embeddings has its own, and may have two biases.
    state = {key: value if value.shape == wanted[key].shape else mean(value) for key, value in state.items()}
    record = family.family_of(model)
    if record.max_length is position_table_after_padding:
        key = f"{record.encoder}.embeddings.position_embeddings.weight"
        state[key] = state[key].roll(config.pad_token_id - model.config.pad_token_id, 0)
    made = type(model)(config)
    made.load_state_dict(state)
    return made.to(model.device).train(model.training)


def config_for(config: Any, tokenizer: Any) -> None:
    """Let a config say what the tokenizer does: number of tokens, and which are special."""
    config.vocab_size = len(tokenizer)
    for name in _KEPT:
        if hasattr(config, name) and getattr(tokenizer, name) is not None:
            setattr(config, name, getattr(tokenizer, name))
