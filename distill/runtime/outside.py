"""Code from outside of distill: what users add to its registries, and the files of the modules that it is in."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

from distill.runtime.storage import file_hashes, run_folder
from distill.runtime.versions import PACKAGES

_registries: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
"""Name of a registry -> (it, what it had when distill made it)."""
_SIMPLE = (bool, int, float, str, tuple)
_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of packages whose versions, and not whose files, tell one from another."""


def registry(name: str, entries: Mapping[str, Any]) -> None:
    """Remember what distill itself put into a registry, so that `code` finds what others add to it later."""
    _registries[name] = (entries, dict(entries))


def code() -> str:
    """Hash of all that was added to the registries, and of the files of its modules and of what these import; empty if
    nothing was added."""
    modules: dict[str, str] = {}
    added = [[name, key, _described(value, modules)] for name, key, value in _added()]
    return run_folder.fingerprint([sorted(added, key=str), sorted(_files(modules).items())]) if added else ""


def _added() -> Iterator[tuple[str, str, Any]]:
    """(registry, key, entry) of each entry that distill did not make; of a tuple, its further members."""
    for name, (entries, own) in _registries.items():
        for key, value in entries.items():
            if isinstance(value, tuple):
                yield from ((name, key, member) for member in value if member not in own.get(key, ()))
            elif own.get(key) is not value:
                yield name, key, value


def _described(value: Any, modules: dict[str, str]) -> Any:
    """An entry as JSON can represent it, the same in every process. Notes the modules of its functions in `modules`."""
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
        for module in _named(value):
            modules.setdefault(module, "")
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "__qualname__"):
        module = str(value.__module__)
        modules[module] = modules.get(module, "") + ("" if _is_file(module) else _source(value))
        return f"{module}.{value.__qualname__}"
    return [inside(type(value)), inside(_values(value))]


def _values(value: Any) -> Mapping[str, Any]:
    """The fields of a record, or the attributes of another object."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else [*getattr(value, "__dict__", {})]
    return {name: getattr(value, name) for name in names}


def _named(text: str) -> list[str]:
    """The module of a function that a text names, as `MODULE.FUNCTION` or `MODULE:FUNCTION`."""
    module = text.partition(":")[0] if ":" in text else text.rpartition(".")[0]
    return [module] if module and all(part.isidentifier() for part in module.split(".")) else []


def _source(value: Any) -> str:
    """What a function or a class of a script, or of a notebook, computes."""
    if inspect.isfunction(value):
        return "".join(map(_plain, _codes(value.__code__)))
    return "".join(_source(each) for each in vars(value).values() if inspect.isfunction(each))


def _files(modules: Mapping[str, str]) -> dict[str, str]:
    """Module -> hash of its file, for all modules that are neither distill's nor installed, with those they import.

    Args:
        modules: module -> source of what was added, where the module has no file. A package that adds something counts
            though it is installed.
    """
    roots = {name.partition(".")[0] for name in modules}
    found, queue = dict[str, str](), list(modules)
    while queue:
        name = queue.pop()
        parent = name.rpartition(".")[0]
        if name in found or not _is_own(name, roots):
            continue
        file = _file(name)
        found[name] = file_hashes.sha256(file) if file is not None and _is_file(name) else _script(name, modules)
        queue += [parent] if parent else []
        if not _is_file(name):
            queue += _named_in_script(name)
        elif file is not None and file.suffix == ".py":
            with suppress(SyntaxError):  # of a file that was edited since, and can be imported no more
                tree = ast.parse(file.read_bytes())
                queue += _imported(tree, name, file.name == "__init__.py")
                found[name] += "".join(_loaded_otherwise(tree, name))
    return found


def _is_file(name: str) -> bool:
    """Whether a module is known by its file. A script is not: most of it says what to run."""
    return name != "__main__" and _file(name) is not None


def _script(name: str, modules: Mapping[str, str]) -> str:
    """The functions of a script or a notebook, what was added from it, and the plain values that the functions name."""
    values = vars(sys.modules[name])
    codes = [inside for code in _functions(name) for inside in _codes(code)]
    used = sorted({each for code in codes for each in code.co_names if isinstance(values.get(each), _SIMPLE)})
    return "\n".join([modules.get(name, ""), *sorted(map(_plain, codes)), *(f"{n} = {values[n]!r}" for n in used)])


def _named_in_script(name: str) -> Iterator[str]:
    """Modules that the functions of a script import, or whose functions they name."""
    values = vars(sys.modules[name])
    for each in {each for code in _functions(name) for inside in _codes(code) for each in inside.co_names}:
        value = values.get(each)
        origin = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
        yield from (text for text in (each, origin) if isinstance(text, str))


def _functions(name: str) -> list[CodeType]:
    """The code of the functions and methods of a loaded module."""
    own = [value for value in vars(sys.modules[name]).values() if getattr(value, "__module__", None) == name]
    every = [each for value in own for each in (vars(value).values() if isinstance(value, type) else [value])]
    return [each.__code__ for each in every if inspect.isfunction(each)]


def _loaded_otherwise(tree: ast.Module, name: str) -> list[str]:
    """Functions and constants that a module has otherwise than its file, which was edited after it was imported."""
    if (module := sys.modules.get(name)) is None:
        return []
    written = {_plain(code) for code in _codes(compile(tree, name, "exec", dont_inherit=True))}
    loaded = {*map(_plain, _functions(name))}
    constants = [
        f"{target.id} = {getattr(module, target.id)!r}"
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper() and hasattr(module, target.id)
        if getattr(module, target.id) != node.value.value
    ]
    return [*sorted(loaded - written), *constants]


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


def _is_own(name: str, roots: Iterable[str]) -> bool:
    root = name.partition(".")[0]
    if root == "distill" or root in sys.stdlib_module_names or root in PACKAGES:
        return False
    file = _file(root)
    if file is None:
        return name in sys.modules and name in roots
    return root in roots or not any(Path(folder) in file.parents for folder in _INSTALLED)


def _file(name: str) -> Path | None:
    """The file of a module, which is not run; None for modules without one."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and name not in sys.modules:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
        file = spec.origin if spec is not None and spec.has_location else None
    return Path(file) if file is not None and Path(file).is_file() else None


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
