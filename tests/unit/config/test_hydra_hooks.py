"""The names inside of Hydra that distill depends on, and that it depends on them in one place."""

from __future__ import annotations

import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hydra
import pytest
from hydra import version
from hydra.core.utils import JobRuntime

import distill
from distill.config import hydra_hooks, load_config
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


@pytest.mark.usefixtures("real_compose")
def test_a_program_that_initialized_hydra_composes_settings_too(tmp_path: Path) -> None:
    """As a notebook, or a function of `hydra.main`, which then goes on with its own."""
    (tmp_path / "own.yaml").write_text("size: 3\n")
    with hydra.initialize_config_dir(str(tmp_path), job_name="own", version_base="1.2"):
        assert load_config(["recipe=distilbert", "seed=7"]).seed == 7
        with pytest.raises(Exception, match="no_such_setting"):
            load_config(["recipe=distilbert", "no_such_setting=7"])
        assert hydra.compose("own").size == 3
        assert (str(version.getbase()), JobRuntime.instance().get("name")) == ("1.2", "own")


@pytest.mark.usefixtures("real_compose")
def test_threads_compose_settings_in_turns() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda seed: load_config(["recipe=distilbert", f"seed={seed}"]).seed, range(2))]
    assert found == [0, 1]
