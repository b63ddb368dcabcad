"""The model in what torch made of it: of `torch.compile`, and of models for several devices."""

from __future__ import annotations

from typing import Any

from distill.errors import ConfigError
from distill.models.families.head import architecture_of, names_of_class

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def unwrapped(model: Any) -> Any:
    """The model of transformers that a compiled model, or one for several devices, calls; any other object itself."""
    while (inner := getattr(model, "_orig_mod", None)) is not None or is_parallel(model):
        model = model.module if inner is None else inner
    return model


def is_parallel(model: Any) -> bool:
    """Whether a model is for several devices, each with a part of a batch."""
    return type(model).__name__ in _WRAPPERS and hasattr(model, "module")


def plain(name: str, model: Any, *, headed: bool = False) -> Any:
    """The model in a compiled one, or in one for several devices.

    ConfigError for what is no model of transformers, such as a folder or a SentenceTransformer, for adapters, and with
    `headed` for a model without the head of a task.
    """
    model = unwrapped(model)
    if hasattr(model, "merge_and_unload"):
        raise ConfigError(
            f"{name}: got a {type(model).__name__}; must be a model without adapters; merge them with "
            "model.merge_and_unload()"
        )
    if not hasattr(getattr(model, "config", None), "model_type"):
        raise ConfigError(
            f"{name}: got a {type(model).__name__}; must be a model of transformers with a head; load a folder "
            "with from_pretrained"
        )
    if headed and architecture_of(names_of_class(model)) is None:
        raise ConfigError(
            f"{name}: got a {type(model).__name__}; must be a model with the head of a task; load it with an "
            "AutoModelFor... of a task"
        )
    return model
