"""The command line that measures which speedups are within reach on this machine, without training anything.

It first prints estimates from a few small models, and then times the models that it offers.

python -m distill.advise my-bert tickets.csv --speedup 4
python -m distill.advise my-bert my-small-bert tickets.csv   # two teachers, side by side
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.cli.options import as_options
from distill.config import Config, Target, implied, load_config
from distill.config.loads import BATCH, LOADS, SINGLE, load_of
from distill.config.plan import resolve
from distill.errors import ConfigError, discreet, printable, refuse
from distill.pipeline import validation
from distill.runtime import quoting as typed
from distill.runtime.command_line import Parser, count, exit_code

if TYPE_CHECKING:
    from distill.compression.pruning.search import Shape, Tables
    from distill.compression.pruning.target import Search
    from distill.data.tasks import TaskData
    from distill.pipeline.context import Context
    from distill.pipeline.validation.models import Models

PROG = "python -m distill.advise"
RECIPE = "prune"
"""The recipe whose search is used."""

SPEEDUPS = [2.0, 4.0, 8.0]
"""Speedups that are looked for by default."""

SHAPES: dict[str, tuple[int, int]] = {BATCH: (8, 128), SINGLE: (1, 128)}
"""Load -> batch size and length of the timed inputs without a file of texts."""

OPTIONS = ("text", "text_pair", "label", "separator", "max_length")
"""Settings of a task that are options here."""

AIMS = (1.0, 1.04, 0.96)
"""Speedups that are aimed at, as shares of the speedup that is asked for.

After each the estimates are corrected, so that there is a model on either side."""


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
    """Weights of its layers, as a share of the weights of the teacher's layers."""
    size_mib: float
    """Size of its weights in float32."""


@dataclass(frozen=True)
class Advice:
    """The result of the measurements."""

    rows: list[Row]
    estimated: bool
    """Whether the times are estimates, from models of a few other sizes."""
    missed: dict[float, float]
    """Speedup that no size reaches -> the highest speedup of all sizes, as estimated."""
    found: list[float] = field(default_factory=list)
    """Speedups that a size reaches."""
    unit: str = "ms"
    """What the milliseconds are of."""


def settings(teacher: str, file: str | None, speedups: Sequence[float], load: str, given: dict[str, Any]) -> Config:
    """The settings of a run of RECIPE with these arguments. Raises ConfigError if they are wrong.

    Args:
        given: settings of the task. Without a file, `max_length` is the length of the timed texts.
    """
    config = load_config([f"recipe={RECIPE}"])
    rows, length = SHAPES[load]
    timed = {"load": load} if file else {"shape": [rows, given.get("max_length", length)]}
    wanted = list(dict.fromkeys(speedups))
    target = replace(config.target, speedup=wanted if len(wanted) > 1 else wanted[0], **timed)
    hub = replace(config.teacher, kind="hub", name=teacher)
    tasks = replace(config.tasks, **given | ({} if file is None else {"train": file}))
    config = implied(replace(config, teacher=hub, target=target, tasks=tasks), [])
    refuse(validation.settings(config, RECIPE))
    return config


def advise(configs: Mapping[str, Config], shown: Callable[[str, Advice], None]) -> None:
    """Show how fast each teacher, and models that reach each speedup, are: first by estimates, then timed themselves.

    Models have random weights, on which times do not depend. They are timed in all forms, and each is offered in its
    fastest. All teachers are checked before the first is timed.

    Args:
        configs: name of a teacher -> settings.
        shown: gets the name of a teacher and what was measured.

    Raises UserError for a teacher or a file that cannot be used.
    """
    from distill.cli.timed_texts import tasks_of

    with tempfile.TemporaryDirectory() as folder:
        contexts = {
            name: _context(config, Path(folder, str(place))) for place, (name, config) in enumerate(configs.items())
        }
        given = {name: _checked(ctx) for name, ctx in contexts.items()}
        # The file last: to read it takes longer than to check all teachers.
        tasks = {name: tasks_of(ctx, given[name], _shown) for name, ctx in contexts.items()}
        for name, ctx in contexts.items():
            _advise(ctx, tasks[name], functools.partial(shown, name))


