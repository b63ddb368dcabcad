"""Finds the shape that meets a target: candidate shapes, their times on this machine, and the choice."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distill import checkpoint, family, student
from distill.compress.search import (
    Losses,
    Shape,
    Table,
    choose,
    extrapolations,
    fits_target,
    grid,
    margin_lost,
    out_of_reach,
)
from distill.compress.times import measure
from distill.config import Limit, Prune, Student, Target
from distill.evaluate import latency
from distill.evaluate.cost import size_mib_of
from distill.machine import Machine
from distill.student.shape import projects, setting

TIMES = "times.json"
"""File of the measured times."""

REPEATS = 5
"""Rounds of timing."""

PARTS, SMOKE_PARTS = 8, 3
"""Number of candidate sizes for hidden and for FFN channels; and the same under limit=smoke."""


def shape_of(config: Any) -> Shape:
    """The shape of models with this config."""
    return Shape(config.num_hidden_layers, config.hidden_size, setting(config, "intermediate_size"))


def config_of(full: Any, shape: Shape) -> Any:
    """Config of a model of this shape, for timing: it may have more layers than `full`, of any kind."""
    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    config = student.student_config(full, range(min(shape.layers, full.num_hidden_layers)), None, sizes)
    setattr(config, family.family_of(config).settings.get("num_hidden_layers", "num_hidden_layers"), shape.layers)
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = (kinds * shape.layers)[: shape.layers]
    return config


def requested_shape(config: Any, student: Student) -> Shape:
    """The shape to which the settings `student.*` prune a model with this config."""
    full = shape_of(config)
    layers = len(student.layers) if student.layers else student.num_hidden_layers or full.layers
    hidden = student.hidden_size or full.hidden
    return Shape(layers, hidden, student.intermediate_size or full.ffn * hidden // full.hidden)


def candidates(config: Any, settings: Prune, parts: int) -> list[Shape]:
    """All candidate shapes for a target, for models with this config; `parts` sizes for each width."""
    full, head = shape_of(config), config.hidden_size // config.num_attention_heads
    dimensions = {name: name in settings.dimensions for name in ("layers", "hidden", "ffn")}

    def expressible(shape: Shape) -> bool:
        return projects(config_of(config, shape)) == projects(config)

    widths = {
        shape.hidden: expressible(shape) for shape in grid(full, head, parts, layers=False, hidden=True, ffn=False)
    }
    return [shape for shape in grid(full, head, parts, **dimensions) if widths.get(shape.hidden, True)]


@dataclass(frozen=True)
class Search:
    """The search for a shape, with times measured on this machine."""

    config: Any
    """Config of the models to be pruned."""
    shapes: Sequence[Shape]
    """Candidates."""
    machine: Machine
    batch: tuple[int, int]
    """(batch size, length) at which models are timed."""
    limit: Limit
    folder: Path
    """Where the measured times are stored."""
    name: str
    """Name in messages."""

    @property
    def full(self) -> Shape:
        return shape_of(self.config)

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions under which times are measured; stored times are used only under the same ones."""
        machine = self.machine
        return {"device": machine.device.type, "threads": machine.threads, "scheme": "fp32"}

    @functools.cached_property
    def times(self) -> Table:
        """Times for all widths of the candidates: stored ones if they fit, otherwise measured and stored."""
        file, widths = self.folder / TIMES, {(shape.hidden, shape.ffn) for shape in self.shapes}
        head = self.config.hidden_size // self.config.num_attention_heads
        key = {"conditions": self.conditions, "model": self.config.model_type, "head": head, "batch": list(self.batch)}
        if file.is_file() and (stored := checkpoint.read_json(file)).items() >= key.items():
            table = Table(*({(h, f): ms for h, f, ms in stored[part]} for part in ("fixed", "layer")))
            if widths <= table.fixed.keys():
                return table
        table = measure(
            functools.partial(config_of, self.config),
            widths,
            batch=self.batch,
            repeats=min(REPEATS, self.limit.repeats or REPEATS),
            least_ms=latency.SMOKE_MS if self.limit.smoke else latency.LEAST_MS,
            log=lambda text: self.machine.log(f"{self.name}: {text}"),
            **self.conditions,
        )
        parts = {part: [[h, f, ms] for (h, f), ms in getattr(table, part).items()] for part in ("fixed", "layer")}
        checkpoint.write_json(file, key | parts)
        return table

    @functools.cached_property
    def _sizes(self) -> dict[Shape, float]:
        return {}

    def size(self, shape: Shape) -> float:
        """Size of a model's float32 weights, in MiB."""
        if shape not in self._sizes:
            self._sizes[shape] = size_mib_of(config_of(self.config, shape))
        return self._sizes[shape]

    def expected(self, shape: Shape) -> dict[str, Any]:
        """Predicted time and speedup of a shape, and the conditions they hold for."""
        before, after = self.times.milliseconds(self.full), self.times.milliseconds(shape)
        speed = {"predicted_ms": after, "predicted_speedup": before / after}
        return speed | {"scheme": self.conditions["scheme"], "conditions": self.conditions}

    def check(self, target: Target, *, sized: bool) -> None:
        """ConfigError if no candidate meets the target. `size_mib` is checked only with `sized`."""
        target = target if sized else replace(target, size_mib=None)
        fits = fits_target(target, self.times, self.full, self.size)
        if choose(self.shapes, fits, lambda shape: 0.0, self.times.milliseconds) is None:
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size)

    def choice(self, target: Target, losses: Iterable[Losses]) -> dict[str, Any]:
        """The shape that meets a target with the least estimated loss over all tasks, with its predicted speed.

        ConfigError if no shape meets the target.
        """
        losses = list(losses)
        cost, uncertain = margin_lost(losses), extrapolations(losses)
        fits = fits_target(target, self.times, self.full, self.size)
        shape = choose(self.shapes, fits, lambda shape: (uncertain(shape), cost(shape)), self.times.milliseconds)
        if shape is None and self.limit.smoke:
            shape = min(self.shapes)  # times of tiny models have no meaning
        if shape is None:
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size, cost)
        choice = {"shape": asdict(shape), "full": asdict(self.full), "batch": target.shape, "tried": len(self.shapes)}
        return choice | self.expected(shape)
