"""`python -m distill.look`: what a model, or a teacher and its student, compute from one text, as a page."""

from __future__ import annotations

import sys

from distill.cli.look.command import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
