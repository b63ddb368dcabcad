"""Task distillation with distill, and with what one would use in its place: TextBrewer, and a subclass of Trainer.

    make bench    # or, in an environment with the extra `bench`:
    python -m benchmarks.frameworks --output benchmarks/results/frameworks.json

All get the same teacher, student, file of training rows, batches of 32 rows, epochs, loss (KL at temperature 2 plus
cross-entropy), optimizer and learning rate, and write a model that transformers loads. TextBrewer keeps the teacher's
logits of the first epoch for the others (`is_caching_logits`), as distill does. Each runs in a process of its own,
whose whole time is measured, in an order drawn anew in each round. Then transformers alone scores the students.

Two sizes: `base`, the embedded teacher doubled to the size of BERT-base by the rules of benchmarks/bert_base.py, with
few rows, for the time; and `small`, the embedded teacher itself with more rows, for the result. The task is `body` of
the docstring suite.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from benchmarks.bert_base import doubled
from distill.inference import latency, memory
from distill.runtime.storage import atomic

TASK, LABELS = "body", ["apart", "together"]
TEACHER_ROWS, TEST_ROWS = 2000, 500
BATCH, EPOCHS, LENGTH = 32, 3, 128
LEARNING_RATE, TEMPERATURE = 1e-4, 2.0


@dataclass(frozen=True)
class Size:
    rows: int
    layers: list[int]
    """Layers of the teacher that the student begins with."""


SIZES = {"base": Size(192, [0, 1, 2, 3, 4, 5]), "small": Size(1920, [0, 2, 4])}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and result of task distillation with several libraries.")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; each runs everything once")
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    parser.add_argument("--only", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        way, folder = arguments.only
        with memory.peak("cpu") as peak:
            WAYS[way](Path(folder))
            print(json.dumps(peak()))
        return
    from benchmarks.tables.speed import frameworks_table
    from distill.report import terminal
    from distill.runtime.versions import hardware

    with tempfile.TemporaryDirectory() as temporary:
        rows = [row for size in arguments.sizes for row in benchmark(Path(temporary) / size, size, arguments.repeats)]
    settings = {"batch": BATCH, "epochs": EPOCHS, "max_length": LENGTH, "learning_rate": LEARNING_RATE}
    measured = {"environment": hardware(torch.get_num_threads()) | others(), **settings, "rows": rows}
    console, table = Console(), frameworks_table(measured)
    console.print(terminal.table(table, width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def others() -> dict[str, str]:
    from importlib.metadata import version

    return {"textbrewer": version("textbrewer")}


def benchmark(folder: Path, size: str, repeats: int) -> list[dict[str, Any]]:
    """Run every way `repeats` times, in turn, in a process of its own. A row for each."""
    tokens = EPOCHS * prepare(folder, SIZES[size])
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    for way, took, output in in_turn("benchmarks.frameworks", [*WAYS], folder, repeats):
        seconds[way].append(took)
        peaks[way].append(float(output.splitlines()[-1]))
    usual = np.array(seconds["trainer"])
    results = {way: result(folder, folder / "students" / way) for way in WAYS}
    return [
        {
            "size": size,
            "way": way,
            "training_rows": SIZES[size].rows,
            "seconds": seconds[way],
            "speedup": latency.speedup(usual, np.array(seconds[way])),
            "tokens_per_second": tokens / float(np.median(seconds[way])),
            "peak_mib": max(peaks[way]),
            **results[way],
        }
        for way in WAYS
    ]


def in_turn(module: str, ways: list[str], folder: Path, repeats: int) -> Iterator[tuple[str, float, str]]:
    """(way, seconds, output) of each process `python -m MODULE --only WAY FOLDER`, in an order drawn in each round."""
    order = random.Random(0)
    for number in range(repeats):
        for way in order.sample(ways, len(ways)):
            began = time.monotonic()
            command = [sys.executable, "-m", module, "--only", way, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{way}: {done.stderr[-2000:]}")
            seconds = time.monotonic() - began
            print(f"{folder.name}, round {number + 1}: {way} {seconds:.1f} s", flush=True)
            yield way, seconds, done.stdout


def prepare(folder: Path, size: Size) -> int:
    """Write the rows, a fine-tuned teacher, and the student to begin with. Returns the tokens of the training rows."""
    import distill
    from distill.data import docstrings
    from distill.models.teacher import load_tokenizer

    folder.mkdir(parents=True)
    rows = list(_rows(docstrings.rows(TASK, "train", TEACHER_ROWS)))
    test = list(_rows(docstrings.rows(TASK, "validation", TEST_ROWS)))
    _write(folder / "teacher.csv", rows)
    _write(folder / "train.csv", rows[: size.rows])
    _write(folder / "test.csv", test)
    distill.run(
        "recipe=task", "teacher=embedded", "student.name=null", "tasks=own", f"tasks.train={folder / 'teacher.csv'}",
        f"tasks.validation={folder / 'test.csv'}", "tasks.name=rows", "tasks.kind=classification",
        f"tasks.labels=[{','.join(LABELS)}]", "pipeline=[finetune_teacher]", f"output={folder / 'run'}",
    )  # fmt: skip
    small = folder / "run" / "finetune_teacher" / "rows"
    teacher, tokenizer = _load(small), load_tokenizer(str(small))
    if size is SIZES["base"]:
        teacher = _doubled(teacher)
    for name, model in (("teacher", teacher), ("student", _cut(teacher, size.layers))):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    texts = [row[:2] for row in rows[: size.rows]]
    return sum(map(len, tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]))


def _rows(columns: dict[str, list[Any]]) -> Iterator[tuple[str, str, str]]:
    texts = [column for name, column in columns.items() if name != "label"]
    for first, second, label in zip(*texts, columns["label"], strict=True):
        yield first, second, LABELS[label]


def _write(file: Path, rows: list[tuple[str, str, str]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as to:
        csv.writer(to).writerows([("text", "text_pair", "label"), *rows])


def _doubled(small: Any) -> Any:
    from transformers import BertForSequenceClassification

    encoder = doubled(small.bert)
    model = BertForSequenceClassification(type(small.config)(**encoder.config.to_dict() | {"num_labels": len(LABELS)}))
    model.bert.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        model.classifier.weight.copy_(small.classifier.weight.repeat(1, 2) / 2)
        model.classifier.bias.copy_(small.classifier.bias)
    return model.eval()


def _cut(teacher: Any, layers: list[int]) -> Any:
    """A student with some of the teacher's layers, and its head."""
    config = type(teacher.config)(**teacher.config.to_dict() | {"num_hidden_layers": len(layers)})
    model = type(teacher)(config)
    model.load_state_dict(teacher.state_dict(), strict=False)
    for to, number in zip(model.bert.encoder.layer, layers, strict=True):
        to.load_state_dict(teacher.bert.encoder.layer[number].state_dict())
    return model


