"""Checks that a machine has the memory that a training needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from distill.config import Train
from distill.config.plan import Step
from distill.errors import Line, Problem
from distill.inference.cost import size_mib_of

STATES = {"AdamW": 2, "Adam": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adagrad": 1, "RMSprop": 1}
"""Optimizer -> count of numbers that it keeps for each weight."""


def too_large(trainings: Iterable[tuple[Step, Sequence[Any]]], memory: int) -> Iterator[Line]:
    """Yield a problem for each training that needs more than all `memory`, in bytes, whatever its batches. Each is a
    step with the configs of the models that it trains."""
    for step, trained in trainings:
        needed = max((least_memory(config, step.settings) for config in trained), default=0)
        # Models of tasks may be trained by one process each, or by fewer than there are.
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if step.on_corpus else 1
        if needed > memory:
            yield Problem(
                f"stages.{step.stage}",
                f"a training that needs {needed / 2**30:,.1f} GiB of memory for weights, gradients and optimizer alone",
                f"be less than the {memory / 2**30:,.1f} GiB that this machine has",
                "use a smaller model, fewer processes, or a machine with more memory",
            )


def least_memory(config: Any, settings: Any) -> int:
    """Minimum bytes for the training of a model, given by its config: float32 weights and, for trained weights,
    gradients and the optimizer's state. 0 for a stage that does not train whole models.

    On tasks, the rows of the token table that occur in no text are not trained (`student.training`).
    """
    if not isinstance(settings, Train) or settings.only_head or settings.skip_if_mlm_head:
        return 0
    copies = 1 + STATES.get(settings.optimizer["_target_"].rpartition(".")[2], 0)
    weights = int(size_mib_of(config) * 2**20)
    width = getattr(config, "embedding_size", None) or config.hidden_size
    trained = weights - (4 * config.vocab_size * width if settings.data == "tasks" else 0)
    return weights + copies * trained
