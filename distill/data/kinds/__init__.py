"""Records of the kinds of tasks: one file for each. Without torch.

Which kind a task is matters nowhere else but where the kind of a file or of a model is inferred.
"""

from distill.data.kinds.classification import CLASSIFICATION
from distill.data.kinds.kind import MISSING, Kind, Where, labelled
from distill.data.kinds.multi_label import MULTI_LABEL
from distill.data.kinds.regression import REGRESSION
from distill.data.kinds.reranking import RERANKING

__all__ = ["KINDS", "MISSING", "Kind", "Where", "kind_of_model", "labelled"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (CLASSIFICATION, MULTI_LABEL, REGRESSION, RERANKING)}
"""Setting `tasks.kind` -> kind."""


def kind_of_model(problem: str | None, outputs: int) -> Kind:
    """The kind of a model that is known only by the `problem_type` of its config and its number of outputs.

    As in transformers, a model with one output is a regression.
    """
    if outputs == 1:
        return REGRESSION
    return MULTI_LABEL if problem == MULTI_LABEL.problem else CLASSIFICATION
