"""Cutting a vocabulary down to the tokens that some texts need: of a small model the embeddings are most of the size.

The trimming of Abdaoui et al. 2020, arXiv 2010.05609. Deviation: beside the tokens that are used others are kept, so
that a text of kept tokens is segmented as before and no text has more unknown tokens than before.
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

from distill import family
from distill.data.encode import batches
from distill.errors import ConfigError, UserError
from distill.family.record import position_table_after_padding

TYPES = ("WordPiece", "BPE", "Unigram", "WordLevel")
"""Models of the tokenizers library that can be cut."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")


def used(texts: Iterable[str], tokenizer: Any) -> Counter[int]:
    """How often each token comes up in the texts, special tokens around them left out."""
    counts: Counter[int] = Counter()
    for batch in batches(texts):
        for ids in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
            counts.update(ids)
    return counts


def smaller(tokenizer: Any, ids: Iterable[int]) -> tuple[Any, Tensor]:
    """A fast tokenizer with the tokens `ids` and those it cannot do without; and [V'] their old numbers, ascending.

    A text whose tokens are all kept is segmented as before. WordPiece takes the longest token that fits, and where that
    one is kept there is no longer one among fewer. BPE applies the first merge in its list that fits, and every merge
    that leads to a kept token is kept, in order, with both its parts. Unigram takes the segmentation of the highest
    score, which is still there and still the highest among fewer; the score of an unknown character hangs on the lowest
    of all tokens, which is kept.

    No other text has more unknown tokens than before: every character that is a token stays one. Both hold where the
    characters of every token are tokens too, as trainers see to; a token of which one is not stays. Of WordLevel alone,
    words that go are unknown. UserError for a tokenizer that cannot be cut, and for a number that it has no token for.
    """
    from tokenizers import Tokenizer

    written = _written(tokenizer)
    model, vocabulary = written["model"], tokenizer.get_vocab()
    wanted = set(ids)
    if foreign := wanted - set(vocabulary.values()):
        raise UserError(
            f"vocabulary: got token {min(foreign)} of a tokenizer of {len(vocabulary)}; must be numbers of its tokens; "
            "count them with the same tokenizer"
        )
    wanted |= {*tokenizer.all_special_ids, *(holder[key] for holder, key in _numbers(written))}
    tokens = {token for token, number in vocabulary.items() if number in wanted} | set(_needed(model))
    if model["type"] == "BPE":
        tokens = _with_parts(tokens, model)
        model["merges"] = [pair for pair in model["merges"] if _merged(pair, model) in tokens]
    kept = sorted(vocabulary[token] for token in tokens)
    new = {old: number for number, old in enumerate(kept)}
    for holder, key in _numbers(written):
        holder[key] = new[holder[key]]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for entry in model["vocab"] if entry[0] in tokens]
    else:
        model["vocab"] = {token: new[old] for token, old in model["vocab"].items() if token in tokens}
    made = copy.deepcopy(tokenizer)
    made._tokenizer = Tokenizer.from_str(json.dumps(written))
    if made.get_vocab() != {token: new[vocabulary[token]] for token in tokens}:
        raise UserError(
            "vocabulary: got a tokenizer that numbers its tokens with gaps; must number those of its model from 0 and "
            "added ones after them; save it again without gaps"
        )
    return made, torch.tensor(kept)


@torch.no_grad()
def with_tokens(model: Any, kept: Tensor, tokenizer: Any) -> Any:
    """A stock model, float32, of the class of `model`, with the tokens `kept` [V'] of it, for what `smaller` made.

    It answers on new numbers what `model`, which is left as it was, answers on old ones; of a language model, the
    logits of kept tokens. A token that the config names and that is not kept becomes None in it. ConfigError where
    `kept` does not belong to the model and the tokenizer, or would change the model's positions.
    """
    config, numbers = copy.deepcopy(model.config), kept.tolist()
    new = {old: number for number, old in enumerate(numbers)}
    _check(model, new, tokenizer)
    config.vocab_size = len(new)
    for name, old in model.config.to_dict().items():
        if name.endswith("_token_id"):
            setattr(config, name, [new[n] for n in old if n in new] if isinstance(old, list) else new.get(old))
    made = type(model)(config)
    wanted = made.state_dict()
    state = {
        # Only what has a row for each token is smaller.
        key: value if value.shape == wanted[key].shape else value[kept.to(value.device)]
        for key, value in model.state_dict().items()
    }
    made.load_state_dict(state)
    return made.to(model.device).train(model.training)


