"""Which columns of a file are text and label, and which kind a task is, unless settings state it. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.header import check_name
from distill.data.kind_of import kind_of, stated_of
from distill.data.question_columns import choices_in, reading_in
from distill.data.several_types import has_several
from distill.data.task_types import TASK_TYPES, Columns, TaskType
from distill.data.task_types.multiple_choice import MULTIPLE_CHOICE, first_of, is_choices, sizes_of
from distill.data.task_types.task_type import as_list, distinct, is_list, is_text
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION, is_spans, is_words
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import whole
from distill.data.text_pairs import pair_of
from distill.data.usual_columns import (
    ANSWERS,
    LABELS,
    QUESTIONS,
    SAMPLE,
    TAGS,
    TEXTS,
    WORD_LISTS,
    WORDS,
    about_rows,
    about_words,
    only_one,
    present,
    usual_name,
)
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.runtime.quoting import setting

MOST_REPEATED = 0.5
"""A column without a usual name may be the label if its different values are at most this share of its rows."""

_ASKED = ("query", "anchor", "question")
"""Usual names of the text for which two others are compared."""
_COMPARED = ("positive", "negative")
"""Usual names of a text that fits and of one that does not, or how they begin."""


def columns_of(
    settings: config.Task,
    table: pa.Table,
    head: Head | None,
    key: str,
    file: str,
    classes: Callable[[str], tuple[str, ...]] = lambda column: (),
) -> Columns:
    """The columns that the settings name, and otherwise the most likely columns of the table.

    Args:
        head: the classifier of the teacher, from which the kind follows; None without.
        key: setting of the task, e.g. `tasks`, for messages.
        file: name of the table's file.
        classes: column -> the classes that the file states for its numbers, as `Table.classes`.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is a likely text or label.
        DataError: for a text column that contains no text.
    """
    sample = table.slice(0, SAMPLE)
    if settings.label is None and (flags := flags_of(head, sample)):
        settings = replace(settings, label=flags)
    if settings.soft_label in sample.column_names:  # probabilities are neither texts nor labels
        sample = sample.drop_columns([settings.soft_label])
    if (reading := reading_in(settings, sample, head, key, file)) is not None:
        return reading
    if choices := choices_in(settings, sample, head, key, file):
        return _with_choices(settings, sample, choices, key, file)
    label = label_columns(settings, sample, key, file)
    text = _text(settings, sample, label, key, file)
    if repeated := next((name for n, name in enumerate((*text, *label)) if name in (*text, *label)[:n]), None):
        raise ConfigError(
            f"{key}.label: got {', '.join(label)}, with text from {' and '.join(text)}; must be different columns of "
            f"{file}; name {repeated} once"
        )
    # Of all rows: of a sorted file, the first ones may have other labels than the rest.
    task_type = kind_of(settings, table, text, label, head, stated_of(settings, head, label, key, file, classes))
    if len(text) not in (allowed := task_type.layout.columns):
        wanted, pair = ("two columns", f" {key}.text_pair=COLUMN") if 2 in allowed else ("one column", "")
        raise ConfigError(
            f"{key}.text: got {' and '.join(text)}; must be {wanted} for {task_type.name}; set {key}.text=COLUMN{pair} "
            f"(of {', '.join(table.column_names)})"
        )
    return Columns(text, label, task_type, flag=_flag_of(sample, label, task_type, head))


def _with_choices(settings: config.Task, table: pa.Table, choices: tuple[str, ...], key: str, file: str) -> Columns:
    if len(choices) == 1 and not is_choices(table[choices[0]].type):
        raise DataError(
            f"{file}: got {table[choices[0]].type} in column {choices[0]}; must be a list of texts, or name a column "
            f"for each choice; set '{key}.choices=[A,B]'"
        )
    others = table.drop_columns(list(choices))
    usual = usual_name(others, ANSWERS, {settings.text, settings.text_pair})
    known = settings if settings.label or not usual else replace(settings, label=usual)
    label = label_columns(known, others, key, file)
    text = _question(settings, others, label, key, file)
    columns = Columns(text, label, MULTIPLE_CHOICE, choices)
    if not MULTIPLE_CHOICE.accepts(table[label[0]].type):
        return columns  # refused with its type later
    return replace(columns, first=first_of(table[label[0]], sizes_of(table, choices)))


def _question(settings: config.Task, table: pa.Table, label: Sequence[str], key: str, file: str) -> tuple[str, ...]:
    """The text column, or a text and a second one that each choice follows. `table`: without the choices."""
    texts = {name.lower(): name for name in table.column_names if is_text(table[name].type) and name not in label}
    pair = next((pair for pair in QUESTIONS if settings.text is None and {*pair} <= texts.keys()), None)
    return (texts[pair[0]], texts[pair[1]]) if pair else _text(settings, table, label, key, file)


def texts_of(
    settings: config.Task,
    table: pa.Table,
    text: Sequence[str],
    choices: Sequence[str],
    architecture: str,
    key: str,
    file: str,
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(text columns, columns of choices, whether they are guessed) of a file that a model is asked about, which may
    have no labels: those of the settings, those that the model was made from, or likely ones.

    Args:
        text, choices: columns that the model was made from; empty if unknown.
        architecture: of the model.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is likely.
    """
    stated = (settings.text, settings.text_pair, settings.choices) != (None, None, None)
    if not stated and text and {*text, *choices} <= {*table.column_names}:
        return tuple(text), tuple(choices), False
    if architecture == MULTIPLE_CHOICE.architecture:
        sample = table.slice(0, SAMPLE)
        found = choices_in(replace(settings, kind=MULTIPLE_CHOICE.name), sample, None, key, file)
        others = sample.drop_columns(list(found))
        usual = usual_name(others, ANSWERS, {settings.text, settings.text_pair})
        return _question(settings, others, () if usual is None else (usual,), key, file), found, not stated
    tokens = architecture == TOKEN_CLASSIFICATION.architecture and settings.text is None
    if tokens and (words := _words(settings, table)) is not None:
        return (words,), (), not stated
    others = table.select([name for name in table.column_names if name not in as_list(settings.label)])
    return text_columns(settings, others, key, file), (), not stated


