"""Five small tasks in the formats of GLUE's, generated from docstrings without manual labels.

- package: which of eight packages a text is from (one text; accuracy)
- corrupted: is a sentence original, or were words swapped, deleted or replaced (one text; Matthews, like CoLA)
- body: does a docstring's body belong to its summary line (pair; F1 and accuracy, like MRPC)
- order: are two sentences in their original order (pair; accuracy, like RTE)
- overlap: what share of their words two texts have in common, from 0 to 5 (pair; Pearson and Spearman, like STS-B)

Train and validation rows come from different source files. Rows depend only on the installed packages, not on the run's
seed, so that runs with different seeds use the same data.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from distill.data import docstring_corpus
from distill.data.docstring_corpus import Document
from distill.errors import DataError

CLASSES = 8
"""Classes of the task `package`: the first eight of distill.data.docstring_corpus.PACKAGES that are installed."""
_LONGEST = 60
"""Maximum number of words in the text of a single-text task."""
_PAIR_LONGEST = 40
"""Maximum number of words in each text of a pair."""

Columns = dict[str, list[Any]]


def labels(task: str) -> list[str] | None:
    """Names of the classes of `package`, which depend on the installed packages; None for any other task."""
    return list(docstring_corpus.versions())[:CLASSES] if task == "package" else None


def rows(task: str, split: str, count: int) -> Columns:
    """Columns of `count` `train` or `validation` rows of a task, labels in `label`, in random order.

    There are fewer rows if there are too few documents, and at most `count` rows that are a multiple of the classes.

    Raises DataError where too few packages are installed.
    """
    train = split == "train"
    documents = [d for d in docstring_corpus.documents() if d.validation != train]
    rng = np.random.default_rng(zlib.crc32(f"{task}/{split}".encode()))
    documents = [documents[i] for i in rng.permutation(len(documents))]
    return _shuffled(_BUILDERS[task](documents, count, rng), rng)


@functools.cache
def sample(count: int) -> tuple[str, ...]:
    """`count` texts of 6 to 30 words from the standard library, which is fast to read."""
    texts = (" ".join(d.paragraphs) for d in docstring_corpus.unique(docstring_corpus.read("python")))
    return tuple(islice((text for text in texts if 6 <= len(text.split()) <= 30), count))


def _package(documents: list[Document], count: int, rng: np.random.Generator) -> Columns:
    """The same number of rows for each package. Texts that contain the name of one of the packages are left out."""
    packages = list(docstring_corpus.versions())[:CLASSES]
    names = re.compile("|".join([*packages, "pytorch", "hugging"]), re.IGNORECASE)
    texts: dict[str, list[str]] = {package: [] for package in packages}
    for document in documents:
        text = " ".join(document.paragraphs)
        if document.package in texts and len(text.split()) >= 8 and not names.search(text):
            texts[document.package].append(_cut(text, _LONGEST))
    each = min(count // CLASSES, *map(len, texts.values()))
    if len(packages) < CLASSES or not each:
        raise DataError(
            f"installed packages: got docstrings of {[p for p in packages if texts[p]]}; must be {CLASSES} "
            "packages installed with their source files; install more of them, or use tasks=glue"
        )
    chosen = [(text, label) for label, p in enumerate(packages) for text in texts[p][:each]]
    return {"text": [text for text, _ in chosen], "label": [label for _, label in chosen]}


def _corrupted(documents: list[Document], count: int, rng: np.random.Generator) -> Columns:
    """Label 1: the original sentence. Label 0: a corrupted one. The labels are as in CoLA."""
    texts = list(islice(_sentences(documents, 7, 25), count))
    labels = [row % 2 for row in range(len(texts))]
    sentences = [
        text if label else _corrupt(text.split(), texts[int(rng.integers(len(texts)))].split(), rng)
        for text, label in zip(texts, labels, strict=True)
    ]
    return {"sentence": sentences, "label": labels}


def _corrupt(words: list[str], other: list[str], rng: np.random.Generator) -> str:
    """Two different edits. The first and the last word stay, so that capital and full stop do not reveal the label."""
    words = words.copy()
    for edit in rng.permutation(3)[:2]:
        i, j = sorted(1 + rng.permutation(len(words) - 2)[:2])
        if edit == 0:
            words[i], words[j] = words[j], words[i]
        elif edit == 1:
            del words[i]
        else:
            words[i] = other[int(rng.integers(1, len(other) - 1))]
    return " ".join(words)


def _body(documents: list[Document], count: int, rng: np.random.Generator) -> Columns:
    """Label 1: the body belongs to the summary. Label 0: it is from another document, of the same package."""
    long = [d for d in documents if len(d.paragraphs) > 1][:count]
    bodies = [_cut(" ".join(d.paragraphs[1:]), _PAIR_LONGEST) for d in long]
    # Every second document gets the body of the next of them; sorting by package makes that one of the same package.
    others = sorted(range(0, len(long), 2), key=lambda row: long[row].package)
    own = bodies.copy()
    for row, source in zip(others, others[1:] + others[:1], strict=True):
        bodies[row] = own[source]
    return {
        "summary": [_cut(d.paragraphs[0], _PAIR_LONGEST) for d in long],
        "body": bodies,
        "label": [row % 2 for row in range(len(long))],
    }


def _order(documents: list[Document], count: int, rng: np.random.Generator) -> Columns:
    """The first two sentences of a document. Label 1: in their original order. Label 0: swapped."""
    pairs = []
    for document in documents:
        pair = [s for paragraph in document.paragraphs for s in docstring_corpus.sentences(paragraph)][:2]
        if len(pair) == 2 and all(4 <= len(s.split()) <= _PAIR_LONGEST for s in pair):
            pairs.append(pair)
    pairs = [pair if row % 2 else pair[::-1] for row, pair in enumerate(pairs[:count])]
    return {
        "sentence1": [pair[0] for pair in pairs],
        "sentence2": [pair[1] for pair in pairs],
        "label": [row % 2 for row in range(len(pairs))],
    }


def _overlap(documents: list[Document], count: int, rng: np.random.Generator) -> Columns:
    """Two texts of three sentences each, of which zero to three are shared, in different orders.

    The label is 5 x (words in the shared sentences) / (words in the longer text).
    """
    pool = _sentences(documents, 5, 10)
    first, second, labels = [], [], []
    for row in range(count):
        shared = row % 4
        drawn = list(islice(pool, 6 - shared))
        if len(drawn) < 6 - shared:
            break
        first.append(_joined(drawn[:3], rng))
        second.append(_joined(drawn[:shared] + drawn[3:], rng))
        longer = max(len(first[-1].split()), len(second[-1].split()))
        labels.append(5 * sum(len(s.split()) for s in drawn[:shared]) / longer)
    return {"text1": first, "text2": second, "label": labels}


_BUILDERS = {
    "package": _package,
    "corrupted": _corrupted,
    "body": _body,
    "order": _order,
    "overlap": _overlap,
}


def _sentences(documents: list[Document], fewest: int, most: int) -> Iterator[str]:
    """Distinct sentences of `fewest` to `most` words, at most one from each document."""
    seen = set()
    for document in documents:
        for sentence in docstring_corpus.sentences(document.paragraphs[0]):
            if fewest <= len(sentence.split()) <= most and sentence not in seen:
                seen.add(sentence)
                yield sentence
                break


def _cut(text: str, words: int) -> str:
    return " ".join(text.split()[:words])


def _joined(parts: list[str], rng: np.random.Generator) -> str:
    return " ".join(parts[i] for i in rng.permutation(len(parts)))


def _shuffled(columns: Columns, rng: np.random.Generator) -> Columns:
    order = rng.permutation(len(columns["label"]))
    return {name: [values[i] for i in order] for name, values in columns.items()}
