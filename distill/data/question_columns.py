"""The columns of questions: with choices, or with a context that has the answer. Without torch."""

from __future__ import annotations

import pyarrow as pa

from distill import config
from distill.data.task_types import Columns
from distill.data.task_types.multiple_choice import MULTIPLE_CHOICE, fits, is_choices, numbered
from distill.data.task_types.question_answering import QUESTION_ANSWERING, is_answers, is_extractive, with_places
from distill.data.task_types.task_type import as_list, is_text
from distill.data.text_pairs import READING
from distill.data.usual_columns import ANSWERS, CHOICES, FOUND, LABELS, named_columns, present, usual_name
from distill.errors import ConfigError
from distill.models.families.head import Head


def reading_in(settings: config.Task, table: pa.Table, head: Head | None, key: str, file: str) -> Columns | None:
    """The columns of question answering; None for tasks of other kinds."""
    task_type, of_head = QUESTION_ANSWERING, head is not None and head.architecture == QUESTION_ANSWERING.architecture
    wanted = settings.kind == task_type.name or (settings.kind is None and of_head)
    if not wanted and (settings.kind is not None or settings.choices is not None or head is not None):
        return None
    given = {settings.text, settings.text_pair}
    usual = tuple(usual_name(table, (name,)) for name in READING)
    label = settings.label if settings.label is not None else usual_name(table, FOUND, given)
    if not wanted:
        named = settings.text is not None or isinstance(label, list) or label is None or None in usual
        if named or label not in table.column_names or not is_answers(table[label].type):
            return None
        if not is_extractive(table, str(usual[1]), str(label)):
            return None
        choices = choices_in(settings, table, head, key, file)
        judged = str(label).lower() == FOUND[-1] and usual_name(table, LABELS) is not None
        if not with_places(table, str(label)) and (judged or not {label, *choices} == {label}):
            return None
    text = (settings.text, settings.text_pair) if settings.text is not None else usual
    for name, column in (("text", text[0]), ("text_pair", text[1]), ("label", label)):
        if not isinstance(column, str):
            raise ConfigError(
                f"{key}.{name}: got {column or 'nothing'}; must be a column of {file} for {task_type.name}, which has "
                f"{', '.join(table.column_names)}; set {key}.text=QUESTION {key}.text_pair=CONTEXT {key}.label=ANSWERS"
            )
        present(column, table, f"{key}.{name}", file)
    question, context = map(str, text)
    if len({question, context, label}) < 3:
        raise ConfigError(
            f"{key}.label: got {label}, with {question} and {context}; must be different columns of {file}; name each "
            "once"
        )
    return Columns((question, context), (str(label),), task_type)


def choices_in(settings: config.Task, table: pa.Table, head: Head | None, key: str, file: str) -> tuple[str, ...]:
    """The columns with the choices of multiple choice; empty for tasks of other kinds."""
    if settings.kind not in (None, MULTIPLE_CHOICE.name):
        return ()
    if settings.choices is not None:
        return tuple(present(str(name), table, f"{key}.choices", file) for name in as_list(settings.choices))
    others = table.drop_columns([name for name in table.column_names if name in named_columns(settings)])
    usual = usual_name(others.select([n for n in others.column_names if is_choices(others[n].type)]), CHOICES)
    names = others.column_names if settings.kind else [n for n in others.column_names if is_text(others[n].type)]
    found = (usual,) if usual is not None else tuple(numbered(names))
    wanted = settings.kind is not None or (head is not None and head.architecture == MULTIPLE_CHOICE.architecture)
    label = settings.label if settings.label is not None else usual_name(others, ANSWERS, {*found})
    asked = any(is_text(table[n].type) for n in table.column_names if n not in (*found, label))
    if found and (wanted or (asked and label in table.column_names and fits(table, found, str(label)))):
        return found
    if wanted:
        raise ConfigError(
            f"{key}.choices: got nothing, and no column of {file} is named as choices; must be a column of lists, or "
            f"several columns, of {', '.join(table.column_names)}; set {key}.choices=COLUMN or '{key}.choices=[A,B]'"
        )
    return ()
