"""Checks of the functions that a config names in `_target_`: each is allowed in its place and has the set parameters.

Signatures are read from source, without an import.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from distill.config import Config
from distill.config.instantiate import PLACES, RESERVED, refusals, reserved
from distill.errors import Line, Problem
from distill.pipeline.validation.rules import matches, nearest

WHERE = {
    "stages.*.terms.*.loss": "loss",
    "stages.*.importance": "importance",
    "stages.*.optimizer": "optimizer",
    "stages.*.schedule": "schedule",
}
"""Pattern of a key -> place in `config.instantiate.PLACES`, whose functions it may name. No other key may name one."""


def targets(config: Config) -> Iterator[Line]:
    """A line for each function that is not allowed in its place, and for each wrong parameter of the others."""
    return _walk(config, "")


def _walk(value: object, key: str) -> Iterator[Line]:
    place = next((place for pattern, place in WHERE.items() if matches(pattern, key)), None)
    if place is not None:
        yield from _node(value, place, key)
        return
    for name, part in _parts(value):
        inner = f"{key}.{name}" if key else name
        if RESERVED.fullmatch(name):
            yield reserved(inner, part)
        else:
            yield from _walk(part, inner)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """(name, value) of the members of a group of settings or of a list, whose names are their numbers."""
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(value))


def _node(node: Any, place: str, key: str) -> Iterator[Line]:
    yield from refusals(node, place, key)
    if not isinstance(node, Mapping) or node.get("_target_") not in PLACES[place]:
        return
    target = node["_target_"]
    signature = _signature(target)
    if signature is None:
        package = target.partition(".")[0]
        yield Problem(
            f"{key}._target_", target, f"be in the installed version of {package}", "update it, or name another"
        )
        return
    names, required = signature
    arguments = {str(name) for name in node if not RESERVED.fullmatch(str(name))}
    for name in sorted(arguments - names):
        yield Problem(f"{key}.{name}", node.get(name), f"be a parameter of {target}", nearest(name, sorted(names)))
    for name in sorted(required - arguments):
        yield Problem(f"{key}.{name}", "nothing", f"be set for {target}", f"add +{key}.{name}=VALUE")


@functools.cache
def _signature(target: str) -> tuple[set[str], set[str]] | None:
    """Parameters that a config may set, and the ones without a default; None if the target does not exist.

    A config may set the keyword-only parameters of a function, and all parameters of an optimizer's `__init__` except
    `params`.
    """
    module, _, name = target.rpartition(".")
    for file in _files(module):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                names = [arg.arg for arg in node.args.kwonlyargs]
                required = {arg for arg, default in zip(names, node.args.kw_defaults, strict=True) if default is None}
                return set(names), required
            if isinstance(node, ast.ClassDef) and node.name == name:
                init = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
                return {arg.arg for arg in [*init.args.args[2:], *init.args.kwonlyargs]}, set()
    return None


def _files(module: str) -> list[Path]:
    """Source file of a module, or of all modules of a package, without an import."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    is_folder = spec.submodule_search_locations is not None
    path = Path(spec.origin).parent.joinpath(*parts) if is_folder else Path(spec.origin)
    return sorted(path.glob("*.py")) if path.is_dir() else [f for f in [path.with_suffix(".py")] if f.is_file()]
