"""Results in the documents, generated from the committed JSON: no number is typed by hand.

    python benchmarks/results_table.py docs/results/frontier/seed0   # README.md shows this run, over its seeds
    python benchmarks/results_table.py --check                       # exit code 1 if a document differs

Reads every results.json below docs/results, and the files of benchmarks in benchmarks/results. Writes
docs/results/README.md, the picture of each run, and README.md and the pages of docs/ between their markers. Without the
name of a run, the table in README.md stays that of the same run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from msgspec.structs import replace as replaced

from benchmarks.openings_table import openings_page
from distill.config.baselines import BASELINE, SELF_TRAINED
from distill.config.typed import RENAMED
from distill.errors import DataError
from distill.evaluation.results import Model, Results
from distill.report import (
    figure,
    footnotes,
    headline,
    markdown,
    overview,
    page,
    pruning_table,
    read_one,
    timed,
    verdict,
)
from distill.report.page import Block, Bullets, Heading, Paragraph, Picture
from distill.report.table import Table, models_table, number, times, with_interval
from distill.runtime.storage.atomic import read_json, write_bytes, write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS, BENCHMARKS = Path("docs/results"), Path("benchmarks/results")
OWN, COMPRESSION = "own-", "frontier/"
"""Beginnings of the names of runs on a user's own files, and of one recipe with several seeds."""
LEVERS, ABLATION = "levers/", "ablation/"
"""Beginnings of the names of runs that differ in one setting of the recovery, of two groups: GROUP/SETTING/SEED."""
KINDS = "kinds/"
"""Beginning of the names of runs that benchmarks/kinds.py made: kinds/KIND/SEED."""
FROM_TEACHER, CHAIN = "cut-from-the-teacher/", "chain/"
"""Beginnings of the names of runs that prune to several targets, from the teacher and one from the other."""
README, COMPRESSING, FINDINGS = Path("README.md"), Path("docs/compressing.md"), Path("docs/findings.md")
PERFORMANCE, RELIABILITY = Path("docs/performance.md"), Path("docs/reliability.md")
MEASURING = Path("docs/measuring.md")
OF_A_PAGE = "results/README.md"
"""The page of all runs, as the pages of docs/ link to it."""
PICTURE = "frontier.png"
"""PNG on white: a transparent SVG is unreadable on a dark page."""
PRUNED, COMPRESSED = "pruned.png", "compressed.png"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0; 1 if --check finds a document that differs; 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description="Generate the results in the documents from the committed JSON.")
    parser.add_argument("run", nargs="?", type=Path, help=f"run that README.md shows, e.g. {RESULTS}/NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a document differs")
    asked = parser.parse_args(arguments)
    try:
        runs = read(root)
        texts = documents(root, runs, _name(root, asked.run) if asked.run else None)
    except DataError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if asked.check:
        wrong = differing(root, runs, texts)
        for path in wrong:
            print(f"{path}: differs from the results; run python benchmarks/results_table.py", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in texts.items():
        write_text(root / path, text)
    for name, results in _shown(runs).items():
        over, below = headline.reference(results), figure.second(results)
        png = figure.png(figure.points(results), bool(results.smoke), over, below)
        write_bytes(root / RESULTS / name / PICTURE, png)
    if points := pruning_table.points(_pruned(runs)):
        write_bytes(root / RESULTS / PRUNED, figure.png(points, over="the unpruned model"))
    if entries := overview.entries(_compressed(runs), _trained):
        write_bytes(root / RESULTS / COMPRESSED, figure.png(overview.points(entries)))
    return 0


def read(root: Path) -> dict[str, Results]:
    """Name -> results of every committed run; DataError for an invalid one."""
    return {_name(root, path.parent): _today(path) for path in sorted((root / RESULTS).rglob("results.json"))}


def _today(path: Path) -> Results:
    """The results of a run, whose command has today's names of settings."""
    results = read_one(path)
    command = results.command
    for before, now in RENAMED.items():
        command = re.sub(rf"\.{before}\b", f".{now}", command)
    return replaced(results, command=command)


def _name(root: Path, folder: Path) -> str:
    """The folder of a run, relative to the folder of all results."""
    place, above = (root / folder).resolve(), (root / RESULTS).resolve()
    if not place.is_relative_to(above):
        raise DataError(f"{folder}: got a folder elsewhere; must be a run below {RESULTS}; e.g. {RESULTS}/NAME")
    return place.relative_to(above).as_posix()


def documents(root: Path, runs: dict[str, Results], shown: str | None) -> dict[Path, str]:
    """Path below `root` -> text of each document. `shown` is the run README.md shows."""
    names = (README, COMPRESSING, FINDINGS, PERFORMANCE, RELIABILITY, MEASURING)
    texts = {name: (root / name).read_text(encoding="utf-8") for name in names}
    if shown is None:
        link = re.search(rf"{RESULTS}/([^)]+)/results\.json", texts[README])
        shown = link[1] if link and link[1] in runs else next(iter(runs), None)
    elif shown not in runs:
        known = ", ".join(runs) or "none"
        raise DataError(f"{RESULTS / shown}/results.json: got no such file; must be a committed run; choose of {known}")
    parts = {
        (README, "results"): "No result is committed yet." if shown is None else front_part(shown, runs),
        (MEASURING, "own"): own_part(runs),
        (MEASURING, "compressed"): compressed_part(
            _compressed(runs), _older_rules([name for name in runs if name.startswith(COMPRESSION)], runs)
        ),
        (MEASURING, "kinds"): kinds_part(runs),
        (FINDINGS, "chain"): chain_part(runs),
        (FINDINGS, "levers"): levers_part(runs, LEVERS),
        (FINDINGS, "ablation"): levers_part(runs, ABLATION),
    }
    for name, (document, table) in _MEASUREMENTS.items():
        file = root / BENCHMARKS / f"{name}.json"
        parts[document, name] = measured_part(table(read_json(file))) if file.is_file() else "Not measured yet."
    for (document, name), content in parts.items():
        texts[document] = between(document, texts[document], name, content)
    texts[RESULTS / "openings.md"] = openings_page(runs)
    return texts | {RESULTS / "README.md": results_page(_shown(runs))}


def _shown(runs: dict[str, Results]) -> dict[str, Results]:
    """The runs that have a section and a picture of their own: all but those of two tables in docs/findings.md."""
    return {name: results for name, results in runs.items() if not name.startswith((LEVERS, ABLATION))}


def differing(root: Path, runs: dict[str, Results], texts: dict[Path, str]) -> list[Path]:
    """Documents whose text differs, and missing pictures. Pictures are not compared: their bytes depend on fonts."""
    wrong = [p for p, text in texts.items() if not (root / p).is_file() or (root / p).read_text("utf-8") != text]
    pictures = [RESULTS / name / PICTURE for name in _shown(runs)]
    pictures += [RESULTS / PRUNED] if pruning_table.points(_pruned(runs)) else []
    pictures += [RESULTS / COMPRESSED] if _compressed(runs) else []
    return wrong + [path for path in pictures if not (root / path).is_file()]


def between(document: Path, text: str, name: str, content: str) -> str:
    """`text`, that of `document`, with `content` between the markers with this name."""
    before, begin, rest = text.partition(f"<!-- {name}:begin -->")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not end:
        raise DataError(f"{document}: got no {name} markers; must have <!-- {name}:begin --> and <!-- {name}:end -->")
    return f"{before}{begin}\n{content}\n{end}{after}"


def front_part(name: str, runs: dict[str, Results]) -> str:
    """The table of README.md: the teacher, the same in the variant of the first student, and the students of the
    slowest and of the fastest target. Over the seeds of the run `name`, with its command."""
    beside = [run for other, run in runs.items() if Path(other).parent == Path(name).parent]
    seeds = next(group for group in overview.grouped(beside, _trained) if any(run is runs[name] for run in group))
    asked = headline.targets(runs[name]) or [None]
    ends = list(dict.fromkeys((asked[0], asked[-1])))
    students = {target: [_student(run, target) for run in seeds] for target in ends}
    variant = headline.variant(students[ends[0]][0])
    teachers = [m for run in seeds for m in headline.of_role(run, "teacher") if headline.variant(m) == variant]
    # The reference of both ratios: what it retains, and its speedup, are 1 by definition.
    rows = [("Teacher, float32", number(100), number(100), times(1)), _front_row(f"Teacher, {variant} only", teachers)]
    rows += [
        _front_row(f"Student{'' if target is None else f' for {target}'}, {headline.variant(models[0])}", models)
        for target, models in students.items()
    ]
    columns = ("Model", "Retained %", "Retained above chance %", "Measured speedup")
    table = measured_part(Table("Front", columns, rows, 1, _front_notes(runs[name], seeds, ends)))
    command = re.sub(r"\btasks\.path=\S+", "tasks.path=GLUE", runs[name].command)
    links = (
        f"All variants, tasks and intervals: [{RESULTS}]({RESULTS}/README.md#{name.replace('/', '')}). "
        f"Numbers: [results.json]({RESULTS / name}/results.json). "
        f"Command of seed {', '.join(map(str, runs[name].seeds))}, where GLUE is the folder of its files:"
    )
    warning = markdown.text(page.banner(bool(runs[name].smoke))).lstrip("\n")
    return f"{warning}{table}\n\n{links}\n\n{markdown.text(page.command(command))}".rstrip("\n")


def _student(results: Results, target: str | None) -> Model:
    """The student of a target in the variant that the search timed; in its fastest variant if none was searched."""
    student = _served(results, target)[0] or headline.chosen(results, target)
    if student is None:
        raise DataError(f"{RESULTS}: got a run without one; must have a student to be in {README}; name another run")
    return student


def _front_row(name: str, models: Sequence[Model]) -> tuple[str, ...]:
    """A row of README's table: mean ± standard deviation over seeds."""
    above = overview.values([model.retained.above_chance for model in models if model.retained])
    return (
        name,
        overview.mean(overview.values([*map(headline.retained, models)]), number, 1),
        overview.mean(above, number, 1),
        overview.mean(overview.values([*map(headline.speedup, models)]), times, 2),
    )


def _front_notes(shown: Results, seeds: Sequence[Results], targets: Sequence[str | None]) -> list[str]:
    """What README's table covers, the machine, and the students without a teacher."""
    numbers = [str(seed) for run in seeds for seed in run.seeds]
    spread = f"Mean ± standard deviation over seeds {', '.join(numbers)}" if len(numbers) > 1 else f"Seed {numbers[0]}"
    controls = [
        f"{overview.mean(overview.values([*map(headline.retained, found)]), number, 1)}%"
        f"{'' if target is None else f' for {target}'} ({headline.counted(len(found), 'seed')})"
        for target in targets
        if (found := [m for run in seeds if (m := _served(run, target)[1]) is not None])
    ]
    return [
        f"{headline.average_name(shown)}: {', '.join(headline.task_names(shown))}. Teacher: {shown.teacher_name}, "
        f"fine-tuned. Measured speedup: over {headline.reference(shown)}. {spread}; {_processor(shown)}, "
        f"{headline.counted(shown.threads, 'thread')}.",
        *([f"Without a teacher the same students retain {' and '.join(controls)}."] if controls else []),
        *(["Made under older rules."] if any(run.older_rules for run in seeds) else []),
    ]


def own_part(runs: dict[str, Results]) -> str:
    """The students of runs on own files under the current rules, as in the headline, and the gain over the same ones
    without a teacher."""
    rows = []
    own = {name: results for name, results in runs.items() if name.startswith(OWN)}
    older = [name for name, results in own.items() if results.older_rules]
    for name, results in own.items():
        for target in headline.targets(results) if name not in older else []:
            student = headline.chosen(results, target)
            if student is None:
                continue
            rows.append(
                (
                    f"[{name}]({OF_A_PAGE}#{name})",
                    ", ".join(metric for scores in (student.scores or {}).values() for metric in scores),
                    f"{student.name}, {student.backend} {student.scheme}",
                    with_interval(number(headline.retained(student)), headline.interval(student, "retained"), 1),
                    with_interval(times(headline.speedup(student)), headline.interval(student, "speedup"), 2)
                    + timed.at([timed.reported_input(results)]),
                    _gain(results, target),
                )
            )
    columns = ("Run", "Score", "Student", "Retained % [95%]", "Speedup [95%]", "Gain by distillation")
    notes = [
        f"The fastest variant of each target's student, one seed. Speedup: over {headline.REFERENCE}. Gain by "
        "distillation: retained percentage points over the same student trained without a teacher, if the run has it.",
        *([f"Made under older rules, and only in [{RESULTS}]({OF_A_PAGE}): {', '.join(older)}."] if older else []),
    ]
    return measured_part(Table("Own files", columns, rows, 3, notes)) if rows else "No run is committed yet."


def _gain(results: Results, target: str | None) -> str:
    """Retained percentage points of a student over its baseline, and whether the report's test finds a difference."""
    both = headline.pair(results, target)
    if both is None:
        return "-"
    student, baseline = ((headline.retained(model) or 0.0) for model in both)
    test = verdict.between(results, *both)
    unclear = f", {verdict.word(test)}" if test is not None and not test.distinguishable else ""
    return f"{student - baseline:+.1f}{unclear}"


def kinds_part(runs: dict[str, Results]) -> str:
    """A row for each kind of task and target, over seeds: the teacher's and the student's fastest variants, and the
    controls in the variant that is compared with them."""
    kinds: dict[str, list[Results]] = {}
    for name, results in runs.items():
        if name.startswith(KINDS):
            kinds.setdefault(name.split("/")[1], []).append(results)
    rows: list[tuple[str, ...]] = []
    for kind, made in kinds.items():
        for group in overview.grouped(made, _trained):
            whole = [model for run in group if (model := headline.reference_teacher(run)) is not None]
            rows += [_kind_row(kind, target, group, whole) for target in headline.targets(group[0]) if whole]
    columns = (
        *("Kind", "Target", "Score", "Teacher", "Teacher, fastest form", "Student, fastest form"),
        *("Without a teacher", "Self-trained", "Seeds"),
    )
    notes = [
        "Teacher: its score in float32. Then retained % at measured speedup over the teacher's fastest float32 "
        "variant, and retained % of the two controls, in the student's form or, where they have none in it, in the "
        "first form that both have. Mean ± standard deviation over runs of one machine."
    ]
    return measured_part(Table("Kinds", columns, rows, 3, notes)) if rows else "No run is committed yet."


def _kind_row(kind: str, target: str | None, group: Sequence[Results], whole: Sequence[Model]) -> tuple[str, ...]:
    """A row of `kinds_part`. whole: the teachers in float32."""
    teachers = [headline.fastest(run, _measured(headline.of_role(run, "teacher"))) for run in group]
    controls = [
        [both[1] for run in group if (both := headline.pair(run, target, role)) is not None]
        for role in (BASELINE, SELF_TRAINED)
    ]
    return (
        kind,
        target or "-",
        ", ".join(metric for scores in (whole[0].scores or {}).values() for metric in scores),
        overview.mean(overview.values([model.macro for model in whole]), number, 1),
        _both(teachers),
        _both([headline.chosen(run, target) for run in group]),
        *(overview.mean(overview.values([*map(headline.retained, of)]), number, 1) for of in controls),
        ", ".join(str(seed) for run in group for seed in run.seeds),
    )


def _measured(models: Sequence[Model]) -> list[Model]:
    """Those with a score that are compared with the teacher's float32."""
    return [model for model in models if not model.failed and headline.retained(model) is not None]


def _both(models: Sequence[Model | None]) -> str:
    """Retained % at speedup, over runs."""
    found = [model for model in models if model is not None]
    retained = overview.mean(overview.values([*map(headline.retained, found)]), number, 1)
    return f"{retained} at {overview.mean(overview.values([*map(headline.speedup, found)]), times, 2)}"


def _older_rules(names: Sequence[str], runs: dict[str, Results]) -> list[str]:
    """For each sentence on older rules, a note that names the runs that were made under them."""
    older: dict[str, list[str]] = {}
    for name in names:
        if runs[name].older_rules:
            older.setdefault(runs[name].older_rules, []).append(name)
    return [f"{', '.join(made)}: {text[0].lower()}{text[1:]}" for text, made in older.items()]


def compressed_part(runs: Sequence[Results], notes_on_rules: Sequence[str]) -> str:
    """A row for each target: the student and its baseline over seeds, in the variant that the search timed."""
    rows: list[tuple[str, ...]] = []
    for group in overview.grouped(runs, _trained):
        targets = dict.fromkeys((_asked(run, target), target) for run in group for target in headline.targets(run))
        for speedup, target in targets:
            if speedup is None:
                continue
            of_runs = [(run, *_served(run, target)) for run in group]
            students = [student for _, student, _ in of_runs if student is not None]
            baselines = [baseline for _, _, baseline in of_runs if baseline is not None]
            rows.append(
                (
                    f"{speedup:g}x",
                    ", ".join(dict.fromkeys(map(headline.variant, students))),
                    _retained(students),
                    _retained(baselines)
                    + ("" if len(baselines) in (0, len(students)) else f" ({len(baselines)} seeds)"),
                    "; ".join(text for models in of_runs for text in _gained(*models)) or "-",
                    overview.mean(overview.values([*map(headline.speedup, students)]), times, 2),
                    ", ".join(dict.fromkeys(_shape(run, target) for run, *_ in of_runs)),
                    _processor(group[0]),
                    ", ".join(str(seed) for run, student, _ in of_runs if student is not None for seed in run.seeds),
                )
            )
    rows.sort(key=lambda row: _times(row[0]))
    columns = (
        *("Target", "Variant", "Retained %", "Without a teacher", "Gain in score", "Speedup", "Shape"),
        *("Processor", "Seeds"),
    )
    notes = [
        "Variant: the one for which the shape was searched. Without a teacher: retained % of the same model, pruned in "
        "the same way and trained without a teacher. Gain in score: points of the macro score over that model, of each "
        "seed that has it, in order, with the 95% interval over rows. Speedup: over "
        f"{headline.REFERENCE} at the tasks' own lengths. Several seeds: mean ± standard deviation over runs. Shape: "
        "layers x hidden channels x FFN channels.",
        *notes_on_rules,
    ]
    return measured_part(Table("Curve", columns, rows, 2, notes)) if rows else "No result is committed yet."


def _times(target: str) -> float:
    return float(target.removesuffix("x"))


def _asked(results: Results, target: str | None) -> float | None:
    """The speedup of a target; of a run with a single one, which is not named, that of the command, if any."""
    if target is not None:
        return _times(target)
    settings = [word for word in overview.settings(results).split() if word.startswith("target.speedup=")]
    return float(settings[-1].partition("=")[2].strip("[]")) if settings else None


def _processor(results: Results) -> str:
    """The processor, and whether it has matrix units for bf16 and int8."""
    environment = results.environment
    units = ", AMX" if "amx_int8" in str(environment.get("cpu_flags") or "").split() else ""
    return str(environment["cpu"]).replace("(R)", "").removesuffix(" Processor") + units


def _served(results: Results, target: str | None) -> tuple[Model | None, Model | None]:
    """Student and baseline of a target in the variant that the search timed; None where the run has none."""
    cut = next((row for row in results.pruned if row.target == target), None)
    variant = (target, cut.backend, cut.scheme) if cut else ()
    by_role = {m.role: m for m in results.models if (m.target, m.backend, m.scheme) == variant}
    return by_role.get("student"), by_role.get("baseline")


def _trained(results: Results) -> str:
    """As `overview.settings`, without settings that change only which models of a run the report compares."""
    return " ".join(w for w in overview.settings(results).split() if not w.startswith(overview.OF_THE_REPORT))


def _retained(models: Sequence[Model]) -> str:
    """Mean ± standard deviation over seeds; of one seed, with the 95% interval over rows."""
    known = overview.values([*map(headline.retained, models)])
    if len(known) == 1:
        return with_interval(number(known[0]), headline.interval(models[0], "retained"), 1)
    return overview.mean(known, number, 1)


def _gained(results: Results, student: Model | None, baseline: Model | None) -> list[str]:
    """The difference of the macro scores, with the 95% interval over rows; empty if it was not tested."""
    test = verdict.between(results, student, baseline) if student is not None and baseline is not None else None
    return [] if test is None else [f"{test.difference:+.1f} [{', '.join(f'{end:+.1f}' for end in test.ci95 or ())}]"]


def levers_part(runs: dict[str, Results], beginning: str) -> str:
    """A row for each setting of the recovery in a group of runs, over its seeds: what the student in torch float32
    retains."""
    groups: dict[str, list[Results]] = {}
    for name, results in runs.items():
        if name.startswith(beginning):
            groups.setdefault(name.split("/")[1], []).append(results)
    rows, tasks = [], list(dict.fromkeys(task for group in groups.values() for task in headline.task_names(group[0])))
    for lever, group in groups.items():
        students = [next(m for m in run.models if _float32_student(m)) for run in group]
        apart = overview.values([headline.development(student) for student in students])
        scores = [[fmean((student.scores or {})[task].values()) for student in students] for task in tasks]
        rows.append(
            (
                lever.replace("-", " "),
                overview.mean(apart, number, 1),
                overview.mean(overview.values([headline.retained(student) for student in students]), number, 1),
                *(overview.mean(of_task, number, 1) for of_task in scores),
                ", ".join(str(seed) for run in group for seed in run.seeds),
            )
        )
    columns = ("Recovery", "Retained %, development", "Retained %, reported", *tasks, "Seeds")
    notes = [
        "Of the student in torch float32: retained % of the teacher's macro score on the development rows, on which "
        "choices are made, and on the reported rows; for each task the mean of its metrics on the reported rows. "
        "Several seeds: mean ± standard deviation over runs."
    ]
    return measured_part(Table("Recovery", columns, rows, 1, notes)) if rows else "No run is committed yet."


def chain_part(runs: dict[str, Results]) -> str:
    """A row for each target that was pruned to in both ways, and way: what the student's fastest variant retains."""
    found: dict[tuple[str, str], list[tuple[Results, Model]]] = {}
    for name, results in runs.items():
        for way, title in ((FROM_TEACHER, "the teacher"), (CHAIN, "the student before it")):
            for target in headline.targets(results) if name.startswith(way) else ():
                if target is not None and (student := headline.chosen(results, target)) is not None:
                    found.setdefault((target, title), []).append((results, student))
    both = [key for key in found if {title for target, title in found if target == key[0]} > {key[1]}]
    rows = []
    for target, title in sorted(both, key=lambda key: (_times(key[0]), key[1] != "the teacher")):
        every, students = zip(*found[target, title], strict=True)
        rows.append(
            (
                target,
                title,
                overview.mean(overview.values([*map(headline.retained, students)]), number, 1),
                overview.mean(overview.values([*map(headline.speedup, students)]), times, 2),
                ", ".join(dict.fromkeys(map(headline.variant, students))),
                ", ".join(_shape(results, target) for results in every),
                ", ".join(str(seed) for results in every for seed in results.seeds),
            )
        )
    columns = ("Target", "Cut from", "Retained %", "Speedup", "Variant", "Shape", "Seeds")
    notes = [
        "The student's fastest variant: retained % of the teacher's macro score on the reported rows, and speedup over "
        f"{headline.REFERENCE} at the tasks' own lengths. Shape: layers x hidden channels x FFN channels. Several "
        "seeds: mean ± standard deviation over runs."
    ]
    return measured_part(Table("Chain", columns, rows, 2, notes)) if rows else "No run is committed yet."


def _shape(results: Results, target: str | None) -> str:
    found = next((row for row in results.pruned if row.target == target), None)
    return "-" if found is None else f"{found.layers} x {found.hidden} x {found.ffn}"


def _float32_student(model: Model) -> bool:
    return (model.role, model.backend, model.scheme) == ("student", "torch", "fp32")


def results_page(runs: dict[str, Results]) -> str:
    """A section for every run."""
    blocks: list[Block] = [
        Heading("Results", 1),
        Paragraph("Generated by benchmarks/results_table.py from the results.json in each folder."),
    ]
    if (pruned := pruning_table.table(_pruned(runs))) is not None:
        blocks += [Heading(pruned.title), Picture(PRUNED), pruned]
    if entries := overview.entries(_compressed(runs), _trained):
        blocks += [Heading("Compressed"), Picture(COMPRESSED), overview.table(entries)]
    sections = [block for name, results in runs.items() for block in section(name, results)]
    return markdown.text([*blocks, *(sections or [Paragraph("No result is committed yet.")])])


def _pruned(runs: dict[str, Results]) -> list[Results]:
    """The runs whose pruning methods are compared with each other."""
    return [results for name, results in runs.items() if name.startswith("pruning/") and results.pruned]


def _compressed(runs: dict[str, Results]) -> list[Results]:
    """The runs of one recipe with several seeds."""
    return [results for name, results in runs.items() if name.startswith(COMPRESSION)]


def section(name: str, results: Results) -> list[Block]:
    return [
        Heading(name),
        *page.result(results),
        *page.origin(results),
        Picture(f"{name}/{PICTURE}"),
        models_table(results),
        Bullets(footnotes.coverage(results)),
        Paragraph(footnotes.timing(results)),
    ]


def measured_part(table: Table) -> str:
    """A table, and its notes as one paragraph."""
    text = markdown.text([replace(table, notes=[]), Paragraph(" ".join(table.notes))]).rstrip("\n")
    # Links to committed runs, which stand in the table as text.
    return re.sub(rf"\\\[([^\\\]]+)\\\]\(({OF_A_PAGE}[^)]*)\)", r"[\1](\2)", text)


def step_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/step.py`, with a row for each kind of step."""
    rows = [
        (
            row["name"],
            number(row["tokens_per_second"], 0),
            number(row["median_ms"], 0),
            number(row["peak_mib"], 0),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    machine = f"{facts['gpu']} and {facts['cpu']}" if facts["gpu"] else facts["cpu"]
    notes = [
        f"One step of a randomly initialized BERT with {measured['teacher_layers']} layers and hidden size "
        f"{measured['hidden']} as teacher, and {measured['student_layers']} layers as student. Batch "
        f"{measured['batch']} x {measured['length']}, {measured['masked']} masked positions, vocabulary of "
        f"{measured['vocabulary']:,} tokens, dropout {measured['dropout']} in every variant.",
        f"Medians of {measured['repeats']} rounds, each of which runs every kind of step; {facts['threads']} threads, "
        f"{machine}, torch {facts['torch']}.",
        "Peak MiB: memory in use during the step, without weights and optimizer state.",
    ]
    return Table("Training step", ("Step", "Tokens/s", "ms", "Peak MiB", "Speedup [95%]"), rows, 1, notes)


WAYS = {
    "distill": "distill",
    "textbrewer": "TextBrewer, float32",
    "trainer": "subclass of Trainer, float32",
    "trainer_bf16": "subclass of Trainer, bf16",
}
"""Way of `benchmarks/frameworks.py` -> its name for a reader."""


def frameworks_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/frameworks.py`, with a row for each way and size."""
    rows = [
        (
            f"{row['size']}, {row['training_rows']:,} rows",
            WAYS[row["way"]],
            _median(row["seconds"]),
            number(row["tokens_per_second"], 0),
            number(row["peak_mib"], 0),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
            number(100 * row["accuracy"]),
            number(100 * row["agreement"]),
            number(row["kl"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    rounds = len(measured["rows"][0]["seconds"])
    columns = (
        *("Size", "With", "Seconds", "Tokens/s", "Peak MiB", "Speedup [95%]"),
        *("Accuracy %", "Same as the teacher %", "KL"),
    )
    notes = [
        "Task distillation of a teacher that is fine-tuned already, from starting the process to the written student: "
        f"{measured['epochs']} epochs, batches of {measured['batch']} rows, texts of at most {measured['max_length']} "
        "tokens. base: a teacher of the size of BERT-base, and a student with half its layers. small: the embedded "
        "teacher, and half its layers.",
        f"Medians of {rounds} rounds, in each of which every way ran once, in a process of its own; {facts['threads']} "
        f"threads, {facts['cpu']}, torch {facts['torch']}, transformers {facts['transformers']}, TextBrewer "
        f"{facts['textbrewer']}. Tokens: those of the training rows, without padding. Peak MiB: of the whole process; "
        "- where it was not measured.",
        f"The teacher's accuracy: {_of_teachers(measured)}. Accuracy, agreement, and mean KL from the teacher's "
        "probabilities: on 500 other rows. The 18 steps of base are too few to learn the task: its rows compare time.",
    ]
    return Table("Task distillation", columns, rows, 2, notes)


WAYS_OF_EMBEDDERS = {
    "start": "the student to begin with",
    "distill_vectors": "distill, term on vectors alone",
    "distill_similarities": "distill, heavy term on similarities",
    "sentence_transformers": "sentence-transformers, float32",
    "sentence_transformers_bf16": "sentence-transformers, bf16",
}
"""Way of `benchmarks/embedders.py` -> its name for a reader."""


def embedders_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/embedders.py`, with a row for each way."""
    rows = [
        (
            WAYS_OF_EMBEDDERS[row["way"]],
            _median(row["seconds"]) if "seconds" in row else "-",
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2) if "speedup" in row else "-",
            number(row["cosine"], 3),
            number(row["spearman"], 3),
        )
        for row in measured["rows"]
    ]
    facts, rounds = measured["environment"], len(measured["rows"][1]["seconds"])
    columns = ("With", "Seconds", "Speedup [95%]", "Cosine", "Spearman")
    notes = [
        f"The embedded teacher to three of its six layers: {measured['texts']:,} texts, {measured['epochs']} epochs, "
        f"batches of {measured['batch']} texts. Cosine: mean of that of the student's and the teacher's vectors of 500 "
        "other texts. Spearman: of the similarities of all pairs of these. "
        f"Medians of {rounds} rounds; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}, "
        f"sentence-transformers {facts['sentence-transformers']}.",
    ]
    return Table("Distillation of an embedder", columns, rows, 1, notes)


