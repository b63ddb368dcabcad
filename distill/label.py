"""`python -m distill.label`: a teacher's outputs for rows of files, as soft labels."""

from __future__ import annotations

import sys

from distill.cli.label import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
