"""Checks of the run folder: no model and no file that the run reads may lie in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distill.config import Config
from distill.pipeline.validation.rules import flatten
from distill.runtime import quoting
from distill.runtime.storage.outputs import spellings

READ = frozenset("name names path files train validation test development tokenizer masked_lm".split())
"""Last parts of the keys of settings that may be paths."""


def place(config: Config, folder: Path) -> Iterator[str]:
    """A line for each path that the run would read in its own folder, where it may replace and remove anything."""
    run, base = folder.resolve(), config.tasks.path or "."
    for key, value in flatten({"teacher": asdict(config.teacher), "student": asdict(config.student)}).items():
        yield from _inside(key, value, "", run, folder) if key.rpartition(".")[2] in READ else ()
    others = {"corpus": asdict(config.corpus), "transfer": asdict(config.transfer), "tasks": asdict(config.tasks)}
    for key, value in flatten(others).items():
        if key not in ("tasks.name", "tasks.names", "corpus.name") and READ & {*key.split(".")[1:]}:
            yield from _inside(key, value, base if key.startswith("tasks.") else "", run, folder)


def _inside(key: str, value: Any, base: str, run: Path, folder: Path) -> Iterator[str]:
    for given in value if isinstance(value, list) else [value]:
        if not isinstance(given, str):
            continue
        plain = {each for spelling in spellings(given) for each in (spelling, os.path.join(base, spelling))}
        for path in plain:
            if _leads_into(path, run):
                beside = quoting.setting("output", f"{os.path.normpath(folder)}-run")
                yield (
                    f"{key}: got {given}, in the run folder {folder}; must lie outside, because a run may remove "
                    f"anything in its folder; set {beside}"
                )
                break


def _leads_into(path: str, run: Path) -> bool:
    """Whether a path is the run folder, or in it; of a glob, whether its part before the first pattern is."""
    try:
        real = Path(path.partition("*")[0]).resolve()
        return (run == real or run in real.parents) and os.path.lexists(real)
    except (OSError, ValueError):
        return False
