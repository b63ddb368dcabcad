"""Vocabulary pruning: keeps only the tokens that occur in given texts. Embeddings are most of a small model's size.

The trimming of Abdaoui et al. 2020, arXiv 2010.05609. Deviation: some unused tokens are kept too, so that a text of
kept tokens is segmented as before and no text gets more unknown tokens.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from distill.data.encode import batches
from distill.errors import ConfigError, UserError
from distill.models import families
from distill.models.families.record import position_table_after_padding

TYPES = ("WordPiece", "BPE", "Unigram", "WordLevel")
"""Tokenization models of the tokenizers library that are supported."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")


def token_counts(texts: Iterable[str], tokenizer: Any) -> Counter[int]:
    """Token id -> number of occurrences in the texts, without the special tokens that the tokenizer adds."""
    counts: Counter[int] = Counter()
    for batch in batches(texts):
        for ids in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
            counts.update(ids)
    return counts


def pruned_tokenizer(tokenizer: Any, ids: Iterable[int]) -> tuple[Any, Tensor]:
    """A fast tokenizer with the tokens `ids` and all tokens that it needs; and the old ids [V'] of its tokens,
    ascending.

    A text whose tokens are all kept is segmented as before:
    - WordPiece takes the longest matching token; if it is kept, a smaller vocabulary has no longer one.
    - BPE applies the first matching merge of its list; all merges that lead to a kept token are kept, in order, with
      both parts.
    - Unigram takes the segmentation with the highest score, which stays the highest. The score of unknown characters
      depends on the lowest score of all tokens, whose token is kept.

    No text gets more unknown tokens, because every token that is a single character is kept. Both hold if all
    characters of every token are tokens too, as they are after training; tokens for which this is false are kept. Only
    in WordLevel tokenizers removed words become unknown.

    Raises:
        UserError: for a tokenizer that is not supported, and for ids that are not in its vocabulary.
    """
    from tokenizers import Tokenizer

    settings = _tokenizer_json(tokenizer)
    model, vocabulary = settings["model"], tokenizer.get_vocab()
    keep = set(ids)
    if foreign := keep - set(vocabulary.values()):
        raise UserError(
            f"vocabulary: got token id {min(foreign)} and a tokenizer of {len(vocabulary)} tokens; must be ids of its "
            "tokens; count them with the same tokenizer"
        )
    keep |= {*tokenizer.all_special_ids, *(holder[key] for holder, key in _stored_ids(settings))}
    tokens = {token for token, number in vocabulary.items() if number in keep} | set(_needed(model))
    if model["type"] == "BPE":
        tokens = _with_parts(tokens, model)
        model["merges"] = [pair for pair in model["merges"] if _merged(pair, model) in tokens]
    kept = sorted(vocabulary[token] for token in tokens)
    new = {old: number for number, old in enumerate(kept)}
    for holder, key in _stored_ids(settings):
        holder[key] = new[holder[key]]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for entry in model["vocab"] if entry[0] in tokens]
    else:
        model["vocab"] = {token: new[old] for token, old in model["vocab"].items() if token in tokens}
    result = copy.deepcopy(tokenizer)
    result._tokenizer = Tokenizer.from_str(json.dumps(settings))
    if result.get_vocab() != {token: new[vocabulary[token]] for token in tokens}:
        raise UserError(
            "vocabulary: got a tokenizer that numbers its tokens with gaps; must number those of its model from 0 and "
            "added ones after them; save it again without gaps"
        )
    return result, torch.tensor(kept)


@torch.no_grad()
def pruned_embeddings(model: Any, kept: Tensor, tokenizer: Any) -> Any:
    """A copy of `model`, in float32, with only the tokens `kept` [V'], for the tokenizer of `pruned_tokenizer`.

    Its outputs on new token ids equal the outputs of `model` on the old ones; a language model outputs the logits of
    the kept tokens. Token ids in the config that are not kept become those that the tokenizer has by the same name, or
    None: the config of EuroBERT must have some.

    Raises:
        ConfigError: if `kept`, model and tokenizer do not belong together, or if the model's positions would change.
    """
    config, numbers = copy.deepcopy(model.config), kept.tolist()
    new = {old: number for number, old in enumerate(numbers)}
    _check(model, new, tokenizer)
    config.vocab_size = len(new)
    for name, old in model.config.to_dict().items():
        if name.endswith("_token_id"):
            own = getattr(tokenizer, name, None)
            setattr(config, name, [new[n] for n in old if n in new] if isinstance(old, list) else new.get(old, own))
    smaller = type(model)(config)
    shapes = {key: value.shape for key, value in smaller.state_dict().items()}
    state = {
        # Only tensors with a row for each token have another shape.
        key: value if value.shape == shapes[key] else value[kept.to(value.device)]
        for key, value in model.state_dict().items()
    }
    smaller.load_state_dict(state)
    return smaller.to(model.device).train(model.training)


