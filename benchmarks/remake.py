"""Lists the committed results, and makes those that are named again, with the command that each of them contains.

    make results                 # name, rules, version, time and command of every committed run
    make results NAME=own-names  # runs it again, and replaces its results.json
    make results NAME=frontier   # all seeds of it, one after the other

Before a run starts, it says how long the steps took when the result was made, and on which processor. Runs take place
in outputs/again. Those on own files (own-*) take place in outputs/own, and those of benchmarks/kinds.py in
outputs/kinds, where their files and teachers are made first, from ../shared/data and from the docstrings of installed
packages. `distill example` writes the files of `example`. A run that stopped is continued by the same command.
`python benchmarks/results_table.py` then writes the documents anew.
"""

from __future__ import annotations

import argparse
import functools
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import HydraException
from rich.console import Console
from rich.markup import escape

from benchmarks import kinds
from benchmarks.tables.runs import KINDS, RESULTS, ROOT, Runs, keep, minutes, page_of, processor, read
from benchmarks.tables.runs import OWN as OWN_RUNS
from distill.config import load_config
from distill.errors import ConfigError, DataError
from distill.evaluation.results import Results
from distill.report.model_rows import counted
from distill.runtime.storage.atomic import writing

OWN = Path("outputs/own")
"""Where the runs on own files take place."""
DATA, GLUE = "../shared/data", "GLUE as nyu-mll/glue has it"
OF_CODE = ("names", "answers")
"""Files that benchmarks/own_code.py makes; benchmarks/own_csv.py makes the others."""
EXAMPLE = "example"
"""The run on the files that `distill example` writes."""
TEACHERS = {"sentiment": "my-bert", "judged": "my-reranker", "names": "my-tagger", "answers": "my-reader"}
"""File with training rows -> the teacher that is the embedded one fine-tuned on it."""
MADE = {
    "outputs/bert-base": ["-m", "benchmarks.bert_base"],
    "outputs/mpnet-base": ["-m", "benchmarks.base_teacher", "outputs/mpnet-base"],
}
"""Teacher of other runs -> what makes it."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0; that of the command that failed; 2 for a name that is not committed, or cannot be made again."""
    parser = argparse.ArgumentParser(description="List the committed results, or make some of them again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a folder below docs/results")
    names = parser.parse_args(arguments).names
    try:
        runs = read(root)
    except DataError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if unknown := [name for name in names if name not in {*runs, *map(page_of, runs)}]:
        print(f"NAME: got {', '.join(unknown)}; must be of {', '.join(runs)}; choose one of these", file=sys.stderr)
        return 2
    if not names:
        listed(runs)
    for name, results in runs.items():
        if {name, page_of(name)} & {*names} and (code := again(root, name, results)):
            return code
    return 0


def listed(runs: Runs) -> None:
    """Print every run: which rules it was made under, by which version, how long it took, and its command."""
    console = Console(soft_wrap=True)
    for name, results in runs.items():
        commit = str(results.environment.get("commit") or "")
        made = f"distill {results.version}" + (f", commit {commit[:9]}" if commit else "")
        rules = "older rules" if results.older_rules else "current rules"
        console.print(f"[bold]{escape(name)}[/bold]: {escape(f'{rules}, {made}, {took(results)}')}", highlight=False)
        console.print(f"    {escape(results.command)}", highlight=False)
        if lost := gone(results.command):
            console.print(f"    {escape(no_longer(lost))}", highlight=False)


def took(results: Results) -> str:
    """How long all steps of a run took, and on what."""
    where = f"{results.gpu} and {processor(results)}" if results.gpu else processor(results)
    return f"{minutes(results):,.0f} minutes on {where} with {counted(results.threads, 'thread')}"


def settings(command: str) -> list[str]:
    """The settings of a stored command, `python -m distill SETTING ...`."""
    words = shlex.split(command)
    return words[words.index("distill") + 1 :]