def _words(settings: config.Task, table: pa.Table) -> str | None:
    """The column with a list of words for each text; None without a likely one."""
    others = [name for name in table.column_names if name != settings.label and not about_words(name)]
    lists = [name for name in others if is_words(table[name].type) and name.lower() not in {*LABELS, *TAGS}]
    return usual_name(table.select(lists), WORDS) or (lists[0] if len(lists) == 1 else None)


def text_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The text columns as from `columns_of`, of a file that may have no labels."""
    usual = usual_name(table, LABELS, {settings.text, settings.text_pair})
    return _text(settings, table.slice(0, SAMPLE), () if usual is None else (usual,), key, file)


def label_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The label column, or several columns of 0 and 1. Raises ConfigError if it is not set and no column is likely."""
    if settings.label is not None:
        return tuple(present(str(name), table, f"{key}.label", file) for name in as_list(settings.label))
    text = {settings.text, settings.text_pair}
    lists = [name for name in table.column_names if is_list(table[name].type)]
    usual = usual_name(table, LABELS, text) or usual_name(table.select(lists), TAGS, text)
    if usual is not None:
        return (only_one(usual, table, f"{key}.label", file),)
    others = [name for name in table.column_names if name not in text and not about_rows(name)]
    likely = [name for name in others if _few_values(table[name])]
    if len(likely) == 1:
        check_name(likely[0], table, f"{key}.label", likely[0], file)
        return (likely[0],)
    guesses = " or ".join(setting(f"{key}.label", name) for name in likely[:3]) or f"{key}.label=COLUMN"
    raise ConfigError(
        f"{key}.label: got nothing, and no column of {file} is named as a label; must be one of "
        f"{', '.join(table.column_names)}, or a list of columns of 0 and 1; set {guesses}"
    )


def check_header(text: Sequence[str], table: pa.Table, key: str, file: str) -> None:
    """Raise NoHeader for a column beside guessed text columns that has one of its few values as its name."""
    for name in table.column_names:
        if name not in text and _few_values(table[name]):
            check_name(name, table, f"{key}.text", text[0], file)


def _few_values(column: pa.ChunkedArray) -> bool:
    """Whether a column has lists, or so few different values that they repeat."""
    if is_list(column.type):
        return TASK_TYPES["multi_label"].accepts(column.type)
    if pa.types.is_null(column.type) or not TASK_TYPES["classification"].accepts(column.type):
        return False
    return 2 <= pc.count_distinct(column).as_py() <= MOST_REPEATED * len(column)


