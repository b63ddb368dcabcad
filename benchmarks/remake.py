"""Lists the committed results, and makes those that are named again, with the command that each of them contains.

    make results                                  # name, rules, version and command of every committed run
    make results RUNS="own-names glue-distilbert" # runs them again, and replaces their results.json

The runs on own files (own-*) take place in outputs/own, where their files and teachers are made first, from GLUE in
../shared/data/glue and from the docstrings of installed packages; the other runs take place here. A run that stopped is
continued by the same command. `python benchmarks/results_table.py` then writes the documents anew.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks.tables.runs import KINDS, RESULTS, ROOT, read
from benchmarks.tables.runs import OWN as OWN_RUNS
from distill.errors import DataError
from distill.evaluation.results import Results
from distill.runtime.storage.atomic import write_bytes, writing

OWN = Path("outputs/own")
"""Where the runs on own files take place."""
GLUE = "../shared/data/glue"
OF_CODE = ("names", "answers")
"""Files that benchmarks/own_code.py makes; benchmarks/own_csv.py makes the others."""
TEACHERS = {"sentiment": "my-bert", "judged": "my-reranker", "names": "my-tagger", "answers": "my-reader"}
"""File with training rows -> the teacher that is the embedded one fine-tuned on it."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0; that of the command that failed; 2 for a name that is not committed."""
    parser = argparse.ArgumentParser(description="List the committed results, or make some of them again.")
    parser.add_argument("runs", nargs="*", metavar="NAME", help="a folder below docs/results")
    names = parser.parse_args(arguments).runs
    try:
        runs = read(root)
    except DataError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if unknown := [name for name in names if name not in runs]:
        print(f"RUNS: got {', '.join(unknown)}; must be of {', '.join(runs)}", file=sys.stderr)
        return 2
    if not names:
        listed(runs)
    if elsewhere := [name for name in names if name.startswith(KINDS)]:
        print(f"RUNS: got {', '.join(elsewhere)}; must be other runs; use python -m benchmarks.kinds", file=sys.stderr)
        return 2
    for name in names:
        if code := again(root, name, runs[name]):
            return code
    return 0


def listed(runs: dict[str, Results]) -> None:
    """Print every run: which rules it was made under, by which version, and its command."""
    console = Console(soft_wrap=True)
    for name, results in runs.items():
        commit = str(results.environment.get("commit") or "")
        made = f"distill {results.version}" + (f", commit {commit[:9]}" if commit else "")
        rules = "older rules" if results.older_rules else "current rules"
        console.print(f"[bold]{escape(name)}[/bold]: {rules}, {made}")
        console.print(f"    {escape(results.command)}", highlight=False)


def again(root: Path, name: str, results: Results) -> int:
    """Run the command of a committed run, and replace its results. Exit code of the command that failed, or 0."""
    command = shlex.split(results.command)
    given = dict(word.split("=", 1) for word in command if "=" in word)
    folder = root
    if name.startswith(OWN_RUNS):
        folder = root / OWN
        if code := files(folder, Path(given["tasks.train"]).stem):
            return code
    output = f"outputs/again/{name}" if folder == root else given["output"]
    if code := run(folder, [*(word for word in command[1:] if not word.startswith("output=")), f"output={output}"]):
        return code
    made = (folder / output / "results.json").read_bytes()
    write_bytes(root / RESULTS / name / "results.json", made)
    return 0


def files(folder: Path, name: str) -> int:
    """Make the files of the runs on own files, and the teacher of the one that is named, if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(f"{name}.*")):
        glue = (ROOT / GLUE).resolve()
        if name not in OF_CODE and not glue.is_dir():
            print(f"{GLUE}: got no such folder; must be GLUE as nyu-mll/glue has it; put it there", file=sys.stderr)
            return 2
        script = ["own_code.py"] if name in OF_CODE else ["own_csv.py", str(glue)]
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
