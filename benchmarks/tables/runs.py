"""The committed runs, by name: a folder below docs/results. Facts about them that several tables show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace as replaced

from distill.errors import DataError
from distill.evaluation.results import Model, Results
from distill.report import overview, read_one
from distill.report.table import number
from distill.runtime.storage.atomic import write_text

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path("docs/results")
OWN, COMPRESSION = "own-", "frontier/"
"""Beginnings of the names of runs on a user's own files, and of one recipe with several seeds."""
LEVERS, ABLATION = "levers/", "ablation/"
"""Beginnings of the names of runs that differ in one setting of the recovery, of two groups: GROUP/SETTING/SEED."""
RECIPES = "recipes/"
"""Beginning of the names of runs that benchmarks/methods.py made: recipes/METHOD/SEED."""
KINDS = "kinds/"
"""Beginning of the names of runs that benchmarks/kinds.py made: kinds/KIND/SEED."""
BASE = "base/"
"""Beginning of the names of runs that benchmarks/base.py made: base/TASK-SPEEDUP/SEED, with a teacher of base size."""
OTHER_BASELINE = "stages.evaluate.baseline=drop"
"""In the commands of runs of benchmarks/methods.py, whose baseline is the student of recipe=layer_drop."""
ON_LABELS = "stages.recover.terms.soft_targets.weight=0 stages.recover.terms.supervised.weight=1"
"""In the command of the method `labels`, whose student learns from no teacher."""
FETCHED = "teacher.name=outputs/mpnet-base"
"""In the commands of these runs."""
PRUNING = "pruning/"
"""Beginning of the names of runs whose pruning methods are compared with each other."""
FROM_TEACHER, CHAIN = "cut-from-the-teacher/", "chain/"
"""Beginnings of the names of runs that prune to several targets, from the teacher and one from the other."""
RENAMED = {"per_cut": "scale_with_compression"}
"""Name of a setting in committed commands -> its name today."""
EXAMPLE = re.compile(r""", e\.g\. (?:'|\\").*(?:'|\\")(?=",?$)""", re.MULTILINE)
"""A row that a note shows, in a line of JSON. The project has no rows of data sets."""
Runs = dict[str, Results]
"""Name -> results."""


