"""Which columns of a file are text and label, and which kind a task is, unless settings state it. Without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from unicodedata import normalize

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.flag_columns import flag_of, flags_of
from distill.data.header import check_name
from distill.data.kind_of import kind_of, stated_of
from distill.data.listwise import check_lists, check_triplets
from distill.data.task_types import TASK_TYPES, Columns
from distill.data.task_types.multiple_choice import MULTIPLE_CHOICE, first_of, fits, is_choices, numbered, sizes_of
from distill.data.task_types.question_answering import QUESTION_ANSWERING, is_answers, is_extractive, with_places
from distill.data.task_types.task_type import as_list, is_list, is_text
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION, is_spans, is_words
from distill.data.text_pairs import READING, pair_of
from distill.errors import ConfigError, DataError
from distill.models.families import record
from distill.models.families.head import Head
from distill.runtime.quoting import setting

LABELS = (
    "label", "labels", "gold_label", "target", "class", "category", "intent", "sentiment", "topic", "emotion", "score",
    "similarity", "rating", "stars", "relevance", "relevant", "y",
)  # fmt: skip
"""Usual names of label columns."""

CHOICES = ("choices", "options", "endings", "answers", "alternatives", "candidates")
"""Usual names of columns with a list of choices for each row."""

ANSWERS = ("label", "answer", "answerkey", "answer_key", "correct", "correct_answer", "gold", "target", "labels", "y")
"""Usual names of the label column where rows have choices."""

QUESTIONS = (
    ("article", "question"),
    ("passage", "question"),
    ("context", "question"),
    ("sent1", "sent2"),
    ("premise", "question"),
)
"""Usual names of a text and of a second one that each choice follows, as in RACE, SWAG and COPA."""

FOUND = ("answers", "answer", "answer_text")
"""Usual names of the column with the answers that are in a context."""

TAGS = ("ner_tags", "ner_tag", "ner", "tags", "tag", "spans", "entities", "pos_tags")
"""Usual names of columns with a list of tags or of spans for each text."""

WORD_LISTS = ("tokens", "words")
"""Usual names of columns with a list of words for each text."""

WORDS = (*WORD_LISTS, "token", "word")
"""Usual names of a column with words, of which each may have a row of its own."""

LABELS_OF = {record.TOKENS: (*LABELS, *TAGS), record.CHOICES: ANSWERS, record.ANSWERS: FOUND}
"""Architecture -> usual names of the label column, if they are not `LABELS`."""

TEXTS = (
    "text", "sentence", "content", "body", "message", "review", "comment", "document", "utterance", "description",
    "abstract", "article", "question", "query", "title",
)  # fmt: skip
"""Usual names of text columns."""

USUAL = frozenset((*LABELS, *TEXTS, *CHOICES, *ANSWERS, *TAGS, *FOUND, *READING, *WORD_LISTS))
"""Usual names of columns."""

SAMPLE = 10_000
"""Rows by which columns and kind are chosen."""

_ASIDE = re.compile(
    r"unnamed: ?\d+|index|idx|no|nr|(.*[_ -])?(id|ids|uuid|guid|url|hash)|(?-i:[a-z]+I[dD])|.*_(at|time|date)|date|"
    r"timestamp|split|fold|subset|partition|annotators?|lead_time|_[a-z_]+|__index_level_\d+__|file_?names?",
    re.IGNORECASE,
)
"""Names of columns about a row, which are neither its text nor its label unless settings name them."""

MOST_REPEATED = 0.5
"""A column without a usual name may be the label if its different values are at most this share of its rows."""


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
    if (reading := _reading(settings, sample, head, key, file)) is not None:
        return reading
    if choices := _choices(settings, sample, head, key, file):
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
    return Columns(text, label, task_type, flag=flag_of(sample, label, task_type, head))


def _reading(settings: config.Task, table: pa.Table, head: Head | None, key: str, file: str) -> Columns | None:
    """The columns of question answering; None for tasks of other kinds."""
    task_type, of_head = QUESTION_ANSWERING, head is not None and head.architecture == QUESTION_ANSWERING.architecture
    wanted = settings.kind == task_type.name or (settings.kind is None and of_head)
    if not wanted and (settings.kind is not None or settings.choices is not None or head is not None):
        return None
    given = {settings.text, settings.text_pair}
    usual = tuple(_usual(table, (name,), set()) for name in READING)
    label = settings.label if settings.label is not None else _usual(table, FOUND, given)
    if not wanted:
        named = settings.text is not None or isinstance(label, list) or label is None or None in usual
        if named or label not in table.column_names or not is_answers(table[label].type):
            return None
        if not is_extractive(table, str(usual[1]), str(label)):
            return None
        choices = _choices(settings, table, head, key, file)
        judged = str(label).lower() == FOUND[-1] and _usual(table, LABELS, set()) is not None
        if not with_places(table, str(label)) and (judged or not {label, *choices} == {label}):
            return None
    text = (settings.text, settings.text_pair) if settings.text is not None else usual
    for name, column in (("text", text[0]), ("text_pair", text[1]), ("label", label)):
        if not isinstance(column, str):
            raise ConfigError(
                f"{key}.{name}: got {column or 'nothing'}; must be a column of {file} for {task_type.name}, which has "
                f"{', '.join(table.column_names)}; set {key}.text=QUESTION {key}.text_pair=CONTEXT {key}.label=ANSWERS"
            )
        _present(column, table, f"{key}.{name}", file)
    question, context = map(str, text)
    if len({question, context, label}) < 3:
        raise ConfigError(
            f"{key}.label: got {label}, with {question} and {context}; must be different columns of {file}; name each "
            "once"
        )
    return Columns((question, context), (str(label),), task_type)


def _choices(settings: config.Task, table: pa.Table, head: Head | None, key: str, file: str) -> tuple[str, ...]:
    """The columns with the choices of multiple choice; empty for tasks of other kinds."""
    if settings.kind not in (None, MULTIPLE_CHOICE.name):
        return ()
    if settings.choices is not None:
        return tuple(_present(str(name), table, f"{key}.choices", file) for name in as_list(settings.choices))
    others = table.drop_columns([name for name in table.column_names if name in named_columns(settings)])
    usual = _usual(others.select([n for n in others.column_names if is_choices(others[n].type)]), CHOICES, set())
    names = others.column_names if settings.kind else [n for n in others.column_names if is_text(others[n].type)]
    found = (usual,) if usual is not None else tuple(numbered(names))
    wanted = settings.kind is not None or (head is not None and head.architecture == MULTIPLE_CHOICE.architecture)
    label = settings.label if settings.label is not None else _usual(others, ANSWERS, {*found})
    asked = any(is_text(table[n].type) for n in table.column_names if n not in (*found, label))
    if found and (wanted or (asked and label in table.column_names and fits(table, found, str(label)))):
        return found
    if wanted:
        raise ConfigError(
            f"{key}.choices: got nothing, and no column of {file} is named as choices; must be a column of lists, or "
            f"several columns, of {', '.join(table.column_names)}; set {key}.choices=COLUMN or '{key}.choices=[A,B]'"
        )
    return ()


def about_rows(name: str) -> bool:
    """Whether a column is most likely about a row, such as its id."""
    return _ASIDE.fullmatch(name) is not None


def named_columns(settings: config.Task) -> set[str | None]:
    """The columns that the settings name, and perhaps None."""
    texts = (settings.text, settings.text_pair, settings.soft_label)
    return {*texts, *map(str, as_list(settings.label)), *map(str, as_list(settings.choices))}


def _with_choices(settings: config.Task, table: pa.Table, choices: tuple[str, ...], key: str, file: str) -> Columns:
    if len(choices) == 1 and not is_choices(table[choices[0]].type):
        raise DataError(
            f"{file}: got {table[choices[0]].type} in column {choices[0]}; must be a list of texts, or name a column "
            f"for each choice; set '{key}.choices=[A,B]'"
        )
    others = table.drop_columns(list(choices))
    usual = _usual(others, ANSWERS, {settings.text, settings.text_pair})
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


def choice_columns(
    settings: config.Task, table: pa.Table, key: str, file: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(text columns, columns of the choices) of a file that may have no labels. Raises ConfigError where none is
    likely."""
    sample = table.slice(0, SAMPLE)
    choices = _choices(replace(settings, kind=MULTIPLE_CHOICE.name), sample, None, key, file)
    others = sample.drop_columns(list(choices))
    usual = _usual(others, ANSWERS, {settings.text, settings.text_pair})
    return _question(settings, others, () if usual is None else (usual,), key, file), choices


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
        return *choice_columns(settings, table, key, file), not stated
    tokens = architecture == TOKEN_CLASSIFICATION.architecture and settings.text is None
    if tokens and (words := _words(settings, table)) is not None:
        return (words,), (), not stated
    others = table.select([name for name in table.column_names if name not in as_list(settings.label)])
    return text_columns(settings, others, key, file), (), not stated


