"""The files of sentence-transformers, and how it reads texts for an embedder or a cross-encoder. Without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from distill.errors import DataError
from distill.models.families.weights import check_inside
from distill.models.readable import check_size
from distill.runtime import quoting
from distill.runtime.storage.atomic import read_json

MODULES, LENGTHS, MODEL = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
"""Files of an embedder: its modules in their order, how texts are read, and its prompts."""

READING = (LENGTHS, *(f"sentence_{name}_config.json" for name in (
    "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"
)))  # fmt: skip
"""Names of the file on how texts are read, in the order in which sentence-transformers looks for it."""

OF_CROSS_ENCODERS = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Entries of config.json that mark cross-encoders. Until version 5 they had no list of modules; the second entry is
from before version 4."""

_OF_TASK = re.compile("For.*(Classification|MultipleChoice|QuestionAnswering)")
"""Classes of models with a head for a task."""
_PACKAGE, _TOKENS = "sentence_transformers.", "token_embeddings"
_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}

_EXPECTED: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": _TOKENS,
    "modality_config": {"text": _FORWARD},
}
_CLASSIFIER: dict[str, Any] = {
    "transformer_task": "sequence-classification",
    "module_output_name": "scores",
    "modality_config": {"text": _FORWARD | {"method_output_name": "logits"}},
}
"""The values that settings may have, besides null, in an embedder and in a cross-encoder."""
_ARGUMENTS = {
    "model_args": ("add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "use_safetensors"),
    "tokenizer_args": ("model_max_length", "use_fast"),
    "config_args": (),
}
"""Arguments that may be stored, because they are read here or change no vector by more than rounding."""
_NEW_NAMES = {"model_kwargs": "model_args", "processor_kwargs": "tokenizer_args", "config_kwargs": "config_args"}
_OF_LOADING = ("trust_remote_code", "local_files_only", "cache_dir", "revision", "token", "subfolder")
"""Arguments about where files come from."""

SHORTEST = 3
"""Least maximum length in tokens: one token between two special ones."""

ALONE = "choose another embedder, or remove modules.json from a copy of the folder to use its encoder alone"
"""Advice of the errors on modules."""


@dataclass(frozen=True)
class Reading:
    """How sentence-transformers reads texts."""

    longest: int | None = None
    """Maximum number of tokens; None for the maximum of the tokenizer and of the model."""
    lower: bool = False
    """Whether texts are lower-cased before the tokenizer."""


def is_listed(folder: str | Path) -> bool:
    """Whether a folder lists modules, as folders of sentence-transformers do, and its model is read by them.

    A classifier that was saved over an embedder is not. Cross-encoders list modules from version 5 on, and say so.
    """
    if not (Path(folder) / MODULES).is_file():
        return False
    named = settings_of(Path(folder) / "config.json").get("architectures")
    head = bool(_OF_TASK.search(str(named[0]))) if isinstance(named, list) and named else False
    return not head or settings_of(Path(folder) / MODEL).get("model_type") == "CrossEncoder"


def reading(folder: str | Path) -> Reading:
    """How sentence-transformers reads texts for the model of a folder. Raises DataError for settings that are not
    supported.

    A folder without a list of modules has no such settings, as in sentence-transformers.
    """
    with readable(folder):
        return _reading(Path(folder))


def _reading(folder: Path) -> Reading:
    if not is_listed(folder):
        return Reading()
    every = ((folder / name, settings_of(folder / name)) for name in READING)
    file, settings = next(((file, found) for file, found in every if found), (folder / LENGTHS, {}))
    settings = {_NEW_NAMES.get(key, key): value for key, value in settings.items()}
    longest, lower = settings.pop("max_seq_length", None), settings.pop("do_lower_case", None)
    longest = _arguments(folder, file, settings).get("model_max_length", longest)
    _check_task(file, settings)
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int) or longest < SHORTEST):
        raise DataError(
            f"{file}: got max_seq_length {longest!r}; must be a whole number of tokens from {SHORTEST}, or null; "
            "correct it"
        )
    if lower not in (None, True, False):
        raise DataError(f"{file}: got do_lower_case {lower!r}; must be true or false; correct it")
    return Reading(longest, bool(lower))


