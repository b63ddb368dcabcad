"""Static students: one vector for each token, whatever stands around it, and their mean for a text.

The form of model2vec (Tulkens and van Dongen 2024, doi 10.5281/zenodo.17270888). Each token passes through the teacher
alone; principal components reduce the width; a token's vector is multiplied by its SIF weight a / (a + p) (Arora, Liang
and Ma 2017, "A simple but tough-to-beat baseline for sentence embeddings", section 2), with p from its rank in the
vocabulary by Zipf's law. Deviations: the vectors are trained afterwards as any student is, and without a smaller width
they stay in the coordinates of the teacher's vectors.

The student is a EuroBERT without layers, so that plain transformers loads it: its token embedding, a norm and the mean.
With `rms_norm_eps` 1 the norm divides by sqrt(1 + mean square), so that vectors can have any length below a maximum
instead of a single one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.embedding import pooled
from distill.models.student.vocabulary import rows_of

SIF = 1e-4
"""The weight's a, model2vec's default. Without its text, a token's probability is 1 / rank over the sum of all."""

EPS = 1.0
"""`rms_norm_eps` of the student."""
LARGEST = 0.5
"""Root of the mean square of the components of the longest vector, below 1, the most that the norm can make."""
FAMILY = "eurobert"

_UNUSED = re.compile(r"\[unused\d+\]")
_AT_ONCE = 1024


def static_config(teacher: Any, tokenizer: Any, sizes: Mapping[str, int | None]) -> Any:
    """Config of a static student of a teacher with config `teacher`, for the tokenizer of `mean_tokenizer`.

    Args:
        sizes: `hidden_size`, the number of components of a vector; the teacher's width when None.

    Raises:
        ConfigError: for more components than the teacher's vectors have.
    """
    from transformers import AutoConfig

    width = sizes["hidden_size"] or teacher.hidden_size
    if width > teacher.hidden_size:
        raise ConfigError(
            f"student.hidden_size: got {width}; must be <= {teacher.hidden_size}, the teacher's, with "
            "student.init=static; set a smaller value"
        )
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")}
    config = AutoConfig.for_model(
        FAMILY,
        vocab_size=rows_of(tokenizer),
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=0,
        num_attention_heads=1,
        rms_norm_eps=EPS,
        classifier_pooling="mean",
        pad_token_id=tokenizer.pad_token_id,
        mask_token_id=tokenizer.pad_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
        tie_word_embeddings=False,  # or a language-model head would train the vector of padding
        **ids,
    )
    config.num_labels = teacher.num_labels
    return config


def is_static(config: Any) -> bool:
    """Whether models of this config have no layers, so that a token has the same vector in every text."""
    return int(config.num_hidden_layers) == 0


def mean_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of a static student: it puts padding in place of the special tokens around texts and of unknown
    tokens.

    The vector of padding is zero and is not trained. So the mean of a text has the direction that libraries find which
    leave out special and unknown tokens, as model2vec does, and an empty text has a vector.

    Raises:
        ConfigError: for a tokenizer with an unknown token whose padding token is outside of its vocabulary.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    pad, number = tokenizer.pad_token, tokenizer.pad_token_id
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    model, unknown = settings["model"], {"unk_token": pad, "unk_id": number}
    unknown = {key: value for key, value in unknown.items() if model.get(key) is not None}
    vocabulary = model["vocab"] if isinstance(model["vocab"], dict) else [token for token, _ in model["vocab"]]
    if unknown and pad not in vocabulary:
        raise ConfigError(
            f"student.init: got static and a tokenizer whose padding token {pad} is an added token; must be "
            "in the tokenizer's own vocabulary and not an added token, because it stands for unknown words; choose "
            "another student.init or tokenizer"
        )
    model |= unknown
    first = {"SpecialToken": {"id": pad, "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    settings["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, texts[0]],
        "pair": [first, texts[0], first, texts[1]],
        "special_tokens": {pad: {"id": pad, "ids": [number], "tokens": [pad]}},
    }
    special = {name: getattr(tokenizer, name) for name in tokenizer.SPECIAL_TOKENS_ATTRIBUTES} | {"unk_token": pad}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(settings | {"truncation": None, "padding": None})),
        model_max_length=tokenizer.model_max_length,
        truncation_side=tokenizer.truncation_side,
        padding_side="right",
        **{name: value for name, value in special.items() if value is not None},
    )


def counted(tokenizer: Any) -> list[int]:
    """Ids of the tokens that stand for text, the most frequent first, as far as the order of a vocabulary shows it."""
    # The token for unknown words, which the tokenizer does not use, is special in the list of added tokens alone.
    added = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    special = {*tokenizer.all_special_ids, *added}
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    return [number for number in sorted(tokens.keys() - special) if not _UNUSED.fullmatch(tokens[number])]


@torch.no_grad()
def token_vectors(
    model: Any, rows: Sequence[Sequence[int]], around: tuple[list[int], list[int]], padding: int, pooling: str
) -> Tensor:
    """Vectors float32 [V, H] of V short texts, each pooled from the teacher's last hidden states.

    Args:
        rows: the token ids of each, of which there is at least one.
        around: special tokens before and after them.
    """
    texts = [[*around[0], *row, *around[1]] for row in rows]
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    result = torch.zeros(len(texts), families.width(model))
    for start in range(0, len(order), _AT_ONCE):
        numbers = order[start : start + _AT_ONCE]
        lengths = torch.tensor([len(texts[number]) for number in numbers])
        longest = int(lengths.max())
        ids = torch.tensor([texts[n] + [padding] * (longest - len(texts[n])) for n in numbers])
        batch = {"input_ids": ids, "attention_mask": (torch.arange(longest) < lengths[:, None]).long()}
        batch = {name: value.to(model.device) for name, value in batch.items()}
        result[numbers] = pooled(families.encode(model, batch), batch["attention_mask"], pooling).float().cpu()
    return result


def weighted(vectors: Tensor, ids: Sequence[int], width: int) -> Tensor:
    """Vectors float32 [V, `width`] of the tokens `ids`, the most frequent first: those of `vectors` [V, H], centred,
    reduced to their principal components and weighted, the longest with `LARGEST`. Zero for other tokens.
    """
    own = vectors[list(ids)].double()
    own = own - own.mean(0)
    if width < own.shape[1]:
        _, directions = torch.linalg.eigh(own.T @ own)
        own = own @ directions.flip(1)[:, :width]
    inverse = 1 / torch.arange(2, len(own) + 2).double()
    own = own * (SIF / (SIF + inverse / inverse.sum()))[:, None]
    result = torch.zeros(len(vectors), width)
    result[list(ids)] = (own * LARGEST / own.square().mean(1).sqrt().max().clamp(min=1e-12)).float()
    return result


def before_norm(vectors: Tensor) -> Tensor:
    """The rows of a token embedding [V, H] of which the norm makes `vectors`.

    y = x / sqrt(mean(x^2) + 1), so that x = y / sqrt(1 - mean(y^2)).
    """
    return vectors / (EPS - vectors.square().mean(1, keepdim=True)).sqrt()
