"""The sentences of a result claim a difference only where a test detects one."""

from __future__ import annotations

from typing import Any

import pytest

from distill.cli.compare.result import sentences


def result(
    p: float | None, ends: list[float] | None, difference: float = 5.0, only: int = 20, differing: int = 20
) -> list[str]:
    values: dict[str, Any] = {"a": 80.0, "b": 80.0 + difference, "difference": difference, "ci95": ends}
    values["differing"] = differing
    comparison: dict[str, Any] = {
        "rows": 120,
        "labelled_rows": 120,
        "scores": {"accuracy" if p is not None else "pearson": values},
        "mcnemar": None if p is None else {"only_a": 0, "only_b": only, "p": p},
        "agreement": {"percent": 90.0, "ci95": [83.3, 94.2]},
        "latency": [{"batch": 1, "speedup": {"median": 2.0, "ci95": [1.9, 2.1]}},
                    {"batch": 8, "speedup": {"median": 1.01, "ci95": [0.98, 1.02]}}],
    }  # fmt: skip
    return sentences(comparison)


@pytest.mark.parametrize(
    ("p", "ends", "difference", "start"),
    [
        (0.01, [1.0, 9.0], 5.0, "The accuracy of B is higher than that of A"),
        (0.01, [-9.0, -1.0], -5.0, "The accuracy of B is lower than that of A"),
        (0.06, [1.0, 9.0], 5.0, "No difference in accuracy was detected"),
        (None, [1.0, 9.0], 5.0, "The pearson of B is higher than that of A"),
        (None, [-1.0, 9.0], 5.0, "No difference in pearson was detected"),
        (None, None, 0.0, "No difference in pearson was detected"),
    ],
)
def test_a_difference_is_claimed_where_a_test_detects_it(
    p: float | None, ends: list[float] | None, difference: float, start: str
) -> None:
    assert result(p, ends, difference)[0].startswith(start)
    assert "120 labelled rows" in result(p, ends, difference)[0]


def test_a_test_that_cannot_detect_anything_is_named() -> None:
    assert "cannot detect" in result(0.0625, [0.0, 4.0], only=5)[1]
    assert not any("cannot detect" in line for line in result(0.06, [0.0, 4.0], only=6))


def test_a_bootstrap_of_few_differing_rows_detects_nothing() -> None:
    few, many = (result(None, [1.0, 9.0], differing=rows) for rows in (9, 10))
    assert few[0].startswith("No difference in pearson was detected")
    assert "9 rows" in few[1]
    assert many[0].startswith("The pearson of B is higher than that of A")
    assert not any("too often" in line for line in (*many, *result(None, [-1.0, 9.0], differing=9)))


def test_speed_is_claimed_where_its_interval_is_without_one() -> None:
    slower, same = result(0.5, [-1.0, 1.0])[-2:]
    assert slower == "At batch size 1 B runs at 2.00x the speed of A (95% interval 1.90 to 2.10)."
    assert same.startswith("At batch size 8 no difference in speed was detected")