def keep(made: Path, kept: Path) -> None:
    """Copy the results of a run to where results are committed, without rows of data sets."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, EXAMPLE.sub("", made.read_text(encoding="utf-8")))


def read(root: Path) -> Runs:
    """Name -> results of every committed run, those of a page by their seeds; DataError for an invalid one."""
    paths = sorted((root / RESULTS).rglob("results.json"))
    found = {name_of(root, path.parent): _today(path) for path in paths}
    pages = [*map(page_of, found)]
    return dict(sorted(found.items(), key=lambda item: (pages.index(page_of(item[0])), item[1].seeds)))


def _today(path: Path) -> Results:
    """The results of a run, whose command has today's names of settings. A teacher that benchmarks/base_teacher.py
    fetched has the name of its model, and not that of its folder, which another model has too."""
    results = read_one(path)
    command = results.command
    if OTHER_BASELINE in command:  # records of that time say neither
        untaught = True if ON_LABELS in command else results.untaught
        results = replaced(results, own_baseline=True, untaught=untaught)
    if FETCHED in command:
        results = replaced(results, teacher_name="all-mpnet-base-v2 (from benchmarks/base_teacher.py)")
    for before, now in RENAMED.items():
        command = re.sub(rf"\.{before}\b", f".{now}", command)
    return replaced(results, command=command)


def name_of(root: Path, folder: Path) -> str:
    """The folder of a run, relative to the folder of all results."""
    place, above = (root / folder).resolve(), (root / RESULTS).resolve()
    if not place.is_relative_to(above):
        raise DataError(f"{folder}: got a folder elsewhere; must be a run below {RESULTS}; e.g. {RESULTS}/NAME")
    return place.relative_to(above).as_posix()


def page_of(name: str) -> str:
    """The folder of the page of a run: that of the run, or the one above if the run is one seed of several."""
    return re.sub(r"/seed\d+$", "", name)


def of_pages(runs: Runs) -> dict[str, Runs]:
    """Name of each page -> its runs, by their seeds."""
    found: dict[str, Runs] = {}
    for name, results in runs.items():
        found.setdefault(page_of(name), {})[name] = results
    return found


def pictured(runs: Runs) -> Runs:
    """The runs that have a picture of their own: all but those of tables of single students."""
    return {name: results for name, results in runs.items() if not name.startswith((LEVERS, ABLATION, RECIPES))}


def pruned(runs: Runs) -> list[Results]:
    """The runs whose pruning methods are compared with each other."""
    return [results for name, results in runs.items() if name.startswith(PRUNING) and results.pruned]


def compressed(runs: Runs) -> list[Results]:
    """The runs of one recipe with several seeds."""
    return [results for name, results in runs.items() if name.startswith(COMPRESSION)]


def older_rules(names: Sequence[str], runs: Runs) -> list[str]:
    """For each sentence on older rules, a note that names the runs that were made under them."""
    older: dict[str, list[str]] = {}
    for name in names:
        if runs[name].older_rules:
            older.setdefault(runs[name].older_rules, []).append(name)
    return [f"{', '.join(made)}: {text[0].lower()}{text[1:]}" for text, made in older.items()]


def seeds(runs: Sequence[Results]) -> str:
    return ", ".join(str(seed) for run in runs for seed in run.seeds)


def minutes(results: Results) -> float:
    """What all steps of a run took, those included that an earlier run made."""
    return sum(stage.seconds or 0.0 for stage in results.stages) / 60


def processor(results: Results) -> str:
    """The processor, and whether it has matrix units for bf16 and int8."""
    environment = results.environment
    units = ", AMX" if "amx_int8" in str(environment.get("cpu_flags") or "").split() else ""
    return str(environment["cpu"]).replace("(R)", "").removesuffix(" Processor") + units


def served(results: Results, target: str | None) -> tuple[Model | None, Model | None]:
    """Student and baseline of a target in the variant that the search timed; None where the run has none."""
    cut = next((row for row in results.pruned if row.target == target), None)
    variant = (target, cut.backend, cut.scheme) if cut else ()
    by_role = {m.role: m for m in results.models if (m.target, m.backend, m.scheme) == variant}
    return by_role.get("student"), by_role.get("baseline")


def speed(target: str) -> float:
    return float(target.removesuffix("x"))


def asked(results: Results, target: str | None) -> float | None:
    """The speedup of a target; of a run with a single one, which is not named, that of the command, if any."""
    if target is not None:
        return speed(target)
    single = re.findall(r"target\.speedup=\[?([\d.]+)\]?(?:\s|$)", overview.settings(results))
    return float(single[-1]) if single else None


def trained(results: Results) -> str:
    """As `overview.trained`, without the pipeline: those of the committed seeds of a page differ only in the steps of
    the baseline. Of a user's runs this is not known."""
    return " ".join(word for word in overview.trained(results).split() if not word.startswith("pipeline="))


def shape(results: Results, target: str | None) -> str:
    found = next((row for row in results.pruned if row.target == target), None)
    return "-" if found is None else f"{found.layers} x {found.hidden} x {found.ffn}"


def float32_student(model: Model) -> bool:
    return (model.role, model.backend, model.scheme) == ("student", "torch", "fp32")


def worst(models: Sequence[Model]) -> str:
    """The task of which each seed's model retains the least, and how many percent of the teacher's score these are, in
    the order of the models; the task is named once where it is that of all."""
    found = [model.retained.worst if model.retained else None for model in models]
    tasks = {each.task for each in found if each}
    if len(tasks) != 1:
        return ", ".join(f"{each.task} {number(each.percent)}" if each else "-" for each in found) or "-"
    return f"{tasks.pop()} {', '.join(number(each.percent) if each else '-' for each in found)}"


def above(models: Sequence[Model | None]) -> str:
    above, _ = overview.measured([model for model in models if model is not None], "above_chance")
    return f", above chance {number(fmean(above))}" if above else ""
