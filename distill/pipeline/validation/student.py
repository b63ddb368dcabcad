"""Checks of the settings of the student, the target and the budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.config import UNITS, Config, Prune, Quantize
from distill.config.plan import Plan
from distill.errors import Line, Problem
from distill.models.families import STUDENTS
from distill.pipeline.validation.rules import nearest
from distill.pipeline.validation.situations import SIZES


def student(config: Config, plan: Plan) -> Iterator[Line]:
    """Problems of the settings of the student, whether it is given, built or pruned."""
    layers, kind = config.student.layers, config.student.family
    if plan.given_student and config.student.name is None and not config.limit.smoke:
        yield Problem("student.name", "nothing", "be a hub name or a folder", "set student.name=FOLDER")
    if kind is not None and kind not in STUDENTS:
        yield Problem("student.family", kind, "be a supported model type", nearest(kind, list(STUDENTS)))
    if layers is not None and (not layers or layers != sorted(set(layers)) or layers[0] < 0):
        yield Problem("student.layers", layers, "be distinct ascending layer numbers from 0", "e.g. [0,2,5]")
    if layers and config.student.num_hidden_layers not in (None, len(layers)):
        got, must = config.student.num_hidden_layers, f"be {len(layers)}, the number of student.layers"
        yield Problem("student.num_hidden_layers", got, must, "set student.num_hidden_layers=null")
    if plan.of(Prune):
        yield from _pruned(config, plan)
    if config.budget.minutes is not None and config.target.scheme in ("fp32", "bf16"):
        yield Problem(
            "target.scheme", config.target.scheme, "be a scheme of stages.*.schemes with budget.minutes", "leave it out"
        )


def _lists(plan: Plan, targets: dict[str, Any]) -> Iterator[Line]:
    """At most one target may be a list, of two or more different numbers: a model is pruned for each."""
    lists = {key: value for key, value in targets.items() if isinstance(value, list)}
    for key, value in targets.items():
        numbers = [number for number in (value if isinstance(value, list) else [value]) if type(number) in (int, float)]
        several = len(numbers) >= 2 and len({f"{number:g}" for number in numbers}) == len(value)
        if not (several if isinstance(value, list) else numbers):
            yield Problem(key, value, "be one number, or a list of different ones", f"e.g. {key}=[2,4,8]")
    prunes = list(dict.fromkeys(step.stage for step in plan.pruners))
    if lists and len(prunes) > 1:
        yield Problem(next(iter(lists)), "a list", f"be one number where {' and '.join(prunes)} prune", "give one")
    for key in [*lists][1:]:
        yield Problem(key, f"a list, as {next(iter(lists))}", "be one number, or null", "make only one target a list")


def _pruned(config: Config, plan: Plan) -> Iterator[Line]:
    """A prune stage needs either sizes in `student.*` or a target in `target.*`."""
    targets = {f"target.{name}": got for name in UNITS if (got := getattr(config.target, name)) is not None}
    built = any(step.builder is not None for step in plan.pruners)  # then sizes are of the student before it is pruned
    sizes = (
        [] if built else [name for name in SIZES if getattr(config.student, name.removeprefix("student.")) is not None]
    )
    if not targets and not sizes:
        size = "student.num_hidden_layers, student.hidden_size or student.intermediate_size"
        yield Problem(
            "target.speedup",
            "null",
            "be a number" + (", or another target must be given" if built else ", or a size must be given"),
            "e.g. target.speedup=2" + ("" if built else f", or {size}"),
        )
    yield from _lists(plan, targets)
    yield from _timed(config, plan)


def _timed(config: Config, plan: Plan) -> Iterator[Line]:
    """The form and the inputs that are timed to meet a target."""
    shape, scheme = config.target.shape, config.target.scheme
    numbers = shape if isinstance(shape, list) else []
    if shape != "own" and (len(numbers) != 2 or not all(isinstance(number, int) and number > 0 for number in numbers)):
        yield Problem("target.shape", shape, "be own or [batch size, length]", "e.g. [8,128]")
    forms = ["fp32", "bf16", *dict.fromkeys(name for step in plan.of(Quantize) for name in step.settings.schemes)]
    if scheme is not None and scheme not in forms:
        yield Problem("target.scheme", scheme, f"be {' or '.join(forms)}", "add it to stages.quantize.schemes")
