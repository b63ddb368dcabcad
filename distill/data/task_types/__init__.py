"""Records of the kinds of tasks: one file for each. Without torch.

Which kind a task is matters nowhere else but where the kind of a file or of a model is inferred.
"""

from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.embedding import EMBEDDING
from distill.data.task_types.layout import SECONDS, WORDS
from distill.data.task_types.multi_label import MULTI_LABEL
from distill.data.task_types.multiple_choice import MULTIPLE_CHOICE
from distill.data.task_types.question_answering import QUESTION_ANSWERING
from distill.data.task_types.regression import REGRESSION
from distill.data.task_types.reranking import RERANKING
from distill.data.task_types.retrieval import RETRIEVAL
from distill.data.task_types.task_type import (
    MISSING,
    Columns,
    TaskType,
    Where,
    flat,
    labelled,
    targets_in,
)
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION
from distill.errors import ConfigError
from distill.models.families.record import ABSENT, TEXTS
from distill.runtime import outside

__all__ = [
    "ABSENT",
    "MISSING",
    "SECONDS",
    "TASK_TYPES",
    "WORDS",
    "Columns",
    "TaskType",
    "Where",
    "flat",
    "kind_of_model",
    "labelled",
    "targets_in",
]

TASK_TYPES: dict[str, TaskType] = {
    task_type.name: task_type
    for task_type in (
        CLASSIFICATION,
        MULTI_LABEL,
        REGRESSION,
        RERANKING,
        TOKEN_CLASSIFICATION,
        MULTIPLE_CHOICE,
        QUESTION_ANSWERING,
        EMBEDDING,
        RETRIEVAL,
    )
}
"""Setting `tasks.kind` -> its record."""
outside.registry("task types", TASK_TYPES)


def kind_of_model(problem: str | None, outputs: int, architecture: str = TEXTS) -> TaskType:
    """The kind of a model that is known only by the `problem_type` of its config, its number of outputs, and its
    architecture.

    As in transformers, a model of texts with one output is a regression, unless its `problem_type` is for several
    labels. It then has one label, and the sigmoid of the output is its probability.

    Raises:
        ConfigError: for a regression with several outputs.
    """
    if architecture != TEXTS:
        return next(task_type for task_type in TASK_TYPES.values() if task_type.architecture == architecture)
    if problem == MULTI_LABEL.problem:
        return MULTI_LABEL
    if problem == REGRESSION.problem and outputs > 1:
        raise ConfigError(
            f"problem_type: got {problem} with {outputs} outputs; must be one, because several numbers for a text are "
            "no task here; give a model with one output"
        )
    return REGRESSION if outputs == 1 else CLASSIFICATION
