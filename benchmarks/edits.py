"""Edits the inputs of runs at random between two identical commands; then looks for stale results.

    python -m benchmarks.edits --count 200 --seed 0 --output benchmarks/results/edits.json    # make edits
    python -m benchmarks.edits --kinds "own loss" during --count 10

A short run with a cache is made of small inputs. Then one thing is edited, and the identical command is run again: in
the same run folder, and in a new one with the same cache. Each must end with the files, byte for byte, that a run of
the edited inputs has in a fresh folder without any cache, or be refused with a message. Otherwise it is stale. Measured
times, hashes, and whether a step was taken from the cache are left out of the comparison.

After an edit during a run, which is made when the inputs were read and nothing is trained, the edit is taken back too:
what that run left in its folder and in the cache must not be taken for a result of the first inputs.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import chaos
from benchmarks.edit_kinds import KINDS, RECIPES, input_of, write
from distill.runtime.storage import atomic
from distill.runtime.versions import hardware

SHARED, ALONE = ("cache.dir=cache",), ("cache.dir=none", "cache.max_gib=0")
REUSED = re.compile(r"^(\S+): made by an earlier run", re.MULTILINE)
MADE = re.compile(r"^(\S+): \d+ s$", re.MULTILINE)
KEPT = re.compile(r"^(\S+(?:, \S+)*): run with .*; kept ", re.MULTILINE)
SKIPPED = {"config.json", "corpus.tokens"}
"""Files in a run folder with settings, of which `output` and the cache differ."""
ENVIRONMENTS = ({"LC_ALL": "C"}, {"TZ": "Asia/Tokyo"}, {"TOKENIZERS_PARALLELISM": "true"}, {"OMP_NUM_THREADS": "2"})
Before = Callable[[list[str]], None]
"""What a run's process does before the run with these settings."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Edit inputs between identical commands, and look for stale results.")
    parser.add_argument("--count", type=int, default=200, help="number of edits")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the rows to FILE, and go on with its rows")
    arguments = parser.parse_args()
    prepare()
    rows = []
    if arguments.output is not None and arguments.output.is_file():
        rows = [row for row in atomic.read_json(arguments.output)["rows"] if row["seed"] == arguments.seed]
    environment = hardware(1)
    with tempfile.TemporaryDirectory(prefix="distill-edits-") as temporary:
        bench = Bench(Path(temporary))
        for number in range(len(rows), arguments.count):
            rng = random.Random(f"{arguments.seed} {number}")
            name = arguments.kinds[number % len(arguments.kinds)]
            recipe = rng.choice(KINDS[name].recipes)
            row = {"number": number, "seed": arguments.seed, "kind": name, "recipe": recipe}
            row |= bench.edited(name, recipe, rng) | {"commit": environment["commit"]}
            rows.append(row)
            print(f"{number}: {recipe}, {name} ({row['edit']}): {_said(row)}", flush=True)
            if arguments.output is not None:
                atomic.write_json(arguments.output, {"environment": environment, "rows": rows})
    stale = [row["number"] for row in rows if any(each["outcome"] == "stale" for each in row["runs"].values())]
    print(f"{len(rows)} edits; stale: {stale or 'none'}")
    sys.exit(bool(stale))


def _said(row: dict[str, Any]) -> str:
    parts = []
    for name, each in row["runs"].items():
        made = f", made {' '.join(each['made']) or 'nothing'}" if each["outcome"] in ("equal", "stale") else ""
        parts.append(f"{name}: {each['outcome']}{made}{''.join(f' [{line}]' for line in each['differs'][:2])}")
    return "; ".join(parts)


