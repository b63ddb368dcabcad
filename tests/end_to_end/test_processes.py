"""Two processes train as one does: the same batches, losses and, up to rounding, weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from distill.models.families.embedding import EncoderForVectors
from tests import tiny
from tests.forked import PYTHON

TRAINING = [
    "recipe=distilbert", "limit=smoke", "limit.steps=12", "tasks.names=[order]", "precision=fp32", "threads=1",
    "pipeline=[adapt,pretrain,finetune_teacher,finetune]", "corpus.max_length=32",
    "stages.pretrain.batch.tokens=512", "stages.pretrain.batch.device_tokens=128", "stages.pretrain.epochs=2",
    # Each process trains one try and one fold, and both agree on what diverged and on what is kept.
    "stages.finetune_teacher.lr_factors=[1e30,1]", "stages.finetune_teacher.folds=2",
    # 43 rows are six batches of seven, which two processes share unequally, and one of a single row.
    "limit.examples=43", "stages.finetune_teacher.batch.examples=7", "stages.finetune_teacher.epochs=1",
    "stages.finetune_teacher.min_steps=0", "stages.finetune.min_steps=0",
    # Without a term on logits nothing above the hidden states has a gradient.
    "~stages.finetune.terms.soft_targets", "~stages.finetune.terms.supervised", "stages.finetune.epochs=1",
    "+term@stages.finetune.terms.hidden=hidden", "stages.finetune.batch.examples=7",
]  # fmt: skip
pytestmark = pytest.mark.slow
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]


def trained(cwd: Path, settings: list[str], python: str = PYTHON) -> tuple[Path, Path]:
    """Run folders of one process, and of two, which `python` runs."""
    for name, launch, executable in (("one", [], PYTHON), ("two", TORCHRUN, python)):
        command = [executable, "-m", *launch, "distill", *settings, f"output={name}"]
        environment = os.environ | {"PYTHON_EXEC": executable}
        run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=250)
        assert run.returncode == 0, run.stderr
        assert run.stdout.count(f"run folder: {name}") == 1  # only the first process speaks
        (cwd / f"{name}.txt").write_text(run.stdout)
    return cwd / "one", cwd / "two"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """By real processes, each of which has another hash seed."""
    return trained(tmp_path_factory.mktemp("processes"), TRAINING, sys.executable)


def mean_terms(manifest: dict[str, Any]) -> dict[str, float]:
    """Mean over all steps of each term; the rows of the log are means since the row before."""
    sums, last = dict.fromkeys(manifest["log"][0]["terms"], 0.0), 0
    for row in manifest["log"]:
        for name, value in row["terms"].items():
            sums[name] += value * (row["step"] - last)
        last = row["step"]
    return {name: value / last for name, value in sums.items()}


@pytest.mark.parametrize(("model", "steps"), [("pretrain", 12), ("finetune_teacher/order", 7), ("finetune/order", 7)])
def test_two_processes_equal_one(model: str, steps: int, runs: tuple[Path, Path]) -> None:
    check_equal(runs, model, steps)


def test_tasks_are_trained_side_by_side(tmp_path: Path) -> None:
    """Each by one process, as a single process trains it: with its batches and random numbers, to the same bits."""
    settings = ["recipe=distilbert", "limit=smoke", "precision=fp32", "threads=1", "stages.finetune.dropout=0.1"]
    settings += ["pipeline=[finetune_teacher,finetune,evaluate]", "stages.finetune.start=teacher"]
    rates, few = "stages.finetune_teacher.lr_factors=[1,0.5]", ["limit.repeats=1", "stages.evaluate.quantized=null"]
    few += ["stages.evaluate.shapes=[[1,16]]"]
    settings += [rates, *few, "stages.evaluate.baseline=null", "stages.finetune.best_of=2"]
    one, two = trained(tmp_path, settings)
    for shown in (one, two):
        for task in ("package", "body"):  # also of what the process that speaks did not train
            line = f"finetune_teacher/{task}: learning rates that were tried"
            assert shown.with_suffix(".txt").read_text().count(line) == 1
    tries = [f"finetune_teacher/package.tries/{n}, finetune_teacher/body.tries/{n}" for n in (1, 2)]
    for shares in ("; ".join(tries), "finetune/package; finetune/body"):
        assert (tmp_path / "two.txt").read_text().count(f"trainings of each process: {shares}\n") == 1
    assert "trainings of each process" not in (tmp_path / "one.txt").read_text()
    for stage in ("finetune_teacher", "finetune"):
        for task in ("package", "body"):
            given, found = ((run / stage / task / "model.safetensors").read_bytes() for run in (one, two))
            assert given == found, (stage, task)
    check_scored_side_by_side(one, two)


def test_steps_that_do_not_need_each_other_are_trained_side_by_side(tmp_path: Path) -> None:
    """The student of a single task by one process, and its baseline by the other, each to the bits of one process."""
    given = tiny.save(tmp_path / "given", "bert", "SequenceClassification", num_labels=2, num_hidden_layers=3)
    rows = [{"text": text, "label": f"LABEL_{n % 2}"} for n, text in enumerate(tiny.SENTENCES * 6)]
    texts = [{**row, "text": f"{row['text']} {n}"} for n, row in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    settings = [
        "recipe=prune", "limit.steps=6", "precision=fp32", "threads=1", f"teacher.name={given}", "target.speedup=null",
        f"tasks.train={tmp_path / 'rows.jsonl'}", "tasks.max_length=32", "student.num_hidden_layers=2",
        "pipeline=[finetune_teacher,prune,recover,recover_baseline,recover_self_trained]", "stages.recover.dropout=0.1",
        "stages.recover_baseline.lr_factors=[1,2]", "stages.recover_self_trained.lr_factors=[1]",
    ]  # fmt: skip
    one, two = trained(tmp_path, settings)
    shown = (tmp_path / "two.txt").read_text()
    assert shown.count("trainings of each process: ") == 1  # the self-trained one needs the baseline
    tries = [f"recover_baseline/rows.tries/{n}" for n in (1, 2)]
    assert f"trainings of each process: recover/rows, {tries[1]}; {tries[0]}\n" in shown
    for stage in ("recover", "recover_baseline"):
        ours, theirs = (load_file(run / stage / "rows" / "model.safetensors") for run in (two, one))
        assert all((theirs[name] == ours[name]).all() for name in theirs)
        files = [(run / stage / "manifest.json").read_text() for run in (one, two)]
        assert json.loads(files[0])["steps"] == json.loads(files[1])["steps"] == 6
    # Both processes train the last one together, with random numbers of their own for the dropout of their rows.
    assert json.loads((two / "recover_self_trained" / "manifest.json").read_text())["steps"] == 6


def check_scored_side_by_side(one: Path, two: Path) -> None:
    """Each of two processes scored half of the variants, and the report has the scores of all."""
    scored, of_first = (each.with_suffix(".txt").read_text().count(" rows of validation") for each in (one, two))
    assert scored == 2 * of_first > 0
    alone, together = (json.loads((run / "results.json").read_text())["models"] for run in (one, two))
    assert [each["name"] for each in together] == [each["name"] for each in alone]
    assert sum(each["macro"] is not None for each in together) >= 2
    for ours, theirs in zip(together, alone, strict=True):
        assert ours["macro"] == (theirs["macro"] and pytest.approx(theirs["macro"], abs=5))
        assert not ours.get("failed")


def check_equal(runs: tuple[Path, Path], model: str, steps: int) -> None:
    one, two = (json.loads((run / model / "manifest.json").read_text()) for run in runs)
    assert one["steps"] == two["steps"] == steps
    assert one["tokens"] == two["tokens"]
    # A KL between nearly equal outputs cancels, so that its rounding is that of the outputs.
    assert mean_terms(two) == pytest.approx(mean_terms(one), rel=1e-5, abs=1e-6)
    tiny.check_trained_alike(*(load_file(run / model / "model.safetensors") for run in runs))


@pytest.mark.parametrize("kind", ["retrieval", "reranking"])
def test_rows_are_compared_with_those_of_other_processes(kind: str, tmp_path: Path) -> None:
    """The negatives of a text, and the documents of a query, are those of the whole step; with hidden states the
    teacher runs in each process."""
    head = "SequenceClassification" if kind == "reranking" else ""
    length = {"length": 66, "num_labels": 1} if head else {"length": 66}
    given = tiny.save(tmp_path / "given", "bert", head, hidden_size=32, num_hidden_layers=4, **length)
    sentences = tiny.SENTENCES
    rows = [{"query": sentences[n // 8], "document": f"{sentences[n % 8]} {n}", "relevance": n % 3} for n in range(43)]
    (tmp_path / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [
        "limit.steps=6", "limit.examples=43", "precision=fp32", "threads=1", "teacher=hub", f"teacher.name={given}",
        "tasks=own", f"tasks.train={tmp_path / 'judged.jsonl'}", f"tasks.kind={kind}", "tasks.max_length=32",
    ]  # fmt: skip
    if head:
        own, small = "stages.finetune", tiny.save(tmp_path / "small", "bert", head, seed=1, **length)
        settings += ["recipe=task", f"student.name={small}", "pipeline=[finetune_teacher,finetune]"]
        settings.append(f"{own}.terms.margins.weight=0.5")
    else:
        own = "stages.recover"
        EncoderForVectors.from_pretrained(given).save_pretrained(given)
        settings += ["recipe=prune", "target.speedup=null", "student.num_hidden_layers=2"]
        settings += ["pipeline=[finetune_teacher,prune,recover]", f"+term@{own}.terms.hidden=hidden"]
    settings += [f"{own}.batch.examples=7", f"{own}.batch.device_tokens=64", f"{own}.dropout=0"]
    runs = trained(tmp_path, settings)
    check_equal(runs, f"{own.removeprefix('stages.')}/judged", 6)