def _context(config: Config, folder: Path) -> Context:
    """The context of a run with these settings."""
    from distill.pipeline.context import Context
    from distill.pipeline.context.folder import RunFolder
    from distill.runtime.machine import start

    folder.mkdir()
    machine = start(config.device, config.precision, config.threads)
    return Context(config, resolve(config), RECIPE, "", machine, RunFolder(folder))


def _checked(ctx: Context) -> Models:
    """The teachers of a run. Raises UserError for one that the run could not prune."""
    from distill.pipeline.validation import models, preflight

    steps = ctx.plan.pruners[:1]
    given = preflight.loaded(ctx.given, steps, ctx.machine.log)
    refuse(dict.fromkeys(models.problems(given, ctx.config, ctx.plan, steps, None)))
    return given


def _advise(ctx: Context, tasks: Mapping[str, TaskData], shown: Callable[[Advice], None]) -> None:
    from distill.compression.pruning.search import Tables
    from distill.models import teacher
    from distill.pipeline.stages.shape_search import search_inputs, search_of
    from distill.runtime import progress

    step = ctx.plan.pruners[0]
    speedups, unit = sorted(goal.speedup for goal in ctx.plan.targets.values()), unit_of(step.goal)
    with progress.shown_on(ctx.machine.console):
        inputs = search_inputs(ctx, step, tasks)
        search = search_of(inputs, ctx.runtime, teacher.read_config(ctx.given.teacher))
        over = [form for form in search.screened if [form.backend, form.scheme] in search.conditions["over"]]
        reference = min(over, key=lambda form: search.screened[form].milliseconds(search.full))
        tables = Tables(search.screened, search.screened[reference].milliseconds(search.full))
        first = _row(search, search.full, reference.name, tables.reference, 1.0)
        estimated = {speedup: _largest(search, tables, speedup) for speedup in speedups}
        missed = {speedup: max(map(tables.speedup, search.shapes)) for speedup in speedups if not estimated[speedup]}
        shapes = dict.fromkeys([search.full, *filter(None, estimated.values())])
        rows = [_row(search, s, tables.form(s).name, tables.milliseconds(s), tables.speedup(s)) for s in shapes]
    shown(Advice([first, *rows], True, missed, unit=unit))
    with progress.shown_on(ctx.machine.console):
        rows = _timed(search, tables, [speedup for speedup in speedups if speedup not in missed])
    found = [speedup for speedup in speedups if any(row.speedup >= speedup for row in rows)]
    shown(Advice(rows, False, missed, found, unit))


def _row(search: Search, shape: Shape, form: str, took: float, speedup: float) -> Row:
    whole = search.full
    share = _weights(search, shape) / _weights(search, whole)
    return Row(text_of(shape, whole), form, took, speedup, share, search.size(shape))


def _weights(search: Search, shape: Shape) -> float:
    """Weights of the layers of a shape. Where layers share them, as in ALBERT, they count once."""
    from distill.models import families

    return shape.weights / shape.layers if families.family_of(search.config).shared_layers else shape.weights


def _largest(search: Search, tables: Tables, speedup: float, slower: float = 1.0) -> Shape | None:
    """The shape with the most weights that reaches a speedup if models take `slower` times as long as in the tables.

    Of each width, only the FFN size that is nearest to the teacher's proportion counts, unless only others are so fast.
    """
    whole = search.full
    sizes = sorted({shape.ffn for shape in search.shapes})
    inner = {
        width: min(sizes, key=lambda size: abs(size - whole.ffn * width / whole.hidden))
        for width in {shape.hidden for shape in search.shapes}
    }
    shapes = [shape for shape in search.shapes if shape.ffn == inner[shape.hidden]]
    fitting = [shape for shape in shapes if tables.speedup(shape) / slower >= speedup]
    fitting = fitting or [shape for shape in search.shapes if tables.speedup(shape) / slower >= speedup]
    return max(fitting, key=lambda shape: (shape.weights, tables.speedup(shape)), default=None)


