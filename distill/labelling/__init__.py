"""A teacher's outputs for the rows of any number of files, as soft labels, by as many processes as share a folder."""

from distill.labelling.engine import Labelled, label
from distill.labelling.options import Options

__all__ = ["Labelled", "Options", "label"]
