"""The shape of the source: one import direction, no circle, short files, nothing unsafe."""

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

# A module imports only from its left; the longest leading part of its name that stands here is its place. The package's
# own `__init__` gathers public names: outside.
ORDER = (
    "errors config bind plan terms checkpoint backends schemes family data.records check explain data teacher student"
    " losses features rows objective engine machine environment evaluate compress export context training results"
    " report stages walk __main__"
).split()
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


ARCHITECTURE = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
module_name, imports = ARCHITECTURE["module_name"], ARCHITECTURE["imports"]

MODULES = {module_name(f): f for f in FILES}
INNER = sorted(MODULES.keys() - {"distill"})


def targets(module: str) -> set[str]:
    """Modules that `module` imports; the package's own `__init__` is left out."""
    file = MODULES[module]
    found = imports(file.read_text(), module, file.name == "__init__.py", MODULES)
    return set(found) - {module, "distill"}


def place(module: str) -> int:
    name = module.removeprefix("distill.")
    while name not in ORDER:
        name = name.rpartition(".")[0]
    return ORDER.index(name)


def test_imports_are_seen_in_every_form() -> None:
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
    found = sorted(imports(source, "distill.data.tasks", False, modules))
    assert found == ["distill.data", *["distill.data.encode"] * 2, *["distill.walk"] * 2]
    inside = list(imports("from .encode import x", "distill.data", True, modules))
    assert inside == ["distill.data.encode"]


def test_every_module_has_its_place() -> None:
    assert {m.split(".")[1] for m in INNER} <= set(ORDER)


@pytest.mark.parametrize("module", INNER)
def test_imports_only_from_the_left(module: str) -> None:
    wrong = {target for target in targets(module) if place(target) > place(module)}
    assert not wrong, f"{module} imports {wrong}, which stand to its right"


def test_no_circle() -> None:
    left = {module: targets(module) for module in INNER}
    while free := [module for module, needs in left.items() if not needs & left.keys()]:
        for module in free:
            del left[module]
    assert not left, f"a circle of imports among {sorted(left)}"


LIGHT = "config bind backends schemes family data.records check check.hydra report __main__".split()
WATCHED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(f"distill.{name}")
    for slow in sys.modules.keys() & {"torch", "transformers", "datasets"}:
        sys.exit(f"{name} imports {slow}")
"""


def test_an_answer_to_a_wrong_setting_does_not_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED, *LIGHT], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_file_is_short_and_says_what_it_is_for(file: Path) -> None:
    source = file.read_text()
    assert len(source.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(source))
    assert not BANNED_NAMES & set(file.relative_to(ROOT).with_suffix("").parts)


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib"}
SWITCHES = {"trust_remote_code", "ignore_mismatched_sizes"}


def unsafe(source: str) -> list[str]:
    """What may run code from a file, fetch code, or hide tensors that do not fit."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
            found.append("torch.load")
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLES:
            found.append(str(node.module))
        elif isinstance(node, ast.keyword) and node.arg in SWITCHES:
            if ast.unparse(node.value) != "False":
                found.append(str(node.arg))
    return found


def test_what_is_unsafe_is_seen() -> None:
    source = "import pickle\nfrom dill import load\ntorch.load(p)\nf(trust_remote_code=True)"
    assert sorted(unsafe(source)) == ["dill", "pickle", "torch.load", "trust_remote_code"]
    assert unsafe("f(trust_remote_code=False)\nload(p)") == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_nothing_unsafe(file: Path) -> None:
    assert not unsafe(file.read_text())