def gone(command: str) -> list[str]:
    """The settings of a stored command that cannot be composed today; empty if all of it can."""
    every = tuple(setting for setting in settings(command) if not setting.startswith(("seed=", "output=")))
    kept: tuple[str, ...] = ()
    if _composes(every):
        return []
    for setting in every:
        if _composes((*kept, setting)):
            kept = *kept, setting
    return [setting for setting in every if setting not in kept]


@functools.cache
def _composes(chosen: tuple[str, ...]) -> bool:
    try:
        load_config([*chosen])
    except (ConfigError, HydraException):
        return False
    return True


def no_longer(lost: Sequence[str]) -> str:
    return f"made by settings that no longer exist: {', '.join(lost)}"


def again(root: Path, name: str, results: Results) -> int:
    """Run the command of a committed run, and replace its results. Exit code of the command that failed, or 0."""
    if lost := gone(results.command):
        print(f"NAME: got {name}; {no_longer(lost)}; must be another run; choose one", file=sys.stderr)
        return 2
    print(f"{name}: its steps took {took(results)}", flush=True)
    chosen = settings(results.command)
    given = dict(word.split("=", 1) for word in chosen if "=" in word)
    folder, output = root, f"outputs/again/{name}"
    if name.startswith(OWN_RUNS):
        folder, output = root / OWN, given["output"]
        code = files(folder, Path(given["tasks.train"]).stem)
    elif name.startswith(KINDS):
        folder, output = root / kinds.FOLDER, given["output"]
        code = files_of_kinds()
    elif name == EXAMPLE:
        folder, output = root / "outputs/again", given["output"]
        code = run(root, ["-m", "distill.example", str(folder)])
    else:
        code = teacher(root, given.get("teacher.name", ""))
    words = ["-m", "distill", *(word for word in chosen if not word.startswith("output=")), f"output={output}"]
    if code := code or run(folder, words):
        return code
    keep(folder / output / "results.json", root / RESULTS / name / "results.json")
    return 0


def missing(folder: str, contents: str) -> int:
    """2, with a message, if a folder of data is not there; else 0."""
    if (ROOT / DATA / folder).is_dir():
        return 0
    print(f"{DATA}/{folder}: got no such folder; must be {contents}; put it there", file=sys.stderr)
    return 2


def teacher(root: Path, name: str) -> int:
    """Make a teacher that a benchmark makes, if it is missing."""
    return run(root, MADE[name]) if name in MADE and not (root / name).is_dir() else 0


def files_of_kinds() -> int:
    """Make the files of the runs of benchmarks/kinds.py."""
    code = missing("glue", GLUE) or missing("own", "the files that benchmarks/kinds.py names")
    if code == 0:
        kinds.files((ROOT / DATA).resolve())
    return code


def files(folder: Path, name: str) -> int:
    """Make the files of the runs on own files, and the teacher of the one that is named, if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(f"{name}.*")):
        if name not in OF_CODE and (code := missing("glue", GLUE)):
            return code
        script = ["own_code.py"] if name in OF_CODE else ["own_csv.py", str((ROOT / DATA / "glue").resolve())]
        with tempfile.TemporaryDirectory(dir=folder) as made:  # a script that is stopped leaves no file
            if code := run(Path(made), [str(ROOT / "benchmarks" / script[0]), *script[1:]]):
                return code
            for file in Path(made).iterdir():
                file.replace(folder / file.name)
    if name not in TEACHERS or (folder / TEACHERS[name]).is_dir():
        return 0
    train, test = (next(folder.glob(f"{name}{end}.*")).name for end in ("", "_test"))
    overrides = [f"tasks.train={train}", f"tasks.test={test}", "target.speedup=null", f"output={name}_teacher"]
    overrides += ["stages.finetune_teacher.min_steps=0", "pipeline=[finetune_teacher]"]
    code = run(folder, ["-m", "distill", "recipe=prune", *overrides])
    if code == 0:
        with writing(folder / TEACHERS[name]) as new:
            shutil.copytree(folder / f"{name}_teacher" / "finetune_teacher" / name, new, dirs_exist_ok=True)
    return code


def run(folder: Path, arguments: Sequence[str]) -> int:
    """Exit code of this Python with these arguments, in a folder."""
    print(f"$ python {shlex.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, *arguments], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
