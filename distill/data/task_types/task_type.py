"""The record of a kind of task: its labels, the rows that losses compare, its predictions and its metrics. Without
torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.detecting import Detecting
from distill.data.task_types.layout import TEXTS_OR_PAIRS, Layout, Parts
from distill.errors import ConfigError, DataError
from distill.models.families.record import ANSWERS, CHOICES, TOKENS, VECTORS

Where = Callable[[int], str]
"""Row of a table, from 0 -> its file and its number there."""

MISSING = -100
"""Class number of a row without a label: the number that torch's cross-entropy ignores."""

SOFT = "soft_outputs"
"""Column with the outputs of each training row that stand in for a teacher's, of tasks with soft labels."""

OPTIONS = ("labels", "range", "threshold", "choices", "soft_label", "class_weight", "prompts")
"""Settings of a task that are only for some kinds."""

Words = tuple[str, Sequence[tuple[int, int]]]
"""A text, and the first character and the end of each of its words."""


Texts = Sequence[Sequence[str]]
"""The texts of each text column."""

Given = dict[str, Any]
"""Split -> column of labels."""


@dataclass(frozen=True)
class Stated:
    """The facts about the labels besides their column."""

    key: str
    """Setting of the task, e.g. `tasks`, for messages."""
    file: str
    """Name of the first file, for messages."""
    column: str
    """Name of the label column, for messages."""
    listed: tuple[str, ...] = ()
    """The labels that the settings list."""
    outputs: tuple[str, ...] = ()
    """The labels of the teacher."""
    ranged: bool = False
    """Whether the settings state the range of the numbers."""
    classes: tuple[str, ...] = ()
    """The names of the classes, if the file states that the labels are classes."""

    @property
    def known(self) -> tuple[str, ...]:
        return self.listed or self.outputs

    def ambiguous(self, got: str, readings: str, advice: str) -> ConfigError:
        return ConfigError(f"{self.key}.label: got {got} in column {self.column} of {self.file}; {readings}; {advice}")


def _unchanged(targets: np.ndarray, texts: Texts, labels: Sequence[str]) -> np.ndarray:
    return targets


def _as_logits(outputs: Any) -> Any:
    return outputs


def _no_names(column: pa.ChunkedArray) -> set[str]:
    return set()


def _number(target: Any, labels: Sequence[str], parts: Parts) -> str | float:
    return float(target)


def sorted_names(names: set[str]) -> tuple[str, ...]:
    """Numbers by size, other names by alphabet."""
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


