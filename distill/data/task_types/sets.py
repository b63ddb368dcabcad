"""Sets of labels as files write them: joined in a text, in lists, or as a 0 or 1 for each label.

A column that could be read in two ways is refused with both readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.task_type import Given, Stated, distinct, is_list, is_text
from distill.data.task_types.written import names, spelled_alike, without_labels
from distill.errors import DataError
from distill.runtime.quoting import setting

COMMAS = ",\n\u3001\uff0c\uff1b\u061b\u060c"
"""Commas, the marks in their place in other scripts, and line breaks in a cell."""
SEPARATORS = f"|;#{COMMAS}"
"""What may separate labels where a row has them in one text, as in `billing|urgent`."""
OTHERS = "/&+~^\u00b7\t "
"""What separates labels only if all parts are also alone in texts, because names have such characters too."""
_CALL = re.compile(r"(c|list|array|frozenset|set|WrappedArray|Index|dict_keys|dict_values)\(")
_MARKS = {"[]": "'\"{,", "{}": "'\":,"}
"""Brackets around a list or an object -> characters of which one is within them."""


def parts(value: str, separator: str | None) -> list[str]:
    """The labels in a text, without empty ones. `separator`: one character, or several that separate alike."""
    found = [value] if separator is None else re.split(f"[{re.escape(separator)}]", value)
    return [part.strip() for part in found if part.strip()]


def joins(values: Iterable[str], separator: str) -> bool:
    """Whether texts combine labels with a separator: some label is also alone in a text, or there are fewer labels than
    combinations of them. Of `#`, which is also part of names such as C#, only the first, and no label may be empty."""
    values = {*values}
    joined = {value for value in values if separator in value}
    alone = values - joined
    found = [parts(value, separator) for value in joined]
    single = {part for each in found for part in each}
    if separator == "#":
        whole_parts = all(len(each) == value.count("#") + 1 for each, value in zip(found, joined, strict=True))
        return bool(joined) and whole_parts and bool(single & alone)
    return bool(joined) and (bool(single & alone) or len(single | alone) < len(values))


def stands_apart(values: Iterable[str], mark: str) -> bool:
    """Whether texts combine labels with a mark, and all parts are also alone in texts."""
    joined = {value for value in values if mark in value.strip()}
    return bool(joined) and all(len({*parts(v, mark)} & {*values}) == len(parts(v, mark)) > 1 for v in joined)


def are_flags(values: Iterable[str]) -> bool:
    """Whether texts such as `0110`, or `0 1 1 0`, have a 0 or 1 for each of three labels or more. Classes may be called
    so too: these texts are more than their places, each place differs, and several have more than one 1."""
    values = {_without_spaces(value) for value in values}
    size = max(map(len, values), default=0)
    if size < 3 or not all(len(value) == size and {*value} <= {"0", "1"} for value in values):
        return False
    several = sum(value.count("1") > 1 for value in values)
    return len(values) > size and several > 1 and all(len({*place}) == 2 for place in zip(*values, strict=True))


def _without_spaces(value: str) -> str:
    return "".join(value.split())


def is_joined(column: pa.ChunkedArray, stated: Stated) -> bool:
    """Whether a column [rows] has joined labels, as in `billing|urgent`, if nothing else states it.

    Raises:
        ConfigError: for names with commas, whose parts are labels by themselves, or parts of other names.
    """
    if not is_text(column.type) or stated.classes:
        return False
    values = {*distinct(names(column))}
    if stated.known and {spelled_alike(value) for value in values} <= {*map(spelled_alike, stated.known)}:
        return False
    if any(joins(values, separator) for separator in "|;#"):
        return True
    _check_flags(values, stated)
    _check_hash(values, stated)
    joined = {value for value in values if {*value} & {*COMMAS}}
    alone = values - joined
    every = [part for value in joined for part in parts(value, COMMAS)]
    fewer = len(joined) > 1 and len({*every} | alone) < len(values) and len(every) > 1.5 * len({*every})
    marks = next((mark for mark in OTHERS if stands_apart(values, mark)), COMMAS)
    joined = joined if marks == COMMAS else {value for value in values if marks in value}
    alone = values - joined
    if joined and (fewer or all({*parts(value, marks)} <= alone for value in joined)):
        labels = " and ".join(parts(min(joined), marks))
        raise stated.ambiguous(
            repr(min(joined)),
            f"it may be one label, or the labels {labels}, which other rows have too",
            f"set {setting(f'{stated.key}.kind', 'multi_label')}, or {setting(f'{stated.key}.kind', 'classification')}",
        )
    return False


