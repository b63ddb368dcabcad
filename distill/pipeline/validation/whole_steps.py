"""Checks of terms that compare all rows of a step with each other, against the rows and the number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from distill.config import Term, Train
from distill.config.feature_kinds import LOGITS
from distill.config.plan import Step
from distill.data.tasks import TaskData
from distill.errors import Problem
from distill.models.families.record import TEXTS, TOKENS, VECTORS
from distill.pipeline.validation.terms import compared_in_batch


def problems(tasks: Mapping[str, TaskData], steps: Sequence[Step], processes: int) -> Iterator[Problem]:
    """Yield a problem for each term that compares the rows of a step with each other, where it cannot: these rows have
    no classes in common, or `processes` divide a step. `tasks` is empty if all stages are on a corpus."""
    for step in steps:
        for label, term in step.settings.terms.items() if isinstance(step.settings, Train) else ():
            if term.weight > 0 and compared_in_batch(term):
                found = _on_corpus(processes) if step.on_corpus else _on_tasks(term, tasks, processes)
                key = f"stages.{step.stage}.terms.{label}.weight"
                for must, do in found:
                    yield Problem(key, f"{term.weight:g}", f"be 0 {must}", f"{do}set {key}=0")


def _on_corpus(processes: int) -> Iterator[tuple[str, str]]:
    """The situation in which a term must have no weight, and what can be done besides."""
    if processes > 1:
        yield (
            f"on a corpus with {processes} processes, each of which compares the rows of its own part of a step",
            "start a single process, or ",
        )


def _on_tasks(term: Term, tasks: Mapping[str, TaskData], processes: int) -> Iterator[tuple[str, str]]:
    for name, data in tasks.items():
        kind = data.task.kind
        if term.features == LOGITS.name and kind.architecture not in (TEXTS, TOKENS):
            yield f"for {name}, a task of kind {kind.name}, whose rows have no classes in common", ""
        elif processes > 1 and kind.architecture not in (TEXTS, VECTORS):
            yield (
                f"for {name}, a task of kind {kind.name}, with {processes} processes, each of which compares its own "
                "rows of a step",
                "start a single process, or ",
            )
