"""The command line that measures which speedups are within reach on this machine, without training anything.

python -m distill.advise my-bert tickets.csv --speedup 4
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.cli.options import Parser, exit_code
from distill.config import Config, implied, load_config
from distill.config.plan import resolve
from distill.errors import ConfigError, refuse
from distill.pipeline import validation
from distill.runtime import quoting as typed

if TYPE_CHECKING:
    from distill.compression.pruning.search import Shape

PROG = "python -m distill.advise"
RECIPE = "prune"
"""The recipe whose search is used."""

SPEEDUPS = [2.0, 4.0, 8.0]
"""Speedups that are looked for by default."""

KNOTS, REPEATS = (3, 2), 3
"""Numbers of hidden and of FFN sizes that are timed, and rounds of timing: fewer than in a run, because the sizes that
are shown are then timed themselves."""

SHAPE = (8, 128)
"""Batch size and length of the timed inputs without a file of texts."""


@dataclass(frozen=True)
class Row:
    """A model that was timed."""

    model: str
    """How much of the teacher it is."""
    form: str
    """Backend and scheme."""
    milliseconds: float
    speedup: float
    """Over the teacher's fastest float32 variant."""
    weights: float
    """Weights of its layers, as a share of the teacher's weights."""
    size_mib: float
    """Size of its weights in float32."""


@dataclass(frozen=True)
class Advice:
    """The result of the measurements."""

    rows: list[Row]
    found: list[float]
    """Speedups that a size reaches."""
    missed: dict[float, float]
    """Speedup that no size reaches -> the highest speedup of all sizes, as predicted."""


def settings(teacher: str, file: Path | None, speedups: Sequence[float], columns: dict[str, Any]) -> Config:
    """The settings of a run of RECIPE with these arguments. Raises ConfigError if they are wrong."""
    config = load_config([f"recipe={RECIPE}"])
    target = replace(config.target, speedup=[*speedups], shape=config.target.shape if file else list(SHAPE))
    given = replace(config.teacher, kind="hub", name=teacher)
    tasks = config.tasks if file is None else replace(config.tasks, train=str(file), **columns)
    limit = replace(config.limit, repeats=REPEATS)
    config = implied(replace(config, teacher=given, target=target, tasks=tasks, limit=limit), [])
    refuse(validation.settings(config, RECIPE))
    return config


def advise(config: Config) -> Advice:
    """Time the teacher in its float32 variants and in the variant that will serve, and for each speedup the model with
    the most weights that reaches it, all in the same rounds. Models have random weights, on which times do not depend.

    Raises UserError for a teacher or a file that cannot be used.
    """
    from distill.compression.pruning.search import choose, fits_target
    from distill.models import teacher
    from distill.pipeline.context import Context
    from distill.pipeline.context.folder import RunFolder
    from distill.pipeline.stages.shape_search import search_inputs, search_of
    from distill.runtime import progress
    from distill.runtime.machine import start

    with tempfile.TemporaryDirectory() as folder:
        machine = start(config.device, config.precision, config.threads)
        ctx = Context(config, resolve(config), RECIPE, "", machine, RunFolder(Path(folder)))
        step = next(step for step in ctx.plan.steps if step.kind == "prune")
        for given in dict.fromkeys(ctx.given.teachers):
            for line in teacher.check_given(given, "TEACHER"):
                ctx.machine.log(line)
        with progress.shown_on(ctx.machine.console):
            inputs = search_inputs(ctx, step)
            search = replace(search_of(inputs, ctx.runtime, teacher.read_config(ctx.given.teacher)), knots=KNOTS)
            table = search.times
            found: dict[float, Shape] = {}
            missed: dict[float, float] = {}
            for speedup in sorted(goal.speedup for goal in ctx.plan.targets.values()):
                fits = fits_target(replace(config.target, speedup=speedup, latency_ms=None), table, search.size)
                shape = choose(search.shapes, fits, lambda shape: -shape.weights, table.milliseconds)
                if shape is None:
                    missed[speedup] = max(map(table.speedup, search.shapes))
                else:
                    found[speedup] = shape
            whole, float32 = search.full, search.references()
            shapes = {f"{speedup:g}x": shape for speedup, shape in found.items() if shape != whole}
            form = inputs.form
            if (form.backend, form.scheme) not in [(runner.backend, runner.scheme) for runner in float32]:
                shapes = {"whole": whole} | shapes
            times = search.times_of([*float32, *(search.build(name, shape) for name, shape in shapes.items())])
    fastest = min(times[runner.name] for runner in float32)

    def row(name: str, shape: Shape, form: str) -> Row:
        share = shape.weights / whole.weights
        return Row(text_of(shape, whole), form, times[name], fastest / times[name], share, search.size(shape))

    rows = [row(runner.name, whole, runner.name) for runner in float32]
    rows += [row(name, shape, f"{form.backend} {form.scheme}") for name, shape in shapes.items()]
    return Advice(rows, [*found], missed)


