"""`python -m distill.advise`: how fast students of each size would be, before anything is trained."""

from __future__ import annotations

import sys

from distill.cli.advise import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
