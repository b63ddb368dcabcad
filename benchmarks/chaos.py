"""Disturbs runs at random moments and damages their files; then compares what the same command ends with.

    python -m benchmarks.chaos --output benchmarks/results/chaos.json    # make chaos
    python -m benchmarks.chaos --recipes task prune --processes 2 --jobs 1 --output benchmarks/results/chaos.json

Each recipe is run at smoke size without a disturbance. The same run in another folder is disturbed at random moments
and continued by the same command: by SIGKILL while it writes or reads a file and at any time, by SIGTERM, and by a disk
that is full. After each disturbance the folder gets another name. Then files of the finished run are damaged, one at a
time, and the same command is run once more. A run is lost if a command ends in another way than it should; it differs
if a file in its folder is not, byte for byte, that of the undisturbed run. Measured times, what is computed from them,
and hashes are left out of the comparison.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from distill import config
from distill.runtime.storage import atomic, checksums, run_folder
from distill.runtime.versions import hardware

KILLED = Path(__file__).with_name("killed.py")
SMALL = (
    "limit=smoke", "limit.steps=8", "limit.repeats=1", "limit.documents=60", "tasks=docstrings",
    "tasks.names=[order,overlap]", "stages.evaluate.shapes=[[1,16]]", "target.shape=[1,16]", "corpus.max_length=32",
    "transfer.most=200", "threads=1", "output=run", "cache.dir=cache",
)  # fmt: skip
CHECKPOINTS = "checkpoint_seconds=1e-9"
"""So that a training can be killed at any of its steps while it writes one."""
NO_TARGET = ("target.speedup=null", "student.num_hidden_layers=2")
"""For gates, whose training follows measured times where there is a target."""
FAST = "target.speedup=10000"
"""No form of a tiny model is so fast, nor half as fast. All is cut that may be, whatever times are measured."""
HOW = ("killed", "later", "stopped", "full")
"""How runs are disturbed in turn, as benchmarks/killed.py names it."""
SKIPPED = re.compile(
    r"disagreements\.json|\.lock|\.sha256|\.fingerprints\.json|report\.html|report\.md|frontier\.svg|frontier\.png|README\.md|latency\.json|"
    r"serving\.json|times\.json|seconds\w*\.json|openings\.jsonl"
)
"""Files with measured times, with times of files, with dates, or with hashes of such files, and rows of the fastest
form."""
TIMES = re.compile(
    r"seconds|ms|.*_ms|p\d\d|.*_mib|.*per_second|latency.*|[a-z_]*speedup.*|times?|milliseconds|median|p90|ci95|inputs|conditions|took|"
    r"from_text|estimated|waterfall|account|energy.*|faster.*|fastest.*|predicted.*|openings"
)
"""Names of values that are measured times, or computed from them."""
_writing = threading.Lock()
_composing = threading.Lock()
"""Hydra composes one config at a time in a process."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Disturb runs at random moments, and compare what they end with.")
    parser.add_argument("--recipes", nargs="+", default=sorted(config.recipes()), metavar="NAME")
    parser.add_argument("--disturbances", type=int, default=6, help="times that the run of each recipe is disturbed")
    parser.add_argument("--damages", type=int, default=2, help="files of each finished run that are damaged")
    parser.add_argument("--processes", type=int, nargs="+", default=[1], help="numbers of processes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="recipes that are run side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the outcome to FILE as JSON, and keep its other rows"
    )
    arguments = parser.parse_args()
    from benchmarks.tables.reliability import chaos_table
    from distill.report import terminal

    environment = hardware(1)

    def one(case: tuple[str, int]) -> dict[str, Any]:
        rng = random.Random(f"{arguments.seed} {case}")
        row = disturbed(*case, arguments.disturbances, arguments.damages, rng)
        row |= {"seed": arguments.seed, "commit": environment["commit"]}
        print(json.dumps(row), flush=True)
        with _writing:
            if arguments.output is not None:
                store(arguments.output, environment, [row])
        return row

    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = [*pool.map(one, itertools.product(arguments.recipes, arguments.processes))]
    outcome = atomic.read_json(arguments.output) if arguments.output is not None else {"rows": rows}
    console = Console()
    console.print(terminal.table(chaos_table(outcome), width=console.width))
    sys.exit(any(row["lost"] or row["different"] for row in rows))


