"""The sentences of a report: the headline, what the average covers, how latency was measured.

No sentence claims more than the numbers support: a loss against the baseline, a slower student and a failed student
are reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from distill.backends import BACKENDS
from distill.data.task import about, names_in
from distill.report import verdict
from distill.report.schema import Model, Results
from distill.report.timed import at, middle_shape

SMOKE = "SMOKE RUN: tiny stand-in models and data. These numbers mean nothing."
NO_STUDENT = "No student was scored, so there is no result."
NO_BASELINE = "There is no baseline in the same variant: the gain from distillation is unknown."
GLUE = names_in("glue")
LEARNED = ("train", "development")
"""Splits of the training rows: those that train, and those on which choices are made."""


def variant(model: Model) -> str:
    """Scheme and backend of a model, e.g. `int8 onnxruntime`."""
    return f"{model['scheme']} {model['backend']}"


REFERENCE = "the teacher's fastest float32 variant"


def reference(results: Results) -> str:
    """What speedups are over: on a GPU the teacher may also compute in 16 bits, but not under the rules before."""
    on_gpu = results["environment"].get("gpu") and results.get("rules") == "current"
    return "the teacher's fastest variant in 32 or 16 bits" if on_gpu else REFERENCE


def float32(model: Model) -> bool:
    """Whether a model is in float32: fp32, or fp32_medium."""
    return str(model["scheme"]).startswith("fp32")


def of_role(results: Results, role: str) -> list[Model]:
    return [model for model in results["models"] if model["role"] == role]


def targets(results: Results) -> list[str | None]:
    """The targets of the students, in order; None for a student without a target."""
    return list(dict.fromkeys(model["target"] for model in of_role(results, "student")))


def kinds(results: Results) -> dict[str, str]:
    """Stage -> its kind."""
    return {stage["name"]: stage["kind"] for stage in results["stages"]}


def task_names(results: Results) -> list[str]:
    """The tasks on which at least one model was scored, in order."""
    return list(dict.fromkeys(task for m in results["models"] for task in m.get("scores", ())))


def _host_only(results: Results, model: Model) -> bool:
    """Whether the model ran on the CPU although the run had a GPU."""
    return bool(results["environment"].get("gpu")) and BACKENDS[model["backend"]].cpu_only


def where(results: Results, model: Model) -> str:
    """`, on the CPU` for a model that ran on the CPU although the run had a GPU; else an empty text."""
    return ", on the CPU" if _host_only(results, model) else ""


def on_the_cpu(results: Results) -> list[str]:
    """The note on models that ran on the CPU although the run had a GPU; empty if there is none."""
    backends = dict.fromkeys(model["backend"] for model in results["models"] if _host_only(results, model))
    if not backends:
        return []
    gpu = results["environment"]["gpu"]
    return [f"Rows with backend {' or '.join(backends)} ran on the CPU, not on the {gpu}."]


def retained(model: Model) -> float | None:
    """The retained % of the headline: of the macro score without WNLI."""
    ways = model.get("retained")
    return ways["macro_without_wnli"] if ways else None


def speedup(model: Model) -> float | None:
    """Against the teacher's fastest float32 variant over all backends."""
    ways = model.get("speedup")
    return ways["best_teacher"] if ways else None


def interval(model: Model, key: str) -> list[float] | None:
    """The 95% interval of `retained` or `speedup`."""
    ways = model.get(key)
    return ways["ci95"] if ways else None


def chosen(results: Results, target: str | None = None) -> Model | None:
    """The student of the headline: its fastest variant. Scores play no part in the choice."""
    scored = [m for m in _scored(results, target) if m["role"] == "student"]
    return max(scored, key=lambda m: speedup(m) or 0.0, default=None)


def _scored(results: Results, target: str | None) -> list[Model]:
    models = [m for m in results["models"] if "failed" not in m and m["target"] == target]
    return [m for m in models if retained(m) is not None]


def pair(results: Results, target: str | None = None) -> tuple[Model, Model] | None:
    """(student, baseline) in one variant: the headline's if both have it, else the first that both have, else None."""
    scored = _scored(results, target)
    students = {variant(m): m for m in scored if m["role"] == "student"}
    baselines = {variant(m): m for m in scored if m["role"] == "baseline"}
    shared = [key for key in students if key in baselines]
    head = chosen(results, target)
    if head is not None and variant(head) in shared:
        return students[variant(head)], baselines[variant(head)]
    return (students[shared[0]], baselines[shared[0]]) if shared else None