def embedder_terms_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/embedder_terms.py`, with a row for each weight on each kind of rows."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        groups.setdefault((row["rows"], *row["weights"]), []).append(row)
    rows = []
    for (kind, *weights), seeds in groups.items():
        score, cosine = (_spread([row[key] for row in seeds]) for key in ("score", "cosine"))
        teacher = number(seeds[0]["teacher_score"])
        of_terms = (f"{weight:g}" for weight in weights)
        rows.append((kind, seeds[0]["metric"], *of_terms, score, cosine, teacher))
    facts = measured["environment"]
    notes = [
        f"The embedded teacher to three of its six layers, {measured['training_rows']:,} rows of each kind, the "
        f"defaults of recipe=task; scored on {measured['scored_rows']} development rows. Score: of the student. "
        "Cosine: mean of that of the student's and the teacher's vectors of these rows' texts, in percent. "
        f"Mean ± standard deviation over {len(seeds)} seeds; torch {facts['torch']}.",
    ]
    columns = ("Rows", "Metric", "Weight of similarities", "Weight of vectors", "Score", "Cosine", "Teacher")
    return Table("Weights of the terms of embedders", columns, rows, 2, notes)


def _spread(values: Sequence[float]) -> str:
    return f"{number(fmean(values))} ± {number(pstdev(values))}"


HOW_DISTURBED = {
    "killed": "Killed at a file",
    "later": "Killed at a time",
    "stopped": "SIGTERM",
    "full": "Disk full",
}
"""How `benchmarks/chaos.py` disturbs runs -> a column."""


def chaos_table(outcome: dict[str, Any]) -> Table:
    """The outcome of `benchmarks/chaos.py`, with a row for each recipe, and their sums."""
    counts = []
    for row in outcome["rows"]:
        how = [each["how"] for each in row["disturbances"]]
        numbers = [*(how.count(name) for name in HOW_DISTURBED), *(len(row[key]) for key in ("damages", "lost"))]
        counts.append([*numbers, int(bool(row["different"]))])
    names = [(row["recipe"], str(row["processes"])) for row in outcome["rows"]] + [("all", "")]
    sums = [*counts, [sum(column) for column in zip(*counts, strict=True)]]
    rows = [(*name, *map(str, numbers)) for name, numbers in zip(names, sums, strict=True)]
    columns = ("Recipe", "Processes", *HOW_DISTURBED.values(), "Damaged files", "Lost", "Different")
    return Table("Disturbed runs", columns, rows, 2, [])


OUTCOMES = {"equal": "Equal", "refused": "Refused", "told": "Kept with a note", "stale": "Stale"}
"""How runs of `benchmarks/edits.py` end -> a column."""


def edits_table(outcome: dict[str, Any]) -> Table:
    """The outcome of `benchmarks/edits.py`, with a row for each kind of edit, and their sums."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in outcome["rows"]:
        kinds.setdefault(row["kind"], []).append(row)
    counts = []
    for rows in kinds.values():
        runs = [run["outcome"] for row in rows for run in row["runs"].values()]
        counts.append([len(rows), len(runs), *(runs.count(name) for name in OUTCOMES)])
    sums = [*counts, [sum(column) for column in zip(*counts, strict=True)]]
    rows = [(name, *map(str, numbers)) for name, numbers in zip([*kinds, "all"], sums, strict=True)]
    return Table("Edits between identical commands", ("Edit", "Edits", "Runs", *OUTCOMES.values()), rows, 1, [])


def fuzz_table(outcome: dict[str, Any]) -> Table:
    """The numbers of outcomes of random cases, which tests/fuzz/conftest.py writes."""
    rows = [
        (row["kind"], *(f"{value:,}" for value in (row["accepted"] + row["refused"], row["accepted"], row["refused"])))
        for row in outcome["rows"]
    ]
    return Table("Random cases", ("Kind", "Cases", "Accepted", "Refused with a message"), rows, 1, [])


WATCHED = {
    "memory_mib": "Memory, MiB", "files": "Open files", "threads": "Threads", "processes": "Processes",
    "temporary": "Temporary files", "shared_memory": "Files in shared memory",
}  # fmt: skip
"""What `benchmarks/soak.py` reads -> a column."""


def soak_table(outcome: dict[str, Any]) -> Table:
    """The readings of `benchmarks/soak.py`: medians of each eighth of the time."""
    parts, rows = 8, []
    for series in dict.fromkeys(reading["series"] for reading in outcome["rows"]):
        readings = [reading for reading in outcome["rows"] if reading["series"] == series]
        for part in range(parts):
            inside = readings[len(readings) * part // parts : len(readings) * (part + 1) // parts]
            if inside:
                medians = (number(median(reading[key] for reading in inside), 0) for key in WATCHED)
                last = inside[-1]
                rows.append((series, number(last["seconds"] / 60, 0), str(last["runs"]), *medians))
    return Table("Long series of runs", ("Series", "Minutes", "Finished runs", *WATCHED.values()), rows, 1, [])


def _of_teachers(measured: dict[str, Any]) -> str:
    by_size = {row["size"]: row["teacher_accuracy"] for row in measured["rows"]}
    return ", ".join(f"{100 * accuracy:.1f}% ({size})" for size, accuracy in by_size.items())


def startup_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/startup.py`, with a row for each command."""
    rows = [
        (row["until"], f"python -m distill {row['command']}", _median(row["seconds"]), number(max(row["seconds"])))
        for row in measured["rows"]
    ]
    served = measured.get("serving", [])
    rows += [
        (
            f"first prediction, {each['artifact']}",
            "distill.load",
            _median(each["seconds"]),
            number(max(each["seconds"])),
        )
        for each in served
    ]
    facts, runs = measured["environment"], len(measured["rows"][0]["seconds"])
    notes = [f"Runs of each: {runs}; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}."]
    notes += [f"{each['artifact']}: {number(max(each['mib']), 0)} MiB resident after it." for each in served]
    if sizes := measured.get("packages"):
        parts = ", ".join(f"{name} {number(mib, 0)}" for name, mib in sizes.items())
        notes.append(f"MiB of the packages that serving needs: {number(sum(sizes.values()), 0)} ({parts}).")
    return Table("Startup", ("Until", "Command", "Seconds, median", "Seconds, most"), rows, 2, notes)


def corpus_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/corpus.py`, with a row for each size."""
    rows = [
        (
            number(row["mib"], 0),
            number(row["seconds"]),
            number(row["mib"] / row["seconds"]),
            number(row["stored_mib"], 0),
            number(row["peak_mib"], 0),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    notes = [
        "Random words, in a text file, with the tokenizer of the embedded teacher. Peak MiB: of the whole process. "
        f"One run of each size; {facts['threads']} threads, {facts['cpu']}, tokenizers {facts['tokenizers']}.",
    ]
    columns = ("MiB of text", "Seconds to encode", "MiB/s", "MiB of token ids", "Peak MiB")
    return Table("Encoding a corpus", columns, rows, 0, notes)


def attention_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/attention.py`, with a row for each length, with dropout and without."""
    rows = [
        (
            number(row["dropout"], 1),
            number(row["length"], 0),
            *(number(row[kind]["ms"], 0) for kind in ("sdpa", "eager", "quick")),
            times(row["quick"]["speedup"]),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    notes = [
        "Milliseconds of a forward and a backward pass of two layers of width 384, for 4,096 tokens, padding included. "
        "In steps: with our dropout and attention; the speedup is over SDPA. "
        f"Medians of {measured['repeats']} rounds; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}.",
    ]
    columns = ("Dropout", "Tokens of a row", "SDPA", "Eager", "In steps", "Speedup")
    return Table("Attention on a CPU", columns, rows, 0, notes)


def gpu_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/gpu.py`, with a row for each way of each step."""
    rows = [
        (
            row["kind"],
            f"{row['rows']} x {row['length']}",
            row["way"],
            number(row["ms"]),
            number(row["tokens_per_second"], 0),
            times(row["speedup"]),
            number(100 * row["share"], 0),
        )
        for row in measured["rows"]
    ]
    facts, steps = measured["environment"], measured["rows"][0]
    notes = [
        "General distillation: BERT-base to half its layers, with the terms of recipe=distilbert. Task distillation: "
        "those six layers, with the teacher's outputs stored. Each way has what those above it have. Share: the "
        "arithmetic per second of the step's matrix products and attention, of what a product of two large bf16 "
        "matrices reaches, "
        f"{number(measured['matrix_flops'] / 1e12, 0)} TFLOP/s. Medians of {len(steps['ms_of_rounds'])} rounds of ten "
        f"steps; one {facts['gpu']}, torch {facts['torch']}.",
    ]
    columns = ("Step", "Rows x tokens", "Way", "ms", "Tokens/s", "Speedup", "Share %")
    return Table("A step on a GPU", columns, rows, 3, notes)


def _median(seconds: Sequence[float]) -> str:
    return number(sorted(seconds)[len(seconds) // 2])


def quantize_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/quantize.py`, with a row for each variant."""
    rows = [
        (
            row["backend"],
            row["scheme"],
            number(row["mib"], 0),
            number(row["median_ms"], 1),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    packages = ("torch", "onnxruntime", "openvino", "torchao")
    versions = ", ".join(f"{name} {facts[name]}" for name in packages if facts[name])
    notes = [
        f"A randomly initialized BERT with {measured['layers']} layers and hidden size {measured['hidden']}, batch "
        f"{measured['batch']} x {measured['length']}.",
        f"Medians of {measured['repeats']} rounds, each of which times every variant; {facts['threads']} threads, "
        f"{facts['cpu']}, {versions}.",
        f"Speedup: over {measured['fastest_float32']}, the fastest float32 variant.",
    ]
    return Table("Quantized variants", ("Backend", "Scheme", "MiB", "ms", "Speedup [95%]"), rows, 2, notes)


_MEASUREMENTS: dict[str, tuple[Path, Callable[[dict[str, Any]], Table]]] = {
    "frameworks": (PERFORMANCE, frameworks_table),
    "step": (PERFORMANCE, step_table),
    "quantize": (COMPRESSING, quantize_table),
    "startup": (PERFORMANCE, startup_table),
    "corpus": (PERFORMANCE, corpus_table),
    "attention": (PERFORMANCE, attention_table),
    "gpu": (PERFORMANCE, gpu_table),
    "embedders": (PERFORMANCE, embedders_table),
    "embedder_terms": (FINDINGS, embedder_terms_table),
    "chaos": (RELIABILITY, chaos_table),
    "edits": (RELIABILITY, edits_table),
    "fuzz": (RELIABILITY, fuzz_table),
    "soak": (RELIABILITY, soak_table),
}
"""File in benchmarks/results -> document with its markers, and the function of its table."""


if __name__ == "__main__":
    sys.exit(main())