@dataclass(frozen=True)
class TaskType:
    """A kind of task. A model outputs [n, outputs] numbers for n rows, which are texts or, with `per_token`, words."""

    name: str
    summary: str
    """The work of a model of this kind, in a few words."""
    problem: str | None
    """`problem_type` of the model's config in transformers; None for embedders."""
    metrics: tuple[str, ...]
    """Metrics of a task that names none. Their mean is the task's score."""
    all_metrics: tuple[str, ...]
    """Metrics that a task of this kind may name."""
    accepts: Callable[[pa.DataType], bool]
    """Whether a label column may have this type. `encode` is only called for columns that do."""
    form: str
    """The content of such a column, in a few words."""
    encode: Callable[[pa.ChunkedArray, Sequence[str], Where, str], np.ndarray]
    """(column, labels, where, setting of the column) -> targets [n] or [n, labels]. Rows without a label have `MISSING`
    or NaN. Raises DataError for a value that is not a label."""
    decode: Callable[[np.ndarray, Sequence[str], float], np.ndarray]
    """(outputs, labels, threshold) -> predictions [n] or [n, labels], as metrics take them."""
    answer: Callable[[np.ndarray, Sequence[str], float, Sequence[Any]], list[dict[str, Any]]]
    """(outputs, labels, threshold, parts of the rows as from `Layout`) -> for each row, the prediction that
    `Model.predict` returns, as JSON values."""
    difference: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(outputs of a model, of another) -> [n], how far apart they are on each text."""
    measure: str
    """The difference by which `distill.compare` lists rows, in a few words."""
    brief: Callable[[dict[str, Any]], str]
    """The result of `answer` for a text, in a few words."""
    rows: Callable[[Any], Any] = _as_logits
    """Outputs [n, outputs], of torch or numpy, -> logits [R, C] whose softmax is compared; C = 1 is a number."""
    settings: tuple[str, ...] = ("labels",)
    """The settings of `OPTIONS` that a task of this kind may have."""
    same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(predictions, predictions or targets) -> [n] whether they are the same. None for numbers, which seldom are."""
    shown: Callable[[Any, Sequence[str], Parts], str | float] = _number
    """(target of a row that has a label, labels, parts of the row) -> the label, for a person to read."""
    outputs: int = 1
    """Number of a model's outputs that have no names."""
    averaged: bool = True
    """Whether outputs of several teachers, or of a text's windows, are averaged: as probabilities of classes, of which
    one is right, or as numbers."""
    mixed: Callable[[Sequence[np.ndarray], Sequence[float] | None], np.ndarray] | None = None
    """(outputs of several teachers, their weights) -> outputs of all as one, where these are not averaged."""
    teacher_weight: float = 1.0
    """Factor of the weights of terms between `rows` of a student and of its teacher."""
    scaled: bool = False
    """Whether labels, which are numbers, are scaled to 0 to 1 when they are loaded."""
    grouped: bool = False
    """Whether rows with the same first text form a group, which is scored and resampled as a whole."""
    label_rows: Callable[[Any], Any] | None = None
    """Outputs -> logits [R, C] that are compared with labels; `rows` when None."""
    loss_targets: Callable[[np.ndarray], np.ndarray] = np.ravel
    """Targets -> [R] the labels of `label_rows`."""
    truth: Callable[[np.ndarray, Texts, Sequence[str]], np.ndarray] = _unchanged
    """(targets, texts of each text column, labels) -> targets [n] or [n, labels] as metrics take them."""
    grade: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(predictions, truth) -> [n, metrics] value of each metric for each row, or for the group of each row, where
    metrics are means over rows or groups."""
    names: Callable[[pa.ChunkedArray], set[str]] = _no_names
    """Column -> names of its labels."""
    order: Callable[[set[str]], tuple[str, ...]] = sorted_names
    """Names of labels -> the labels of a task without other names, in the order of the model's outputs."""
    recalled: Callable[[np.ndarray, np.ndarray, Sequence[str]], dict[str, np.ndarray]] | None = None
    """(predictions, truth, labels) -> label, or type of spans -> [units, 2] how often it is in both, and how often in
    the truth. A unit is a row or, of words, a text. Labels that do not occur are left out. None without labels."""
    beside: tuple[str, ...] = ()
    """Metrics that reports show beside those of a task, and that are in no score."""
    detecting: Detecting | None = None
    """How single labels are detected, of kinds with labels for texts."""
    soft: Callable[[pa.ChunkedArray, Mapping[str, int], Where, str], np.ndarray] | None = None
    """(column of soft labels, name of a label -> its output, where, name of the column) -> outputs [n, outputs] that
    stand in for a teacher's, float32; NaN for a row without. Of rows with parts, [n] arrays [parts, columns], which
    `data.soft_labels.aligned` turns into outputs; empty for a row without. Raises DataError for a value that is not a
    soft label. None for kinds without soft labels."""
    soft_fits: Callable[[np.ndarray, pa.Table, Sequence[str], Where, str], None] | None = None
    """(arrays as from `soft`, rows as from `prepare`, text columns, where, name of the column): raises DataError for
    the first row whose parts are not those of its soft label."""
    soft_column: Callable[[np.ndarray, Sequence[str], np.ndarray | None], pa.Array] | None = None
    """(outputs of a model, labels, number of parts of each row) -> soft labels [n] as `soft` reads them: see
    `soft_written`. None for kinds that `distill.labelling` does not label."""
    layout: Layout = TEXTS_OR_PAIRS
    """The layout of its rows."""
    read: Callable[[Given, Stated], tuple[Given, list[str]]] | None = None
    """(columns of labels, what is known about them) -> the columns in the form that `encode` takes, and lines for the
    user about labels in another form, such as `a|b`, 1.0 for 1, or a hyphen in place of a label. Raises ConfigError for
    labels that could be read in two ways. None for kinds that `prepare` their labels."""
    pipeline: str = "text-classification"
    """Name of what a model of this kind does on the Hugging Face hub."""
    nothing: Callable[[np.ndarray, Sequence[str]], np.ndarray] | None = None
    """(targets of rows with a label, labels) -> [n] whether the label is what benchmarks write in place of hidden ones.
    None for kinds in which it is refused, or is read as no label."""
    nothing_is: str = ""
    """That label, in a few words."""
    prepare: Callable[[pa.Table, Columns, Where], pa.Table] | None = None
    """(table, its columns, where) -> a table with the text columns, the label as `encode` takes it, and the columns
    in `Layout.hidden`. None for kinds that use the columns of the file as they are."""

    def recalls(self, predicted: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, tuple[float, int]]:
        """Label, or type of spans -> (recall in percent, how often it is in the truth); empty without labels.

        predicted, truth: `[n]` or `[n, labels]`, as metrics take them.
        """
        counted = self.counted(predicted, truth, labels)
        return {label: (100 * both / total, total) for label, (both, total) in counted.items()}

    def counted(self, predicted: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Label, or type of spans -> how often it is in both, and how often in the truth: the sums of `recalled`."""
        columns = {} if self.recalled is None else self.recalled(predicted, truth, labels)
        return {label: (int(units[:, 0].sum()), int(units[:, 1].sum())) for label, units in columns.items()}

    @property
    def named(self) -> bool:
        """Whether the model has one output for each named label. If false, it has `outputs`."""
        return "labels" in self.settings

    @property
    def architecture(self) -> str:
        """The class of transformers without the name of the family."""
        return self.layout.architecture

    @property
    def per_token(self) -> bool:
        """Whether the model classifies each token of a text. Rows are then words: a word has the outputs of its first
        token, and the targets of all texts are flat. Only the column of targets has one list for each text."""
        return self.architecture == TOKENS

    @property
    def choices(self) -> bool:
        """Whether each row is a text with several others, of which one is right."""
        return self.architecture == CHOICES

    @property
    def extractive(self) -> bool:
        """Whether each row is a question with a context, in overlapping windows, in which its answer is found."""
        return self.architecture == ANSWERS

    @property
    def windowed(self) -> bool:
        """Whether a row of more than the maximum length is read in overlapping windows, and not cut."""
        return self.per_token or self.extractive

    @property
    def separate(self) -> bool:
        """Whether both texts of a row are encoded separately, so that its outputs are the outputs of both, side by
        side."""
        return self.architecture == VECTORS

    def on_labels(self, outputs: Any) -> Any:
        """Outputs [n, outputs] -> logits [R, C] that are compared with `loss_targets`."""
        return (self.label_rows or self.rows)(outputs)


@dataclass(frozen=True)
class Columns:
    """The columns of a file that a task uses."""

    text: tuple[str, ...]
    """The text column, or the two columns of a text pair."""
    label: tuple[str, ...]
    """The label column, or several columns of 0 and 1."""
    kind: TaskType
    choices: tuple[str, ...] = ()
    """The column with the choices of each row, or several with one each."""
    first: int = 0
    """Number by which the labels call the first choice."""
    flag: str = ""
    """The only label of the kind multi_label, where the label column tells by 0 and 1 whether a row has it."""

    @property
    def flagged(self) -> tuple[str, ...]:
        """The labels that columns of 0 and 1 tell; empty where a column has the labels themselves."""
        return (self.flag,) if self.flag else self.label if len(self.label) > 1 else ()

    @property
    def content(self) -> tuple[str, ...]:
        """The columns that are equal for equal rows."""
        return (*self.text, *self.kind.layout.content)


def likeliest(outputs: np.ndarray, labels: Sequence[str], threshold: float) -> np.ndarray:
    """[n] number of the largest of a row's outputs [n, outputs]: a `decode`."""
    return outputs.argmax(axis=1)


def equal_rows(predicted: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[n] whether all values [n, columns] of two rows are equal: a `same`."""
    return (predicted == other).all(axis=1)


PROBABILITIES = "of probabilities, 0 to 1"
"""A `measure`."""


def total_variation(rows: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[R] total variation distance of the probabilities of two logits [R, C], 0 to 1: half the sum of the absolute
    differences."""
    return np.abs(probabilities(rows) - probabilities(other)).sum(axis=1) / 2


def probabilities(rows: np.ndarray) -> np.ndarray:
    """[R, C] softmax of logits [R, C], float64."""
    exponentials = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True, initial=-np.inf))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


