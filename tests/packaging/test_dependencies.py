"""What the package imports is declared, and what is declared is pinned."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def canonical(requirement: str) -> str:
    """The name in a requirement, as package indexes compare names."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def imported(source: str) -> Iterator[str]:
    """Top-level names of the modules that `source` imports anywhere, functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def undeclared(modules: set[str], declared: set[str]) -> set[str]:
    """Modules, the standard library's and ours aside, that no declared distribution contains."""
    known = importlib.metadata.packages_distributions()
    others = modules - sys.stdlib_module_names - {"distill"}
    return {name for name in others if not declared & {canonical(found) for found in known.get(name, [name])}}


def test_imports_and_distributions_are_seen_in_every_form() -> None:
    source = "import os.path, yaml\nfrom .a import b\ndef f():\n    from hydra.core import x\n    import no_such.module"
    assert set(imported(source)) == {"os", "yaml", "hydra", "no_such"}
    assert undeclared(set(imported(source)), {"hydra-core", "os"}) == {"yaml", "no_such"}
    assert undeclared({"no_such"}, {canonical("No.Such[extra]>=1")}) == set()


def test_every_module_that_is_imported_is_declared() -> None:
    files = (ROOT / "distill").rglob("*.py")
    modules = {name for file in files for name in imported(file.read_text(encoding="utf-8"))}
    assert {"torch", "omegaconf", "filelock", "openvino"} <= modules
    for_users = [PROJECT["dependencies"], *(needed for extra, needed in EXTRAS.items() if extra != "dev")]
    declared = {canonical(line) for lines in for_users for line in lines}
    assert not undeclared(modules, declared)


@pytest.mark.parametrize("group", ["dependencies", *EXTRAS])
def test_every_declared_distribution_is_pinned(group: str) -> None:
    pins = {
        canonical(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
    }
    assert {canonical(line) for line in EXTRAS.get(group, PROJECT["dependencies"])} <= pins
