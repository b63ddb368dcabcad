"""Usual names of columns, and how a column is found by its name. Without torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from unicodedata import normalize

import pyarrow as pa

from distill import config
from distill.data.task_types.task_type import as_list
from distill.data.text_pairs import READING
from distill.errors import ConfigError
from distill.models.families import record
from distill.runtime.quoting import setting

LABELS = (
    "label", "labels", "gold_label", "target", "class", "category", "intent", "sentiment", "topic", "emotion", "score",
    "similarity", "rating", "stars", "relevance", "relevant", "y",
)  # fmt: skip
"""Usual names of label columns."""

CHOICES = ("choices", "options", "endings", "answers", "alternatives", "candidates")
"""Usual names of columns with a list of choices for each row."""

ANSWERS = (
    "label", "answer", "answerkey", "answer_key", "answer_idx", "answer_index", "correct", "correct_answer", "gold",
    "target", "labels", "y",
)  # fmt: skip
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

TAGS = ("ner_tags", "ner_tag", "ner", "tags", "tag", "spans", "entities", "pos_tags", "cats", "accept")
"""Usual names of columns with a list of tags or of spans for each text, or of labels as spaCy and Prodigy name it."""

WORD_LISTS = ("tokens", "words")
"""Usual names of columns with a list of words for each text."""

WORDS = (*WORD_LISTS, "token", "word")
"""Usual names of a column with words, of which each may have a row of its own."""

_OF_WORDS = re.compile(
    r"(.*[_ -])?(u?pos|xpos|chunk|tags?|lemmas?|feats|deps?|deprels?|misc|langs?)([_ -]tags?)?", re.IGNORECASE
)
"""Names of columns with lists that have something about each word, such as its part of speech, and not the words."""

LABELS_OF = {record.TOKENS: (*LABELS, *TAGS), record.CHOICES: ANSWERS, record.ANSWERS: FOUND}
"""Architecture -> usual names of the label column, if they are not `LABELS`."""

TEXTS = (
    "text", "sentence", "content", "body", "message", "review", "comment", "document", "utterance", "utt",
    "description", "abstract", "article", "question", "query", "title",
)  # fmt: skip
"""Usual names of text columns."""

USUAL = frozenset((*LABELS, *TEXTS, *CHOICES, *ANSWERS, *TAGS, *FOUND, *READING, *WORD_LISTS))
"""Usual names of columns."""

SAMPLE = 10_000
"""Rows by which columns and kind are chosen."""

_ASIDE = re.compile(
    r"unnamed: ?[\d.]+|index|idx|no|nr|(.*[_ -])?(id|ids|uuid|guid|url|hash)|(?-i:[a-z]+I[dD])|.*_(at|time|date)|date|"
    r"timestamp|split|fold|subset|partition|annotators?|lead_time|_[a-z_]+|__index_level_\d+__|file_?names?",
    re.IGNORECASE,
)
"""Names of columns about a row, which are neither its text nor its label unless settings name them."""


def about_rows(name: str) -> bool:
    """Whether a column is most likely about a row, such as its id."""
    return _ASIDE.fullmatch(name) is not None


def about_words(name: str) -> bool:
    """Whether a column of lists most likely has something about each word of a text, and not the words."""
    return _OF_WORDS.fullmatch(name) is not None


def named_columns(settings: config.Task) -> set[str | None]:
    """The columns that the settings name, and perhaps None."""
    texts = (settings.text, settings.text_pair, settings.soft_label)
    return {*texts, *map(str, as_list(settings.label)), *map(str, as_list(settings.choices))}


def present(name: str, table: pa.Table, key: str, file: str) -> str:
    """The name of a column as a table has it. Raises ConfigError if it has none."""
    if name not in table.column_names:
        same = [each for each in table.column_names if normalize("NFC", each) == normalize("NFC", name)]
        if len(same) == 1:  # the same letters, composed otherwise
            return same[0]
        raise ConfigError(
            f"{key}: got {name}; must be a column of {file}, which has {', '.join(table.column_names)}; correct it"
        )
    return name


def only_one(name: str, table: pa.Table, key: str, file: str) -> str:
    """The name of a column. Raises ConfigError if another differs from it only by its case."""
    twins = [other for other in table.column_names if other.lower() == name.lower()]
    if len(twins) > 1:
        raise ConfigError(
            f"{key}: got nothing, and {file} has the columns {' and '.join(twins)}; must be one of them; set "
            f"{' or '.join(setting(key, twin) for twin in twins)}"
        )
    return name


def usual_name(table: pa.Table, names: Sequence[str], without: Collection[str | None] = ()) -> str | None:
    """The column with the first of these names, in any case; None without such a column."""
    lower = {name.lower(): name for name in table.column_names if name not in without}
    return next((lower[name] for name in names if name in lower), None)
