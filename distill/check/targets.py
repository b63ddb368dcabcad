"""What a `_target_` in a config may name. Source is read; nothing is imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distill.check.rules import nearest
from distill.config import Config

TARGETS = ("distill.", "torch.optim.", "transformers.", "bitsandbytes.optim.")
"""A `_target_` may only name something below these: a config must not run arbitrary code."""


def check_target(key: str, target: Any, config: Config) -> Iterator[str]:
    """The node names something allowed, and its keys are parameters of it. Source is read, not imported."""
    if not isinstance(target, str) or not target.startswith(TARGETS):
        yield f"{key}._target_: got {target}; must start with {', '.join(TARGETS)}; use what is listed in conf"
        return
    if not target.startswith(("distill.", "torch.optim.")):
        return
    node: Any = config
    for part in key.split("."):
        node = node[part] if isinstance(node, dict) else getattr(node, part)
    signature = _signature(target)
    if signature is None:
        yield f"{key}._target_: got {target}; must be a function that exists; check the name"
        return
    names, required = signature
    given = {name for name in node if not name.startswith("_")}
    for name in sorted(given - names):
        yield f"{key}.{name}: got {node[name]}; must be a parameter of {target}; {nearest(name, sorted(names))}"
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
