"""Code from outside of distill: what users add to its registries, and the files of the modules that it is in."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType
from typing import Any

_registries: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
"""Name of a registry -> (it, what it had when distill made it)."""


def registry(name: str, entries: Mapping[str, Any]) -> None:
    """Remember what distill itself put into a registry, so that `code` finds what others add to it later."""
    _registries[name] = (entries, dict(entries))


def code() -> str:
    """Hash of all that was added to the registries, and of the files of its modules and of what these import; empty if
    nothing was added.

    Of a script and of a notebook all counts but calls and conditions outside of functions, which say what to run.
    """
    from distill.runtime.storage import checksums

    modules: set[str] = set()
    added = [[name, key, _described(value, modules)] for name, key, value in _added()]
    return checksums.fingerprint([sorted(added, key=str), sorted(_sources(modules).items())]) if added else ""


def _added() -> Iterator[tuple[str, str, Any]]:
    """(registry, key, entry) of each entry that distill did not make; of a tuple, its further members."""
    for name, (entries, own) in _registries.items():
        for key, value in entries.items():
            if isinstance(value, tuple):
                yield from ((name, key, member) for member in value if member not in own.get(key, ()))
            elif own.get(key) is not value:
                yield name, key, value


def _described(value: Any, modules: set[str]) -> Any:
    """An entry as JSON can represent it, the same in every process. Adds the modules of its functions to `modules`."""
    inside = functools.partial(_described, modules=modules)
    if isinstance(value, Mapping):
        return [[str(key), inside(each)] for key, each in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(str, map(inside, value)))
    if isinstance(value, list | tuple):
        return [inside(each) for each in value]
    if isinstance(value, functools.partial):
        return ["partial", inside(value.func), inside(value.args), inside(value.keywords)]
    if isinstance(value, str):
        modules |= {value.partition(":")[0] if ":" in value else value.rpartition(".")[0]}
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "__qualname__"):
        modules.add(str(value.__module__))
        return [f"{value.__module__}.{value.__qualname__}", *_cells(value)]
    return [inside(type(value)), inside(_values(value))]


def _cells(function: Any) -> list[str]:
    """The plain values that a function has from the function that made it."""
    values = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    return [f"{name} = {value!r}" for name, value in values.items() if isinstance(value, bool | int | float | str)]


def _values(value: Any) -> Mapping[str, Any]:
    """The fields of a record, or the attributes of another object."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else [*getattr(value, "__dict__", {})]
    return {name: getattr(value, name) for name in names}


def _sources(modules: set[str]) -> dict[str, str]:
    """Module -> hash of its source, for all modules that are neither distill's nor installed, with what they import. A
    package that adds something counts though it is installed."""
    from distill.runtime.versions import PACKAGES

    roots = {name.partition(".")[0] for name in modules}
    found, queue = dict[str, str](), list(modules)
    while queue:
        name = queue.pop()
        root, file = name.partition(".")[0], _file(name)
        if name in found or root == "distill" or root in sys.stdlib_module_names or root in PACKAGES:
            continue
        if file is None:
            if name == "__main__":
                found[name] = _unknown()
            continue  # a function, which is named as a module would be
        if root not in roots and any(folder in file.parents for folder in _installed()):
            continue
        found[name], imported = _source(name, file)
        queue += [*imported, *([name.rpartition(".")[0]] if "." in name else [])]
    return found


@functools.cache
def _installed() -> set[Path]:
    """Folders of packages whose versions, and not whose files, tell one from another."""
    import sysconfig

    return {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


@functools.cache
def _unknown() -> str:
    """In place of code without a source: what it made is never used by another process."""
    import secrets

    return secrets.token_hex(8)


def _source(name: str, file: Path) -> tuple[str, list[str]]:
    """The hash of a module, and the names of what it imports. It is not remembered: a module may be reloaded."""
    from distill.runtime.storage import checksums, file_hashes

    content = file_hashes.sha256(file)
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # no Python, or edited since it was imported
        return content, []
    imported = [*_imported(tree, name, file.name == "__init__.py")]
    if name == "__main__":
        tree.body = [node for node in tree.body if not isinstance(node, ast.Expr | ast.If)]
        content = ast.unparse(tree)
    return checksums.fingerprint([content, _loaded_otherwise(tree, name, file)]), imported


def _loaded_otherwise(tree: ast.Module, name: str, file: Path) -> list[str]:
    """What a module has otherwise than its file, which was edited after it was imported: functions and constants."""
    if (module := sys.modules.get(name)) is None:
        return []
    written = {_plain(each) for each in _codes(compile(tree, str(file), "exec", dont_inherit=True))}
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
    every = [each for value in own for each in (vars(value).values() if isinstance(value, type) else [value])]
    loaded = {each.__code__ for each in every if inspect.isfunction(each)}
    constants = [
        f"{target.id} = {getattr(module, target.id)!r}"
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper() and hasattr(module, target.id)
        if getattr(module, target.id) != node.value.value
    ]
    # What decorators and dataclasses make is in no file of the module's.
    here = {_plain(each) for each in loaded if Path(each.co_filename) == file}
    return [*sorted(here - written), *constants]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code and that of all functions and classes in it."""
    yield code
    for inside in filter(inspect.iscode, code.co_consts):
        yield from _codes(inside)


def _plain(code: CodeType) -> str:
    """What a function computes, the same in every process."""
    values = [each for each in code.co_consts if not inspect.iscode(each)]
    ordered = [sorted(map(repr, each)) if isinstance(each, frozenset) else each for each in values]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {ordered}"


def _file(name: str) -> Path | None:
    """The file of a module, which is not imported; None for what is no module, and for modules without a file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and name not in sys.modules:
        spec = _spec(name)
        file = spec.origin if spec is not None and spec.has_location else None
    return Path(file) if file is not None and Path(file).is_file() else None


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is. The packages around it are not imported, as `importlib.util.find_spec` would."""
    spec, path = None, None
    for number in range(1, 1 + len(parts := name.split("."))):
        spec = PathFinder.find_spec(".".join(parts[:number]), path) if all(parts) else None
        if spec is None:
            return None
        path = [*(spec.submodule_search_locations or ())]
    return spec


def _imported(tree: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    """Names of what a module imports anywhere, functions included, each as if it were a module."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
