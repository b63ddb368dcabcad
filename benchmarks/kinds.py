"""Runs tasks of several kinds, with their controls, over seeds, and keeps the results in docs/results/kinds.

    python -m benchmarks.kinds DATA                          # every kind with the seeds 0, 1 and 2
    python -m benchmarks.kinds DATA --kinds names --seeds 0

DATA is a folder with GLUE in glue/, as nyu-mll/glue has it, texts of Simple Wikipedia in
corpus/simple_wiki_train.parquet, and in own/ the files of WNUT-17 (wnut_train.conll and so
on), Banking77 (banking_train.csv, banking_test.csv) and XQuAD (xquad_en.json). Runs take place in outputs/kinds, one
after the other; a run that was stopped goes on by the same command, and one that is kept already is not made again.

The teacher is the embedded one, fine-tuned on the task; it was trained on SQuAD before, from which the passages of
reader and reranker come. Beside the student of each target there are the teacher in int8, the same student trained on
the labels alone, and the same student self-trained. Nothing is chosen on the reported rows.

- names: tags of names in noisy texts, WNUT-17. A third of the rows without labels are sentences of Simple Wikipedia,
  because its 3,394 rows are few.
- reader: answers in passages, XQuAD in English; a fifth of its questions is reported.
- reranker: questions and passages of QNLI, as benchmarks/own_csv.py judges them.
- retrieval: similarity of two texts, STS-B, with pairs of MRPC and QNLI without a label.
- intents: 77 intents of short texts, Banking77.
- guard: whether a text of Banking77 is about a card that is lost, stolen or misused: 3% of the training rows are, and
  4% of the test rows.
- retrieval-static, intents-static, guard-static: a static student of the same teacher on the same rows, as the floor.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import own_csv
from benchmarks.tables.runs import RESULTS, ROOT, keep

FOLDER, KEPT = ROOT / "outputs" / "kinds", RESULTS / "kinds"
HARM = ("lost_or_stolen_card", "compromised_card", "card_payment_not_recognised")
"""Intents that the guard is to find."""

STAGES = "finetune_teacher,prune,recover,recover_baseline,recover_self_trained,quantize,evaluate,export"
PRUNE = (
    f"recipe=prune pipeline=[{STAGES}] stages.evaluate.self_trained=recover_self_trained "
    "stages.finetune_teacher.epochs=5"
)
STATIC = "recipe=static stages.finetune_teacher.epochs=5"
ROWS = {
    "names": "tasks.train=wnut_train.conll tasks.development=wnut_dev.conll tasks.test=wnut_test.conll "
    "corpus=parquet corpus.path=corpus transfer.times=15 transfer.most=60000 transfer.sources.corpus=2",
    "reader": "tasks.train=xquad_en.json tasks.max_length=384",
    "reranker": "tasks.train=judged.csv tasks.test=judged_test.csv",
    "retrieval": "tasks.train=similar.csv tasks.test=similar_test.csv tasks.kind=embedding",
    "intents": "tasks.train=banking_train.csv tasks.test=banking_test.csv",
    "guard": "tasks.train=guard.csv tasks.test=guard_test.csv",
}
TARGETS = {"names": "6", "reader": "5", "reranker": "6", "retrieval": "6", "intents": "10", "guard": "8"}
KINDS = {kind: f"{PRUNE} {ROWS[kind]} target.speedup={TARGETS[kind]}" for kind in ROWS}
KINDS |= {f"{kind}-static": f"{STATIC} {ROWS[kind]}" for kind in ("retrieval", "intents", "guard")}
"""Kind -> its settings."""


def files(data: Path) -> None:
    """Put the files of all runs into their folder, once: a run that goes on reads the files that it read before."""
    whole = FOLDER / "files.done"
    if whole.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in sorted((data / "own").iterdir()):
        if file.suffix in (".conll", ".json", ".csv"):
            shutil.copyfile(file, FOLDER / file.name)
    (FOLDER / "corpus").mkdir(exist_ok=True)
    shutil.copyfile(data / "corpus" / "simple_wiki_train.parquet", FOLDER / "corpus" / "simple_wiki_train.parquet")
    for split, end in (("train", ""), ("test", "_test")):
        with (data / "own" / f"banking_{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = [(row["text"], "alarm" if row["category"] in HARM else "other") for row in csv.DictReader(file)]
        own_csv.write(str(FOLDER / f"guard{end}.csv"), ("text", "label"), rows)
    script = [sys.executable, str(ROOT / "benchmarks" / "own_csv.py"), str((data / "glue").resolve())]
    subprocess.run(script, cwd=FOLDER, check=True)
    whole.touch()


def command(kind: str, seed: int) -> list[str]:
    return ["-m", "distill", *KINDS[kind].split(), f"seed={seed}", f"output={kind}-{seed}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the first run that failed, or 0."""
    parser = argparse.ArgumentParser(description="Run tasks of several kinds, with their controls.")
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args(arguments)
    files(asked.data)
    for seed in asked.seeds:
        for kind in asked.kinds:
            kept = ROOT / KEPT / kind / f"seed{seed}" / "results.json"
            if kept.is_file():
                continue
            words = command(kind, seed)
            print(f"$ python {shlex.join(words)}", flush=True)
            if code := subprocess.run([sys.executable, *words], cwd=FOLDER, check=False).returncode:
                return code
            keep(FOLDER / f"{kind}-{seed}" / "results.json", kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
