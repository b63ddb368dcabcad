"""Whether two models of a report differ: in sentences that claim no more than its tests do."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from distill.evaluation.results import Identity, Model, Results, Test, known

SAME_SCORES = "by the same scores that are reported here, so that they look better than they are"
"""How a model was chosen where there are no other rows to choose on."""


def between(results: Results, a: Identity, b: Identity, scope: str | None = None) -> Test | None:
    """The test of two models, with the difference of `a` minus `b`; None if the report has no such test.

    scope: a task; None for the macro score over the tasks of the headline.
    """
    pair = (identity(a), identity(b))
    of_scope = (test for test in (results.tests or ()) if test.scope == scope)
    both_ways = (way for test in of_scope for way in (test, turned(test)))
    return next((way for way in both_ways if (identity(way.a), identity(way.b)) == pair), None)


def turned(test: Test) -> Test:
    """The same test, with the difference of `b` minus `a`."""
    ends = test.ci95
    other_way = None if ends is None else (-ends[1], -ends[0])
    return replace(test, a=test.b, b=test.a, difference=-test.difference, ci95=other_way)


def identity(model: Identity) -> tuple[str, str, str]:
    """What tells the models of a run apart: name, scheme and backend."""
    return model.name, model.scheme, model.backend


def tied(test: Test) -> bool:
    """Whether a test finds no difference, and its interval has none to find."""
    return not test.distinguishable and (test.ci95 is None or test.ci95[0] <= 0 <= test.ci95[1])


def word(test: Test) -> str:
    """What a test shows. An interval is not corrected for the number of tests: it may exclude 0 where p is not below
    0.05 after correction, and nothing is claimed then."""
    return "differ" if test.distinguishable else "not distinguishable" if tied(test) else "undecided"


def remark(results: Results, a: Identity, b: Identity) -> str:
    """What to know about a difference that the test of the two does not show: `, undecided`; else an empty text."""
    test = between(results, a, b)
    return "" if test is None or test.distinguishable else f", {word(test)}"


def shown(test: Test) -> str:
    """What a test on the macro scores shows, as the end of a sentence."""
    said = {
        "differ": "their scores differ",
        "not distinguishable": "their scores are not distinguishable",
        "undecided": "whether their scores differ is undecided",
    }
    return f"{said[word(test)]}: {numbers(test)}"


def keeps(model: Model, least: float) -> str:
    """The result of a test of non-inferiority at the 5% level, as a sentence; an empty text where it was not made.

    The model is not inferior if its retained score on the reported rows is at least `least` percent.
    """
    end = known(model.retained.at_least) if model.retained else None
    if end is None:
        return ""
    shown = "shown" if end >= least else "not shown"
    return f" That it keeps at least {least:g}% is {shown}: the one-sided 95% interval begins at {percent(end, least)}."


def percent(value: float, least: float) -> str:
    """A percentage, with as many digits as show whether it is at least another: 97.96% where that is 98%."""
    digits = next((n for n in range(1, 9) if (round(value, n) >= least) == (value >= least)), 9)
    return f"{value:.{digits}f}%"


def known_rows(results: Results) -> str:
    """That the teacher may know the rows on which choices are made, as a sentence; an empty text where it does not."""
    if not results.seen:
        return ""
    return (
        f"Your model may have learned the development rows of {', '.join(results.seen)} before this run: on these rows "
        "its forms may keep more of its score than on others, and students less."
    )


def numbers(test: Test) -> str:
    """The difference in points, its interval, and p."""
    ends = test.ci95
    interval = "" if ends is None else f", 95% interval {ends[0]:+.1f} to {ends[1]:+.1f}"
    corrected = test.p_corrected
    p = f"p {_p(test.p)}" if corrected is UNSET else f"p {_p(corrected)} after Holm's correction"
    name = {"mcnemar": "McNemar's test", "bootstrap": "paired bootstrap over the rows"}[test.test]
    return f"{test.difference:+.1f} points{interval} ({name}, {p})"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
