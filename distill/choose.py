"""`python -m distill.choose`: which encoder to start from."""

from __future__ import annotations

import sys

from distill.cli.choose.command import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
