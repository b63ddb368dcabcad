"""`python -m distill.example`: files of made-up tickets, to try the commands on."""

from __future__ import annotations

import sys

from distill.cli.example.command import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
