"""Checks of Hydra's own settings. Hydra calls any function named in callbacks, launchers, sweepers and logging."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import hydra as installed
import yaml
from omegaconf import DictConfig, OmegaConf

from distill.config.instantiate import RESERVED, reserved
from distill.runtime import quoting

_PLUGINS = "hydra_plugins.hydra"
CALLED: dict[str, tuple[str, ...]] = {
    "launcher": (
        "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
        f"{_PLUGINS}_joblib_launcher.joblib_launcher.JoblibLauncher",
        f"{_PLUGINS}_submitit_launcher.submitit_launcher.LocalLauncher",
        f"{_PLUGINS}_submitit_launcher.submitit_launcher.SlurmLauncher",
    ),
    "sweeper": (
        "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
        f"{_PLUGINS}_optuna_sweeper.optuna_sweeper.OptunaSweeper",
    ),
    "sweeper.sampler": tuple(
        f"optuna.samplers.{name}Sampler" for name in ("TPE", "Random", "Grid", "CmaEs", "NSGAII", "MOTPE", "GP", "QMC")
    ),
}
"""Key below `hydra` -> the classes that its `_target_` may name."""

EMPTY = (
    "callbacks",
    "job.env_set",
    "launcher.setup",
    "launcher.srun_args",
    "launcher.additional_parameters",
    "launcher.python",
    "sweeper.custom_search_space",
    "sweeper.storage",
)
"""Keys below `hydra` that must stay empty: they name functions, are run by a shell, or choose a process's imports."""

DIRECTIONS = ("maximize", ["maximize"] * 2)
"""The directions in which a sweep by Optuna may optimize the numbers of a job."""

LOGGING = ("job_logging", "hydra_logging")
"""Keys below `hydra` from which Python's logging module creates objects. Only configs that Hydra ships are allowed."""

FOLDERS = ("sweep.dir", "sweep.subdir", "launcher.submitit_folder", "launcher.temp_folder")
"""Keys below `hydra` of folders that Hydra makes, and in which it replaces files. `run.dir` must stay as it is."""

_FOREIGN = re.compile(r"\$\{(?!hydra[.:]|now:)")
"""An interpolation of other settings than Hydra's own, which are all checked here."""


def hydra_settings(settings: DictConfig) -> Iterator[str]:
    """A line for each of Hydra's own settings (`hydra.*`) that could run code which a config chooses, or that a run
    would not obey."""
    plain = OmegaConf.to_container(settings, resolve=False)
    assert isinstance(plain, dict)
    for key in EMPTY:
        if value := _select(plain, key):
            yield f"hydra.{key}: got {value}; must be empty: it runs code or a shell; set it up outside of distill"
    if (subdir := plain["output_subdir"]) is not None:
        yield f"hydra.output_subdir: got {subdir}; must be left out: Hydra replaces config.yaml there; leave it out"
    yield from _folders(plain)
    for key in LOGGING:
        shipped = sorted((Path(installed.__file__).parent / "conf" / "hydra" / key).glob("*.yaml"))
        if not any(plain[key] == yaml.safe_load(file.read_text(encoding="utf-8")) for file in shipped):
            names = ", ".join(file.stem for file in shipped)
            yield f"hydra.{key}: got settings of its own; must be one of {names}; choose with hydra/{key}=NAME"
    for key, classes in CALLED.items():
        node = _select(plain, key)
        target = node.get("_target_") if isinstance(node, Mapping) else node
        if target not in classes and not (node is None and "." in key):
            yield f"hydra.{key}._target_: got {target}; must be one of {', '.join(classes)}; choose one"
    yield from _alone(plain)
    direction = _select(plain, "sweeper.direction")
    direction = getattr(direction, "name", direction)
    if direction not in (None, *DIRECTIONS):
        yield (
            f"hydra.sweeper.direction: got {direction}; must be maximize, for the retained %, or [maximize,maximize], "
            "for the retained % and the speedup; set it"
        )
    rest = {key: value for key, value in plain.items() if key not in (*LOGGING, "callbacks")}
    yield from _reserved(rest, "hydra")


def _alone(plain: Mapping[Any, Any]) -> Iterator[str]:
    """A line for a launcher or a sweeper of a command without -m: Hydra would make the only run here, without it."""
    mode = plain.get("mode")
    for key in ("launcher", "sweeper") if getattr(mode, "name", mode) == "RUN" else ():
        if _select(plain, f"{key}._target_") in CALLED[key][1:]:
            name = _select(plain, f"runtime.choices.hydra/{key}")
            yield f"hydra/{key}: got {name} for a single run; must be used with -m, also for one job; add -m"


def _folders(plain: Mapping[Any, Any]) -> Iterator[str]:
    if PurePosixPath(run := str(_select(plain, "run.dir"))) != PurePosixPath("."):
        mend = "leave it out" if "${" in run else f"set {quoting.setting('output', run)}"
        yield f"hydra.run.dir: got {run}; must be left out, as a run writes to its folder `output` alone; {mend}"
    for key in FOLDERS:
        if _select(plain, key) is not None and not _below_here(str(_select(plain, key))):
            yield f"hydra.{key}: got {_select(plain, key)}; must be a folder below the current one; leave it out"
    place = PurePosixPath(str(_select(plain, "sweep.dir")))
    new = "${now:" in str(place) or (len(place.parts) > 1 and place.parts[0] == "outputs")
    if _below_here(str(place)) and not new:
        mend = quoting.setting("hydra.sweep.dir", str("outputs" / place))
        yield f"hydra.sweep.dir: got {place}; must be below outputs, as Hydra replaces multirun.yaml there; set {mend}"


def _below_here(path: str) -> bool:
    """Whether a path cannot leave the current folder. An interpolation may give the time, or the folder of a sweep."""
    rest = re.sub(r"\$\{now:[%\w:-]*\}|\$\{hydra\.sweep\.dir\}", "x", path)
    parts = PureWindowsPath(rest)
    return "${" not in rest and ".." not in parts.parts and not (parts.root or parts.drive or rest.startswith("~"))


def _select(node: Any, key: str) -> Any:
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _reserved(value: object, key: str) -> Iterator[str]:
    """A line for each key like `_target_` outside `CALLED`, and for each interpolation that is not checked."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            inner = f"{key}.{name}"
            if not RESERVED.fullmatch(str(name)):
                yield from _reserved(part, inner)
            elif inner not in (*(f"hydra.{called}._target_" for called in CALLED), "hydra.sweeper.sampler._partial_"):
                yield reserved(inner, part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _reserved(part, f"{key}.{number}")
    elif isinstance(value, str) and key.startswith(("hydra.launcher.", "hydra.sweeper.")) and _FOREIGN.search(value):
        yield f"{key}: got {value}; must be a value, or one of Hydra's own settings, ${{hydra.NAME}}; write the value"
