"""Which encoder to start from: of those that meet some limits on this machine the best, with reasons and sources.

python -m distill choose --task ner --ms 5 --mib 150 --languages de --length 32
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from distill.cli.choose.answer import UNTIMED, Answer, Ask, Option, answered, scheme_of
from distill.cli.choose.measure import Stopwatch
from distill.cli.choose.table import ENGLISH, Table, supports, table
from distill.data.task_types import TASK_TYPES
from distill.runtime import gpus, quoting
from distill.runtime.command_line import Parser, count, exit_code, say

PROG = "python -m distill.choose"
SHORT = {"ner": "token_classification", "qa": "question_answering"}
"""Common name of a kind of task -> its name here."""
LENGTH, SECONDS, NAMED = 128, 17.0, 6
"""Tokens of a text by default, which is that of `tasks.max_length`; seconds for timing; and most names in a line on
what was left out."""
RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "README.md"
"""The table of committed runs, which an installed package lacks."""


def lines(answer: Answer, ask: Ask, every: Table) -> Iterator[str]:
    """The answer in words."""
    limits = [f"{value:g} {unit}" for value, unit in ((ask.ms, "ms"), (ask.mib, "MiB")) if value is not None]
    yield (
        f"{ask.kind.name} in {', '.join(ask.languages)}, texts of {ask.length} tokens, one at a time"
        + (f", at most {' and '.join(limits)}:" if limits else ":")
    )
    if not answer.best:
        yield "No encoder of the table is for this."
    elif untimed := [] if answer.passed else answer.left_out.get(UNTIMED, []):
        yield f"None of those timed passes as it is; for {len(untimed)}, which may pass, time was over. Nearest:"
    elif not answer.passed:
        yield "No encoder of the table passes as it is. These miss the limits by least:"
    for place, option in enumerate(answer.best, 1):
        yield from ("", *_option(place, option, answer, ask, every))
    if answer.best:
        yield from ("", *_next(answer, ask))
        yield from kept(answer.best[0].checkpoint.name, RESULTS)
    yield from ("", "Left out:")
    for why, names in answer.left_out.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"  {len(names)} {why}: {', '.join(names[:NAMED])}{more}"
    yield (
        "Times are measured on the CPU of this machine, with random weights: those of a whole model follow from models "
        "of few layers. Scores are published ones, whose sources differ in how they train: docs/choosing.md has them."
    )


def _option(place: int, option: Option, answer: Answer, ask: Ask, every: Table) -> Iterator[str]:
    checkpoint, form = option.checkpoint, option.form(ask)
    yield f"{place}. {checkpoint.name} ({checkpoint.family}, {checkpoint.year}, {checkpoint.licence})"
    forms = sorted(option.ms, key=lambda name: (name != form, option.ms[name]))
    yield f"   {'; '.join(f'{name} {option.ms[name]:.1f} ms, {option.mib[scheme_of(name)]:.0f} MiB' for name in forms)}"
    if option.metric is None or option.scale is None:
        yield "   The table has no score for this: it is ranked behind those that have one."
    else:
        metric, scale, sources = (
            every.metrics[option.metric],
            every.metrics[option.scale],
            checkpoint.scores[option.metric],
        )
        shown = "; ".join(f"{value:g} ({every.sources[source]['title']})" for source, value in sources.items())
        compared = f"; compared as {scale['title']} {option.score:g}" if scale != metric else ""
        yield f"   {metric['title']}, {metric['about']}: {shown}{compared}"
    if place == 1 and answer.passed:
        yield f"   {_reason(option, answer, every)}"
    yield f"   {supports(checkpoint)}"


def _reason(option: Option, answer: Answer, every: Table) -> str:
    if option.scale is None:
        return "None of those that pass has a score. Embedders come first for vectors, then those with more weights."
    higher = [each for each in answer.best if each.scale == option.scale and each.score > option.score]
    if not higher:
        return "Its score is the highest of those timed that pass."
    return (
        f"It is the fastest of those timed whose scores are within {every.spread(option.scale):g} of the highest, "
        f"{max(each.score for each in higher):g}: two sources differ by as much about the same encoder."
    )


def _next(answer: Answer, ask: Ask) -> Iterator[str]:
    """The command that makes a student of the first encoder."""
    first = answer.best[0].checkpoint
    given: dict[str, quoting.Value] = {"teacher.name": first.name, "tasks.train": "FILE"}
    # The setting only cuts texts. Up to its default, texts are read whole without it.
    given |= {"tasks.max_length": ask.length} if ask.length > LENGTH else {}
    # Limits and times are of the CPU. A run takes a GPU that it finds.
    given |= {"device": "cpu"} if (has_gpu := bool(gpus.visible())) else {}
    # A target is the size in float32, and a limit holds for the smallest form: int8 where the encoder has it.
    float_mib = ask.mib if ask.mib is None or not first.record.onnx else 4 * ask.mib
    limits = {"target.speedup": None, "target.latency_ms": ask.ms, "target.size_mib": float_mib}
    target = {key: value for key, value in limits.items() if value is not None or key == "target.speedup"}
    yield "A student that is four times as fast:" if answer.passed else "A student of the first within the limits:"
    words = given | ({} if answer.passed else target)
    yield f"  python -m distill recipe=prune {' '.join(quoting.setting(key, value) for key, value in words.items())}"
    if has_gpu:
        yield "With device=cpu it is timed on the CPU, as the encoders were, and trained there. Leave it out for a GPU."
    if float_mib != ask.mib and not answer.passed:
        yield f"target.size_mib is the size in float32. In int8 the student has a quarter of it, {ask.mib:g} MiB."
    if ask.mib is not None and not answer.passed and first.parameters[0] * 1e6 / 2**20 > ask.mib:
        yield "Its token embeddings alone are larger in int8: recipe=vocabulary keeps the tokens of your texts."


def kept(name: str, page: Path) -> Iterator[str]:
    """What students keep by our committed runs: those of this teacher, or else those of the first curve."""
    text = page.read_text("utf-8") if page.is_file() else ""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    runs = [row for row in rows if len(row) == 11 and row[0].startswith("[") and row[6] == "current"]
    if not runs:
        return
    own = [row for row in runs if row[2] and name.endswith(f"/{row[2]}")]
    curve = [row for row in runs if "," in row[3]] or runs  # of several targets
    if not own:
        yield f"No committed run has this teacher. Students of {curve[0][2]}:"
    for row in own[:3] or curve[:1]:
        run = re.sub(r"\[(.+?)\].*", r"docs/results/\1", row[0])
        yield f"  {run}: of {row[1]}; targets {row[3]}: kept {row[8]}% of the teacher's score, at {row[10]}"


def _language(text: str) -> str:
    text = "nb" if text == "no" else text
    known = sorted({code for codes in table().language_sets.values() for code in codes})
    if text not in known:
        raise argparse.ArgumentTypeError(f"got {text}; must be codes of languages, of {', '.join(known)}; correct it")
    return text


def _kind(text: str) -> str:
    if SHORT.get(text, text) not in TASK_TYPES:
        raise argparse.ArgumentTypeError(f"got {text}; must be one of {', '.join([*SHORT, *TASK_TYPES])}; choose one")
    return SHORT.get(text, text)


def _limit(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"got {text}; must be a number above 0; e.g. 5")
    return float(text)


def _parser(prog: str = PROG) -> Parser:
    parser = Parser(
        prog=prog,
        description="Choose an encoder to start from, by published scores and times on the CPU of this machine.",
    )
    parser.add_argument("--task", metavar="KIND", type=_kind, required=True, help=", ".join([*SHORT, *TASK_TYPES]))
    parser.add_argument("--ms", metavar="N", type=_limit, help="most milliseconds for one text")
    parser.add_argument("--mib", metavar="N", type=_limit, help="most MiB of its weights")
    parser.add_argument("--languages", metavar="CODE", nargs="+", type=_language, default=[ENGLISH], help="default: en")
    parser.add_argument("--length", metavar="TOKENS", type=count, default=LENGTH, help=f"of a text; default: {LENGTH}")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for a wrong option, 130 after Ctrl-C."""

    def command() -> None:
        given = _parser(prog).parse_args(arguments)
        ask = Ask(TASK_TYPES[given.task], tuple(given.languages), given.length, given.ms, given.mib)
        answer = answered(table(), ask, Stopwatch(ask.length, SECONDS), say)
        sys.stdout.write("".join(f"{line}\n" for line in lines(answer, ask, table())))

    return exit_code(command)
