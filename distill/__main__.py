"""`python -m distill` and the console script `distill`: a run, or the command that the first word names."""

import sys

from distill.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
