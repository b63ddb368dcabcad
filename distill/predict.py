"""`python -m distill.predict`: answers of a model folder for texts or files."""

from __future__ import annotations

import sys

from distill.cli.predict import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main, first=True))
