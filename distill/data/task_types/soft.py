"""Soft labels: probabilities of the labels of each row, which stand in for the outputs of a teacher. Without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.task_type import Where, is_list, one_array
from distill.data.task_types.written import spelled_alike
from distill.errors import DataError
from distill.models.families.record import ABSENT

SUM_TOLERANCE = 1e-3
"""By how much the sum of a row's probabilities may differ from 1: probabilities may be rounded."""


_SCORED = {"label", "score"}
"""Keys of an output of transformers' pipelines."""

OTHER_KIND = ", or choose the kind multi_label if labels do not exclude each other"


def log_probabilities(
    column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str, more: str = OTHER_KIND
) -> np.ndarray:
    """[n, labels] logarithms of probabilities that sum to 1 in each row, float32; NaN for a row that has none (null).

    The softmax of the result is the probabilities, 0 included: its logarithm is `ABSENT`.

    Args:
        column: for each row a list, in the order of the labels, or an object with the probability of each label by its
            name, where labels that are left out have 0; or the JSON text of one of these.
        numbers: name of a label -> its place among the labels.
        name: name of the column, for messages.
        more: what else can be done about a wrong sum, for messages.

    Raises:
        DataError: for the first row with other values, with numbers that are no probabilities, or with another sum.
    """
    values = _probabilities(column, numbers, where, name, needed=True)
    sums = values.sum(axis=1, keepdims=True)
    bad = np.abs(sums[:, 0] - 1) > SUM_TOLERANCE  # false for NaN
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{where(row)}: got probabilities in {name} that sum to {sums[row, 0]:.6g}; must sum to 1; correct the "
            f"row{more}"
        )
    return logarithms(values / sums).astype(np.float32)


def log_odds(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n, labels] log(p / (1 - p)) of the probability p of each label, float32, whose sigmoid is p: see
    `log_probabilities`. Rows need not sum to 1, and an object without a label has 0 for each."""
    values = _probabilities(column, numbers, where, name, needed=False)
    return (logarithms(values) - logarithms(1 - values)).astype(np.float32)


def logarithms(values: np.ndarray) -> np.ndarray:
    """The logarithms of probabilities, at least `ABSENT`; NaN stays NaN."""
    with np.errstate(divide="ignore"):
        logarithms: np.ndarray = np.maximum(np.log(values), ABSENT)
    return logarithms


def _probabilities(
    column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str, *, needed: bool
) -> np.ndarray:
    """[n, labels] numbers from 0 to 1, float64; NaN in rows without any. `needed`: a row of labels has one above 0."""
    outputs, numbers = max(numbers.values()) + 1, _Spelled(numbers)
    if (whole := _at_once(column, numbers, outputs)) is not None:
        return whole
    result = np.full((len(column), outputs), np.nan)
    for row, value in enumerate(column):
        given = parsed(value.as_py(), f"{where(row)}: got", name)
        if given is None or given == [] or (needed and given == {}):
            _check_null(value, where(row), name, needed)
            continue
        if isinstance(given, list) and len(given) != outputs:
            raise DataError(
                f"{where(row)}: got {len(given)} probabilities in {name}; must be {outputs}, one for each label; "
                "correct the row"
            )
        result[row] = 0.0
        if isinstance(given, dict):
            if unknown := [label for label in given if label not in numbers]:
                raise DataError(
                    f"{where(row)}: got label {unknown[0]!r} in {name}; must be of {', '.join(numbers)}; correct the "
                    "row"
                )
            pairs = [(numbers[label], probability) for label, probability in given.items()]
            if len(dict(pairs)) < len(pairs):
                raise DataError(
                    f"{where(row)}: got {', '.join(map(repr, given))} in {name}, two of them of one label; must name "
                    "each label once; correct the row"
                )
        else:
            pairs = [*enumerate(given)]
        for number, probability in pairs:
            if not is_probability(probability):
                raise DataError(
                    f"{where(row)}: got probability {probability!r} in {name}; must be a number from 0 to 1; correct "
                    "the row"
                )
            result[row, number] = min(float(probability), 1.0)
    return result


def _check_null(value: pa.Scalar, place: str, name: str, needed: bool) -> None:
    """Raise DataError for an object of Arrow without values, which has the same for `{}` and for `{"a": null}`, unless
    a row of labels needs one."""
    if not needed and value.is_valid and pa.types.is_struct(value.type):
        raise DataError(
            f"{place}: got an object without any probability in {name}, which may mean that no label is true, or that "
            "nothing is known; must be one of these; write 0 for a label, or null in place of the object"
        )


class _Spelled(dict[str, int]):
    """Name of a label -> its number, also where it is spelled in another case, or with `_` or `-` between words."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        super().__init__(numbers)
        self._alike = {spelled_alike(name): number for name, number in [*numbers.items()][::-1]}

    def __missing__(self, name: str) -> int:
        return self._alike[spelled_alike(name)]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and spelled_alike(name) in self._alike)


