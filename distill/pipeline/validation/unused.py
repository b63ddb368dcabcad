"""Settings of stages that the pipeline leaves out: they are valid, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from distill.config import Config
from distill.config.baselines import expanded
from distill.pipeline.validation.rules import flatten


def unused(config: Config, overrides: Sequence[str]) -> str | None:
    """A line on the given settings of stages that no step of a run comes from; None without such settings.

    A setting is not named where a stage of the pipeline has its value under the same name: the recipe may take the
    value over, as a baseline takes those of its student's stage, and the stage in place of a teacher its terms.
    """
    values = flatten(expanded(config).stages, "stages")
    taken = [(_last(key), value) for key, value in values.items() if key.split(".")[1] in config.pipeline]
    idle = []
    for key in (word.partition("=")[0].lstrip("+").rpartition("@")[2] for word in overrides):
        if key.startswith("stages.") and key.split(".")[1] not in config.pipeline:
            own = [(_last(leaf), value) for leaf, value in values.items() if f"{leaf}.".startswith(f"{key}.")]
            idle += [key] * (not own or any(each not in taken for each in own))
    because = f"this has no effect, because the pipeline is {', '.join(config.pipeline)}"
    return f"{', '.join(idle)}: {because}" if idle else None


def _last(key: str) -> str:
    return key.rpartition(".")[2]
