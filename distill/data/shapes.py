"""Rows in the shapes in which libraries and annotation tools write JSON, brought to one: an object with a value for
each column, and spans as objects. `distill.data.task_types.offsets` knows the names that tools give to their keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from distill.data.lines import Malformed
from distill.data.split_names import SPLITS
from distill.data.task_types.offsets import of_triple
from distill.data.task_types.question_answering import IMPOSSIBLE

SPACY = {"entities", "cats", "links", "spans"}
"""Keys of the annotations of a text in lists of spaCy, version 2."""
LABEL_STUDIO = ({"annotations", "data"}, {"completions", "data"})
"""Keys of a task in the full JSON of Label Studio."""


def row(value: Any) -> dict[str, Any]:
    """A row of this value. Raises Malformed unless it is one."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        if value[1].keys() <= SPACY:
            value = {"text": value[0], **value[1]}
    if not isinstance(value, dict):
        raise Malformed(
            f"got {json.dumps(value)[:40]}; must be a JSON object that names its columns; "
            'write every row as {"text": ..., "label": ...}'
        )
    if any(keys <= value.keys() for keys in LABEL_STUDIO):
        raise Malformed(
            "got a task of Label Studio with all of its annotations; must be one row for each text; export the project "
            "as JSON-MIN or CSV"
        )
    return {name: _value(each) for name, each in value.items()}


def _value(value: Any) -> Any:
    """Spans `[start, end, label]` as objects with these keys; the choices of a task of Label Studio, which writes one
    of them as a plain word, as a text too, as in its CSV; null for NaN, and for NaN in a list, as pandas has it for a
    missing value; any other value unchanged. NaN in an object stays, because a key without a value may mean 0."""
    if value is math.nan:
        return None
    if isinstance(value, dict) and [*value] == ["choices"]:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return _spans([None if each is math.nan else each for each in value] if math.nan in value else value)
    return value


def _spans(value: list[Any]) -> list[Any]:
    """A list of spans `[start, end, label]` as objects with these keys; other lists unchanged."""
    return list(map(of_triple, value)) if all(map(of_triple, value)) else value


_LISTS = (
    "rows", "examples", "annotations", "records", "items", "documents", "instances", "results", "samples", "utterances",
)  # fmt: skip
"""Keys of a list of rows in an object."""
_OF_A_ROW = ("text", "sentence", "sentence1", "question", "content", "context", "query", "document")
"""Keys of a text in an object that is a row itself."""
_IN_SERVER = {"row_idx", "row"}
"""Keys of a row as the server of `datasets` writes it."""
MOST = 250_000
"""Rows of a table that is one object: it is in memory as a whole, and takes Python a second for 70,000 rows."""


def of_object(fields: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    """The rows of one object, as pandas and `datasets` write tables; any other object is a single row.

    A note is added unless it is a single row.

    Raises:
        Malformed: for an object that could be read in two ways.
    """
    values = list(fields.values())
    if (most := max((len(value) for value in values if isinstance(value, list | dict)), default=0)) > MOST:
        raise Malformed(
            f"got one object with {most:,} values of a column or row; must be at most {MOST:,} in one object; write "
            "one object for each row, in lines"
        )
    if len(values) == 1 and isinstance(values[0], list) and values[0] and all(isinstance(v, dict) for v in values[0]):
        notes.append(f"its rows are the list {next(iter(fields))!r}")
        return list(map(row, values[0]))
    if (listed := _listed(fields)) is not None:
        notes.append(f"its rows are the list {listed!r}")
        return [
            row(each["row"] if isinstance(each, dict) and _IN_SERVER <= {*each} else each) for each in fields[listed]
        ]
    if _are_splits(fields):
        notes.append("it is one object, and each of its lists is a split")
        return [{**row(each), "split": name} for name, rows in fields.items() for each in rows]
    if values and all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        notes.append("it is one object, and each of its lists is a column")
        return [row(dict(zip(fields, each, strict=True))) for each in zip(*values, strict=True)]
    if values and all(isinstance(value, dict) for value in values):
        return _of_objects(fields, notes)
    return [row(dict(fields))]


def _listed(fields: Mapping[str, Any]) -> str | None:
    """The key of a list of rows beside what is said about them, as annotation tools and the server of `datasets` write
    it; None without one, and for an object that is itself a row."""
    if any(isinstance(value, str) and name.lower() in _OF_A_ROW for name, value in fields.items()):
        return None
    for name in _LISTS:
        rows = fields.get(name)
        if isinstance(rows, list) and rows and all(map(_is_row, rows)):
            texts = (value for other, value in fields.items() if other.lower() in _OF_A_ROW)
            return None if any(isinstance(value, list) and len(value) == len(rows) for value in texts) else name
    return None


def _are_splits(fields: Mapping[str, Any]) -> bool:
    """Whether several lists of rows, and nothing else, have the names of splits, one of them that of training rows."""
    splits = [SPLITS.get(name.lower()) for name in fields]
    named = len(splits) > 1 and "train" in splits and None not in splits
    return named and all(isinstance(rows, list) and all(map(_is_row, rows)) for rows in fields.values())


def _is_row(value: Any) -> bool:
    """Whether a value may be a row: an object, or a text with spaCy's annotations."""
    return isinstance(value, dict) or (isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict))


def _of_objects(fields: Mapping[str, dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """The rows of an object of objects, of which pandas numbers either the outer or the inner ones, or gives them names
    of rows: names of texts are those of columns."""
    first = next(iter(fields.values()))
    inner = {key for value in fields.values() for key in value}
    alike = all(value.keys() == first.keys() for value in fields.values())
    several = alike and len(fields) > 1
    outside, inside = (several and any(key.lower() in _OF_A_ROW for key in keys) for keys in (fields, inner))
    if (all(map(str.isdecimal, fields)) and not all(map(str.isdecimal, inner))) or (inside and not outside):
        notes.append("it is one object, and each object in it is a row")
        return list(map(row, fields.values()))
    numbered = all(map(str.isdecimal, inner)) and not any(map(str.isdecimal, fields))
    if alike and inner and (numbered or (outside and not inside)):
        notes.append("it is one object, and each object in it is a column")
        return [row({name: fields[name][key] for name in fields}) for key in first]
    if several:
        raise Malformed(
            f"got an object of objects, {', '.join(list(fields)[:3])}, that could be columns or rows; must be one of "
            "the two; write one object for each row, in lines or in one array"
        )
    return [row(dict(fields))]


def questions(content: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """(row, characters) of each question in an object as SQuAD's own files are, with the columns of the data set
    `squad` on the hub. Raises Malformed for another form."""
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield _question(article, paragraph, question), len(paragraph["context"]) + len(question["question"])
    except (KeyError, TypeError, AttributeError) as error:
        raise Malformed(
            f"got a question of SQuAD's form without {error}; must have the keys data, paragraphs, context, qas, "
            "question and, with a label, answers of text and answer_start; correct it, or write one question a line"
        ) from error


def _question(article: dict[str, Any], paragraph: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    answers = question.get("answers")
    if answers is not None:
        answers = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
    return {
        "id": question.get("id"),
        "title": article.get("title"),
        "context": paragraph["context"],
        "question": question["question"],
        "answers": answers,
        **({IMPOSSIBLE: question[IMPOSSIBLE]} if IMPOSSIBLE in question else {}),
    }