def _at_once(column: pa.ChunkedArray, numbers: Mapping[str, int], outputs: int) -> np.ndarray | None:
    """The same numbers [n, labels], of a column of objects or lists that all have a probability for each of their
    labels, or are null, as `distill.label` writes them: row by row, millions of rows take minutes. None for any other
    column."""
    if is_list(column.type):
        return _lists_at_once(column, outputs)
    if not pa.types.is_struct(column.type):
        return None
    names = [field.name.strip() for field in column.type]
    if any(name not in numbers for name in names) or len({numbers[name] for name in names}) < len(names):
        return None
    given = pc.is_valid(column).to_numpy()
    result = np.full((len(column), outputs), np.nan)
    result[given] = 0.0
    for field, name in enumerate(names):
        values = pc.struct_field(column, [field])  # by number: a name with a dot would be a path
        if not pa.types.is_floating(values.type) or values.null_count != column.null_count:
            return None
        found = values.to_numpy()[given]
        if not ((found >= 0) & (found <= 1 + SUM_TOLERANCE)).all():  # NaN is neither
            return None
        result[given, numbers[name]] = np.minimum(found, 1.0)
    return result


def _lists_at_once(column: pa.ChunkedArray, outputs: int) -> np.ndarray | None:
    lists = one_array(column)
    sizes, values = np.asarray(lists.value_lengths().fill_null(outputs)), lists.flatten()
    if not pa.types.is_floating(values.type) or values.null_count or (sizes != outputs).any():
        return None
    found = np.asarray(values, np.float64)
    if not ((found >= 0) & (found <= 1 + SUM_TOLERANCE)).all():
        return None
    result = np.full((len(lists), outputs), np.nan)
    result[np.asarray(lists.is_valid())] = np.minimum(found, 1.0).reshape(-1, outputs)
    return result


def from_text(value: Any) -> Any:
    """The value of a JSON text, and None for an empty text; any other text, and any other value, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError):
        return value


def parsed(value: Any, start: str, name: str) -> list[Any] | dict[str, Any] | None:
    """The list or object of the soft labels of a row; None for null, for an empty text, and for an object whose values
    are all null. Keys of an object that the row lacks are left out. A list of labels with scores, as from a pipeline,
    is an object."""
    value = from_text(value)  # another text is refused below
    if isinstance(value, list) and value and all(isinstance(entry, tuple) for entry in value):
        value = dict(value)  # a map of Arrow
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]  # a pipeline's outputs for a list of one text
    if isinstance(value, list) and value and all(isinstance(entry, dict) and {*entry} == _SCORED for entry in value):
        value = {entry["label"]: entry["score"] for entry in value}
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, dict):
        if value and all(probability is None for probability in value.values()):
            return None
        return {str(label).strip(): probability for label, probability in value.items() if probability is not None}
    raise DataError(
        f"{start} {value!r}"[:300] + f" in {name}; must be a list of probabilities, or an object with the probability "
        "of each label; correct the row"
    )


def is_probability(value: Any) -> bool:
    """Whether a value of a file is a number from 0 to 1, rounded perhaps."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= 1 + SUM_TOLERANCE
