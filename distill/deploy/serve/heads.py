"""A loaded model with one encoder and several heads: one pass of the encoder for the predictions of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distill.data.task_types import TaskType
from distill.deploy.serve.model import Model, Texts, labels_in, scaled
from distill.errors import ConfigError


@dataclass(frozen=True)
class Head:
    """The predictions of a head."""

    kind: TaskType
    labels: tuple[str, ...]
    """Names of its outputs; empty for a number."""
    threshold: float
    """Probability above which a label of multi-label classification is predicted."""
    temperature: float = 1.0
    """As in `Model`."""
    activation: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    """As in `Model`."""

    @property
    def outputs(self) -> int:
        """Number of its outputs."""
        return len(self.labels) or 1


@dataclass(frozen=True)
class Heads:
    """A model with several heads in one scheme on one backend, from `distill.load`."""

    model: Model
    """Computes the outputs of all heads, side by side."""
    heads: Mapping[str, Head]
    """Name of the task -> its head, in the order of the outputs."""

    @property
    def folder(self) -> Path:
        return self.model.folder

    @property
    def backend(self) -> str:
        return self.model.backend

    @property
    def scheme(self) -> str:
        return self.model.scheme

    def outputs(self, texts: Texts, batch_size: int = 32) -> dict[str, np.ndarray]:
        """Task -> outputs float32 [n, outputs] of n texts or pairs, in their order.

        Raises:
            DataError: for texts of another form, and for outputs that are not finite.
        """
        whole = self.model.outputs(texts, batch_size)
        if not len(whole):
            return {name: np.zeros((0, head.outputs), np.float32) for name, head in self.heads.items()}
        ends = np.cumsum([head.outputs for head in self.heads.values()])
        return dict(zip(self.heads, np.split(whole, ends[:-1], axis=1), strict=True))

    def predict(
        self, texts: Texts, batch_size: int = 32, detect: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """For each text or pair, in their order, task -> prediction as from `Model.predict`.

        Raises:
            ConfigError: for a label in `detect`, as only single heads have thresholds.
            DataError: for texts of another form, and for outputs that are not finite.
        """
        if labels := labels_in(detect):
            raise ConfigError(
                f"detect: got {', '.join(labels)}; must be left out for several heads; choose the folder of one of "
                f"them: {', '.join(str(self.folder / name) for name in self.heads)}"
            )
        outputs = self.outputs(texts, batch_size)
        answers = []
        for name, head in self.heads.items():
            of_head, threshold = scaled(outputs[name], head.threshold, head.temperature)
            if head.activation is not None:
                of_head = head.activation(of_head)
            answers.append(head.kind.answer(of_head, head.labels, threshold, []))
        return [dict(zip(self.heads, row, strict=True)) for row in zip(*answers, strict=True)]