def _timed(search: Search, tables: Tables, speedups: Sequence[float]) -> list[Row]:
    """The teacher, and for each speedup models on either side of it, each timed itself beside the teacher."""
    from distill.compression.pruning.search import leading
    from distill.compression.pruning.target import CARRIED

    rows: dict[Shape, Row] = {}

    def measure(shape: Shape, speedup: float) -> float:
        """The speedup of a model of this shape in the forms that are the best at a speedup."""
        if shape not in rows:
            forms = leading(tables.of, search.shapes, tables.reference / speedup, CARRIED)
            form, took, found = search.against_reference(shape, forms)
            rows[shape] = _row(search, shape, form.name, took, found)
            search.log(f"{rows[shape].model}: {found:.2f}x, {took:.2f} ms, {form.name}")
        return rows[shape].speedup

    slower = tables.speedup(search.full) / measure(search.full, 1.0)
    for speedup in speedups:
        for aim in AIMS:
            if (shape := _largest(search, tables, aim * speedup, slower)) is not None:
                slower = tables.speedup(shape) / measure(shape, speedup)
    whole, others = rows.pop(search.full), sorted(rows.values(), key=lambda row: row.speedup)
    reference = search.reference.name
    return [_row(search, search.full, reference, whole.milliseconds * whole.speedup, 1.0), whole, *others]


def text_of(shape: Shape, whole: Shape) -> str:
    """A shape in words."""
    if shape == whole:
        return "the teacher"
    return f"{shape.layers} layers, {shape.hidden} wide, FFN {shape.ffn}"


def headers(unit: str) -> tuple[str, ...]:
    """The columns of a table. `unit`: what the milliseconds are of."""
    return "Model", "Variant", unit, "Speedup", "Weights\nof its layers", "MiB in float32"


def unit_of(target: Target) -> str:
    """What the milliseconds of a search are of: a batch of a fixed shape, or a text."""
    if isinstance(target.shape, list):
        rows, length = target.shape
        return f"ms of {rows} x {length} tokens"
    return "ms of one text" if load_of(target) == SINGLE else "ms per text\n(batches of up to 8)"


def _cells(row: Row) -> list[str]:
    numbers = [f"{row.milliseconds:.2f}", f"{row.speedup:.2f}x", f"{100 * row.weights:.0f}%", f"{row.size_mib:.0f}"]
    return [row.model, row.form, *numbers]


def show_beside(advices: Mapping[str, Advice]) -> None:
    """Print what was measured of several teachers, in one table."""
    from rich.console import Console
    from rich.table import Table

    (unit,) = {advice.unit for advice in advices.values()}  # of one command
    table = Table("Teacher", *headers(unit), box=None)
    for teacher, advice in advices.items():
        name = printable(f"{teacher} (estimates)" if advice.estimated else teacher)
        for place, row in enumerate(advice.rows):
            table.add_row("" if place else name, *_cells(row))
    console = Console(width=None if sys.stdout.isatty() else 150, markup=False, emoji=False)  # of names of folders
    console.print(table)
    for teacher, advice in advices.items():
        for line in _missed(advice):
            console.print(printable(f"{teacher}: {line}"), highlight=False)
    console.print(
        "A speedup is over the teacher of the same rows. Teachers are timed one after the other, each on texts as its "
        "own tokenizer cuts them: small differences of their milliseconds mean nothing.",
        highlight=False,
    )


def _missed(advice: Advice) -> Iterator[str]:
    for speedup, most in advice.missed.items():
        yield f"{speedup:g}x is out of reach: the smallest model is estimated at {most:.1f}x."


