"""Loads models and tokenizers from local folders. Weights are from safetensors only, and no code in a folder is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from distill.errors import ConfigError, DataError
from distill.models import families
from distill.models.families.head import class_names, stored_head, stores_rtd_head
from distill.models.families.record import TEXTS, position_table_after_padding
from distill.models.families.settings import own_code
from distill.models.families.vectors import embeds
from distill.models.families.weights import CONFIG, check_links, config_of
from distill.models.readable import readable
from distill.models.teacher import tokenizer_settings
from distill.models.teacher.as_written import as_written, with_stated_names
from distill.models.teacher.embedder import lower_cased
from distill.models.teacher.files import quiet, stored
from distill.models.teacher.whole import load_whole, without_memories, without_more_outputs

SENTENCE_PIECES = ("spm.model", "spiece.model", "sentencepiece.bpe.model")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCE_PIECES)
_NO_TEXT, _MOST_OF_THEM = re.compile(r"\u2581|<.*>.*"), 200
"""Tokens, besides the special ones, that a class of tokenizers has without a vocabulary, and the most tokens of one."""


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a folder as its tokenizer.json says, without the truncation and padding that its files may
    switch on. It lower-cases texts if sentence-transformers does.

    Truncation and padding would silently bring every text to one length. They stay off when the tokenizer is saved
    again.

    Raises:
        DataError: if the folder has no tokenizer, or one that cannot be loaded.
    """
    from transformers import AutoTokenizer

    # Without these files transformers silently builds a tokenizer that has only special tokens.
    if not _has_tokenizer(Path(path)):
        above = Path(path).absolute().parent  # of a checkpoint, where a training writes it at its end
        own = Path(path).name.startswith("checkpoint-") and _has_tokenizer(above)
        copy = f"copy the files of the tokenizer from {above}, or " if own else ""
        raise DataError(
            f"{path}: got no tokenizer; must contain one of {', '.join(TOKENIZER_FILES)}; {copy}"
            "save the model's tokenizer into it with save_pretrained"
        )
    check_links(path)
    with readable(path), quiet():
        tokenizer_settings.check(path)
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        except (ImportError, ValueError) as error:
            _check_converted(Path(path), error)
            raise
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(
                f"{path}: got a tokenizer of class {type(tokenizer).__name__}, which has no fast version; must be one "
                "of the library tokenizers (tokenizer.json), which counts the characters of tokens; choose a model "
                "with such a tokenizer"
            )
        tokenizer = as_written(path, with_stated_names(path, tokenizer))
        _check_words(Path(path), tokenizer)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        for texts in (("a",), ("a", "a")):  # with a damaged file, only the use of a part may fail
            tokenizer(*texts)
    longest = tokenizer.model_max_length
    if isinstance(longest, bool) or not isinstance(longest, int | float) or not longest >= 1:
        raise DataError(
            f"{path}: got model_max_length {longest!r}; must be a number of tokens; correct it in tokenizer_config.json"
        )
    return lower_cased(path, tokenizer)


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _check_words(path: Path, tokenizer: Any) -> None:
    """Raise DataError for a tokenizer without a token of text. transformers builds it without a word if its class reads
    other files than the vocabulary that is there."""
    backend, special = tokenizer.backend_tokenizer, {*tokenizer.all_special_tokens}
    if backend.get_vocab_size() > _MOST_OF_THEM:
        return
    if all(token in special or _NO_TEXT.fullmatch(token) for token in backend.get_vocab()):
        found = next(name for name in TOKENIZER_FILES if (path / name).is_file())
        raise DataError(
            f"{path}: got {found}, of which a {type(tokenizer).__name__} reads no token of text; must contain "
            f"{TOKENIZER_FILES[0]}, or the files of this class; save the model's tokenizer into it with save_pretrained"
        )