def _load(folder: Path) -> Any:
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(folder)


def result(folder: Path, student: Path) -> dict[str, float]:
    """Accuracy on the test rows, rows on which student and teacher agree, and mean KL, by transformers alone."""
    rows = _read(folder / "test.csv")
    ours, theirs = (_logits(_load(each), folder, rows) for each in (student, folder / "teacher"))
    labels = torch.tensor([LABELS.index(row["label"]) for row in rows])
    kl = F.kl_div(F.log_softmax(ours, -1), F.softmax(theirs, -1), reduction="batchmean")
    agree = (ours.argmax(-1) == theirs.argmax(-1)).float().mean()
    accuracy, of_teacher = ((each.argmax(-1) == labels).float().mean() for each in (ours, theirs))
    values = {"accuracy": accuracy, "teacher_accuracy": of_teacher, "agreement": agree, "kl": kl}
    return {name: float(value) for name, value in values.items()}


@torch.no_grad()
def _logits(model: nn.Module, folder: Path, rows: list[dict[str, str]]) -> Tensor:
    model.eval()
    collate = _collate(folder)
    parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    batches = [{name: value for name, value in collate(part).items() if name != "labels"} for part in parts]
    return torch.cat([model(**batch).logits for batch in batches])


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as content:
        return list(csv.DictReader(content))