GROUPED = np.dtype([("label", np.float32), ("group", np.int64)])
"""Targets of a kind with groups."""


def grouped(targets: np.ndarray, texts: Texts, labels: Sequence[str]) -> np.ndarray:
    """[n] of `GROUPED`: rows with the same first text have the same group."""
    result = np.empty(len(targets), GROUPED)
    result["label"], result["group"] = targets, group_numbers(texts[0])
    return result


def group_numbers(texts: Sequence[str]) -> np.ndarray:
    """[n] a number for each text, from 0. Texts that differ only in surrounding spaces have the same number."""
    numbers: dict[str, int] = {}
    return np.fromiter((numbers.setdefault(text.strip(), len(numbers)) for text in texts), np.int64)


def recalled(predicted: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, np.ndarray]:
    """Label -> [n, 2] whether a row has it in prediction and truth, and in the truth: see `TaskType.recalled`.

    predicted, truth: class numbers [n], or 0 and 1 [n, labels].
    """
    if truth.ndim == 1:
        numbers = np.arange(len(labels))
        truth, predicted = truth[:, None] == numbers, predicted[:, None] == numbers
    true, both = truth == 1, (truth == 1) & (predicted == 1)
    return {labels[int(n)]: np.stack([both[:, n], true[:, n]], axis=1) for n in np.flatnonzero(true.any(axis=0))}


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column [rows] as one array."""
    values = column.combine_chunks()  # of very long columns, several arrays
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values


def distinct(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The different values of a column [rows], in the order in which they come, without null."""
    return [value for value in pc.unique(column).to_pylist() if value is not None]


