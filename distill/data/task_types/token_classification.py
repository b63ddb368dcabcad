"""Token classification: a tag for each word of a text, by which spans are found, as in named-entity recognition.

A file has one list of words and one of tags for each text, or texts with spans of characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types import soft_written
from distill.data.task_types.layout import WORDS, Layout, Making, Parts
from distill.data.task_types.offsets import plain
from distill.data.task_types.soft_parts import fit_words, of_words
from distill.data.task_types.spans import (
    NAMELESS,
    OUTSIDE,
    PREFIXES,
    TAGGED,
    codes,
    matched,
    scheme_of,
    spans,
    types_of,
)
from distill.data.task_types.tag_lists import check_read, list_of, lists_of, names_of, sizes_of, tags_of, with_outside
from distill.data.task_types.tag_order import UNTAGGED, check_tags, unbegun
from distill.data.task_types.task_type import (
    MISSING,
    Columns,
    Given,
    Stated,
    TaskType,
    Where,
    Words,
    divided,
    flat,
    is_list,
    is_text,
    one_array,
    probabilities,
    total_variation,
)
from distill.data.task_types.words import divide, words_of
from distill.errors import DataError
from distill.models.families.record import TOKENS
from distill.runtime.quoting import setting


def tags_of_spans(text: str, given: Sequence[dict[str, Any]], where: str) -> list[str]:
    """The tag of each word, in the scheme BIO, for spans of characters.

    Raises:
        DataError: for a span that does not consist of whole words.
    """
    words = words_of(text)
    tags = [OUTSIDE] * len(words)
    starts, ends = ({span[n]: number for number, span in enumerate(words)} for n in (0, 1))
    for each in given:
        span = plain(each, where)
        start, end, kind = span["start"], span["end"], span["label"]
        if not 0 <= start < end <= len(text):
            raise DataError(
                f"{where}: got a span from {start} to {end}; must lie in the text's {len(text)} characters; correct it"
            )
        if start not in starts or end not in ends:
            raise DataError(
                f"{where}: got the span {text[start:end]!r}, from {start} to {end}; must begin and end with a word; "
                "correct it"
            )
        first, last = starts[start], ends[end]
        if any(tag != OUTSIDE for tag in tags[first : last + 1]):
            raise DataError(f"{where}: got spans that overlap at {text[start:end]!r}; must not overlap; remove one")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tags


def _prepare(rows: pa.Table, columns: Columns, where: Where) -> pa.Table:
    """Texts, the tags of their words (`list<dictionary>`, nulls for a text without tags), and the places of words."""
    text, label = columns.text[0], columns.label[0]
    if is_words(rows[text].type):
        return _of_words(rows, text, label, where)
    return _of_spans(rows, text, label, where)


def is_words(data_type: pa.DataType) -> bool:
    """Whether a column has a list of words for each text."""
    return is_list(data_type) and is_text(data_type.value_type)


def is_spans(data_type: pa.DataType) -> bool:
    """Whether a column has a list of spans for each text."""
    return is_list(data_type) and pa.types.is_struct(data_type.value_type)


def _of_words(rows: pa.Table, text: str, label: str, where: Where) -> pa.Table:
    words, given = list_of(rows[text]).cast(pa.list_(pa.string())), rows[label]
    if is_spans(given.type):
        raise DataError(
            f"{where(0)}: got {given.type} in {label}; must be a list of tags, one for each word in {text}; correct "
            "the file, or name another column"
        )
    tags = list_of(given)
    sizes, tagged = sizes_of(words), np.asarray(tags.is_valid())
    wrong = np.flatnonzero(tagged & (sizes_of(tags) != sizes))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}: got {sizes[row]} words in {text} and {sizes_of(tags)[row]} tags in {label}; must be a "
            "tag for each word; correct the row"
        )
    flat_words = words.flatten()
    ends = np.asarray(pc.fill_null(pc.utf8_length(flat_words), 0)).astype(np.int64)
    group = np.repeat(np.arange(len(words)), sizes)
    # Ends in the joined text: words of earlier texts and their spaces are subtracted.
    total = np.cumsum(ends + 1) - 1
    first = np.cumsum(sizes) - sizes
    before = np.r_[0, total + 1][first] if len(total) else np.zeros(len(first), np.int64)
    ends, starts = total - before[group], total - before[group] - ends
    trimmed = pc.utf8_trim_whitespace(pc.cast(tags.flatten(), pa.string()))
    none = pc.or_(pc.equal(trimmed, ""), pc.equal(trimmed, UNTAGGED))
    known = pc.if_else(none, pa.scalar(None, pa.string()), trimmed).dictionary_encode()
    check_tags(known, group[np.repeat(tagged, sizes)], label, where)
    numbers = np.full(len(group), -1, np.int64)
    numbers[np.repeat(tagged, sizes)] = np.asarray(pc.fill_null(known.indices, -1))
    return pa.table(
        {
            text: pc.binary_join(words, " "),
            label: tags_of(numbers, sizes, known.dictionary),
            WORDS: lists_of(np.stack([starts, ends], axis=1).ravel(), 2 * sizes),
        }
    )


def _of_spans(rows: pa.Table, text: str, label: str, where: Where) -> pa.Table:
    if not is_text(rows[text].type):
        raise DataError(f"{where(0)}: got {rows[text].type} in {text}; must be text, or a list of words; convert it")
    given = rows[label].type
    if not is_spans(given) and not pa.types.is_null(given.value_type):  # null if no row of the file has a span
        raise DataError(
            f"{where(0)}: got {given} in {label}; must be a list of spans with start, end and label, "
            f"because {text} is not a list of words; correct the file, or name other columns"
        )
    names: dict[str, int] = {}
    numbers, places, sizes = list[int](), list[int](), list[int]()
    for row, (value, marked) in enumerate(zip(rows[text].to_pylist(), rows[label].to_pylist(), strict=True)):
        words = words_of(value or "")
        tags = [None] * len(words) if marked is None else tags_of_spans(value or "", marked, where(row))
        numbers += [-1 if tag is None else names.setdefault(tag, len(names)) for tag in tags]
        places += [place for word in words for place in word]
        sizes.append(len(words))
    types = types_of([*names])
    parted = [PREFIXES.part(each) for each in types if PREFIXES.pattern.fullmatch(each)]
    if len(parted) == len(types) and any(("B", kind) in parted and ("I", kind) in parted for _, kind in parted):
        raise DataError(
            f"{where(0)}: got spans of {', '.join(types[:8])} in {label}; must be a span for each entity, with a type "
            "without a prefix; join the words of each, as pipeline(..., aggregation_strategy='simple') does"
        )
    counted = np.array(sizes, np.int64)
    tags = tags_of(np.array(numbers, np.int64), counted, pa.array(list(names), pa.string()))
    return pa.table({text: rows[text], label: tags, WORDS: lists_of(np.array(places, np.int64), 2 * counted)})


def _read(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """The columns, and which scheme their tags are in if it is not the usual one."""
    columns, remarks = with_outside(columns, stated)
    check_read(columns, stated)
    every = sorted(set().union(*map(names_of, columns.values())) - {OUTSIDE})
    scheme = scheme_of([*every, *stated.known])
    if scheme is not PREFIXES and every:
        prefix, kind = scheme.part(every[0])
        told = "es of a single type" if kind == NAMELESS else f" and type: {every[0]} is {prefix}-{kind}"
        remarks.append(f"the tags in {stated.column} are read as prefix{told}")
    for split, column in columns.items():
        lists = list_of(column)
        tags = lists.flatten()
        group = np.repeat(np.arange(len(lists)), sizes_of(lists))
        given = np.asarray(tags.is_valid())
        numbers = np.asarray(pc.fill_null(tags.indices, 0))[given]
        remark, first = unbegun(tags.dictionary.to_pylist(), numbers, group[given], stated.column, split)
        remarks += remark
        if first:
            break
    return columns, remarks


def _order(names: set[str]) -> tuple[str, ...]:
    """`O` first, then the other tags by type. Where tags have prefixes, each type has a tag that begins a span and one
    that continues it, because other texts may need it."""
    tags = names - {OUTSIDE}
    if all(re.fullmatch(r"-?\d+", tag) for tag in names):
        raise DataError(
            f"tasks.labels: got the numbers {', '.join(sorted(names, key=int)[:20])} as tags; must have names; list "
            f"these in the order of the numbers; set {setting('tasks.labels', ['O', 'B-NAME', 'I-NAME'])}"
        )
    scheme = scheme_of(sorted(names))
    prefixed = {tag: prefix for tag in tags if (prefix := scheme.part(tag)[0]) and tag != scheme.part(tag)[1]}
    if set(prefixed.values()) <= {"B", "I"}:
        tags |= {scheme.tag(prefix, scheme.part(tag)[1]) for tag in prefixed for prefix in "BI"}
    return (OUTSIDE, *sorted(tags, key=lambda tag: (scheme.part(tag)[1], "BSUWIMEL".find(scheme.part(tag)[0]))))


def _encode(column: pa.ChunkedArray, labels: Sequence[str], where: Where, key: str) -> np.ndarray:
    lists = one_array(column)
    sizes, tags = sizes_of(lists), lists.flatten()
    given, names = np.asarray(pc.fill_null(tags.indices, -1)), tags.dictionary.to_pylist()
    numbers = {label: number for number, label in enumerate(labels)}
    for number, name in enumerate(names):
        if name not in numbers and (words := np.flatnonzero(given == number)).size:
            row = int(np.searchsorted(np.cumsum(sizes), words[0], side="right"))
            raise DataError(
                f"{where(row)}: got tag {name!r}; must be one of {', '.join(labels)}; correct the row, or list all "
                f"tags in {key.rpartition('.')[0]}.labels"
            )
    words = np.array([*(numbers.get(name, MISSING) for name in names), MISSING], np.int64)[given]
    return divided(words, sizes)


def _truth(targets: np.ndarray, texts: Sequence[Sequence[str]], labels: Sequence[str]) -> np.ndarray:
    """[words] of `TAGGED`. Words without a tag are outside of spans."""
    words, numbers = np.empty(sum(map(len, targets)), TAGGED), flat(targets)
    words["label"] = np.where(numbers == MISSING, -1, codes(labels)[np.maximum(numbers, 0)])
    words["group"] = np.repeat(np.arange(len(targets)), [len(part) for part in targets])
    return words


def _decode(outputs: np.ndarray, labels: Sequence[str], threshold: float) -> np.ndarray:
    """Codes of tags. A word without a token has outputs of 0 and is outside of spans."""
    return np.where((outputs == 0).all(axis=1), -1, codes(labels)[outputs.argmax(axis=1)])


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, words: Sequence[Words]
) -> list[dict[str, Any]]:
    """The spans of each text, with the mean probability of their words' tags."""
    best = probabilities(outputs).max(axis=1, initial=0)
    places = [place for _, part in words for place in part]
    group = np.repeat(np.arange(len(words)), [len(part) for _, part in words])
    answers: list[dict[str, Any]] = [{"spans": []} for _ in words]
    types = types_of(labels)
    for first, last, kind in spans(_decode(outputs, labels, threshold), group).tolist():
        text, start, end = words[group[first]][0], places[first][0], places[last][1]
        score = float(best[first : last + 1].mean())
        answers[group[first]]["spans"].append(
            {"text": text[start:end], "label": types[kind], "start": start, "end": end, "score": score}
        )
    return answers


