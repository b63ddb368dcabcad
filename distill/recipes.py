"""`python -m distill.recipes`: the recipes with their papers, or the stages and the terms of one."""

from __future__ import annotations

import sys

from distill.cli.recipes import main
from distill.runtime import streams

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(streams.printed(main))