def _check_converted(path: Path, error: Exception) -> None:
    """Raise DataError for a tokenizer that transformers would have to convert, and cannot."""
    found = next((name for name in SENTENCE_PIECES if (path / name).is_file()), None)
    if found is not None and not (path / TOKENIZER_FILES[0]).is_file():
        raise DataError(
            f"{path}: got {found} and no {TOKENIZER_FILES[0]}, into which transformers converts it with further "
            f"packages ({' '.join(str(error).split())[:100]}); must have {TOKENIZER_FILES[0]}; load the tokenizer once "
            "where sentencepiece and tiktoken are installed, and save_pretrained it into the folder"
        ) from error


def load_mlm(path: str | Path) -> tuple[Any, bool]:
    """The masked language model of a folder, float32 in eval mode, and whether its head was stored.

    A head that is not stored is initialized at random by torch's default generator: seed it first.
    """
    from transformers import AutoModelForMaskedLM

    stated = config_of(path)
    named = stated.get("legacy") is not False and any("ForMaskedLM" in name for name in class_names(stated))
    # The config of an embedder may be that of the model it was trained from, whose head it does not have.
    claimed = named and not embeds(path)
    model, missing = _load(AutoModelForMaskedLM, path, claimed)
    heads = tuple(f"{module}." for module in families.family_of(model).mlm_head)
    return model, not any(key.startswith(heads) for key in missing)


def load_rtd(path: str | Path) -> tuple[Any, bool]:
    """The model of a folder with a head for replaced-token detection, float32 in eval mode, and whether its head was
    stored; in a family without such a head its language model, as from `load_mlm`, and False.

    A head that is not stored is initialized at random by torch's default generator: seed it first.
    """
    from transformers import AutoModelForPreTraining

    if families.family_of(read_config(path)).rtd_head is None:
        return load_mlm(path)[0], False
    has_head = stores_rtd_head(path)
    model, _ = _load(AutoModelForPreTraining, path, has_head)
    return model, has_head


def load_classifier(
    path: str | Path,
    num_labels: int,
    pooler: str | Path | None = None,
    pad_id: int | None = None,
    problem: str | None = "single_label_classification",
    architecture: str = TEXTS,
) -> Any:
    """A model with a head, by default a classifier of texts, on the encoder of a folder, float32 in eval mode.

    A head that is not stored is initialized at random by torch's default generator: seed it first.

    Args:
        num_labels: number of outputs.
        pooler: folder whose pooler is used if `path` has none, because language models are saved without one.
        pad_id: padding token of the tokenizer, by which a decoder finds the last token of a text.
        problem: `problem_type` of its config.
        architecture: of `family.head.HEADS`.
    """
    head = stored_head(path)
    claimed = head is not None and head.architecture == architecture
    model, missing = _load(families.class_of(architecture), path, claimed, num_labels=num_labels, problem_type=problem)
    record = families.family_of(model)
    for name in record.unused:
        model.get_parameter(name).requires_grad_(False)
    if record.layer is None:
        model.config.pad_token_id = model.config.pad_token_id if pad_id is None else pad_id
        without_memories(model.config)
    if pooler is not None:
        keys = {key for key in missing if record.pooler and key.startswith(f"{record.pooler}.")}
        names = {key.removeprefix(f"{record.encoder}."): key for key in keys} | {key: key for key in keys}
        names |= {f"{record.outer}{name}": key for name, key in names.items()}
        with torch.no_grad():
            for key, value in stored(pooler, names):
                parameter = model.get_parameter(names[key])
                if parameter.shape == value.shape:
                    parameter.copy_(value)
    return model


