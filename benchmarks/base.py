"""Runs the curve of a base-size teacher on GLUE, with its controls, and keeps the results in docs/results/base.

    python -m benchmarks.base_teacher outputs/mpnet-base     # first: the teacher
    python -m benchmarks.base GLUE                           # every run with the seeds 0, 1 and 2
    python -m benchmarks.base GLUE --runs cola-16x cola-small --seeds 0

GLUE is a folder as nyu-mll/glue has it. Each task and speedup has a run of its own, which takes one to three hours on
two CPU cores. Runs take place in outputs/base, one after the other; a run that was stopped goes on by the same command,
and one that is kept already is not made again. All runs of a task share one fine-tuned teacher.

- TASK-8x, TASK-16x, TASK-30x: a student pruned from the teacher. Beside it are the teacher in int8, the same student
  trained on the labels alone at the best of three learning rates, and the same student self-trained.
- TASK-small: all-MiniLM-L6-v2, which is ready-made, fine-tuned on the labels alone, and distilled from the same
  teacher.

Teacher and students have at most 4,000 steps. A model that collapses is trained again with other seeds, a student and
its baseline alike. Learning rates and retries are chosen on development rows.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tables.runs import RESULTS, ROOT, keep
from distill.config import Teacher
from distill.models.teacher import resolve
from distill.runtime.storage.atomic import writing

FOLDER, KEPT = Path("outputs/base"), RESULTS / "base"
TEACHER, SMALL = "outputs/mpnet-base", "outputs/minilm"
TASKS = ("cola", "mrpc", "stsb", "rte")
COMMON = f"teacher=hub teacher.name={TEACHER} teacher.seed=0 tasks=glue"
TEACHERS = (
    "stages.finetune_teacher.epochs=3 stages.finetune_teacher.dropout=null stages.finetune_teacher.base_lr=6e-5 "
    "stages.finetune_teacher.retries=2"
)
"""As models of this size are usually fine-tuned, at a rate of 3e-5 (Devlin et al. 2019, arXiv 1810.04805, A.3)."""
CURVE = (
    "recipe=prune pipeline=[finetune_teacher,prune,recover,recover_baseline,recover_self_trained,quantize,evaluate,"
    "export] stages.evaluate.self_trained=recover_self_trained stages.recover.retries=2 "
    "stages.recover.epochs=5 stages.recover.base_lr=1.6e-4 stages.recover.scale_with_compression.epochs=0.5 "
    "stages.recover.scale_with_compression.lr=0.5 stages.recover.steps=4000 "
    "stages.recover_baseline.lr_factors=[0.5,1,2] stages.quantize.schemes=[openvino,onnxruntime]"
)
"""The recovery is that of the curve of all-MiniLM-L6-v2 in docs/results/frontier, without its chain of students."""
READY_MADE = (
    "recipe=task pipeline=[finetune_teacher,finetune,finetune_baseline,finetune_self_trained,quantize,evaluate,export] "
    "stages.evaluate.self_trained=finetune_self_trained stages.finetune.retries=2 stages.finetune.epochs=15 "
    "stages.finetune.steps=4000 stages.finetune_baseline.lr_factors=[0.5,1,2] "
    f"stages.quantize.schemes=[openvino,onnxruntime] student.name={SMALL}"
)
"""About as many epochs as the student for 8x has in `CURVE`."""
RUNS = {
    f"{task}-{speedup}x": f"{CURVE} target.speedup={speedup} tasks.names=[{task}]"
    for task in TASKS
    for speedup in (8, 16, 30)
}
RUNS |= {f"{task}-small": f"{READY_MADE} tasks.names=[{task}]" for task in TASKS}
"""Run -> its settings besides `COMMON` and `TEACHERS`."""


def small() -> None:
    """Copy the ready-made small model, which is part of an installed package, to a folder of its own."""
    if not (ROOT / SMALL).is_dir():
        with writing(ROOT / SMALL) as folder:
            shutil.copytree(resolve(Teacher()), folder, dirs_exist_ok=True)


def command(run: str, seed: int, glue: str) -> list[str]:
    where = [f"tasks.path={glue}", f"seed={seed}", f"output={FOLDER}/{run}-{seed}"]
    return ["-m", "distill", *RUNS[run].split(), *COMMON.split(), *TEACHERS.split(), *where]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the first run that failed, or 0."""
    parser = argparse.ArgumentParser(description="Run the curve of a base-size teacher, with its controls.")
    parser.add_argument("glue", metavar="GLUE")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args(arguments)
    if not (ROOT / TEACHER).is_dir():
        print(
            f"{TEACHER}: got no such folder; make it with python -m benchmarks.base_teacher {TEACHER}", file=sys.stderr
        )
        return 2
    small()
    for seed in asked.seeds:
        for run in asked.runs:
            kept = ROOT / KEPT / run / f"seed{seed}" / "results.json"
            if kept.is_file():
                continue
            words = command(run, seed, asked.glue)
            print(f"$ python {shlex.join(words)}", flush=True)
            if code := subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode:
                return code
            keep(ROOT / FOLDER / f"{run}-{seed}" / "results.json", kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