def _check(model: Any, new: dict[int, int], tokenizer: Any) -> None:
    record, pad = families.family_of(model), model.config.pad_token_id
    if len(new) != len(tokenizer) or max(new) >= model.config.vocab_size:
        raise ConfigError(
            f"vocabulary: got {len(new)} tokens up to id {max(new)}, a tokenizer of {len(tokenizer)} and a model "
            f"of {model.config.vocab_size}; must be tokens kept from the model's own tokenizer; use its own tokenizer"
        )
    if pad is not None and pad not in new:
        raise ConfigError(
            f"vocabulary: got a model with pad_token_id {pad}, which is not kept; must be kept; make it the padding "
            "token of the tokenizer"
        )
    if record.max_length is position_table_after_padding and new.get(pad) != pad:
        raise ConfigError(
            f"vocabulary: got a padding token that moves from {pad} to {new[pad]}; must stay in family {record.name}, "
            "which counts positions from it; keep the tokens before it"
        )


def _tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    """The content of a fast tokenizer's tokenizer.json."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str()) if getattr(tokenizer, "is_fast", False) else {}
    kind = settings.get("model", {}).get("type", type(tokenizer).__name__)
    if kind not in TYPES:
        raise UserError(
            f"vocabulary: got a tokenizer of type {kind}; must be a fast one of type {', '.join(TYPES)}; choose a "
            "model with such a tokenizer"
        )
    return settings


def _stored_ids(settings: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every token id in tokenizer.json outside the vocabulary."""
    for token in settings["added_tokens"]:
        yield token, "id"
    if settings["padding"] is not None:
        yield settings["padding"], "pad_id"
    processors = [settings["post_processor"] or {}]
    while processors:
        processor = processors.pop()
        processors += processor.get("processors", [])
        for name in {"sep", "cls"} & processor.keys():
            yield processor[name], 1
        for special in processor.get("special_tokens", {}).values():
            yield from ((special["ids"], index) for index in range(len(special["ids"])))


def _needed(model: dict[str, Any]) -> Iterator[str]:
    """Tokens without which a text could have more unknown tokens, or another segmentation."""
    tokens = {entry[0] for entry in model["vocab"]} if model["type"] == "Unigram" else set(model["vocab"])
    if model.get("unk_token") in tokens:
        yield model["unk_token"]
    if model["type"] == "WordLevel":
        return
    if model["type"] == "Unigram":
        yield min(model["vocab"], key=lambda entry: entry[1])[0]
        # The tokens up to the unknown one keep their ids, because classes of transformers assume its id.
        yield from (token for token, _ in model["vocab"][: (model["unk_id"] or 0) + 1])
    prefix, suffix = (model.get(key) or "" for key in ("continuing_subword_prefix", "end_of_word_suffix"))
    for token in tokens:
        bare = token.removeprefix(prefix).removesuffix(suffix)
        first = prefix if prefix and token.startswith(prefix) else ""
        alone = [first + bare[:1], *(prefix + character for character in bare[1:])]
        divisible = model["type"] == "BPE" or tokens.issuperset(alone)
        if len(bare) <= 1 or not divisible or (model.get("byte_fallback") and _BYTE.fullmatch(token)):
            yield token


def _with_parts(tokens: set[str], model: dict[str, Any]) -> set[str]:
    """The tokens and all tokens from which BPE merges them, recursively."""
    pairs = defaultdict(list)
    for pair in model["merges"]:
        pairs[_merged(pair, model)].append(pair)
    closure, pending = set(tokens), list(tokens)
    while pending:
        parts = {part for pair in pairs[pending.pop()] for part in pair} - closure
        closure |= parts
        pending += parts
    return closure


def _merged(pair: list[str], model: dict[str, Any]) -> str:
    """The token that a merge of BPE results in."""
    return pair[0] + pair[1][len(model["continuing_subword_prefix"] or "") :]
