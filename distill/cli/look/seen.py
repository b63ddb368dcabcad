"""What a model computes from one text: tokens, attention, hidden states, and which tokens it takes for replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from distill.deploy.export.record import located, read
from distill.errors import ConfigError, DataError, reworded
from distill.evaluation.cka import linear_cka
from distill.models import families, teacher
from distill.models.families.head import class_names
from distill.models.families.weights import config_of
from distill.models.teacher.whole import load_whole

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Token:
    """A token of a text, or of a pair of texts."""

    text: str
    """The characters that it stands for; its name in the vocabulary where it stands for none."""
    name: str
    """In the vocabulary."""
    end: tuple[int, int] | None
    """Text (0, or 1 for the second of a pair) and character at which it ends; None for a special token."""


@dataclass(frozen=True)
class Seen:
    """What a model computed from L tokens. Layers and heads are numbered from 0."""

    folder: str
    family: str
    tokens: tuple[Token, ...]
    whole: int
    """Tokens of the whole text; more than L where it was cut."""
    attention: list[Floats]
    """Layer -> attention weights [heads, L, L]: the row is the token that attends."""
    hidden: list[Floats]
    """The embeddings, and the output of each layer, [L, H]; the last after the model's final norm."""
    replaced: Floats | None
    """[L] probability that a token was replaced, of an ELECTRA discriminator."""


@torch.inference_mode()
def see(folder: str | Path, argument: str, texts: Sequence[str], most: int, say: Callable[[str], None]) -> Seen:
    """Run a model on a text or a pair, of which it reads the first `most` tokens.

    The attention is that of transformers itself, in its implementation without fused kernels, so that the windows of
    local layers are in it.

    Args:
        argument: which names the folder, for messages.
        say: gets lines on parts of the folder that are not used.

    Raises:
        ConfigError: for a model without layers, of an unknown family, of quantized weights, and with several heads.
        DataError: for a folder that cannot be loaded.
    """
    with _named(argument):
        path = located(folder)
        read(path)  # refuses a folder with several heads
        unused = teacher.check_given(path, "folder")
        config, tokenizer = teacher.read_config(path, "folder"), teacher.load_tokenizer(path)
        if int(config.num_hidden_layers) == 0:
            raise ConfigError(
                f"folder: got {folder}, a static model without layers; must have layers, whose attention is shown; "
                "choose another model"
            )
        teacher.check_vocabulary(tokenizer, config, "folder")
    discriminator = config.model_type == "electra" and any("ForPreTraining" in n for n in class_names(config_of(path)))
    for note in () if discriminator else unused:  # of a discriminator, the head is among them, and is used here
        say(note)
    auto = transformers.ElectraForPreTraining if discriminator else transformers.AutoModel
    settings = {"dtype": torch.float32, "attn_implementation": "eager"}
    model, _, _ = load_whole(auto, path, claimed=discriminator, **settings)
    most = min(most, teacher.longest(path, tokenizer, config))
    encoded = tokenizer(*texts, truncation=True, max_length=most, return_offsets_mapping=True)
    if not encoded["input_ids"]:
        raise DataError(f"{folder}: got a text for which its tokenizer has no token; must have one; write another text")
    batch = {name: torch.tensor([values]) for name, values in encoded.items() if name != "offset_mapping"}
    # transformers loads an encoder and its decoder, if it has one, without a head around them.
    below = families.family_of(config).encoder.partition(".")[2]
    encoder = families.encoder(model) if discriminator else model.get_submodule(below)
    outputs = encoder(**families.inputs(model, batch), output_attentions=True, output_hidden_states=True)
    return Seen(
        str(folder),
        str(config.model_type),
        tuple(_tokens(texts, tokenizer, encoded)),
        len(tokenizer(*texts)["input_ids"]),
        [layer[0].numpy() for layer in outputs.attentions],
        [layer[0].numpy() for layer in outputs.hidden_states],
        _replaced(model, outputs.last_hidden_state) if discriminator else None,
    )


def _named(argument: str) -> AbstractContextManager[None]:
    return reworded(lambda line: re.sub("^folder(?=:)", argument, line))


def _tokens(texts: Sequence[str], tokenizer: Any, encoded: Any) -> Iterator[Token]:
    names = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    for name, part, (start, end) in zip(names, encoded.sequence_ids(0), encoded["offset_mapping"], strict=True):
        shown = "" if part is None else texts[part][start:end].strip()
        yield Token(shown or name, name, None if part is None else (part, end))


def _replaced(model: Any, hidden: torch.Tensor) -> Floats:
    """Clark et al. 2020, arXiv 2003.10555, equation of D(x, t) in section 2."""
    probabilities: Floats = model.discriminator_predictions(hidden)[0].sigmoid().numpy()
    return probabilities


def similarity(teacher: Seen, student: Seen) -> tuple[list[list[float | None]], int]:
    """Linear CKA of each layer of the student (rows) with each of the teacher (columns), embeddings first, and over how
    many tokens: those of both that end at the same character, without special tokens."""
    places = [{token.end: at for at, token in enumerate(seen.tokens) if token.end} for seen in (teacher, student)]
    common = [end for end in places[0] if end in places[1]]
    own, others = (
        [layer[[place[end] for end in common]] for layer in seen.hidden] if common else []
        for seen, place in zip((teacher, student), places, strict=True)
    )
    return [[linear_cka(a, b) for a in own] for b in others], len(common)
