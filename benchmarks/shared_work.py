"""Counts the work of a sweep: trainings, and labellings by the teacher, against the distinct pieces of it.

    python -m benchmarks.shared_work --label after --output benchmarks/results/shared_work.json

A sweep of eight jobs, which differ in one setting of the student's training, starts from one classifier, which is
pruned and teaches. It runs with a cache, and once more in new run folders: one job after the other, and, with a cache
of its own, all jobs side by side. Each training and each labelling is counted where it begins. Distinct are eight
trainings and one labelling; a repeated sweep has nothing new to do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.edit_kinds import RECIPES, write
from benchmarks.edits import forked, forked_reload, prepare
from distill.runtime.storage import atomic
from distill.runtime.versions import hardware

RATES = [f"{number}e-4" for number in range(1, 9)]
DISTINCT = {"trainings": len(RATES), "labellings": 1}
TRAINED, LABELLED = "trained", "labelled"


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the work of a sweep against the distinct pieces of it.")
    parser.add_argument("--label", default="now", help="name of the counts in the output")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the counts to FILE, and keep its others")
    arguments = parser.parse_args()
    prepare()
    counts = {}
    for name, workers in (("in turn", 1), ("side by side", len(RATES))):
        with tempfile.TemporaryDirectory(prefix="distill-shared-") as folder:
            home = Path(folder) / "home"
            home.mkdir()
            assert forked(lambda home=home: write(home), home, home.with_name("said")) == 0
            counts[name] = {sweep: work(home, sweep, workers) for sweep in ("first", "repeated")}
    row = {"commit": hardware(1)["commit"], "distinct": DISTINCT, "counts": counts}
    print(row)
    if arguments.output is not None:
        before = atomic.read_json(arguments.output) if arguments.output.is_file() else {}
        atomic.write_json(arguments.output, before | {arguments.label: row})


def work(home: Path, sweep: str, workers: int) -> dict[str, int]:
    """Number of trainings and of labellings of all jobs of a sweep, `workers` of which run at the same time."""
    shutil.rmtree(home / "counted", ignore_errors=True)
    (home / "counted").mkdir()

    def job(rate: str) -> int:
        return forked(lambda: _job(sweep, rate), home, home.with_name(f"said-{sweep}-{rate}"))

    with ThreadPoolExecutor(workers) as pool:
        codes = [*pool.map(job, RATES)]
    if any(codes):
        failed = RATES[next(number for number, code in enumerate(codes) if code)]
        raise SystemExit(home.with_name(f"said-{sweep}-{failed}").read_text())
    kinds = [file.name.split("-")[0] for file in (home / "counted").iterdir()]
    return {"trainings": kinds.count(TRAINED), "labellings": kinds.count(LABELLED)}


def _job(sweep: str, rate: str) -> None:
    """Run one job of the sweep, and leave a file for each training and labelling."""
    from distill.pipeline.run import run
    from distill.pipeline.train_steps import prepare, tasks, teacher_logits

    def counted(module: Any, name: str, kind: str) -> None:
        function = getattr(module, name)

        def call(*arguments: Any, **settings: Any) -> Any:
            number = len(list(Path("counted").glob(f"{kind}-{os.getpid()}-*")))
            Path("counted", f"{kind}-{os.getpid()}-{number}").touch()
            return function(*arguments, **settings)

        setattr(module, name, call)

    assert tasks.trained is prepare.trained
    counted(tasks, "trained", TRAINED)
    counted(teacher_logits, "_logits", LABELLED)
    with forked_reload():
        settings = (f"stages.recover.base_lr={rate}", "cache.dir=cache", f"output={sweep}-{rate}")
        run(*RECIPES["prune"], *settings)


if __name__ == "__main__":
    main()
