"""Paired tests: whether the scores of two models on the same rows differ by more than the rows allow to conclude."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace
from scipy.stats import binomtest, norm

from distill.config.plan import CONTROLS
from distill.evaluation import resamples, retained
from distill.evaluation.results import Identity, Test

LEVEL, POWER = 0.05, 0.8
FEW = 10
"""With fewer rows on which only one of two models is right, a bootstrap finds differences too often: its p of 4 rows,
all of which the same model has right, is 0.04, and the exact one 0.125."""


@dataclass(frozen=True)
class Scored:
    """The scores of a model that tests use."""

    identity: Identity
    role: str
    target: str
    scores: retained.Scores
    """Scores on all rows."""
    drawn: retained.Scores
    """Scores on resamples of the rows, which are the same for all models."""
    right: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Task -> [n] whether each row of all its splits is right; only tasks whose score is the share of right rows."""
    development: float | None = None
    """Percent of the teacher's score that it retains on rows that are not tested; None without such rows."""
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    """As `right`, whatever the score is; only tasks whose rows are right or wrong by themselves, and independent of
    each other."""


def mcnemar(correct_a: np.ndarray, correct_b: np.ndarray) -> dict[str, Any]:
    """McNemar's exact test of equal accuracy: a two-sided binomial test of the rows on which only one is correct.

    correct_a, correct_b: [n] whether each model is correct on a row.
    """
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


def every_test(models: Sequence[Scored], reference: Scored, headline: Collection[str]) -> list[Test]:
    """The tests of a report, as in results.json: `b` is the teacher, a control or the best student.

    - each student against the reference, which is the teacher, and against its controls (the baseline and the
      self-trained model) in the same scheme on the same backend: on the macro score over the tasks of the headline
      (`scope` is None), and on each task;
    - each student against the best student: on this score. The best is chosen on development rows. Without these rows
      there is no such test, because a student that is chosen on the tested rows is better there by chance.

    McNemar's exact test where the score is the share of right rows of a single task, and no rows share a text, else a
    paired bootstrap over the rows; where only one model is right on fewer than `FEW` rows, the test whose p is larger.
    Values of p are corrected (`holm`) for the number of tests that answer the same
    question: tests of the same scope, against models of the same role, of models in the same scheme on the same
    backend. What compression costs (against the teacher), what distillation gives (against the baseline), what it gives
    beyond more rows (against the self-trained model) and which variant is best (against a student) are different
    questions, and do not pay for each other. Neither do the forms of one model, which are near-copies of it: a reader
    looks at one of them, chosen by its speed.

    Neither do tasks: a correction over many tasks would hide a loss on one of them, which is what a reader of these
    tests looks for. So of 20 tasks without a difference, one is called different on average.

    Args:
        headline: the tasks of the headline.
    """
    counted = [task for task in reference.scores if task in headline]
    of_tasks: dict[str | None, list[str]] = {task: [task] for task in reference.scores}
    over = ({None: counted} if counted else {}) | of_tasks
    pairs = [(a, b, scopes) for a, b, scopes in _pairs(models, reference, over) if set(a.scores) == set(b.scores)]
    found = [
        ((scope, b.role, a.identity.scheme, a.identity.backend), _test(a, b, scope, over[scope]))
        for a, b, scopes in pairs
        for scope in scopes
    ]
    tests = [test for _, test in found]
    for question in dict.fromkeys(question for question, _ in found):
        same = [number for number, (asked, _) in enumerate(found) if asked == question]
        for number, p in zip(same, holm([tests[number].p for number in same]), strict=True):
            tests[number] = replace(tests[number], p_corrected=p, distinguishable=p < LEVEL)
    return tests


