"""The functions that settings may name in `_target_`, and how such a setting becomes a callable.

Nothing else in a config can run code.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from distill.errors import refuse
from distill.runtime import outside


def _losses() -> tuple[str, ...]:
    """`__all__` of distill.losses, read from its source: importing it would import torch."""
    source = (Path(__file__).parents[1] / "losses" / "__init__.py").read_text(encoding="utf-8")
    names = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return tuple(f"distill.losses.{name}" for name in ast.literal_eval(names))


PLACES: dict[str, tuple[str, ...]] = {
    "loss": _losses(),
    "importance": (
        "distill.compression.pruning.importance.magnitude",
        "distill.compression.pruning.importance.taylor",
        "distill.compression.pruning.importance.fisher",
        "distill.compression.pruning.reconstruct.reconstruction",
    ),
    "optimizer": (
        "torch.optim.AdamW",
        "torch.optim.Adam",
        "torch.optim.NAdam",
        "torch.optim.RAdam",
        "torch.optim.Adamax",
        "torch.optim.Adagrad",
        "torch.optim.Adafactor",
        "torch.optim.RMSprop",
        "torch.optim.SGD",
        "bitsandbytes.optim.AdamW8bit",
        "bitsandbytes.optim.PagedAdamW8bit",
        "bitsandbytes.optim.PagedAdamW32bit",
        "bitsandbytes.optim.AdEMAMix8bit",
        "bitsandbytes.optim.Lion8bit",
    ),
    "schedule": ("distill.training.schedule.linear", "distill.training.schedule.constant"),
}
"""Place in a config -> the functions and classes that its `_target_` may name."""
outside.registry("functions of settings", PLACES)

RESERVED = re.compile("_.+_")
"""Keys such as `_target_` and `_args_`, which make Hydra call functions."""


def refusals(node: object, place: str, key: str) -> Iterator[str]:
    """Yield errors about the function that `node` names. There are none if it is allowed in `place` and its settings
    are plain values.

    node: value of the setting `key`: a mapping with `_target_`, optionally `_partial_: true`, and arguments.
    """
    allowed = PLACES[place]
    target = node.get("_target_") if isinstance(node, Mapping) else node
    if not isinstance(node, Mapping) or target not in allowed:
        yield f"{key}._target_: got {target}; must be one of {', '.join(allowed)}; choose one"
    if not isinstance(node, Mapping):
        return
    if node.get("_partial_", True) is not True:
        yield f"{key}._partial_: got {node['_partial_']}; must be true: its tensors are passed later; leave it out"
    for name, value in node.items():
        if name in ("_target_", "_partial_"):
            continue
        if RESERVED.fullmatch(str(name)):
            yield reserved(f"{key}.{name}", value)
        else:
            yield from _not_plain(value, f"{key}.{name}")


def reserved(key: str, value: object) -> str:
    """Error message for a reserved key of Hydra's in a place where no function is allowed."""
    return f"{key}: got {value}; must not be set: no function belongs here; leave it out"


def _not_plain(value: object, key: str) -> Iterator[str]:
    """An error message for each part of a value that is neither a number nor a string."""
    if isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _not_plain(part, f"{key}.{number}")
    elif isinstance(value, Mapping):
        inside = [reserved(f"{key}.{name}", part) for name, part in value.items() if RESERVED.fullmatch(str(name))]
        yield from inside or [f"{key}: got {value}; must be a number, a string, or a list of these; set one"]
    elif value is not None and not isinstance(value, str | int | float):
        yield f"{key}: got {value}; must be a number, a string, or a list of these; set one"


def bind(node: Mapping[str, Any], place: str) -> Callable[..., Any]:
    """The function that a setting names, with the setting's values bound as keyword arguments. `place`: in `PLACES`.

    Raises:
        ConfigError: for a function that is not in `PLACES[place]`, and for arguments that are not plain values. So a
            config that was not checked cannot run other code either.
    """
    refuse(refusals(node, place, place))
    module, _, name = node["_target_"].rpartition(".")
    values = {key: value for key, value in node.items() if not RESERVED.fullmatch(key)}
    return functools.partial(getattr(importlib.import_module(module), name), **values)
