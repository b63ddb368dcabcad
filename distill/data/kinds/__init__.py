"""Records of the kinds of tasks: one file for each. Nothing else depends on which kind a task is. Without torch."""

from distill.data.kinds.classification import CLASSIFICATION
from distill.data.kinds.kind import MISSING, Kind, Where, labelled
from distill.data.kinds.multi_label import MULTI_LABEL
from distill.data.kinds.regression import REGRESSION

__all__ = ["KINDS", "MISSING", "Kind", "Where", "labelled"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (CLASSIFICATION, MULTI_LABEL, REGRESSION)}
"""Setting `tasks.kind` -> kind."""
