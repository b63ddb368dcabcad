"""Settings of the corpus, the tasks and their limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distill.config.allowed import at_least, members, one_of


class Texts:
    """A text, or texts in a list or a mapping. Such a setting has the type `Any`, because it may have several forms."""


TEXTS = {Texts: True}
"""Metadata of a setting that holds `Texts`."""


@dataclass
class Corpus:
    kind: str = field(
        default="docstrings",
        metadata=one_of("docstrings", "parquet", "text", "hub", advice="choose with corpus=NAME"),
    )
    """docstrings (of installed Python packages), parquet, text (one document per line) or hub."""
    path: str | None = None
    """File or folder when kind is parquet or text. Parquet files need a `text` column."""
    name: list[str] = field(default_factory=list)
    """Data sets on the hub when kind is hub, as `name` or `name/config`."""
    max_length: int = field(default=128, metadata=at_least(16, "128 is the default"))
    """Maximum tokens in a training sequence, special tokens included."""


@dataclass
class Task:
    """One task: its files, columns, kind and metrics. Settings that are null are inferred from the files."""

    train: Any = field(default=None, metadata=TEXTS)
    """File with the training rows: CSV, TSV, JSON Lines, parquet or Arrow; a pattern such as data/*.csv, a URL, or a
    list. Also a folder of BEIR or MTEB (corpus, queries, qrels) or of Dataset.save_to_disk, with its splits."""
    validation: Any = field(default=None, metadata=TEXTS)
    """File with the rows on which scores are reported or, with `test`, choices are made. Several splits are a mapping
    from their names to files. When null, and without `test`, a fifth of the labelled rows of `train` (at most
    10,000) is set aside, by a hash of the text."""
    test: Any = field(default=None, metadata=TEXTS)
    """File with the rows on which scores are reported in place of the rows of `validation`."""
    development: Any = field(default=None, metadata=TEXTS)
    """File with the rows on which choices are made. When null, the rows of `validation` if there is a `test`, else a
    tenth of the labelled rows of `train` (at most 2,000), by a hash of the text, on which no model is trained."""
    hub: str | None = None
    """Data set on the hub, as `name` or `name/config`, in place of files."""
    revision: str | None = None
    """Revision of the data set on the hub; the newest when null."""
    docstrings: bool = False
    """Whether rows are generated from the docstrings of installed packages."""
    kind: str | None = None
    """classification, multi_label (any number of labels for a text), regression (a number), reranking (a score for a
    query, the text, and a document, the second text), token_classification (a tag for each word, or spans),
    multiple_choice (one of several answers to a question), question_answering (the part of a context, the second text,
    that answers a question, the text), embedding (vectors of two texts and their similarity), or retrieval (vectors of
    a query and a document)."""
    text: str | None = None
    """Column of the text, or of the first text of a pair. For token_classification also lists of words."""
    text_pair: str | None = None
    """Column of the second text of a pair. For multiple_choice, of a text that each choice follows. For
    question_answering, of the context."""
    prompts: list[str] | None = None
    """For embedding and retrieval, what is put before the first text and before the second, e.g. ["query: ", "passage:
    "]. When null, those in the teacher's settings: for queries and documents in retrieval, the default one in
    embedding."""
    choices: Any = field(default=None, metadata=TEXTS)
    """For multiple_choice, column with the list of choices of each row, or a list of columns with one each."""
    label: Any = field(default=None, metadata=TEXTS)
    """Column of the label. For multi_label also a list of columns that are 0 or 1. For token_classification lists of
    tags or of spans. For multiple_choice the number, letter or text of the right choice. For
    question_answering the texts of the answers, or SQuAD's objects with text and answer_start."""
    labels: list[str] | None = None
    """Names of the labels in the order of the model's outputs. When null, the names that the teacher has, else the
    names in the files, sorted."""
    soft_label: str | None = None
    """Column of `train` with soft labels, which stand in for the teacher's outputs: for classification and multi_label
    the probability of each label, as a list in the order of `labels` or by name; for token_classification a list of
    these, one for each word; for multiple_choice a list of the probabilities of the choices; for question_answering a
    list of spans with start, end and score, where null as start and end is no answer; for regression and reranking a
    number, as the model should output it; for embedding and retrieval the vectors of both texts, or the vector of a
    text that stands alone. Rows and words without one are compared with the teacher."""
    class_weight: Any = field(default=None, metadata=TEXTS)
    """Weights of the labels in terms that compare with labels, for classification, token_classification and
    multi_label: balanced, or a mapping from labels to weights, e.g. {unsafe: 10}, where other labels have the weight 1.
    Balanced classes weigh in inverse proportion to their rows or words; for multi_label, the rows with a label weigh as
    much as those without it. When null, all rows weigh the same."""
    separator: str | None = None
    """Character between the columns of a CSV file. When null, a comma, or the separator that the header has instead."""
    metrics: list[str] | None = None
    """Metrics, whose mean is the task's score: accuracy, f1 (of class 1), f1_macro, f1_micro, matthews, pearson,
    spearman, ndcg_at_10, mrr_at_10, map, recall_at_10, span_f1, exact_match, answer_f1. When null, the usual metrics of
    the kind."""
    range: list[float] | None = None
    """Lowest and highest label of a regression. When null, the lowest and highest of the training rows."""
    threshold: float | None = None
    """Probability above which a model outputs a label of multi_label, or no answer of question_answering; 0.5 when
    null. When null, a question always gets an answer if every training question has one."""
    drop_leaked: bool | None = None
    """Whether training rows are left out that are copies of rows of another split: their texts differ at most in case,
    in spaces beside punctuation, and in full stops at the end. Null means true."""
    rows: dict[str, int] = field(default_factory=dict)
    """Split -> number of rows that it should have, by which a report detects partial data."""
    in_headline: bool = True
    """Whether the task counts in the headline of a report and in choices between models. A task whose scores are mostly
    noise should not: it is scored and reported, and quantization may lose any part of its score."""


@dataclass
class Tasks(Task):
    """The tasks. With `train` or `hub` there is one, and `each` is not used."""

    name: str | None = None
    """Name of the task given by `train` or `hub`; the name of the file or data set when null."""
    each: dict[str, Task] = field(default_factory=dict)
    """Name -> task. A setting that a task leaves null is taken from `tasks`."""
    about: str | None = None
    """A sentence for the report about where these tasks come from."""
    path: str | None = None
    """Folder that the files of each task are relative to. When null, tasks that have `hub` are downloaded."""
    names: list[str] | None = None
    """Names of the tasks to use; all tasks when null."""
    max_length: int = field(default=128, metadata=at_least(8, "128 is the default"))
    """Maximum tokens in an example, special tokens included. Longer examples are truncated; for question_answering
    and token_classification they are read in windows of this length, of which consecutive ones share a third."""


TRANSFER_SOURCES = ("files", "tasks", "corpus", "pairs", "spans", "edits")
"""Sources of rows without labels. Those that may run out come first."""


@dataclass
class Transfer:
    """Rows without labels that a teacher labels, for stages with `transfer`."""

    times: float = field(default=0.0, metadata=at_least(0, "0 makes no rows; 5 is the default"))
    """Number of rows, as a multiple of the training rows of each task; 0 makes none. A stage uses no more of them than
    its steps process."""
    most: int = field(default=20_000, metadata=at_least(1, "20000 is the default"))
    """Maximum rows of each task."""
    passes: float | None = field(
        default=None, metadata=at_least(0, "3 is the default, 1 with transfer.files", words=">= 0 or null")
    )
    """Number of passes over the training rows that the set never replaces: it takes only the steps beyond them. When
    null: 3, or 1 with `files`. A stage of no more passes is trained on the training rows alone."""
    sources: dict[str, float] = field(
        default_factory=dict, metadata=members({"*": at_least(0, "it is the source's share of the rows")})
    )
    """Source -> its share of the rows: files, tasks (rows of the run's other tasks, without their labels), corpus
    (sentences of the corpus that share rare words with the task's texts), pairs (the task's first texts, each with
    another second text or other choices), spans (the task's rows with their spans exchanged for others of the same
    type) and edits (the task's rows with words replaced, dropped and swapped). A source without rows leaves its share
    to the others."""
    files: Any = field(default=None, metadata=TEXTS)
    """Your own rows without labels: CSV, TSV, JSON Lines or parquet with the task's text columns; a pattern, a URL, or
    a list. Of several tasks, the tasks that have these columns use them."""
    masked_lm: str | None = None
    """A masked language model, whose predictions replace words in `edits`: a folder, or a name on the hub, with files
    that have its head. A word of several of its tokens is replaced by a similar one if it is one token of the teacher,
    and kept otherwise. When null, each is replaced by a similar one, or by any word of the task."""


_LIMIT = at_least(1, "null sets no limit")


@dataclass
class Limit:
    """Caps on data and training, for quick runs."""

    examples: int | None = field(default=None, metadata=_LIMIT)
    """Maximum training examples per task; no maximum when null, here and below."""
    validation: int | None = field(default=None, metadata=_LIMIT)
    """Maximum validation examples per split."""
    documents: int | None = field(default=None, metadata=_LIMIT)
    """Maximum documents of the corpus."""
    steps: int | None = field(default=None, metadata=_LIMIT)
    """Maximum optimizer steps per training stage."""
    repeats: int | None = field(default=None, metadata=_LIMIT)
    """Maximum timing rounds."""
    smoke: bool = False
    """Use few rows and steps, a tiny random teacher unless one is in a folder, and small stand-ins for every download.
    The numbers of such a run mean nothing."""
