"""Trainings in rounds: those of a round do not need each other, so that processes can divide them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from distill.pipeline.runtime import Runtime

Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """A training."""

    folder: str
    """Folder of what is made, relative to the run folder. With its manifest the training is finished."""
    train: Callable[[Runtime], None]


Rounds = Generator[list[Part], None, Result]
"""Yields the trainings of a round, finished ones among them, once those of the round before are finished."""
