"""Checks a given model before anything is trained, and lists its unused files and tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.head import class_names, stored_head
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS, VECTORS
from distill.models.families.sentence import of_cross_encoder
from distill.models.families.settings import own_code, quantizer_of
from distill.models.families.weights import CONFIG, config_of, opened, unread, weight_files
from distill.models.teacher.load import check_vocabulary, load_mlm, load_tokenizer, read_config
from distill.models.teacher.whole import BUFFERS, load_whole, not_finite
from distill.runtime import quoting

_SHOWN = 3
"""Maximum number of tensors in a line."""
WORDS = {
    TEXTS: "a classifier of texts",
    TOKENS: "a classifier of tokens",
    CHOICES: "a model of multiple choice",
    ANSWERS: "a model of question answering",
    VECTORS: "an embedder",
}
"""Architecture -> name of such a model in messages."""


def check_given(path: str | Path, key: str) -> list[str]:
    """Check that a model is whole, and has float weights. The weights are read once, but not kept.

    Returns:
        Lines for the user on conclusions from its files, and on unused parts of them.

    Raises:
        ConfigError: about the setting `key`, for a model of an unknown family or of quantized weights.
        DataError: for a folder as from `stored_head` and `load_whole`.
    """
    read_config(path, key)
    stated = config_of(path)
    if (quantizer := quantizer_of(stated)) is not None:
        raise ConfigError(
            f"{key}: got {path}, a quantized model ({quantizer}); must have float weights; name the folder that it was "
            f"made from{_made_from(Path(path), key)}"
        )
    unused = unused_in(path)
    for file in weight_files(path):
        with opened(file, "pt") as tensors:
            for name in tensors.keys():
                if name not in unused and not bool(torch.isfinite(tensors.get_tensor(name)).all()):
                    raise not_finite(file, name)
    return list(notes(path, unused))


def check_masked_lm(path: str | Path, key: str) -> None:
    """Check that a model is whole, and that it and its tokenizer predict masked tokens.

    Raises:
        ConfigError: about the setting `key`, as from `check_given`, and for a model without a stored language-model
            head: a new one would predict at random.
        DataError: as from `check_given` and `load_tokenizer`.
    """
    check_given(path, key)
    config, tokenizer = read_config(path, key), load_tokenizer(path)
    if not families.family_of(config).mlm_head or not stores_mlm_head(path):
        raise ConfigError(
            f"{key}: got {path}, whose files have no head of a masked language model; must be a model for fill-mask, "
            "such as a pretrained BERT or RoBERTa, with its head; name another, or leave it out"
        )
    if tokenizer.mask_token_id is None:
        raise ConfigError(f"{key}: got {path}, whose tokenizer has no mask token; must have one; name another model")
    check_vocabulary(tokenizer, config, key)


def stores_mlm_head(path: str | Path) -> bool:
    """Whether a folder of a family with language models has the weights of their head. No random number is drawn."""
    with torch.random.fork_rng(devices=[]):
        return load_mlm(path)[1]


def unused_in(path: str | Path) -> set[str]:
    """Names of the tensors of a folder that its model does not use. Raises DataError as from `load_whole`."""
    from transformers import AutoModel

    head = stored_head(path)
    # The model has no storage, and draws no random numbers, which would change the run.
    with torch.random.fork_rng(devices=[]):
        _, _, unused = load_whole(
            AutoModel if head is None else families.class_of(head.architecture),
            path,
            claimed=head is not None,
            device_map="meta",
            dtype=torch.float32,
            **({} if head is None else {"num_labels": head.outputs}),
        )
    return unused


def _made_from(path: Path, key: str) -> str:
    """The folder above a quantized model, where an export has its float model."""
    above = path.resolve().parent
    if not (above / CONFIG).is_file():
        return ""
    return f"; set {quoting.setting(key, str(above)) if '.' in key else quoting.path(above)}"


def notes(path: str | Path, unused: Collection[str]) -> Iterator[str]:
    """Yield notes for the user on a model's files. `unused`: names of tensors that are not used."""
    import transformers

    stated, head, file = config_of(path), stored_head(path), Path(path) / CONFIG
    names = class_names(stated)
    unknown = [name for name in names if not hasattr(transformers, name)]
    if unknown:
        read = "its head is not used" if head is None else f"it is used as {WORDS[head.architecture]}"
        yield f"{file}: {', '.join(unknown)} is no class of transformers; {read}"
    if not names and head is not None and head.architecture != VECTORS:
        yield f"{file}: no class in architectures; the model is used as {WORDS[head.architecture]}, by its tensors"
    if code := own_code(stated):
        yield f"{file}: the folder's own code ({', '.join(code)}) is not run; the class of transformers is used"
    number = head is not None and (head.architecture, head.outputs, head.problem) == (TEXTS, 1, None)
    if number and not of_cross_encoder(path):
        yield (
            f"{file}: one output and no problem_type; it is used as a number. If it is the log-odds of a yes, whose "
            "sigmoid is a probability, set problem_type to multi_label_classification there"
        )
    if _numbered_otherwise(stated):
        yield (
            f"{file}: label2id has other numbers for the names in id2label, which are used, as by transformers. If the "
            "model was trained with label2id, correct id2label"
        )
    if head is not None and {*head.labels} - {*map(str, (stated.get("id2label") or {}).values())}:
        yield f"{file}: no names of the outputs in id2label; those in label2id are used"
    # Embedders have their own pooling, so that the pooler of the encoder and its position numbers are never used.
    if head is not None and head.architecture == VECTORS:
        unused = [name for name in unused if "pooler." not in name and not BUFFERS.search(name)]
    if unused:
        shown = ", ".join(sorted(unused)[:_SHOWN]) + (
            f" and {len(unused) - _SHOWN} more" if len(unused) > _SHOWN else ""
        )
        yield f"{path}: tensors that are not used: {shown}"
    if others := unread(path, weight_files(path)):
        yield f"{path}: files that are not read: {', '.join(others)}"


def _numbered_otherwise(stated: Mapping[str, Any]) -> bool:
    """Whether label2id gives a name in id2label another number. Others, such as transformers' defaults, say nothing."""
    names, numbers = stated.get("id2label"), stated.get("label2id")
    if not isinstance(names, Mapping) or not isinstance(numbers, Mapping):
        return False
    return any(str(numbers.get(str(name), number)) != str(number) for number, name in names.items())
