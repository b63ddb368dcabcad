"""A teacher's outputs for the rows of any number of files, as soft labels: `python -m distill.label`."""