def headline(results: Results) -> str:
    """The result in two or three sentences; a few more for several students."""
    every = targets(results)
    if len(every) > 1:
        return " ".join(_several(results))
    target = every[0] if every else None
    model = chosen(results, target)
    if model is None:
        reasons = [f"{variant(m)}: {m['failed']}" for m in of_role(results, "student") if "failed" in m]
        return " ".join([NO_STUDENT, *reasons])
    return f"{_quality_and_speed(results, model)} {_against_baseline(results, model)}"


def _several(results: Results) -> Iterator[str]:
    """Retained % and speedup of each student, the fastest that retains enough, the gains over the baselines."""
    students = {target: model for target in targets(results) if (model := chosen(results, target)) is not None}
    if not students:
        yield NO_STUDENT
        return
    numbers = [
        f"{retained(m):.1f}% at {speedup(m) or 0:.2f}x ({target_name(t)}, {variant(m)})" for t, m in students.items()
    ]
    macro = "macro score without WNLI" if "wnli" in task_names(results) else "macro score"
    yield (
        f"{counted(len(students), 'student')}, as retained % of the teacher's {macro} at speedup over "
        f"{reference(results)}{_at_shape(results)}: {'; '.join(numbers)}."
    )
    if (least := results.get("least_retained")) is not None:
        yield _fastest(results, least)
    compared = {target: both for target in targets(results) if (both := pair(results, target)) is not None}
    if not compared:
        yield NO_BASELINE
        return
    variants = dict.fromkeys(variant(student) for student, _ in compared.values())
    gains = [f"{(retained(s) or 0) - (retained(b) or 0):+.1f} ({target_name(t)})" for t, (s, b) in compared.items()]
    yield (
        f"Gain over the same students {_without(results)}, in percentage points, as {', '.join(variants)}: "
        f"{', '.join(gains)}."
    )


def target_name(target: str | None) -> str:
    return "no target" if target is None else target


