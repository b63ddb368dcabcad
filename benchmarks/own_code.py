"""Writes the files of the committed runs on spans and on answers (docs/results/own-*), from the
docstrings of installed packages, whose source files are parsed and never imported.

    python benchmarks/own_code.py

names.jsonl: words of docstrings and their tags: PARAMETER where a word is a parameter of the documented function, ERROR
where it is an exception, CALLABLE where it is another function or class of the package. answers.jsonl: a question about
a function, its docstring, and what the docstring gives as the answer, or none if it has no answer. Test files
(names_test.jsonl, answers_test.jsonl) come from other source files. The teachers of these runs are the embedded one,
fine-tuned on the file:

    python -m distill recipe=prune tasks.train=names.jsonl tasks.test=names_test.jsonl target.speedup=null \\
        'pipeline=[finetune_teacher]' output=teacher
    cp -r teacher/finetune_teacher/names my-tagger
    python -m distill recipe=prune tasks.train=answers.jsonl tasks.test=answers_test.jsonl target.speedup=null \\
        'pipeline=[finetune_teacher]' output=teacher
    cp -r teacher/finetune_teacher/answers my-reader
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.data import docstring_corpus

TEST_SHARE = 0.2
ROWS = {"": 6000, "_test": 1500}
"""Ending of a file's name -> its rows, at most."""
PART = re.compile(r"\w+|[^\w\s]")
ERROR = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning)")
NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,}")
"""Words that are no English: with an underscore, or with two capitals."""
RETURNS = re.compile(r"\bReturns? ((?:[^.;:]|\.(?! |$))+)(?=[.;:]| ?$)")
RAISES = re.compile(r"\b[Rr]aises? (?:an? )?([A-Z]\w*(?:Error|Exception|Warning))")
LONGEST = 110
"""Words and marks of a docstring, at most, so that a model of 128 tokens has nearly all of it."""


@dataclass(frozen=True)
class Function:
    """A documented function."""

    name: str
    parameters: frozenset[str]
    text: str
    is_test: bool


def functions() -> Iterator[tuple[str, Function]]:
    """(package, function) of every package that is installed."""
    for package in docstring_corpus.versions():
        root = docstring_corpus.folder(package)
        for file in sorted(root.rglob("*.py")):
            path = file.relative_to(root).as_posix()
            if any(part.startswith(("test", "_")) or part == "site-packages" for part in path.split("/")):
                continue
            digest = hashlib.sha256(f"{package}/{path}".encode()).digest()
            is_test = int.from_bytes(digest[:4], "big") < TEST_SHARE * 2**32
            try:
                tree = ast.parse(file.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    text = " ".join(docstring_corpus.prose(ast.get_docstring(node) or ""))
                    if text and len(PART.findall(text)) <= LONGEST:
                        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                        names = frozenset(a.arg for a in every) - {"self", "cls"}
                        yield package, Function(node.name, names, text, is_test)


def names(function: Function, callables: frozenset[str]) -> dict[str, Any] | None:
    """A row of names.jsonl; None for a docstring without a name."""
    words = PART.findall(function.text)
    tags = [f"B-{tag}" if (tag := _type(word, function, callables)) else "O" for word in words]
    return {"tokens": words, "tags": tags} if any(tag != "O" for tag in tags) else None


def _type(word: str, function: Function, callables: frozenset[str]) -> str | None:
    if ERROR.fullmatch(word):
        return "ERROR"
    # A parameter of one letter may be an English word or a formula.
    if word in function.parameters and len(word) > 1:
        return "PARAMETER"
    return "CALLABLE" if word in callables and NAME.fullmatch(word) else None


def answers(function: Function) -> Iterator[dict[str, Any]]:
    """The rows of answers.jsonl."""
    subject = function.name.strip("_").replace("_", " ")
    for question, pattern in ((f"What does {subject} return?", RETURNS), (f"What does {subject} raise?", RAISES)):
        match = pattern.search(function.text)
        # A question without an answer for some of the functions that have none.
        if match is None and int(hashlib.sha256(f"{question}{function.text}".encode()).hexdigest(), 16) % 12:
            continue
        answer = {"text": [match[1]], "answer_start": [match.start(1)]} if match else {"text": [], "answer_start": []}
        yield {"question": question, "context": function.text, "answers": answer}


def write(name: str, rows: list[dict[str, Any]], count: int) -> None:
    unique = list({json.dumps(row): None for row in rows})
    random.Random(0).shuffle(unique)
    Path(name).write_text("\n".join(unique[:count]) + "\n", encoding="utf-8")


def main() -> None:
    every = list(functions())
    callables = {package: set[str]() for package, _ in every}
    for package, function in every:
        callables[package].add(function.name)
    known = {package: frozenset(found) for package, found in callables.items()}
    for ending, count in ROWS.items():
        part = [(package, function) for package, function in every if function.is_test == (ending == "_test")]
        tagged = [row for package, function in part if (row := names(function, known[package])) is not None]
        write(f"names{ending}.jsonl", tagged, count)
        asked = {row["context"] + row["question"]: row for _, function in part for row in answers(function)}
        write(f"answers{ending}.jsonl", list(asked.values()), count)


if __name__ == "__main__":
    main()
