"""The command line of `distill look`. torch is imported when a model is loaded.

python -m distill look my-bert "my card was swallowed" --beside outputs/tickets/export/tickets
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from distill.cli.texts import of_stdin
from distill.errors import ConfigError, DataError
from distill.runtime import quoting
from distill.runtime.command_line import Parser, count, exit_code, say

PROG = "python -m distill.look"
PAGE, TOKENS = "look.html", 64
LEAST = 8
"""Tokens of a text, of which up to four are special."""


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for an error that the user can correct, 130 after Ctrl-C."""
    return exit_code(
        lambda: _run(_parser(prog).parse_intermixed_args(arguments)), stopped="stopped; nothing was written"
    )


def _parser(prog: str = PROG) -> Parser:
    parser = Parser(
        prog,
        description="Write a page on what a model computes from a text: tokens, attention by layer and head, and how "
        "similar its layers are to each other or to a student's.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of a model, e.g. the teacher")
    parser.add_argument("text", metavar="TEXT", help="a text, or - for standard input")
    parser.add_argument("--pair", metavar="TEXT", help="the second text of a pair")
    parser.add_argument("--beside", metavar="STUDENT", help="folder of a second model, e.g. an exported student")
    parser.add_argument("--tokens", metavar="N", type=count, default=TOKENS, help=f"most tokens to read ({TOKENS})")
    parser.add_argument("--out", metavar="FILE", default=PAGE, help=f"the page, a new file ({PAGE})")
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --out, if there is one")
    return parser


def _run(options: argparse.Namespace) -> None:
    from distill.runtime.storage import outputs
    from distill.runtime.storage.atomic import writing_file

    if options.tokens < LEAST:
        least = quoting.option("--tokens", str(LEAST))
        raise ConfigError(f"--tokens: got {options.tokens}; must be >= {LEAST}; set {least} or more")
    folders = [options.folder, *([] if options.beside is None else [options.beside])]
    new = not options.overwrite
    out = outputs.checked(options.out, "--out", inputs=folders, overwrite=options.overwrite, stdout=False)
    assert out is not None
    texts = [_checked(of_stdin() if options.text == "-" else options.text, "TEXT")]
    texts += [] if options.pair is None else [_checked(options.pair, "--pair")]

    from distill.cli.look.page import page
    from distill.cli.look.seen import see
    from distill.runtime.machine import silence

    silence()
    named = zip(folders, ("FOLDER", "--beside"), strict=False)
    shown = page([see(folder, argument, texts, options.tokens, say) for folder, argument in named])
    try:
        with writing_file(out, new=new) as temporary:
            temporary.write_text(shown, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--out: got {out}; must be a file that can be written ({error.strerror or error}); set "
            f"{quoting.option('--out', 'FILE')}"
        ) from error
    say(f"page: {out}")


def _checked(text: str, argument: str) -> str:
    """The text itself. Raises DataError for one without a letter, and for one that is no text."""
    if not text.strip():
        raise DataError(f"{argument}: got an empty text; must have characters; write it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{argument}: got bytes that are not UTF-8; must be text; convert it to UTF-8") from error
    return text
