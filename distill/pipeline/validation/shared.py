"""Checks of `student.heads=shared`, one encoder with a head for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distill.config import Config, Evaluate, Export, Prune, Quantize, Train, Vocabulary
from distill.config.plan import SHARED_HEADS, Plan, Step
from distill.config.schemes import SCHEMES
from distill.data.task import Task, chosen
from distill.models.families.record import TEXTS
from distill.pipeline.validation.rules import only

_KEY = f"student.heads: got {SHARED_HEADS}; must be own"


def shared(config: Config, plan: Plan) -> Iterator[str]:
    """Settings that do not fit a student whose tasks share one encoder."""
    if config.student.heads != SHARED_HEADS:
        return
    yield from _tasks(config.tasks.names or list(chosen(config.tasks)))
    trained = [s for s in plan.of(Train) if s.settings.data == "tasks" and s.settings.role != "teacher"]
    if not trained:
        yield f"{_KEY} in a recipe that does not train a student on tasks; leave it out"
    for kind in (Prune, Vocabulary):
        for stage in dict.fromkeys(step.stage for step in plan.of(kind) if step.stage in config.stages):
            yield f"{_KEY} where {stage} changes the encoder of each task; leave the stage or the setting out"
    for step in trained:
        yield from _training(step)
    for step in plan.of(Quantize):
        yield from _quantized(step)
    for step in plan.of(Quantize, Evaluate, Export):
        key = "student" if isinstance(step.settings, Evaluate) else "start"
        if not step.embeds and step.source(key) not in trained:
            yield (
                f"stages.{step.stage}.{key}: got {getattr(step.settings, key)}; must be a stage that trains the "
                "student on tasks where student.heads is shared; name such a stage"
            )


def _tasks(names: list[str]) -> Iterator[str]:
    """Problems of the tasks of these names."""
    if len(names) < 2:
        yield f"{_KEY} with fewer than two tasks; name more in tasks.each, or leave it out"
    for name in sorted({"text", "text_pair"} & {*names}):
        yield (
            f"tasks.each.{name}: got {name} as the name of a task; must be another where student.heads is shared, "
            "because predictions have the text under this name; rename the task"
        )


def _training(step: Step) -> Iterator[str]:
    """Problems of a stage that trains all tasks at once."""
    key, settings = f"stages.{step.stage}", step.settings
    start = step.source("start")
    if isinstance(start, Step) and not start.on_corpus and (start.settings.kind != "train" or not start.of_student):
        yield (
            f"{key}.start: got {settings.start}; must be a given model, or a stage with one encoder for all tasks, "
            "where student.heads is shared; name such a stage"
        )
    where, switches = "where student.heads is shared", ("quantization_aware", "skip_if_head")
    yield from only("none", {f"{key}.gates.kind": settings.gates.kind}, where, "leave it out")
    yield from only(False, {f"{key}.{name}": getattr(settings, name) for name in switches}, where, "leave it out")


def _quantized(step: Step) -> Iterator[str]:
    """Schemes that do not quantize an ONNX file: only that file has the encoder and all heads."""
    onnx = [scheme.name for scheme in SCHEMES.values() if scheme.onnx]
    wrong = [name for name in step.settings.schemes if name in SCHEMES and name not in onnx]
    if wrong:
        key = f"stages.{step.stage}.schemes"
        yield (
            f"{key}: got {', '.join(wrong)}; must be of {', '.join(onnx)} where student.heads is shared, because only "
            f"an ONNX file has all heads; set {key}=[onnxruntime]"
        )


def unlike(tasks: Mapping[str, Task]) -> list[str]:
    """Problems of loaded tasks: one pass of an encoder serves all of them only if all classify the same texts."""
    errors = [
        f"{_KEY} for {task.kind.name}, the kind of {name}; leave the task out"
        for name, task in tasks.items()
        if task.kind.architecture != TEXTS
    ]
    single, pairs = ([name for name, task in tasks.items() if len(task.columns) == count] for count in (1, 2))
    if single and pairs:
        errors.append(
            f"{_KEY} for tasks with one text ({', '.join(single)}) and with two ({', '.join(pairs)}), which no pass of "
            "the encoder can serve; set tasks.names to some of them"
        )
    if len(tasks) < 2:
        errors.append(f"{_KEY} for a single task; leave it out")
    return errors
