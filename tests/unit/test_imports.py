"""Rules for the source: imports in one direction, no circles, short files, nothing unsafe."""

from __future__ import annotations

import ast
import functools
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "distill"
FILES = sorted(PACKAGE.rglob("*.py"))

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


ARCHITECTURE = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
module_name, imports = ARCHITECTURE["module_name"], ARCHITECTURE["imports"]
ROOMS, COMMANDS = ARCHITECTURE["ROOMS"], ARCHITECTURE["COMMANDS"]

MODULES = {module_name(f): f for f in FILES}
INNER = sorted(MODULES.keys() - {"distill"})


@functools.cache
def targets(module: str) -> set[str]:
    """Modules that `module` imports, except the package's own `__init__`."""
    file = MODULES[module]
    imported = imports(file.read_text(), module, file.name == "__init__.py", MODULES)
    return set(imported) - {module, "distill"}


def place(module: str) -> int:
    """Number of the module's room; files beside the rooms come last."""
    room = module.split(".")[1]
    return len(ROOMS) if room in COMMANDS else ROOMS.index(room)


def test_every_form_of_import_is_detected() -> None:
    names = ("distill", "distill.data", "distill.data.encode", "distill.pipeline.run")
    modules = {name: Path() for name in names}
    source = """
import distill.pipeline.run
from distill.pipeline import run
def f():
    from .encode import Encoded
    from .. import data
    from distill.data.encode import pad
    import torch
"""
    imported = sorted(imports(source, "distill.data.tasks", False, modules))
    assert imported == ["distill.data", *["distill.data.encode"] * 2, *["distill.pipeline.run"] * 2]
    inside = list(imports("from .encode import x", "distill.data", True, modules))
    assert inside == ["distill.data.encode"]


def test_every_module_is_in_a_room() -> None:
    assert {m.split(".")[1] for m in INNER} == {*ROOMS, *COMMANDS}


def test_unit_tests_are_in_the_rooms_of_their_modules() -> None:
    assert {file.parent.name for file in (ROOT / "tests" / "unit").glob("*/test_*.py")} == {
        room for room in ROOMS if (PACKAGE / room).is_dir()
    }


def test_imports_only_from_rooms_above() -> None:
    wrong = {m: up for m in INNER if (up := {other for other in targets(m) if place(other) > place(m)})}
    assert not wrong


def test_no_circular_import() -> None:
    remaining = {module: targets(module) for module in INNER}
    while free := [module for module, needs in remaining.items() if not needs & remaining.keys()]:
        for module in free:
            del remaining[module]
    assert not remaining, f"a circle of imports among {sorted(remaining)}"


LIGHT = (
    "runtime.storage.file_hashes config config.plan config.instantiate models.families data.task_types data.task"
    " data.files pipeline.validation deploy.export.record report predict label compare look advise recipes choose"
    " example"
    " __main__"
    " cli.compare.comparison cli.compare.page cli.compare.write cli.run cli.help_text report.__main__"
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


def test_files_are_short_and_have_docstrings() -> None:
    for file in FILES:
        source = file.read_text()
        assert len(source.splitlines()) <= 400, file
        assert ast.get_docstring(ast.parse(source)), file
        assert not BANNED_NAMES & set(file.relative_to(ROOT).with_suffix("").parts), file


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib"}
SWITCHES = {"trust_remote_code", "ignore_mismatched_sizes"}


def unsafe(source: str) -> list[str]:
    """Names in a source that may run code from a file, download code, or hide tensors of wrong shapes."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node) == "torch.load":
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


def test_nothing_unsafe() -> None:
    assert not {file: names for file in FILES if (names := unsafe(file.read_text()))}