def counted(count: int, name: str) -> str:
    """`1 student`, `2 students`."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def _at_shape(results: Results) -> str:
    """The shape that speedups were measured at, explained; nothing where no shape is known.

    With shared heads, also that the speedup is that of all tasks together.
    """
    shape = middle_shape(results)
    text = f"{at([shape])} (batch x length)" if shape and re.fullmatch(r"\d+x\d+", shape) else at([shape])
    return f"{text}, for its {len(task_names(results))} tasks together" if results.get("heads") else text


def _without(results: Results) -> str:
    """How the baseline was trained."""
    start = ", from weights that were trained with one" if results.get("taught_start") else ""
    return f"trained without a teacher{start}"


def _fastest(results: Results, least: float) -> str:
    """The fastest student, in any variant, that retains at least `least` percent of the teacher's score.

    Chosen on the development rows, unless a student has no score on them.
    """
    students = [m for target in targets(results) for m in _scored(results, target) if m["role"] == "student"]
    apart = all(m["retained"].get("development") is not None for m in students)
    enough = [m for m in students if (m["retained"]["development"] if apart else retained(m) or 0) >= least]
    best = max(enough, key=lambda m: speedup(m) or 0.0, default=None)
    where = " on the development rows" if apart else ""
    if best is None:
        return f"No student retains {least:g}%{where}."
    origin = "It was selected by the same validation scores that are reported here."
    if apart:
        origin = f"It was selected on the development rows, on which it retains {best['retained']['development']:.1f}%."
    return (
        f"The fastest student that retains at least {least:g}%{where} is {best['name']} ({variant(best)}): "
        f"{retained(best):.1f}% at {speedup(best) or 0:.2f}x. {origin}"
    )


def _between(ends: list[float] | None, digits: int) -> str:
    return f" (95% interval {ends[0]:.{digits}f} to {ends[1]:.{digits}f})" if ends else ""


def _quality_and_speed(results: Results, model: Model) -> str:
    percent = f"{retained(model):.1f}%{_between(interval(model, 'retained'), 1)}"
    macro = "macro score without WNLI" if "wnli" in model["scores"] else "macro score"
    text = f"The {model['scheme']} student ({model['backend']}{where(results, model)}) retains {percent}"
    text += f" of the teacher's {macro}"
    times = speedup(model)
    if times is None:
        return f"{text}; its speed was not measured."
    ends = interval(model, "speedup")
    speed = f"{times:.2f}x{_between(ends, 2)} the speed of {reference(results)}{_at_shape(results)}"
    if ends and ends[0] <= 1 <= ends[1]:
        return f"{text} at {speed}. This is no measurable speedup: the interval includes 1."
    return f"{text} but is slower: {speed}." if times < 1 else f"{text} at {speed}."


def _against_baseline(results: Results, model: Model) -> str:
    compared = pair(results, model["target"])
    if compared is None:
        failed = any("failed" in m for m in of_role(results, "baseline"))
        return "The baseline failed: the gain from distillation is unknown." if failed else NO_BASELINE
    student, baseline = compared
    ours, theirs = retained(student) or 0.0, retained(baseline) or 0.0
    same = f"the same student {_without(results)}{',' if results.get('taught_start') else ''}"
    if variant(student) == variant(model):
        text = f"{same[0].upper()}{same[1:]} retains {theirs:.1f}%"
    else:
        text = f"Compared as {variant(student)}, the distilled student retains {ours:.1f}% and {same} {theirs:.1f}%"
    test = verdict.between(results, student, baseline)
    if test is not None and not test["distinguishable"]:
        return f"{text}: the two are not distinguishable ({verdict.numbers(test)})."
    return f"{text}: {_verdict(ours - theirs)}{_overlap(student, baseline) if test is None else ''}"


def _verdict(gain: float) -> str:
    if abs(gain) < 0.05:
        return "distillation made no difference."
    if gain < 0:
        return f"distillation LOST {-gain:.1f} percentage points."
    return f"distillation gained {gain:.1f} percentage points."


def _overlap(student: Model, baseline: Model) -> str:
    a, b = interval(student, "retained"), interval(baseline, "retained")
    return " The two 95% intervals overlap." if a and b and a[0] <= b[1] and b[0] <= a[1] else ""


def _evaluated(results: Results) -> dict[str, bool]:
    """Scored task -> whether all its validation splits are complete.

    A task without training rows has no model and no scores, even if it has validation rows: it is not in the average.
    """
    splits = [row for row in results["coverage"] if row["split"] not in LEARNED]
    tasks = dict.fromkeys(task_names(results), True)
    for row in splits:
        if row["task"] in tasks and (row.get("limited") or row["rows"] < (row["official_rows"] or 0)):
            tasks[row["task"]] = False
    return tasks


def _published(results: Results) -> set[str]:
    """Tasks with an official number of rows. Own tasks have none, whatever they are called."""
    return {row["task"] for row in results["coverage"] if row["official_rows"]}


def glue_tasks(results: Results) -> set[str]:
    """Tasks of GLUE in the coverage, without own tasks of the same names."""
    return _published(results) & set(GLUE)


def average_name(results: Results) -> str:
    """Name of the average: `GLUE` only for all nine tasks with complete validation splits."""
    tasks = _evaluated(results)
    complete = all(tasks.values())
    if any(row.get("stand_in") for row in results["coverage"]):
        return f"Stand-in average ({len(tasks)} tasks)"
    if tasks and set(tasks) <= glue_tasks(results):
        if len(tasks) == len(GLUE):
            return "GLUE (9 tasks)" if complete else f"Partial GLUE ({sum(tasks.values())} of 9 tasks complete)"
        return f"Partial GLUE ({len(tasks)} of 9 tasks)"
    if len(tasks) == 1:
        return f"{'Score' if complete else 'Partial score'} of {next(iter(tasks))}"
    return f"{'Average' if complete else 'Partial average'} ({len(tasks)} tasks)"


def coverage(results: Results) -> list[str]:
    """What the average covers and what it does not, in sentences."""
    tasks = _evaluated(results)
    rows = results["coverage"]
    reported = "test" if any(row["split"] == "test" for row in rows) else "validation"
    several = f"the macro score: the mean over {', '.join(tasks) or 'no task'} of the mean of each task's metrics"
    single = f"the macro score: the mean of {' and '.join(_metrics(results))}"
    sentences = [f"{average_name(results)} is {single if len(tasks) == 1 else several} on its {reported} splits."]
    named = list(dict.fromkeys([*tasks, *(row["task"] for row in rows)]))
    expected = GLUE if set(named) <= glue_tasks(results) else named
    if absent := [task for task in expected if task not in tasks]:
        sentences.append(f"Not in the average: {', '.join(absent)}.")
    short = [row for row in used(results) if row["official_rows"] and row["rows"] < row["official_rows"]]
    for title, partial in {
        "Validation is partial": [row for row in short if row["split"] not in LEARNED],
        "Training is partial": [row for row in short if row["split"] == "train"],
    }.items():
        if partial:
            sentences.append(f"{title}: {'; '.join(map(_share, partial))}.")
    stand_ins = list(dict.fromkeys(row["task"] for row in rows if row.get("stand_in")))
    if stand_ins:
        sentences.append(f"Generated stand-ins in place of the real data: {', '.join(stand_ins)}.")
    elif set(tasks) <= _published(results) and (sentence := about(set(tasks))):
        sentences.append(sentence)
    return [*sentences, *shared_heads(results)]


def used(results: Results) -> list[dict[str, Any]]:
    """The coverage, with the development rows counted among the training rows, whose part they are."""
    chosen = {row["task"]: row["rows"] for row in results["coverage"] if row["split"] == LEARNED[1]}
    return [
        row | {"rows": row["rows"] + (chosen.get(row["task"], 0) if row["split"] == "train" else 0)}
        for row in results["coverage"]
    ]


def _metrics(results: Results) -> list[str]:
    """Names of the metrics of all tasks."""
    scores = [scores for model in results["models"] for scores in model.get("scores", {}).values()]
    return list(dict.fromkeys(metric for of_task in scores for metric in of_task))


def _share(row: dict[str, object]) -> str:
    split = "" if row["split"] in ("train", "validation") else f" {row['split']}"
    return f"{row['task']}{split} {row['rows']:,} of {row['official_rows']:,} rows"


def pruned(results: Results) -> list[str]:
    """For each pruned model: its sizes and, for a target, its predicted and measured speed."""
    rows = results.get("pruned", [])
    several = len({row["step"] for row in rows}) > 1
    return [_cut(row, several) for row in rows]


def _cut(row: dict[str, Any], with_step: bool) -> str:
    of = ", ".join([*([row["step"]] if with_step else []), *([row["target"]] if row["target"] else [])])
    sizes = f"pruned to {counted(row['layers'], 'layer')}, {row['hidden']} hidden and {row['ffn']} FFN channels"
    sizes = f"{of}: {sizes}" if of else f"{sizes[0].upper()}{sizes[1:]}"
    if "predicted_ms" not in row:
        return f"{sizes}, as configured."
    ratio = "" if row["measured_speedup"] is None else f"{row['measured_speedup']:.2f}x, "
    measured = "not measured" if row["measured_ms"] is None else f"measured {ratio}{row['measured_ms']:.1f} ms"
    return (
        f"{sizes}. Of {row['tried']} shapes tried, this one has the least estimated loss among those that meet the "
        f"target. Speedup over the unpruned model in torch {row['scheme']} at {row['batch']}x{row['length']}: "
        f"predicted {row['predicted_speedup']:.2f}x, {row['predicted_ms']:.1f} ms; {measured}."
    )


def shared_heads(results: Results) -> list[str]:
    """What sizes and times of a student with shared heads are; empty for others."""
    if not results.get("heads"):
        return []
    count = len(task_names(results))
    return [
        f"The student has one encoder and {count} heads, trained on all tasks at once. Parameters, sizes, "
        f"multiply-accumulates and times are those of its {count} tasks together: the student's encoder counts once, "
        f"and one pass of it serves all heads; the teacher has {count} models, which run one after the other on the "
        f"same batch. Where only one task is served, the speedup is about 1/{count} of the one reported."
    ]


def timing(results: Results) -> str:
    """How latency was measured, and on which machine."""
    facts = results["environment"]
    repeats = sorted({row["repeats"] for m in results["models"] for row in m.get("latency_ms", ())})
    rounds = f"{repeats[0]} to {repeats[-1]} rounds" if len(repeats) > 1 else counted(sum(repeats), "round")
    device = f" and {facts['gpu']}" if facts.get("gpu") else ""
    return (
        "All variants were timed in one process. Each round timed every variant once, in random order. An untimed call "
        "of the same variant came before each timing, so that the thread pool of the previous variant was idle. Short "
        f"calls were repeated until a timing took some tens of milliseconds. There were {rounds}, with "
        f"{counted(facts['threads'], 'thread')}, on {facts['cpu']}{device}. Latencies are medians over rounds. "
        "Speedups are medians of the ratios within each round, with a 95% bootstrap interval. fp32_medium is float32 "
        "in torch with set_float32_matmul_precision('medium')."
    )
