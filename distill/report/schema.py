"""Types of results as dictionaries."""

from typing import Any

from distill.evaluation.results import VERSION

__all__ = ["VERSION", "Model", "Results"]

Results = dict[str, Any]
Model = dict[str, Any]
