"""Functions that a config names: each belongs where it is named and takes the settings it is given.

Source is read; nothing is imported.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from distill.bind import PLACES, RESERVED, refusals, reserved
from distill.check.rules import matches, nearest
from distill.config import Config

WHERE = {
    "stages.*.terms.*.loss": "loss",
    "stages.*.importance": "importance",
    "stages.*.optimizer": "optimizer",
    "stages.*.schedule": "schedule",
}
"""Key -> what kind of function belongs there. Nowhere else does a config name a function."""


def targets(config: Config) -> Iterator[str]:
    """A line for each function that does not belong where it is named, and for each wrong setting of the others."""
    return _walk(config, "")


def _walk(value: object, key: str) -> Iterator[str]:
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
    """(name, value) of what a group of settings or a list contains; the name of an item of a list is its number."""
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(value))


def _node(node: Any, place: str, key: str) -> Iterator[str]:
    yield from refusals(node, place, key)
    if not isinstance(node, Mapping) or node.get("_target_") not in PLACES[place]:
        return
    target = node["_target_"]
    signature = _signature(target)
    if signature is None:
        package = target.partition(".")[0]
        yield f"{key}._target_: got {target}; must be in the installed version of {package}; update it, or name another"
        return
    names, required = signature
    given = {str(name) for name in node if not RESERVED.fullmatch(str(name))}
    for name in sorted(given - names):
        yield f"{key}.{name}: got {node.get(name)}; must be a parameter of {target}; {nearest(name, sorted(names))}"
    for name in sorted(required - given):
        yield f"{key}.{name}: got nothing; must be set for {target}; add +{key}.{name}=VALUE"


@functools.cache
def _signature(target: str) -> tuple[set[str], set[str]] | None:
    """Parameters that a config may set, and those of them without a default, from source.

    Of a function: the keyword-only ones. Of an optimizer's class: all but the parameters to optimize.
    """
    module, _, name = target.rpartition(".")
    for file in _files(module):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                only = [arg.arg for arg in node.args.kwonlyargs]
                free = {arg for arg, default in zip(only, node.args.kw_defaults, strict=True) if default is None}
                return set(only), free
            if isinstance(node, ast.ClassDef) and node.name == name:
                made = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
                return {arg.arg for arg in [*made.args.args[2:], *made.args.kwonlyargs]}, set()
    return None


def _files(module: str) -> list[Path]:
    """Source of a module, or of all modules in a package's folder; nothing is imported."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    path = Path(spec.origin).parent.joinpath(*parts)
    return sorted(path.glob("*.py")) if path.is_dir() else [f for f in [path.with_suffix(".py")] if f.is_file()]
