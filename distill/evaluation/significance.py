"""Paired tests: whether the scores of two models on the same rows differ by more than the rows allow to conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm

from distill.evaluation import resamples, retained

MACRO = "macro"
"""Scope of a test of the macro scores, which are averages over the tasks; without WNLI, as in retained %."""
LEVEL, POWER = 0.05, 0.8


@dataclass(frozen=True)
class Scored:
    """A model as tests take it."""

    identity: dict[str, str]
    """Its name, scheme and backend."""
    role: str
    target: str
    scores: retained.Scores
    """On all rows."""
    drawn: retained.Scores
    """On resamples of the rows, which are the same for all models."""
    right: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Task -> [n] whether each row of all its splits is right; only tasks whose score is the share of right rows."""


def mcnemar(correct_a: np.ndarray, correct_b: np.ndarray) -> dict[str, Any]:
    """McNemar's exact test of equal accuracy: a two-sided binomial test of the rows on which only one is correct."""
    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    discordant = only_a + only_b
    p = float(binomtest(only_a, discordant, 0.5).pvalue) if discordant else 1.0
    return {"only_a": only_a, "only_b": only_b, "p": p}


def holm(p: Sequence[float]) -> list[float]:
    """Values of p, corrected so that the probability of any false difference among all these tests is at most the level
    (Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure)."""
    order, corrected, largest = np.argsort(p, kind="stable"), [0.0] * len(p), 0.0
    for rank, number in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[number]))
        corrected[number] = largest
    return corrected


def every_test(models: Sequence[Scored], reference: Scored) -> list[dict[str, Any]]:
    """The tests of a report, as in results.json: `b` is the teacher, the baseline or the best student.

    - each student against the reference, which is the teacher, and against the baseline in the same scheme on the same
      backend: on the macro score, and on each task;
    - each student against the student with the best macro score: on the macro score.

    McNemar's exact test where the score is the share of right rows of a single task, else a paired bootstrap over the
    rows. Values of p are corrected (`holm`) for the number of tests that answer the same question: those of the same
    scope, against models of the same role. What compression costs (against the teacher), what distillation gives
    (against the baseline) and which form is best (against a student) are three questions, and do not pay for each
    other.
    """
    pairs = [(a, b, scopes) for a, b, scopes in _pairs(models, reference) if set(a.scores) == set(b.scores)]
    found = [((scope, b.role), _test(a, b, scope)) for a, b, scopes in pairs for scope in scopes]
    for question in dict.fromkeys(question for question, _ in found):
        same = [test for asked, test in found if asked == question]
        for test, p in zip(same, holm([test["p"] for test in same]), strict=True):
            test |= {"p_corrected": p, "distinguishable": p < LEVEL}
    return [test for _, test in found]


def _pairs(models: Sequence[Scored], reference: Scored) -> Iterator[tuple[Scored, Scored, list[str]]]:
    students = [model for model in models if model.role == "student"]
    every = [*([MACRO] if _counted(reference.scores) else []), *reference.scores]
    for student in students:
        yield student, reference, every
        for other in models:
            if other.role == "baseline" and _form(other) == _form(student):
                yield student, other, every
    if students and MACRO in every:
        best = max(students, key=lambda model: float(_value(model.scores, MACRO)))
        yield from ((student, best, [MACRO]) for student in students if student is not best)


def _form(model: Scored) -> tuple[str, str, str]:
    return model.target, model.identity["scheme"], model.identity["backend"]


def _counted(scores: retained.Scores) -> list[str]:
    """The tasks of the macro score."""
    return [task for task in scores if task != retained.NOISE]


def _value(scores: retained.Scores, scope: str) -> Any:
    """The macro score or the score of a task: a number, or [R] on resamples."""
    return retained.average(scores, [retained.NOISE]) if scope == MACRO else retained.tasks(scores)[scope]


def _test(a: Scored, b: Scored, scope: str) -> dict[str, Any]:
    differences = _value(a.drawn, scope) - _value(b.drawn, scope)
    ends = resamples.interval(differences)
    counted = _counted(a.scores) if scope == MACRO else [scope]
    exact = len(counted) == 1 and counted[0] in a.right and counted[0] in b.right
    p = mcnemar(a.right[counted[0]], b.right[counted[0]])["p"] if exact else resamples.p_value(differences)
    return {
        "a": a.identity,
        "b": b.identity,
        "difference": float(_value(a.scores, scope) - _value(b.scores, scope)),
        "ci95": None if ends is None else list(ends),
        "p": p,
        "test": "mcnemar" if exact else "bootstrap",
        "scope": scope,
    }


def detectable(models: Sequence[Scored], reference: Scored) -> dict[str, float | None]:
    """Task -> smallest true difference in points that a test of two models at the 5% level finds with a power of 80%.

    2.80 standard errors of a difference (Cohen 1988, Statistical Power Analysis, chapter 2): the median of those of the
    students' differences from the reference on resamples, since models that err on other rows differ more by chance.
    None without a student whose predictions differ from the reference's.
    """
    factor = float(norm.ppf(1 - LEVEL / 2) + norm.ppf(POWER))
    result: dict[str, float | None] = {}
    for task in reference.scores:
        drawn = [model.drawn for model in models if model.role == "student" and task in model.drawn]
        errors = [float(np.std(_value(each, task) - _value(reference.drawn, task))) for each in drawn]
        varied = [error for error in errors if error > 0]
        result[task] = factor * float(np.median(varied)) if varied else None
    return result


def right(
    names: Sequence[str], same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None, predictions: retained.Predictions
) -> np.ndarray | None:
    """[n] whether each row of all splits of a task is right; None unless its score is the share of right rows.

    Args:
        names: of the task's metrics.
        same: of its kind, see `Kind.same`.
        predictions: of the task alone.
    """
    if tuple(names) == ("exact_match",):
        return np.concatenate([graded[:, 0] == 1 for graded, _ in predictions.values()])
    independent = all(labels.dtype.names is None for _, labels in predictions.values())  # words of a text are not
    if tuple(names) != ("accuracy",) or same is None or not independent:
        return None
    return np.concatenate([same(predicted, labels) for predicted, labels in predictions.values()])
