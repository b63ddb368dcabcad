"""The rows of a task on which its models are scored to choose among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from distill.data.development_split import aside
from distill.data.encode import Encoded
from distill.data.tasks import TaskData
from distill.evaluation import chance, metrics
from distill.inference.predict import in_windows, predict
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.teacher_logits import running


@dataclass(frozen=True)
class DevelopmentRows:
    data: TaskData
    tokenizer: Any
    window: int | None
    """Number of tokens that a model reads at once; None for whole texts."""
    runtime: Runtime

    @cached_property
    def parts(self) -> list[tuple[Encoded, np.ndarray]]:
        """The rows of each development split, and their targets as metrics take them; empty for a task whose
        development rows are the reported rows."""
        data, splits = self.data, aside(self.data)
        return [
            (data.encoded(rows, self.tokenizer, self.runtime.longest), data.truth(rows)) for rows in splits.values()
        ]

    @property
    def tokens(self) -> list[int]:
        """The tokens of the rows."""
        return [token for encoded, _ in self.parts for token in np.unique(encoded.ids).tolist()]

    @property
    def chance(self) -> float:
        """Score in percent of the best predictor without any skill."""
        names = self.data.task.metrics
        return fmean(fmean(chance.chance(names, truth).values()) for _, truth in self.parts)

    def score(self, model: nn.Module) -> float:
        """Score in percent of a model, which stays in the mode that it is in."""
        tokenizer, training, scores = self.tokenizer, model.training, []
        model.eval()
        run = in_windows(running(model, self.runtime.machine), tokenizer, self.window, pairs=self.data.task.in_pairs)
        for encoded, truth in self.parts:
            outputs = predict(run, encoded, pad_id=tokenizer.pad_token_id, left=tokenizer.padding_side == "left")
            graded = self.data.task.graded(outputs, truth)
            scores.append(fmean(metrics.score(self.data.task.metrics, graded, truth).values()))
        model.train(training)
        return fmean(scores)