def _brief(answer: dict[str, Any]) -> str:
    return ", ".join(f"{span['text']} ({span['label']})" for span in answer["spans"]) or "no span"


def _shown(target: np.ndarray, labels: Sequence[str], parts: Parts) -> str:
    return _brief(_answer(np.eye(len(labels))[target], labels, 0.5, [parts])[0])


def _nothing(targets: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    spans = [number for number, label in enumerate(labels) if label != OUTSIDE]
    return np.array([not np.isin(words, spans).any() for words in targets], np.bool_)


def _recalled(predicted: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, np.ndarray]:
    """Type -> [texts, 2] its spans of each text in prediction and truth, and in the truth; for types that occur."""
    types, (texts, text) = types_of(labels), np.unique(truth["group"], return_inverse=True)
    both, _, true = matched(predicted, truth["label"], truth["group"])
    columns = np.zeros((len(texts), len(types), 2), np.int64)
    for column, part in enumerate((both, true)):
        np.add.at(columns[:, :, column], (text[part[:, 0]], part[:, 2]), 1)
    return {types[n]: columns[:, n] for n in np.flatnonzero(columns[:, :, 1].any(axis=0))}


def _row_parts(texts: Sequence[str], offsets: Sequence[Sequence[int]]) -> list[Parts]:
    """The words of each row, if its file divides texts into other words than `words_of`; else its text.

    offsets: first character and end of each word of each text, flat.
    """
    places = [list(zip(row[::2], row[1::2], strict=True)) for row in offsets]
    if all(row == words_of(text) for text, row in zip(texts, places, strict=True)):
        return [(text,) for text in texts]
    return [(tuple(text[a:b] for a, b in row),) for text, row in zip(texts, places, strict=True)]


def _row_columns(names: Sequence[str], rows: Sequence[Parts]) -> dict[str, list[Any]]:
    """Texts, places of words, and a missing tag for each word, of rows as from `_row_parts`."""
    words = [divide(row[0]) for row in rows]
    return {
        names[0]: [text for text, _ in words],
        WORDS: [[place for word in places for place in word] for _, places in words],
        "label": [[MISSING] * len(places) for _, places in words],
    }


def _row_part(text: str, own: Sequence[Parts]) -> Any:
    """The words of a text if the rows of the task are in words, else the text."""
    in_words = bool(own) and isinstance(own[0][0], tuple)
    return tuple(text[first:end] for first, end in words_of(text)) if in_words else text


def _tagged(rows: Sequence[Parts], targets: np.ndarray, labels: Sequence[str]) -> list[list[tuple[int, int, int]]]:
    """Start, end and type of the spans of each row: in words of rows in words, else in characters.

    targets: [rows] arrays of the numbers of the words' tags.
    """
    sizes, numbers = [len(row) for row in targets], flat(targets)
    group, starts = np.repeat(np.arange(len(rows)), sizes), np.cumsum([0, *sizes])
    tags = np.where(numbers == MISSING, -1, codes(labels)[np.maximum(numbers, 0)])
    found: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    for first, last, kind in spans(tags, group).tolist():
        row = int(group[first])
        (text,), start, end = rows[row], int(first - starts[row]), int(last - starts[row])
        places = words_of(text) if isinstance(text, str) else [(number, number + 1) for number in range(sizes[row])]
        found[row].append((places[start][0], places[end][1], kind))
    return found


TOKEN_CLASSIFICATION = TaskType(
    name="token_classification",
    summary="finds spans with labels in a text",
    problem="single_label_classification",
    metrics=("span_f1",),
    all_metrics=("span_f1", "accuracy"),
    accepts=lambda given: is_list(given) and (is_spans(given) or not pa.types.is_nested(given.value_type)),
    form="a list of tags for each word or of spans with start, end and label",
    encode=_encode,
    decode=_decode,
    answer=_answer,
    difference=total_variation,
    measure="of the probabilities of a word's tags, 0 to 1; the largest of the words of the text",
    brief=_brief,
    same=lambda predicted, other: predicted == (other if other.dtype.names is None else other["label"]),
    shown=_shown,
    loss_targets=flat,
    truth=_truth,
    names=names_of,
    order=_order,
    recalled=_recalled,
    settings=("labels", "soft_label", "class_weight"),
    soft=of_words,
    soft_fits=fit_words,
    soft_column=soft_written.words,
    layout=Layout(
        TOKENS,
        columns=(1,),
        asked=1,
        hidden=(WORDS,),
        divide=divide,
        sequences=lambda parts: [parts[:1]],
        making=Making(("files", "tasks", "corpus", "spans", "edits"), _row_parts, _row_columns, _row_part, _tagged),
    ),
    pipeline="token-classification",
    prepare=_prepare,
    read=_read,
    nothing=_nothing,
    nothing_is="no span",
)
