"""The command line that lists the recipes, and explains one: its method, its stages in order, and what each trains for.

python -m distill recipes
python -m distill recipes minilmv2
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from distill import config
from distill.cli.help_text import purpose
from distill.config import Config, Train, load_config
from distill.config.baselines import expanded
from distill.config.feature_kinds import FEATURE_KINDS
from distill.config.instantiate import RESERVED, bind
from distill.config.stages import BASE_WIDTH, Term
from distill.errors import ConfigError
from distill.runtime.command_line import Parser, exit_code

PROG = "python -m distill.recipes"
WIDTH = 100
_PAPER = re.compile(r"arXiv[\s#]+(\d{4}\.\d{4,5})")
EXTENDS = re.compile(r"^\s*- /recipe/(\S+)", re.MULTILINE)


def listed() -> Iterator[str]:
    """Each recipe with its purpose, and the papers of its method."""
    for name, path in config.recipes().items():
        papers = ", ".join(f"arXiv {paper}" for paper in _papers(path))
        yield name
        yield from _indented(f"{purpose(path)}{f' [{papers}]' if papers else ''}", 4)


def explained(name: str) -> Iterator[str]:
    """The header of a recipe, its stages in their order with the terms of each, and how to change one.

    Raises:
        ConfigError: for an unknown recipe.
    """
    recipes = config.recipes()
    if name not in recipes:
        near = get_close_matches(name, recipes, n=1)
        raise ConfigError(
            f"recipe: got {name}; must be one of {', '.join(recipes)}"
            + (f"; did you mean {near[0]}?" if near else "; see distill recipes")
        )
    path = recipes[name]
    about, commands = header(path)
    yield from _indented(f"recipe={name}: {purpose(path)}", 0)
    yield ""
    yield from textwrap.wrap(about, WIDTH)
    if parent := EXTENDS.search(path.read_text(encoding="utf-8")):
        yield ""
        yield f"It extends recipe={parent[1]}, whose own words are: python -m distill recipes {parent[1]}"
    settings = expanded(load_config([f"recipe={name}"]))
    yield from ("", "Stages, in this order:")
    for number, stage in enumerate(settings.pipeline, 1):
        yield ""
        yield from _stage(number, stage, settings)
    yield from ("", "Losses, each of a row; [N] is the number of rows:")
    yield from _losses(settings)
    yield from ("", "Commands:", *(f"  {command}" for command in commands))
    yield f"  python -m distill recipe={name} --cfg job   # every setting, to be changed as KEY=VALUE"


def header(path: Path) -> tuple[str, list[str]]:
    """The description of a recipe, and the commands in it."""
    text = path.read_text(encoding="utf-8")
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line[:1] == "#"]
    commands = [line for line in lines if re.match(r"(python -m|torchrun) ", line)]
    return " ".join(line for line in lines if line not in commands and not line.startswith("For: ")), commands


def _papers(path: Path) -> list[str]:
    """The numbers on arXiv that a recipe names, and those of recipes that it extends."""
    text = path.read_text(encoding="utf-8")
    parents = [config.recipes()[parent] for parent in EXTENDS.findall(text)]
    return list(dict.fromkeys([*_PAPER.findall(text), *(paper for parent in parents for paper in _papers(parent))]))


def _stage(number: int, name: str, settings: Config) -> Iterator[str]:
    stage: Any = settings.stages[name]
    named = {key: value for key in ("start", "teacher", "generator") if (value := getattr(stage, key, None))}
    facts = [stage.about, *(f"{key} {value}" for key, value in named.items())]
    if isinstance(stage, Train):
        facts += [f"{stage.steps} steps" if stage.steps else _length(stage)]
        facts += [f"layers replaced from probability {stage.replacing:g} on"] if stage.replacing is not None else []
        facts += [_rate(stage)]
    yield from _indented(f"{number}. {name}: {'; '.join(facts)}", 4, first=2)
    for label, term in getattr(stage, "terms", {}).items():
        if term.weight > 0:
            yield from _indented(_term(label, term), 8, first=6)


def _length(stage: Train) -> str:
    """How long a stage is trained."""
    longer = _compressed(stage.scale_with_compression.epochs)
    least = f", at least {stage.min_steps} steps" if stage.min_steps and stage.data == "tasks" else ""
    return f"{stage.epochs:g} epochs{longer}{least}"


def _rate(stage: Train) -> str:
    """Its learning rate."""
    if rate := stage.optimizer.get("lr"):
        return f"learning rate {rate:g}"
    return f"learning rate {stage.base_lr:g} at width {BASE_WIDTH}{_compressed(stage.scale_with_compression.lr)}"


def _compressed(power: float) -> str:
    """By what a value is multiplied for a pruned model."""
    return f" x how many times fewer weights its layers have{f' ^ {power:g}' * (power != 1)}" if power else ""


def _term(label: str, term: Term) -> str:
    """A term in words: its weight, what it compares, and its loss with its values."""
    target, values = term.loss["_target_"], {k: v for k, v in term.loss.items() if not RESERVED.fullmatch(k)}
    same = term.features, target
    alike = {name: about for name, about, file in _files() if (file["features"], file["loss"]["_target_"]) == same}
    only = next(iter(alike.values())) if len(alike) == 1 else f"{FEATURE_KINDS[term.features].compares}."
    about = alike.get(label, only)
    loss = ", ".join([target.rpartition(".")[2], *(f"{key} {value:g}" for key, value in values.items())])
    layers = "" if term.layers == "last" or not FEATURE_KINDS[term.features].layers else f"; layers {term.layers}"
    return f"{term.weight:g} x {label}: {about} (loss {loss}{layers})"


@functools.cache
def _files() -> list[tuple[str, str, dict[str, Any]]]:
    """The name, the header and the content of each file of a term."""
    files = sorted((config.folder("conf") / "term").glob("*.yaml"))
    return [(file.stem, header(file)[0], yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files]


def _losses(settings: Config) -> Iterator[str]:
    """Each loss of the stages of a pipeline once, with its formula and its source."""
    stages = [getattr(settings.stages[name], "terms", {}) for name in settings.pipeline]
    terms = [term for of_stage in stages for term in of_stage.values() if term.weight > 0]
    for target in dict.fromkeys(term.loss["_target_"] for term in terms):
        loss = bind({"_target_": target}, "loss")
        text = " ".join((inspect.getdoc(loss.func) or "").split())  # type: ignore[attr-defined]
        yield from _indented(f"{target.rpartition('.')[2]}: {text}", 4, first=2)


def _indented(text: str, indent: int, first: int | None = None) -> list[str]:
    start = " " * (indent if first is None else first)
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * indent, break_on_hyphens=False)


def _parser(prog: str = PROG) -> argparse.ArgumentParser:
    parser = Parser(prog=prog, description="List the recipes with their papers, or explain one of them.")
    parser.add_argument("name", nargs="?", metavar="RECIPE", help="recipe to explain, such as minilmv2")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for an unknown recipe, 130 after Ctrl-C."""

    def command() -> None:
        asked = _parser(prog).parse_args(arguments)
        lines = listed() if asked.name is None else explained(asked.name)
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    return exit_code(command)