def _check_flags(values: set[str], stated: Stated) -> None:
    """Raise ConfigError for texts that are most likely a 0 or 1 for each label."""
    if are_flags(values):
        one = min(value for value in values if value.count("1") > 1)
        raise stated.ambiguous(
            repr(one),
            f"it may have a 0 or 1 for each of {len(_without_spaces(one))} labels, or be the name of a class",
            f"set {setting(f'{stated.key}.kind', 'multi_label')}, or {setting(f'{stated.key}.kind', 'classification')}",
        )


def _check_hash(values: set[str], stated: Stated) -> None:
    """Raise ConfigError for texts with `#` that combine fewer labels, of which none is alone."""
    joined = {value for value in values if "#" in value}
    found = [parts(value, "#") for value in joined]
    if any(len(each) <= value.count("#") for each, value in zip(found, joined, strict=True)):
        return
    labels = {part for each in found for part in each} | (values - joined)
    if joined and len(labels) < len(values):
        raise stated.ambiguous(
            repr(min(joined)),
            f"it may be one label, or the labels {' and '.join(parts(min(joined), '#'))}, as doccano writes them",
            f"set {setting(f'{stated.key}.labels', sorted(labels))} {setting(f'{stated.key}.kind', 'multi_label')}, or "
            f"{setting(f'{stated.key}.kind', 'classification')}",
        )


def read_sets(columns: Given, stated: Stated) -> tuple[Given, list[str]]:
    """The columns of lists of labels, and notes about them."""
    notes: list[str] = []
    if any(is_text(column.type) for column in columns.values()):
        known = without_labels(columns, stated, notes)
        columns = {split: _with_empty(column, columns[split]) for split, column in known.items()}
        columns = _taken_apart(columns, stated, notes)
    if all(is_list(column.type) or pa.types.is_null(column.type) for column in columns.values()):
        columns = _by_place(columns, stated, notes)
        lists = [column for column in columns.values() if is_list(column.type)]
        sizes = {size for column in lists for size in distinct(pc.list_value_length(column))}
        if sizes == {1}:
            notes.append(
                f"every list in {stated.column} has one label, which tasks.kind=classification reads as a class"
            )
    return columns, notes


