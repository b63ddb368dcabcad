"""The text of `python -m distill --help`. Hydra's own help reads every group several times, which takes longer."""

from __future__ import annotations

from pathlib import Path

from distill import config

TEXT = """\
Makes encoders smaller and faster by distillation, pruning and quantization, and measures the result.

Usage: python -m distill recipe=NAME [key=value ...]

  python -m distill recipe=distilbert                                   runs anywhere, no download
  python -m distill recipe=prune teacher.name=FOLDER tasks.train=FILE   your own model and labelled file
  python -m distill recipe=auto teacher.name=FOLDER tasks.train=FILE    the fastest that retains 97%, in an hour
  python -m distill recipe=distilbert tasks=glue tasks.path=DIR         real GLUE from a folder
  python -m distill -m recipe=distilbert seed=0,1,2                     a sweep; finished runs are skipped
  python -m distill recipe=distilbert --cfg job                         every setting of a recipe

Choices (choose with group=option):

"""


def text() -> str:
    """The usage, with every group of conf/ and the recipes."""
    return TEXT + "\n".join(f"{group}: {', '.join(options)}" for group, options in sorted(choices().items())) + "\n"


def choices() -> dict[str, list[str]]:
    """Group -> its options."""
    folders = [folder for folder in config.folder("conf").iterdir() if folder.is_dir()]
    return {folder.name: _names(folder) for folder in folders} | {"recipe": [*config.recipes()]}


def _names(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.yaml"))
