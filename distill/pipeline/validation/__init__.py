"""Checks in three phases: settings, models and data. Each finds all of its problems at once, before any training.

- `settings(config, recipe)`: before any download, and without torch. Pairs that do not fit stand in `refuses.REFUSES`.
- `models.problems`: once the given models are on disk.
- `data.problems`: once the rows are read.

`preflight.prepare` loads models and rows and runs the last two. All other modules check the command line.
"""

from __future__ import annotations

import re

from distill.config import Config, recipes
from distill.config.plan import resolve
from distill.errors import Line, Problem
from distill.pipeline.validation.pipeline import pipeline
from distill.pipeline.validation.refuses import refused
from distill.pipeline.validation.rules import broken, unknown
from distill.pipeline.validation.shared import shared
from distill.pipeline.validation.sources import sources
from distill.pipeline.validation.student import student
from distill.pipeline.validation.targets import targets

_START = "start with recipe=auto teacher.name=MODEL tasks.train=FILE, or see python -m distill recipes"


def settings(config: Config, recipe: str | None) -> list[str]:
    """All problems of the config, one line each, of the form `KEY: got X; must be Y; do Z`."""
    wrong = list(broken(config))
    errors: list[Line] = [*unknown(config, ""), *wrong, *sources(config)]
    if recipe is None:
        names = ", ".join(recipes())
        errors.insert(0, Problem("recipe", "nothing", f"be one of {names}", _START))
    else:
        plan = resolve(config)
        errors += [*pipeline(config, plan), *student(config, plan), *shared(config, plan), *refused(config, plan)]
        errors += targets(config)
    # What follows from a wrong value is not what the user meant.
    keys = {str(line).partition(":")[0] for line in wrong}
    known = {*map(str, wrong)}
    named = re.compile("|".join(rf"(?<![\w.]){re.escape(key)}(?![\w.])" for key in keys) or "(?!)")
    lines = [line for line in map(str, errors) if line in known or not named.search(line)]
    return list(dict.fromkeys(lines))