def _collate(folder: Path) -> Callable[[list[dict[str, str]]], dict[str, Tensor]]:
    """As an example of transformers does it: rows are tokenized and padded to the longest of their batch."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "teacher")

    def collate(rows: list[dict[str, str]]) -> dict[str, Tensor]:
        pairs = [row["text"] for row in rows], [row["text_pair"] for row in rows]
        batch = tokenizer(*pairs, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        return {**batch, "labels": torch.tensor([LABELS.index(row["label"]) for row in rows])}

    return collate


def with_distill(folder: Path) -> None:
    import distill

    distill.run(
        "recipe=task", "teacher=hub", f"teacher.name={folder / 'teacher'}", f"student.name={folder / 'student'}",
        "tasks=own", f"tasks.train={folder / 'train.csv'}", f"tasks.validation={folder / 'test.csv'}",
        f"tasks.development={folder / 'test.csv'}", "tasks.name=rows", "tasks.kind=classification",
        f"tasks.labels=[{','.join(LABELS)}]", f"tasks.max_length={LENGTH}", "pipeline=[finetune_teacher,finetune]",
        f"stages.finetune.epochs={EPOCHS}", "stages.finetune.min_steps=0", f"stages.finetune.batch.examples={BATCH}",
        f"stages.finetune.optimizer.lr={LEARNING_RATE}", f"temperature={TEMPERATURE}", "transfer=none",
        "cache.max_gib=0", f"output={folder / 'outputs' / str(time.time_ns())}",
    )  # fmt: skip
    (made,) = sorted((folder / "outputs").glob("*/finetune/rows"))[-1:]
    students = folder / "students"
    students.mkdir(exist_ok=True)
    (students / "distill").unlink(missing_ok=True)
    (students / "distill").symlink_to(made)


def with_trainer(folder: Path, bf16: bool = False) -> None:
    """A subclass of Trainer, as tutorials on distillation have it."""
    from transformers import Trainer, TrainingArguments

    teacher = _load(folder / "teacher").eval()

    class Distiller(Trainer):
        def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *rest: Any, **more: Any) -> Any:
            outputs = model(**inputs)
            with torch.no_grad():
                guide = teacher(**inputs)
            soft = F.kl_div(
                F.log_softmax(outputs.logits / TEMPERATURE, -1),
                F.softmax(guide.logits / TEMPERATURE, -1),
                reduction="batchmean",
            )
            return TEMPERATURE**2 * soft + outputs.loss

    name = "trainer_bf16" if bf16 else "trainer"
    arguments = TrainingArguments(
        output_dir=str(folder / "students" / name),
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        use_cpu=True,
        bf16=bf16,
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    rows: Any = _read(folder / "train.csv")
    trainer = Distiller(
        model=_load(folder / "student"), args=arguments, train_dataset=rows, data_collator=_collate(folder)
    )
    trainer.train()
    trainer.save_model()


def with_textbrewer(folder: Path) -> None:
    from textbrewer import BasicDistiller, DistillationConfig, TrainingConfig

    target = folder / "students" / "textbrewer"
    target.mkdir(parents=True, exist_ok=True)
    student = _load(folder / "student")

    def adaptor(batch: Any, outputs: Any) -> dict[str, Any]:
        return {"logits": (outputs.logits,), "losses": (outputs.loss,)}

    distiller = BasicDistiller(
        TrainingConfig(device="cpu", output_dir=str(target), log_dir=None),
        DistillationConfig(temperature=TEMPERATURE, hard_label_weight=1, is_caching_logits=True),
        _load(folder / "teacher").eval(),
        student,
        adaptor,
        adaptor,
    )
    rows: Any = _read(folder / "train.csv")
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True, collate_fn=_collate(folder))
    optimizer = torch.optim.AdamW(student.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * len(loader)
    schedule = {"lr_lambda": lambda step: max(0.0, 1 - step / steps)}
    with distiller:
        distiller.train(
            optimizer,
            loader,
            num_epochs=EPOCHS,
            scheduler_class=torch.optim.lr_scheduler.LambdaLR,
            scheduler_args=schedule,
            max_grad_norm=1.0,
        )
    student.save_pretrained(target)


WAYS: dict[str, Callable[[Path], None]] = {
    "distill": with_distill,
    "textbrewer": with_textbrewer,
    "trainer": with_trainer,
    "trainer_bf16": lambda folder: with_trainer(folder, bf16=True),
}
"""Name of a way -> a function that trains a student from what is in a folder."""


if __name__ == "__main__":
    main()
