"""Checks of `student.heads=shared`, one encoder with a head for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distill.config import Config, Evaluate, Export, Quantize, Train
from distill.config.plan import SHARED_HEADS, Plan, Step
from distill.config.schemes import SCHEMES
from distill.data.task import Task, chosen
from distill.errors import Line, Problem
from distill.models.families.record import TEXTS

_KEY = f"student.heads: got {SHARED_HEADS}; must be own"


def shared(config: Config, plan: Plan) -> Iterator[Line]:
    """Settings that do not fit a student whose tasks share one encoder."""
    if config.student.heads != SHARED_HEADS:
        return
    yield from _tasks(config.tasks.names or list(chosen(config.tasks)))
    trained = [s for s in plan.of(Train) if s.settings.data == "tasks" and s.settings.role != "teacher"]
    for step in trained:
        yield from _training(step)
    for step in plan.of(Quantize):
        yield from _quantized(step)
    for step in plan.of(Quantize, Evaluate, Export):
        key = "student" if isinstance(step.settings, Evaluate) else "start"
        if not step.embeds and step.source(key) not in trained:
            yield Problem(
                f"stages.{step.stage}.{key}",
                getattr(step.settings, key),
                "be a stage that trains the student on tasks where student.heads is shared",
                "name such a stage",
            )


def _tasks(names: list[str]) -> Iterator[Line]:
    """Problems of the tasks of these names."""
    for name in sorted({"text", "text_pair"} & {*names}):
        yield Problem(
            f"tasks.each.{name}",
            f"{name} as the name of a task",
            "be another where student.heads is shared, because predictions have the text under this name",
            "rename the task",
        )


def _training(step: Step) -> Iterator[Line]:
    """Problems of a stage that trains all tasks at once."""
    key, settings = f"stages.{step.stage}", step.settings
    start = step.source("start")
    if isinstance(start, Step) and not start.on_corpus and (start.settings.kind != "train" or not start.of_student):
        yield Problem(
            f"{key}.start",
            settings.start,
            "be a given model, or a stage with one encoder for all tasks, where student.heads is shared",
            "name such a stage",
        )


def _quantized(step: Step) -> Iterator[Line]:
    """Schemes that do not quantize an ONNX file: only that file has the encoder and all heads."""
    onnx = [scheme.name for scheme in SCHEMES.values() if scheme.onnx]
    wrong = [name for name in step.settings.schemes if name in SCHEMES and name not in onnx]
    if wrong:
        key = f"stages.{step.stage}.schemes"
        yield Problem(
            key,
            ", ".join(wrong),
            f"be of {', '.join(onnx)} where student.heads is shared, because only an ONNX file has all heads",
            f"set {key}=[onnxruntime]",
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
    return errors