def read_config(path: str | Path, key: str = "teacher.name") -> Any:
    """The config of a model folder.

    Raises:
        ConfigError: about the setting `key`, for a model of an unknown family.
        DataError: for a config that cannot be loaded.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

    stated = config_of(path)
    if not (kind := str(stated.get("model_type") or "")):
        raise DataError(
            f"{Path(path) / CONFIG}: got no model_type; must be the settings of a model of transformers, of type "
            f"{', '.join(families.FAMILIES)}; save the model again with save_pretrained"
        )
    if kind not in CONFIG_MAPPING:
        code = ", ".join(own_code(stated))
        others = f" but the folder's own code ({code}), which is never run" if code else ""
        raise ConfigError(
            f"{key}: got {path}, a model of type {kind}, for which transformers has no class{others}; must be of one "
            f"of the types {', '.join(families.FAMILIES)}; choose such a model, or files of this one in such a type"
        )
    # transformers would set it, and call it when the model is saved.
    if methods := sorted(name for name in stated if callable(getattr(PreTrainedConfig, name, None))):
        raise DataError(f"{Path(path) / CONFIG}: got {methods[0]}, which is a method and no setting; remove it")
    with readable(path), quiet():
        loaded = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        without_more_outputs(loaded)
        families.family_of(loaded, key)
        families.check_head_size(loaded, key)
    if getattr(loaded, "inner_group_num", 1) != 1:
        raise ConfigError(
            f"{key}: got {path}, with inner_group_num {loaded.inner_group_num}; must be 1, as in the published "
            "models of type albert; choose such a teacher"
        )
    return loaded


LAST_TOKENS = ("qwen2", "qwen3", "gemma2", "gemma3_text")
"""Types of decoders whose classifiers read the last token of a text that does not pad."""


def check_vocabulary(tokenizer: Any, config: Any, key: str = "teacher.name") -> None:
    """Check that the tokenizer belongs to the model.

    Raises:
        ConfigError: about the setting `key`, if the model lacks an embedding for a token, if one of the two has no
            padding token, or if these differ in a family that counts positions from it.
    """
    tokens = 1 + max(tokenizer.get_vocab().values(), default=-1)  # ids may have gaps
    if tokens > config.vocab_size:
        raise ConfigError(
            f"{key}: got a tokenizer of {tokens} tokens and a model of "
            f"{config.vocab_size}; must be a model with an embedding for every token; "
            "use the tokenizer that belongs to the model"
        )
    if tokenizer.pad_token_id is None:
        raise ConfigError(f"{key}: got a tokenizer without a padding token; must have one; set pad_token and save it")
    if families.family_of(config).layer is not None and config.pad_token_id is None:
        raise ConfigError(f"{key}: got a config without pad_token_id; must have one; set it and save the config")
    classifies = any("ForSequenceClassification" in str(name) for name in config.architectures or ())
    by_padding = families.family_of(config).name in LAST_TOKENS and classifies
    both = {config.pad_token_id, tokenizer.pad_token_id} - {None}
    if by_padding and len(both) > 1 and tokenizer("a")["input_ids"][-1] in both:
        raise ConfigError(
            f"{key}: got a tokenizer that pads with token {tokenizer.pad_token_id}, and a model that finds the last "
            f"token of a text by token {config.pad_token_id}; must be the same; set pad_token of the tokenizer to the "
            "one that the model was trained with, and save it"
        )
    after_padding = families.family_of(config).max_length is position_table_after_padding
    if after_padding and tokenizer.pad_token_id != config.pad_token_id:
        raise ConfigError(
            f"{key}: got a tokenizer that pads with token {tokenizer.pad_token_id} and a model that counts "
            f"positions from token {config.pad_token_id}; must be the same; use the tokenizer that belongs to the model"
        )


def pad_as_tokenizer(model: Any, folder: str | Path) -> None:
    """Let a decoder find the last token of a text by the token with which the tokenizer in its folder, if there is one,
    pads texts."""
    if families.family_of(model).layer is not None or not _has_tokenizer(Path(folder)):
        return
    if (pad_id := load_tokenizer(folder).pad_token_id) is not None:
        model.config.pad_token_id = pad_id


def _load(auto: Any, path: str | Path, claimed: bool, **settings: Any) -> tuple[Any, set[str]]:
    """Model of a folder, and the names of its parameters that are new, as from `load_whole`."""
    if getattr(read_config(path), "legacy", None) is False:
        settings["legacy"] = True  # DeBERTa's other language-model head also needs the embeddings as input
    model, missing, _ = load_whole(auto, path, claimed=claimed, dtype=torch.float32, **settings)
    return model, missing
