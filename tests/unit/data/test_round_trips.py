"""Random tables through the writers that people use: the same rows when they are read, or a refusal; never others."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from datasets.utils import logging
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distill.data.files import read
from distill.errors import DataError
from distill.runtime.storage import cache

LABELS = ("billing", "fraud", "NA", "null", "Rückfrage", "C#, C++", "401", "005.74", "x|y")
PARTS = (
    "oak",
    " ",
    ",",
    ";",
    "\t",
    "|",
    '"',
    "'",
    "\n",
    "\r\n",
    "\r",
    "#",
    "O",
    "ß",
    "🏦",
    "3,5",
    "sep=;",
    "\\",
    "None",
)
TEXTS = st.builds("{}{}z".format, st.sampled_from(["a", '"a']), st.lists(st.sampled_from(PARTS)).map("".join))
TABLES = st.lists(
    st.fixed_dictionaries({"text": TEXTS, "note": st.one_of(st.just(""), TEXTS), "label": st.sampled_from(LABELS)}),
    min_size=1,
    max_size=8,
)
Rows = list[dict[str, str]]
Writer = Callable[[Rows, Path], object]


def frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows)


def by_pandas(**options: Any) -> Writer:
    return lambda rows, path: frame(rows).to_csv(path, index=False, **options)


def by_csv(dialect: str, separator: str, encoding: str = "utf-8", ends: str | None = None) -> Writer:
    def write(rows: Rows, path: Path) -> None:
        text = io.StringIO(newline="")
        more = {} if ends is None else {"lineterminator": ends}
        writer = csv.DictWriter(text, [*rows[0]], dialect=dialect, delimiter=separator, **more)
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(text.getvalue().encode(encoding))

    return write


def by_hand(separator: str) -> Writer:
    """As database tools export: without any quotes."""

    def write(rows: Rows, path: Path) -> None:
        lines = [separator.join(rows[0]), *(separator.join(row[name] for name in rows[0]) for row in rows)]
        path.write_text("".join(line + "\n" for line in lines), newline="")

    return write


def as_data(rows: Rows) -> Dataset:
    return Dataset.from_list(rows)


def with_classes(rows: Rows, path: Path) -> None:
    features = Features(text=Value("string"), note=Value("string"), label=ClassLabel(names=list(LABELS)))
    Dataset.from_list(rows, features=features).to_parquet(path)


WRITERS: dict[str, tuple[str, Writer]] = {
    **{f"pandas, {separator!r}": ("csv", by_pandas(sep=separator)) for separator in ",;\t|"},
    "pandas, everything quoted": ("csv", by_pandas(quoting=csv.QUOTE_ALL)),
    "pandas, text quoted, tabs": ("tsv", by_pandas(sep="\t", quoting=csv.QUOTE_NONNUMERIC)),
    "pandas, BOM": ("csv", by_pandas(encoding="utf-8-sig")),
    "pandas, tabs in .tsv": ("tsv", by_pandas(sep="\t")),
    "pandas, gzip": ("csv.gz", by_pandas(sep=";")),
    **{f"pandas, {orient}": ("json", lambda rows, path, o=orient: frame(rows).to_json(path, orient=o))
       for orient in ("records", "split", "index", "columns")},
    "pandas, lines": ("jsonl", lambda rows, path: frame(rows).to_json(path, orient="records", lines=True)),
    "pandas, parquet": ("parquet", lambda rows, path: frame(rows).to_parquet(path)),
    "pandas, categories": ("parquet", lambda rows, path: frame(rows).astype({"label": "category"}).to_parquet(path)),
    "csv, excel": ("csv", by_csv("excel", ",")),
    "csv, excel-tab": ("tsv", by_csv("excel-tab", "\t")),
    "csv, unix": ("csv", by_csv("unix", ",")),
    "spreadsheet": ("csv", by_csv("excel", ";", "utf-8-sig", "\r\n")),
    "datasets, CSV": ("csv", lambda rows, path: as_data(rows).to_csv(path)),
    "datasets, JSON": ("json", lambda rows, path: as_data(rows).to_json(path)),
    "datasets, parquet": ("parquet", lambda rows, path: as_data(rows).to_parquet(path)),
    "datasets, classes": ("parquet", with_classes),
    "pyarrow, CSV": ("csv", lambda rows, path: pa.csv.write_csv(pa.Table.from_pylist(rows), path)),
    "pyarrow, parquet": ("parquet", lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path)),
    "no quotes, tabs": ("tsv", by_hand("\t")),
    "no quotes, pipes": ("csv", by_hand("|")),
}  # fmt: skip
"""Name -> (ending of the file, function that writes it)."""
LOSSY = {"no quotes, tabs": "\t", "no quotes, pipes": "|"}
"""Writers that are asked only for texts without a line break and their separator."""
MOST_REFUSED = 0.4
QUICK = (
    "pandas, ','", "pandas, everything quoted", "pandas, BOM", "pandas, tabs in .tsv", "pandas, gzip",
    "pandas, records", "pandas, lines", "pandas, parquet", "csv, unix", "spreadsheet", "datasets, JSON",
    "datasets, classes", "no quotes, tabs",
)  # fmt: skip
"""One writer of each format and way to quote. Random rows of the others are among the slow tests."""


def outcome(rows: Rows, ending: str, write: Writer) -> str:
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / f"f.{ending}"
        write(rows, path)
        try:
            with cache.using(folder / "cache"):
                table = read(str(path), "tasks.train")
        except DataError:
            return "refused"
        assert table.rows.to_pylist() == rows, (path.read_bytes(), table.notes)
        return "read"
    finally:
        shutil.rmtree(folder)


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in WRITERS]
)
def test_round_trip(name: str) -> None:
    ending, write = WRITERS[name]
    counts = Counter[str]()
    logging.disable_progress_bar()

    @settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TABLES)
    def check(rows: Rows) -> None:
        if name in LOSSY:
            removed = f"\r\n{LOSSY[name]}"
            rows = [
                {key: value.translate(dict.fromkeys(map(ord, removed))) for key, value in row.items()} for row in rows
            ]
        counts[outcome(rows, ending, write)] += 1

    check()
    assert counts["refused"] <= MOST_REFUSED * counts.total(), counts


@pytest.mark.parametrize("name", [name for name, (ending, _) in WRITERS.items() if ending in ("csv", "tsv")])
def test_usual_texts_are_read_from_every_writer(name: str) -> None:
    texts = ["the invoice, please", 'a screen of 27" is small', "two\nlines; here", "3,5 stars | fine", "plain"]
    rows = [{"text": text, "note": "", "label": label} for text, label in zip(texts * 3, LABELS * 2, strict=False)]
    if name in LOSSY:
        rows = [{key: value.replace("\n", " ").replace("|", "/") for key, value in row.items()} for row in rows]
    ending, write = WRITERS[name]
    assert outcome(rows, ending, write) == "read"