def _words(settings: config.Task, table: pa.Table) -> str | None:
    """The column with a list of words for each text; None without a likely one."""
    lists = [name for name in table.column_names if is_words(table[name].type)]
    lists = [name for name in lists if name.lower() not in {*LABELS, *TAGS} and name != settings.label]
    return _usual(table.select(lists), WORDS, set()) or (lists[0] if len(lists) == 1 else None)


def text_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The text columns as from `columns_of`, of a file that may have no labels."""
    usual = _usual(table, LABELS, {settings.text, settings.text_pair})
    return _text(settings, table.slice(0, SAMPLE), () if usual is None else (usual,), key, file)


def label_columns(settings: config.Task, table: pa.Table, key: str, file: str) -> tuple[str, ...]:
    """The label column, or several columns of 0 and 1. Raises ConfigError if it is not set and no column is likely."""
    if settings.label is not None:
        return tuple(_present(str(name), table, f"{key}.label", file) for name in as_list(settings.label))
    text = {settings.text, settings.text_pair}
    lists = [name for name in table.column_names if is_list(table[name].type)]
    usual = _usual(table, LABELS, text) or _usual(table.select(lists), TAGS, text)
    if usual is not None:
        return (_only(usual, table, f"{key}.label", file),)
    others = [name for name in table.column_names if name not in text and not _ASIDE.fullmatch(name)]
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
        chosen = [_present(name, table, f"{key}.text{'_pair' * n}", file) for n, name in enumerate(names)]
        return tuple(chosen)
    check_triplets(table, label, file)
    texts = [name for name in table.column_names if name not in label and is_text(table[name].type)]
    if len(label) == 1 and (words := _word_list(table, label[0], file)) is not None:
        return (words,)
    named = table.select(texts)
    if (pair := pair_of(named, table.select(list(label)), about_rows)) is not None:
        return pair
    usual = _usual(named, TEXTS, set())
    if usual is not None:
        return (_only(usual, table, f"{key}.text", file),)
    if not texts:
        raise ConfigError(
            f"{key}.text: got nothing, and no column of {file} but the label is text; must be one of "
            f"{', '.join(table.column_names)}; set {key}.text=COLUMN"
        )
    likely = [name for name in texts if not _ASIDE.fullmatch(name)]
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
    lists = [name for name in table.column_names if name != label and is_words(table[name].type)]
    sizes = pc.list_value_length(table[label])
    # Most rows decide, because a row with another number of words is refused later.
    alike = [name for name in lists if _share(pc.equal(pc.list_value_length(table[name]), sizes)) > 0.5]
    check_lists(alike, label, table, file)
    return _usual(table.select(alike), WORD_LISTS, set()) or (alike[0] if len(alike) == 1 else None)


def _share(flags: pa.ChunkedArray) -> float:
    return pc.mean(flags).as_py() or 0.0


def _present(name: str, table: pa.Table, key: str, file: str) -> str:
    if name not in table.column_names:
        same = [each for each in table.column_names if normalize("NFC", each) == normalize("NFC", name)]
        if len(same) == 1:  # the same letters, composed otherwise
            return same[0]
        raise ConfigError(
            f"{key}: got {name}; must be a column of {file}, which has {', '.join(table.column_names)}; correct it"
        )
    return name


def _only(name: str, table: pa.Table, key: str, file: str) -> str:
    """The name of a column. Raises ConfigError if another differs from it only by its case."""
    twins = [other for other in table.column_names if other.lower() == name.lower()]
    if len(twins) > 1:
        raise ConfigError(
            f"{key}: got nothing, and {file} has the columns {' and '.join(twins)}; must be one of them; set "
            f"{' or '.join(setting(key, twin) for twin in twins)}"
        )
    return name


def _usual(table: pa.Table, names: Sequence[str], without: set[str | None]) -> str | None:
    """The column with the first of these names, in any case; None without such a column."""
    lower = {name.lower(): name for name in table.column_names if name not in without}
    return next((lower[name] for name in names if name in lower), None)
