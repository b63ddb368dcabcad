"""Lists of tags as Arrow stores them: a dictionary of names, and a number for each word. Tags that stand for `O`, and
tags that would be types of spans by mistake. Without torch."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.spans import OUTSIDE, PREFIXES, half_read, scheme_of
from distill.data.task_types.task_type import Given, Stated, distinct, one_array
from distill.runtime.quoting import setting

_FOR_OUTSIDE = ("0", "o", "_")
"""Tags that stand for `O` where all other tags have prefixes. Beside one of them, or `O`, a hyphen stands for a word
without a tag; alone, it stands for `O` too."""
_WITHOUT_TYPE = ("none", "null", "outside", "no_entity", "0", "-", "_")
"""Tags, in any case, that stand for `O` where no tag is `O`, and none has a prefix."""
_MOST = 0.5
"""A tag of more than this share of the words may stand for `O`, where no tag does."""


def list_of(column: pa.ChunkedArray) -> pa.Array:
    """A column of lists as one array."""
    values = one_array(column)
    return values.cast(pa.list_(values.type.value_type))


def sizes_of(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(lists.value_lengths(), 0)).astype(np.int64)


def lists_of(values: np.ndarray | pa.Array, sizes: np.ndarray) -> pa.Array:
    return pa.ListArray.from_arrays(np.r_[0, np.cumsum(sizes)].astype(np.int32), pa.array(values))


def tags_of(numbers: np.ndarray, sizes: np.ndarray, names: pa.Array) -> pa.Array:
    """Lists of tags, of their numbers [words] in `names`; null for -1."""
    indices = pa.array(numbers.astype(np.int32), mask=numbers < 0)
    return lists_of(pa.DictionaryArray.from_arrays(indices, names), sizes)


def with_nulls(made: pa.Array, lists: pa.Array) -> pa.Array:
    """Lists, null where others of the same sizes are."""
    return pc.if_else(lists.is_valid(), made, pa.scalar(None, made.type)) if lists.null_count else made


def names_of(column: pa.ChunkedArray) -> set[str]:
    return {*distinct(column.combine_chunks().flatten())}


def with_outside(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """The columns with `O` in place of another tag for it, and without a tag where a hyphen stands for none."""
    every = set().union(*map(names_of, columns.values()))
    wrong, missing = every & {*_FOR_OUTSIDE} - {*stated.known}, every & {"-"} - {*stated.known}
    others = every - wrong - missing - {OUTSIDE}
    wrong, missing = (wrong, missing) if OUTSIDE in every or wrong else (missing, set())
    scheme = scheme_of(sorted(others))
    if not others or not all(scheme.pattern.fullmatch(tag) for tag in others):
        named = {tag for tag in every if tag.lower() in _WITHOUT_TYPE} - {*stated.known}
        plain = OUTSIDE not in every and not any(PREFIXES.pattern.fullmatch(tag) for tag in every)
        plain = plain and not all(re.fullmatch(r"-?\d+", tag) for tag in every)
        wrong, missing = (named if plain and len(named) < len(every) else set()), set()
        if plain and not wrong and not stated.known:
            _check_outside(columns, stated)
    if not wrong and not missing:
        return columns, []
    read, untagged = {}, 0
    for split, column in columns.items():
        lists = list_of(column)
        tags = lists.flatten()
        given = tags.dictionary.to_pylist()
        names = pa.array([OUTSIDE if name in wrong else name for name in given], pa.string())
        numbers = np.asarray(pc.fill_null(tags.indices, -1)).astype(np.int64)
        absent = np.isin(numbers, [number for number, name in enumerate(given) if name in missing])
        numbers[absent] = -1
        untagged += int(absent.sum())
        read[split] = pa.chunked_array([with_nulls(tags_of(numbers, sizes_of(lists), names), lists)])
    remarks = [f"the tag {' or '.join(sorted(wrong))} in {stated.column} is read as {OUTSIDE}, outside of spans"]
    said = f"{untagged:,} words whose tag in {stated.column} is - have no tag, and count as outside of spans in scores"
    return read, remarks * bool(wrong) + [said] * bool(missing)


def _check_outside(columns: Given, stated: Stated) -> None:
    """Raise ConfigError for a tag of most words, where no tag is `O`."""
    tags = Counter[str]()
    for column in columns.values():
        for pair in column.combine_chunks().flatten().drop_null().value_counts().to_pylist():
            tags[pair["values"]] += pair["counts"]
    most, count = tags.most_common(1)[0] if tags else ("", 0)
    if len(tags) > 1 and count > _MOST * tags.total():
        raise stated.ambiguous(
            f"the tag {most!r} for {100 * count / tags.total():.0f}% of the words, and no tag O",
            "it may stand for O, outside of spans, or be a type; write O in its place, or list all tags",
            f"set {setting(f'{stated.key}.labels', sorted(tags))}",
        )


def check_read(columns: Given, stated: Stated) -> None:
    """Raise ConfigError for tags that would be read as types of spans, and seem to be something else."""
    every = set().union(*map(names_of, columns.values())) - {OUTSIDE}
    if not every <= {*stated.known} and (wrong := half_read(sorted(every))):
        others = ", ".join(sorted(every - {*wrong})[:5])
        raise stated.ambiguous(
            f"the tags {', '.join(wrong[:8])}{others and f' beside {others}'}",
            "must be O, or each have a prefix and a type, as B-PER and I-PER",
            "write O or a tag with a prefix in their place",
        )
