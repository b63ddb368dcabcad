"""What only torch and transformers can read of a model folder: a folder without a record, and models in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distill.config.schemes import SCHEMES
from distill.data.task_types import kind_of_model
from distill.data.task_types.question_answering import ALWAYS
from distill.deploy.export.record import Entry, Record
from distill.errors import ConfigError, DataError
from distill.inference.runners import Run, one_pass
from distill.models import families, teacher
from distill.models.families import sentence, vectors
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS, UNBOUNDED
from distill.models.families.settings import quantizer_of
from distill.models.families.weights import config_of, opened, tensors_of, weight_files
from distill.models.readable import readable
from distill.models.teacher.files import quiet

TORCH = Entry("torch", "fp32", ".")
"""The artifact of a folder without a record."""


def tokenizer(folder: Path, config: Any) -> Any:
    """The tokenizer of a folder, which pads on the side that the model's family needs, whatever was stored."""
    found = teacher.load_tokenizer(folder)
    teacher.check_vocabulary(found, config, "folder")
    # The head of a decoder finds the last token by it; an embedder by the mask.
    if getattr(config, "pad_token_id", None) is None and not vectors.embeds(folder):
        raise ConfigError(f"folder: got {folder}, whose config has no pad_token_id; must have one; set it and save it")
    found.padding_side = "left" if families.family_of(config).pads_left else "right"
    return found


def tokenizer_and_length(folder: Path) -> tuple[Any, int]:
    """The tokenizer of a folder, and the most tokens of its model."""
    config = teacher.read_config(folder, "folder")
    return tokenizer(folder, config), families.max_length(config)


def plain(folder: Path, asked: int | None, say: Callable[[str], None]) -> Record:
    """A record made from the files of a folder without one. `asked`: maximum length that the user asks for."""
    config, stated = teacher.read_config(folder, "folder"), config_of(folder)
    head = stored_head(folder)
    if head is None:
        raise DataError(f"{folder}: got a model without a head; must be one with a head for a task; fine-tune it first")
    quantizer = quantizer_of(stated)
    for line in teacher.notes(folder, teacher.unused_in(folder) if quantizer is None else ()):
        say(line)
    kind = kind_of_model(head.problem, head.outputs, head.architecture)
    labels = head.names if kind.named else ()
    if kind.architecture in (record := families.family_of(config)).without:
        raise DataError(
            f"{folder}: got a model of type {record.name}; must be of another type for {kind.name}; use another"
        )
    # A model without a record may not have been trained on questions without an answer.
    threshold = ALWAYS if kind.extractive else 0.5
    most = teacher.longest(folder, tokenizer(folder, config), config)
    if most >= UNBOUNDED:
        most = families.trained_length(config)
        if asked is None:
            say(
                f"{folder}: neither the tokenizer nor the model states a maximum length; texts are cut after {most} "
                "tokens, for which such a model is trained (max_position_embeddings, or 512)"
            )
    columns = sentence.columns_of_cross_encoder(folder) if kind.architecture == TEXTS else ()
    entry = TORCH if quantizer is None else _quantized(folder, stated)
    return Record(folder.name, kind, labels, columns, most, (entry,), threshold)


def _quantized(folder: Path, stated: Mapping[str, Any]) -> Entry:
    """The artifact of a folder of quantized weights. Raises ConfigError for quantizers that exports do not use."""
    settings = stated.get("quantization_config")
    settings = settings if isinstance(settings, Mapping) else {}
    name, scheme = quantizer_of(stated), _scheme(settings)
    if (name, scheme) not in [(s.backend, s.scheme) for s in SCHEMES.values()]:
        raise ConfigError(
            f"folder: got {folder}, a model quantized by {name} in another scheme than int8 or nf4; must be float, or "
            "quantized by bitsandbytes or torchao in one of them; name the folder of the float model"
        )
    return Entry(str(name), str(scheme), ".")


def _scheme(settings: Mapping[str, Any]) -> str | None:
    """The scheme of a quantization_config: int8 or nf4; None for any other."""
    if settings.get("load_in_4bit"):
        return "nf4" if settings.get("bnb_4bit_quant_type") == "nf4" else None
    return "int8" if settings.get("load_in_8bit") or "int8" in str(settings.get("quant_type")).lower() else None


def in_one_pass(folders: list[Path], entry: Entry, device: str, threads: int) -> Run:
    """The models of several folders with one encoder, as one. Raises DataError if their encoders differ."""
    for folder in folders:
        tensors_of(folder)  # which names a damaged file
    _check_same_encoder(folders)
    with readable(folders[0], "a whole artifact; copy the folder again"), quiet():
        return one_pass(entry.name, folders, scheme=entry.scheme, device=device, threads=threads).run


def _check_same_encoder(folders: list[Path]) -> None:
    def encoder(folder: Path) -> dict[str, Any]:
        prefix, found = f"{families.family_of(teacher.read_config(folder, 'folder')).encoder}.", dict[str, Any]()
        for file in weight_files(folder):
            with opened(file, "pt") as tensors:
                found |= {name: tensors.get_tensor(name) for name in tensors.keys() if name.startswith(prefix)}
        return found

    first = encoder(folders[0])
    for folder in folders[1:]:
        other = encoder(folder)
        if first.keys() != other.keys() or any(not first[name].equal(other[name]) for name in first):
            raise DataError(
                f"{folder}: got another encoder than that of {folders[0].name}; must be the same in all heads; copy "
                "the whole folder again, or load a head alone"
            )
