"""What commands share: their parser, and their exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from distill.errors import ConfigError, UserError, discreet, listening, printable
from distill.runtime import quoting
from distill.runtime.storage import disk_errors


class Parser(argparse.ArgumentParser):
    """Raises ConfigError in place of an exit. `prog` is the command as the user typed it, for messages."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


def count(text: str) -> int:
    """A whole number from 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}; must be a whole number from 1; correct it")
    return int(text)


def say(*lines: str) -> None:
    """Print lines to standard error, if there is one."""
    if sys.stderr is not None:
        sys.stderr.write("".join(f"{printable(discreet(line))}\n" for line in lines))


def exit_code(command: Callable[[], object], shown: Callable[[str], str] = str, stopped: str = "stopped") -> int:
    """Run a command. 0, 2 after an error that the user can correct, 130 after Ctrl-C, 143 after SIGTERM.

    Args:
        shown: what is printed of the message of an error.
        stopped: what is printed after Ctrl-C.
    """
    try:
        with listening():
            command()
    except UserError as error:
        say(*map(shown, error.messages))
        return 2
    except OSError as error:
        if (line := disk_errors.problem(error)) is None:
            raise
        say(shown(line))
        return 2
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "distill":
            raise
        say(f"distill: got no package {error.name}; must be installed for this command; run {quoting.install()}")
        return 2
    except KeyboardInterrupt as error:
        say(stopped)
        return 128 + getattr(error, "number", signal.SIGINT)
    return 0
