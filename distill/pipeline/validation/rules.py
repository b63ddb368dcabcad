"""Checks of single settings, and functions that find settings in the tree of a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distill.config import Baseline, Config
from distill.config.allowed import ruled
from distill.config.baselines import SHARED
from distill.config.free import FREE
from distill.config.names import folded
from distill.errors import Line, Problem


def existing(key: str, value: str | None, rule: str) -> Iterator[Line]:
    """An error for a path that is not set or does not exist."""
    if not value:
        yield Problem(key, "nothing", f"be {rule}", f"set {key}=PATH")
    elif not Path(value).exists():
        yield Problem(key, value, f"be {rule} that exists", f"check the path (from {Path.cwd()})")


def alike(key: str, given: Iterable[str], kind: str) -> Iterator[Line]:
    """Problems of names of stages or tasks (`kind`) whose folders would be one folder."""
    first: dict[str, str] = {}
    for name in given:
        if (other := first.setdefault(folded(name), name)) != name:
            must = "differ in more than case, because some file systems have one folder for both"
            yield Problem(
                f"{key}.{name}", f"{name!r} beside {other!r} as names of {kind}", must, f"rename one of the {kind}"
            )


def flatten(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> value of each leaf in a tree of dataclasses and dicts. A list is a leaf."""
    if is_dataclass(value):
        items = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, dict):
        items = list(value.items())
    else:
        return {key: value}
    return {k: v for name, part in items for k, v in flatten(part, f"{key}.{name}" if key else str(name)).items()}


def binding(settings: Any) -> dict[str, Any]:
    """Dotted key -> value of the settings, a config or a tree of dicts, that a run keeps when it is resumed."""
    return {key: value for key, value in flatten(settings).items() if key not in FREE}


def defaults(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> default of each setting in a tree of dataclasses and dicts whose field, or one above, has one."""
    found: dict[str, Any] = {}
    items = vars(value).items() if is_dataclass(value) else value.items() if isinstance(value, dict) else ()
    for name, part in items:
        found |= defaults(part, f"{key}.{name}" if key else str(name))
    for f in fields(value) if is_dataclass(value) else ():
        given = f.default if f.default_factory is MISSING else f.default_factory()
        found |= {} if given is MISSING else flatten(given, f"{key}.{f.name}" if key else f.name)
    return found


LISTED = 40
"""Number of names that a message lists."""


def nearest(name: str, names: list[str]) -> str:
    """Advice for an unknown name: names like it, or like its last part after a dot; else the first `LISTED` names."""
    near = get_close_matches(name, names, n=3, cutoff=0.7)
    leaf = name.rpartition(".")[2]
    near = near or [n for n in names if get_close_matches(leaf, [n.rpartition(".")[2]], cutoff=0.8)][:4]
    if near:
        return f"did you mean {', '.join(near)}?"
    more = f" and {len(names) - LISTED} others" if len(names) > LISTED else ""
    return f"choose from {', '.join(names[:LISTED])}{more}" if names else "leave it out"


def unknown(value: Any, key: str) -> Iterator[Line]:
    """Settings that do not exist. Hydra adds them for a `+` before a misspelt key, and they would have no effect."""
    if is_dataclass(value):
        names = [f.name for f in fields(value)]
        for name in sorted(vars(value).keys() - set(names)):
            got = getattr(value, name)
            advice = of_student(value, name) or nearest(name, names)
            yield Problem(f"{key}{name}", got, "be a setting that exists", advice)
    if is_dataclass(value) or isinstance(value, dict):
        for name, part in (vars(value) if is_dataclass(value) else value).items():
            yield from unknown(part, f"{key}{name}.")


def of_student(stage: Any, setting: str) -> str | None:
    """Advice for a setting that a baseline stage takes from its student's stage; None for all other settings."""
    if isinstance(stage, Baseline) and setting.partition(".")[0] in SHARED:
        return f"set stages.{stage.baseline_of}.{setting}, which the baseline is trained with too"
    return None


def matches(pattern: str, key: str) -> bool:
    """Whether a dotted key matches a pattern, in which `*` stands for any one name."""
    parts, names = pattern.split("."), key.split(".")
    return len(parts) == len(names) and all(p in ("*", n) for p, n in zip(parts, names, strict=True))


def broken(config: Config) -> Iterator[Line]:
    """A line for each setting with a value that the rule of its field does not allow."""
    for key, value, rule in ruled(config):
        # A stage that uses the temperature of the whole run would repeat the same problem.
        repeated = key.endswith(".temperature") and value == config.temperature
        if not (value is None or isinstance(value, bool) or repeated or rule.valid(value)):
            yield Problem(key, value, f"be {rule.words}", rule.advice)
