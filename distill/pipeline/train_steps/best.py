"""The best of several moments of a training, by the scores of a task's model on the development rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from safetensors.torch import save_file
from torch import nn

from distill.pipeline.artefacts import Moment
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.development_rows import DevelopmentRows
from distill.pipeline.train_steps.prepare import Training, state_folder
from distill.runtime.storage import atomic, run_folder, structs
from distill.training import state

WEIGHTS = "weights.safetensors"
"""File with the weights of the best moment so far."""


@dataclass
class Best:
    """Scores a model at some moments of its training, and stores the weights of the best of them."""

    model: nn.Module
    moments: frozenset[int]
    """Numbers of steps after which the model is scored; empty if the model at the end is kept."""
    score: Callable[[], float]
    folder: Path
    """Where the weights are stored, so that a stopped training resumes with them."""
    tokens: list[int]
    """Tokens of the rows on which the model is scored."""
    main: bool = True
    """Whether this process scores the model; one does."""
    wait: Callable[[], None] = lambda: None
    """Waits for every process. Scoring may take longer than a process waits for another one in a training step."""
    last: float | None = None
    """Score of the newest moment, in percent; NaN for one whose outputs are not finite, which is not stored. None
    before the first one."""

    def after_step(self, step: int) -> None:
        """Score the model if this is one of the moments. Of equal scores the later counts."""
        if step in self.moments:
            if self.main:
                self._score(step)
            self.wait()

    def _score(self, step: int) -> None:
        score, before = self.score(), self.stored()
        self.last = score
        if math.isnan(score) or (before is not None and before.step != step and score < before.score):
            return
        with atomic.writing(self.folder) as temporary:
            weights = {name: value.detach().contiguous() for name, value in self.model.named_parameters()}
            save_file(weights, temporary / WEIGHTS)
            structs.write(temporary / run_folder.MANIFEST, Moment(step=step, score=score))

    def stored(self) -> Moment | None:
        """The best moment so far; None before the first."""
        if not run_folder.finished(self.folder):
            return None
        return structs.read(self.folder / run_folder.MANIFEST, Moment)

    def restore(self, log: Callable[[str], None]) -> Moment | None:
        """Give the model the weights of the best moment, in the process that scores and writes it. Returns that moment
        with the score at the end; None without one."""
        if not self.moments or not self.main:
            return None
        if (found := self.stored()) is None:
            log("at no moment were all outputs on the development rows finite; the model at the end is kept")
            return None
        # Of a training that was stopped after its last step, and goes on at its end.
        last = self.score() if self.last is None else self.last
        state.load_weights(self.folder / WEIGHTS, self.model)
        log(
            f"the model after {found.step} of {max(self.moments)} steps is kept, which scores "
            f"{found.score:.1f} on the development rows; {last:.1f} at the end"
        )
        return replace(found, score_at_end=None if math.isnan(last) else last)


def moments(total: int, count: int) -> frozenset[int]:
    """Steps of `count` moments of a training of `total` steps, evenly spaced over its second half, with its end."""
    return frozenset(max(1, round(total * (1 + number / count) / 2)) for number in range(1, count + 1))


def best(count: int, training: Training, model: nn.Module, rows: DevelopmentRows, runtime: Runtime) -> Best:
    """The scorer of a model at `count` moments of its training: see `Train.best_of`.

    A task whose development rows are the reported rows has no moments.
    """
    machine, name = runtime.machine, training.name
    chooses = count > 1 and bool(rows.parts)
    if count > 1 and not chooses:
        machine.log(f"{name}: there are no development rows but the reported ones; the model at the end is kept")
    steps, tokens = (moments(training.total, count), rows.tokens) if chooses else (frozenset[int](), list[int]())
    folder = state_folder(name, runtime) / run_folder.BEST
    return Best(model, steps, lambda: rows.score(model), folder, tokens, machine.main, machine.wait)
