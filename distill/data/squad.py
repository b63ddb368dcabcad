"""The form of SQuAD's own files: one JSON object of articles, of paragraphs, of questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.data.lines import Malformed
from distill.data.task_types.question_answering import IMPOSSIBLE


def questions(content: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """(row, characters) of each question, with the columns of the data set `squad` on the hub. Raises Malformed for
    another form."""
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield _row(article, paragraph, question), len(paragraph["context"]) + len(question["question"])
    except (KeyError, TypeError, AttributeError) as error:
        raise Malformed(
            f"got a question of SQuAD's form without {error}; must have the keys data, paragraphs, context, qas, "
            "question and, with a label, answers of text and answer_start; correct it, or write one question a line"
        ) from error


def _row(article: dict[str, Any], paragraph: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
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
