"""The names inside of Hydra that distill depends on, and that it depends on them in one place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import hydra

import distill
from distill.config import hydra_hooks
from distill.pipeline.validation.hydra import CALLED

CHECKED = "1.3.8"
"""The version of Hydra with which the hooks were read and tried last."""


def test_hydra_has_the_methods_that_are_hooked() -> None:
    expected = {
        hydra_hooks.COMPOSES: ["self", "config_name", "overrides"],
        hydra_hooks.NAMES: ["self", "config_path"],
        hydra_hooks.reads(): ["self", "config_path"],
        (hydra_hooks.reads()[0], "_normalize_file_name"): ["filename"],
    }
    found = {hook: getattr(*hook, None) for hook in expected}
    assert None not in found.values(), f"{found}: Hydra is {hydra.__version__}, and was {CHECKED}"
    for hook, parameters in expected.items():
        known = list(inspect.signature(found[hook]).parameters)[: len(parameters)]
        assert known == parameters, f"{hook}: Hydra is {hydra.__version__}, and was {CHECKED}"
    own = [name.rpartition(".") for names in CALLED.values() for name in names if name.startswith("hydra.")]
    assert own
    for module, _, name in own:
        assert hasattr(__import__(module, fromlist=[name]), name), f"Hydra is {hydra.__version__}, and was {CHECKED}"


def test_no_other_module_imports_from_inside_of_hydra() -> None:
    files = Path(distill.__file__).parent.rglob("*.py")
    imports = re.compile(r"^\s*(from|import) hydra\._internal", re.MULTILINE)
    assert {file.name for file in files if imports.search(file.read_text(encoding="utf-8"))} == {"hydra_hooks.py"}
