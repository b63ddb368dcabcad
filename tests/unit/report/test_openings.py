"""The sentence on reported rows that other runs had read before."""

from __future__ import annotations

from typing import Any

from distill.report import footnotes, markdown, page
from distill.report.checked import validate
from distill.report.decision import decided
from distill.report.variants import Run
from tests.decoded import decoded

LINE = {"time": "2026-01-02T03:04:05+00:00", "task": "cola", "split": "validation", "rows": 1043}
LINE |= {"fingerprint": "0" * 16, "settings": "1" * 16, "purpose": "report", "command": "python -m distill"}
LINE |= {"version": "0.1.0", "commit": None, "dirty": None, "others": None}
AFTER = "What was chosen between these runs by their scores looks better than it is."


def opened(results: dict[str, Any], *openings: dict[str, Any]) -> list[str]:
    document = results | {"openings": [LINE | each for each in openings]}
    assert validate(document) == []
    return footnotes.opened(decoded(document))


def test_no_sentence_without_other_runs(results: dict[str, Any]) -> None:
    assert footnotes.opened(decoded(results)) == []
    assert opened(results, {"others": None}) == []
    assert opened(results, {"others": 0}, {"others": 0}) == []


def test_a_sentence_says_how_often(results: dict[str, Any]) -> None:
    assert opened(results, {"others": 1}) == [
        "The reported rows of cola were read 1 time by this run and, with 1 other setting, by runs that share its "
        f"cache. {AFTER}"
    ]
    resumed = {"others": 0}, {"others": 7}, {"task": "rte", "others": 0}
    assert opened(results, *resumed) == [
        "The reported rows of cola were read 2 times by this run and, with 7 other settings, by runs that share its "
        f"cache. {AFTER}"
    ]
    several = {"others": 7}, {"task": "rte", "others": 2}
    assert opened(results, *several)[0].startswith(
        "The reported rows of cola, rte were read 1 time by this run and, with up to 7 other settings, by runs "
    )


def test_the_sentence_is_in_the_report_and_on_the_terminal(results: dict[str, Any]) -> None:
    run = decoded(results | {"openings": [LINE | {"others": 3}]})
    assert AFTER in markdown.text(page.run_page(Run("", run), ""))
    assert AFTER in markdown.text(page.summary(run, decided(Run("", run))))


def test_an_opening_with_a_wrong_field_is_refused(results: dict[str, Any]) -> None:
    wrong = validate(results | {"openings": [LINE | {"rows": -1}]})
    assert wrong
    assert "openings[0].rows: got -1" in wrong[0]