def text_of(shape: Shape, whole: Shape) -> str:
    """A shape in words."""
    if shape == whole:
        return "the teacher"
    return f"{shape.layers} layers, {shape.hidden} wide, FFN {shape.ffn}"


def show(advice: Advice, again: str) -> None:
    """Print what was measured. `again`: the command, without a speedup, that trains a model."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("Model", "Variant", "ms", "Speedup", "Weights of its layers", "MiB in float32", box=None)
    for row in advice.rows:
        cells = [f"{row.milliseconds:.2f}", f"{row.speedup:.2f}x", f"{100 * row.weights:.0f}%", f"{row.size_mib:.0f}"]
        table.add_row(row.model, row.form, *cells)
    console.print(table)
    reached = max(advice.found, default=4.0)
    for speedup, most in advice.missed.items():
        console.print(f"{speedup:g}x is out of reach: the smallest model is estimated at {most:.1f}x.", highlight=False)
    console.print(
        "Times are measured on this machine, with random weights. Scores are known only after training. This trains "
        "models up to this speedup, as long as they retain enough:",
        highlight=False,
    )
    console.print(f"{again} target.speedup={reached:g}", highlight=False, markup=False, soft_wrap=True)


def _speedup(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 < value < 1e6:
        raise argparse.ArgumentTypeError(f"got {text}; must be a number above 1; e.g. 4")
    return value


def _parser(prog: str = PROG) -> Parser:
    parser = Parser(
        prog=prog,
        description="Measure how fast a model can get on this machine, before anything is trained.",
    )
    parser.add_argument("teacher", metavar="TEACHER", help="folder or name of a model")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="texts whose lengths are timed; else 8 texts of 128 tokens"
    )
    parser.add_argument("--speedup", metavar="N", nargs="+", type=_speedup, default=SPEEDUPS, help="default: 2 4 8")
    parser.add_argument("--text", metavar="COLUMN", help="column of the text, or of the first text of a pair")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of a pair")
    parser.add_argument("--label", metavar="COLUMN", help="column of the label")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """The exit code: 0, 2 for an error that the user can correct, such as a ConfigError, 130 after Ctrl-C.

    Args:
        arguments: the words after the command; those of `sys.argv` by default.
        prog: the command as the user typed it, for messages.
    """
    return exit_code(lambda: _run(_parser(prog).parse_args(arguments)))


def _run(options: argparse.Namespace) -> None:
    columns = {name: value for name in ("text", "text_pair", "label") if (value := getattr(options, name))}
    if columns and options.file is None:
        raise ConfigError(f"{', '.join(columns)}: got a column without FILE; must be one of FILE; name the file")
    config = settings(options.teacher, options.file, options.speedup, columns)
    given = {"teacher.name": options.teacher, "tasks.train": str(options.file or "FILE")}
    given |= {f"tasks.{name}": value for name, value in columns.items()}
    again = " ".join(typed.setting(name, value) for name, value in given.items())
    show(advise(config), f"python -m distill recipe=auto {again}")