def _check(model: Any, new: dict[int, int], tokenizer: Any) -> None:
    record, pad = family.family_of(model), model.config.pad_token_id
    if len(new) != len(tokenizer) or max(new) >= model.config.vocab_size:
        raise ConfigError(
            f"vocabulary: got {len(new)} tokens up to number {max(new)}, a tokenizer of {len(tokenizer)} and a model "
            f"of {model.config.vocab_size}; must be what was kept of the model's own tokens; use its own tokenizer"
        )
    if pad is not None and pad not in new:
        raise ConfigError(
            f"vocabulary: got a model that pads with token {pad}, which is not kept; must be kept; make it the "
            "padding token of the tokenizer"
        )
    if record.max_length is position_table_after_padding and new.get(pad) != pad:
        raise ConfigError(
            f"vocabulary: got a padding token that moves from {pad} to {new[pad]}; must stay in family {record.name}, "
            "which counts positions from it; keep the tokens before it"
        )


def _written(tokenizer: Any) -> dict[str, Any]:
    """What tokenizer.json says."""
    written = json.loads(tokenizer.backend_tokenizer.to_str()) if getattr(tokenizer, "is_fast", False) else {}
    kind = written.get("model", {}).get("type", type(tokenizer).__name__)
    if kind not in TYPES:
        raise UserError(
            f"vocabulary: got a tokenizer of type {kind}; must be a fast one of type {', '.join(TYPES)}; choose a "
            "model with such a tokenizer"
        )
    return written


def _numbers(written: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Where tokenizer.json says the number of a token, but for the vocabulary itself: a container and a key of it."""
    for token in written["added_tokens"]:
        yield token, "id"
    if written["padding"] is not None:
        yield written["padding"], "pad_id"
    parts = [written["post_processor"] or {}]
    while parts:
        part = parts.pop()
        parts += part.get("processors", [])
        for name in {"sep", "cls"} & part.keys():
            yield part[name], 1
        for special in part.get("special_tokens", {}).values():
            yield from ((special["ids"], place) for place in range(len(special["ids"])))


def _needed(model: dict[str, Any]) -> Iterator[str]:
    """Tokens without which a text could have more unknown ones, or be segmented otherwise."""
    tokens = {entry[0] for entry in model["vocab"]} if model["type"] == "Unigram" else set(model["vocab"])
    if model.get("unk_token") in tokens:
        yield model["unk_token"]
    if model["type"] == "WordLevel":
        return
    if model["type"] == "Unigram":
        yield min(model["vocab"], key=lambda entry: entry[1])[0]
        # Up to the unknown token, whose number classes of transformers take for granted.
        yield from (token for token, _ in model["vocab"][: (model["unk_id"] or 0) + 1])
    prefix, suffix = (model.get(key) or "" for key in ("continuing_subword_prefix", "end_of_word_suffix"))
    for token in tokens:
        bare = token.removeprefix(prefix).removesuffix(suffix)
        first = prefix if prefix and token.startswith(prefix) else ""
        alone = [first + bare[:1], *(prefix + character for character in bare[1:])]
        divides = model["type"] == "BPE" or tokens.issuperset(alone)
        if len(bare) <= 1 or not divides or (model.get("byte_fallback") and _BYTE.fullmatch(token)):
            yield token


def _with_parts(tokens: set[str], model: dict[str, Any]) -> set[str]:
    """The tokens and all that BPE makes on the way to them: both parts of every merge to one, and so on."""
    pairs = defaultdict(list)
    for pair in model["merges"]:
        pairs[_merged(pair, model)].append(pair)
    found, rest = set(tokens), list(tokens)
    while rest:
        parts = {part for pair in pairs[rest.pop()] for part in pair} - found
        found |= parts
        rest += parts
    return found


def _merged(pair: list[str], model: dict[str, Any]) -> str:
    return pair[0] + pair[1][len(model["continuing_subword_prefix"] or "") :]