def prepare() -> None:
    """Import what runs need, once: each run is a fork of this process, which itself computes nothing."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    import datasets  # noqa: F401
    import transformers.models.bert.modeling_bert  # noqa: F401

    import distill.pipeline.collect
    import distill.pipeline.stages
    import distill.pipeline.validation.preflight  # noqa: F401


class Bench:
    """A folder in which runs are made, always at the same path, and copies of what unedited runs left there."""

    def __init__(self, folder: Path) -> None:
        self.home, self.copies, self._numbers = folder / "home", folder / "copies", count()
        self._seconds: dict[str, float] = {}
        self._alone: tuple[Path, int, str] | None = None
        """Folder, exit code and output of the run of the present inputs without a cache; None before it is made."""
        self._fork(lambda: write(folder / "inputs"), folder)

    def edited(self, name: str, recipe: str, rng: random.Random) -> dict[str, Any]:
        """What became of runs of a recipe after one edit of a kind: a part of a row of the output."""
        kind, at_once = KINDS[name], (name in ("killed", "during"))
        self._alone = None
        self._restore(recipe, finished=not at_once)
        before, said, settings = self._before(name, rng)
        edit, row = Edit(self.home, rng), {}
        if name == "during":
            edit.choose(input_of(recipe, rng), recipe)
            self._run(recipe, "run", *SHARED, before=lambda words: _when_it_begins(edit.apply))
            edit.undo()
            self._alone = self.copies / recipe / "alone", 0, ""
            row["runs"] = {
                f"taken back, {where}": self._compared(recipe, output, before, settings)
                for where, output in (("same folder", "run"), ("same cache", "new"))
            }
            edit.apply()
            self._alone = None
            row |= {"edit": edit.said, "runs": row["runs"] | {"same folder": self._compared(recipe, "run", before, [])}}
        else:
            if name == "killed":
                self._run(recipe, "run", *SHARED, limit=rng.uniform(0.2, 0.9) * self._seconds[recipe])
            row["edit"] = " ".join([kind.edit(self.home, recipe, rng), *said])
            row["runs"] = {"same folder": self._compared(recipe, "run", before, settings)}
            if not at_once:  # the first run has put what it made into the cache
                shutil.rmtree(self.home / "cache", ignore_errors=True)
                if (cached := self.copies / recipe / "cache").is_dir():  # a smoke run has none
                    shutil.copytree(cached, self.home / "cache", symlinks=True)
                if name == "in the cache":
                    row["edit"] += f"; {kind.edit(self.home, recipe, rng)}"
            row["runs"]["same cache"] = self._compared(recipe, "new", before, settings)
        if kind.irrelevant and row["runs"]["same folder"]["made"]:
            row["needless"] = row["runs"]["same folder"]["made"]
        return row

    def _restore(self, recipe: str, finished: bool) -> None:
        """The inputs, with the folder and the cache of an unedited run."""
        copy = self.copies / recipe
        if not copy.is_dir():
            self._to(self.home.with_name("inputs"))
            began = time.monotonic()
            code, said = self._run(recipe, "run", *SHARED)
            self._seconds[recipe] = time.monotonic() - began
            if code != 0:
                raise SystemExit(f"{recipe}: {said}")
            code, said = self._run(recipe, "alone", *ALONE)
            shutil.copytree(self.home, copy, symlinks=True)
        self._to(copy if finished else self.home.with_name("inputs"))

    def _to(self, source: Path) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(source, self.home, symlinks=True)

    def _before(self, name: str, rng: random.Random) -> tuple[Before, list[str], list[str]]:
        """What is edited besides files: (in the process of a run, in words, in its settings)."""
        if name == "environment":
            values = rng.choice(ENVIRONMENTS)
            # In a new process, because most of them are read when Python or a library starts.
            command = [sys.executable, "-m", "distill"]
            before = lambda words: os.execve(command[0], [*command, *words], os.environ | values)  # noqa: E731
            return before, [f"{key}={value}" for key, value in values.items()], []
        if name == "package":
            return lambda words: _other_code(), [], []
        settings = ["seed=5"] if name == "seed" else []
        return lambda words: None, settings, settings

    def _compared(self, recipe: str, output: str, before: Before, settings: list[str]) -> dict[str, Any]:
        """What a run made again, and whether it ended as one in a fresh folder without a cache."""
        code, said = self._run(recipe, output, *SHARED, *settings, before=before)
        row = {"made": MADE.findall(said), "reused": REUSED.findall(said), "differs": list[str]()}
        if self._alone is None:
            fresh = f"fresh{next(self._numbers)}"
            shutil.rmtree(self.home / "none", ignore_errors=True)
            self._alone = self.home / fresh, *self._run(recipe, fresh, *ALONE, *settings, before=before)
        alone, expected, why = self._alone
        if code == 2:
            return row | {"outcome": "refused", "said": said[-300:], "also_alone": expected == 2}
        if code != 0 or expected != 0:
            return row | {
                "outcome": "stale",
                "differs": [f"exit code {code}: {said[-300:]}", f"{expected}: {why[-300:]}"],
            }
        row["differs"] = differences(alone, self.home / output)
        kept = bool(KEPT.search(said))
        return row | {"outcome": "equal" if not row["differs"] else "told" if kept else "stale"}

    def _run(
        self, recipe: str, output: str, *settings: str, before: Before = lambda words: None, limit: float | None = None
    ) -> tuple[int, str]:
        """Exit code and output of a run in a fork."""

        words = [*RECIPES[recipe], f"output={output}", *settings]

        def run() -> None:
            before(words)
            with forked_reload():
                _distill(recipe, words)

        return self._fork(run, self.home, limit)

    def _fork(self, do: Callable[[], None], folder: Path, limit: float | None = None) -> tuple[int, str]:
        folder.mkdir(parents=True, exist_ok=True)
        said = folder.with_name(f"{folder.name}.said")
        code = forked(do, folder, said, limit)
        return code, said.read_text(errors="replace")


class Edit:
    """One edit of an input, which is made and taken back."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.rng, self.said = home, rng, ""

    def choose(self, kind: Any, recipe: str) -> None:
        self.kind, self.recipe, self.state = kind, recipe, self.rng.getstate()
        self.kept = self.home.with_name("before-edit")
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(self.home, self.kept, symlinks=True)

    def apply(self) -> None:
        """Make the edit, in this process or in a fork, always from the inputs as they were."""
        self.undo()
        self.rng.setstate(self.state)
        self.said = self.kind.edit(self.home, self.recipe, self.rng)

    def undo(self) -> None:
        for file in sorted(path for path in self.kept.rglob("*") if path.is_file()):
            shutil.copy2(file, self.home / file.relative_to(self.kept))


