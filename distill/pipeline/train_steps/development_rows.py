"""The rows of a task on which its models are scored to choose among them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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
from distill.evaluation.tried import Tried, Try
from distill.inference.predict import SCORED, in_windows, predict
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

    @cached_property
    def chance(self) -> float | None:
        """Score in percent of the best predictor without any skill; None if the rows cannot tell it from others."""
        found = [chance.beatable(self.data.task.metrics, truth) for _, truth in self.parts]
        known = [each for each in found if each is not None]
        return fmean(known) if known and len(known) == len(found) else None

    def score(self, model: nn.Module) -> float:
        """Score in percent of a model, which stays in the mode that it is in; NaN if its outputs are not finite."""
        return self._score(list(self._outputs(model)))

    def constant(self, outputs: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
        """Whether nearly all predictions are the same, of a model with these outputs for each development split, and
        its targets."""
        task = self.data.task
        of_splits = ((task.predictions(each), truth) for each, truth in outputs)
        return bool(chance.near_constant({(task.name, str(number)): each for number, each in enumerate(of_splits)}))

    def tried(self, model: nn.Module, lr: float, seed: int, score: float | None = None) -> Tried:
        """The training of a model. `score`: of the model, if it is known."""
        task, one = self.data.task, Try(lr=lr, seed=seed, score=None, failed="outputs: got numbers that are not finite")
        outputs = list(self._outputs(model)) if score is None else None
        score = self._score(outputs) if outputs is not None else score
        assert score is not None
        if math.isfinite(score):
            low = self.chance is not None and score <= self.chance
            # A skilled model that weighs rare classes more may be below the share of the most frequent one.
            collapsed = low and (not task.labels or self.constant(outputs or self._outputs(model)))
            one = Try(lr=lr, seed=seed, score=score, collapsed=collapsed)
        return Tried(task=task.name, chance=self.chance, tries=[one])

    def _score(self, outputs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
        # Of outputs that are not finite, the class that is taken for the likeliest may be right by chance.
        if not all(np.isfinite(each).all() for each, _ in outputs):
            return math.nan
        task = self.data.task
        graded = [(task.graded(each, truth), truth) for each, truth in outputs]
        return fmean(fmean(metrics.score(task.metrics, *each).values()) for each in graded)

    def _outputs(self, model: nn.Module) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The outputs of a model for each development split, and the targets."""
        tokenizer, training = self.tokenizer, model.training
        run = in_windows(running(model, self.runtime.machine), tokenizer, self.window, pairs=self.data.task.in_pairs)
        pad_id, left = tokenizer.pad_token_id, tokenizer.padding_side == "left"
        model.eval()
        try:
            for encoded, truth in self.parts:
                yield predict(run, encoded, pad_id=pad_id, left=left, tokens=SCORED), truth
        finally:
            model.train(training)