def show(advice: Advice, again: str) -> None:
    """Print what was measured. `again`: the command, without a speedup, that trains a model."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, markup=False, emoji=False)
    table = Table(*headers(advice.unit), box=None)
    for row in advice.rows:
        table.add_row(*_cells(row))
    if advice.estimated:
        console.print("Estimates, from models of a few other sizes:")
    console.print(table)
    for line in _missed(advice):
        console.print(line, highlight=False)
    if advice.estimated:
        console.print("These models are now timed themselves, which takes some minutes. Ctrl-C ends it.")
        return
    if not advice.found:
        console.print("Times are measured on this machine, with random weights. No model is as fast as was asked.")
        return
    console.print(
        "Times are measured on this machine, with random weights. Scores are known only after training. This trains "
        "models up to this speedup, as long as they retain enough:",
        highlight=False,
    )
    console.print(f"{again} target.speedup={max(advice.found):g}", highlight=False, soft_wrap=True)


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
    parser.add_argument(
        "words",
        metavar="TEACHER [TEACHER ...] [FILE]",
        nargs="+",
        help="folders or names of models; and a file of texts whose lengths are timed, else 8 texts of 128 tokens",
    )
    parser.add_argument("--speedup", metavar="N", nargs="+", type=_speedup, default=SPEEDUPS, help="default: 2 4 8")
    parser.add_argument(
        "--load", choices=LOADS, default=BATCH, help="texts in batches of up to eight, or one at a time; default: batch"
    )
    parser.add_argument("--text", metavar="COLUMN", help="column of the text, or of the first text of a pair")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of a pair")
    parser.add_argument("--label", metavar="COLUMN", help="column of the label")
    parser.add_argument("--separator", help="between the values of a CSV")
    most = "tokens at which texts are cut, as by tasks.max_length; without FILE, of each text; default: 128"
    parser.add_argument("--max-length", metavar="N", type=count, help=most)
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """The exit code: 0, 2 for an error that the user can correct, such as a ConfigError, 130 after Ctrl-C."""
    return exit_code(lambda: _run(_parser(prog).parse_args(arguments)), _shown)


def _shown(message: str) -> str:
    """A message with options in place of settings."""
    return as_options(re.sub(r"^tasks\.train(?=:)", "FILE", message), ["tasks"], OPTIONS)


def _divided(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The teachers, and the file, which is the last of several words: it is one, or is written as one."""
    from distill.data import folders, formats
    from distill.data.inside import extension

    last = words[-1]
    written = "://" in last or "*" in last or extension(last)[0] in {*formats.TEXT, *formats.BINARY}
    is_file = folders.is_known(last) or (not Path(last).is_dir() and (written or Path(last).is_file()))
    teachers, file = (words[:-1], last) if len(words) > 1 and is_file else (words, None)
    for word in teachers[: len(words) - 1]:
        if Path(word).is_file():
            raise ConfigError(f"TEACHER: got the file {word}; must be a model; quote a pattern of files, e.g. '*.csv'")
    return teachers, file


def _run(options: argparse.Namespace) -> None:
    teachers, file = _divided(options.words)
    of_task = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    if file is None and (named := [name for name in of_task if name != "max_length"]):
        raise ConfigError(f"tasks.{named[0]}: got {of_task[named[0]]}; must be used with FILE; name the file")
    configs = {name: settings(name, file, options.speedup, options.load, of_task) for name in teachers}
    if len(configs) > 1:
        found: dict[str, Advice] = {}
        try:
            advise(configs, lambda name, advice: found.update({name: advice}))
        finally:  # what was measured before an error or Ctrl-C
            if found:
                show_beside(found)
        return
    given: dict[str, Any] = {"teacher.name": teachers[0], "tasks.train": file or "FILE"}
    given |= {} if options.load == BATCH else {"target.load": options.load}
    given |= {f"tasks.{name}": value for name, value in of_task.items()}
    again = " ".join(typed.setting(name, value) for name, value in given.items())
    advise(configs, lambda name, advice: show(advice, f"python -m distill recipe=auto {discreet(again)}"))
