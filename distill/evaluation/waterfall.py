"""The gain of each change from the teacher to the fastest student: a pure function of the rows of results.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distill.config.backends import BACKENDS
from distill.evaluation.results import Model, Waterfall


def waterfall(
    models: Sequence[Model], changed: Sequence[str], target: str | None, fastest: Model | None
) -> list[Waterfall]:
    """Speedup and retained % after each change, cumulative, for the student of a target.

    The teacher in float32 on torch comes first, then the student on torch, in float32 on the runtime of the fastest
    scored variant, and that variant. Changes that no row measures apart are one step, such as `depth and width`; steps
    without a row of their own are left out. Speedups are at the tasks' own lengths, over the same reference as all
    speedups, so that the teacher on torch may be below 1. Where a run reports forms of the teacher in the student's
    place, no step leads to a student. Empty without the rows of teacher and student on torch, and without a change.

    Args:
        models: rows of results.json.
        changed: what was made smaller between teacher and student: depth, width, vocabulary, ...
        target: label of the target; None for a run with one target or none.
        fastest: the fastest scored variant of the student; None if none was scored.
    """
    measured = [m for m in models if m.speedup and m.role in ("teacher", "student", "pruned")]
    own = [m for m in measured if m.role != "teacher" and m.target == target]
    teacher, student = _row(measured, "teacher", "torch", "fp32"), _row(own, "student", "torch", "fp32")
    if teacher is None or student is None or fastest is None or fastest not in own:
        return []
    pruned = _row(own, "pruned", "torch", "fp32")
    on_runtime = _row(own, "student", BACKENDS[fastest.backend].runtime, "fp32")
    steps = [("teacher", teacher)]
    if student.step != teacher.step:
        steps += _to_student(student, pruned, changed)
    if on_runtime is not None and on_runtime is not student:
        steps.append(("runtime", on_runtime))
    if fastest.scheme != "fp32":
        steps.append((fastest.scheme, fastest))
    return [_step(name, row, target) for name, row in steps] if len(steps) > 1 else []


def _to_student(student: Model, pruned: Model | None, changed: Sequence[str]) -> Iterator[tuple[str, Model]]:
    """The steps from the teacher to the student; the pruned model is the student before it is trained again."""
    if pruned is None:
        yield _joined(changed) or "training", student
        return
    cut = [name for name in changed if name != "vocabulary"]
    yield _joined(cut) or "pruning", pruned
    yield _joined([*(name for name in changed if name not in cut), "recovery"]), student


def _row(models: Sequence[Model], role: str, backend: str, scheme: str) -> Model | None:
    return next((m for m in models if (m.role, m.backend, m.scheme) == (role, backend, scheme)), None)


def _joined(names: Sequence[str]) -> str:
    *most, last = names or [""]
    return f"{', '.join(most)} and {last}" if most else last


def _faster(row: Model) -> float:
    return (row.speedup.best_teacher if row.speedup else None) or 0.0


def _step(name: str, row: Model, target: str | None) -> Waterfall:
    kept = row.retained.headline if row.retained else None
    return Waterfall(step=name, speedup=_faster(row), retained=100.0 if row.role == "teacher" else kept, target=target)
