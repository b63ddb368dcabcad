"""Exports rerankers in the form that sentence-transformers' CrossEncoder loads, with the activation of their
teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distill.errors import DataError
from distill.models.families.sentence import MODEL, OF_CROSS_ENCODERS, of_cross_encoder, settings_of
from distill.runtime.storage.atomic import read_json, write_json

PIPELINE = "text-ranking"
"""Name of the task of rerankers on the Hugging Face hub."""
SIGMOID = "torch.nn.modules.activation.Sigmoid"
"""The activation of a reranker that sets none: sentence-transformers' default for one output."""
IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of a model whose output is its score."""
Function = Callable[[np.ndarray], np.ndarray]
"""Outputs -> scores."""
SETTINGS, OLD_KEY = OF_CROSS_ENCODERS
KEY = "activation_fn"
"""Entry of config.json and the setting in it, and the entry in versions of sentence-transformers before 4."""


def _sigmoid(outputs: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(outputs, -80, None)))
    return result


def _unchanged(outputs: np.ndarray) -> np.ndarray:
    return outputs


PLAIN: dict[str, Function] = {SIGMOID: _sigmoid, IDENTITY: _unchanged}
"""Activation -> its function without torch."""


def activation(folders: Sequence[Path], outputs: int = 1) -> str:
    """The class of torch that turns the logits of a cross-encoder into scores.

    The first of these model folders whose files set a class decides, else it is `SIGMOID`, or `IDENTITY` for several
    outputs.

    Classes of other packages are left out, as sentence-transformers does, because loading them would run their code.
    """
    names = (name for folder in folders for name in _settings(folder))
    default = SIGMOID if outputs == 1 else IDENTITY
    return next((name for name in names if isinstance(name, str) and name.startswith("torch.nn.")), default)


def function(folder: Path) -> Function:
    """The activation function of a folder, which sentence-transformers applies to the only output."""
    name = activation([folder])
    if (plain := PLAIN.get(name)) is not None:
        return plain
    module = _module(name, folder)

    def apply(outputs: np.ndarray) -> np.ndarray:
        import torch

        with torch.inference_mode():
            result: np.ndarray = module(torch.from_numpy(outputs)).numpy()
        return result

    return apply


def _module(name: str, folder: Path) -> Any:
    import torch

    found = getattr(torch.nn, name.rpartition(".")[2], None)
    try:
        if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
            raise TypeError("no such class of torch.nn")
        return found()
    except TypeError as error:
        raise DataError(
            f"{folder}: got the activation {name} ({error}); must be a class of torch.nn without arguments, such as "
            f"{SIGMOID}; correct it in the folder's config"
        ) from error


def check_several(folder: Path, multi_label: bool) -> None:
    """Raise DataError for a cross-encoder whose scores are not its predictions.

    Predictions are the softmax of several outputs or, with several labels, their sigmoids.
    """
    name = next((name for name in _settings(folder) if name is not None), None) if of_cross_encoder(folder) else None
    allowed = ("Identity", "Sigmoid" if multi_label else "Softmax")
    if name is not None and str(name).rpartition(".")[2] not in allowed:
        mend = "" if multi_label else ", or set problem_type to multi_label_classification if several labels may fit"
        raise DataError(
            f"{folder}: got a cross-encoder of several outputs with the activation {name}; must be one of "
            f"{', '.join(allowed)}; save it with such an activation{mend}"
        )


def _settings(folder: Path) -> Iterator[Any]:
    """The settings of a folder, in the order of precedence of sentence-transformers 6."""
    for file in (MODEL, "config.json"):
        values = settings_of(folder / file)
        nested = values.get(SETTINGS)
        yield values.get(KEY)
        yield nested.get(KEY) if isinstance(nested, dict) else None
        yield values.get(OLD_KEY)


def limit_length(folder: Path, longest: int) -> None:
    """Write the maximum number of tokens of a pair of texts where a CrossEncoder reads it: in the tokenizer's file of
    an exported folder, and of each quantized model in it."""
    name = "tokenizer_config.json"
    for file in sorted({folder / name, *folder.rglob(name)}):
        write_json(file, settings_of(file) | {"model_max_length": longest})


def configure(folder: Path, name: str) -> None:
    """Set the activation in the config of an exported folder, and of each quantized model in it that has one: by both
    settings, because versions before 4 read the old one alone."""
    for file in sorted(folder.rglob("config.json")):
        write_json(file, read_json(file) | {SETTINGS: {KEY: name}, OLD_KEY: name})
