"""Finds the shape that meets a target: candidate shapes, their times on this machine, and the choice."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distill.compression.pruning.goal import Goal
from distill.compression.pruning.search import (
    Choice,
    Shape,
    Speed,
    Table,
    Tables,
    finalists,
    fits_target,
    grid,
    leading,
    out_of_reach,
)
from distill.compression.pruning.stored_times import Kept
from distill.compression.pruning.times import (
    FFN_SIZES,
    HIDDEN_SIZES,
    Build,
    Times,
    measure,
    screen,
    together,
)
from distill.config import Student, Target
from distill.config.schemes import Form
from distill.errors import ConfigError, reason
from distill.inference.cost import size_mib_of
from distill.inference.runners import Runner
from distill.models import families, student
from distill.models.families.record import VECTORS
from distill.models.families.vectors import KEY, keep_width
from distill.models.student.shape import projects, setting

CARRIED = 2
"""Number of forms in which the times of all shapes are measured, of the forms that are screened."""

NEAR, CHECKS = 0.03, 6
"""Share by which a shape that is itself timed may miss its target, and the most shapes that are timed."""

PARTS, SMOKE_PARTS = 16, 3
"""Number of candidate sizes for hidden and for FFN channels; and the same under limit=smoke."""
KNOTS, SMOKE_KNOTS = (HIDDEN_SIZES, FFN_SIZES), (2, 2)
"""Numbers of hidden and of FFN sizes that are timed; and the same under limit=smoke."""


def shape_of(config: Any) -> Shape:
    """The shape of models with this config."""
    return Shape(config.num_hidden_layers, config.hidden_size, setting(config, "intermediate_size"))


def config_of(full: Any, shape: Shape) -> Any:
    """Config of a model of this shape, for its time and its size: it may have more layers than `full`, of any kind. A
    narrower embedder has the linear layer that pruning adds."""
    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    config = student.student_config(full, range(min(shape.layers, full.num_hidden_layers)), None, sizes)
    setattr(config, families.family_of(config).settings.get("num_hidden_layers", "num_hidden_layers"), shape.layers)
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = (kinds * shape.layers)[: shape.layers]
    if shape.hidden < full.hidden_size and _embeds(config):
        keep_width(config, full.hidden_size)
    return config


def _embeds(config: Any) -> bool:
    """Whether models of this config are embedders. A classifier that was made from one has its setting too."""
    return hasattr(config, KEY) and families.auto_class(config) is families.class_of(VECTORS)


def requested_shape(config: Any, student: Student) -> Shape:
    """The shape to which the settings `student.*` prune a model with this config."""
    full = shape_of(config)
    layers = len(student.layers) if student.layers else student.num_hidden_layers or full.layers
    hidden = student.hidden_size or full.hidden
    return Shape(layers, hidden, student.intermediate_size or full.ffn * hidden // full.hidden)


def candidates(config: Any, dimensions: Collection[str], parts: int) -> list[Shape]:
    """All candidate shapes for a target, for models with this config: smaller in these of layers, hidden and ffn, with
    `parts` sizes for each width."""
    full, head = shape_of(config), config.hidden_size // config.num_attention_heads
    smaller = {name: name in dimensions for name in ("layers", "hidden", "ffn")}

    widths = {
        shape.hidden: _is_expressible(config, shape)
        for shape in grid(full, head, parts, layers=False, hidden=True, ffn=False)
    }
    return [shape for shape in grid(full, head, parts, **smaller) if widths.get(shape.hidden, True)]


def _is_expressible(config: Any, shape: Shape) -> bool:
    """Whether a config of this shape has a projection after its embeddings if the given one has."""
    return projects(config_of(config, shape)) == projects(config)


@dataclass(frozen=True)
class Search:
    """The search for a shape, and for the form in which it serves, with times measured on this machine."""

    target: Target
    """What the shape must meet."""
    config: Any
    """Config of the models to be pruned."""
    shapes: Sequence[Shape]
    """Candidates."""
    widths: tuple[Collection[int], Collection[int]]
    """Hidden and FFN channels whose times are measured: all sizes of the candidates, and sizes of other searches that
    use the same times."""
    forms: Sequence[Form]
    """The forms in which models may serve."""
    build: Build
    """Makes the models that are timed."""
    references: Callable[[], Sequence[Runner]]
    """Makes the forms of the teacher. Speedups are over the fastest of them."""
    times_of: Times
    """Times models."""
    conditions: dict[str, Any]
    """The conditions under which times are measured."""
    kept: Kept
    """Where the measured times are stored."""
    checked: bool
    """Whether the chosen shape is timed itself."""
    log: Callable[[str], None]
    knots: tuple[int, int] = KNOTS
    """Numbers of hidden and of FFN sizes that are timed."""

    @property
    def full(self) -> Shape:
        return shape_of(self.config)

    @functools.cached_property
    def screened(self) -> dict[Form, Table]:
        """Rough times of all forms."""

        def make() -> Tables:
            self.log(f"timing {len(self.forms)} forms: {', '.join(form.name for form in self.forms)}")
            try:
                return Tables(screen(self.build, self.times_of, self.forms, *self.widths), 0.0)
            except OSError:
                raise
            except Exception:
                working = [form for form in self.forms if self._works(form)]
                if not working or len(working) == len(self.forms):
                    raise
            return Tables(screen(self.build, self.times_of, working, *self.widths), 0.0)

        return dict(self.kept.tables(self._key(self.forms, "screen"), make, lambda: self.times_of.busy).of)

    def _works(self, form: Form) -> bool:
        """Whether the smallest model can be made in a form and run."""
        try:
            self.times_of([self.build(min(self.shapes), [form])[form]], few=True)
        except Exception as error:
            self.log(f"{form.name} is left out of the search: {reason(error)}")
            return False
        return True

    @functools.cached_property
    def carried(self) -> list[Form]:
        """The forms in which the times of all shapes are measured: the best near the target, by rough times."""
        if len(self.forms) <= CARRIED:
            return [*self.forms]
        limits = [] if self.target.latency_ms is None else [self.target.latency_ms]
        if self.target.speedup is not None:
            limits.append(self._reference_ms / self.target.speedup)
        found = leading(self.screened, self.shapes, min(limits), CARRIED)
        self.log(f"of {len(self.forms)} forms the best near the target are {' and '.join(form.name for form in found)}")
        return found

    @functools.cached_property
    def _reference_ms(self) -> float:
        """Milliseconds of the model over which speedups are meant."""

        def make() -> Tables:
            return Tables({}, self.times_of([self.reference])[self.reference.name])

        return self.kept.tables(self._key([], "reference"), make, lambda: self.times_of.busy).reference

    @functools.cached_property
    def times(self) -> Tables:
        """Times for all widths of the candidates: stored ones if they fit, otherwise measured and stored."""
        hidden, ffn = self.widths

        def make() -> Tables:
            names = " and ".join(form.name for form in self.carried)
            sizes = f"{min(hidden)} to {max(hidden)} wide, FFN {min(ffn)} to {max(ffn)}"
            self.log(f"timing models {sizes}, {names}")
            found = Tables(measure(self.build, self.times_of, self.carried, hidden, ffn, self.knots), 0.0)
            largest = Shape(self.full.layers, max(hidden), max(ffn))
            _, _, ratio = self.against_reference(largest, self.carried)
            return replace(found, reference=ratio * found.milliseconds(largest))

        return self.kept.tables(self._key(self.carried, self.knots), make, lambda: self.times_of.busy)

    def _key(self, forms: Sequence[Form], kind: Any) -> Any:
        """What times depend on in a run."""
        model = [self.config.model_type, self.config.hidden_size // self.config.num_attention_heads]
        return [kind, model, self.conditions, sorted(form.name for form in forms), *map(sorted, self.widths)]

    @functools.cached_property
    def reference(self) -> Runner:
        """The fastest of `references`."""
        runners = self.references()
        times = self.times_of(runners) if len(runners) > 1 else {runners[0].name: 0.0}
        return min(runners, key=lambda runner: times[runner.name])

    def against_reference(self, shape: Shape, forms: Sequence[Form]) -> tuple[Form, float, float]:
        """The one of these forms in which a model of this shape is fastest, its milliseconds, and its speedup over the
        reference. All are timed in the same rounds."""
        found, reference = together(self.build, self.times_of, forms, [shape], self.reference)
        (_, form), took = min(found.items(), key=lambda item: item[1])
        return form, took, reference / took

    def whole(self) -> tuple[Form, float]:
        """The form in which the unpruned model is fastest, and its speedup."""
        if not self.checked or len(self.forms) <= CARRIED:
            return self.times.form(self.full), self.times.speedup(self.full)
        forms = leading(self.screened, self.shapes, self._reference_ms, CARRIED)
        form, _, speedup = self.against_reference(self.full, forms)
        return form, speedup

    @functools.cached_property
    def size(self) -> Callable[[Shape], float]:
        """Shape -> size of a model's float32 weights, in MiB."""
        return functools.cache(lambda shape: size_mib_of(config_of(self.config, shape)))

    def expected(self, shape: Shape) -> Speed:
        """The speed of a shape by the tables of times, in its fastest form."""
        return self._speed(self.times.form(shape), self.times.milliseconds(shape), self.times.speedup(shape))

    def _speed(self, form: Form, took: float, speedup: float) -> Speed:
        conditions = self.conditions | asdict(form)
        return Speed(predicted_ms=took, predicted_speedup=speedup, conditions=conditions)

    def goal(self) -> Goal:
        """The goal to which gates are trained: the costs that the target limits, with the times and sizes of the
        candidates."""
        limits: list[tuple[Sequence[Table], float]] = []
        if self.target.speedup is not None:
            limits.append(([*self.times.of.values()], self.times.reference / self.target.speedup))
        if self.target.latency_ms is not None:
            limits.append(([*self.times.of.values()], self.target.latency_ms))
        if self.target.size_mib is not None:
            limits.append(([self.sizes], self.target.size_mib))
        return Goal(self.shapes, limits)

    @functools.cached_property
    def sizes(self) -> Table:
        """MiB in place of milliseconds, for all widths of the candidates."""
        widths = {(shape.hidden, shape.ffn) for shape in self.shapes}
        one, two = ({pair: self.size(Shape(layers, *pair)) for pair in widths} for layers in (1, 2))
        layer = {pair: two[pair] - one[pair] for pair in widths}
        return Table({pair: one[pair] - layer[pair] for pair in widths}, layer)

    def check(self, *, sized: bool) -> None:
        """Raise ConfigError if no candidate meets the target. `size_mib` is checked only with `sized`."""
        target = self.target if sized else replace(self.target, size_mib=None)
        fits = fits_target(target, self.times, self.size)
        if not any(map(fits, self.shapes)):
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size)

    def choice(
        self,
        price: Callable[[Shape], Any],
        most: int = 1,
        trials: Callable[[Sequence[Shape]], Mapping[Shape, float]] | None = None,
        cost: Callable[[Shape], float] | None = None,
    ) -> Choice:
        """The best shape that meets the target, with its predicted speed and the form in which it serves.

        Of the `most` shapes with the least price (of equal ones the largest), it is the one that loses the least in
        `trials` (shapes -> the loss of each), if they are given. A model of this shape is timed itself. Unless it just
        meets the target, times are corrected by its own time, and another shape is chosen. Where that would be slower
        than a shape that was too slow, or faster than one that was fast enough, the correction is between theirs.

        Raises:
            ConfigError: if no shape meets the target. It names the cost (`out_of_reach`) of the nearest shape.
        """
        target, slower, ends = self.target, 1.0, [0.0, math.inf]
        tried, lost = dict[Shape, Speed](), dict[Shape, float]()

        def ranked(shape: Shape) -> tuple[Any, int]:
            # The largest: with a teacher that has nothing to lose, estimates are equal.
            return price(shape), -shape.weights

        while len(tried) < CHECKS:
            fits = fits_target(target, self.times, self.size, slower)
            best = finalists(filter(fits, self.shapes), ranked, most)
            if trials is not None and (new := [shape for shape in best if shape not in lost]):
                lost |= {self.full: -math.inf} if self.full in best else trials(new)  # the whole model loses nothing
            shape = min(best, key=lambda shape: lost.get(shape, 0.0), default=None)
            if shape is None or shape in tried:
                break
            tried[shape] = self._timed(shape)
            if 0.0 <= 1 - _used(target, tried[shape]) <= NEAR:
                break
            ends[_missed(target, tried[shape]) == 0.0] = slower
            slower = self.times.speedup(shape) / tried[shape].predicted_speedup
            if 0.0 < ends[0] < ends[1] < math.inf and not ends[0] < slower < ends[1]:
                slower = math.sqrt(ends[0] * ends[1])
        if not tried and not self.checked:
            tried = {(least := min(self.shapes)): self.expected(least)}  # times of tiny models have no meaning
        if not tried:
            raise out_of_reach(target, self.shapes, self.times, self.full, self.size, cost)
        chosen = min(tried, key=lambda shape: (_missed(target, tried[shape]), lost.get(shape, 0.0), ranked(shape)))
        return Choice(shape=chosen, tried=len(self.shapes), speed=tried[chosen])

    def _timed(self, shape: Shape) -> Speed:
        """`expected`, of a model of this shape that is timed itself, if `checked`."""
        if not self.checked:
            return self.expected(shape)
        form, took, speedup = self.against_reference(shape, self.carried)
        sizes = f"{shape.layers} layers, {shape.hidden} wide, FFN {shape.ffn}"
        self.log(f"{sizes}: {speedup:.2f}x, {took:.2f} ms, {form.name}")
        return self._speed(form, took, speedup)