def store(file: Path, environment: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Put rows into a file of outcomes, in place of rows of the same recipe and number of processes. This is done after
    each recipe, so that nothing is lost where the benchmark is stopped."""
    new = {(row["recipe"], row["processes"]) for row in rows}
    before = atomic.read_json(file)["rows"] if file.is_file() else []
    every = rows + [row for row in before if (row["recipe"], row["processes"]) not in new]
    every.sort(key=lambda row: (row["recipe"], row["processes"]))
    atomic.write_json(file, {"environment": environment, "rows": every})


def disturbed(
    recipe: str, processes: int, disturbances: int, damages: int, rng: random.Random, *more: str
) -> dict[str, Any]:
    """What became of a recipe's run, with `more` settings, that was disturbed and damaged at random."""
    with tempfile.TemporaryDirectory() as temporary:
        whole, broken = (Path(temporary) / name / "home" for name in ("whole", "broken"))
        with _composing:
            settings = [*prepared(recipe, [whole, broken]), *more]
        began = time.monotonic()
        first = command(whole, processes, "never", 0, 0, settings)
        seconds = time.monotonic() - began
        row: dict[str, Any] = {"recipe": recipe, "processes": processes, "disturbances": [], "damages": [], "lost": []}
        row |= {"different": [], "seconds": seconds}
        if first.returncode != 0:
            return row | {"lost": [ending(first)]}
        found = re.findall(r"^accesses of (\d+): (\d+) in ([\d.]+) s$", first.stderr, re.MULTILINE)
        lasted = {process: {"later": float(took), "other": int(count)} for process, count, took in found}
        for number in range(disturbances):
            how = HOW[number % len(HOW)]
            process = rng.randrange(processes) if processes > 1 else 0
            # Twice the share of each, because the moments are random: the last ones are then near the end of the run.
            least, of = (0.0, "later") if how == "later" else (1.0, "other")
            moment = round(rng.uniform(least, 2 * lasted[str(process)][of] / disturbances), 2)
            done = command(broken, processes, how, moment, process, settings)
            at = re.findall(r"^disturbed at: (.*)$", done.stderr, re.MULTILINE)
            if not at:
                if done.returncode != 0:
                    return row | {"lost": [ending(done)]}
                break  # the run was over before
            row["disturbances"].append({"how": how, "moment": moment, "process": process, "at": at[0]})
            broken = broken.rename(broken.with_name(f"moved {number}"))
            if problem := badly_ended(how, processes, done):
                return row | {"lost": [f"{how} at {at[0]}: {problem}"]}
        for number in range(damages + 1):
            if number:
                row["damages"].append(damage(broken / "run", rng))
            done = command(broken, processes, "never", 0, 0, settings)
            if done.returncode != 0:
                return row | {"lost": [ending(done)]}
            if wrong := differences(whole / "run", broken / "run"):
                return row | {"different": wrong}
        return row


def badly_ended(how: str, processes: int, done: subprocess.CompletedProcess[str]) -> str | None:
    """What is wrong with how a disturbed command ended; None if it ended as it should, or before it was disturbed."""
    codes = {"killed": -signal.SIGKILL, "later": -signal.SIGKILL, "stopped": 128 + signal.SIGTERM, "full": 2}
    # A launcher has codes of its own; and a run may have written all that it must before the disk is full.
    if processes > 1 or (how == "full" and done.returncode == 0):
        return None
    if done.returncode != codes[how] or "Traceback" in done.stderr:
        return ending(done)
    # The message, and the count of accesses: which is last depends on what was being written.
    if how == "full" and os.strerror(errno.ENOSPC) not in "".join(done.stderr.splitlines()[-2:]):
        return ending(done)
    return None


def prepared(recipe: str, homes: Sequence[Path]) -> list[str]:
    """Settings of a recipe's run in a folder, after its files were written to each of the folders."""
    for home in homes:
        home.mkdir(parents=True)
    composed = config.load_config([f"recipe={recipe}"])
    settings = [f"recipe={recipe}", *SMALL]
    trained = [name for name in composed.pipeline if hasattr(composed.stages[name], "checkpoint_seconds")]
    settings += [
        f"stages.{name}.{CHECKPOINTS}" for name in trained if not hasattr(composed.stages[name], "baseline_of")
    ]
    gated = any(
        getattr(composed.stages[name], "gates", None) and composed.stages[name].gates.trained for name in trained
    )
    if gated:
        settings += NO_TARGET
    elif any(hasattr(composed.stages[name], "dimensions") for name in composed.pipeline):
        settings.append(FAST)
    if composed.student.embedding_size is not None:
        settings.append("student.embedding_size=16")
    if recipe == "task":
        for home in homes:
            student(home / "student")
        settings += ["teacher=embedded", "student.name=student"]
    return settings


def student(folder: Path) -> None:
    """Write a small model with the words of the embedded teacher."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from distill.config import Teacher
    from distill.models import teacher

    tokenizer = AutoTokenizer.from_pretrained(teacher.resolve(Teacher()), trust_remote_code=False)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def command(
    home: Path, processes: int, how: str, moment: float, disturbed: int, settings: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder `home`, and disturb the process with the number `disturbed` at the moment."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    words = [sys.executable, *(launch if processes > 1 else []), str(KILLED), how, str(moment)]
    words += [str(disturbed), *settings]
    environment = os.environ | {"PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=900)


def ending(done: subprocess.CompletedProcess[str]) -> str:
    """Exit code and last lines of a command that failed."""
    return f"exit code {done.returncode}: " + " | ".join(done.stderr.strip().splitlines()[-6:])


def damage(run: Path, rng: random.Random) -> str:
    """Damage a random file of a run folder, as a disk or a copy that was cut off does. Returns its path and how."""
    ours = (atomic.CLAIM, run_folder.LOCK, "config.json", "README.md")
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name not in ours)
    file, content = (chosen := rng.choice(files)), bytearray(chosen.read_bytes())
    if rng.random() < 0.5 or not content:
        del content[rng.randrange(max(len(content), 1)) :]
        how = "cut off"
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        how = "a bit"
    file.unlink()  # it may be a link to a file in the cache
    file.write_bytes(content)
    return f"{file.relative_to(run).as_posix()}: {how}"


def differences(one: Path, other: Path) -> list[str]:
    """Files that only one of two run folders has, or that differ."""
    ours, theirs = (
        {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        for folder in (one, other)
    )
    # Damaged measurements are made again only where they are needed.
    alone = ours.keys() ^ theirs.keys()
    missing = sorted(name for name in alone if ".measured/" not in name and Path(name).name != checksums.SUMS)
    both = sorted(name for name in ours.keys() & theirs.keys() if not SKIPPED.fullmatch(Path(name).name))
    values = {name: (content(ours[name]), content(theirs[name])) for name in both}
    return missing + [f"{name}{_first(*pair, '')}" for name, pair in values.items() if pair[0] != pair[1]]


def content(file: Path) -> Any:
    """What is compared of a file: all of it, but no times in JSON, and not the numbers of OpenVINO's operations, which
    it counts in each process."""
    if file.suffix == ".json":
        return _without_times(atomic.read_json(file))
    data = file.read_bytes()
    return re.sub(rb'_\d+"', b'"', data) if file.suffix == ".xml" else data


def _first(one: Any, other: Any, place: str) -> str:
    """The first place at which two values differ, and both of them there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return _first(one.get(key), other.get(key), f"{place}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        number = next(number for number in range(len(one)) if one[number] != other[number])
        return _first(one[number], other[number], f"{place}.{number}")
    return f" {place}: {str(one)[:60]} | {str(other)[:60]}" if place else ""


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if not _is_left_out(key, each)}
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    return re.sub(r"[\d.]+(x| minutes)", "", value) if isinstance(value, str) else value


def _is_left_out(key: str, value: Any) -> bool:
    """Whether a value is a time, or the hash of a step's files, which are compared themselves."""
    return bool(TIMES.fullmatch(key)) or (key == "files" and isinstance(value, str))


if __name__ == "__main__":
    main()