def _pairs(
    models: Sequence[Scored], reference: Scored, over: Mapping[str | None, list[str]]
) -> Iterator[tuple[Scored, Scored, list[str | None]]]:
    """Two models and the scopes of their tests. `over`: scope -> tasks of its score."""
    students, every = [model for model in models if model.role == "student"], [*over]
    for student in students:
        yield student, reference, every
        for other in models:
            if other.role in CONTROLS and _variant(other) == _variant(student):
                yield student, other, every
    if students and None in over and all(model.development is not None for model in students):
        best = max(students, key=lambda model: model.development or 0.0)
        for student in students:
            if student is not best:
                yield student, best, [None]


def _variant(model: Scored) -> tuple[str, str, str]:
    return model.target, model.identity.scheme, model.identity.backend


def _test(a: Scored, b: Scored, scope: str | None, over: list[str]) -> Test:
    differences = retained.average(a.drawn, over) - retained.average(b.drawn, over)
    p, test = _p(a, b, over, differences)
    return Test(
        a=a.identity,
        b=b.identity,
        difference=retained.macro_score(a.scores, over) - retained.macro_score(b.scores, over),
        ci95=resamples.with_width(resamples.interval(differences)),
        p=p,
        test=test,
        scope=scope,
        distinguishable=p < LEVEL,
    )


def _p(a: Scored, b: Scored, over: list[str], differences: np.ndarray) -> tuple[float, Literal["mcnemar", "bootstrap"]]:
    """p of two models, from their rows or from the differences of their scores on resamples, and its test."""
    if len(over) == 1 and over[0] in a.right and over[0] in b.right:
        return mcnemar(a.right[over[0]], b.right[over[0]])["p"], "mcnemar"
    p = resamples.p_value(differences)
    if all(task in a.rows and task in b.rows for task in over):
        ours, theirs = (np.concatenate([model.rows[task] for task in over]) for model in (a, b))
        exact = mcnemar(ours, theirs)
        few = exact["only_a"] + exact["only_b"] < FEW
        if few and exact["p"] > p:
            return exact["p"], "mcnemar"
    return p, "bootstrap"


def detectable(models: Sequence[Scored], reference: Scored) -> dict[str, float | None]:
    """Task -> smallest true difference in points that a test of two models at the 5% level finds with a power of 80%.

    2.80 standard errors of a difference (Cohen 1988, Statistical Power Analysis, chapter 2): the median over the
    students' differences from the reference on resamples, since models that err on other rows differ more by chance.
    None without a student whose predictions differ from the reference's.
    """
    factor = float(norm.ppf(1 - LEVEL / 2) + norm.ppf(POWER))
    result: dict[str, float | None] = {}
    for task in reference.scores:
        drawn = [model.drawn for model in models if model.role == "student" and task in model.drawn]
        errors = [float(np.std(retained.tasks(each)[task] - retained.tasks(reference.drawn)[task])) for each in drawn]
        varied = [error for error in errors if error > 0]
        result[task] = factor * float(np.median(varied)) if varied else None
    return result


def right(
    names: Sequence[str], same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None, predictions: retained.Predictions
) -> np.ndarray | None:
    """[n] whether each row of all splits of a task is right; None unless its score is the share of right rows.

    Args:
        names: of the task's metrics.
        same: of its kind, see `TaskType.same`.
        predictions: of the task alone.
    """
    return correct(same, predictions) if tuple(names) in (("accuracy",), ("exact_match",)) else None


def correct(
    same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None, predictions: retained.Predictions
) -> np.ndarray | None:
    """[n] whether each row of all splits of a task is right, whatever its score is; None for kinds whose rows are not
    right or wrong, or not by themselves: numbers, rankings, and the words of a text.

    Args:
        same: of the task's kind, see `TaskType.same`.
        predictions: of the task alone.
    """
    every = list(predictions.values())
    if all(labels.dtype == object for _, labels in every):  # answers, which are graded
        return np.concatenate([graded[:, 0] == 1 for graded, _ in every])
    if same is None or any(labels.dtype.names is not None for _, labels in every):
        return None
    return np.concatenate([same(predicted, labels) for predicted, labels in every])
