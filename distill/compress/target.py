"""From a target to the shape that meets it: the shapes a model can be cut to, their times here, and the choice."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distill import checkpoint, family, student
from distill.compress.search import Losses, Shape, Table, choose, fits_target, forgotten, grid, guessed, out_of_reach
from distill.compress.times import measure
from distill.config import Limit, Prune, Student, Target
from distill.evaluate import latency
from distill.evaluate.cost import size_mib_of
from distill.machine import Machine
from distill.student.shape import projects, setting

TIMES = "times.json"

REPEATS = 5
"""Timing rounds of the table."""

PARTS, SMOKE_PARTS = 8, 3
"""Sizes that are tried of hidden and of FFN channels for a target; and under limit=smoke."""


def shape_of(config: Any) -> Shape:
    """Sizes of the models of a config."""
    return Shape(config.num_hidden_layers, config.hidden_size, setting(config, "intermediate_size"))


def config_of(full: Any, shape: Shape) -> Any:
    """Config of a model of this shape; which layers of `full` it has does not matter here, and it may have more."""
    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    config = student.student_config(full, range(min(shape.layers, full.num_hidden_layers)), None, sizes)
    setattr(config, family.family_of(config).settings.get("num_hidden_layers", "num_hidden_layers"), shape.layers)
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = (kinds * shape.layers)[: shape.layers]
    return config


def asked_for(config: Any, wanted: Student) -> Shape:
    """The shape that `student.*` asks for, of models of this config."""
    full = shape_of(config)
    layers = len(wanted.layers) if wanted.layers else wanted.num_hidden_layers or full.layers
    hidden = wanted.hidden_size or full.hidden
    return Shape(layers, hidden, wanted.intermediate_size or full.ffn * hidden // full.hidden)


def candidates(config: Any, settings: Prune, parts: int) -> list[Shape]:
    """All shapes that are tried for a target, of models of this config."""
    full, head = shape_of(config), config.hidden_size // config.num_attention_heads
    may = {name: name in settings.dimensions for name in ("layers", "hidden", "ffn")}

    def expressible(shape: Shape) -> bool:
        return projects(config_of(config, shape)) == projects(config)

    widths = {
        shape.hidden: expressible(shape) for shape in grid(full, head, parts, layers=False, hidden=True, ffn=False)
    }
    return [shape for shape in grid(full, head, parts, **may) if widths.get(shape.hidden, True)]


@dataclass(frozen=True)
class Search:
    """The search for a shape, on one machine."""

    config: Any
    """Config of the models that are pruned."""
    shapes: Sequence[Shape]
    machine: Machine
    batch: tuple[int, int]
    """(batch size, length) that is timed."""
    limit: Limit
    folder: Path
    """Where the table of times is kept."""
    name: str
    """What messages call it."""

    @property
    def full(self) -> Shape:
        return shape_of(self.config)

    @property
    def conditions(self) -> dict[str, Any]:
        """What times depend on."""
        machine = self.machine
        return {"device": machine.device.type, "threads": machine.threads, "scheme": machine.float32}

    @functools.cached_property
    def times(self) -> Table:
        """Times of models of all widths, measured now or earlier under the same conditions."""
        file, widths = self.folder / TIMES, {(shape.hidden, shape.ffn) for shape in self.shapes}
        head = self.config.hidden_size // self.config.num_attention_heads
        of = {"conditions": self.conditions, "model": self.config.model_type, "head": head, "batch": list(self.batch)}
        if file.is_file() and (kept := checkpoint.read_json(file)).items() >= of.items():
            table = Table(*({(h, f): ms for h, f, ms in kept[part]} for part in ("fixed", "layer")))
            if widths <= table.fixed.keys():
                return table
        table = measure(
            functools.partial(config_of, self.config),
            widths,
            batch=self.batch,
            repeats=min(REPEATS, self.limit.repeats or REPEATS),
            least_ms=latency.SMOKE_MS if self.limit.smoke else latency.LEAST_MS,
            say=lambda text: self.machine.say(f"{self.name}: {text}"),
            **self.conditions,
        )
        parts = {part: [[h, f, ms] for (h, f), ms in getattr(table, part).items()] for part in ("fixed", "layer")}
        checkpoint.write_json(file, of | parts)
        return table

    @functools.cached_property
    def _sizes(self) -> dict[Shape, float]:
        return {}

    def size(self, shape: Shape) -> float:
        """MiB of a model's float32 weights."""
        if shape not in self._sizes:
            self._sizes[shape] = size_mib_of(config_of(self.config, shape))
        return self._sizes[shape]

    def expected(self, shape: Shape) -> dict[str, Any]:
        """The speed that is predicted of a shape here."""
        before, after = self.times.milliseconds(self.full), self.times.milliseconds(shape)
        speed = {"predicted_ms": after, "predicted_speedup": before / after}
        return speed | {"scheme": self.conditions["scheme"], "conditions": self.conditions}

    def check(self, target: Target, *, sized: bool) -> None:
        """ConfigError for a target that no shape meets. Sizes count only where they are known already (`sized`)."""
        target = target if sized else replace(target, size_mib=None)
        fits = fits_target(target, self.times, self.full, self.size)
        if choose(self.shapes, fits, lambda shape: 0.0, self.times.milliseconds) is None:
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size)

    def choice(self, target: Target, losses: Iterable[Losses]) -> dict[str, Any]:
        """The shape with the least estimated loss that meets a target, and what is predicted of it."""
        losses = list(losses)
        cost, unsure = forgotten(losses), guessed(losses)
        fits = fits_target(target, self.times, self.full, self.size)
        shape = choose(self.shapes, fits, lambda shape: (unsure(shape), cost(shape)), self.times.milliseconds)
        if shape is None and self.limit.smoke:
            shape = min(self.shapes)  # times mean nothing there
        if shape is None:
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size, cost)
        choice = {"shape": asdict(shape), "full": asdict(self.full), "batch": target.shape, "tried": len(self.shapes)}
        return choice | {"estimated_forgotten": cost(shape)} | self.expected(shape)