def _used(target: Target, speed: Speed) -> float:
    """The time of a shape as a share of what the target allows; above 1 for one that misses it."""
    late = 0.0 if target.latency_ms is None else speed.predicted_ms / target.latency_ms
    return max((target.speedup or 0) / speed.predicted_speedup, late)


def _missed(target: Target, speed: Speed) -> float:
    """Share by which a shape's speed misses a target; 0 up to NEAR, which is within the noise of timings."""
    return missed if (missed := _used(target, speed) - 1) > NEAR else 0.0


DIMENSIONS = ("layers", "hidden", "ffn")
"""What may be cut for a target."""


def check_sizes(config: Any, hidden: int | None, ffn: int | None, dimensions: Sequence[str] = ()) -> None:
    """ConfigError for widths that a model with this config cannot have, and for unknown dimensions."""
    full, head = shape_of(config), config.hidden_size // config.num_attention_heads
    if ffn is not None and not 1 <= ffn <= full.ffn:
        raise ConfigError(f"ffn: got {ffn}; must be from 1 to {full.ffn}, the model's own; correct it")
    if hidden is not None and not (0 < hidden <= full.hidden and hidden % head == 0):
        raise ConfigError(
            f"hidden: got {hidden}; must be a multiple of {head}, the size of a head, up to {full.hidden}"
        )
    if hidden is not None and not _is_expressible(config, Shape(full.layers, hidden, full.ffn)):
        raise ConfigError(
            f"hidden: got {hidden}, the width of the embeddings, at which {config.model_type} has no projection after "
            "them; must be another width; choose one"
        )
    if isinstance(dimensions, str) or (unknown := [name for name in dimensions if name not in DIMENSIONS]):
        got = dimensions if isinstance(dimensions, str) else ", ".join(map(str, unknown))
        raise ConfigError(f"dimensions: got {got}; must be a list of {', '.join(DIMENSIONS)}; correct it")