def targets_in(column: pa.ChunkedArray) -> np.ndarray:
    """Targets of a stored column: [n], [n, labels] or, of words, [n] arrays."""
    values = one_array(column)
    if pa.types.is_fixed_size_list(values.type):
        return np.asarray(values.flatten()).reshape(len(values), -1)
    if not pa.types.is_list(values.type):
        return np.asarray(values)
    return divided(np.asarray(values.flatten()), np.asarray(values.value_lengths()))


def divided(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[n] arrays: consecutive parts of the values, of these sizes [n]."""
    parts, ends = np.empty(len(sizes), object), np.cumsum(sizes)
    for row, (start, end) in enumerate(zip((ends - sizes).tolist(), ends.tolist(), strict=True)):
        parts[row] = values[start:end]
    return parts


def flat(targets: np.ndarray) -> np.ndarray:
    """Targets with one row for each word [words], for texts in words; other targets [n] or [n, labels] unchanged."""
    if targets.dtype != object:
        return targets
    return np.concatenate([np.zeros(0, np.int64), *targets])


def as_list(value: Any) -> list[Any]:
    """The values of a setting or a cell that has one, several in a list, or none (null)."""
    return value if isinstance(value, list) else [] if value is None else [value]


def is_text(data_type: pa.DataType) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type)


def is_number(data_type: pa.DataType) -> bool:
    return pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)


def is_list(data_type: pa.DataType) -> bool:
    return pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type)


def check_texts(table: pa.Table, columns: Sequence[str], where: object) -> None:
    """Raise DataError unless the columns are text."""
    for column in columns:
        if not is_text(table[column].type):
            raise DataError(f"{where}: got {table[column].type} in column {column}; must be text; convert it")


def labelled(targets: np.ndarray) -> np.ndarray:
    """[n] whether a row, or a text in words, has a label."""
    if targets.dtype == object:
        return np.array([len(words) > 0 and bool((words != MISSING).any()) for words in targets], np.bool_)
    if targets.dtype.names is not None:
        targets = targets["label"]
    first = targets if targets.ndim == 1 else targets[:, 0]
    return ~np.isnan(first) if first.dtype.kind == "f" else first != MISSING
