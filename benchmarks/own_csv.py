"""Writes the files of the committed runs with own tasks (docs/results/own-*), from GLUE's, as a user would have them.

    python benchmarks/own_csv.py DIR    # DIR: a folder in the layout of nyu-mll/glue

sentiment.csv: the first 8,000 training rows of SST-2, and sentiment_test.csv its validation rows. judged.csv: QNLI's
first 400 answered questions, each with its passage and five passages of other questions, and judged_test.csv 250
validation questions with ten passages each. The teachers of these runs are the embedded one, fine-tuned on the file:

    python -m distill recipe=prune tasks.train=sentiment.csv tasks.test=sentiment_test.csv target.speedup=null \\
        'pipeline=[finetune_teacher]' output=teacher
    cp -r teacher/finetune_teacher/sentiment my-bert
    python -m distill recipe=prune tasks.train=judged.csv tasks.test=judged_test.csv target.speedup=null \\
        'pipeline=[finetune_teacher]' output=teacher
    cp -r teacher/finetune_teacher/judged my-reranker

similar.csv: the training pairs of STS-B with their similarity, and pairs of MRPC and QNLI without one, from which a
student learns its teacher's vectors alone; similar_test.csv: STS-B's validation pairs. The teacher of this run is the
embedded one as it is.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def rows(folder: Path, task: str, split: str) -> list[dict[str, Any]]:
    return [
        row for file in sorted((folder / task).glob(f"{split}-*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


def sentiment(folder: Path, split: str) -> Iterable[Sequence[Any]]:
    for row in rows(folder, "sst2", split):
        yield row["sentence"].strip(), ("negative", "positive")[row["label"]]


def judged(folder: Path, split: str, questions: int, others: int) -> Iterable[Sequence[Any]]:
    """(query, passage, relevance) of the first questions that their passage answers."""
    every, seen, rng = rows(folder, "qnli", split), set[str](), random.Random(0)
    for row in every:
        if row["label"] == 0 and row["question"] not in seen and len(seen) < questions:
            seen.add(row["question"])
            drawn = [other["sentence"] for other in rng.sample(every, others)]
            passages = [(row["sentence"], 1), *((text, 0) for text in drawn if text != row["sentence"])]
            rng.shuffle(passages)
            yield from ((row["question"], *passage) for passage in passages)


def similar(folder: Path, split: str) -> Iterable[Sequence[Any]]:
    """(first text, second text, similarity) of STS-B."""
    for row in rows(folder, "stsb", split):
        yield row["sentence1"], row["sentence2"], row["label"]


def unlabelled(folder: Path, task: str, columns: Sequence[str], count: int) -> Iterable[Sequence[Any]]:
    """(first text, second text, nothing) of the first training rows of a task."""
    for row in rows(folder, task, "train")[:count]:
        yield *(row[column] for column in columns), ""


def write(name: str, header: Sequence[str], content: Iterable[Sequence[Any]]) -> None:
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(content)


def main(folder: Path) -> None:
    write("sentiment.csv", ("text", "sentiment"), [*sentiment(folder, "train")][:8000])
    write("sentiment_test.csv", ("text", "sentiment"), sentiment(folder, "validation"))
    write("judged.csv", ("query", "passage", "relevance"), judged(folder, "train", 400, 5))
    write("judged_test.csv", ("query", "passage", "relevance"), judged(folder, "validation", 250, 9))
    pairs = [*similar(folder, "train")]
    pairs += unlabelled(folder, "mrpc", ("sentence1", "sentence2"), 4000)
    pairs += unlabelled(folder, "qnli", ("question", "sentence"), 8000)
    write("similar.csv", ("sentence1", "sentence2", "similarity"), pairs)
    write("similar_test.csv", ("sentence1", "sentence2", "similarity"), similar(folder, "validation"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