def _with_empty(column: pa.ChunkedArray, given: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts with the empty ones that they had: a row without any label, which is not a row without a label."""
    if not is_text(given.type):
        return column
    empty = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(given.cast(pa.string())), ""), False)
    return pc.if_else(empty, pa.scalar("", column.type), column)


def _taken_apart(columns: Given, stated: Stated, notes: list[str]) -> Given:
    """Lists in place of texts of joined labels."""
    texts = {split: column for split, column in columns.items() if is_text(column.type)}
    values = {value for column in texts.values() for value in distinct(names(column))}
    if not values:
        return columns
    _check_cells(values, stated)
    if are_flags(values) and not values & {*stated.known}:
        return columns | {split: _digits(text) for split, text in texts.items()}
    separator = _separator(values, stated)
    if separator is not None:
        shown = {"\n": "line breaks", "\t": "tabs", " ": "spaces"}.get(separator, separator)
        notes.append(f"the labels in {stated.column} are separated by {shown}")
        for value in () if stated.known else sorted(values):  # an unknown part is refused later, with its row
            _check_parts(value, parts(value, separator), stated)
    lists = {
        split: pa.chunked_array(
            [pa.array([None if v is None else parts(v, separator) for v in text.to_pylist()], pa.list_(pa.string()))]
        )
        for split, text in texts.items()
    }
    return columns | lists


def _digits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists of the digits of texts. An empty text says nothing about its row."""
    lists = [None if value is None else [*map(int, _without_spaces(value))] for value in names(column).to_pylist()]
    return pa.chunked_array([pa.array(lists, pa.list_(pa.int64()))])


def _separator(values: set[str], stated: Stated) -> str | None:
    """The separator of the labels of texts; None if each text is one label. Raises ConfigError if there are two
    possible ones."""
    present = [mark for mark in SEPARATORS if any(mark in value for value in values)]
    present += [mark for mark in OTHERS if stands_apart(values, mark)]
    if stated.known:
        known = {*map(spelled_alike, stated.known)}
        fits = [
            m
            for m in (None, *present, "".join(present) or None)
            if all(spelled_alike(p) in known for value in values for p in parts(value, m))
        ]
        if fits:
            return fits[0]
    evident = [mark for mark in present if joins(values, mark)]
    likely = evident or [mark for mark in present if mark != "#"]
    if len(likely) > 1:
        example = min(value for value in values if likely[0] in value)
        every = sorted({part for value in values for part in parts(value, "".join(likely))})
        raise stated.ambiguous(
            f"{' and '.join(likely)}, e.g. in {example!r}",
            "both may separate labels, or one may be part of names; list the labels, or write lists in JSON Lines",
            f"set {setting(f'{stated.key}.labels', every)}",
        )
    if not likely and "#" in present:
        example = min(value for value in values if "#" in value)
        if len(parts(example, "#")) > example.count("#"):
            apart = sorted({part for value in values for part in parts(value, "#")})
            raise stated.ambiguous(
                repr(example),
                "# may separate labels, as doccano writes them, or be part of a name; list the labels",
                f"set {setting(f'{stated.key}.labels', apart)}, or {setting(f'{stated.key}.labels', sorted(values))}",
            )
    return likely[0] if likely else None


def _by_place(columns: Given, stated: Stated, notes: list[str]) -> Given:
    """Lists of the numbers of labels, in place of lists with a 0 or 1 for each label."""
    sizes, values = set[int](), set[str]()
    for column in columns.values():
        if pa.types.is_null(column.type):
            continue
        sizes |= {*distinct(pc.list_value_length(column))}
        values |= {*map(str, pc.unique(names(pc.list_flatten(column))).to_pylist())} if len(column) else set()
    if len(sizes) == 1 and min(sizes) > 1 and values & {"-1", "-100"} and values <= {"0", "1", "-1", "-100"}:
        raise stated.ambiguous(
            f"lists of {min(sizes)} numbers of 0, 1 and {' and '.join(sorted(values - {'0', '1'}))}",
            "a number below 0 may stand for a label that is not known",
            "write 0 or 1 for each label, or leave such rows out",
        )
    if len(sizes) != 1 or not values or min(sizes) < 2:
        return columns
    if not values <= {"0", "1", "false", "true"}:
        _check_numbers(columns, min(sizes), stated)
        return columns
    (size,) = sizes
    if stated.known and len(stated.known) != size:
        raise stated.ambiguous(
            f"lists of {size} numbers that are 0 or 1",
            f"must be one for each of the {len(stated.known)} labels {', '.join(stated.known[:20])}",
            f"set {setting(f'{stated.key}.labels', [f'label{n}' for n in range(size)])} with their names",
        )
    notes.append(f"each list in {stated.column} has a 0 or 1 for each of {size} labels, which are numbered from 0")
    return {split: column if pa.types.is_null(column.type) else _numbers(column) for split, column in columns.items()}


def _check_numbers(columns: Given, size: int, stated: Stated) -> None:
    """Raise ConfigError for lists of `size` whole numbers of which one has a number twice, as no set of labels has."""
    for column in columns.values():
        if not is_list(column.type) or not pa.types.is_integer(column.type.value_type):
            continue
        lists = pc.list_flatten(column).to_numpy().reshape(-1, size)
        ordered = np.sort(lists, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if len(twice):
            raise stated.ambiguous(
                f"lists of {size} numbers, such as {lists[twice[0]].tolist()}",
                "they may be several numbers for a text, such as ratings, and no set has a label twice",
                "write one number for each text, such as their mean, or each label once",
            )


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    flags = [None if row is None else [str(n) for n, v in enumerate(row) if v] for row in column.to_pylist()]
    return pa.chunked_array([pa.array(flags, pa.list_(pa.string()))])


def is_written(name: str) -> bool:
    """Whether a name is the text of a list or of an object."""
    marks = _MARKS.get(name[:1] + name[1:][-1:], "")
    return any(mark in name for mark in marks) or _CALL.match(name) is not None


def not_names(cell: str, file: str, column: str) -> DataError:
    return DataError(
        f"{file}: got {cell[:80]!r} as a label in {column}; must be names of labels, and not lists or objects that "
        "are written as text among other values; write the rows as JSON Lines with lists, or as one name a row"
    )


def _check_cells(cells: Iterable[str], stated: Stated) -> None:
    """Raise DataError for a cell that is a list or an object as a whole, whose parts would be taken for labels."""
    for cell in sorted({*cells} - {*stated.known}):
        if is_written(cell) and _is_whole(cell):
            raise not_names(cell, stated.file, stated.column)


def _is_whole(cell: str) -> bool:
    """Whether nothing follows the partner of the first bracket, as something does in `[a], [b, c]`."""
    depth = 0
    for place, character in enumerate(cell, 1):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
            if not depth:
                return place == len(cell)
    return True


def _check_parts(cell: str, parts: Iterable[str], stated: Stated) -> None:
    """Raise DataError if a bracket at the edge of a part of a cell has its partner in another part."""
    pairs = [(pair[0], pair[1]) for pair in _MARKS if pair[0] in cell and pair[1] in cell]
    for part in parts:
        if any(
            (part[0] == one and other not in part) or (part[-1] == other and one not in part) for one, other in pairs
        ):
            raise not_names(cell, stated.file, stated.column)
