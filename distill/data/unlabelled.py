"""Training rows of embedders without labels: pairs, or texts, which are paired one after the other. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.columns import columns_of, text_columns
from distill.data.files import Table
from distill.data.several_types import check_types
from distill.data.task_types import TASK_TYPES, Columns
from distill.data.task_types.task_type import is_number, is_text, one_array
from distill.data.text_pairs import unused
from distill.data.usual_columns import LABELS, SAMPLE, about_rows
from distill.errors import ConfigError
from distill.models.families.head import Head
from distill.models.families.record import VECTORS


def completed(
    settings: config.Task, tables: Mapping[str, Table], head: Head | None, key: str
) -> tuple[Columns | None, Mapping[str, Table], list[str]]:
    """Complete the training rows of an embedder that lack columns of its validation or test rows.

    Returns these columns, the tables with the completed training rows, and what is to be said if single texts were
    paired. Returns None and the unchanged tables for other tasks, and for training rows that have all columns.

    A missing label is null, so that the rows are distilled alone. It is 1 for pairs of retrieval, which are a query and
    a document that answers it; not for texts that are paired here.

    Args:
        head: the teacher's head; None without.
        key: setting of the task, e.g. `tasks`, for messages.
    """
    others = [table for split, table in tables.items() if split != "train"]
    embeds = TASK_TYPES[settings.kind].separate if settings.kind else head is not None and head.architecture == VECTORS
    if "train" not in tables or not others or not embeds:
        return None, tables, []
    columns, train = columns_of(settings, others[0].rows, head, key, others[0].files[0]), tables["train"]
    if not columns.kind.separate or {*columns.text, *columns.label} <= {*train.rows.column_names}:
        return None, tables, []
    rows, given, remarks = train.rows, {*columns.text} <= {*train.rows.column_names}, list[str]()
    if not given:
        known = replace(settings, text=settings.text if settings.text in rows.column_names else None, text_pair=None)
        soft = settings.soft_label if settings.soft_label in rows.column_names else None
        texts = rows if soft is None else rows.drop_columns([soft])
        besides = [f.name for f in texts.schema if is_text(f.type) and not about_rows(f.name) and f.name != known.text]
        # Labelled rows, and two columns of texts, may be queries and documents under other names.
        judged = columns.label[0] in rows.column_names or len(besides) > (known.text is None)
        if columns.kind.grouped and judged:
            return columns, tables, []
        names = _chosen(known, texts, columns, soft, key, train.files[0])
        check_types(train.rows, names)
        count = len(rows) * len(names)
        remarks.append(f"train: {count:,} texts of {' and '.join(names)} taken in pairs, without labels")
        numbers = np.repeat(np.arange(len(rows)) if train.kept is None else train.kept, len(names))
        rows, train = _paired(rows, names, columns, soft), replace(train, kept=numbers[: count // 2 * 2 : 2])
    if columns.label[0] not in rows.column_names:
        if given:
            besides = rows.drop_columns([n for n in others[0].rows.column_names if n in rows.column_names])
            _check_no_other(besides, columns, settings.soft_label, key, train.files[0])
        values = np.full(rows.num_rows, 1.0 if columns.kind.grouped and given else np.nan)
        rows = rows.append_column(columns.label[0], pa.array(values, from_pandas=True))
    return columns, {**tables, "train": replace(train, rows=rows)}, remarks


def _chosen(
    settings: config.Task, rows: pa.Table, columns: Columns, soft: str | None, key: str, file: str
) -> list[str]:
    """The columns of texts that are paired: all that have different ones, such as those of a triplet, unless a vector
    belongs to each text, or queries and documents are told apart."""
    first = text_columns(settings, rows, key, file)
    if settings.text is not None or soft is not None or columns.kind.grouped:
        return [first[0]]
    others = unused(rows.slice(0, SAMPLE), first, about_rows)
    return [name for name in rows.column_names if name in (*first, *others)]


def _check_no_other(rows: pa.Table, columns: Columns, soft: str | None, key: str, file: str) -> None:
    """Raise ConfigError if pairs without the label column of the other splits have one under another name."""
    others = [name for name in rows.column_names if name not in (*columns.text, soft) and not about_rows(name)]
    found = [name for name in others if name.lower() in LABELS or is_number(rows[name].type)]
    if found:
        raise ConfigError(
            f"{key}.label: got {columns.label[0]}, which {file} lacks, though it has {', '.join(found)}; must be "
            "a column of all splits; give it the same name in all files, or remove it if the training rows have no "
            "label"
        )


def check_prompts(settings: config.Task, prompts: Sequence[str], key: str) -> None:
    """Raise ConfigError where stored vectors of single texts, which are paired, would be learned with two different
    prompts, of which nothing tells that the vectors were made with them."""
    if settings.soft_label is not None and settings.prompts is None and len({*prompts}) > 1:
        raise ConfigError(
            f"{key}.prompts: got nothing, with vectors of single texts in {settings.soft_label} and a teacher with the "
            f"prompts {' and '.join(map(repr, prompts))}; must be the two that the vectors were made with; set "
            f'\'{key}.prompts=["",""]\' for none, or store the vectors of pairs of a query and a document'
        )


def _paired(rows: pa.Table, names: Sequence[str], columns: Columns, soft: str | None) -> pa.Table:
    """Rows of two texts each, in the order of the rows and of these columns, without labels. A last text without
    another is left out.

    soft: column of the texts' vectors. A pair has the vectors of both texts, or null if one of them has none.
    """
    each = [one_array(rows[name].cast(pa.string())) for name in names]
    order = np.arange(len(rows) * len(names)).reshape(len(names), len(rows)).T.ravel()
    texts, count = pa.concat_arrays(each).take(pa.array(order)), len(order) // 2
    even = np.arange(0, 2 * count, 2)
    paired = pa.table({column: texts.take(pa.array(even + n)) for n, column in enumerate(columns.text)})
    if soft is None:
        return paired
    vectors = one_array(rows[soft].slice(0, 2 * count))
    missing = np.asarray(pc.is_null(vectors)).reshape(count, 2).any(axis=1)
    # Lists of the vectors of each pair: those of a pair that is null are left out.
    values = vectors.take(pa.array(np.flatnonzero(np.repeat(~missing, 2))))
    ends = np.concatenate([[0], np.cumsum(np.where(missing, 0, 2))]).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(ends), values, mask=pa.array(missing))
    return paired.append_column(soft, lists)
