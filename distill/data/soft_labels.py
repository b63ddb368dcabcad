"""The soft labels of a task: from the column of a file to outputs that stand in for a teacher's. Without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.collate import MULTIPLE
from distill.data.encode import Encoded
from distill.data.files import Table
from distill.data.labels import Labels
from distill.data.questions import tokens_of
from distill.data.task_types import ABSENT, Columns, targets_in
from distill.data.task_types.answers import NONE
from distill.data.task_types.soft import logarithms
from distill.data.task_types.task_type import divided, is_list, is_text, one_array
from distill.errors import ConfigError
from distill.models.families.record import ANSWERS, CHOICES, TOKENS
from distill.runtime import quoting


def soft_outputs(
    settings: config.Task, columns: Columns, labels: Labels, table: Table, prepared: Table, key: str
) -> np.ndarray | None:
    """[n, outputs] of the training rows in `table`, NaN for rows without; of rows with parts, [n] arrays as from
    `TaskType.soft`. None if the settings name no soft labels.

    Args:
        prepared: the same rows, as the kind of the task prepares them.
        key: setting of the task, e.g. `tasks`, for messages.

    Raises:
        ConfigError: for a missing column, and for lists whose order is unknown.
        DataError: for the first row whose value is no soft label, or not one of its parts.
    """
    name, kind = settings.soft_label, columns.kind
    if name is None:
        return None
    assert kind.soft is not None
    if name not in table.rows.column_names:
        raise ConfigError(
            f"{key}.soft_label: got {name}; must be a column of {table.files[0]}, of "
            f"{', '.join(table.rows.column_names)}; correct it"
        )
    column = table.rows[name]
    if kind.named and settings.labels is None and _has_lists(column, inside=kind.per_token):
        raise ConfigError(
            f"{key}.labels: got nothing; must be the labels in the order of the probabilities in {name}; set, in "
            f"that order, {quoting.setting(f'{key}.labels', list(labels.names))}"
        )
    found = kind.soft(column, _numbers(labels, column, name, key), table.where, name)
    if kind.soft_fits is not None:
        kind.soft_fits(found, prepared.rows, columns.text, table.where, name)
    return found


def _numbers(labels: Labels, column: pa.ChunkedArray, name: str, key: str) -> dict[str, int]:
    """Label, by its name or as files spell it, -> its number. Raises ConfigError for labels of two meanings."""
    spelled, names = ({label: n for n, label in enumerate(each)} for each in (labels.spelled, labels.names))
    both = names | spelled
    if all(both[label] == number for label, number in names.items()):
        return both
    given = {*_keys(column.to_pylist())}
    for numbers in (spelled, names):
        if given <= {*numbers}:
            return numbers
    raise ConfigError(
        f"{key}.soft_label: got {', '.join(sorted(given))} in {name}, where {', '.join(labels.spelled)} of the files "
        f"are {', '.join(labels.names)}; must be one of these spellings; rename the labels in {name}"
    )


def _keys(value: Any) -> Iterator[str]:
    """The labels in values of a column of soft labels."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        with suppress(ValueError):  # refused with its row later
            value = json.loads(value)
    if isinstance(value, dict):
        yield from (str(label).strip() for label, given in value.items() if given is not None)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)
    elif isinstance(value, tuple) and value:  # of a map of Arrow
        yield str(value[0]).strip()


def _has_lists(column: pa.ChunkedArray, *, inside: bool) -> bool:
    """Whether the probabilities are lists. `inside`: of the words in each list."""
    if is_text(column.type):
        pattern = r"[\[,]\s*\[" if inside else r"^\s*\[\s*[^\s{\]]"
        return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())
    if not inside or not is_list(column.type):
        return is_list(column.type) and not pa.types.is_struct(column.type.value_type)
    return _has_lists(pa.chunked_array([one_array(column).flatten()]), inside=False)


def soft_column(soft: np.ndarray) -> pa.Array:
    """The soft labels as a stored column; a row with parts has a list of them, which is empty without a soft label."""
    parts = np.concatenate(list(soft)) if soft.dtype == object else soft
    values = pa.FixedSizeListArray.from_arrays(pa.array(parts.ravel()), parts.shape[1])
    if soft.dtype != object:
        return values
    return pa.ListArray.from_arrays(np.cumsum([0, *map(len, soft)]).astype(np.int32), values)


def of_column(column: pa.ChunkedArray) -> np.ndarray:
    """The soft labels of a stored column, as from `soft_outputs`."""
    values = one_array(column)
    if not pa.types.is_list(values.type):
        return targets_in(column).reshape(len(values), -1)
    parts = values.flatten()
    return divided(np.asarray(parts.flatten()).reshape(-1, parts.type.list_size), np.asarray(values.value_lengths()))


def without(soft: np.ndarray) -> np.ndarray:
    """[n] whether a row has no soft label, nor any of its words."""
    if soft.dtype == object:
        return np.array([bool(np.isnan(parts).all()) for parts in soft], np.bool_)
    return np.isnan(soft).any(axis=1)


def aligned(architecture: str, soft: np.ndarray, encoded: Encoded) -> np.ndarray:
    """Soft labels as outputs of a model for these rows: [n, outputs], [words, labels] of all texts, [n, most choices]
    with `ABSENT` where a row has fewer, or [windows, 2 W] of start and end. NaN for rows, and for words, without."""
    return _ALIGNED[architecture](soft, encoded) if soft.dtype == object else soft


def _of_words(soft: np.ndarray, encoded: Encoded) -> np.ndarray:
    assert encoded.words is not None
    sizes, parts = encoded.words.of_texts, np.concatenate(list(soft))
    found = np.full((int(sizes.sum()), parts.shape[1]), np.nan, np.float32)
    found[np.repeat([len(each) > 0 for each in soft], sizes)] = parts
    return found


def _of_choices(soft: np.ndarray, encoded: Encoded) -> np.ndarray:
    assert encoded.groups is not None
    sizes, missing = np.diff(encoded.groups), without(soft)
    found = np.full((len(sizes), encoded.most), ABSENT, np.float32)
    found[missing] = np.nan
    has = np.arange(encoded.most) < sizes[:, None]
    found[has & ~missing[:, None]] = np.concatenate(list(soft))[:, 0]
    return found


def _of_windows(soft: np.ndarray, encoded: Encoded) -> np.ndarray:
    """A span has its probability at the tokens where it starts and ends; in a window that does not contain the whole
    span, at the first token, which stands for no answer."""
    assert encoded.spans is not None
    width = -(-int(encoded.lengths.max()) // MULTIPLE) * MULTIPLE
    found = np.full((len(encoded), 2, width), ABSENT, np.float32)
    for window, owner in enumerate(encoded.spans.owners.tolist()):
        if not len(soft[owner]):
            found[window] = np.nan
            continue
        start, end = encoded.offsets[window], encoded.offsets[window + 1]
        characters, shares = encoded.spans.characters[start:end], np.zeros((2, int(end - start)))
        for span in soft[owner]:
            shares[[0, 1], tokens_of(span[:2], characters)] += span[2]
        places = characters[:, 0] != NONE
        places[0] = True
        found[window, :, : end - start] = np.where(places, logarithms(shares), ABSENT)
    return found.reshape(len(encoded), -1)


_ALIGNED: dict[str, Callable[[np.ndarray, Encoded], np.ndarray]] = {
    TOKENS: _of_words,
    CHOICES: _of_choices,
    ANSWERS: _of_windows,
}
"""Architecture -> (arrays as from `TaskType.soft`, rows) -> outputs, of rows with parts."""
