"""`python -m distill.compare`: two models on the rows of a file."""

from __future__ import annotations

import sys

from distill.cli.compare.command import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