def forked(do: Callable[[], None], folder: Path, said: Path, limit: float | None = None) -> int:
    """Exit code of a fork that calls `do` in a folder, with its output in the file `said`; negative for a signal, with
    which it is killed after `limit` seconds."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.chdir(folder)
            stream = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(stream, 1)
            os.dup2(stream, 2)
            do()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    began = time.monotonic()
    while limit is not None and time.monotonic() - began < limit:
        if os.waitpid(child, os.WNOHANG)[0]:
            return 0
        time.sleep(0.01)
    if limit is not None:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _distill(recipe: str, settings: list[str]) -> None:
    """Run distill as `python -m distill` does, with the user's own loss where a recipe has it."""
    from distill import pipeline  # noqa: F401
    from distill.config import instantiate
    from distill.errors import UserError
    from distill.pipeline.run import run

    if recipe == "own loss":
        sys.path.insert(0, os.getcwd())
        sys.dont_write_bytecode = True
        instantiate.PLACES["loss"] = (*instantiate.PLACES["loss"], "outside_loss.scaled")
    try:
        run(*settings)
    except UserError as error:
        print("\n".join(error.messages))
        sys.exit(2)


def _when_it_begins(edit: Callable[[], None]) -> None:
    """Make an edit once the inputs of the run in this process were read and recorded."""
    from distill.pipeline.context.folder import RunFolder

    begin = RunFolder.begin

    def edited(folder: RunFolder, *arguments: Any) -> None:
        begin(folder, *arguments)
        edit()

    RunFolder.begin = edited  # type: ignore[method-assign]


def _other_code() -> None:
    """Let distill have another source: trainings take larger steps."""
    from distill.pipeline.context import fingerprints, keys
    from distill.pipeline.stages import train
    from distill.runtime import versions

    rate, now = train.learning_rate, versions.versions()
    train.learning_rate = lambda *arguments: 3 * rate(*arguments)
    for module in (versions, keys):
        module.versions = lambda: now | {"distill": "another"}  # type: ignore[attr-defined]
    for module in (versions, keys, fingerprints):
        module.source_hash = lambda: "another"  # type: ignore[attr-defined]


@contextmanager
def forked_reload() -> Iterator[None]:
    """Verify saved models in forks of this process, which has imported transformers."""
    from distill.deploy.export import proof, reload

    def run_script(request: str) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "in").write_text(request)

            def script() -> None:
                os.dup2(os.open(Path(name) / "err", os.O_WRONLY | os.O_CREAT), 2)
                sys.stdin = open("in")
                runpy.run_path(str(reload.__file__), run_name="__main__")

            code = forked(script, Path(name), Path(name) / "out")
            return code, (Path(name) / "out").read_text(), (Path(name) / "err").read_text()

    proof.run_script = run_script
    yield


def differences(one: Path, other: Path) -> list[str]:
    """Files that only one of two run folders has, or that differ."""
    ours, theirs = (_contents(folder) for folder in (one, other))
    alone = sorted(ours.keys() ^ theirs.keys())
    return alone + [name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]


def _contents(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] not in SKIPPED and not chaos.SKIPPED.fullmatch(path.name) and ".measured/" not in name:
            found[name] = _without_reuse(chaos.content(path))
    return found


def _without_reuse(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_reuse(each) for key, each in value.items() if key not in ("reused", "versions")}
    return value


if __name__ == "__main__":
    main()
