"""Any file of rows is read, or refused with a message: valid ones with any text, and ones with mutated bytes."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill.config import Config, load_config
from distill.data.tasks import check_files, load_tasks
from distill.errors import UserError
from distill.models import teacher
from distill.runtime.storage import cache
from tests import tiny

pytestmark = pytest.mark.slow
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
PLAIN = st.sampled_from(["the small boat", "a sudden storm", "two goats", "the library closes early"])
NUMBERS = st.one_of(st.integers(), st.integers(0, 5), st.floats(), st.booleans(), st.none())
SPANS = st.lists(
    st.fixed_dictionaries(
        {"start": st.integers(-2, 40), "end": st.integers(-2, 40), "label": st.sampled_from(["A", "B", ""])}
    ),
    max_size=3,
)
ANY = st.one_of(TEXTS, PLAIN, NUMBERS, st.lists(PLAIN, max_size=3), SPANS)
COLUMNS: dict[str, dict[str, Any]] = {
    "classes": {"text": PLAIN, "label": st.sampled_from(["yes", "no", "maybe"])},
    "any classes": {"text": TEXTS, "label": TEXTS},
    "numbers": {"text": TEXTS, "text_pair": PLAIN, "label": NUMBERS},
    "multi-label": {"text": PLAIN, "labels": st.lists(st.sampled_from("abc"), max_size=3)},
    "queries": {"query": PLAIN, "passage": TEXTS, "relevance": st.integers(0, 2)},
    "words": {"tokens": st.lists(TEXTS, max_size=4), "ner_tags": st.lists(st.sampled_from(["O", "B-X", "I-X"]))},
    "spans": {"text": TEXTS, "spans": SPANS},
    "choices": {"question": TEXTS, "choices": st.lists(TEXTS, max_size=4), "answer": ANY},
    "answers": {"question": PLAIN, "context": TEXTS, "answers": ANY},
    "anything": {"text": ANY, "label": ANY, "x": ANY},
}
ENDINGS = ("csv", "tsv", "jsonl", "json", "parquet")


def written(rows: list[dict[str, Any]], ending: str) -> bytes:
    """The rows as the bytes of a file; as JSON lines where parquet cannot have them."""
    if ending in ("csv", "tsv"):
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, [*rows[0]] if rows else ["text", "label"], delimiter=",\t"[ending == "tsv"])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().encode()
    if ending == "parquet":
        try:
            buffer = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows), buffer)
            return buffer.getvalue()
        except (pa.ArrowException, OverflowError):
            pass
    if ending == "json":
        return json.dumps(rows).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@st.composite
def mutated(draw: st.DrawFn, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        how = draw(st.sampled_from(["replace", "remove", "insert", "cut", "repeat"]))
        if how == "replace" and changed:
            changed[at] = draw(st.integers(0, 255))
        elif how == "remove":
            del changed[at : at + draw(st.integers(1, 20))]
        elif how == "insert":
            changed[at:at] = draw(
                st.sampled_from([b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"\r", b"\n\n", b"{", b"\x1a"])
            )
        elif how == "cut":
            del changed[at:]
        else:
            changed[at:at] = changed[: draw(st.integers(0, 50))]
    return bytes(changed)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    columns = draw(st.sampled_from(sorted(COLUMNS)))
    rows = draw(st.lists(st.fixed_dictionaries(COLUMNS[columns]), max_size=12))
    if draw(st.booleans()):
        rows = rows * 5  # enough for a split
    ending = draw(st.sampled_from(ENDINGS))
    content = written(rows, ending)
    return ending, draw(st.one_of(st.just(content), mutated(content)))


SETTINGS = (
    "",
    "tasks.text=text",
    "tasks.kind=regression",
    "tasks.label=x",
    "tasks.kind=embedding",
    "tasks.kind=retrieval",
)


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Config]:
    """`composed(file, setting)`: the settings of a run with the rows of a file."""
    folder = tmp_path_factory.mktemp("cache")

    @functools.cache
    def call(file: Path, setting: str) -> Config:
        words = ["recipe=prune", f"tasks.train={file}", f"cache.dir={folder}", *filter(None, [setting])]
        return load_config(words)

    return call


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny.save(tmp_path_factory.mktemp("model") / "bert", "bert", "MaskedLM")
    return teacher.load_tokenizer(folder)


@given(files(), st.sampled_from(SETTINGS))
def test_any_file(
    outcomes: Any, composed: Any, tokenizer: Any, tmp_path: Path, file: tuple[str, bytes], setting: str
) -> None:
    ending, content = file
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(content)
    settings = composed(path, setting)
    with cache.using(settings.cache.dir, settings.cache.max_gib):
        try:
            check_files(settings, None)
            (data,) = load_tasks(settings.tasks, settings.limit, 0).tasks.values()
            encoded = data.encoded(data.train, tokenizer, 32)
        except UserError as error:
            lines = error.messages
        else:
            lines = []
            assert len(data.train)
            assert encoded is not None
    outcomes["refused" if lines else "accepted"] += 1
    assert all(line.isprintable() for line in lines), lines
