"""The text of `distill --help`. Hydra's own help reads every group several times, which takes longer."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from distill import config
from distill.cli.commands import COMMANDS
from distill.config.instantiate import PLACES

ABOUT = "Makes encoders smaller and faster by distillation, pruning and quantization, and measures the result."
EXAMPLES = {
    "recipe=distilbert": "runs anywhere, no download",
    "recipe=prune teacher.name=FOLDER tasks.train=FILE": "your own model and labelled file",
    "recipe=auto teacher.name=FOLDER tasks.train=FILE": "the fastest that retains 97%, in an hour",
    "-m recipe=distilbert seed=0,1,2": "a sweep; finished runs are skipped",
    "recipe=distilbert --cfg job": "every setting of a recipe",
}
"""Words after the program -> what they do."""
WIDTH = 120
PAPERS = "paper/"
"""Start of the names of recipes at the scale of their papers."""
_PURPOSE = re.compile(r"^# For: (.+)$", re.MULTILINE)
"""The line of a recipe's header on what it is for and what it costs."""


def text(program: str) -> str:
    """The usage, with every command, every recipe and the choices of each group.

    Args:
        program: how the user calls distill, such as `python -m distill`.
    """
    parts = {
        f"Usage: {program} [COMMAND] ...   ({program} COMMAND --help has its options)": {
            name: command.summary for name, command in COMMANDS.items()
        },
        "Runs:": {f"{program} {words}": meaning for words, meaning in EXAMPLES.items()},
        "Recipes (recipe=NAME):": _recipes(),
        "Other choices (group=option):": {group: ", ".join(options) for group, options in sorted(choices().items())},
    }
    return "\n\n".join([ABOUT, *("\n".join([title, *_columns(rows)]) for title, rows in parts.items())]) + "\n"


def _recipes() -> dict[str, str]:
    """Recipe -> its purpose; one line for all recipes of a folder, which are at the scale of their papers."""
    every = config.recipes()
    papers = [name.removeprefix(PAPERS) for name in every if name.startswith(PAPERS)]
    return {name: purpose(path) for name, path in every.items() if not name.startswith(PAPERS)} | {
        f"{PAPERS}NAME": f"at the papers' scale: {', '.join(papers)}; needs GPUs"
    }


def purpose(recipe: Path) -> str:
    """The purpose and the cost of the recipe in a file, as its header states them."""
    found = _PURPOSE.search(recipe.read_text(encoding="utf-8"))
    assert found, recipe
    return found[1]


def choices() -> dict[str, list[str]]:
    """Group, as it is typed -> its options, if there are several. Stages are left out, because recipes alone choose
    among them, and so are terms, which `distill recipes` explains."""
    folders = [f for f in config.folder("conf").iterdir() if f.is_dir() and f.name not in ("stage", "term")]
    found = {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}
    placed = {name: f"{name}@stages.STAGE.{name}" for name in PLACES}
    return {placed.get(group, group): options for group, options in found.items() if len(options) > 1}


def _columns(rows: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, rows))
    for left, right in rows.items():
        first, *others = textwrap.wrap(right, WIDTH - 5 - width) or [""]
        yield f"  {left:{width}}   {first}"
        yield from (f"{'':{width + 5}}{line}" for line in others)