def _text(settings: config.Task, table: pa.Table, label: Sequence[str], key: str, file: str) -> tuple[str, ...]:
    if settings.text is not None or settings.text_pair is not None:
        if settings.text is None:
            raise ConfigError(f"{key}.text: got nothing; must be set where {key}.text_pair is; set {key}.text=COLUMN")
        names = [settings.text, *([] if settings.text_pair is None else [settings.text_pair])]
        chosen = [present(name, table, f"{key}.text{'_pair' * n}", file) for n, name in enumerate(names)]
        return tuple(chosen)
    _check_triplets(table, label, file)
    fields = [field for field in table.schema if field.name not in label and is_text(field.type)]
    # Values of several types are no likely text, and are refused later if there is nothing else.
    texts = [field.name for field in fields if not has_several(field)] or [field.name for field in fields]
    if len(label) == 1 and (words := _word_list(table, label[0], file)) is not None:
        return (words,)
    named = table.select(texts)
    if (pair := pair_of(named, table.select(list(label)), about_rows)) is not None:
        return pair
    usual = usual_name(named, TEXTS)
    if usual is not None:
        return (only_one(usual, table, f"{key}.text", file),)
    if not texts:
        raise ConfigError(
            f"{key}.text: got nothing, and no column of {file} but the label is text; must be one of "
            f"{', '.join(table.column_names)}; set {key}.text=COLUMN"
        )
    likely = [name for name in texts if not about_rows(name)]
    likely = likely or [name for name in texts if name.lower() == "url"]
    if not likely:
        raise ConfigError(
            f"{key}.text: got nothing, and the only texts of {file} are {' and '.join(texts)}; must be one of "
            f"{', '.join(table.column_names)}; set {key}.text=COLUMN"
        )
    texts = likely
    return (max(texts, key=lambda name: pc.sum(pc.utf8_length(pc.unique(table[name]))).as_py() or 0),)


def _word_list(table: pa.Table, label: str, file: str) -> str | None:
    """The column with the words to which a column of lists has a tag each; None without such a column. DataError where
    these are whole texts."""
    if not is_list(table[label].type) or is_spans(table[label].type):
        return None
    others = [name for name in table.column_names if name != label and not about_words(name)]
    lists = [name for name in others if is_words(table[name].type)]
    sizes = pc.list_value_length(table[label])
    # Most rows decide, because a row with another number of words is refused later.
    alike = [name for name in lists if _share(pc.equal(pc.list_value_length(table[name]), sizes)) > 0.5]
    _check_lists(alike, label, table, file)
    return usual_name(table.select(alike), WORD_LISTS) or (alike[0] if len(alike) == 1 else None)


def _share(flags: pa.ChunkedArray) -> float:
    return pc.mean(flags).as_py() or 0.0


def flags_of(head: Head | None, table: pa.Table) -> list[str]:
    """The labels of a head of several labels, if each of them is a column of 0 and 1; else nothing."""
    several = head is not None and head.problem == TASK_TYPES["multi_label"].problem and head.outputs > 1
    names = [*head.labels] if several and head is not None else []
    known = {*names} <= {*table.column_names}
    return names if known and all(_is_flag(table[name].slice(0, SAMPLE)) for name in names) else []


def _flag_of(table: pa.Table, label: Sequence[str], task_type: TaskType, head: Head | None) -> str:
    """The only label of a head with one output that is a probability, if the label column tells by 0 and 1 which rows
    have it; else nothing."""
    problem = TASK_TYPES["multi_label"].problem
    if head is None or (head.outputs, head.problem, task_type.name, len(label)) != (1, problem, "multi_label", 1):
        return ""
    return (head.labels or ("LABEL_0",))[0] if _is_flag(table[label[0]]) else ""


def _is_flag(column: pa.ChunkedArray) -> bool:
    """Whether a column has nothing but 0 and 1."""
    if not TASK_TYPES["classification"].accepts(column.type):
        return False
    found = {value.lower() for value in distinct(whole(label_names(column)))}
    return bool(found) and found <= {"0", "1", "true", "false"}


def _check_lists(names: Sequence[str], label: str, table: pa.Table, file: str) -> None:
    """Raise DataError where columns of lists have whole texts, each with a label of its own, and not words."""
    for name in names:
        if _share(pc.match_substring_regex(pc.list_flatten(table[name]), r"\S\s+\S")) > 0.5:
            raise DataError(
                f"{file}: got lists of texts in {name} with as many labels in {label}; must be a row for each text and "
                "its label, or lists of words; write a row for each"
            )


def _check_triplets(table: pa.Table, label: Sequence[str], file: str) -> None:
    """Raise DataError where rows have a label beside a text and two others, of which one fits it better."""
    texts = [name for name in table.column_names if name not in label and is_text(table[name].type)]
    lower = {name.lower(): name for name in texts if label}
    asked = next((lower[name] for name in _ASKED if name in lower), None)
    if asked is not None and {*_COMPARED} <= lower.keys():
        positive, negative = (lower[name] for name in _COMPARED)
        raise DataError(
            f"{file}: got {asked}, {positive} and {negative} with a label in {', '.join(label)}; must be a row for "
            f"each document: query, document and its score; write a row for {positive} and one for {negative}, or name "
            "the columns of texts with tasks.text and tasks.text_pair"
        )
