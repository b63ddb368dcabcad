"""The commands of `distill` and of `python -m distill`. The first word names one; other words are settings of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from distill.errors import discreet, printable
from distill.runtime import quoting, streams


@dataclass(frozen=True)
class Command:
    """A command, which the first word of a command line names."""

    module: str
    """The module whose `main` does it. It is imported when it is needed, because some take a second."""
    summary: str
    """One line for `--help`."""
    first: bool = False
    """Whether it ends as soon as nobody reads what it prints, as in `streams.printed`."""


RUN = "run"
COMMANDS = {
    RUN: Command("distill.cli.run", "make a smaller model by a recipe, and measure it; the word run may be left out"),
    "predict": Command(
        "distill.cli.predict", "predictions of a model folder for texts, or for the rows of a file", first=True
    ),
    "label": Command("distill.cli.label", "a teacher's outputs for any number of rows, as soft labels"),
    "compare": Command("distill.cli.compare.command", "two models on the rows of a file: agreement, scores, latency"),
    "look": Command("distill.cli.look.command", "what a model, or a teacher and its student, compute from one text"),
    "report": Command("distill.report.__main__", "one page on all runs below a folder, or the variant to ship"),
    "example": Command("distill.cli.example.command", "files of made-up tickets, to try the commands on"),
    "recipes": Command("distill.cli.recipes", "the recipes with their papers, or the stages and terms of one"),
    "choose": Command(
        "distill.cli.choose.command", "which encoder to start from, by published scores and its speed on this machine"
    ),
    "advise": Command("distill.cli.advise", "how fast a model can get on this machine, before anything is trained"),
}
"""Name -> command, in the order of `--help`."""


def program() -> str:
    """How the user started this process: `distill`, or `python -m distill`."""
    return "python -m distill" if Path(sys.argv[0]).name == "__main__.py" else "distill"


def main() -> int:
    """Run the command that `sys.argv` names.

    Returns:
        its exit code: that of `python -m distill.NAME`. A run that fails raises SystemExit with its code.
    """
    name, *words = sys.argv[1:] or [RUN]
    if name != RUN and name in COMMANDS:
        return streams.printed(lambda: _main(name)(words, f"{program()} {name}"), COMMANDS[name].first)
    if name != RUN and not _of_a_run(name):
        return streams.printed(lambda: _unknown(name))
    if name == RUN:
        sys.argv[1:] = words  # Hydra reads them there
    return _main(RUN)() or 0


def _main(name: str) -> Callable[..., Any]:
    """The function of a command; one that says which package is absent, in an environment that only serves models."""
    try:
        return import_module(COMMANDS[name].module).main
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "distill":
            raise
        line = f"distill {name}: got no package {error.name}; must be installed for this command; run "

        def missing(*_: object) -> int:
            sys.stderr.write(f"{line}{quoting.install()}\n")
            return 2

        return missing


def _of_a_run(word: str) -> bool:
    """Whether a run has a use for the word: a setting, a removed setting (`~KEY`), or an option of Hydra."""
    return "=" in word or word.startswith(("~", "-"))


def _unknown(word: str) -> int:
    from distill.pipeline.validation import likely  # not to start a command that exists

    near, words = get_close_matches(word, COMMANDS, n=1), sys.argv[1:]
    meant = likely.words(each for each in words if "=" not in each)
    advice = f"see {program()} --help"
    if near:
        advice = f"did you mean {program()} {near[0]}?"
    elif word in meant.values():
        others = [each for each in words if each not in meant.values()]
        recipe = {} if any(each.startswith("recipe=") for each in others) else {"recipe": "auto"}
        settings = (quoting.setting(key, value) for key, value in (recipe | meant).items())
        advice = f"did you mean {' '.join([program(), *settings, quoting.command(others)]).strip()}?"
    line = f"command line: got {word}; must be {', '.join(COMMANDS)}, or a setting KEY=VALUE of a run; {advice}"
    sys.stderr.write(f"{printable(discreet(line))}\n")
    return 2
