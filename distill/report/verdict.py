"""Whether two models of a report differ: in sentences that claim no more than its tests do."""

from __future__ import annotations

from distill.report.schema import Model, Results


def between(results: Results, a: Model, b: Model, scope: str | None = None) -> Model | None:
    """The test of two models, with the difference of `a` minus `b`; None if the report has no such test.

    scope: a task; None for the macro score over the tasks of the headline.
    """
    ours, theirs = _identity(a), _identity(b)
    for test in results.get("tests", ()):
        if test["scope"] != scope:
            continue
        if (test["a"], test["b"]) == (ours, theirs):
            return dict(test)
        if (test["a"], test["b"]) == (theirs, ours):
            ends = test["ci95"]
            turned = {"a": ours, "b": theirs, "difference": -test["difference"]}
            return {**test, **turned, "ci95": None if ends is None else [-ends[1], -ends[0]]}
    return None


def verdict(results: Results, a: Model, b: Model) -> str:
    """One sentence: which of two models has the higher macro score, or that the rows do not show it."""
    first, second = _named(a), _named(b)
    test = between(results, a, b)
    if test is None:
        return f"Whether the scores of {first} and {second} differ was not tested."
    if not test["distinguishable"]:
        return f"{_capital(first)} and {second} are not distinguishable: {numbers(test)}."
    ways = "higher" if test["difference"] > 0 else "lower"
    return f"{_capital(first)} has a {ways} macro score than {second}: {numbers(test)}."


def tied(results: Results, a: Model, b: Model) -> list[str]:
    """The tasks on which two models were tested and are not distinguishable."""
    scopes = dict.fromkeys(test["scope"] for test in results.get("tests", ()) if test["scope"] is not None)
    found = {scope: between(results, a, b, scope) for scope in scopes}
    return [scope for scope, test in found.items() if test is not None and not test["distinguishable"]]


def _identity(model: Model) -> dict[str, str]:
    return {key: model[key] for key in ("name", "scheme", "backend")}


def _named(model: Model) -> str:
    return f"the {model['name']} in {model['scheme']} on {model['backend']}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def numbers(test: Model) -> str:
    """The difference in points, its interval, and p."""
    ends = test["ci95"]
    interval = "" if ends is None else f", 95% interval {ends[0]:+.1f} to {ends[1]:+.1f}"
    corrected = test.get("p_corrected")
    p = (
        f"p {_p(test['p'])}"
        if corrected is None
        else f"p {_p(corrected)} after correction for all such tests of this report"
    )
    name = {"mcnemar": "McNemar's test", "bootstrap": "paired bootstrap over the rows"}[test["test"]]
    return f"{test['difference']:+.1f} points{interval} ({name}, {p})"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