def _arguments(folder: Path, file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of the library's loading functions out of the settings. Returns the arguments of the
    tokenizer."""
    arguments = {key: settings.pop(key, None) or {} for key in _ARGUMENTS}
    for key, values in arguments.items():
        if not isinstance(values, dict):
            raise _unreadable(file, f"{key} {values!r}")
        for name, value in values.items():
            if name not in (*_ARGUMENTS[key], *_OF_LOADING):
                raise DataError(
                    f"{file}: got {name} {value!r} in {key}; must be in the files of the model and its tokenizer; "
                    f"{save_again(folder)}"
                )
    return dict(arguments["tokenizer_args"])


def _check_task(file: Path, settings: dict[str, Any]) -> None:
    """Raise DataError for settings by which an encoder does not output hidden states, or a classifier logits."""
    expected = _CLASSIFIER if settings.get("transformer_task") == _CLASSIFIER["transformer_task"] else _EXPECTED
    for key, value in settings.items():
        if value not in (None, {}, [], False, expected.get(key)) and key != "unpad_inputs":
            raise DataError(f"{file}: got {key} {value!r}; must be {expected.get(key)!r}; {ALONE}")


def longest(folder: str | Path, of_tokenizer: float, config: Any) -> int | None:
    """Number of tokens at which sentence-transformers cuts the texts of a folder that it wrote; None for other folders,
    and if there is no maximum.

    Args:
        of_tokenizer: `model_max_length` of its tokenizer.
        config: the encoder's.
    """
    if not is_listed(folder) and not of_cross_encoder(folder):
        return None
    if (stated := reading(folder).longest) is not None:
        return stated
    positions = getattr(config, "max_position_embeddings", None)
    most = min(of_tokenizer, positions) if isinstance(positions, int) and positions > 0 else of_tokenizer
    return int(most) if most < 1 << 30 else None


def of_cross_encoder(folder: str | Path) -> bool:
    """Whether a folder holds a cross-encoder of sentence-transformers, or an exported reranker."""
    config, stored = settings_of(Path(folder) / "config.json"), settings_of(Path(folder) / MODEL)
    stated = stored.get("model_type") == "CrossEncoder" or stored.get("activation_fn") is not None
    return stated or any(map(config.get, OF_CROSS_ENCODERS))


def columns_of_cross_encoder(folder: str | Path) -> tuple[str, ...]:
    """Names for the two texts of a cross-encoder's row, whose own columns are unknown; none for another model."""
    return ("query", "document") if of_cross_encoder(folder) else ()


def check_no_prompt(folder: str | Path) -> None:
    """Raise DataError for a cross-encoder that puts a prompt before every pair of texts."""
    stored = settings_of(Path(folder) / MODEL)
    default = stored.get("default_prompt_name") if stored.get("model_type") == "CrossEncoder" else None
    with readable(folder):
        text = (stored.get("prompts") or {}).get(default) if default is not None else None
    if text:
        raise DataError(
            f"{Path(folder) / MODEL}: got a cross-encoder with the default prompt {text!r}; must be without one, "
            "because pairs of texts have no prompts; choose another"
        )


def modules_of(file: Path) -> list[tuple[str, str]]:
    """(name of the class, folder) of each module. The name of a class outside of sentence-transformers is its whole
    path.

    Raises:
        DataError: for a file of another form, and for a folder outside of the model's.
    """
    content, result = _json(file), []
    for module in content if isinstance(content, list) else [None]:
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            raise _unreadable(file, f"the entry {str(module)[:80]}")
        name, path = module["type"], PurePosixPath(module["path"])
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"{file}: got the path {path}; must be a folder in the model's folder; correct it")
        for each in (file.parent / path, *(file.parent / path).glob("*")) if module["path"] else ():
            check_inside(file.parent, each)
        result.append((name.rpartition(".")[2] if name.startswith(_PACKAGE) else name, module["path"]))
    return result


def settings_of(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty for a file that does not exist."""
    return settings_in(file) if file.is_file() else {}


def settings_in(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises DataError for any other content."""
    content = _json(file)
    if not isinstance(content, dict):
        raise _unreadable(file, f"a {type(content).__name__}")
    return content


def _json(file: Path) -> Any:
    check_size(file)
    try:
        return read_json(file)
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(file, str(error)) from error


@contextmanager
def readable(folder: str | Path) -> Iterator[None]:
    """Raise a DataError for every error of the block, which reads settings of any form."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(Path(folder), str(error)) from error


def _unreadable(file: Path, problem: str) -> DataError:
    reason = " ".join(problem.split())[:200]
    return DataError(
        f"{file}: got settings of a sentence embedder that cannot be read ({reason}); must be as sentence-transformers "
        "writes them; copy or download the folder again"
    )


def save_again(folder: Path) -> str:
    """Advice to save a folder again with sentence-transformers, which writes the supported form."""
    given, made = str(folder), f"{str(folder).rstrip('/')}-saved-again"
    code = f"from sentence_transformers import SentenceTransformer as S; S({given!r}).save_pretrained({made!r})"
    return f"use the folder that this command writes: python -c {quoting.path(code)}"
