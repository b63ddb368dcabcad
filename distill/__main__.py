"""`python -m distill`: runs a recipe."""

from distill.cli.run import main

if __name__ == "__main__":
    main()
