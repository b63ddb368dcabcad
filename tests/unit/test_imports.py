"""Rules for the source: imports in one direction, no circles, short files, nothing unsafe."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "distill"
FILES = sorted(PACKAGE.rglob("*.py"))

# A module imports only modules to its left. Its place is that of the longest leading part of its name in this list. The
# package's own `__init__`, which imports the public names, is excluded.
ORDER = (
    "errors precision cells strict streams advice options progress backends schemes names intact locks disk"
    " checkpoint outputs cache config bind terms expand plan contents family data.kinds data.task check explain data"
    " teacher data.task_model student losses features rows gather objective shared alone engine.tracker machine"
    " engine environment evaluate compress export serve context training results report stages fits inputs ladder"
    " walk usage sweep advise texts predict compare __main__"
).split()
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


ARCHITECTURE = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
module_name, imports = ARCHITECTURE["module_name"], ARCHITECTURE["imports"]

MODULES = {module_name(f): f for f in FILES}
INNER = sorted(MODULES.keys() - {"distill"})


def targets(module: str) -> set[str]:
    """Modules that `module` imports, except the package's own `__init__`."""
    file = MODULES[module]
    imported = imports(file.read_text(), module, file.name == "__init__.py", MODULES)
    return set(imported) - {module, "distill"}


def place(module: str) -> int:
    name = module.removeprefix("distill.")
    while name not in ORDER:
        assert name, f"{module} is not in the order"
        name = name.rpartition(".")[0]
    return ORDER.index(name)


def test_every_form_of_import_is_detected() -> None:
    names = ("distill", "distill.data", "distill.data.encode", "distill.walk")
    modules = {name: Path() for name in names}
    source = """
import distill.walk
from distill import walk
def f():
    from .encode import Encoded
    from .. import data
    from distill.data.encode import pad
    import torch
"""
    imported = sorted(imports(source, "distill.data.tasks", False, modules))
    assert imported == ["distill.data", *["distill.data.encode"] * 2, *["distill.walk"] * 2]
    inside = list(imports("from .encode import x", "distill.data", True, modules))
    assert inside == ["distill.data.encode"]


def test_every_module_is_in_the_order() -> None:
    assert {m.split(".")[1] for m in INNER} <= set(ORDER)


@pytest.mark.parametrize("module", INNER)
def test_imports_only_from_the_left(module: str) -> None:
    wrong = {target for target in targets(module) if place(target) > place(module)}
    assert not wrong, f"{module} imports {wrong}, which stand to its right"


def test_no_circular_import() -> None:
    remaining = {module: targets(module) for module in INNER}
    while free := [module for module, needs in remaining.items() if not needs & remaining.keys()]:
        for module in free:
            del remaining[module]
    assert not remaining, f"a circle of imports among {sorted(remaining)}"


LIGHT = (
    "contents config outputs bind backends schemes family data.kinds data.task data.files check check.hydra"
    " export.record report predict compare.comparison compare.page compare.write __main__"
).split()
WATCHED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(f"distill.{name}")
    for slow in sys.modules.keys() & {"torch", "transformers", "datasets"}:
        sys.exit(f"{name} imports {slow}")
"""


def test_checks_do_not_import_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED, *LIGHT], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_file_is_short_and_has_a_docstring(file: Path) -> None:
    source = file.read_text()
    assert len(source.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(source))
    assert not BANNED_NAMES & set(file.relative_to(ROOT).with_suffix("").parts)


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib"}
SWITCHES = {"trust_remote_code", "ignore_mismatched_sizes"}


def unsafe(source: str) -> list[str]:
    """Names in a source that may run code from a file, download code, or hide tensors of wrong shapes."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
            names.append("torch.load")
        elif isinstance(node, ast.Import):
            names += [a.name for a in node.names if a.name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLES:
            names.append(str(node.module))
        elif isinstance(node, ast.keyword) and node.arg in SWITCHES:
            if ast.unparse(node.value) != "False":
                names.append(str(node.arg))
    return names


def test_unsafe_calls_are_detected() -> None:
    source = "import pickle\nfrom dill import load\ntorch.load(p)\nf(trust_remote_code=True)"
    assert sorted(unsafe(source)) == ["dill", "pickle", "torch.load", "trust_remote_code"]
    assert unsafe("f(trust_remote_code=False)\nload(p)") == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_nothing_unsafe(file: Path) -> None:
    assert not unsafe(file.read_text())
