"""Sends losses and results to an experiment tracker, through accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from distill.errors import ConfigError, discreet, reason

PROJECT = "distill"


@dataclass
class Tracker:
    """Writes numbers to the trackers of an accelerator, if it has any; on the main process only."""

    accelerator: Accelerator
    note: Callable[[str], None] = print
    """Called with a line if the tracker fails."""
    before: int = 0
    """Steps of the finished trainings, because a tracker's steps must ascend over all stages of a run."""

    _stage: str = field(default="", init=False)
    _newest: int = field(default=0, init=False)
    """Step of the newest numbers."""

    def start(self, run: str, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin a run in the tracker, with the name of the run folder and all settings.

        Raises:
            ConfigError: if the tracker cannot be started.
        """
        if not self.accelerator.log_with:
            return
        of_tracker = {"wandb": {"name": run, "dir": str(folder)}, "mlflow": {"run_name": run}, "trackio": {"name": run}}
        try:
            self.accelerator.init_trackers(PROJECT, {key: _plain(value) for key, value in settings.items()}, of_tracker)
        # Trackers raise many unrelated errors, e.g. for a server that cannot be reached.
        except Exception as error:
            raise ConfigError(
                f"tracker: got {settings['tracker']}, which did not start ({reason(error)}); must be one that works "
                "here; check its own settings, or leave it out"
            ) from error

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Track the numbers of a stage after one of its steps, counted from 1."""
        if stage != self._stage:  # a training that diverged did not finish
            self._stage, self.before = stage, max(self.before, self._newest)
        self._newest = self.before + step
        named = {f"{stage}/{name}": value for name, value in values.items()}
        self._send(named, self._newest)

    def finished(self, steps: int) -> None:
        """Count the steps of a finished training, so that the steps of the next one follow."""
        self.before += steps

    def results(self, values: Mapping[str, float]) -> None:
        """Track the final table."""
        self._send(values, self.before)

    def _send(self, values: Mapping[str, float], step: int) -> None:
        with self._alone():
            self.accelerator.log(dict(values), step=step)

    def end(self) -> None:
        """Finish the run in the trackers. Calls of `distill.run` begin the next one in the same process."""
        with self._alone():
            for tracker in self.accelerator.trackers:
                tracker.finish()
        self.accelerator.trackers = []

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Go on without trackers if they fail in the block, because a server that is down should not end a training."""
        try:
            yield
        except Exception as error:
            failed, self.accelerator.trackers = self.accelerator.trackers, []
            for tracker in failed:
                with suppress(Exception):
                    tracker.finish()  # else the next run of this process could not begin
            self.note(f"tracker: {reason(error)}; the run goes on without it")


def _plain(value: Any) -> str | int | float | bool:
    return value if isinstance(value, int | float | bool) else discreet(str(value))
